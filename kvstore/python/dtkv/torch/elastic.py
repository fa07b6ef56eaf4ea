"""What every way of training with dtkv.torch has: epochs between which workers join and leave, this worker's part of
the data, sums over all workers, and what happens after the loss of a server.

An epoch is a sequence that all workers go through together:

    boundary      workers join and leave; newcomers get the lead's state
    first step    agree: all have the same plan (data, order, parameters)
    end of a pass through a sampler
                  share: all have the same weights and buffers, if all have made the same steps
    end           meet: all have made their last step, and have the same weights and buffers

Each is a round of all workers that have not finished the epoch, so nobody's death holds it.
"""

from __future__ import annotations

import contextlib
import numbers
import time
import warnings
import weakref
from typing import Any, Dict, Iterator, List, Optional, Sequence, Set, Tuple, TypeVar, Union

import numpy
import torch

from ..errors import InvalidUse, Leave, Mismatch, Rollback
from ..store import Store, View
from . import plan
from .buffers import Buffers
from .layout import digests, signature
from .sampler import Batches, Now, Take
from .transfer import Channel, pack, unpack

LAST_STEP = 0xFFFFFFFF
"""The step number of what comes after an epoch's last step."""
COMPARE_EVERY_S = 50.0
"""Seconds after which the workers are compared again, at the next boundary."""

_T = TypeVar("_T", bound="Elastic")


class _Pass:
    """One iteration of a sampler, and how far the program is: a DataLoader with processes asks for a number of batches
    before it gives out the first one, and then for one more with each that it gives out, those past the end too."""

    def __init__(self, batches: Union[Batches, Take], marks: Set[Tuple[int, int]]) -> None:
        self.batches = batches
        self.asked = 0
        self.given = 0
        self.ahead: Optional[int] = None
        """Batches that were asked for before the program had the first one; None: it has used none yet."""
        self.is_over = False
        self.steps = 0
        self.steps_left = 0
        """When the program has the last batch: those that it still makes, if it makes as many for each batch."""
        self.micro = 0
        """Batches that were only added to the gradients (accumulate())."""
        self.marks = marks
        """The gradients, when it began."""


