"""Which samples a worker takes: part k of n of every batch of every epoch, as trainer/data/sampler.h has it.

The workers go through one common shuffled order together, a global batch a step, and each takes its part: no sample is
repeated or left out, with any number of workers. numpy alone; the same numbers on every machine.
"""

from __future__ import annotations

import operator
import warnings
from typing import Any, Callable, Iterator, List, NamedTuple, Optional, Protocol, Sequence, Set, Tuple, Union

import numpy

from ..errors import InvalidUse, Mismatch

_GAMMA = 0x9E3779B97F4A7C15


def _random(seed: int, count: int) -> Any:
    """The first `count` numbers of splitmix64 (Steele, Lea, Flood 2014)."""
    with numpy.errstate(over="ignore"):
        return _mixed(numpy.uint64(seed % (1 << 64)) + numpy.arange(1, count + 1, dtype=numpy.uint64) * numpy.uint64(_GAMMA))


def _mixed(z: Any) -> Any:
    with numpy.errstate(over="ignore"):
        z = (z ^ (z >> numpy.uint64(30))) * numpy.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> numpy.uint64(27))) * numpy.uint64(0x94D049BB133111EB)
        return z ^ (z >> numpy.uint64(31))


def shuffled(count: int, seed: int) -> List[int]:
    """0 to count - 1 in an order that depends on `seed` alone (Fisher and Yates)."""
    order = list(range(count))
    if count > 1:
        sizes = numpy.arange(count, 1, -1, dtype=numpy.uint64)
        for i, j in zip(range(count - 1, 0, -1), (_random(seed, count - 1) % sizes).tolist()):
            order[i], order[j] = order[j], order[i]
    return order


def drawn(sampler: Any, count: int, number: int, seed: int) -> List[int]:
    """What a sampler of torch gives: the same indices on every worker, if its random numbers are those of its
    `generator` or of torch. The program's random numbers stay as they were."""
    import torch

    if hasattr(sampler, "set_epoch"):
        sampler.set_epoch(number)
    with torch.random.fork_rng(devices=[]):
        for generator in (torch.default_generator, getattr(sampler, "generator", None)):
            if generator is not None:
                generator.manual_seed(seed % (1 << 63))
        found = list(sampler)
    name = type(sampler).__name__
    for i, one in enumerate(found):
        try:
            found[i] = operator.index(one)
        except TypeError:
            text = f"order: {name} gives {one!r}, which is no index: give a sampler of indices, not of batches"
            raise TypeError(text) from None
    if len(found) != count:
        raise InvalidUse(f"order: {name} gives {len(found)} indices, and its len() was {count}")
    return found


def checksum(order: Any, begin: int) -> int:
    """48 bits that depend on the place of each index, and on `begin`."""
    odd = 2 * numpy.arange(len(order), dtype=numpy.uint64) + numpy.uint64(1)
    return (int((_mixed(order.astype(numpy.uint64)) * odd).sum()) + begin * _GAMMA) % (1 << 64) >> 16


