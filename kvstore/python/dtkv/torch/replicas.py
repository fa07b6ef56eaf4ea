"""Training in which every worker has the whole state: the model, an optimizer of torch.optim, learning rate schedulers.
The servers only form the mean of the gradients.

Workers stay equal bit by bit: they begin with the lead's state, and make the same steps with the same means. A worker
whose batches have ended takes part in the others' last steps with gradients that do not count.
"""

from __future__ import annotations

import math
import numbers
import time
import warnings
from typing import Any, Dict, Iterable, Iterator, List, Optional, Sequence, Tuple, Union

import numpy
import torch

from ..errors import Error, InvalidUse, Mismatch
from ..store import Handle, Store
from .elastic import Elastic
from .sampler import Batches, Now
from .transfer import describe, pack, unpack

_TYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
_TYPES_TEXT = "float32, float64, float16 and bfloat16"
_COPIES = 2
_COPIES_BYTES = 256 << 20
"""Copies of the state of the last epochs' begins: at least so many, and more while they have at most so many bytes."""


class _Facts:
    """What the workers tell one another with each step: float64 numbers that are added up."""

    BUSY, SAMPLES, LOSSES, LOSS = range(4)
    """Workers with a batch; samples; workers with a closure; the sum of its losses, each times its samples."""
    FIXED = 4

    def __init__(self, rates: int, parameters: int) -> None:
        self.key = f"dtkv.step.{rates}.{parameters}"
        self.sums = numpy.zeros(self.FIXED + rates + parameters)
        self.rates = self.sums[self.FIXED : self.FIXED + rates]
        """Of each parameter group."""
        self.has_gradient = self.sums[self.FIXED + rates :]
        """Workers that have a gradient of each parameter."""