class Elastic:
    """The part of a training that does not depend on where its optimizer is. Subclasses say what an epoch begins and
    ends with."""

    def __init__(self, type: Optional[str]) -> None:  # noqa: A002
        other = newest()
        try:
            self.store = store = Store(type)
        except InvalidUse as error:
            if other is None or other.is_closed:
                raise
            raise InvalidUse("one dt.Job a process: use dt.Optimizer for each") from error
        self.left = False
        """Whether this worker was removed from the job: epochs() has ended, and the program should exit with 0."""
        self.is_closed = False
        self.epoch = 0
        self.rolled_back = False
        """Whether the epoch that is run was begun again after the loss of a server."""
        self._buffers = Buffers()
        self._view = View(store.generation, store.rank, store.num_workers, 0, False, False)
        self._boundaries = 0
        self._generation: Optional[int] = None
        """The view of the last boundary; None: there was none."""
        self._step = 0
        self._steps_made = 0
        """With a batch of this worker's, in this epoch."""
        self._is_lost = False
        self._has_finished_steps = False
        self._has_agreed = False
        self._has_met = False
        self._is_proven = False
        """This worker has ended an epoch of this job."""
        self._has_newcomers = False
        """In this epoch, beside workers that are proven: it is they who end where workers differ."""
        self._lead_at_end: Optional[bool] = None
        """After epochs(): who was the lead when all met for the last time."""
        self._created: Set[str] = set()
        self._channel = Channel(store)
        self._has_keys = False
        self._is_in_epoch = False
        self._is_begun = False
        """A newcomer has passed the boundary of an epoch that is beyond those of its first loop: the next one has it."""
        self._pass: Optional[_Pass] = None
        self._batches: Optional[Batches] = None
        """The sampler of the job that was iterated first in this epoch."""
        self._owns_data = False
        self._streams: List[Tuple[Batches, Any]] = []
        """Samplers with steps=, and their positions as tensors that all workers have alike."""
        self._begin_marks: Set[Tuple[int, int]] = set()
        """The gradients, when the epoch began."""
        self._compared_at = time.monotonic()
        self._shall_compare = False
        self._checked_layout: Tuple[Any, int] = None, 0
        """What _checksum() has seen, and found."""
        global _newest
        _newest = weakref.ref(self)

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
        """Whether this worker has rank 0's duties: checkpoints, reports. After epochs() it is true of one worker, whoever
        ends first."""
        if self.left:
            return False
        return self.store.is_lead if self._lead_at_end is None else self._lead_at_end

    @property
    def interrupted(self) -> bool:
        """Whether a server was lost in this epoch: its steps do nothing from then on, its totals are this worker's own,
        and epochs() yields the epoch of the newest checkpoint next."""
        return self._is_lost

    def batches(
        self,
        data: Union[int, Sequence[Any]],
        batch_size: int,
        *,
        global_batch: Optional[int] = None,
        shuffle: Optional[bool] = None,
        seed: int = 1,
        drop_last: bool = False,
        least: int = 1,
        order: Any = None,
        steps: Optional[int] = None,
    ) -> Batches:
        """A batch sampler: this worker's part of each epoch of `data` (or of so many samples). The workers' parts are
        disjoint, and together all samples. `batch_size`: of one worker, so that a step has as many more samples as
        there are workers; `global_batch`: of all workers together, in any world. All workers have as many batches: a
        last global batch of fewer than `least` samples for each worker (2 for BatchNorm) goes with the one before it;
        `drop_last`: the epoch ends before a last one that is not whole. If all samples are fewer than the workers,
        which a warning says, some have no batch, and take part in the others' steps. `order`: a sampler of torch that
        gives the indices in place of a shuffle, such as WeightedRandomSampler; all workers draw the same, by `seed` and
        epoch. `steps`: an epoch is so many global batches of the endless sequence of shuffled passes."""
        made = Batches(
            data,
            batch_size,
            self._now,
            lambda: self._is_lost,
            global_batch=global_batch,
            shuffle=shuffle,
            seed=seed,
            drop_last=drop_last,
            least=least,
            order=order,
            steps=steps,
            watch=self,
        )
        if steps is not None:
            if self._has_keys:
                raise InvalidUse("batches(steps=) after the first epoch: make it before epochs()")
            self._streams.append((made, torch.zeros(1, dtype=torch.int64)))
            self._buffers.add(f"dtkv.position.{len(self._streams)}", self._streams[-1][1], is_mean=False)
        return made

    def eval_batches(self, data: Union[int, Sequence[Any]], batch_size: int) -> Batches:
        """This worker's part of the samples, in their order, for an evaluation whose counts total() adds up. All workers have
        as many batches, the last of which may have one sample more than batch_size."""
        return Batches(data, batch_size, self._now, lambda: self._is_lost, shuffle=False)

    def epochs(self, count: int, begin: int = 0) -> Iterator[int]:
        """The epochs to run, `begin` to count - 1: workers join and leave between them. A newcomer begins with the
        others' epoch. After the loss of a server the epoch of the newest checkpoint comes again. Ends early, with `left`,
        when this worker was removed.

        The lead's weights, buffers and optimizer count, as they are at the first call. When an epoch has ended, and after
        epochs(), all workers have the same ones, with everybody's last step in them."""
        epoch = begin
        while epoch < count:
            try:
                if not self._is_begun and not self._begin(epoch):
                    return
            except Rollback:
                continue
            epoch = self.epoch
            self._is_begun = epoch >= count
            if self._is_begun:
                break
            self._is_in_epoch = True
            try:
                yield epoch
                with self._unless_servers_are_lost():
                    self._meet()
            finally:
                self._is_in_epoch = False
            if not self._is_lost:
                epoch += 1

    def report(self, **values: Union[float, str]) -> None:
        """Figures for people, in `dtctl status`: report(train_loss=loss.item()). Cheap: the latest of each name is sent once
        a second."""
        self.store.report(**values)

    def total(self, **numbers_of: Union[int, float]) -> Dict[str, Union[int, float]]:
        """The sums over all workers: of integers exactly, and a float where any worker's number is one. After an epoch's
        last step; workers that have finished the epoch without calling it count as 0. All workers have the same weights
        then. After the loss of a server, in which the epoch is run again, this worker's own."""
        self._check_has_begun("total()")
        with self._unless_servers_are_lost():
            if not self._is_lost:
                self._meet()
                return self._totals(numbers_of)
        return dict(numbers_of)

    def _now(self) -> Now:
        return Now(self.epoch, self.rank, self.world_size, self._boundaries)

    def settle(self) -> None:
        """Nothing of the steps that were made is under way any more."""

    def close(self) -> None:
        """Says goodbye to the servers. The model keeps its values."""
        self._give_up()
        self.is_closed = True
        self.store.close()

    def __enter__(self: _T) -> _T:
        return self

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        self._give_up()
        self.is_closed = True
        self.store.__exit__(kind, error, traceback)

    def _check_has_begun(self, what: str) -> None:
        if self.left:
            raise InvalidUse(f"{what} of a worker that was removed from the job: what follows epochs() is for `if not job.left:`")
        if self._generation is None:
            raise InvalidUse(f"{what} before the first epoch: workers meet there")

    # ---------------------------------------------------------------- what subclasses say

    _how_to_step = ""
    """The line that a program without steps lacks."""

    def _make_keys(self) -> None:
        """Creates the keys that the servers keep: before the first boundary, and again after the loss of a server."""

    def _begin_epoch(self, is_changed: bool) -> None:
        """What an epoch begins with, after its boundary. `is_changed`: another view than before, or rolled back."""

    def _follow_program(self) -> None:
        """Before an epoch's first step: the program may have frozen, unfrozen or added parameters."""

    def _give_up(self) -> None:
        """The training ends: what is under way has a while to come."""

    def _settle(self, is_final: bool) -> None:
        """This worker has no batch at present, or none any more: the others' steps do not wait for it."""

    def _may_share(self) -> bool:
        """Whether nobody waits for a step of this worker, which has come to the end of its pass."""
        return True

    def _refresh(self) -> None:
        """All have contributed to the weights that all are to have now."""

    def _check_program(self) -> None:
        """At an epoch's end. InvalidUse: the program has done that within the epoch."""

    def _trained(self) -> List[Any]:
        """The parameters that the optimizer changes."""
        return []

    def _are_weights_changed(self) -> bool:
        """Whether the program has changed any since the epoch began."""
        return False

    def _local(self) -> Dict[str, Any]:
        """Tensors beside buffers, by name, that the servers do not have and all workers have alike."""
        return {}

    def _to_train(self) -> Dict[str, Any]:
        """The parameters, by name, that the optimizer changes from the next step on."""
        return {}

    def _check_step(self, samples: Any) -> int:
        """The number of a step's samples."""
        if not isinstance(samples, numbers.Integral) or samples < 0:
            raise ValueError(f"samples is the number of this step's samples, not {samples!r}")
        if not self._is_in_epoch:
            raise InvalidUse("a step outside of epochs(): workers meet there: for epoch in job.epochs(10): ...")
        if self._has_finished_steps:
            raise InvalidUse("a step after total(): this worker has finished the steps of this epoch")
        return int(samples)

    # ---------------------------------------------------------------- what Ahead asks

    @property
    def _step_number(self) -> int:
        """The same on all workers."""
        return self.epoch << 32 | self._step

    def _may_send(self) -> bool:
        """Whether gradients of this backward may leave before step()."""
        return self._is_in_epoch and self._has_agreed and not self._has_finished_steps and not self._is_lost

    def _samples_of_batch(self) -> Optional[int]:
        """Of the batch that the sampler gave for this step."""
        one = self._pass
        return one.batches.size_of(one.steps + one.micro) if one is not None and isinstance(one.batches, Batches) else None

    # ---------------------------------------------------------------- samplers

    def begin_pass(self, batches: Union[Batches, Take]) -> _Pass:
        """A sampler of this training is iterated. Batches and Take call it, and the next three."""
        if isinstance(batches, Take):
            self._owns_data = True
        elif self._batches is None:
            self._batches = batches
        if self._is_in_epoch:
            self.store.report(steps_in_epoch=len(batches))
        self._pass = _Pass(batches, self._marks())
        return self._pass

    def ask(self, one: _Pass) -> None:
        """A batch is asked for."""
        if one.ahead is None and one.asked and (one.steps or not self._marks() <= one.marks):
            one.ahead = one.asked - 1
        one.asked += 1
        if one.is_over and one.ahead and one.asked - one.ahead == one.given:
            one.steps_left = max(1, round(one.steps / (one.given - 1)))

    def end_pass(self, one: _Pass) -> None:
        """The sampler is asked past its end for the first time."""
        one.is_over = True
        if one.ahead == 0 or one.given == 0:
            self._share_early()

    def _count_step(self) -> None:
        """A step was made with a batch of this worker's. After the last batch's all are to have the same."""
        self._steps_made += 1
        one = self._pass
        if one is not None:
            one.steps += 1
            one.steps_left -= 1
            if one.steps_left == 0 or (one.is_over and one.given == 1 and one.ahead is None):
                self._share_early()

    def _share_early(self) -> None:
        """After a pass, for the program's evaluation and its files; more steps may follow."""
        is_due = self.world_size > 1 and self._is_in_epoch and not self._has_met and not self._is_lost
        with self._unless_servers_are_lost():
            if is_due and self._may_share():
                self._agree()
                self._settle(is_final=False)
                self._exchange_buffers(is_final=False)
                self._refresh()

    def _marks(self) -> Set[Tuple[int, int]]:
        """The gradients that exist, each with its version."""
        grads = [p.grad for p in self._trained()]
        return {(id(grad), grad._version) for grad in grads if grad is not None}

    # ---------------------------------------------------------------- what all workers do together

    def _agree(self, rate: Optional[float] = None) -> None:
        """Once in an epoch, in its first step or, by a worker that makes none, at its end: all have the same plan."""
        if self._has_agreed:
            return
        self._has_agreed = True
        if self.world_size > 1:
            is_time = time.monotonic() - self._compared_at > COMPARE_EVERY_S
            sampler = None if self._batches is None else self._batches.plan
            mine = plan.Contribution(sampler, self._checksum(), rate, self._is_proven, is_time)
            sums = mine.packed()
            self._create(plan.KEY, sums)
            self.store.pushpull(plan.KEY, sums, step=self._last_step, reduce="sum")
            self._shall_compare, self._has_newcomers = plan.check(mine, sums, self.epoch)
        self._follow_program()

    def _checksum(self) -> int:
        """Of names, shapes and strides of the parameters that are trained."""
        trained = self._to_train()
        layout = [(name, id(p), p.stride()) for name, p in trained.items()]
        if layout != self._checked_layout[0]:
            self._checked_layout = layout, sum(signature(name, p) for name, p in trained.items())
        return self._checked_layout[1]

    def _exchange_buffers(self, is_final: bool) -> Tuple[bool, int]:
        """All have equal buffers afterwards. Returns whether it is final for all workers, and the number of steps that they
        have made together in this epoch."""
        mine = (1, is_final, self._steps_made)
        workers, finals, steps = self._buffers.exchange(self.store, self._channel, self._create, self._last_step, mine)
        return finals == workers, steps

    def _meet(self) -> None:
        """Once, after this worker's last step of an epoch: when all have made theirs, all have the final state."""
        if self._has_met or self._is_lost:
            return
        self.settle()
        self._agree()
        self._check_program()
        is_untouched = self._marks() <= self._begin_marks and not self._are_weights_changed()
        for batches, position in self._streams:
            batches.advance()
            position.fill_(batches.position)
        are_final = False
        while not are_final:  # others may share a pass's end meanwhile, and go on
            self._settle(is_final=True)
            are_final, steps = self._exchange_buffers(is_final=True)
        self._finish_steps()
        if steps == 0 and not is_untouched:
            raise InvalidUse(f"no step() in epoch {self.epoch}: {self._how_to_step}")
        self._refresh()
        self._has_met = self._is_proven = True
        self._lead_at_end = self.store.is_lead
        if self._steps_made > 0 and self._batches is None and not self._owns_data:
            self._owns_data = True
            warnings.warn(
                "each worker goes through all of its data: batch_sampler=job.batches(data, 64), or dt.own_data() if the "
                "program divides it",
                RuntimeWarning,
                stacklevel=3,
            )

    def _finish_steps(self) -> None:
        if not self._has_finished_steps:
            self._has_finished_steps = True
            self.store.finish_steps()

    def _compare(self) -> None:
        """Mismatch: this worker has another tensor than the lead."""
        self._shall_compare = False
        self._compared_at = time.monotonic()
        if self.world_size == 1:
            return
        self._exchange_buffers(is_final=False)
        mine = digests({**self._local(), **self._buffers.named()})
        whole = sum(mine.values()) % (1 << 64)
        sums = numpy.array([1, whole], numpy.uint64).view(numpy.int64)
        self._create("dtkv.digest", sums)
        self.store.pushpull("dtkv.digest", sums, step=self._last_step, reduce="sum")
        if (int(sums[0]) * whole - int(sums[1])) % (1 << 64) == 0:
            return
        me = self.store.worker_id
        received = self._channel.broadcast(lambda: pack((me, mine)))
        if received is None:
            return
        lead, others = unpack(received)
        for name in sorted({*mine, *others}):
            if mine.get(name) != others.get(name):
                raise Mismatch(f"epoch {self.epoch}: {name} differs: worker {me} here, worker {lead} (the lead)")

    def _totals(self, numbers_of: Dict[str, Any]) -> Dict[str, Union[int, float]]:
        """Each has a part for workers with an integer, and one for those with a float."""
        arrays: Dict[str, Any] = {}
        for name, given in numbers_of.items():
            value = given.item() if hasattr(given, "item") else given  # of numpy and torch
            is_float = not isinstance(value, numbers.Integral)
            arrays[f"dtkv.total.int.{name}"] = numpy.array([0 if is_float else int(value), is_float], numpy.int64)
            arrays[f"dtkv.total.float.{name}"] = numpy.array([float(value) if is_float else 0.0])
        for key, one in arrays.items():
            self._create(key, one)
        self.store.pushpull(arrays, step=self._last_step, reduce="sum")
        out: Dict[str, Union[int, float]] = {}
        for name in numbers_of:
            whole, floats = (int(one) for one in arrays[f"dtkv.total.int.{name}"])
            out[name] = whole + float(arrays[f"dtkv.total.float.{name}"][0]) if floats else whole
        return out

    # ---------------------------------------------------------------- boundaries

    def _begin(self, epoch: int) -> bool:
        """Passes the boundary before an epoch; False: this worker must leave."""
        self.settle()
        self._begin_keys()
        try:
            view = self.store.epoch_boundary(epoch)
        except Leave:
            self.left = True
            self.store.close()
            return False
        is_changed = view.generation != self._generation or view.rolled_back
        self._generation = view.generation
        self._boundaries += 1
        self._is_lost = self._has_finished_steps = self._has_agreed = self._has_met = False
        self._lead_at_end = self._pass = self._batches = None
        self._view = view
        self.epoch = view.epoch
        self.rolled_back = view.rolled_back
        self._step = self._steps_made = 0
        if view.rolled_back:  # the servers have the keys of that checkpoint
            self._created.clear()
            self._channel = Channel(self.store)
            self._make_keys()
        self._begin_epoch(is_changed)
        for batches, position in self._streams:
            batches.position = int(position)
        if is_changed or self._shall_compare:
            self._compare()
        self._begin_marks = self._marks()
        return True

    def _begin_keys(self) -> None:
        """Once: the program's present state counts."""
        if not self._has_keys:
            for batches, position in self._streams:
                position.fill_(batches.position)
            with self._unless_servers_are_lost():
                self._make_keys()
            self._has_keys = True

    @property
    def _last_step(self) -> int:
        return self.epoch << 32 | LAST_STEP

    def _create(self, key: str, like: Any, is_kept: bool = False) -> None:
        """Creates a key that is no parameter, once. `is_kept`: checkpoints have it."""
        if key not in self._created:
            self.store.init(key, like, auxiliary=True, transient=not is_kept)
            self._created.add(key)

    @contextlib.contextmanager
    def _unless_servers_are_lost(self) -> Iterator[None]:
        """Calls of the store within an epoch: after the loss of a server they end here, and the next boundary says which
        epoch comes."""
        try:
            yield
        except Rollback:
            self._is_lost = True


_newest: Optional["weakref.ref[Elastic]"] = None


def newest() -> Any:
    """The training that this process made last, if it is still there."""
    return None if _newest is None else _newest()


def current() -> Elastic:
    """The training that this process made last."""
    found: Optional[Elastic] = newest()
    if found is None:
        raise InvalidUse("make a dtkv.torch Job, Optimizer or DDPState first")
    return found


def own_data() -> None:
    """The program divides its data among the workers itself: no warning that it has no sampler of the job."""
    current()._owns_data = True


def take(loader: Any, count: int) -> Take:
    """Exactly `count` batches of a loader in each epoch, on every worker: for IterableDataset, and loaders without an end,
    whose workers would have unlike numbers of batches. Its iterator is kept: an epoch goes on where the last one ended,
    and a loader that ends is begun again. What it gives to which worker is the program's own; a newcomer begins it at its
    start, and an epoch that begins again after the loss of a server goes on in it.

        batches = dt.take(DataLoader(stream, batch_size=64), 1000)
        for epoch in job.epochs(10):
            for x, y in batches:
    """
    return Take(loader, count, lambda: bool(getattr(newest(), "_is_lost", False)), newest)
