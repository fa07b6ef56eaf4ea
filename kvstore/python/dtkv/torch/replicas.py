"""Training in which every worker has the whole state: models, optimizers of torch.optim, learning rate schedulers.
The servers only form the mean of the gradients.

Workers stay equal bit by bit: they begin with the lead's state, and make the same steps with the same means. A worker
whose batches have ended takes part in the others' last steps with gradients that do not count.
"""

from __future__ import annotations

import math
import time
import warnings
from typing import Any, Dict, Iterable, List, Optional, Tuple

import numpy
import torch

from ..errors import Error, InvalidUse, Mismatch, Nonfinite
from ..store import Handle
from . import elastic, states
from .ahead import Step
from .elastic import Elastic
from .layout import flat
from .replica import Replica
from .transfer import describe, pack, unpack

_COPIES = 2
_COPIES_BYTES = 256 << 20
"""Copies of the state of the last epochs' begins: at least so many, and more while they have at most so many bytes."""


class _Facts:
    """What the workers tell one another with each step: float64 numbers that are added up."""

    BUSY, SAMPLES, LOSSES, LOSS, NUMBER = range(5)
    """Workers with a batch; samples; workers with a closure; the sum of its losses, each times its samples; the sum of the
    numbers of the optimizers that step."""
    FIXED = 5

    def __init__(self, replicas: List[Replica]) -> None:
        rates = max((len(one.rates()) for one in replicas), default=0)
        parameters = max((len(one.parameters) for one in replicas), default=0)
        self.key = f"dtkv.step.{rates}.{parameters}"
        self.sums = numpy.zeros(self.FIXED + rates + parameters)
        self.rates = self.sums[self.FIXED : self.FIXED + rates]
        """Of each parameter group."""
        self.has_gradient = self.sums[self.FIXED + rates :]
        """Workers that have a gradient of each parameter."""


