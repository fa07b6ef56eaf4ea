"""What every way of training with dtkv.torch has: epochs between which workers join and leave, this worker's part of
the data, sums over all workers, and what happens after the loss of a server."""

from __future__ import annotations

import contextlib
import numbers
import weakref
from typing import Any, Dict, Iterator, Optional, Sequence, Set, TypeVar, Union

import numpy

from ..errors import InvalidUse, Leave, Rollback
from ..store import Store, View
from .sampler import Batches, Now, Take
from .transfer import Channel

LAST_STEP = 0xFFFFFFFF
"""The step number of what comes after an epoch's last step."""

_T = TypeVar("_T", bound="Elastic")


class Elastic:
    """The part of a training that does not depend on where its optimizer is. Subclasses say what an epoch begins and
    ends with."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.left = False
        """Whether this worker was removed from the job: epochs() has ended, and the program should exit with 0."""
        self.epoch = 0
        self.rolled_back = False
        """Whether the epoch that is run was begun again after the loss of a server."""
        self._view = View(store.generation, store.rank, store.num_workers, 0, False, False)
        self._step = 0
        self._is_lost = False
        self._has_finished_steps = False
        self._statistics: Dict[str, Any] = {}
        """Keys and buffers that are averaged over the workers after each epoch."""
        self._totals: Dict[str, Any] = {}
        self._created: Set[str] = set()
        self._channel = Channel(store)
        self._has_begun = False
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
        """Whether this worker has rank 0's duties: checkpoints, reports."""
        return self.store.is_lead

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
    ) -> Batches:
        """A batch sampler: this worker's part of each epoch of `data` (or of so many samples). The workers' parts are
        disjoint, and together all samples. `batch_size`: of one worker, so that a step has as many more samples as
        there are workers; `global_batch`: of all workers together, in any world. All workers have as many batches: a
        last global batch of fewer than `least` samples for each worker (2 for BatchNorm) goes with the one before it;
        `drop_last`: the epoch ends before a last one that is not whole. If all samples are fewer than the workers,
        which a warning says, some have no batch: with dt.Optimizer and dt.ddp_hook they take part in the others' steps
        when they have finished theirs. `order`: a sampler of torch that gives the indices in place of a shuffle, such as
        WeightedRandomSampler; all workers draw the same, by `seed` and epoch."""
        return Batches(
            data,
            batch_size,
            lambda: Now(self.epoch, self.rank, self.world_size),
            lambda: self._is_lost,
            global_batch=global_batch,
            shuffle=shuffle,
            seed=seed,
            drop_last=drop_last,
            least=least,
            order=order,
            on_begin=self._report_steps if shuffle is not False else (lambda batches: None),
        )

    def eval_batches(self, data: Union[int, Sequence[Any]], batch_size: int) -> Batches:
        """This worker's part of the samples, in their order, for an evaluation whose counts total() adds up. All workers have
        as many batches, the last of which may have one sample more than batch_size."""
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
            self._end_epochs()

    def report(self, **values: float) -> None:
        """Figures for people, in `dtctl status`: report(train_loss=loss.item()). Cheap: the latest of each name is sent once
        a second."""
        self.store.report(**values)

    def total(self, **numbers_of: Union[int, float]) -> Dict[str, Union[int, float]]:
        """The sums over all workers: integers exactly. After an epoch's last step; workers that have finished the epoch
        without calling it count as 0. After the loss of a server, in which the epoch is run again, this worker's own."""
        if self._is_lost:
            return dict(numbers_of)
        with self._unless_servers_are_lost():
            self._finish_steps()
            arrays = {f"dtkv.total.{name}": self._total(name, value) for name, value in numbers_of.items()}
            self.store.pushpull(arrays, step=self.epoch << 32 | LAST_STEP, reduce="sum")
            return {name: self._totals[name][0].item() for name in numbers_of}
        return dict(numbers_of)

    def close(self) -> None:
        """Says goodbye to the servers. The model keeps its values."""
        self.store.close()

    def __enter__(self: _T) -> _T:
        return self

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        self.store.__exit__(kind, error, traceback)

    # ----------------------------------------------------------------

    def _report_steps(self, batches: Batches) -> None:
        if self._has_begun and not self.left:
            self.store.report(steps_in_epoch=len(batches))

    def _create(self, key: str, like: Any) -> None:
        """Creates a key that is no parameter, once."""
        if key not in self._created:
            self.store.init(key, like, auxiliary=True)
            self._created.add(key)

    def _check_is_in_epoch(self, what: str) -> None:
        if not self._has_begun:
            raise InvalidUse(f"{what} before the first epoch: workers meet there")

    def _begin_epoch(self) -> None:
        """What an epoch begins with, after its boundary."""

    def _end_epochs(self) -> None:
        """What follows the last epoch."""

    def _begin(self, epoch: int) -> bool:
        """Passes the boundary before an epoch; False: this worker must leave."""
        try:
            view = self.store.epoch_boundary(epoch)
        except Leave:
            self.left = True
            self.store.close()
            return False
        self._is_lost = False
        self._has_finished_steps = False
        self._has_begun = True
        self._view = view
        self.epoch = view.epoch
        self.rolled_back = view.rolled_back
        self._step = 0
        if view.rolled_back:  # the servers have the keys of that checkpoint
            self._totals.clear()
            self._created.clear()
            self._channel = Channel(self.store)
        self._begin_epoch()
        return True

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
            self.store.pushpull(self._statistics, step=self.epoch << 32 | LAST_STEP)

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


_newest: Optional["weakref.ref[Elastic]"] = None


def current() -> Elastic:
    """The training that this process made last."""
    found = None if _newest is None else _newest()
    if found is None:
        raise InvalidUse("make a dtkv.torch Job, Optimizer or DDPState first")
    return found


def take(loader: Any, count: int) -> Take:
    """Exactly `count` batches of a loader in each epoch, on every worker: for IterableDataset, and loaders without an end,
    whose workers would have unlike numbers of batches. Its iterator is kept: an epoch goes on where the last one ended,
    and a loader that ends is begun again. What it gives to which worker is the program's own; a newcomer begins it at its
    start, and an epoch that begins again after the loss of a server goes on in it.

        batches = dt.take(DataLoader(stream, batch_size=64), 1000)
        for epoch in job.epochs(10):
            for x, y in batches:
    """
    return Take(loader, count, lambda: _newest is not None and getattr(_newest(), "_is_lost", False))
