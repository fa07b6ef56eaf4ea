"""Scripts with torch's DistributedDataParallel: the kvstore forms the mean of its buckets, and workers join and leave.

DDP runs in a process group of this process alone, so that its buckets reach the hook and no worker waits for another
one's process. Keys are the parameters' names: the buckets' order differs between workers, for DDP changes it after
its first step.
"""

from __future__ import annotations

import functools
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple

import torch
import torch.distributed

from ..errors import Error, InvalidUse, Rollback
from ..store import Handle
from .replica import Replica
from .replicas import Replicas

_distributed: Any = torch.distributed
_futures: Any = torch.futures
_autograd: Any = torch.autograd


class _Bucket(NamedTuple):
    """A bucket of DDP in the backward that is under way."""

    buffer: Any
    rows: Dict[str, Tuple[Any, Any]]
    """The parameters' rows and gradients in the buffer."""
    future: Any
    """DDP's."""
    handles: List[Handle]
    """Of its push; none: it was not sent."""


def init_process_group(backend: str = "gloo") -> None:
    """torch.distributed with this process as the only one, whatever the environment says, and without a port."""
    if not _distributed.is_initialized():
        _distributed.init_process_group(backend, store=_distributed.HashStore(), rank=0, world_size=1)
    elif _distributed.get_world_size() != 1:
        size = _distributed.get_world_size()
        raise InvalidUse(
            f"torch.distributed has {size} processes: with dtkv each process is a group of its own; "
            "call dtkv.torch.init_process_group() instead of torch's"
        )


class DDPState(Replicas):
    """The state of ddp_hook: trains a DDP model with all workers of the job.

    model: the DDP module, or the module in it. optimizer: the program's own, of torch.optim.

        dt.init_process_group()
        model = DDP(Net(), broadcast_buffers=False)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        kv = dt.DDPState(model, optimizer)
        model.register_comm_hook(kv, dt.ddp_hook)
        loader = DataLoader(data, batch_sampler=kv.batches(data, 64))
        for epoch in kv.epochs(10):
            for x, y in loader:
                kv.samples = len(x)
                optimizer.zero_grad()
                cross_entropy(model(x), y).backward()
                optimizer.step()

    backward() returns with the mean gradients. A parameter that only some workers used (find_unused_parameters) has the
    mean on all of them. Newcomers and the loss of a server: as with dt.Optimizer.
    """

    def __init__(self, model: Any, optimizer: Any, *, type: Optional[str] = None) -> None:  # noqa: A002
        self.samples = 1
        """This worker's weight in the mean: the number of samples of the batch."""
        self._names: Dict[int, str] = {}
        self._buckets: List[_Bucket] = []
        self._error: Optional[BaseException] = None
        self._has_unused = getattr(model, "find_unused_parameters", True) or getattr(model, "static_graph", True)
        """Whether DDP leaves gradients alone: those of parameters that this worker did not use."""
        replica = Replica(model, optimizer, is_whole=True)
        super().__init__(type)
        self.add(replica)

    _how_to_step = "write model.register_comm_hook(kv, dt.ddp_hook) before epochs()"

    def _make_keys(self) -> None:
        (one,) = self._replicas
        new = one.found().keys() - set(self._names.values())
        if self._names and new:
            raise InvalidUse(f"{min(new)} is trained now: wrap the model in DDP again")
        super()._make_keys()
        self._names = {id(p): name for name, p in one.parameters.items()}

    def _take_bucket(self, bucket: Any) -> Any:
        """Begins the exchange of a bucket."""
        buffer = bucket.buffer()
        future = _futures.Future(devices=[buffer.device] if buffer.is_cuda else None)
        if not self._buckets:
            self._error = None
            _autograd.Variable._execution_engine.queue_callback(self._end_backward)
        rows: Dict[str, Tuple[Any, Any]] = {}
        self._buckets.append(_Bucket(buffer, rows, future, []))
        if self._error is not None or self._is_lost:
            return future
        try:
            samples = self._check_step(self.samples)
            self._agree()
            for p, gradient in zip(bucket.parameters(), bucket.gradients()):
                name = self._names.get(id(p))
                if name is None:
                    shape = tuple(p.shape)
                    raise InvalidUse(f"a parameter of shape {shape} is not of the model that DDPState was made with")
                at = gradient.storage_offset() - buffer.storage_offset()
                rows[name] = buffer[at : at + gradient.numel()], gradient
            self._buckets[-1].handles.append(self._push({name: row for name, (row, _) in rows.items()}, samples))
        except BaseException as error:  # raised when DDP is done, which would make a RuntimeError of it
            self._error = error
        return future

    def _end_backward(self) -> None:
        """When backward is done. Each bucket is complete when its mean is there, in the order in which they were sent; DDP
        copies them to the parameters' gradients after that. The facts come last."""
        (one,) = self._replicas
        buckets, self._buckets = self._buckets, []
        facts: List[Handle] = []
        is_well = self._error is None and not self._is_lost
        if is_well:
            self._try(lambda: facts.append(self._push_facts(one, int(self.samples))))
        for bucket in buckets:
            if is_well and (self._error is None or isinstance(self._error, Error)):  # not after a signal's handler
                self._try(functools.partial(self._wait_for_bucket, bucket))
            if self._is_lost or isinstance(self._error, Rollback):
                bucket.buffer.zero_()
            bucket.future.set_result(bucket.buffer)
        if is_well and self._error is None:
            self._try(lambda: self._take_facts(one, facts, buckets))
        if isinstance(self._error, Rollback):
            self._is_lost, self._error = True, None
            for bucket in buckets:
                bucket.buffer.zero_()
        # DDP is not ready for the next step before it has copied the buckets.
        _autograd.Variable._execution_engine.queue_callback(self._end_step_of_ddp)

    def _try(self, action: Callable[[], None]) -> None:
        """Its first error is raised when DDP is done."""
        try:
            with torch.no_grad():
                action()
        except BaseException as error:  # of a signal's handler, too
            self._error = self._error or error

    def _wait_for_bucket(self, bucket: _Bucket) -> None:
        self._wait_for_mean(bucket.handles, {name: row for name, (row, _) in bucket.rows.items()})

    def _take_facts(self, one: Replica, facts: List[Handle], buckets: List[_Bucket]) -> None:
        self._wait(facts)
        self._end_step(one, is_busy=True)
        if self._has_unused:
            self._set_gradients([bucket.rows for bucket in buckets])

    def _end_step_of_ddp(self) -> None:
        error, self._error = self._error, None
        if error is not None:
            raise error
        if self._refused is not None:
            self._replicas[0].optimizer.step()
        self._count_step()
        self._raise_refused()

    def _set_gradients(self, buckets: List[Dict[str, Tuple[Any, Any]]]) -> None:
        parameters = self._replicas[0].parameters
        counts = dict(zip(parameters, self._facts.has_gradient))
        for gradients in buckets:
            for name, (_, gradient) in gradients.items():
                p = parameters[name]
                if counts[name] == 0:
                    continue
                if p.grad is None:
                    p.grad = gradient.clone()
                elif p.grad.data_ptr() != gradient.data_ptr():
                    p.grad.copy_(gradient)


def ddp_hook(state: DDPState, bucket: Any) -> Any:
    """The communication hook: `model.register_comm_hook(kv, dt.ddp_hook)`."""
    return state._take_bucket(bucket)


ddp_hook.__annotations__ = {}  # DDP compares them with types of its own
