"""A parameter that dt.Job trains, and its places in the store's memory."""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Sequence, Tuple

import torch

from ..store import Store
from .layout import flat, shaped

_ALIGN = 16
"""Rows begin at multiples of this many elements."""
_any_torch: Any = torch  # whichever release it is
_count_writes = _any_torch._foreach_zero_
if _any_torch.__version__ >= (2, 5):
    _count_writes = _any_torch.autograd.graph.increment_version


def rows_for(store: Store, tensors: Sequence[Any]) -> Tuple[List[Any], List[Any]]:
    """Zeros for as many elements as each tensor has. They lie in one block for each device and type, on the CPU in the
    store's memory. Returns the rows and the blocks. Each row has a version of its own, and on the CPU a storage of its own:
    a file of one parameter has no others."""
    sizes: Dict[Tuple[Any, Any], int] = {}
    begins: List[int] = []
    for one in tensors:
        kind = one.device, one.dtype
        begins.append(sizes.get(kind, 0))
        sizes[kind] = begins[-1] + -(-one.numel() // _ALIGN) * _ALIGN
    blocks = {(device, dtype): _block(store, device, dtype, size) for (device, dtype), size in sizes.items()}
    rows = [_part(blocks[one.device, one.dtype], at, one.numel()) for one, at in zip(tensors, begins)]
    return rows, list(map(_part, blocks.values()))


def _block(store: Store, device: Any, dtype: Any, size: int) -> Any:
    if device.type != "cpu":
        return torch.zeros(size, dtype=dtype, device=device)
    return store.allocate(size, str(dtype)[len("torch.") :])


def _part(block: Any, begin: int = 0, size: Optional[int] = None) -> Any:
    part = block[begin : None if size is None else begin + size]
    return part.data if isinstance(part, torch.Tensor) else torch.from_numpy(part)


class Trained:
    """`rows` are places of the value: the present one, at `at`, and where the next one arrives, if the Job has that.
    `row`, `gradient_row`: elements in the order of the memory. `value`, `gradient`: the same with the parameter's strides.
    """

    def __init__(self, name: str, parameter: Any, row: Any, gradient_row: Any) -> None:
        self.name = name
        self.parameter = parameter
        row.copy_(flat(parameter))
        self.gradient_row = gradient_row
        self.gradient = shaped(gradient_row, parameter)
        self.rows = [row]
        self._values = [shaped(row, parameter)]
        self.at = 0
        self.use(0)
        parameter.grad = self.gradient
        self.versioned = torch.as_strided(parameter.detach(), (0,), (1,))
        """Nothing of the parameter but its version, by which autograd sees a write. It is read without the parameter's class."""
        self.seen = 0
        """The version after the last value from the servers."""

    @property
    def row(self) -> Any:
        """The present value's elements."""
        return self.rows[self.at]

    @property
    def value(self) -> Any:
        """The present value."""
        return self._values[self.at]

    def begin_anew(self) -> None:
        """The present place is the first one."""
        if self.at:
            self.rows.reverse()
            self._values.reverse()
            self.at = 0

    def add_place(self, row: Any) -> None:
        """Where the next value is to arrive."""
        self._values.append(shaped(row, self.value))
        self.rows.append(row)

    def use(self, at: int) -> None:
        """The value at this place is the parameter's from now on. On the CPU the parameter's memory is there then, on a device
        it is copied to the memory that the parameter has. Doing it again changes nothing."""
        if at and self.parameter.device.type != "cpu":
            self.rows[0].copy_(self.rows[at])
        else:
            self.at = at
            self.parameter.data = self._values[at]
        self.address: int = self._values[self.at].data_ptr()

    @property
    def has_moved(self) -> bool:
        """Whether the program gave the parameter other memory."""
        return bool(self.parameter.data_ptr() != self.address)

    @property
    def is_written(self) -> bool:
        """Whether the program wrote to the parameter since note()."""
        return bool(self.versioned._version != self.seen)

    def collect(self) -> None:
        """Brings the gradient to its place, where the program or autograd put it elsewhere; zeros where there is none."""
        found = self.parameter.grad
        if found is self.gradient:
            return
        with torch.no_grad():
            if found is None:
                self.gradient.zero_()
            elif found.data_ptr() != self.gradient.data_ptr():
                self.gradient.copy_(found.detach())
        self.parameter.grad = self.gradient


def count_writes(several: Sequence[Trained]) -> None:
    """The parameters have new values: a graph that has the old ones must not be used."""
    if several:
        _count_writes([one.versioned for one in several])


def note(several: Sequence[Trained]) -> None:
    """The parameters have the values that the servers have."""
    for one in several:
        one.seen = one.versioned._version
