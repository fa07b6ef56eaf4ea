#!/usr/bin/python3
"""What a program of two workers has in the end, or is told where dtkv.torch does not do what the program says. cases.py
has the command line."""

import time
from functools import partial

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

import dtkv.torch as dt
from cases import add, case, main, worker
from dtkv.torch import elastic
from levels import Level

X = torch.randn(130, 8, generator=torch.Generator().manual_seed(1))
DATA = TensorDataset(X, (X.sum(1) > 0).long())


def net(*between):
    return nn.Sequential(nn.Linear(8, 8), *between, nn.ReLU(), nn.Linear(8, 2))


def goes_through(one, loader, epochs=2, after=lambda: None):
    for _ in one.training.epochs(epochs):
        for x, y in loader:
            one.step(F.cross_entropy(one.model(x), y), len(x))
            after()


# ---------------------------------------------------------------- the end of an epoch is everybody's


def saves(level, processes, parts=1):
    """The lead's file of after the inner loop is the final model, with a last batch that is slow on the other worker."""
    model = net()
    one = Level(level, model)
    training = one.training
    loader = DataLoader(DATA, batch_sampler=training.batches(129, 32), num_workers=processes)
    for _ in training.epochs(2):
        for step, (x, y) in enumerate(loader):
            if step + 1 == len(loader) and training.rank == 1:
                time.sleep(0.5)  # how long the last step lasts, not a wait
            for some in range(parts - 1):
                with training.accumulate():
                    (F.cross_entropy(model(x[some::parts]), y[some::parts]) / parts).backward()
            one.step(F.cross_entropy(one.model(x[parts - 1 :: parts]), y[parts - 1 :: parts]) / parts, len(x))
        if training.is_lead:
            torch.save(model.state_dict(), "inner.pt")
    saved = torch.load("inner.pt")
    assert training.left or all(torch.equal(value, saved[name]) for name, value in model.state_dict().items())
    return model.state_dict()


for name, arguments in {
    "l1": ("L1", 2),
    "l1_accumulated": ("L1", 0, 2),
    "async": ("async", 0),
    "async_loader": ("async", 2),
    "async_loader_accumulated": ("async", 2, 2),
    "l2": ("L2", 2),
    "l3": ("L3", 2),
}.items():
    add(f"saves_{name}", partial(saves, *arguments))


@case()
def own_loader_of_uneven_length():
    """After total() all have the same weights."""
    model = net()
    one = Level("L1", model)
    dt.own_data()
    for _ in one.training.epochs(2):
        for x, y in DataLoader(DATA, batch_size=(20, 40)[one.training.rank]):
            one.step(F.cross_entropy(model(x), y), len(x))
        one.training.total(seen=1)
        at_total = {f"total.{name}": value.clone() for name, value in model.state_dict().items()}
    return {**at_total, **model.state_dict()}


# ---------------------------------------------------------------- workers are equal, or are told


def flipped(level):
    elastic.COMPARE_EVERY_S = 0.0
    model = net()
    one = Level(level, model)
    loader = DataLoader(DATA, batch_sampler=one.training.batches(DATA, 16))
    for epoch in one.training.epochs(5):
        if epoch == 1 and one.training.rank == 1:
            model[2].bias.data[0] += 0.25
        for x, y in loader:
            one.step(F.cross_entropy(one.model(x), y), len(x))


for level in ("L2", "L3"):
    add(f"flipped_{level}", partial(flipped, level), r"Mismatch: .*2.bias differs: worker 1 here, worker 0 \(the lead\)")


@case()
def wrapped_on_one_worker():
    """torch.compile's names have _orig_mod. in them."""
    model = net()
    seen = model
    if worker() == 1:
        seen = nn.Module()
        seen._orig_mod = model
    optimizer = dt.Optimizer(torch.optim.SGD(model.parameters(), 0.1, momentum=0.9), seen)
    for _ in optimizer.epochs(2):
        for x, y in DataLoader(DATA, batch_sampler=optimizer.batches(DATA, 16)):
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step(samples=len(x))
    return model.state_dict()


@case(r"InvalidUse: .*dt.Optimizer\(optimizer, torch.nn.ModuleDict")
def parameters_of_no_model():
    model, criterion = net(), nn.Linear(2, 2)
    dt.Optimizer(torch.optim.SGD([*model.parameters(), *criterion.parameters()], 0.1), model)


@case(r"InvalidUse: .*one dt.Job a process: use dt.Optimizer for each")
def two_jobs():
    jobs = [dt.Job(net(), "sgd", lr=0.1) for _ in range(2)]
    assert jobs


# ---------------------------------------------------------------- batches and plans


@case()
def one_sample():
    """130 samples in batches of 64 have two left: BatchNorm has two of each worker, or none."""
    model = net(nn.BatchNorm1d(8))
    one = Level("L1", model)
    goes_through(one, DataLoader(DATA, batch_sampler=one.training.batches(DATA, 64, least=2)))
    return model.state_dict()


