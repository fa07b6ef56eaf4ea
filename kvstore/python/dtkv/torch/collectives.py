"""Sums and values that all workers have in common, at any point of an epoch."""

from __future__ import annotations

from typing import Any

from . import elastic
from .transfer import pack, unpack


def all_reduce(tensor: Any, op: str = "mean") -> Any:
    """The mean, or with op="sum" the sum, of the workers' tensors, in place; returns the tensor. Its type is float32,
    float64, float16, bfloat16 or, for sums, int64; its shape is any. All workers call it, in the same order, inside epochs(). After the
    loss of a server the tensor is undefined until the epoch is run again."""
    if op not in ("mean", "sum"):
        raise ValueError(f"op is mean or sum, not {op!r}")
    training = elastic.current()
    training._check_has_begun("all_reduce()")
    count = tensor.numel()
    room = 1 << max(count - 1, 0).bit_length()
    """A key is for all lengths up to a power of two, so that there are few."""
    row = tensor.new_zeros(room)
    row[:count] = tensor.detach().reshape(-1)
    key = f"dtkv.all_reduce.{str(tensor.dtype)[len('torch.'):]}.{room}"
    with training._unless_servers_are_lost():
        if not training._is_lost:
            training._create(key, row)
            training.store.pushpull(key, row, step=training._last_step, reduce=op)
    tensor.detach().copy_(row[:count].reshape(tensor.shape))
    return tensor


def broadcast(obj: Any) -> Any:
    """The lead's object on all workers: tensors (on the CPU), numbers, strings, bools, None, lists, tuples and dicts of
    them. TypeError names what else is in it. All workers call it, inside epochs()."""
    training = elastic.current()
    training._check_has_begun("broadcast()")
    with training._unless_servers_are_lost():
        if not training._is_lost:
            received = training._channel.broadcast(lambda: pack(obj))
            return obj if received is None else unpack(received)
    return obj
