#!/usr/bin/python3
"""Models with every kind of parameter and buffer, trained at every level: all workers have the same bits of every name of
state_dict() where a program reads them, and what one process has that trains with the joined batches.

    zoo.py train CASE FOLDER     a worker. CASE: zoo/PART/LEVEL/WORLD/SAMPLES; PART is "all" or of PARTS; WORLD "1-3-2" is a
                                 job that grows to three when the folder has a file "grows", and loses worker 2 by SIGKILL
                                 when it has "shrinks"
    zoo.py alone FOLDER CASE...  each in a process of its own, without a job; the folder has one for each
    zoo.py check FOLDER...       a line for each folder's case: "CASE ok" or "CASE why it fails"
    zoo.py parts                 the names of the parts
"""

import collections
import json
import os
import pathlib
import signal
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from cases import error_of
from levels import Level, Log, differing, far, forked, optimizer_of, packed, unpacked

EPOCHS = {"1-3-2": 6}  # others: 3
GROWS, KILLED = 1, 3  # epochs of 1-3-2
LOST = 1  # epoch of 2-lost
_random = torch.Generator().manual_seed(1)
X = torch.randn(64, 8, generator=_random)
Y = (X @ torch.randn(8, 2, generator=_random)).argmax(1)


class Part(nn.Module):
    """A linear layer of two outputs that shows the part's effect."""

    def __init__(self):
        super().__init__()
        self.out = nn.Linear(8, 2)

    def forward(self, x, ids):
        return self.out(x)


class MaskInf(Part):
    FILL = -float("inf")

    def __init__(self):
        super().__init__()
        self.register_buffer("mask", torch.full((8, 8), self.FILL).triu(1))

    def forward(self, x, ids):
        scores = x.unsqueeze(1) * x.unsqueeze(2) + self.mask
        return self.out((torch.softmax(scores, -1) @ x.unsqueeze(2)).squeeze(2))


class MaskMin(MaskInf):
    FILL = torch.finfo(torch.float32).min


class Constant(Part):
    def __init__(self):
        super().__init__()
        self.register_buffer("table", (torch.arange(200.0) * 0.37).sin())

    def forward(self, x, ids):
        return self.out(x) * self.table[ids].unsqueeze(1)


class Integer(Part):
    def __init__(self):
        super().__init__()
        self.register_buffer("order", torch.randperm(8))
        self.register_buffer("large", torch.randint(1 << 62, (3,)))
        self.register_buffer("small", torch.randint(99, (3,), dtype=torch.uint8))

    def forward(self, x, ids):
        return self.out(x[:, self.order])


class Bool(Part):
    def __init__(self):
        super().__init__()
        self.register_buffer("kept", torch.rand(8) < 0.5)

    def forward(self, x, ids):
        return self.out(x * self.kept)


class Replaced(Part):
    def __init__(self):
        super().__init__()
        self.register_buffer("center", torch.zeros(2))

    def forward(self, x, ids):
        out = self.out(x)
        with torch.no_grad():
            self.center = self.center * 0.9 + out.mean(0) * 0.1
        return out - self.center


class BatchNorm(Part):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(2)  # of four values a sample: a batch may have one sample

    def forward(self, x, ids):
        return self.out(self.norm(x.view(-1, 2, 4)).view(-1, 8))


class Tied(Part):
    def __init__(self):
        super().__init__()
        self.one, self.other = nn.Linear(8, 8, bias=False), nn.Linear(8, 8, bias=False)
        self.other.weight = self.one.weight

    def forward(self, x, ids):
        return self.out(self.other(torch.tanh(self.one(x))))


class Frozen(Part):
    def __init__(self):
        super().__init__()
        self.fixed = nn.Linear(8, 8).requires_grad_(False)

    def forward(self, x, ids):
        return self.out(torch.tanh(self.fixed(x)))


class Unfrozen(Frozen):
    """Its `fixed` is trained from epoch 1 on."""


class Unused(Part):
    def __init__(self):
        super().__init__()
        self.unused = nn.Linear(8, 2)


class OneWorker(Part):
    """The worker with sample 0 uses it."""

    def forward(self, x, ids):
        return self.out(x) if 0 in ids else x[:, :2] * 0


class ZeroSize(Part):
    def __init__(self):
        super().__init__()
        self.nothing = nn.Parameter(torch.zeros(0))  # DDP of PyTorch 1.13 refuses other shapes without elements

    def forward(self, x, ids):
        return self.out(x) + self.nothing.sum()


class Scalar(Part):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.rand(()))

    def forward(self, x, ids):
        return self.out(x) * self.scale


