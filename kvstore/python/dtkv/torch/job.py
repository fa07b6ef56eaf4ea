"""A model whose optimizer is on the job's servers."""

from __future__ import annotations

import contextlib
import numbers
from typing import Any, Dict, Iterator, List, Optional, Sequence, Union

import numpy
import torch

from ..errors import InvalidUse, Leave, Rollback
from ..store import Store, View
from .sampler import Batches, Now

_LAST_STEP = 0xFFFFFFFF
_ALIGN = 16
"""Parameters begin at multiples of this many elements in the store's memory."""


class _Parameter:
    """A parameter and the places of its value and gradient."""

    def __init__(self, name: str, parameter: Any, value: Any, gradient: Any) -> None:
        self.name = name
        self.parameter = parameter
        self.value = value
        self.gradient = gradient
        value.copy_(parameter.detach())
        parameter.data = value
        parameter.grad = gradient


class Job:
    """Trains `model` with all workers of the job; a program that dtlaunch did not start trains alone.

    model: a torch.nn.Module of float32 or float64 parameters, on its device. optimizer: the servers' ("sgd momentum=0.9
    weight_decay=1e-4 nesterov=1", "adam", "adamw weight_decay=0.01"). lr: the learning rate, also `job.lr` later; it
    must be the same on all workers in each step.

        job = Job(model, "sgd momentum=0.9", lr=0.03)
        loader = DataLoader(data, batch_sampler=job.batches(data, 64))
        for epoch in job.epochs(10):
            for x, y in loader:
                loss = cross_entropy(model(x), y)
                loss.backward()
                job.step(len(x))
            print(job.total(right=right, seen=seen))

    Parameters that require a gradient are keys of the kvstore, by their names; their values and gradients lie in
    its memory. BatchNorm's statistics are averaged over the workers after each epoch. One thread.
    """

    def __init__(self, model: Any, optimizer: str, lr: float, *, type: Optional[str] = None) -> None:  # noqa: A002
        self.lr = lr
        self.left = False
        """Whether this worker was removed from the job: epochs() has ended, and the program should exit with 0."""
        self.epoch = 0
        self.rolled_back = False
        """Whether the epoch that is run was begun again after the loss of a server."""
        self._model = model
        self._step = 0
        self._is_lost = False
        self._has_finished_steps = False
        self._is_accumulating = False
        self._totals: Dict[str, Any] = {}
        named = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
        for name, p in named:
            if p.dtype not in (torch.float32, torch.float64):
                raise TypeError(f"{name}: parameters of type {p.dtype} are not supported; supported are float32 and float64")
        self.store = Store(type)
        self._parameters = self._lay_out(named)
        self._statistics = {n: b for n, b in model.named_buffers() if b.dtype in (torch.float32, torch.float64)}
        self._view = View(self.store.generation, self.store.rank, self.store.num_workers, 0, False, False)
        with self._unless_servers_are_lost():
            self.store.init({one.name: one.value for one in self._parameters})
            if self._statistics:
                self.store.init(self._statistics, auxiliary=True)
            self.store.set_optimizer(optimizer)
            self._pull()

    @property
    def rank(self) -> int:
        """This worker's rank in this epoch: 0 to world_size - 1."""
        return self._view.rank

    @property
    def world_size(self) -> int:
        """The number of workers in this epoch."""
        return self._view.num_workers

    @property
    def is_lead(self) -> bool:
        """Whether this worker has rank 0's duties: checkpoints, reports."""
        return self.store.is_lead

    def batches(
        self,
        data: Union[int, Sequence[Any]],
        batch_size: int,
        *,
        global_batch: Optional[int] = None,
        shuffle: bool = True,
        seed: int = 1,
    ) -> Batches:
        """A batch sampler: this worker's part of each epoch of `data` (or of so many samples). The workers' parts are
        disjoint, and together all samples. `batch_size`: of one worker, so that a step has as many more samples as
        there are workers; `global_batch`: of all workers together, in any world."""
        return Batches(
            data,
            batch_size,
            lambda: Now(self.epoch, self.rank, self.world_size),
            lambda: self._is_lost,
            global_batch=global_batch,
            shuffle=shuffle,
            seed=seed,
        )

    def eval_batches(self, data: Union[int, Sequence[Any]], batch_size: int) -> Batches:
        """This worker's part of the samples, in their order, for an evaluation whose counts total() adds up."""
        return self.batches(data, batch_size, shuffle=False)

    def epochs(self, count: int, begin: int = 0) -> Iterator[int]:
        """The epochs to run, `begin` to count - 1: workers join and leave between them. A newcomer begins with the
        others' epoch. After the loss of a server the epoch of the newest checkpoint comes again. Ends early, with `left`,
        when this worker was removed."""
        epoch = begin
        while epoch < count:
            try:
                if not self._begin(epoch):
                    return
            except Rollback:
                continue
            epoch = self.epoch
            if epoch >= count:
                break
            yield epoch
            with self._unless_servers_are_lost():
                self._end()
            if not self._is_lost:
                epoch += 1
        with self._unless_servers_are_lost():
            self._pull()

    def step(self, samples: int, lr: Optional[float] = None) -> None:
        """Contributes the gradients since the last step, as the mean over `samples`, and returns with the new weights of
        the whole job's step; the gradients are zero then. Parameters without a gradient contribute zeros. After the loss
        of a server it does nothing, and the batches end."""
        if not isinstance(samples, numbers.Integral) or samples < 0:
            raise ValueError(f"samples is the number of this step's samples, not {samples!r}")
        if self._has_finished_steps:
            raise InvalidUse("step() after total(): this worker has finished the steps of this epoch")
        if self._is_accumulating:
            raise InvalidUse("step() inside accumulate(): call it after the last micro-batch's backward, outside")
        for one in self._parameters:
            self._collect(one)
        with self._unless_servers_are_lost():
            self.store.pushpull(
                {one.name: one.gradient for one in self._parameters},
                {one.name: one.value for one in self._parameters},
                samples=int(samples),
                step=self.epoch << 32 | self._step,
                learning_rate=self.lr if lr is None else lr,
            )
            self.store.progress(self.epoch, self._step)
        self._step += 1
        for one in self._parameters:
            one.gradient.zero_()

    @contextlib.contextmanager
    def accumulate(self) -> Iterator[None]:
        """Micro-batches: backward inside adds to the gradients and nothing is sent; the next step() outside sends the
        sum. Divide each loss by the number of micro-batches for a mean."""
        self._is_accumulating = True
        try:
            yield
        finally:
            self._is_accumulating = False

    def total(self, **numbers_of: Union[int, float]) -> Dict[str, Union[int, float]]:
        """The sums over all workers: integers exactly. After an epoch's last step; workers that have finished the epoch
        without calling it count as 0. After the loss of a server, in which the epoch is run again, this worker's own."""
        if self._is_lost:
            return dict(numbers_of)
        with self._unless_servers_are_lost():
            self._finish_steps()
            arrays = {f"dtkv.total.{name}": self._total(name, value) for name, value in numbers_of.items()}
            self.store.pushpull(arrays, step=self.epoch << 32 | _LAST_STEP, reduce="sum")
            return {name: self._totals[name][0].item() for name in numbers_of}
        return dict(numbers_of)

    def close(self) -> None:
        """Says goodbye to the servers. The model keeps its values."""
        self.store.close()

    def __enter__(self) -> "Job":
        return self

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        self.store.__exit__(kind, error, traceback)

    # ----------------------------------------------------------------

    def _lay_out(self, named: List[Any]) -> List[_Parameter]:
        """On the CPU values and gradients become views of two blocks of the store's memory, a pair for each type."""
        rooms: Dict[Any, int] = {}
        places: List[int] = []
        for _, p in named:
            at = rooms.get(p.dtype, 0)
            places.append(at)
            if p.device.type == "cpu":
                rooms[p.dtype] = at + -(-p.numel() // _ALIGN) * _ALIGN
        blocks = {
            dtype: [torch.from_numpy(self.store.allocate(size, str(dtype)[len("torch.") :])) for _ in range(2)]
            for dtype, size in rooms.items()
        }
        out = []
        for (name, p), at in zip(named, places):
            if p.device.type == "cpu":
                value, gradient = (block[at : at + p.numel()].view(p.shape) for block in blocks[p.dtype])
            else:
                value, gradient = torch.empty_like(p.detach()).contiguous(), torch.zeros_like(p.detach()).contiguous()
            out.append(_Parameter(name, p, value, gradient))
        return out

    def _collect(self, one: _Parameter) -> None:
        """Brings the gradient to its place in the store's memory, if the program put it elsewhere."""
        parameter = one.parameter
        if parameter.data_ptr() != one.value.data_ptr():
            raise InvalidUse(f"{one.name} moved: make the Job after .to(), .half() and the like")
        found = parameter.grad
        if found is None:
            parameter.grad = one.gradient
        elif found.data_ptr() != one.gradient.data_ptr():
            one.gradient.copy_(found)
            parameter.grad = one.gradient

    def _begin(self, epoch: int) -> bool:
        """Passes the boundary before an epoch; False: this worker must leave."""
        try:
            view = self.store.epoch_boundary(epoch)
        except Leave:
            self.left = True
            self.store.close()
            return False
        present = dict(self._model.named_parameters())
        for one in self._parameters:
            if present.get(one.name) is not one.parameter:
                raise InvalidUse(f"{one.name} was replaced in the model: make the Job after the model is complete")
        self._is_lost = False
        self._has_finished_steps = False
        self._view = view
        self.epoch = view.epoch
        self.rolled_back = view.rolled_back
        self._step = 0
        if view.rolled_back:
            for one in self._parameters:
                one.gradient.zero_()
        self._pull()
        return True

    def _pull(self) -> None:
        values = {one.name: one.value for one in self._parameters}
        self.store.pull({**values, **self._statistics})

    def _finish_steps(self) -> None:
        if not self._has_finished_steps:
            self._has_finished_steps = True
            self.store.finish_steps()

    def _end(self) -> None:
        """After an epoch's last step. When all have made theirs, all have the final weights and the mean statistics."""
        if self._is_lost:
            return
        self._finish_steps()
        if self._statistics:
            self.store.pushpull(self._statistics, step=self.epoch << 32 | _LAST_STEP)

    def _total(self, name: str, value: Union[int, float]) -> Any:
        """The key of a total; its array is kept, since keys have one type."""
        is_integer = isinstance(value, numbers.Integral)
        dtype = numpy.int64 if is_integer else numpy.float64
        array = self._totals.get(name)
        if array is None:
            array = self._totals[name] = numpy.zeros(1, dtype)
            self.store.init(f"dtkv.total.{name}", array, auxiliary=True)
        if array.dtype != dtype:
            raise TypeError(f"total({name}=...) was {array.dtype} before: {value!r}")
        array[0] = value
        return array

    @contextlib.contextmanager
    def _unless_servers_are_lost(self) -> Iterator[None]:
        """Calls of the store within an epoch: after the loss of a server they end here, and the next boundary says which
        epoch comes."""
        try:
            yield
        except Rollback:
            self._is_lost = True