class Cut(NamedTuple):
    """Global batches that lie one behind the other in a sequence of samples: places in it."""

    begin: int
    end: int
    whole: int
    """Samples of each global batch but the last, which goes on to `end`."""
    steps: int

    def part(self, step: int, rank: int, world: int) -> slice:
        """Where a worker's samples of a step lie. The parts' sizes differ by at most one."""
        first = self.begin + step * self.whole
        size = (self.end if step + 1 == self.steps else first + self.whole) - first
        return slice(first + size * rank // world, first + size * (rank + 1) // world)


def cut(begin: int, count: int, whole: int, fewest: int, drop_last: bool = False) -> Cut:
    """`count` samples as global batches of `whole`. A last one of fewer than `fewest` goes with the one before it;
    `drop_last`: one of fewer than `whole` is left out."""
    steps, rest = divmod(count, whole)
    if drop_last:
        count -= rest
    elif rest >= fewest or (rest and not steps):
        steps += 1
    return Cut(begin, begin + count, whole, steps)


class Now(NamedTuple):
    """What a sampler reads when an epoch's iteration begins."""

    epoch: int
    rank: int
    world: int
    boundary: int = 0
    """The number of epochs' boundaries before it: an epoch that begins again has another one."""


class Plan(NamedTuple):
    """What the workers' iterations of an epoch have in common. Sums over 32,768 workers are within int64."""

    samples: int
    """Of a pass."""
    batch: int
    """Samples of a global batch."""
    seed: int
    checksum: int
    """Of the order of the pass with which the epoch begins, and the place where it begins."""


class Watch(Protocol):
    """Who is to know of each iteration, which `begin_pass` gives a value of its own."""

    def begin_pass(self, batches: Any) -> Any:
        """It begins. The value has a number `given`, of batches."""

    def ask(self, one: Any) -> None:
        """The next batch is asked for, past the end too."""

    def end_pass(self, one: Any) -> None:
        """The first time past the end."""


class _Watched:
    """An iterator that is watched."""

    def __init__(self, batches: Iterator[Any], watch: Watch, one: Any) -> None:
        self._batches = batches
        self._watch = watch
        self._one = one
        self._is_over = False

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        self._watch.ask(self._one)
        for batch in self._batches:
            self._one.given += 1
            return batch
        if not self._is_over:
            self._is_over = True
            self._watch.end_pass(self._one)
        raise StopIteration


class Batches:
    """A batch sampler for torch.utils.data.DataLoader: lists of indices. Each iteration is an epoch's, with the rank and
    the world size of that moment. It ends early when `is_over` says so. All workers have as many batches, each of at
    least `least` samples: a last global batch that has fewer for each worker goes with the one before it. Where all
    samples are too few for the workers, some have fewer or none. `order`: a sampler of torch, or any indices with a
    length, that are drawn alike on all workers and divided in place of those of `data`. An iterator is of
    the epoch in which it was made.

    The samples' sequence is endless: one pass through all of them, each in its order, behind the other. Epoch k is pass k;
    with `steps` an epoch is so many global batches, and the next one goes on behind them, at `position`, in any world."""

    def __init__(
        self,
        data: Union[int, Sequence[Any]],
        batch_size: int,
        now: Callable[[], Now],
        is_over: Callable[[], bool],
        *,
        global_batch: Optional[int] = None,
        shuffle: Optional[bool] = None,
        seed: int = 1,
        drop_last: bool = False,
        least: int = 1,
        order: Any = None,
        steps: Optional[int] = None,
        watch: Optional[Watch] = None,
    ) -> None:
        if order is not None:
            if shuffle is not None:
                raise ValueError("order= beside shuffle=: the sampler alone decides the order")
            if hasattr(order, "num_replicas"):
                raise ValueError(f"order: {type(order).__name__} divides the samples itself: give the sampler of all samples")
            data = order
        count = data if isinstance(data, int) else len(data)
        if count < 0 or batch_size < 1 or (global_batch is not None and global_batch < 1):
            raise ValueError(f"{count} samples in batches of {batch_size} (global_batch={global_batch})")
        if steps is not None and (steps < 1 or drop_last or not count):
            raise ValueError(f"steps={steps} of {count} samples, drop_last={drop_last}: passes follow each other without an end")
        if not 1 <= least <= (global_batch or batch_size):
            raise ValueError(f"least={least} is not within 1 and the batch of {global_batch or batch_size} samples")
        self._count = count
        self._batch_size = batch_size
        self._global_batch = global_batch
        self._now = now
        self._is_over = is_over
        self._shuffle = shuffle is not False
        self._seed = seed
        self._drop_last = drop_last
        self._least = least
        self._order = order
        self._steps = steps
        self._drawn: Tuple[int, Any] = (-1, None)
        """A pass and its order."""
        self._plan: Tuple[int, Optional[Plan]] = (-1, None)
        """Of the epoch behind a boundary."""
        self._end: Optional[int] = None
        """Where the epoch ends that was iterated."""
        self._begun: Optional[Tuple[Now, Cut]] = None
        """Of the newest iteration."""
        self.position = 0
        """With `steps`: where in the sequence this epoch begins. A program's own checkpoint has it, and sets it again
        before epochs()."""
        self._watch = watch
        self._warned: Set[int] = set()
        """World sizes."""

    def _cut(self, now: Now) -> Cut:
        fewest = self._least * now.world
        whole = max(self._global_batch or self._batch_size * now.world, fewest)
        if self._steps is not None:
            return Cut(self.position, self.position + self._steps * whole, whole, self._steps)
        return cut(now.epoch * self._count, self._count, whole, fewest, self._drop_last)

    def _warn(self, world: int, whole: int) -> None:
        """Once for a world size that the numbers do not suit."""
        if world in self._warned:
            return
        self._warned.add(world)
        text, fewest = "", self._least * world
        if self._steps is None and 0 < self._count < fewest:
            which = "no batch" if self._least == 1 else f"fewer than least={self._least}"
            text = f"{self._count} samples for {world} workers: some workers have {which}"
        elif self._drop_last and 0 < self._count < whole:
            text = f"{self._count} samples with drop_last are fewer than a global batch of {whole}: there is no batch"
        elif self._global_batch and self._global_batch < fewest:
            text = f"global_batch={self._global_batch} for {world} workers: each step has {fewest} samples"
        if text:
            warnings.warn(text, RuntimeWarning, stacklevel=3)

    def _pass(self, number: int) -> Any:
        """The order of a pass."""
        if self._drawn[0] != number:
            self._drawn = -1, None  # its memory is free before the next one is drawn
            seed = self._seed * 1_000_003 + number
            order: Sequence[int] = range(self._count)
            if self._order is not None:
                order = drawn(self._order, self._count, number, seed)
            elif self._shuffle:
                order = shuffled(self._count, seed)
            self._drawn = number, numpy.array(order, numpy.int64)
        return self._drawn[1]

    def _indices(self, place: slice) -> List[int]:
        found: List[int] = []
        while len(found) < place.stop - place.start:
            number, at = divmod(place.start + len(found), self._count)
            found += self._pass(number)[at : at + place.stop - place.start - len(found)].tolist()
        return found

    @property
    def plan(self) -> Optional[Plan]:
        """Of the present epoch; None if it was not iterated in it."""
        boundary, plan = self._plan
        return plan if boundary == self._now().boundary else None

    def __iter__(self) -> Iterator[List[int]]:
        now = self._now()
        places = self._cut(now)
        self._warn(now.world, places.whole)
        order = self._pass(places.begin // self._count) if self._count else numpy.zeros(0)
        plan = Plan(self._count, places.whole, self._seed % (1 << 48), checksum(order, places.begin))
        self._plan = now.boundary, plan
        self._end = places.end
        self._begun = now, places
        found = self._go(now, places)
        return found if self._watch is None else _Watched(found, self._watch, self._watch.begin_pass(self))

    def _go(self, now: Now, places: Cut) -> Iterator[List[int]]:
        for step in range(places.steps):
            mine = places.part(step, now.rank, now.world)
            if self._is_over():
                return
            if self._now().boundary != now.boundary:
                raise InvalidUse(
                    f"these batches are of epoch {now.epoch}, and epoch {self._now().epoch} has begun since: begin to iterate "
                    "inside `for epoch in ...epochs()`, in each epoch again"
                )
            if mine.start < mine.stop:
                yield self._indices(mine)

    def __len__(self) -> int:
        now = self._now()
        found = self._cut(now)
        last = found.part(found.steps - 1, now.rank, now.world)
        return found.steps - (found.steps == 1 and last.start == last.stop)

    def size_of(self, step: int) -> Optional[int]:
        """The samples of this worker's batch of a step, from 0 on, in the newest iteration; None: it has no such batch."""
        if self._begun is None or not 0 <= step < self._begun[1].steps:
            return None
        now, places = self._begun
        mine = places.part(step, now.rank, now.world)
        return int(mine.stop - mine.start)

    def advance(self) -> None:
        """At an epoch's end: the position is behind its global batches, if it was iterated."""
        if self._end is not None:
            self.position, self._end = self._end, None


class Take:
    """`count` batches of a loader in each iteration. The next iteration goes on behind them; where the loader ends, it is
    begun again."""

    def __init__(
        self,
        loader: Any,
        count: int,
        is_over: Callable[[], bool],
        watch: Callable[[], Optional[Watch]] = lambda: None,
    ) -> None:
        if count < 1:
            raise ValueError(f"take({count}): an epoch has at least one batch")
        if isinstance(getattr(loader, "batch_sampler", loader), Batches):
            raise ValueError(f"take() of a loader with batches(): batches(..., steps={count}) makes {count} of them an epoch")
        self._loader = loader
        self._count = count
        self._is_over = is_over
        self._watch = watch
        self._iterator: Optional[Iterator[Any]] = None

    def _next(self) -> Any:
        for _ in range(2):
            if self._iterator is None:
                self._iterator = iter(self._loader)
            for batch in self._iterator:
                return batch
            self._iterator = None
        raise InvalidUse(f"take(): {type(self._loader).__name__} has no batch, begun from its start (a generator has one start)")

    def __iter__(self) -> Iterator[Any]:
        watch = self._watch()
        return self._go() if watch is None else _Watched(self._go(), watch, watch.begin_pass(self))

    def _go(self) -> Iterator[Any]:
        for _ in range(self._count):
            if self._is_over():
                return
            yield self._next()

    def __len__(self) -> int:
        return self._count