class Replicas(Elastic):
    """The part that dt.Optimizer and dt.DDPState have in common."""

    def __init__(self, model: Any, optimizer: Any, type: Optional[str]) -> None:  # noqa: A002
        if isinstance(model, torch.nn.parallel.DistributedDataParallel):
            model = model.module
        self._model = model
        self._optimizer = optimizer
        self.last_join_s = 0.0
        """Seconds for which the last transfer of the lead's state to newcomers kept this worker."""
        self._registered: Dict[str, Any] = {}
        self._scaler: Any = None
        """The registered GradScaler, if it is enabled: gradients are then scaled when the mean is formed."""
        self._parameters: Dict[str, Any] = {}
        self._generation: Optional[int] = None
        self._has_state = False
        self._copies: Dict[int, bytearray] = {}
        """The state that epochs began with, packed, the oldest first."""
        found = list(self._find_parameters())
        super().__init__(Store(type))
        if self.store.type == "dist_async":
            self.store.close()
            raise InvalidUse("dist_async has no common steps: the workers' optimizers need dist_sync")
        self._statistics = self._buffers_of_model()
        self._facts = _Facts(0, 0)
        self._are_keys_lost = True
        with self._unless_servers_are_lost():
            self._create_keys(found)

    def register(self, **objects: Any) -> None:
        """More that newcomers need: objects with state_dict() and load_state_dict(), by name, such as learning rate
        schedulers and the GradScaler. On all workers, before epochs()."""
        for name, one in objects.items():
            if name in ("model", "optimizer") or name in self._registered:
                raise ValueError(f"'{name}' is registered")
            if not hasattr(one, "state_dict") or not hasattr(one, "load_state_dict"):
                raise TypeError(f"{name}: {one.__class__.__name__} has no state_dict() and load_state_dict()")
            describe(_state_of(one), name)
            if hasattr(one, "unscale_") and one.is_enabled():
                if self._scaler is not None:
                    raise ValueError(f"{name}: one GradScaler is registered, and the step is scaled by one")
                self._scaler = one
            self._registered[name] = one

    # ---------------------------------------------------------------- parameters and their keys

    def _find_parameters(self) -> Iterator[Tuple[str, Any]]:
        """Names and parameters whose gradients are exchanged."""
        names = {id(p): name for name, p in self._model.named_parameters()}
        for g, group in enumerate(self._optimizer.param_groups):
            for i, p in enumerate(group["params"]):
                if not p.requires_grad:
                    continue
                name = names.get(id(p), f"param_groups.{g}.{i}")
                if p.dtype not in _TYPES:
                    raise TypeError(f"{name}: parameters of type {p.dtype} are not supported; {_TYPES_TEXT} are")
                yield name, p

    def _buffers_of_model(self) -> Dict[str, Any]:
        """BatchNorm's statistics and the like."""
        return {name: b for name, b in self._model.named_buffers() if b.dtype in _TYPES}

    def _create_keys(self, found: List[Tuple[str, Any]]) -> None:
        self._are_keys_lost = True
        facts = _Facts(len(self._optimizer.param_groups), len(found))
        self.store.init({name: p.detach().contiguous() for name, p in found})
        if self._statistics:
            self.store.init(self._statistics, auxiliary=True)
        self.store.init(facts.key, facts.sums, auxiliary=True)
        self._facts, self._parameters, self._are_keys_lost = facts, dict(found), False

    # ---------------------------------------------------------------- epochs

    def _begin_epoch(self) -> None:
        present = dict(self._model.named_parameters())
        for name, p in self._parameters.items():
            if present.get(name, p) is not p:
                raise InvalidUse(f"{name} was replaced in the model after the optimizer was made for it")
        self._statistics = self._buffers_of_model()  # others after .to()
        if self.rolled_back or self._are_keys_lost:
            self._create_keys(list(self._find_parameters()))
        describe(self._state(), "state")  # what cannot be sent is known before there is a newcomer
        if self.rolled_back:
            self._go_back()
        if self._view.generation != self._generation or self.rolled_back:
            self._join()
        self._generation = self._view.generation
        self._has_state = True
        self._keep_copy()

    def _go_back(self) -> None:
        """The servers have what they had at the begin of this epoch; this worker takes the state that it had then. All of
        them take the lead's, which has been here for as long as any of them."""
        copy = self._copies.get(self.epoch)
        if copy is not None:
            self._take(unpack(copy))
        elif self.is_lead:
            warnings.warn(
                f"epoch {self.epoch} begins again with this worker's present weights and optimizer: it has no copy of those "
                "that the epoch began with",
                RuntimeWarning,
                stacklevel=5,
            )
        self._copies = {epoch: one for epoch, one in self._copies.items() if epoch < self.epoch}

    def _keep_copy(self) -> None:
        if not self.store.type.startswith("dist"):
            return  # there is no server to lose
        self._copies[self.epoch] = pack(self._state(), "state")
        while len(self._copies) > _COPIES and sum(map(len, self._copies.values())) > _COPIES_BYTES:
            del self._copies[next(iter(self._copies))]

    def _join(self) -> None:
        """All workers have the lead's state afterwards, if any of them needs it."""
        if self.store.is_newcomer and self.is_lead and not self._has_state:
            warnings.warn(
                f"epoch {self.epoch} begins with this worker's own weights and optimizer: no worker that had the "
                "training's state is left",
                RuntimeWarning,
                stacklevel=5,
            )
        if self.world_size == 1:
            return
        begin = time.monotonic()
        if self._channel.any(not self._has_state or self.rolled_back):
            received = self._channel.broadcast(lambda: pack(self._state(), "state"))
            if received is not None:
                self._take(unpack(received))
            self.last_join_s = time.monotonic() - begin

    def _state(self) -> Dict[str, Any]:
        objects = {"model": self._model, "optimizer": self._optimizer, **self._registered}
        return {name: _state_of(one) for name, one in objects.items()}

    def _take(self, state: Dict[str, Any]) -> None:
        for name in state:
            if name not in ("model", "optimizer") and name not in self._registered:
                raise InvalidUse(f"the lead has registered '{name}', this worker has not")
        for name, one in {"model": self._model, "optimizer": self._optimizer, **self._registered}.items():
            if name not in state:
                raise InvalidUse(f"this worker has registered '{name}', the lead has not")
            one.load_state_dict(state[name])

    def _finish_steps(self) -> None:
        """Takes part in the steps of workers that still have batches."""
        if self._has_finished_steps:
            return
        mine = [(p, p.grad) for p in self._parameters.values()]
        while self.world_size > 1:
            for p, _ in mine:
                p.grad = None
            if not self._exchange(0, is_busy=False):
                break
            self._follow()
        for p, gradient in mine:
            p.grad = gradient
        super()._finish_steps()

    def _follow(self) -> None:
        """The step of workers that have a batch, by one that has none."""
        if self._facts.sums[_Facts.LOSSES] == 0:
            if self._scaler is None:
                self._optimizer.step()
                return
            self._scaler.scale(next(iter(self._parameters.values())).new_zeros(()))  # a scaler begins with scale()
            self._scaler.step(self._optimizer)
            self._scaler.update()
            return
        has_gradients = True

        def closure() -> Any:
            nonlocal has_gradients
            if not has_gradients:
                self._exchange(0, is_busy=False)
            has_gradients = False
            return torch.tensor(self._mean_loss(), dtype=torch.float64)

        self._optimizer.step(closure)

    # ---------------------------------------------------------------- steps

    def _check_step(self, samples: Any) -> int:
        if not isinstance(samples, numbers.Integral) or samples < 0:
            raise ValueError(f"samples is the number of this step's samples, not {samples!r}")
        if self._has_finished_steps:
            raise InvalidUse("a step after total(): this worker has finished the steps of this epoch")
        return int(samples)

    def _exchange(self, samples: int, is_busy: bool = True, loss: Optional[float] = None) -> bool:
        """The gradients become the mean over all workers' samples; parameters without a gradient on any worker keep
        none. False: no worker had a batch."""
        gradients: Dict[str, Any] = {}
        for name, p in self._parameters.items():
            if p.grad is not None and p.grad.layout != torch.strided:
                raise TypeError(f"{name}: its gradient is sparse; the mean over workers is made of dense gradients")
            if p.grad is None:
                gradients[name] = torch.zeros_like(p.detach(), memory_format=torch.contiguous_format)
            else:
                gradients[name] = p.grad.contiguous()
        has_gradient = [p.grad is not None for p in self._parameters.values()]
        facts = self._push_facts(samples, has_gradient, is_busy, loss)
        self._wait([self._push(gradients, samples), facts])
        is_step = self._end_step()
        for one, count, (name, p) in zip(gradients.values(), self._facts.has_gradient, self._parameters.items()):
            if self._facts.sums[_Facts.SAMPLES] == 0:
                one.zero_()
            if count == 0:
                continue
            if p.grad is None:
                p.grad = one
            elif p.grad.data_ptr() != one.data_ptr():
                p.grad.copy_(one)
        return is_step

    def _push(self, gradients: Dict[str, Any], samples: int) -> Handle:
        step = self.epoch << 32 | self._step
        return self.store.pushpull(gradients, samples=samples, step=step, reduce="mean", wait=False)

    def _push_facts(
        self, samples: int, has_gradient: List[bool], is_busy: bool = True, loss: Optional[float] = None
    ) -> Handle:
        facts = self._facts
        facts.sums[: _Facts.FIXED] = (is_busy, samples, loss is not None, 0.0 if loss is None else loss * samples)
        facts.rates[:] = [rate * is_busy for rate in self._learning_rates()]
        facts.has_gradient[:] = has_gradient
        return self.store.pushpull(facts.key, facts.sums, step=self.epoch << 32 | self._step, reduce="sum", wait=False)

    @staticmethod
    def _wait(handles: Iterable[Handle]) -> None:
        """Waits for all of them, and raises the first one's error."""
        first: Optional[Error] = None
        for handle in handles:
            try:
                handle.wait()
            except Error as error:
                first = first or error
        if first is not None:
            raise first

    def _end_step(self) -> bool:
        """After its exchange. Mismatch: the learning rates differ. False: no worker had a batch."""
        step = self._step
        self.store.progress(self.epoch, step)
        self._step += 1
        busy = self._facts.sums[_Facts.BUSY]
        if busy == 0:
            return False
        for i, (mine, whole) in enumerate(zip(self._learning_rates(), self._facts.rates)):
            if not math.isclose(mine, whole / busy, rel_tol=1e-9):
                raise Mismatch(
                    f"epoch {self.epoch}, step {step}: the learning rate of parameter group {i} is {mine:g} here, and "
                    f"{whole / busy:g} on average over the workers: register() the scheduler, or compute the rate from "
                    "epoch and step"
                )
        return True

    def _learning_rates(self) -> List[float]:
        return [float(group.get("lr", 0.0)) for group in self._optimizer.param_groups]

    def _mean_loss(self) -> float:
        sums = self._facts.sums
        return float(sums[_Facts.LOSS] / max(sums[_Facts.SAMPLES], 1.0))


def _state_of(one: Any) -> Any:
    """An object's state without functions, which each worker has of its own: OneCycleLR's state has them."""
    state = one.state_dict()
    if isinstance(one, (torch.nn.Module, torch.optim.Optimizer)) or not isinstance(state, dict):
        return state
    return {name: value for name, value in state.items() if not callable(value)}