class ChannelsLast(Part):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(2, 8, 2).to(memory_format=torch.channels_last)

    def forward(self, x, ids):
        return self.out(torch.tanh(self.conv(x.view(-1, 2, 2, 2)).flatten(1)))


PARTS = {one.__name__: one for one in (
    MaskInf, MaskMin, Constant, Integer, Bool, Replaced, BatchNorm, Tied, Frozen, Unfrozen, Unused, OneWorker, ZeroSize,
    Scalar, ChannelsLast)}  # fmt: skip
CHANGING = ("center", "running_mean", "running_var", "num_batches_tracked")
"""Buffers that forward() changes: each worker's own between two places where states are compared."""


class Zoo(nn.Module):
    def __init__(self, part, level):
        super().__init__()
        names = {part} if part != "all" else PARTS.keys() - ({"Unfrozen"} if level == "L3" else {})
        self.base = nn.Linear(8, 2)
        self.parts = nn.ModuleDict({name: PARTS[name]() for name in names})  # another order on each worker

    def forward(self, x, ids):
        return self.base(x) + sum(part(x, ids) for part in self.parts.values()) / len(self.parts)

    def begin(self, epoch, optimizer):
        """A newcomer of a later epoch leaves it to dtkv.torch."""
        if epoch == 1 and "Unfrozen" in self.parts:
            self.parts["Unfrozen"].fixed.requires_grad_(True)
            if optimizer is not None:
                optimizer.add_param_group({"params": list(self.parts["Unfrozen"].fixed.parameters())})


def waits_for(path):
    until = time.monotonic() + 60
    while not path.exists():
        if time.monotonic() > until:
            raise TimeoutError(f"no {path}")
        time.sleep(0.02)  # between two looks, not a wait


def train(case, folder):
    _, part, level, world, count = case.split("/")
    me, count = int(os.environ.get("DT_WORKER_ID", 0)), int(count)
    torch.manual_seed(1000 + me)
    torch.set_num_threads(1)
    log = Log(f"{folder}/worker-{me}.jsonl")
    net = Zoo(part, level)
    one = Level(level, net, has_unused=True)
    training, data = one.training, TensorDataset(X[:count], Y[:count], torch.arange(count))
    # In 1-3-2 a step has as many samples in each world.
    loader = DataLoader(data, batch_sampler=training.batches(data, 2, global_batch=6 if world == "1-3-2" else None))

    def say(place, **facts):
        log.say(place=place, epoch=training.epoch, rank=training.rank, world=training.world_size, worker=me, **facts)

    with training:
        for epoch in training.epochs(EPOCHS.get(world, 3)):
            net.begin(epoch, one.optimizer)
            say("begin", state=packed(net.state_dict()))
            if world == "1-3-2" and me == 0 and epoch == GROWS:
                waits_for(pathlib.Path(folder, "grows"))
            for step, (x, y, ids) in enumerate(loader):
                one.step(F.cross_entropy(one.model(x, ids), y), len(x))
                say("step", step=step, ids=ids.tolist())
                if world == "2-lost" and me == 0 and epoch == LOST and not training.rolled_back:
                    pathlib.Path(folder, "has_stepped").touch()
                    waits_for(pathlib.Path(folder, "goes_on"))
                if world == "1-3-2" and me == 2 and epoch == KILLED:
                    waits_for(pathlib.Path(folder, "shrinks"))
                    os.kill(os.getpid(), signal.SIGKILL)
            say("inner", state=packed(net.state_dict()))
        if not training.left:
            say("final", state=packed(net.state_dict()), is_lead=training.is_lead)


# ---------------------------------------------------------------- what one process has


