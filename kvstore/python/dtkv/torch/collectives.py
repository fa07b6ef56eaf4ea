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
    training._check_is_in_epoch("all_reduce()")
    key = f"dtkv.all_reduce.{str(tensor.dtype)[len('torch.'):]}.{tensor.numel()}"
    dense = tensor.detach().contiguous()
    with training._unless_servers_are_lost():
        if not training._is_lost:
            training._create(key, dense)
            training.store.pushpull(key, dense, step=training.epoch << 32 | elastic.LAST_STEP, reduce=op)
    if dense.data_ptr() != tensor.data_ptr():
        tensor.detach().copy_(dense)
    return tensor


def broadcast(obj: Any) -> Any:
    """The lead's object on all workers: tensors (on the CPU), numbers, strings, bools, None, lists, tuples and dicts of
    them. TypeError names what else is in it. All workers call it, inside epochs()."""
    training = elastic.current()
    training._check_is_in_epoch("broadcast()")
    with training._unless_servers_are_lost():
        if not training._is_lost:
            received = training._channel.broadcast(lambda: pack(obj))
            return obj if received is None else unpack(received)
    return obj
