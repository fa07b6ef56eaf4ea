"""The whole state of a model and its optimizer, by the parameters' names: positions differ between workers whose programs
make modules from a set, and after a program has added parameters."""

from __future__ import annotations

from typing import Any, Dict, List

import torch

from ..errors import InvalidUse
from .layout import plain, plain_names


def of(one: Any) -> Any:
    """An object's state without functions, which each worker has of its own: OneCycleLR's state has them."""
    state = one.state_dict()
    if not isinstance(state, dict):
        return state
    return {name: value for name, value in state.items() if not callable(value)}


def of_model(model: Any) -> Dict[str, Any]:
    """Parameters and buffers, those too that its state_dict() leaves out, and which parameters are trained."""
    return {
        "values": {**plain(model.state_dict().items()), **_further(model)},
        "trained": {name: p.requires_grad for name, p in plain(model.named_parameters()).items()},
    }


def _further(model: Any) -> Dict[str, Any]:
    """Buffers that state_dict() leaves out."""
    known = model.state_dict()
    return plain((name, one) for name, one in model.named_buffers() if name not in known)


def take_model(model: Any, state: Dict[str, Any]) -> None:
    """The inverse of of_model(). RuntimeError of load_state_dict(): names what this worker's model lacks."""
    full = {plain_name: name for name, plain_name in plain_names(model.state_dict()).items()}
    further = _further(model)
    values = {full.get(name, name): value for name, value in state["values"].items() if name not in further}
    model.load_state_dict(values)
    with torch.no_grad():
        for name, one in further.items():
            one.copy_(state["values"][name])
    for name, p in plain(model.named_parameters()).items():
        p.requires_grad_(state["trained"][name])


def of_optimizer(optimizer: Any, model: Any) -> Dict[str, Any]:
    """Its state_dict(), with names for the parameters' numbers if it has such as torch.optim's have."""
    state: Dict[str, Any] = optimizer.state_dict()
    if "param_groups" not in state:
        return state
    names = {id(p): name for name, p in plain(model.named_parameters()).items()}
    name_of: Dict[Any, str] = {}
    groups = []
    for group, saved in zip(optimizer.param_groups, state["param_groups"]):
        of_group = [names[id(p)] for p in group["params"]]
        name_of.update(zip(saved["params"], of_group))
        groups.append({**saved, "params": of_group})
    return {**state, "param_groups": groups, "state": {name_of.get(k, k): v for k, v in state["state"].items()}}


def take_optimizer(optimizer: Any, model: Any, state: Dict[str, Any]) -> None:
    """The inverse of of_optimizer(): the groups get the parameters that they have there. InvalidUse: names one that this
    worker's model lacks."""
    if "param_groups" not in state:
        optimizer.load_state_dict(state)
        return
    present = plain(model.named_parameters())
    groups: List[Any] = []
    number_of: Dict[str, int] = {}
    for g, saved in enumerate(state["param_groups"]):
        for name in saved["params"]:
            if name not in present:
                raise InvalidUse(f"the lead's optimizer has {name} in its group {g}, this worker's model has no such parameter")
            number_of[name] = len(number_of)
        params = [present[name] for name in saved["params"]]
        if g < len(optimizer.param_groups):
            optimizer.param_groups[g]["params"][:] = params
        else:
            optimizer.add_param_group({**saved, "params": params})
        groups.append({**saved, "params": [number_of[name] for name in saved["params"]]})
    del optimizer.param_groups[len(groups) :]
    numbered = {number_of.get(key, key): value for key, value in state["state"].items()}
    optimizer.load_state_dict({**state, "param_groups": groups, "state": numbered})
