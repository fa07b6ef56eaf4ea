"""The names of dtkv.torch that loops.py uses, made of torch alone: one process, whose batches are the joined ones of
cases.WORLD workers."""

import torch

import dtkv
from cases import WORLD
from dtkv.torch.sampler import Batches, Now


class _Training:
    is_lead, epoch, samplers, overlap = True, 0, (), "yes"

    def epochs(self, count):
        for self.epoch in range(count):
            yield self.epoch
            for one in self.samplers:
                one.advance()

    def batches(self, data, batch_size, **options):
        def part(rank):
            return Batches(data, batch_size, lambda: Now(self.epoch, rank, WORLD), lambda: False, **options)

        parts = [part(rank) for rank in range(WORLD)]
        self.samplers = (*self.samplers, *parts)
        return _Joined(parts)

    def register(self, **objects):
        pass

    def total(self, **numbers):
        return numbers

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass


class _Joined:
    def __init__(self, parts):
        self.parts = parts

    def __iter__(self):
        return (sum(parts, []) for parts in zip(*self.parts))


class _Optimizer(_Training):
    def step(self, closure=None, *, samples=1):
        gradients = [p.grad for group in self.param_groups for p in group["params"] if p.grad is not None]
        if not all(g.isfinite().all() for g in gradients):
            raise dtkv.Nonfinite("a gradient is not finite")
        return super().step(closure)


def Optimizer(optimizer, model, name=None, overlap=None):  # noqa: N802
    optimizer.__class__ = type("Optimizer", (_Optimizer, optimizer.__class__), {})
    return optimizer


class Job(_Training):
    def __init__(self, model, optimizer, lr, overlap=None):
        options = {name: float(value) for name, value in (word.split("=") for word in optimizer.split()[1:])}
        self.optimizer = Optimizer(torch.optim.SGD(model.parameters(), lr, **options), model)

    def step(self, samples):
        try:
            self.optimizer.step()
        finally:
            self.optimizer.zero_grad(set_to_none=True)


class DDPState(_Training):
    def __init__(self, model, optimizer):
        pass


class DistributedDataParallel(torch.nn.Module):
    def __init__(self, model):
        super().__init__()
        self.forward = model.forward

    def register_comm_hook(self, state, hook):
        pass


def init_process_group():
    pass


def ddp_hook(state, bucket):
    pass


def all_reduce(tensor, op):
    return tensor
