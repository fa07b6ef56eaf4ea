"""What the workers must have alike in an epoch, compared in its first step."""

from __future__ import annotations

from typing import Any, Optional, Tuple

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


def _numbers(plan: Optional[Plan], parameters: int) -> Tuple[int, ...]:
    return (*(plan or (0, 0, 0, 0)), parameters)


def packed(plan: Optional[Plan], parameters: int, flag: bool) -> Any:
    """The contribution to KEY, which adds up: numbers of workers and of flags, and what must be alike, modulo 2^64.
    `plan`: of the sampler, None without one. `parameters`: a checksum of those that are trained."""
    return numpy.array([1, flag, *(n & _WORD for n in _numbers(plan, parameters))], numpy.uint64).view(numpy.int64)


def check(plan: Optional[Plan], parameters: int, sums: Any, epoch: int) -> bool:
    """Whether anyone had set the flag. Mismatch: the workers differ."""
    workers = int(sums[0])
    for sentence, mine, whole in zip(_SENTENCES, _numbers(plan, parameters), sums[2:].view(numpy.uint64).tolist()):
        if mine * workers & _WORD != whole:
            raise Mismatch(f"epoch {epoch}: " + sentence.format(mine=mine, mean=whole / workers))
    return bool(sums[1])
