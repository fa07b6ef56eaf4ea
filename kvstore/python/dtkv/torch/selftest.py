"""What `python3 -m dtkv --self-test` runs: whether this PyTorch behaves as dtkv.torch needs. The checks of
the levels train a small model alone, by dtkv.torch and by torch.optim, and compare the weights."""

from __future__ import annotations

import io
import traceback
import warnings
from typing import Any, Callable, List, Tuple

import torch

from . import DDPState, Job, Optimizer, ddp_hook, init_process_group

_torch: Any = torch
_SIZE, _BATCH, _EPOCHS = 96, 32, 2


def _data() -> Tuple[Any, Any]:
    x = _torch.randn(_SIZE, 8, generator=_torch.Generator().manual_seed(1))
    return x, (x[:, 0] > 0).long()


def _model() -> Any:
    _torch.manual_seed(2)
    nn = _torch.nn
    return nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 2))


def _backward(model: Any, ids: Any) -> None:
    x, y = _data()
    _torch.nn.functional.cross_entropy(model(x[ids]), y[ids]).backward()


def _reference(batches: List[List[List[int]]], make: Callable[[Any], Any]) -> Any:
    model = _model()
    optimizer = make(model.parameters())
    for epoch in batches:
        for ids in epoch:
            optimizer.zero_grad()
            _backward(model, ids)
            optimizer.step()
    return model


def _compare(model: Any, batches: List[List[List[int]]], make: Callable[[Any], Any]) -> None:
    expected = dict(_reference(batches, make).named_parameters())
    for name, p in model.named_parameters():
        difference = (p - expected[name]).abs().max().item()
        if not difference < 1e-5:
            raise AssertionError(f"{name} differs by {difference} from torch.optim's")


def _sgd(parameters: Any) -> Any:
    return _torch.optim.SGD(parameters, 0.1, momentum=0.9)


def job() -> None:
    """dt.Job: gradients stay views of the store's memory, also where the program drops them"""
    model, used = _model(), []
    with Job(model, "sgd momentum=0.9", lr=0.1, type="local") as training:
        batches = training.batches(_SIZE, _BATCH)
        for epoch in training.epochs(_EPOCHS):
            used.append(list(batches))
            for ids in used[-1]:
                if epoch == 1:
                    model.zero_grad(set_to_none=True)
                _backward(model, ids)
                training.step(len(ids))
    _compare(model, used, _sgd)


def optimizer() -> None:
    """dt.Optimizer: a scheduler takes it, and the step is torch.optim's"""
    model, used = _model(), []
    ours = Optimizer(_torch.optim.AdamW(model.parameters(), 0.01), model, type="local")
    scheduler = _torch.optim.lr_scheduler.StepLR(ours, step_size=100)
    batches = ours.batches(_SIZE, _BATCH)
    for _ in ours.epochs(_EPOCHS):
        used.append(list(batches))
        for ids in used[-1]:
            ours.zero_grad()
            _backward(model, ids)
            ours.step(samples=len(ids))
        scheduler.step()
    ours.close()
    _compare(model, used, lambda parameters: _torch.optim.AdamW(parameters, 0.01))


def hook() -> None:
    """dt.ddp_hook: DDP calls it in a process group of one, and takes its gradients"""
    init_process_group()
    model, used = _model(), []
    ddp = _torch.nn.parallel.DistributedDataParallel(model)
    sgd = _sgd(ddp.parameters())
    state = DDPState(ddp, sgd, type="local")
    ddp.register_comm_hook(state, ddp_hook)
    batches = state.batches(_SIZE, _BATCH)
    for _ in state.epochs(_EPOCHS):
        used.append(list(batches))
        for ids in used[-1]:
            state.samples = len(ids)
            sgd.zero_grad()
            _backward(ddp, ids)
            sgd.step()
    state.close()
    _compare(model, used, _sgd)


def convolution() -> None:
    """Convolutions are finite whatever was in memory before"""
    layer, x = _torch.nn.Conv2d(20, 50, 5), _torch.randn(64, 20, 12, 12, requires_grad=True)
    for _ in range(20):
        # Blocks of the sizes that a convolution takes, freed at once: malloc gives them to it.
        blocks = [_torch.full((size,), float("nan")) for size in (32000, 51200, 204800, 400000, 737280)]
        del blocks
        y = layer(x)
        gradients = _torch.autograd.grad(y.sum(), (x, layer.weight))
        if not all(one.isfinite().all() for one in (y, *gradients)):
            raise AssertionError(
                "this PyTorch's convolutions compute with memory that nobody wrote, with any program: "
                "train with ONEDNN_MAX_CPU_ISA=SSE41 in the environment, or with another build of PyTorch"
            )


def run() -> bool:
    """Prints a line for each check; whether all passed."""
    print(f"PyTorch {_torch.__version__}")
    is_well = True
    for check in (job, optimizer, hook, convolution):
        said = io.StringIO()
        try:
            with warnings.catch_warnings(record=True) as warned:
                warnings.simplefilter("always")
                check()
            result = "passed" + "".join(f"; warning: {one.message}" for one in warned)
        except Exception:
            traceback.print_exc(file=said)
            result, is_well = "FAILED", False
        print(f"{result}: {check.__doc__}")
        print(said.getvalue(), end="")
    return is_well
