"""What the workers must have alike in an epoch, compared in its first step."""

from __future__ import annotations

from typing import Any, NamedTuple, Optional, Tuple

import numpy

from ..errors import Mismatch
from .sampler import Plan

KEY = "dtkv.plan"
_WORD = (1 << 64) - 1
_SENTENCES = (
    "this worker's data has {mine} samples, the mean over the workers is {mean:g}",
    "this worker's batches are for steps of {mine} samples, the mean over the workers is {mean:g}",
    "this worker's samples are shuffled by the seed {mine}, the mean over the workers is {mean:g}",
    "this worker's samples have another order than those of the other workers",
    "this worker trains other parameters than the others, or they have other shapes or strides",
)
_RATE = "this worker's first step has the learning rate {rate:g}, the other workers' another one"


class Contribution(NamedTuple):
    """A worker's. `plan`: of its sampler, None without one. `parameters`: a checksum of those that are trained. `rate`: the
    learning rate of its first step; None: it makes none now, or the rates may differ, or are compared elsewhere.
    `is_proven`: it has ended an epoch of this job. `flag`: any worker may set it."""

    plan: Optional[Plan]
    parameters: int
    rate: Optional[float] = None
    is_proven: bool = False
    flag: bool = False

    def numbers(self) -> Tuple[int, ...]:
        return (*(self.plan or (0, 0, 0, 0)), self.parameters)

    def packed(self) -> Any:
        """For KEY, which adds up: counts, and what must be alike, modulo 2^64."""
        rate = 0 if self.rate is None else int(numpy.float32(self.rate).view(numpy.uint32))  # as servers have it
        words = [1, self.is_proven, self.flag, self.rate is not None, rate, *self.numbers()]
        return numpy.array([n & _WORD for n in words], numpy.uint64).view(numpy.int64)


class Verdict(NamedTuple):
    flag: bool
    has_newcomers: bool
    """Workers train that are not proven, beside others that are."""


def check(mine: Contribution, sums: Any, epoch: int) -> Verdict:
    """Mismatch: the workers differ. Beside workers that are proven, those alone that are not say so, and end."""
    workers, proven, flag, rated, rates, *wholes = sums.view(numpy.uint64).tolist()
    verdict = Verdict(bool(flag), 0 < proven < workers)
    if verdict.has_newcomers and mine.is_proven:
        return verdict
    for sentence, number, whole in zip(_SENTENCES, mine.numbers(), wholes):
        if number * workers & _WORD != whole:
            raise Mismatch(f"epoch {epoch}: " + sentence.format(mine=number, mean=whole / workers))
    if mine.rate is not None and (int(mine.packed()[4]) * rated - rates) & _WORD:
        raise Mismatch(f"epoch {epoch}: " + _RATE.format(rate=mine.rate))
    return verdict