def alone(part, level, lines):
    """(place, epoch), state of one process that takes the steps that the workers' logs have. Within an epoch it has buffers
    for each worker."""
    net = Zoo(part, level)
    first = next(one for one in lines if one["place"] == "begin" and one["rank"] == 0)
    net.load_state_dict(unpacked(first["state"]))
    optimizer = optimizer_of(level, net)
    steps = collections.defaultdict(list)
    for one in lines:
        if one["place"] == "step":
            steps[one["epoch"], one["step"]].append(one)
    for epoch in range(1 + max(epoch for epoch, _ in steps)):
        net.begin(epoch, optimizer)
        yield ("begin", epoch), packed(net.state_dict())
        members = {one["worker"]: one["rank"] for one in lines if one["place"] == "begin" and one["epoch"] == epoch}
        buffers = {worker: {name: b.clone() for name, b in net.named_buffers()} for worker in members}
        for step in sorted(step for e, step in steps if e == epoch):
            whole = sum(len(one["ids"]) for one in steps[epoch, step])
            optimizer.zero_grad(set_to_none=True)
            for one in sorted(steps[epoch, step], key=lambda one: one["rank"]):
                set_buffers(net, buffers[one["worker"]])
                ids = torch.tensor(one["ids"])
                (F.cross_entropy(net(X[ids], ids), Y[ids], reduction="sum") / whole).backward()
                buffers[one["worker"]] = dict(net.named_buffers())
            for p in net.parameters() if level == "L1" else ():
                if p.requires_grad and p.grad is None:
                    p.grad = torch.zeros_like(p)  # the servers' optimizer makes a step of all parameters
            optimizer.step()
        set_buffers(net, buffers[min(members, key=members.get)])
        ended = [w for w in members if any(o["place"] == "inner" and (o["worker"], o["epoch"]) == (w, epoch) for o in lines)]
        for name, mine in net.named_buffers():
            if name.rsplit(".", 1)[-1] in ("running_mean", "running_var"):
                mine.copy_(sum(buffers[w][name].double() for w in ended) / len(ended))
        yield ("inner", epoch), packed(net.state_dict())
    yield ("final", epoch), packed(net.state_dict())


def set_buffers(net, values):
    for name, value in values.items():
        module, _, leaf = name.rpartition(".")
        net.get_submodule(module)._buffers[leaf] = value.clone()


def shortened(names):
    return ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")


def in_the_end(log):
    """A worker's lines, without those of epochs that began again after the loss of a server."""
    lines = []
    for one in map(json.loads, log.read_text().splitlines()):
        if one["place"] == "begin":
            lines = [earlier for earlier in lines if earlier["epoch"] < one["epoch"]]
        lines.append(one)
    return lines


def check(folder):
    """Why the case fails, or nothing."""
    case = (folder / "case").read_text().strip()
    _, part, level, world, count = case.split("/")
    lines = [line for log in sorted(folder.glob("worker-*.jsonl")) for line in in_the_end(log)]
    status = (folder / "status").read_text().strip()
    if status != "0":
        return f"exit status {status}: {error_of((folder / 'out').read_text())}"
    lines.sort(key=lambda one: (one["epoch"], one["rank"]))
    worlds = [one["world"] for one in lines if one["place"] == "begin" and one["rank"] == 0]
    wanted = [1, 1, 3, 3, 2, 2] if world == "1-3-2" else [int(world[0])] * 3
    if worlds != wanted:
        return f"the worlds were {worlds}"
    states = collections.defaultdict(list)
    for one in lines:
        if "state" in one:
            states[one["place"], one["epoch"]].append(one["state"])
    if len(states["final", len(wanted) - 1]) != wanted[-1]:
        return "not every worker came to the end"
    for (place, epoch), found in states.items():
        names = None
        if place == "begin" and level == "async":
            names = set(dict(Zoo(part, level).named_buffers()))  # another worker may have made its first step
        for other in found[1:]:
            if differing(found[0], other, names):
                return f"workers differ, {place} of epoch {epoch}: {shortened(differing(found[0], other, names))}"
    first = states["begin", 0][0]
    constant = {name for name, _ in Zoo(part, level).named_buffers() if name.rsplit(".", 1)[-1] not in CHANGING}
    for (place, epoch), found in states.items():
        if differing(first, found[0], constant):
            return f"not as it was, {place} of epoch {epoch}: {shortened(differing(first, found[0], constant))}"
    for epoch in range(len(wanted)):
        used = sorted(i for one in lines if one["place"] == "step" and one["epoch"] == epoch for i in one["ids"])
        if used != list(range(int(count))) and (world, epoch) != ("1-3-2", KILLED):
            return f"epoch {epoch} has the samples {used}"
    if [one["is_lead"] for one in lines if one["place"] == "final"].count(True) != 1:
        return "not one lead after epochs()"
    for at, state in alone(part, level, lines) if level != "async" else ():
        found = far(states[at][-1], state)
        if found:
            return f"not as one process, {at[0]} of epoch {at[1]}: {shortened(found)}"
    return None


def main():
    if sys.argv[1] == "parts":
        print(*PARTS)
    elif sys.argv[1] == "train":
        train(*sys.argv[2:])
    elif sys.argv[1] == "alone":
        for case in sys.argv[3:]:
            forked(sys.argv[2] + "/" + case.replace("/", "."), train, case)
    else:
        torch.set_num_threads(1)
        for folder in map(pathlib.Path, sys.argv[2:]):
            print((folder / "case").read_text().strip(), check(folder) or "ok")


if __name__ == "__main__":
    main()
