"""The lead's state on all workers: a tree of plain values as bytes, and the keys that carry them.

A tree is made of tensors, numbers, strings, bools, None, lists, tuples and dicts. Its bytes are JSON that describes it,
then the tensors' values. Whoever reads them makes these types and nothing else: no code comes with them.
"""

from __future__ import annotations

import collections
import json
import struct
import time
import zlib
from typing import Any, Callable, Deque, Dict, Iterator, List, Mapping, Optional, Tuple

import numpy
import torch

from ..errors import Unavailable
from ..store import Handle, Store

_ALIGN = 16
"""Tensors begin at multiples of this many bytes."""
_CHUNK = 1 << 17
"""int64 numbers of a key: 1 MiB."""
_KEYS = 8
"""Chunks under way at a time."""
_PATIENCE = 60.0
"""Seconds in which some worker must have become the lead after the loss of one."""

_DTYPES: Dict[str, Any] = {
    str(dtype): dtype
    for dtype in (
        torch.float32,
        torch.float64,
        torch.float16,
        torch.bfloat16,
        torch.int64,
        torch.int32,
        torch.int16,
        torch.int8,
        torch.uint8,
        torch.bool,
        torch.complex64,
        torch.complex128,
    )
}
_DICTS: Dict[str, Any] = {"dict": dict, "ordered": collections.OrderedDict, "counter": collections.Counter}
_KINDS: Dict[Any, str] = {
    dict: "dict",
    collections.defaultdict: "dict",
    collections.OrderedDict: "ordered",
    collections.Counter: "counter",
}


