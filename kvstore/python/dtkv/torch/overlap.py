"""The exchange of dt.Job beside its compute: gradients leave in backward, values are waited for where they are used.

A step is made as a whole by step() until one of them (Observed) shows that no gradient changes behind backward, and which rule
says a step's samples before backward. From then on buckets of parameters leave as soon as backward has their gradients, the
last layers' first. step() sends the rest and does not wait: see under_way. What is sent, and in which order it is added
up, is the same, so all bits are.
"""

from __future__ import annotations

import os
import sys
import warnings
import weakref
from typing import Any, Callable, Dict, List, Optional, Sequence

import torch

from ..errors import Error, InvalidUse, Nonfinite
from . import under_way
from .bucket import Bucket, Step, Training, changed_after
from .hooks import Hook, before_forward, on_gradient
from .observed import Observed
from .parameter import Trained, rows_for

BUCKET_BYTES = 1 << 20
"""A bucket's parameters have at least so many bytes, but for the last one's."""
_ENOUGH = 3
"""Steps that failed for the same reason, after which no step is observed any more: that costs a pass over all gradients."""
_PATIENCE = 5.0
"""Seconds for which close() waits for values under way."""


class Overlap:
    """Of one Job. `wanted`: None: where the steps fit; True: looks on for steps that fit, also in a process
    alone, which has nothing to hide; False: never. `type`: the store's."""

    def __init__(self, training: Training, model: Any, wanted: Optional[bool], type: str) -> None:  # noqa: A002
        self.why = "no step was observed yet"
        """Why gradients leave in step() alone; empty: they leave in backward."""
        self._training = training
        self._model = model
        self._wanted = wanted
        self._is_observing = False
        self._is_on = False
        self._parameters: List[Trained] = []
        self._buckets: List[Bucket] = []
        self._bucket_of: List[Bucket] = []
        self._of_module: Dict[int, Any] = {}
        """A module, the buckets of its own parameters, and those of all below it."""
        self._does_not_ask = False
        """Some code of the model does not see UnderWay: step() waits for the values."""
        self._rules: List[int] = []
        """Numbers of those that said the observed step's samples: where they differ later, step() alone sends. What the program
        says (job.samples) stands alone."""
        self._failures: Dict[str, int] = {}
        self._hooks: List[Hook] = []
        # Of the present step:
        self._has_begun = False
        """Backward has begun."""
        self._observed: Optional[Observed] = None
        self._sent: Optional[Step] = None
        """What the buckets say that leave in this backward."""
        self._input: Sequence[int] = ()
        """The shape of the model's input."""
        self._error: Optional[Exception] = None
        """Of a hook; step() raises it."""
        self.is_under_way = False
        if wanted is False or os.environ.get("DT_OVERLAP") == "0":
            self.why = "overlap=False" if wanted is False else "DT_OVERLAP=0"
        elif type == "dist_async":
            self.why = "dist_async has no common steps"
        elif not type.startswith("dist") and not wanted:
            self.why = "the process is alone"
        else:
            self._is_observing = True
            under_way.in_forked_children(self)

    # ---------------------------------------------------------------- what there is to send

    def lay_out(self, parameters: List[Trained]) -> None:
        """The Job has these parameters from now on. Nothing is under way."""
        self._remove_hooks()
        self._parameters = parameters
        self._buckets, self._bucket_of, self._of_module = [], [], {}
        self._forget_step()
        self._is_observing, self._is_on = self._is_observing or self._is_on, False
        if self._is_observing:
            self._observed = Observed(parameters)
            me = weakref.ref(self)
            self._hooks = [on_gradient(one.parameter, _see(me, number)) for number, one in enumerate(parameters)]
            if not _has_compiled(self._model):
                self._hooks.append(before_forward(_see_forward(me)))
            self._of_module = {id(module): (module, (), ()) for module in self._model.modules()}

    def _make_buckets(self, order: List[int]) -> None:
        """By the order of the gradients; parameters without one come last."""
        order = order + sorted(set(range(len(self._parameters))) - set(order))
        for one in self._parameters:
            one.begin_anew()
        places = [one for one in self._parameters if len(one.rows) == 1]
        for one, row in zip(places, rows_for(self._training.store, [one.row for one in places])[0]):
            one.add_place(row)
        mine: List[Trained] = []
        for number in order:
            mine.append(self._parameters[number])
            size = sum(one.row.numel() * one.row.element_size() for one in mine)
            if size >= BUCKET_BYTES or number == order[-1]:
                mine.sort(key=lambda one: one is not self._parameters[0])  # libdtkv counts steps by the first key that was pushed
                self._buckets.append(Bucket(self._training, mine, len(self._buckets), self.drop))
                mine = []
        are_plain = all(under_way.can_be_under_way(one.parameter) for one in self._parameters)
        self._does_not_ask = not are_plain or any(isinstance(one, torch.jit.ScriptModule) for one in self._model.modules())
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
        found = self._of_module.get(id(module))
        if found is None:
            return
        if module is self._model and torch.is_grad_enabled():
            self._input = next((tuple(one.shape) for one in inputs if isinstance(one, torch.Tensor)), ())
        if self.is_under_way:
            _, own, below = found
            for bucket in own if module.training else below:
                bucket.take_over()

    def see_gradient(self, number: int) -> None:
        """Backward has a gradient. Errors wait for step(): on GPUs this is autograd's thread."""
        try:
            if not self._training._may_send():
                return
            if not self._has_begun:
                self._has_begun = True
                self._begin_backward()
            if self._observed is not None:
                self._observed.see(number)
            elif self._sent is not None and self._error is None:
                self._take_gradient(number)
        except Exception as error:
            self._error = self._error or error

    def _begin_backward(self) -> None:
        self.settle()
        samples = self._samples()
        if self._observed is not None:
            self._observed.samples = samples
            self._observed.rate = self._training._step_now(0).rate
        said = list({samples[rule] for rule in self._rules})
        is_untouched = not any(one.is_written for one in self._parameters)
        if self._is_on and len(said) == 1 and said[0] is not None and is_untouched and not torch.is_grad_enabled():
            self._sent = self._training._step_now(said[0])
            for bucket in self._buckets:
                bucket.missing = set(bucket.parameters)

    def _samples(self) -> List[Optional[int]]:
        """What each rule says of this step's samples."""
        given = getattr(self._training, "samples", None)
        shape = [*self._input, None, None]
        return [None if given is None else int(given), self._training._samples_of_batch(), shape[0], shape[1]]

    def _take_gradient(self, number: int) -> None:
        bucket, one = self._bucket_of[number], self._parameters[number]
        if bucket.is_sent:
            raise changed_after(one.name)
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
        error = self._error or (changed_after(changed[0]) if changed else None)
        if error is not None:
            self.drop()
            raise error
        if self._observed is not None and not self._observed.is_empty:
            self._judge(self._observed, step, is_rate_given)

    def _judge(self, observed: Observed, step: Step, is_rate_given: bool) -> None:
        self._observed = None
        failed = observed.failed(step.samples, step.rate, is_rate_given)
        if failed is None:
            self.why = ""
            self._is_on, self._is_observing = True, False
            fits = [rule for rule, said in enumerate(observed.samples) if said == step.samples]
            self._rules = fits[:1] if fits[0] != 1 else fits[:2]  # a batch's number is wrong once the program skips one
            self._make_buckets(observed.order)
            return
        kind, self.why = failed
        self._failures[kind] = self._failures.get(kind, 0) + 1
        if self._failures[kind] >= _ENOUGH and not self._wanted:
            self._turn_off(self.why)

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
            said = f"{sent.samples} samples and the learning rate {sent.rate:g}"
            text = f"step() was given {step.samples} samples and the learning rate {step.rate:g}"
            warnings.warn(
                f"{text}, and its gradients left in backward with {said}, which count: set job.samples and job.lr before "
                "backward; later steps are sent by step()",
                RuntimeWarning,
                stacklevel=4,
            )
            self._turn_off(text)
        self.is_under_way = True
        return True

    def end_step(self) -> None:
        """step() has counted the new values as written."""
        self._forget_step()
        if self._is_observing:
            self._observed = Observed(self._parameters)
        if not self.is_under_way:
            self.drop()  # of a step that failed
            return
        if not self._is_on or self._does_not_ask or _has_compiled(self._model):
            self.settle()
            return
        for bucket in self._buckets:
            bucket.mark()

    def check_ended(self) -> None:
        """InvalidUse: backward sent gradients, and no step() followed."""
        if self._sent is not None and any(bucket.is_sent for bucket in self._buckets):
            raise InvalidUse("backward sent gradients, and no step() followed: dt.Job(..., overlap=False)")

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

    def _turn_off(self, why: str) -> None:
        self.why = why
        self._is_on = self._is_observing = False
        self._observed = None
        self._remove_hooks()

    def _forget_step(self) -> None:
        self._has_begun = False
        self._observed = self._sent = self._error = None

    def _remove_hooks(self) -> None:
        for one in self._hooks:
            one.remove()
        self._hooks = []


def _has_compiled(model: Any) -> bool:
    """Whether code was compiled in this process, or will be for a module: a guard on a parameter's class would compile it
    anew in each step."""
    compiled = sys.modules.get("torch._dynamo.utils")
    if compiled is not None and compiled.counters["frames"]:
        return True
    return "torch._dynamo" in sys.modules and any(hasattr(module, "_orig_mod") for module in model.modules())


def _see(overlap: "weakref.ref[Overlap]", number: int) -> Callable[[], None]:
    def see() -> None:
        me = overlap()
        if me is not None:
            me.see_gradient(number)

    return see


def _see_forward(overlap: "weakref.ref[Overlap]") -> Callable[[Any, Any], None]:
    def see(module: Any, inputs: Any) -> None:
        me = overlap()
        if me is not None:
            me.see_forward(module, inputs)

    return see
