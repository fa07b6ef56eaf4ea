"""Parameters of dt.Job whose gradients leave together, and whose values arrive together."""

from __future__ import annotations

from typing import Any, Callable, List, Optional, Set

import torch

from ..errors import Error, Nonfinite
from ..store import Arrays, Handle
from . import under_way
from .ahead import Step
from .parameter import Trained, count_writes, note

_any_torch: Any = torch


class Bucket:
    """Parameters whose gradients leave together, and whose values arrive together."""

    def __init__(self, training: Any, parameters: List[Trained], priority: int, give_up: Callable[[], None]) -> None:
        """`training`: the Job. `give_up` drops all values under way: an exchange failed."""
        self._training = training
        self._give_up = give_up
        self.parameters = parameters
        self.priority = priority
        names = [one.name for one in parameters]
        self._is_on_cpu = all(one.row.device.type == "cpu" for one in parameters)
        self._gradients = Arrays(names, [one.gradient_row for one in parameters], is_written=False)
        self._places = [Arrays(names, [one.rows[at] for one in parameters], is_written=True) for at in (0, 1)]
        self._handle: Optional[Handle] = None
        self._copied: Optional[Handle] = None
        """Of values that are on the devices' streams; how the operation ended is not known."""
        self._to = 0
        """The place that the values of the push arrive at."""
        self.missing: Set[Trained] = set()
        """Those without a gradient of this step."""
        self.versions: List[int] = []
        """Of the gradients that left before step()."""
        self.refused: Optional[Nonfinite] = None

    @property
    def is_sent(self) -> bool:
        """Whether its gradients left, and its values were not taken over yet."""
        return self._handle is not None

    def send(self, step: Step) -> None:
        """The gradients are in their places."""
        self._to = 1 - self.parameters[0].at
        if not self._is_on_cpu:
            self._gradients.follow_streams()
            self._places[self._to].follow_streams()
        self.versions = [one.gradient._version for one in self.parameters]
        self._handle = self._training.store.pushpull_again(
            self._gradients,
            self._places[self._to],
            samples=step.samples,
            step=step.number,
            learning_rate=step.rate,
            priority=self.priority,
            wait=False,
        )

    def changed(self) -> Optional[str]:
        """The name of a parameter whose gradient left, and is another one now."""
        for one, version in zip(self.parameters, self.versions if self.is_sent else ()):
            if one.parameter.grad is not one.gradient or one.gradient._version != version:
                return one.name
        return None

    def mark(self) -> None:
        """Its parameters are under way from now on. A gradient that comes nevertheless has a place of its own."""
        for one in self.parameters:
            one.parameter.grad = None
            under_way.mark(one.parameter, self.take_over)

    def take_over(self, timeout: Optional[float] = None) -> None:
        """Waits for the values, which are the parameters' then, and the gradients are zero."""
        if self._handle is None:
            return
        try:
            with self._training._unless_servers_are_lost():
                self._wait(timeout)
                for one in self.parameters:
                    under_way.unmark(one.parameter)
                    one.use(self._to)
                count_writes(self.parameters)
        except Error:
            self._give_up()
            raise
        self.restore()

    def restore(self) -> None:
        """Its parameters are not under way any more, whatever value they have."""
        if self._handle is None:
            return
        with torch.no_grad():
            _any_torch._foreach_zero_([one.gradient for one in self.parameters])
        for one in self.parameters:
            under_way.unmark(one.parameter)
            late = one.parameter.grad
            if late is not None and late is not one.gradient:
                one.gradient += late.detach()
            one.parameter.grad = one.gradient
        note(self.parameters)
        self._handle = None

    def leave(self) -> None:
        """In a forked child: as restore(), and memory that the parent reads stays as it is."""
        for one in self.parameters if self._handle is not None else ():
            under_way.unmark(one.parameter)
            one.parameter.grad = None
        self._handle = None

    def _wait(self, timeout: Optional[float]) -> None:
        handle = self._handle
        assert handle is not None
        try:
            if self._is_on_cpu:
                handle.wait(timeout)
            else:
                handle.wait_in_stream(timeout)
                self._copied = handle
        except Nonfinite as error:  # the values of the step without the refused parts
            self.refused = error
            self._training.store.pull({one.name: one.rows[self._to] for one in self.parameters})

    def confirm(self) -> None:
        """Nothing of it is under way on a device."""
        handle, self._copied = self._copied, None
        if handle is not None:
            with self._training._unless_servers_are_lost():
                handle.wait()
