"""Gradients that leave in backward, before step(): which steps that fits, and what says a step's samples then.

A step is made as a whole by step() until one of them (Observed) shows that no gradient changes behind backward, and which rule
says its samples before backward. From then on buckets of parameters leave as soon as backward has their gradients, the last
layers' first. What is sent, and in which order it is added up, is the same, so all bits are.
"""

from __future__ import annotations

import os
import warnings
from typing import Any, Dict, List, NamedTuple, Optional, Sequence

import numpy
import torch

from ..errors import InvalidUse
from .hooks import Hook, before_forward, has_compiled, on_gradient, weakly
from .observed import Observed, Watched

BUCKET_BYTES = 1 << 20
"""A bucket's parameters have at least so many bytes, but for the last one's."""
_BATCH = 1
"""The number of the rule that asks the sampler."""
_ENOUGH = 3
"""Steps that failed for the same reason, after which no step is observed any more: that costs a pass over all gradients."""


class Step(NamedTuple):
    """What a push says of its step."""

    samples: int
    number: int
    rate: float

    def same_as(self, other: Step) -> bool:
        """Whether the servers take them for the same."""
        return self[:2] == other[:2] and numpy.float32(self.rate) == numpy.float32(other.rate)


def divided(rows: Sequence[Any], order: Sequence[int]) -> List[List[int]]:
    """The numbers of the rows in this order, as buckets."""
    buckets: List[List[int]] = []
    size = BUCKET_BYTES
    for number in order:
        if size >= BUCKET_BYTES:
            buckets.append([])
            size = 0
        buckets[-1].append(number)
        size += rows[number].numel() * rows[number].element_size()
    return buckets


class Ahead:
    """Of one model of a Job's or of Replicas. `wanted`: None: where the steps fit; True: looks on for steps that fit, also in a process alone, which has
    nothing to hide; False: never. `type`: the store's."""

    called = ""
    """What has step(), as documents call it."""
    how_to_do_without = ""
    """What the program is told to write."""

    def __init__(self, training: Any, model: Any, wanted: Optional[bool], type: str) -> None:  # noqa: A002
        self.why = "no step was observed yet"
        """Why gradients leave in step() alone; empty: they leave in backward."""
        self._training = training
        self._model = model
        self._wanted = wanted
        self._is_observing = False
        self._is_on = False
        self._watched: Sequence[Watched] = []
        self._rules: List[int] = []
        """Numbers of those that said the observed step's samples: where they differ later, step() alone sends. What the program
        says (samples) stands alone."""
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
        if wanted is False or os.environ.get("DT_OVERLAP") == "0":
            self.why = "overlap=False" if wanted is False else "DT_OVERLAP=0"
        elif type == "dist_async":
            self.why = "dist_async has no common steps"
        elif not type.startswith("dist") and not wanted:
            self.why = "the process is alone"
        else:
            self._is_observing = True

    def __str__(self) -> str:
        return f"no ({self.why})" if self.why else "yes"

    # ---------------------------------------------------------------- what a kind of training does

    def _make_buckets(self, order: List[int]) -> None:
        """A step fits. `order`: of all parameters, by their numbers, as their gradients came; those without one are the last."""
        raise NotImplementedError

    def _may_begin(self) -> bool:
        """Before the first gradient of a backward. False: it is no backward that sends."""
        return True

    def _begin_sending(self) -> None:
        """Gradients of this backward leave from now on."""
        raise NotImplementedError

    def _take_gradient(self, number: int) -> None:
        """Backward has a gradient, and may send its bucket."""
        raise NotImplementedError

    def _samples(self) -> List[Optional[int]]:
        """What each rule says of this step's samples."""
        given = getattr(self._training, "samples", None)
        shape = [*self._input, None, None]
        return [None if given is None else int(given), self._training._samples_of_batch(), shape[0], shape[1]]

    # ---------------------------------------------------------------- backward

    def _watch(self, parameters: Sequence[Watched]) -> None:
        """These are trained from now on."""
        self._remove_hooks()
        self._watched = parameters
        self._is_observing, self._is_on = self._is_observing or self._is_on, False
        self._forget_step()
        if self._is_observing:
            self._hooks = [on_gradient(one.parameter, weakly(self.see_gradient, number)) for number, one in enumerate(parameters)]
            if not has_compiled(self._model):
                self._hooks.append(before_forward(weakly(self.see_forward)))
        self._tell()

    def see_forward(self, module: Any, inputs: Any) -> None:
        """Before a module's forward()."""
        if module is self._model and torch.is_grad_enabled():
            self._input = next((tuple(one.shape) for one in inputs if isinstance(one, torch.Tensor)), ())

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
        is_well = self._may_begin()
        samples = self._samples()
        if self._observed is not None:
            self._observed.samples, self._observed.step = samples, self._training._step_now(0)
        said = list({samples[rule] for rule in self._rules})
        if self._is_on and is_well and len(said) == 1 and said[0] is not None and not torch.is_grad_enabled():
            self._sent = self._training._step_now(said[0])
            self._begin_sending()

    # ---------------------------------------------------------------- step()

    def _judge(self, observed: Observed, step: Step, is_rate_given: bool) -> None:
        """Whether later steps like the observed one may leave in backward."""
        self._observed = None
        failed = observed.failed(step, is_rate_given, self.called)
        if failed is None:
            self.why = ""
            self._is_on, self._is_observing = True, False
            fits = [rule for rule, said in enumerate(observed.samples) if said == step.samples]
            self._rules = fits[:1] if fits[0] != _BATCH else fits[:2]  # a batch's number is wrong once the program skips one
            self._make_buckets(observed.order + sorted(set(range(len(self._watched))) - set(observed.order)))
            self._tell()
            return
        kind, self.why = failed
        self._failures[kind] = self._failures.get(kind, 0) + 1
        if self._failures[kind] >= _ENOUGH and not self._wanted:
            self._turn_off(self.why)
        self._tell()

    def _left_otherwise(self, given: str, sent: str, names: str, depth: int) -> None:
        """step() was given other numbers than those with which gradients left: said once, to the line that called step(), which is
        `depth` calls above; later steps do not leave in backward."""
        text = f"step() was given {given}"
        warnings.warn(
            f"{text}, and its gradients left in backward with {sent}, which count: set {names} before backward; later steps are "
            "sent by step()",
            RuntimeWarning,
            stacklevel=depth + 1,
        )
        self._turn_off(text)
        self._tell()

    def _tell(self) -> None:
        """`dtctl status` shows it."""
        self._training.store.report(overlap=str(self))

    def changed_after(self, name: str) -> InvalidUse:
        """The error of a gradient that changed when it had left."""
        return InvalidUse(f"{name}'s gradient changed after backward sent it: {self.how_to_do_without}")

    def _turn_off(self, why: str) -> None:
        self.why = why
        self._is_on = self._is_observing = False
        self._observed = None
        self._remove_hooks()

    def _forget_step(self) -> None:
        """The next step begins."""
        self._has_begun = False
        self._sent = self._error = None
        self._observed = Observed(self._watched) if self._is_observing else None

    def _remove_hooks(self) -> None:
        for one in self._hooks:
            one.remove()
        self._hooks = []