class Replicas(Elastic):
    """The training of dt.Optimizer, one or several, and of dt.DDPState."""

    def __init__(self, type: Optional[str]) -> None:  # noqa: A002
        self.last_join_s = 0.0
        """Seconds for which the last transfer of the lead's state to newcomers kept this worker."""
        self._replicas: List[Replica] = []
        self._registered: Dict[str, Any] = {}
        self._scaler: Any = None
        """The registered GradScaler, if it is enabled: gradients are then scaled when the mean is formed."""
        self._has_state = False
        self._refused: Optional[Nonfinite] = None
        """Of the present step: it is made, and then raised."""
        self._copies: Dict[int, bytearray] = {}
        """The state that epochs began with, packed, the oldest first."""
        super().__init__(type)
        if self.store.type == "dist_async":
            self.store.close()
            raise InvalidUse("dist_async has no common steps: the workers' optimizers need dist_sync")
        self._facts = _Facts([])

    def add(self, one: Replica) -> None:
        """One more, before epochs()."""
        mine = one.all()
        for other in self._replicas:
            for name, p in other.all().items():
                if mine.get(name, p) is not p:
                    raise InvalidUse(
                        f"two models have a parameter {name}: give one of them a name, "
                        'dt.Optimizer(optimizer, model, name="D")'
                    )
        self._replicas.append(one)
        self._buffers.add_model(one.name, one.model)

    def register(self, **objects: Any) -> None:
        """More that newcomers need: objects with state_dict() and load_state_dict(), by name, such as learning rate
        schedulers and the GradScaler. On all workers, before epochs()."""
        for name, one in objects.items():
            if name in ("model", "optimizer") or name in self._registered:
                raise ValueError(f"'{name}' is registered")
            if not hasattr(one, "state_dict") or not hasattr(one, "load_state_dict"):
                raise TypeError(f"{name}: {one.__class__.__name__} has no state_dict() and load_state_dict()")
            describe(states.of(one), name)
            if hasattr(one, "unscale_") and one.is_enabled():
                if self._scaler is not None:
                    raise ValueError(f"{name}: one GradScaler is registered, and the step is scaled by one")
                self._scaler = one
            self._registered[name] = one

    # ---------------------------------------------------------------- parameters and their keys

    def _make_keys(self) -> None:
        for one in self._replicas:
            one.parameters = one.found()
            self.store.init({name: flat(p) for name, p in one.parameters.items()})
            if one.early is not None:
                one.early.lay_out(one.parameters, is_only=len(self._replicas) == 1)
        self._facts = _Facts(self._replicas)

    def _follow_program(self) -> None:
        if any(one.found().keys() != one.parameters.keys() for one in self._replicas):
            self._make_keys()
        elif len(self._facts.rates) < max(len(one.rates()) for one in self._replicas):
            self._facts = _Facts(self._replicas)

    def _check_program(self) -> None:
        for one in self._replicas:
            if one.early is not None:
                one.early.check_ended()
            for name in one.found().keys() ^ one.parameters.keys():
                word = "frozen" if name in one.parameters else "unfrozen or added"
                raise InvalidUse(f"{name} was {word} in the middle of epoch {self.epoch}: do it before the epoch's first step")

    _how_to_step = "write optimizer.step(samples=len(x)) with dt.Optimizer's step, not that of the optimizer in it"

    def _trained(self) -> List[Any]:
        return [p for one in self._replicas for p in one.parameters.values()]

    def _are_weights_changed(self) -> bool:
        return any(one.is_changed() for one in self._replicas)

    def _local(self) -> Dict[str, Any]:
        return {name: p for one in self._replicas for name, p in one.all().items()}

    def _to_train(self) -> Dict[str, Any]:
        return {name: p for one in self._replicas for name, p in one.found().items()}

    # ---------------------------------------------------------------- epochs

    def _begin_epoch(self, is_changed: bool) -> None:
        for one in self._replicas:
            one.check()
        describe(self._state(), "state")  # what cannot be sent is known before there is a newcomer
        if self.rolled_back:
            self._go_back()
        if is_changed:
            self._join()
        self._has_state = True
        for one in self._replicas:
            one.note()
            if one.early is not None:
                one.early.end_step()  # of a backward that the loss of a server left without a step
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
        begin = time.monotonic()
        is_needed = not self._has_state or self.rolled_back
        if self.world_size > 1 and self._channel.any(is_needed):
            is_needed = True
            received = self._channel.broadcast(lambda: pack(self._state(), "state"))
            if received is not None:
                self._take(unpack(received))
            self.last_join_s = time.monotonic() - begin
        if is_needed:
            self._buffers.note()

    def _state(self) -> Dict[str, Any]:
        registered = {name: states.of(one) for name, one in self._registered.items()}
        models = {one.name: one.state() for one in self._replicas}
        return {**models.pop("", {}), "models": models, "added": self._buffers.added(), "registered": registered}

    def _take(self, state: Dict[str, Any]) -> None:
        for name in state["registered"].keys() ^ self._registered.keys():
            here, there = ("this worker", "the lead") if name in self._registered else ("the lead", "this worker")
            raise InvalidUse(f"{here} has registered '{name}', {there} has not")
        for one in self._replicas:
            one.take(state["models"][one.name] if one.name else state)
        for name, tensor in self._buffers.added().items():
            tensor.copy_(state["added"][name])
        for name, registered in self._registered.items():
            registered.load_state_dict(state["registered"][name])
        self._follow_program()

    def _settle(self, is_final: bool) -> None:
        """Takes part in the steps of workers that still have batches."""
        kept = [(p, p.grad) for p in self._trained()]
        while self.world_size > 1:
            for p, _ in kept:
                p.grad = None
            one = self._exchange(None, 0)
            if one is None:
                break
            self._follow(one)
        for p, gradient in kept:
            p.grad = gradient
        self._raise_refused()

    def _follow(self, one: Replica) -> None:
        """The step of workers that have a batch, by one that has none."""
        if self._facts.sums[_Facts.LOSSES] == 0:
            if not self._has_samples:
                return
            if self._scaler is None:
                one.optimizer.step()
                return
            if len(self._replicas) > 1:
                raise InvalidUse("with a GradScaler and several optimizers all workers need as many batches (batches, dt.take)")
            self._scaler.scale(next(iter(one.parameters.values())).new_zeros(()))  # a scaler begins with scale()
            self._scaler.step(one.optimizer)
            self._scaler.update()
            return
        has_gradients = True

        def closure() -> Any:
            nonlocal has_gradients
            if not has_gradients:
                self._exchange(None, 0)
            has_gradients = False
            return torch.tensor(self._mean_loss(), dtype=torch.float64)

        one.optimizer.step(closure)

    # ---------------------------------------------------------------- steps

    def _exchange(self, one: Optional[Replica], samples: int, loss: Optional[float] = None) -> Optional[Replica]:
        """The gradients of `one` become the mean over all workers' samples. None: this worker has no batch, and gives
        zeros to whatever the others step. Returns what was stepped; None: no worker had a batch."""
        self._agree()
        early = None if one is None else one.early
        try:
            sent = None if early is None else early.exchange(self._step_now(samples))
            facts = self._push_facts(one, samples, loss)
            stepped = one
            if one is None or len(self._replicas) > 1:
                self._wait([facts])
                stepped = self._stepped(one)
            if stepped is not None:
                gradients, pushes = sent or self._send(stepped, samples)
                self._wait_for_mean([*pushes, facts], gradients)
            self._end_step(stepped, is_busy=one is not None)
            if stepped is not None:
                stepped.take_gradients(gradients, self._facts.has_gradient, are_own=sent is None)
        finally:
            if early is not None:
                early.end_step()
        return stepped

    def _send(self, one: Replica, samples: int) -> Tuple[Dict[str, Any], List[Handle]]:
        """All gradients, now. Returns the rows in which the means arrive, by name, and the push."""
        rows = one.gradients()
        return rows, [self._push(rows, samples)]

    def _step_now(self, samples: int) -> Step:
        """The step that is made now, as a backward that begins sees it."""
        return Step(samples, self._step_number, 0.0)

    def _stepped(self, mine: Optional[Replica]) -> Optional[Replica]:
        """What the workers with a batch step, by their facts."""
        busy, number = self._facts.sums[_Facts.BUSY], self._facts.sums[_Facts.NUMBER]
        if busy == 0:
            return None
        found = self._replicas[int(number / busy)]
        if found is not (mine or found) or number % busy:
            names = ", ".join(other.title for other in self._replicas)
            here = f"; this worker steps {mine.title}" if mine else ""
            raise Mismatch(
                f"epoch {self.epoch}, step {self._step}: the workers step different optimizers, of {names}{here}: all of them "
                "make the same steps in the same order"
            )
        return found

    def _wait_for_mean(self, handles: List[Handle], gradients: Dict[str, Any]) -> None:
        """If parts of this worker's gradients were refused, the mean is that of all others."""
        try:
            self._wait(handles)
        except Nonfinite as error:
            self.store.pull(gradients)
            self._refused = error

    def _raise_refused(self) -> None:
        """After the step that all workers make with the mean of what was not refused."""
        error, self._refused = self._refused, None
        if error is not None:
            raise error

    def _push(self, gradients: Dict[str, Any], samples: int) -> Handle:
        return self.store.pushpull(gradients, samples=samples, step=self._step_number, reduce="mean", wait=False)

    def _push_facts(self, one: Optional[Replica], samples: int, loss: Optional[float] = None) -> Handle:
        facts = self._facts
        self._create(facts.key, facts.sums)
        facts.sums[:] = 0
        if one is not None:
            number = self._replicas.index(one)
            facts.sums[: _Facts.FIXED] = (1, samples, loss is not None, 0.0 if loss is None else loss * samples, number)
            facts.rates[: len(one.rates())] = one.rates()
            facts.has_gradient[: len(one.parameters)] = one.has_gradient()
        return self.store.pushpull(facts.key, facts.sums, step=self._step_number, reduce="sum", wait=False)

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

    def _end_step(self, one: Optional[Replica], is_busy: bool) -> None:
        """After its exchange. Mismatch: the learning rates differ."""
        step = self._step
        self._step += 1
        if one is None:
            return
        self.store.progress(self.epoch, step)
        busy = self._facts.sums[_Facts.BUSY]
        for i, (mine, whole) in enumerate(zip(one.rates(), self._facts.rates)):
            if math.isclose(mine, whole / busy, rel_tol=1e-9) or (self._is_proven and self._has_newcomers):
                continue
            if not is_busy:
                raise Mismatch(
                    f"epoch {self.epoch}: this worker's batches ended at step {self._steps_made}, others go on with another "
                    "learning rate: schedule by epoch, or make the batches even (batches, dt.take)"
                )
            raise Mismatch(
                f"epoch {self.epoch}, step {step}: the learning rate of parameter group {i} is {mine:g} here, and "
                f"{whole / busy:g} on average over the workers: register() the scheduler, or compute the rate from "
                "epoch and step"
            )

    @property
    def _has_samples(self) -> bool:
        """Whether any worker had samples in this step; without them none makes it."""
        return bool(self._facts.sums[_Facts.SAMPLES] > 0)

    def _mean_loss(self) -> float:
        sums = self._facts.sums
        return float(sums[_Facts.LOSS] / max(sums[_Facts.SAMPLES], 1.0))


def training_of(one: Replica, type: Optional[str]) -> Replicas:  # noqa: A002
    """The training of this process that it joins, before the first epoch; else a new one."""
    found = elastic.newest()
    is_joined = type not in ("local", "device") and found.__class__ is Replicas and not found._has_keys and not found.is_closed
    training: Replicas = found if is_joined else Replicas(type)
    training.add(one)
    return training
