"""A model and its optimizer, of which every worker has the whole: its parameters, gradients and state, by name."""

from __future__ import annotations

from typing import Any, Dict, Iterable, List, Optional

import torch

from ..errors import InvalidUse
from . import states
from .early import Early
from .layout import flat, plain, shaped

_TYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16)


class Replica:
    """`name`: its keys begin with it and a dot, where several models have parameters of the same names. `is_whole`: all
    trained parameters of the model have keys, and not only those of the optimizer."""

    def __init__(self, model: Any, optimizer: Any, name: str = "", is_whole: bool = False) -> None:
        if isinstance(model, torch.nn.parallel.DistributedDataParallel):
            model = model.module
        self.model = model
        self.optimizer = optimizer
        self.name = name and name + "."
        self.title = repr(name) if name else "the one without a name"
        self._is_whole = is_whole
        self.parameters: Dict[str, Any] = {}
        """Those whose gradients are exchanged, by key."""
        self.parameters = self.found()
        self.is_mean = False
        """Whether the gradients are the mean already."""
        self.early: Optional[Early] = None
        """Sends them in backward, if they may leave there."""
        self._versions: List[int] = []

    def all(self) -> Dict[str, Any]:
        """The model's parameters, by key."""
        return {self.name + name: p for name, p in plain(self.model.named_parameters()).items()}

    def found(self) -> Dict[str, Any]:
        """The parameters that are to be trained, by key, in the keys' order, which is the same on all workers. InvalidUse:
        the optimizer has one that is not of the model."""
        self.check()
        names = {id(p): name for name, p in self.all().items()}
        trained: Dict[str, Any] = {}
        for g, group in enumerate(self.optimizer.param_groups):
            for i, p in enumerate(group["params"]):
                if id(p) not in names:
                    raise InvalidUse(
                        f"parameter {i} of the optimizer's group {g}, of shape {tuple(p.shape)}, is not of the model: give all "
                        "of them, dt.Optimizer(optimizer, torch.nn.ModuleDict({...}))"
                    )
                trained[names[id(p)]] = p
        if self._is_whole:
            trained = self.all()
        trained = {name: trained[name] for name in sorted(trained) if trained[name].requires_grad}
        for name, p in trained.items():
            if p.dtype not in _TYPES:
                raise TypeError(
                    f"{name}: parameters of type {p.dtype} are not supported; float32, float64, float16 and bfloat16 are"
                )
        return trained

    def check(self) -> None:
        """InvalidUse: a parameter was replaced."""
        present = self.all()
        for name, p in self.parameters.items():
            if present.get(name, p) is not p:
                raise InvalidUse(f"{name} was replaced in the model after the optimizer was made for it")

    def note(self) -> None:
        """An epoch begins with the present weights."""
        self.is_mean = False
        self._versions = [p._version for p in self.parameters.values()]

    def is_changed(self) -> bool:
        """Whether any weight was changed since note()."""
        return [p._version for p in self.parameters.values()] != self._versions

    def rates(self) -> List[float]:
        """Of each parameter group."""
        return [float(group.get("lr", 0.0)) for group in self.optimizer.param_groups]

    # ---------------------------------------------------------------- a step

    def has_gradient(self) -> List[bool]:
        """Of each parameter."""
        return [p.grad is not None for p in self.parameters.values()]

    def gradients(self) -> Dict[str, Any]:
        """As rows for the kvstore, in the order of the parameters' memory; zeros where there is none."""
        rows: Dict[str, Any] = {}
        for name, p in self.parameters.items():
            if p.grad is not None and p.grad.layout != torch.strided:
                raise TypeError(f"{name}: its gradient is sparse; the mean over workers is made of dense gradients")
            gradient = torch.zeros_like(p) if p.grad is None else _as(p.grad, p)
            rows[name] = gradient if gradient.is_contiguous() else flat(gradient)
        return rows

    def take_gradients(self, rows: Dict[str, Any], counts: Iterable[float], are_own: bool) -> None:
        """The mean; parameters without a gradient on any worker keep none. `are_own`: nobody else uses the rows later."""
        for row, count, p in zip(rows.values(), counts, self.parameters.values()):
            if count == 0:
                continue
            if p.grad is None:
                p.grad = shaped(row if are_own else row.clone(), p)
            elif p.grad is not row and p.grad.data_ptr() != row.data_ptr():
                p.grad.copy_(shaped(row, p))

    # ---------------------------------------------------------------- the state

    def state(self) -> Dict[str, Any]:
        """For newcomers and copies."""
        return {"model": states.of_model(self.model), "optimizer": states.of_optimizer(self.optimizer, self.model)}

    def take(self, state: Dict[str, Any]) -> None:
        """The inverse of state()."""
        states.take_model(self.model, state["model"])
        states.take_optimizer(self.optimizer, self.model, state["optimizer"])


def _as(gradient: Any, parameter: Any) -> Any:
    """The gradient with the parameter's strides."""
    if gradient.stride() == parameter.stride() and gradient.dtype == parameter.dtype:
        return gradient
    return shaped(torch.empty_like(flat(parameter)), parameter).copy_(gradient)
