"""The exchange of dt.Job beside its compute: gradients leave in backward (see ahead), values are waited for where they are used.

step() sends what backward has not sent, and does not wait: see under_way.
"""

from __future__ import annotations

from typing import Any, Dict, List, Optional

import torch
from torch.jit._script import ScriptModule

from ..errors import Error, InvalidUse, Nonfinite
from . import under_way
from .ahead import Ahead, Step, divided
from .bucket import Bucket
from .hooks import has_compiled
from .parameter import Trained, rows_for

_PATIENCE = 5.0
"""Seconds for which close() waits for values under way."""


class Overlap(Ahead):
    """Of one Job."""

    called = "job"
    how_to_do_without = "dt.Job(..., overlap=False)"

    def __init__(self, training: Any, model: Any, wanted: Optional[bool], type: str) -> None:  # noqa: A002
        self._parameters: List[Trained] = []
        self._buckets: List[Bucket] = []
        self._bucket_of: List[Bucket] = []
        self._of_module: Dict[int, Any] = {}
        """A module, the buckets of its own parameters, and those of all below it."""
        self._does_not_ask = False
        """Some code of the model does not see UnderWay: step() waits for the values."""
        self.is_under_way = False
        super().__init__(training, model, wanted, type)
        if self._is_observing:
            under_way.in_forked_children(self)

    # ---------------------------------------------------------------- what there is to send

    def lay_out(self, parameters: List[Trained]) -> None:
        """The Job has these parameters from now on. Nothing is under way."""
        self._parameters = parameters
        self._buckets, self._bucket_of, self._of_module = [], [], {}
        self._watch(parameters)
        if self._is_observing:
            self._of_module = {id(module): (module, (), ()) for module in self._model.modules()}

    def _make_buckets(self, order: List[int]) -> None:
        for one in self._parameters:
            one.begin_anew()
        places = [one for one in self._parameters if len(one.rows) == 1]
        for one, row in zip(places, rows_for(self._training.store, [one.row for one in places])[0]):
            one.add_place(row)
        for numbers in divided([one.row for one in self._parameters], order):
            numbers.sort(key=bool)  # libdtkv counts steps by the first key that was pushed
            mine = [self._parameters[number] for number in numbers]
            self._buckets.append(Bucket(self._training, mine, len(self._buckets), self.drop))
        are_plain = all(under_way.can_be_under_way(one.parameter) for one in self._parameters)
        self._does_not_ask = not are_plain or any(isinstance(one, ScriptModule) for one in self._model.modules())
        of_parameter = {id(one.parameter): bucket for bucket in self._buckets for one in bucket.parameters}
        self._bucket_of = [of_parameter[id(one.parameter)] for one in self._parameters]

        def of(parameters: Any) -> List[Bucket]:
            return list(dict.fromkeys(of_parameter[id(p)] for p in parameters if id(p) in of_parameter))

        for module in self._model.modules():
            own = of(p for p in module._parameters.values() if p is not None)
            self._of_module[id(module)] = module, own, of(module.parameters())

    # ---------------------------------------------------------------- backward

    def see_forward(self, module: Any, inputs: Any) -> None:
        """Before a module's forward()."""
        super().see_forward(module, inputs)
        found = self._of_module.get(id(module))
        if self.is_under_way and found is not None:
            _, own, below = found
            for bucket in own if module.training else below:
                bucket.take_over()

    def _may_begin(self) -> bool:
        self.settle()
        return not any(one.is_written for one in self._parameters)

    def _begin_sending(self) -> None:
        for bucket in self._buckets:
            bucket.missing = set(bucket.parameters)

    def _take_gradient(self, number: int) -> None:
        bucket, one = self._bucket_of[number], self._parameters[number]
        if bucket.is_sent:
            raise self.changed_after(one.name)
        one.collect()
        bucket.missing.discard(one)
        if not bucket.missing:
            assert self._sent is not None
            bucket.send(self._sent)

    # ---------------------------------------------------------------- step()

    def look(self, step: Step, is_rate_given: bool) -> None:
        """step() begins, and all gradients are as the program left them. Raises what went wrong in backward; judges the step
        if it is observed."""
        changed = [name for name in (bucket.changed() for bucket in self._buckets) if name is not None]
        error = self._error or (self.changed_after(changed[0]) if changed else None)
        if error is not None:
            self.drop()
            raise error
        if self._observed is not None and not self._observed.is_empty:
            self._judge(self._observed, step, is_rate_given)

    def exchange(self, step: Step) -> bool:
        """Sends what did not leave in backward; the values are under way then. False: nothing was done, the step is the
        caller's to make."""
        if not self._is_on:
            return False
        sent = self._sent
        try:
            for bucket in self._buckets:
                if not bucket.is_sent:
                    bucket.send(sent or step)
        except Error:
            self.drop()
            raise
        if sent is not None and not sent.same_as(step):
            given, left = (f"{one.samples} samples and the learning rate {one.rate:g}" for one in (step, sent))
            self._left_otherwise(given, left, "job.samples and job.lr", depth=4)
        self.is_under_way = True
        return True

    def end_step(self) -> None:
        """step() has counted the new values as written."""
        self._forget_step()
        if not self.is_under_way:
            self.drop()  # of a step that failed
            return
        if not self._is_on or self._does_not_ask or has_compiled(self._model):
            self.settle()
            return
        for bucket in self._buckets:
            bucket.mark()

    def check_ended(self) -> None:
        """InvalidUse: backward sent gradients, and no step() followed."""
        if self._sent is not None and any(bucket.is_sent for bucket in self._buckets):
            raise InvalidUse("backward sent gradients, and no step() followed: " + self.how_to_do_without)

    def settle(self, timeout: Optional[float] = None) -> None:
        """Every parameter has its value."""
        if self.is_under_way:
            for bucket in self._buckets:
                bucket.take_over(timeout)
            for bucket in self._buckets:
                bucket.confirm()
            self.is_under_way = False

    def refused(self) -> Optional[Nonfinite]:
        """The error of values that were taken over since the last call."""
        found = [bucket.refused for bucket in self._buckets if bucket.refused is not None]
        for bucket in self._buckets:
            bucket.refused = None
        return found[0] if found else None

    def drop(self) -> None:
        """The values under way do not count: an exchange failed."""
        for bucket in self._buckets:
            bucket.restore()
        self.is_under_way = False

    def leave(self) -> None:
        """In a forked child."""
        for bucket in self._buckets:
            bucket.leave()
        self.is_under_way = False
        self._turn_off("a forked child")

    def close(self) -> None:
        """The values under way have a while to arrive."""
        try:
            self.settle(_PATIENCE)
        except RuntimeError:  # an error of the exchange, or the store is in use
            self.drop()
        self._turn_off("the job is closed")