def describe(tree: Any, name: str) -> Tuple[Any, List[Any]]:
    """JSON's form of the tree, and its tensors. TypeError: names what cannot be sent."""
    tensors: List[Any] = []
    places = [0]

    def plain(value: Any, at: str) -> Any:
        if value is None or isinstance(value, (bool, int, float, str)):
            return value
        if isinstance(value, torch.Tensor):
            if str(value.dtype) not in _DTYPES or value.layout != torch.strided or value.is_meta:
                raise TypeError(f"{at}: a tensor of {value.dtype}, {value.layout} on '{value.device}' cannot be sent")
            tensors.append(value)
            place = places[0]
            places[0] = -(-(place + value.numel() * value.element_size()) // _ALIGN) * _ALIGN
            return {"tensor": str(value.dtype), "shape": list(value.shape), "at": place}
        if type(value) is list:
            return [plain(one, f"{at}[{i}]") for i, one in enumerate(value)]
        if type(value) in (tuple, torch.Size):
            return {"tuple": [plain(one, f"{at}[{i}]") for i, one in enumerate(value)]}
        if type(value) in _KINDS:
            pairs = []
            for key, one in value.items():
                if key is not None and not isinstance(key, (bool, int, float, str)):
                    raise TypeError(f"{at}: a key of type {type(key).__name__} cannot be sent")
                pairs.append([key, plain(one, f"{at}.{key}")])
            return {_KINDS[type(value)]: pairs}
        raise TypeError(
            f"{at}: {type(value).__name__} cannot be sent to other workers: tensors, numbers, strings, bools, None, "
            "lists, tuples and dicts can"
        )

    return plain(tree, name), tensors


def pack(tree: Any, name: str = "object") -> bytearray:
    """The tree's bytes. TypeError: names what cannot be sent, `name` being the whole tree's name."""
    form, tensors = describe(tree, name)
    head = json.dumps(form).encode()
    out = bytearray(struct.pack("<Q", len(head)) + head)
    out += bytes(-len(out) % _ALIGN)
    for one in tensors:
        out += one.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data
        out += bytes(-len(out) % _ALIGN)
    return out


def unpack(data: bytearray) -> Any:
    """The tree of pack(); tensors are on the CPU. ValueError: these bytes are none."""
    (length,) = struct.unpack_from("<Q", data)
    begin = -(-(8 + length) // _ALIGN) * _ALIGN

    def value_of(form: Any) -> Any:
        if isinstance(form, list):
            return [value_of(one) for one in form]
        if not isinstance(form, dict):
            return form
        if "tensor" in form:
            dtype, shape = _DTYPES[form["tensor"]], form["shape"]
            count = int(numpy.prod(shape, dtype=numpy.int64))
            if count == 0:
                return torch.empty(shape, dtype=dtype)
            return torch.frombuffer(data, dtype=dtype, count=count, offset=begin + form["at"]).reshape(shape).clone()
        ((kind, content),) = form.items()
        if kind == "tuple":
            return tuple(value_of(one) for one in content)
        made = _DICTS[kind]()
        for key, one in content:
            made[key] = value_of(one)
        return made

    try:
        return value_of(json.loads(data[8 : 8 + length].decode()))
    except (KeyError, TypeError) as error:
        raise ValueError(f"these bytes are no tree of plain values: {error}") from error


class Channel:
    """Carries the lead's bytes and arrays to all workers. All of them make the same calls, after their first boundary.

    The others' zeros are added to what the lead sends; bytes go through a few int64 keys in turn, 1 MiB a round. A
    checksum shows whether the lead was lost on the way; then the next lead begins anew.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._has_keys = False
        self._chunks: List[Any] = []
        self._head = numpy.zeros(3, numpy.int64)
        self._wish = numpy.zeros(1, numpy.int64)

    def any(self, mine: bool) -> bool:
        """Whether it is true of any worker."""
        self._create()
        self._wish[0] = mine
        self._store.pushpull("dtkv.channel.wish", self._wish, reduce="sum")
        return bool(self._wish[0] > 0)

    def broadcast(self, give: Callable[[], bytearray]) -> Optional[bytearray]:
        """What the lead gives; None for the lead itself."""
        for _ in self._attempts():
            blob = give() if self._store.is_lead else None
            leads, size, checksum = self._meet_lead(blob)
            if leads == 1:
                received = self._carry(blob, size)
                if blob is not None:
                    return None
                if zlib.crc32(received) == checksum:
                    return received
        raise AssertionError("unreachable")

    def share(self, arrays: Mapping[str, Any]) -> None:
        """The int64 tensors become the lead's. They are values of keys that exist, and lie on the CPU."""
        mine = {key: one.clone() for key, one in arrays.items()}
        for _ in self._attempts():
            is_lead = self._store.is_lead
            for key, one in arrays.items():
                one.copy_(mine[key]) if is_lead else one.zero_()
            leads, _, checksum = self._meet_lead(_joined(mine) if is_lead else None)
            if leads == 1:
                self._store.pushpull(dict(arrays), reduce="sum")
                if zlib.crc32(_joined(arrays)) == checksum:
                    return

    def _attempts(self) -> Iterator[None]:
        """One after the other, until the lead of one has lived to its end."""
        self._create()
        ends = time.monotonic() + _PATIENCE
        while time.monotonic() <= ends:
            yield
            time.sleep(0.05)
        raise Unavailable("no worker is the lead, which gives its state to the others")

    def _meet_lead(self, blob: Optional[bytearray]) -> List[int]:
        """Number of leads, and the lead's size and checksum."""
        self._head[:] = (0, 0, 0) if blob is None else (1, len(blob), zlib.crc32(blob))
        self._store.pushpull("dtkv.channel.head", self._head, reduce="sum")
        found: List[int] = self._head.tolist()
        return found

    def _create(self) -> None:
        if not self._has_keys:
            self._store.init({"dtkv.channel.head": self._head, "dtkv.channel.wish": self._wish}, auxiliary=True, transient=True)
            self._has_keys = True

    def _create_chunks(self) -> None:
        if not self._chunks:
            chunks = [numpy.zeros(_CHUNK, numpy.int64) for _ in range(_KEYS)]
            self._store.init({f"dtkv.channel.{i}": one for i, one in enumerate(chunks)}, auxiliary=True, transient=True)
            self._chunks = chunks

    def _carry(self, blob: Optional[bytearray], size: int) -> bytearray:
        self._create_chunks()
        width = 8 * _CHUNK
        out = bytearray(0 if blob is not None else size)
        under_way: Deque[Tuple[int, Handle]] = collections.deque()

        def finish_one() -> None:
            i, handle = under_way.popleft()
            handle.wait()
            if blob is None:
                part = memoryview(out)[i * width : (i + 1) * width]
                part[:] = self._chunks[i % _KEYS].view(numpy.uint8)[: len(part)].data

        for i in range(-(-size // width)):
            if len(under_way) == _KEYS:
                finish_one()
            key, chunk = f"dtkv.channel.{i % _KEYS}", self._chunks[i % _KEYS]
            chunk.fill(0)
            if blob is None:
                handle = self._store.pushpull(key, chunk, reduce="sum", wait=False)
            else:
                mine = memoryview(blob)[i * width : (i + 1) * width]
                chunk.view(numpy.uint8)[: len(mine)] = mine
                handle = self._store.push(key, chunk, reduce="sum", wait=False)
            under_way.append((i, handle))
        while under_way:
            finish_one()
        return out


def _joined(arrays: Mapping[str, Any]) -> bytearray:
    out = bytearray()
    for one in arrays.values():
        out += one.numpy().data
    return out
