"""A model whose optimizer is on the job's servers."""

from __future__ import annotations

import contextlib
import numbers
from typing import Any, Dict, Iterator, List, Optional, Tuple

import torch

from ..errors import InvalidUse
from ..store import Arrays, Store
from .elastic import LAST_STEP, Elastic

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


class Job(Elastic):
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
    its memory. BatchNorm's statistics are averaged over the workers after each epoch. One thread, and one Job for each
    process of a job.

    Attributes: epoch, the present one, from 0 on; left, whether this worker was removed; rolled_back, whether the epoch
    begins again after the loss of a server; store, the dtkv.Store.
    """

    def __init__(self, model: Any, optimizer: str, lr: float, *, type: Optional[str] = None) -> None:  # noqa: A002
        self.lr = lr
        self._model = model
        self._is_accumulating = False
        self._leads: Dict[str, Any] = {}
        """Keys and tensors that are rank 0's after each epoch."""
        named = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
        for name, p in named:
            if p.dtype not in (torch.float32, torch.float64):
                raise TypeError(f"{name}: parameters of type {p.dtype} are not supported; supported are float32 and float64")
        super().__init__(Store(type))
        self._is_on_cpu = all(p.device.type == "cpu" for _, p in named)
        self._gradient_blocks: List[Any] = []
        """Tensors that together are all gradients."""
        self._parameters = self._lay_out(named)
        self._arrays = self._describe()
        self._statistics = {n: b for n, b in model.named_buffers() if b.dtype in (torch.float32, torch.float64)}
        with self._unless_servers_are_lost():
            self.store.init({one.name: one.value for one in self._parameters})
            if self._statistics:
                self.store.init(self._statistics, auxiliary=True)
            self.store.set_optimizer(optimizer)
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
            if not self._is_on_cpu:  # the arrays of a GPU come with its present stream
                self._arrays = self._describe()
            self.store.pushpull_again(
                *self._arrays,
                samples=int(samples),
                step=self.epoch << 32 | self._step,
                learning_rate=self.lr if lr is None else lr,
            )
            self.store.progress(self.epoch, self._step)
        self._step += 1
        self._zero_gradients()

    def state(self, name: str, value: Any, *, reduce: str = "mean") -> Any:
        """Registers a tensor (float32, float64 or int64) or a number that all workers are to have alike, newcomers too, and
        returns it, a number as a tensor of one element. Each worker changes it in place during an epoch; after the
        epoch all have the mean ("mean"; not for integers) or rank 0's ("lead"). On all workers, before epochs()."""
        if reduce not in ("mean", "lead"):
            raise ValueError(f'reduce is "mean" or "lead", not {reduce!r}')
        key = f"dtkv.state.{name}"
        if self._has_begun or key in self._statistics or key in self._leads:
            raise InvalidUse(f"state({name!r}): {'after the first epoch' if self._has_begun else 'registered before'}")
        tensor = value
        if not isinstance(value, torch.Tensor):
            dtype = torch.int64 if isinstance(value, numbers.Integral) else torch.float64
            tensor = torch.tensor(value, dtype=dtype)
        if reduce == "mean" and not tensor.is_floating_point():
            raise TypeError(f'state({name!r}): integers have no mean: reduce="lead" keeps rank 0\'s')
        with self._unless_servers_are_lost():
            self.store.init({key: tensor}, auxiliary=True)
            self.store.pull({key: tensor})
        (self._statistics if reduce == "mean" else self._leads)[key] = tensor
        return tensor

    @contextlib.contextmanager
    def accumulate(self) -> Iterator[None]:
        """Micro-batches: backward inside adds to the gradients and nothing is sent; the next step() outside sends the
        sum. Divide each loss by the number of micro-batches for a mean."""
        self._is_accumulating = True
        try:
            yield
        finally:
            self._is_accumulating = False

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
        self._gradient_blocks += [gradients for _, gradients in blocks.values()]
        out = []
        for (name, p), at in zip(named, places):
            if p.device.type == "cpu":
                value, gradient = (block[at : at + p.numel()].view(p.shape) for block in blocks[p.dtype])
            else:
                value, gradient = torch.empty_like(p.detach()).contiguous(), torch.zeros_like(p.detach()).contiguous()
                self._gradient_blocks.append(gradient)
            out.append(_Parameter(name, p, value, gradient))
        return out

    def _describe(self) -> Tuple[Arrays, Arrays]:
        """Gradients and values for pushpull_again()."""
        names = [one.name for one in self._parameters]
        gradients = Arrays(names, [one.gradient for one in self._parameters], is_written=False)
        return gradients, Arrays(names, [one.value for one in self._parameters], is_written=True)

    def _zero_gradients(self) -> None:
        for block in self._gradient_blocks:
            block.zero_()

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

    def _begin_epoch(self) -> None:
        """Brings the servers' values; the model must still be the one that the job was made with."""
        present = dict(self._model.named_parameters())
        for one in self._parameters:
            if present.get(one.name) is not one.parameter:
                raise InvalidUse(f"{one.name} was replaced in the model: make the Job after the model is complete")
        if self.rolled_back:
            self._zero_gradients()
        self._pull()

    def _end(self) -> None:
        super()._end()
        if self._leads and not self._is_lost:
            self.store.pushpull(self._leads, samples=int(self.is_lead), step=self.epoch << 32 | LAST_STEP)

    def _end_epochs(self) -> None:
        self._pull()

    def _pull(self) -> None:
        values = {one.name: one.value for one in self._parameters}
        self.store.pull({**values, **self._statistics, **self._leads})
