#!/usr/bin/python3
"""Optimizers of torch.optim around which dt.Optimizer is, beside the same in one process with the joined batches.

    optimizers.py steps|closures --save FILE      a worker of two
    optimizers.py steps|closures --check FILE...  trains alone by torch only, and compares
    optimizers.py rates|shapes                    a worker of two that disagrees with the other, and says how it was told
"""

import argparse
import os

import torch
import torch.nn.functional as F

import dtkv
import dtkv.torch as dt
from dtkv.torch.sampler import Batches, Now

COUNT, WHOLE, EPOCHS = 101, 25, 2
X = torch.randn(COUNT, 6, generator=torch.Generator().manual_seed(1))
Y = (X @ torch.arange(6.0)).sin()
OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, 0.05, momentum=0.9, nesterov=True, weight_decay=0.01),
    "adam": lambda p: torch.optim.Adam(p, 0.01),
    "adamw": lambda p: torch.optim.AdamW(p, 0.01, amsgrad=True),
    "adamax": lambda p: torch.optim.Adamax(p, 0.01),
    "nadam": lambda p: torch.optim.NAdam(p, 0.01),
    "radam": lambda p: torch.optim.RAdam(p, 0.01),
    "adagrad": lambda p: torch.optim.Adagrad(p, 0.01),
    "adadelta": lambda p: torch.optim.Adadelta(p, 0.5),
    "rmsprop": lambda p: torch.optim.RMSprop(p, 0.01, centered=True, momentum=0.5),
    "rprop": lambda p: torch.optim.Rprop(p, 0.01),
    "asgd": lambda p: torch.optim.ASGD(p, 0.01),
}


class Several(torch.optim.Optimizer):
    """Each model's optimizer."""

    def __init__(self, models):
        self.parts = [make(models[name].parameters()) for name, make in OPTIMIZERS.items()]
        self.defaults = {}

    @property
    def param_groups(self):
        return [group for part in self.parts for group in part.param_groups]

    def zero_grad(self, set_to_none=False):
        for part in self.parts:
            part.zero_grad(set_to_none)

    def step(self):
        for part in self.parts:
            part.step()

    def state_dict(self):
        return {"parts": [part.state_dict() for part in self.parts]}

    def load_state_dict(self, state):
        for part, one in zip(self.parts, state["parts"]):
            part.load_state_dict(one)

    def add_param_group(self, group):
        self.parts[0].add_param_group(group)


def model(seed):
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))


def joined(epoch, world=2):
    """What the workers' batches are together."""
    parts = []
    for rank in range(world):
        now = Now(epoch, rank, world)
        parts.append(list(Batches(COUNT, 1, lambda: now, bool, global_batch=WHOLE)))
    return [sum(step, []) for step in zip(*parts)]


def steps(optimizer_of, batches, rank):
    """All optimizers; the learning rates follow a schedule, and a layer takes part after the first epoch."""
    models = torch.nn.ModuleDict({name: model(7 + rank) for name in OPTIMIZERS})
    late = torch.nn.Linear(1, 1)
    models.update({"late": late})
    if rank == 0:
        torch.nn.init.constant_(late.weight, 0.5)
        torch.nn.init.constant_(late.bias, 0.25)
    optimizer = optimizer_of(Several(models), models)
    rates = [group["lr"] for group in optimizer.param_groups]
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, rates, total_steps=100, cycle_momentum=False)
    for epoch in optimizer.epochs(EPOCHS) if hasattr(optimizer, "epochs") else range(EPOCHS):
        if epoch == 1:
            rates = {"lr": 0.01, "initial_lr": 0.01, "max_lr": 0.02, "min_lr": 0.001}
            optimizer.add_param_group({"params": late.parameters(), **rates})
        for ids in batches(optimizer, epoch):
            optimizer.zero_grad()
            for name in OPTIMIZERS:
                out = models[name](X[ids])
                if epoch == 1 and name == "adam" and 0 in ids:  # on one worker of two, in one step
                    is_first = torch.tensor(ids).unsqueeze(1) == 0
                    out = torch.where(is_first, late(out), out)
                F.mse_loss(out.squeeze(1), Y[ids]).backward()
            with_samples = {"samples": len(ids)} if hasattr(optimizer, "epochs") else {}
            optimizer.step(**with_samples)
            schedule.step()
        if hasattr(optimizer, "total"):
            assert optimizer.total(seen=1) == {"seen": optimizer.world_size}
    return models.state_dict()


