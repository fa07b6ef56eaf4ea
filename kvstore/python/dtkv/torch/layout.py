"""A model's tensors as workers compare and send them: names without wrappers, elements in the order of the memory,
digests."""

from __future__ import annotations

import zlib
from typing import Any, Dict, Iterable, Tuple

import torch

_PIECE = 1 << 20
"""Bytes of a tensor that a digest takes at a time."""
_SIGN = 1 << 63


def plain_names(names: Iterable[str]) -> Dict[str, str]:
    """Each name without what torch.compile ("_orig_mod.") and DistributedDataParallel ("module.") add to it."""
    out: Dict[str, str] = {}
    for name in names:
        parts = [part for part in name.split(".") if part != "_orig_mod"]
        while len(parts) > 1 and parts[0] == "module":
            del parts[0]
        out[name] = ".".join(parts)
    return out if len(set(out.values())) == len(out) else {name: name for name in out}


def plain(named: Iterable[Tuple[str, Any]]) -> Dict[str, Any]:
    """Pairs of a name and a tensor, by plain names."""
    found = dict(named)
    names = plain_names(found)
    return {names[name]: one for name, one in found.items()}


def strides(tensor: Any) -> Tuple[int, ...]:
    """The strides of a tensor without gaps, those that do not matter left out; of any other the ones that a contiguous
    copy has."""
    if not is_dense(tensor):
        tensor = tensor.detach().contiguous()
    return tuple(0 if size == 1 else stride for size, stride in zip(tensor.shape, tensor.stride()))


def is_dense(tensor: Any) -> bool:
    """Whether the elements lie in one row, in any order of the dimensions (channels_last)."""
    expected: int = 1
    for stride, size in sorted((stride, size) for stride, size in zip(tensor.stride(), tensor.shape) if size != 1):
        if stride != expected:
            return bool(tensor.numel() == 0)
        expected *= size
    return True


def flat(tensor: Any) -> Any:
    """The elements in the order of the memory: a view where the tensor is dense, else a copy."""
    tensor = tensor.detach()
    if not is_dense(tensor):
        return tensor.contiguous().reshape(-1)
    return torch.as_strided(tensor, (tensor.numel(),), (1,), tensor.storage_offset())


def shaped(row: Any, like: Any) -> Any:
    """A row as flat() gives it, as a view with the shape and the strides of `like`."""
    like = like.detach() if is_dense(like) else like.detach().contiguous()
    return torch.as_strided(row, like.shape, like.stride(), row.storage_offset())


def row_bytes(tensor: Any) -> Any:
    """The bytes of flat(), as uint8."""
    row = flat(tensor)
    return (torch.view_as_real(row).reshape(-1) if row.is_complex() else row).view(torch.uint8)


def is_same(a: Any, b: Any) -> bool:
    """Whether two tensors of one type have the same bits."""
    return bool(torch.equal(row_bytes(a), row_bytes(b)))


def words(tensor: Any) -> Any:
    """A tensor of any type on the CPU as int64, its last word filled up with zeros."""
    data = row_bytes(tensor)
    out = torch.zeros(-(-data.numel() // 8), dtype=torch.int64)
    out.view(torch.uint8)[: data.numel()] = data.cpu()
    return out


def take_words(tensor: Any, row: Any) -> None:
    """Writes what words() gave to the tensor, if it differs from what is there."""
    count = tensor.numel() * tensor.element_size()
    if not torch.equal(words(tensor), row):
        value = torch.empty_like(flat(tensor), device="cpu")
        row_bytes(value).copy_(row.view(torch.uint8)[:count])
        with torch.no_grad():
            tensor.copy_(shaped(value, tensor))


def _sum_of(data: Any, odd: Any) -> int:
    """Bytes as numbers of 64 bits, each times an odd number of its place, added up."""
    if data.numel() % 8 or data.storage_offset() % 8:
        whole = torch.zeros(-(-data.numel() // 8) * 8, dtype=torch.uint8, device=data.device)
        whole[: data.numel()] = data
        data = whole
    row = data.view(torch.int64)
    return int((row * odd[: row.numel()]).sum().item())


def signature(name: str, tensor: Any) -> int:
    """A number of 32 bits, of the name, the type, the shape and the strides."""
    return zlib.crc32(f"{name} {tensor.dtype} {tuple(tensor.shape)} {strides(tensor)}".encode())


def digests(named: Dict[str, Any]) -> Dict[str, int]:
    """An int64 number for each tensor, of its signature and its bytes; computed where the tensor is."""
    out: Dict[str, int] = {}
    odd: Dict[Any, Any] = {}
    for name, tensor in named.items():
        sum_of = signature(name, tensor) << 31
        data = row_bytes(tensor)
        if data.device not in odd:
            odd[data.device] = torch.arange(1, _PIECE // 4, 2, dtype=torch.int64, device=data.device)
        for i in range(0, data.numel(), _PIECE):
            sum_of += _sum_of(data[i : i + _PIECE], odd[data.device]) * (2 * i + 1)
        out[name] = (sum_of + _SIGN) % (2 * _SIGN) - _SIGN
    return out
