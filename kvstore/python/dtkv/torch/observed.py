"""One step of dt.Job as a program makes it: whether its gradients could have left in backward."""

from __future__ import annotations

from typing import Any, List, Optional, Sequence, Tuple

import torch

from .layout import flat
from .parameter import Trained

MODE, CHANGED, RATE, SAMPLES = "gradients", "changed", "rate", "samples"
"""What a step can fail: see Observed.failed()."""

Failed = Tuple[str, str]
"""One of these, and a sentence."""


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
    return row.view(torch.int64 if row.element_size() == 8 else torch.int32).sum(dtype=torch.int64)


class Observed:
    """`parameters`: those of the step. `samples`: for each rule what it says of the step's samples, if it can."""

    def __init__(self, parameters: Sequence[Trained]) -> None:
        self._parameters = parameters
        self._found: List[Optional[_Gradient]] = [None] * len(parameters)
        self._failed: Optional[Failed] = None
        self.order: List[int] = []
        """Numbers of the parameters in the order in which their gradients came."""
        self.samples: Sequence[Optional[int]] = ()
        self.rate = 0.0
        """As backward began."""

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

    def failed(self, samples: int, rate: float, is_rate_given: bool) -> Optional[Failed]:
        """Before step() brings the gradients to their places. Why they could not have left in backward, or None. `samples`,
        `rate`: the step's; `is_rate_given`: to step() itself."""
        if self._failed is not None:
            return self._failed
        for one, gradient in zip(self._parameters, self._found):
            if gradient is not None and not gradient.is_in(one.parameter):
                return CHANGED, f"{one.name}'s gradient was changed between backward and step()"
            if gradient is None and one.parameter.grad is not one.gradient and one.parameter.grad is not None:
                return CHANGED, f"{one.name}'s gradient was set by the program"
        if is_rate_given or rate != self.rate:
            return RATE, "the learning rate is known in step() alone: set job.lr before backward"
        if samples not in self.samples:
            return SAMPLES, f"nothing says before backward that the step has {samples} samples: set job.samples"
        return None

    @property
    def is_empty(self) -> bool:
        """Whether no gradient came."""
        return not self.order and self._failed is None