def closures(optimizer_of, batches, rank):
    """LBFGS with a line search; worker 1 has one batch less."""
    net = model(7 + rank).double()
    optimizer = optimizer_of(torch.optim.LBFGS(net.parameters(), max_iter=4, line_search_fn="strong_wolfe"), net)
    for epoch in optimizer.epochs(EPOCHS) if hasattr(optimizer, "epochs") else range(EPOCHS):
        for ids in batches(optimizer, epoch):

            def closure():
                optimizer.zero_grad()
                loss = F.mse_loss(net(X[ids].double()).squeeze(1), Y[ids].double())
                loss.backward()
                return loss

            with_samples = {"samples": len(ids)} if hasattr(optimizer, "epochs") else {}
            optimizer.step(closure, **with_samples)
    return net.state_dict()


def rates(rank):
    net = model(7)
    optimizer = dt.Optimizer(torch.optim.SGD(net.parameters(), 0.1 * (rank + 1)), net)
    for _ in optimizer.epochs(1):
        assert optimizer.param_groups[0]["lr"] == 0.1, "not the lead's"
        optimizer.param_groups[0]["lr"] = 0.1 * (rank + 1)
        F.mse_loss(net(X).squeeze(1), Y).backward()
        try:
            optimizer.step()
        except dtkv.Mismatch as error:
            raise RuntimeError("told of the rates") from error


def shapes(rank):
    net = torch.nn.Linear(6, 1 + rank)
    optimizer = dt.Optimizer(torch.optim.SGD(net.parameters(), 0.1), net)
    next(optimizer.epochs(1))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=("steps", "closures", "rates", "shapes"))
    parser.add_argument("--save")
    parser.add_argument("--check", nargs="+")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.what in ("rates", "shapes"):
        return globals()[options.what](int(os.environ["DT_RANK"]))
    is_uneven = options.what == "closures"
    train = globals()[options.what]
    if options.save:

        def mine(optimizer, epoch):
            rank = optimizer.rank
            found = list(optimizer.batches(COUNT, 1, global_batch=WHOLE))
            return found[:-1] if is_uneven and rank == 1 else found

        rank = int(os.environ["DT_RANK"])
        state = train(dt.Optimizer, mine, rank)
        torch.save(state, options.save.replace("%r", str(rank)))
        return

    def both(optimizer, epoch):
        found = joined(epoch)
        if is_uneven:
            found[-1] = found[-1][: len(found[-1]) // 2]
        return found

    alone = train(lambda optimizer, net: optimizer, both, 0)
    for path in options.check:
        state = torch.load(path)
        worst = max((alone[name] - state[name]).abs().max().item() for name in alone)
        print(f"{path}: at most {worst:.2g} from one worker's")
        for name in alone:
            difference = (alone[name] - state[name]).abs().max().item()
            if not difference <= 1e-6:
                raise SystemExit(f"{path}: {name} differs by {difference}")
    first = torch.load(options.check[0])
    for path in options.check[1:]:
        if any(not torch.equal(first[name], value) for name, value in torch.load(path).items()):
            raise SystemExit("the workers differ")
    moved = train(lambda optimizer, net: optimizer, lambda optimizer, epoch: [], 0)
    for name in alone:
        if torch.equal(alone[name], moved[name]):
            raise SystemExit(f"{name} did not move")


if __name__ == "__main__":
    main()
