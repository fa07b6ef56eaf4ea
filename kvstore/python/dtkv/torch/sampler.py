"""Which samples a worker takes: part k of n of every batch of every epoch, as trainer/data/sampler.h has it.

The workers go through one common shuffled order together, a global batch a step, and each takes its part: no sample is
repeated or left out, with any number of workers. numpy alone; the same numbers on every machine.
"""

from __future__ import annotations

from typing import Any, Callable, Iterator, List, NamedTuple, Optional, Sequence, Union

import numpy

_GAMMA = 0x9E3779B97F4A7C15


def _random(seed: int, count: int) -> Any:
    """The first `count` numbers of splitmix64 (Steele, Lea, Flood 2014)."""
    with numpy.errstate(over="ignore"):
        z = numpy.uint64(seed % (1 << 64)) + numpy.arange(1, count + 1, dtype=numpy.uint64) * numpy.uint64(_GAMMA)
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


def part(count: int, global_batch: int, rank: int, world: int, step: int) -> slice:
    """Where a worker's samples of a step lie in the epoch's order. The parts' sizes differ by at most one."""
    first = step * global_batch
    return _split(first, max(first, min(first + global_batch, count)), rank, world)


def _split(first: int, end: int, rank: int, world: int) -> slice:
    whole = end - first
    return slice(first + whole * rank // world, first + whole * (rank + 1) // world)


class Now(NamedTuple):
    """What a sampler reads when an epoch's iteration begins."""

    epoch: int
    rank: int
    world: int


class Batches:
    """A batch sampler for torch.utils.data.DataLoader: lists of indices. Each iteration is an epoch's, with the rank and
    the world size of that moment. It ends early when `is_over` says so. `is_even`: all workers have as many batches; a
    last global batch with fewer samples than workers goes with the one before it. `on_begin` gets the number of
    steps."""

    def __init__(
        self,
        data: Union[int, Sequence[Any]],
        batch_size: int,
        now: Callable[[], Now],
        is_over: Callable[[], bool],
        *,
        global_batch: Optional[int] = None,
        shuffle: bool = True,
        seed: int = 1,
        is_even: bool = False,
        on_begin: Callable[[int], None] = lambda steps: None,
    ) -> None:
        count = data if isinstance(data, int) else len(data)
        if count < 0 or batch_size < 1 or (global_batch is not None and global_batch < 1):
            raise ValueError(f"{count} samples in batches of {batch_size} (global_batch={global_batch})")
        self._count = count
        self._batch_size = batch_size
        self._global_batch = global_batch
        self._now = now
        self._is_over = is_over
        self._shuffle = shuffle
        self._seed = seed
        self._is_even = is_even
        self._on_begin = on_begin

    def _parts(self) -> Iterator[slice]:
        now = self._now()
        whole = self._global_batch or self._batch_size * now.world
        steps = -(-self._count // whole)
        if self._is_even and steps > 1 and self._count - (steps - 1) * whole < now.world:
            steps -= 1
        for step in range(steps):
            end = self._count if step + 1 == steps else (step + 1) * whole
            mine = _split(step * whole, end, now.rank, now.world)
            if mine.start < mine.stop:
                yield mine

    def __iter__(self) -> Iterator[List[int]]:
        order = list(range(self._count))
        if self._shuffle:
            order = shuffled(self._count, self._seed * 1_000_003 + self._now().epoch)
        self._on_begin(len(self))
        for mine in self._parts():
            if self._is_over():
                return
            yield order[mine]

    def __len__(self) -> int:
        return sum(1 for _ in self._parts())