@case()
def skips_a_batch():
    """One worker makes fewer steps than it has batches; the others wait for it no longer than to the epoch's end."""
    model = net()
    job = dt.Job(model, "sgd momentum=0.9", lr=0.1)
    for _ in job.epochs(2):
        for i, (x, y) in enumerate(DataLoader(DATA, batch_sampler=job.batches(DATA, 10))):
            if i == 1 and worker() == 1:
                continue
            F.cross_entropy(model(x), y).backward()
            job.step(len(x))
        job.total(seen=1)
    return model.state_dict()


class Endless(IterableDataset):
    def __iter__(self):
        for i in range(worker() * 3, 10):
            yield DATA[i]


@case()
def taken():
    model = net()
    one = Level("L2", model)
    dt.own_data()
    goes_through(one, dt.take(DataLoader(Endless(), batch_size=2), 4))
    return model.state_dict()


def uneven_with_a_schedule(level):
    model = net()
    one = Level(level, model)
    dt.own_data()
    schedule = torch.optim.lr_scheduler.StepLR(one.optimizer, 1, gamma=0.9)
    one.training.register(schedule=schedule)
    loader = DataLoader(torch.utils.data.Subset(DATA, range((100, 70)[one.training.rank])), batch_size=10)
    goes_through(one, loader, after=schedule.step)


for level in ("L2", "L3"):
    says = r"Mismatch: .*batches ended at step 7, others go on.*: schedule by epoch, or make .* even \(batches, dt.take\)"
    add(f"uneven_with_a_schedule_{level}", partial(uneven_with_a_schedule, level), says)


def planned(count=100, batch=10, model=None, **options):
    one = Level("L1", model or net())
    goes_through(one, DataLoader(DATA, batch_sampler=one.training.batches(count, batch, **options)))


mean = "the mean over the workers is"
add("unlike_lengths", lambda: planned(100 - 10 * worker()), f"Mismatch: .*data has (90|100) samples, {mean} 95")
add("unlike_batches", lambda: planned(batch=10 + 2 * worker()), f"Mismatch: .*batches.* (20|24) samples, {mean} 22")
add("unlike_seeds", lambda: planned(seed=3 + worker()), f"Mismatch: .*seed [34], {mean} 3.5")
add("unlike_orders", lambda: planned(shuffle=worker() == 0), "Mismatch: .*another order")


@case(r"Mismatch: .*0.weight")
def unlike_frozen():
    model = net()
    if worker() == 1:
        model[0].requires_grad_(False)
    planned(model=model)


class Conv(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(2, 2, 2)

    def forward(self, x):
        return self.conv(x.view(-1, 2, 2, 2)).flatten(1)


@case(r"Mismatch: .*strides")
def unlike_layouts():
    model = Conv()
    if worker() == 1:
        model = model.to(memory_format=torch.channels_last)
    planned(model=model)


# ---------------------------------------------------------------- one of the five lines forgotten


@case(r"InvalidUse: .*step\(\) in epoch 0: write loss.backward\(\); job.step\(len\(x\)\) instead of optimizer.step\(\)")
def without_step():
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    job = dt.Job(model, "sgd", lr=0.1)
    for _ in job.epochs(2):
        for x, y in DataLoader(DATA, batch_sampler=job.batches(DATA, 16)):
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()


@case(r"InvalidUse: .*no .*step\(\) in epoch 0: write ")
def with_the_inner_step():
    model = net()
    inner = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer = dt.Optimizer(inner, model)
    for _ in optimizer.epochs(2):
        for x, y in DataLoader(DATA, batch_sampler=optimizer.batches(DATA, 16)):
            inner.zero_grad()
            F.cross_entropy(model(x), y).backward()
            inner.step()


@case(r"Warning: each worker goes through all of its data: batch_sampler=job.batches.*, or dt.own_data\(\)", goes_on=True)
def without_batches():
    one = Level("L1", net())
    goes_through(one, DataLoader(DATA, batch_size=13, shuffle=True))


@case(r"InvalidUse: .*step.* outside of epochs\(\)")
def without_epochs():
    model = net()
    job = dt.Job(model, "sgd", lr=0.1)
    for _ in range(2):
        for x, y in DataLoader(DATA, batch_sampler=job.batches(DATA, 16)):
            F.cross_entropy(model(x), y).backward()
            job.step(len(x))


@case()
def an_epoch_of_evaluation():
    """It needs no step; a total is a float where anyone's is."""
    model, totals = net(), []
    one = Level("L1", model)
    for _ in one.training.epochs(2):
        loss = 0
        if one.training.rank == 1:
            with torch.no_grad():
                loss += F.cross_entropy(model(X), DATA.tensors[1]).item()
        totals.append(one.training.total(loss=loss)["loss"])
    assert 0 < totals[0] < 9
    return {"totals": torch.tensor(totals, dtype=torch.float64)}


if __name__ == "__main__":
    main()
