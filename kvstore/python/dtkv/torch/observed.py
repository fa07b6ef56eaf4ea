"""One step as a program makes it: whether its gradients could have left in backward."""

from __future__ import annotations

from typing import Any, List, Optional, Protocol, Sequence, Tuple

import torch

from .layout import flat

MODE, CHANGED, RATE, SAMPLES = "gradients", "changed", "rate", "samples"
"""What a step can fail: see Observed.failed()."""

Failed = Tuple[str, str]
"""One of these, and a sentence."""


class Watched(Protocol):
    """A parameter whose gradients are observed."""

    name: str
    parameter: Any

    @property
    def gradient(self) -> Any:
        """What `.grad` is where neither backward nor the program has set another."""


class _Gradient:
    """A gradient as backward left it."""

    def __init__(self, tensor: Any) -> None:
        self.tensor = tensor
        self.version = tensor._version
        self.bits = _bits(tensor)

    def is_in(self, parameter: Any) -> bool:
        """Whether the parameter has it still, unchanged. Numpy and `.data` change bits and no version, a factor of 1
        changes the version and no bits."""
        found = parameter.grad
        return bool(found is self.tensor and found._version == self.version and torch.equal(_bits(found), self.bits))


def _bits(tensor: Any) -> Any:
    """A sum of the elements' bits: a number of 64 bits, where the tensor is."""
    row = flat(tensor)
    return row.view({2: torch.int16, 4: torch.int32, 8: torch.int64}[row.element_size()]).sum(dtype=torch.int64)


class Observed:
    """`parameters`: those of the step."""

    def __init__(self, parameters: Sequence[Watched]) -> None:
        self._parameters = parameters
        self._found: List[Optional[_Gradient]] = [None] * len(parameters)
        self._failed: Optional[Failed] = None
        self.order: List[int] = []
        """Numbers of the parameters in the order in which their gradients came."""
        self.samples: Sequence[Optional[int]] = ()
        """For each rule what it says of the step's samples, if it can."""
        self.step: Any = None
        """The step as backward began."""

    def see(self, number: int) -> None:
        """A gradient came, by backward."""
        one = self._parameters[number]
        found = one.parameter.grad
        if torch.is_grad_enabled():
            self._failed = self._failed or (MODE, "backward(create_graph=True)")
        elif self._found[number] is not None:
            self._failed = self._failed or (MODE, f"{one.name} had two gradients in a step")
        elif found is None or found.layout != torch.strided:
            self._failed = self._failed or (MODE, f"{one.name} has a sparse gradient")
        else:
            self._found[number] = _Gradient(found)
            self.order.append(number)

    def failed(self, step: Any, is_rate_given: bool, called: str) -> Optional[Failed]:
        """Before step() brings the gradients to their places. Why they could not have left in backward, or None.
        `is_rate_given`: to step() itself. `called`: as documents call what has step()."""
        if self._failed is not None:
            return self._failed
        for one, gradient in zip(self._parameters, self._found):
            if gradient is not None and not gradient.is_in(one.parameter):
                return CHANGED, f"{one.name}'s gradient was changed between backward and step()"
            if gradient is None and one.parameter.grad is not one.gradient and one.parameter.grad is not None:
                return CHANGED, f"{one.name}'s gradient was set by the program"
        if self.step.number != step.number:
            return MODE, "another step is made between backward and step()"
        if is_rate_given or step.rate != self.step.rate:
            return RATE, f"the learning rate is known in step() alone: set {called}.lr before backward"
        if step.samples not in self.samples:
            return SAMPLES, f"nothing says before backward that the step has {step.samples} samples: set {called}.samples"
        return None

    @property
    def is_empty(self) -> bool:
        """Whether no gradient came."""
        return not self.order and self._failed is None
