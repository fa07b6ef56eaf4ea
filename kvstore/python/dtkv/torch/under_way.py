"""Parameters whose next values are under way: whoever uses one waits for it first.

Two things see a use. A parameter under way has the class UnderWay: PyTorch calls its `__torch_function__` for every function,
method and attribute of a tensor. And every call of a module is seen before its forward() (hooks.py): custom functions and
extensions in C++ do not ask for classes.
"""

from __future__ import annotations

import os
import weakref
from typing import Any, Callable, Dict, Iterable, Protocol, Sequence

import torch

_Parameter: Any = torch.nn.Parameter
_waits: Dict[int, Callable[[], None]] = {}
"""For each parameter under way, by id: it returns when the parameter has its value, and its own class again."""


class Forked(Protocol):
    """Who is to know that this process is a forked child, which never waits."""

    def leave(self) -> None:
        """The parameters keep the values that they have."""


_in_children: "weakref.WeakSet[Any]" = weakref.WeakSet()


def can_be_under_way(parameter: Any) -> bool:
    """Whether it has the class that UnderWay stands in for."""
    return type(parameter) is _Parameter


def mark(parameter: Any, wait: Callable[[], None]) -> None:
    """The parameter is under way until unmark(), which `wait` calls."""
    _waits[id(parameter)] = wait
    parameter.__class__ = UnderWay


def unmark(parameter: Any) -> None:
    """It has its own class again. Doing it again changes nothing."""
    if type(parameter) is UnderWay:
        parameter.__class__ = _Parameter
    _waits.pop(id(parameter), None)


def in_forked_children(one: Forked) -> None:
    """Calls leave() of it in each child of this process, as long as it lives here."""
    _in_children.add(one)


def _wait_for(values: Iterable[Any]) -> None:
    """Waits for the parameters among the values and in their lists, tuples and dicts."""
    for one in values:
        if type(one) is UnderWay:
            wait = _waits.get(id(one))
            if wait is None:
                unmark(one)
            else:
                wait()
        elif isinstance(one, (list, tuple)):
            _wait_for(one)
        elif isinstance(one, dict):
            _wait_for(one.values())


class UnderWay(_Parameter):  # type: ignore[misc]
    """The class of a parameter while its value is under way; each use gives it its own class back."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Sequence[Any], args: Any = (), kwargs: Any = None) -> Any:
        _wait_for(args)
        if kwargs:
            _wait_for(kwargs.values())
        return func(*args, **(kwargs or {}))

    def __deepcopy__(self, memo: Any) -> Any:
        """nn.Parameter's takes the copy's class before it uses the parameter."""
        _wait_for([self])
        return _Parameter.__deepcopy__(self, memo)


def _leave_in_child() -> None:
    for one in list(_in_children):
        one.leave()


os.register_at_fork(after_in_child=_leave_in_child)
