#!/usr/bin/python3
"""Training loops as people write them, with the lines of python.md in place of torch's. Each ends with what a program that
trains by torch alone, in one process with the joined batches, has in the end; or in the sentence that it names. cases.py has
the command line."""

import warnings

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Subset, TensorDataset

import dtkv
import dtkv.torch as dt
import plain
from cases import case, main, train, worker

COUNT, BATCH = 97, 12  # with two workers the last step has one sample, which goes with the one before
_random = torch.Generator().manual_seed(1)
X = torch.randn(COUNT, 6, generator=_random)
Y = (X @ torch.arange(6.0)).sin().unsqueeze(1)
DATA = TensorDataset(X, Y)
WHOLE = {"global_batch": 2 * BATCH}


def net(seed=None):
    """Another one on each worker, unless a seed is given."""
    torch.manual_seed(100 + worker() if seed is None else seed)
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 1))


@case(r"InvalidUse: .*a process has one store for its life: start each fold as a job of its own, or give type='local'")
def k_fold():
    for fold in range(3):
        model = net()
        with dt.Job(model, "sgd momentum=0.9", lr=0.1) as job:
            data = Subset(DATA, [i for i in range(COUNT) if i % 3 != fold])
            loader = DataLoader(data, batch_sampler=job.batches(data, BATCH, **WHOLE))
            for _ in job.epochs(2):
                for x, y in loader:
                    F.mse_loss(model(x), y).backward()
                    job.step(len(x))


@case()
def build_wrap_load():
    saved = net(99).state_dict()
    model = net()
    job = dt.Job(model, "sgd momentum=0.9", lr=0.1)
    model.load_state_dict(saved)
    loader = DataLoader(DATA, batch_sampler=job.batches(DATA, BATCH, **WHOLE))
    for _ in job.epochs(2):
        for x, y in loader:
            F.mse_loss(model(x), y).backward()
            job.step(len(x))
    return model.state_dict()


def train_gan(generator, discriminator, of_generator, of_discriminator):
    loader = DataLoader(DATA, batch_sampler=of_discriminator.batches(DATA, BATCH, **WHOLE))
    for _ in of_discriminator.epochs(2):
        for real, noise in loader:
            fake = generator(noise.expand(-1, 6))
            of_discriminator.zero_grad()
            right = discriminator(real), discriminator(fake.detach())
            (F.softplus(-right[0]).mean() + F.softplus(right[1]).mean()).backward()
            of_discriminator.step(samples=len(real))
            of_generator.zero_grad()
            F.softplus(-discriminator(fake)).mean().backward()
            of_generator.step(samples=len(real))
    return nn.ModuleDict({"generator": generator, "discriminator": discriminator}).state_dict()


def gan_nets():
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 6)), net()


@case()
def gan():
    generator, discriminator = gan_nets()
    of_generator = dt.Optimizer(torch.optim.SGD(generator.parameters(), 0.05, momentum=0.5), generator, name="G")
    of_discriminator = dt.Optimizer(torch.optim.SGD(discriminator.parameters(), 0.05), discriminator, name="D")
    return train_gan(generator, discriminator, of_generator, of_discriminator)


@case()
def gan_ahead():
    """Each net's gradients may leave in backward; the discriminator's come in the generator's step as well."""
    generator, discriminator = gan_nets()
    of_generator = dt.Optimizer(torch.optim.SGD(generator.parameters(), 0.05), generator, name="G", overlap=True)
    of_discriminator = dt.Optimizer(torch.optim.SGD(discriminator.parameters(), 0.05), discriminator, name="D", overlap=True)
    trained = train_gan(generator, discriminator, of_generator, of_discriminator)
    assert of_generator.overlap == "yes", of_generator.overlap
    return trained


def train_penalty(model, job, step, **how):
    """The gradient's own size is part of the loss, as in WGAN-GP."""
    warnings.filterwarnings("ignore", "Using backward.. with create_graph=True")
    loader = DataLoader(DATA, batch_sampler=job.batches(DATA, BATCH, **WHOLE))
    for _ in job.epochs(2):
        for x, y in loader:
            x.requires_grad_()
            out = model(x)
            (slope,) = torch.autograd.grad(out.sum(), x, create_graph=True)
            (F.mse_loss(out, y) + slope.square().sum(1).mean()).backward(**how)
            step(len(x))
    return model.state_dict()


@case()
def penalty():
    model = net()
    job = dt.Job(model, "sgd momentum=0.9", lr=0.1, overlap=True)
    trained = train_penalty(model, job, job.step)
    assert job.overlap == "yes", job.overlap
    return trained


@case()
def penalty_with_a_graph():
    model = net()
    job = dt.Job(model, "sgd momentum=0.9", lr=0.1, overlap=True)
    return train_penalty(model, job, job.step, create_graph=True)


@case()
def penalty_l2():
    model = net()
    optimizer = dt.Optimizer(torch.optim.SGD(model.parameters(), 0.1, momentum=0.9), model, overlap=True)

    def step(samples):
        optimizer.step(samples=samples)
        optimizer.zero_grad()

    return train_penalty(model, optimizer, step, create_graph=True)


@case(r"InvalidUse: .*name=")
def gan_without_names():
    generator, discriminator = gan_nets()
    of_generator = dt.Optimizer(torch.optim.SGD(generator.parameters(), 0.05), generator)
    of_discriminator = dt.Optimizer(torch.optim.SGD(discriminator.parameters(), 0.05), discriminator)
    return train_gan(generator, discriminator, of_generator, of_discriminator)


@case()
def unfreezing():
    model = net()
    model[0].requires_grad_(False)
    job = dt.Job(model, "sgd momentum=0.9", lr=0.1)
    loader = DataLoader(DATA, batch_sampler=job.batches(DATA, BATCH, **WHOLE))
    for epoch in job.epochs(3):
        if epoch == 1:
            model[0].requires_grad_(True)
        for x, y in loader:
            F.mse_loss(model(x), y).backward()
            job.step(len(x))
    return model.state_dict()


@case()
def unfreezing_l2():
    model = net()
    model[0].requires_grad_(False)
    optimizer = dt.Optimizer(torch.optim.Adam(model[2].parameters(), 0.01), model)
    loader = DataLoader(DATA, batch_sampler=optimizer.batches(DATA, BATCH, **WHOLE))
    for epoch in optimizer.epochs(3):
        if epoch == 1:
            model[0].requires_grad_(True)
            optimizer.add_param_group({"params": model[0].parameters(), "lr": 0.001})
        for x, y in loader:
            optimizer.zero_grad()
            F.mse_loss(model(x), y).backward()
            optimizer.step(samples=len(x))
    return model.state_dict()


@case(r"InvalidUse: .*wrap .* in DDP again")
def unfreezing_l3():
    dt.init_process_group()
    net_ = net()
    net_[0].requires_grad_(False)
    model = DistributedDataParallel(net_)
    optimizer = torch.optim.SGD(net_.parameters(), lr=0.1)
    kv = dt.DDPState(model, optimizer)
    model.register_comm_hook(kv, dt.ddp_hook)
    loader = DataLoader(DATA, batch_sampler=kv.batches(DATA, BATCH, **WHOLE))
    for epoch in kv.epochs(3):
        if epoch == 1:
            net_[0].requires_grad_(True)
        for x, y in loader:
            kv.samples = len(x)
            optimizer.zero_grad()
            F.mse_loss(model(x), y).backward()
            optimizer.step()
    return net_.state_dict()


@case(r"InvalidUse: .*0.weight was changed by the program .*use dt.Optimizer, or change it before epochs")
def clamping():
    model = net()
    job = dt.Job(model, "sgd", lr=0.1)
    loader = DataLoader(DATA, batch_sampler=job.batches(DATA, BATCH, **WHOLE))
    for _ in job.epochs(2):
        for x, y in loader:
            F.mse_loss(model(x), y).backward()
            job.step(len(x))
            with torch.no_grad():
                for p in model.parameters():
                    p.clamp_(-0.1, 0.1)
    return model.state_dict()


@case()
def clamping_l2():
    model = net()
    optimizer = dt.Optimizer(torch.optim.SGD(model.parameters(), lr=0.1), model)
    loader = DataLoader(DATA, batch_sampler=optimizer.batches(DATA, BATCH, **WHOLE))
    for _ in optimizer.epochs(2):
        for x, y in loader:
            optimizer.zero_grad()
            F.mse_loss(model(x), y).backward()
            optimizer.step(samples=len(x))
            with torch.no_grad():
                for p in model.parameters():
                    p.clamp_(-0.1, 0.1)
    return model.state_dict()


def with_a_bad_sample():
    x = X.clone()
    x[17, 3] = float("nan")
    return TensorDataset(x, Y)


@case()
def nonfinite():
    model, data, skipped = net(), with_a_bad_sample(), 0
    job = dt.Job(model, "sgd", lr=0.1)
    loader = DataLoader(data, batch_sampler=job.batches(data, BATCH, **WHOLE))
    for _ in job.epochs(2):
        for x, y in loader:
            F.mse_loss(model(x), y).backward()
            try:
                job.step(len(x))
            except dtkv.Nonfinite:
                skipped += 1
        skipped_by_all = job.total(skipped=skipped)["skipped"]
    return {"skipped": torch.tensor(skipped_by_all), **{f"own.{name}": w for name, w in model.state_dict().items()}}


@case()
def nonfinite_l2():
    model, data, skipped = net(), with_a_bad_sample(), 0
    optimizer = dt.Optimizer(torch.optim.SGD(model.parameters(), lr=0.1), model)
    loader = DataLoader(data, batch_sampler=optimizer.batches(data, BATCH, **WHOLE))
    for _ in optimizer.epochs(2):
        for x, y in loader:
            optimizer.zero_grad()
            F.mse_loss(model(x), y).backward()
            try:
                optimizer.step(samples=len(x))
            except dtkv.Nonfinite:
                skipped += 1
        skipped_by_all = optimizer.total(skipped=skipped)["skipped"]
    return {"skipped": torch.tensor(skipped_by_all), **{f"own.{name}": w for name, w in model.state_dict().items()}}


@case()
def all_reduce_each_step():
    model, losses = net(), []
    job = dt.Job(model, "sgd", lr=0.1)
    loader = DataLoader(DATA, batch_sampler=job.batches(DATA, BATCH, **WHOLE))
    for _ in job.epochs(2):
        for x, y in loader:
            loss = F.mse_loss(model(x), y)
            loss.backward()
            job.step(len(x))
            losses.append(dt.all_reduce(loss.detach() * len(x), op="sum"))
    return {"losses": torch.stack(losses), **model.state_dict()}


@case()
def checkpoints():
    model = net()
    job = dt.Job(model, "sgd momentum=0.9", lr=0.1)
    loader = DataLoader(DATA, batch_sampler=job.batches(DATA, BATCH, **WHOLE))
    for epoch in job.epochs(2):
        for step, (x, y) in enumerate(loader):
            F.mse_loss(model(x), y).backward()
            job.step(len(x))
            if step == 1 and job.is_lead:
                torch.save({"epoch": epoch, "model": model.state_dict()}, "checkpoint.pt")
    saved = torch.load("checkpoint.pt")
    return {**model.state_dict(), "epoch": torch.tensor(saved["epoch"]), "saved": saved["model"]["0.weight"]}


@case()
def step_counted():
    model, steps = net(), 0
    optimizer = dt.Optimizer(torch.optim.SGD(model.parameters(), lr=0.1), model)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=18, cycle_momentum=False)
    optimizer.register(scheduler=scheduler)
    loader = DataLoader(DATA, batch_sampler=optimizer.batches(DATA, BATCH, steps=3, **WHOLE))
    for _ in optimizer.epochs(6):
        for x, y in loader:
            optimizer.zero_grad()
            F.mse_loss(model(x), y).backward()
            optimizer.step(samples=len(x))
            scheduler.step()
            steps += 1
    assert steps == 18, steps
    return model.state_dict()


def sentences():
    x = torch.randint(0, 9, (COUNT, 5), generator=torch.Generator().manual_seed(2))
    y = x.flip(1)
    y[torch.arange(5) >= 1 + torch.arange(COUNT).unsqueeze(1) % 5] = -100
    return TensorDataset(x, y)


@case()
def tokens():
    data = sentences()
    model = nn.Sequential(nn.Embedding(9, 4), nn.Linear(4, 9))
    job = dt.Job(model, "sgd momentum=0.9", lr=0.1)
    loader = DataLoader(data, batch_sampler=job.batches(data, BATCH, **WHOLE))
    for _ in job.epochs(2):
        for x, y in loader:
            F.cross_entropy(model(x).transpose(1, 2), y).backward()
            job.step(int((y != -100).sum()))
    return model.state_dict()


@case()
def tokens_l3():
    data = sentences()
    dt.init_process_group()
    net_ = nn.Sequential(nn.Embedding(9, 4), nn.Linear(4, 9))
    model = DistributedDataParallel(net_)
    optimizer = torch.optim.SGD(net_.parameters(), lr=0.1, momentum=0.9)
    kv = dt.DDPState(model, optimizer)
    model.register_comm_hook(kv, dt.ddp_hook)
    loader = DataLoader(data, batch_sampler=kv.batches(data, BATCH, **WHOLE))
    for _ in kv.epochs(2):
        for x, y in loader:
            kv.samples = int((y != -100).sum())
            optimizer.zero_grad()
            F.cross_entropy(model(x).transpose(1, 2), y).backward()
            optimizer.step()
    return net_.state_dict()


def by_torch(name):
    """What the loop ends with where `dt` is plain."""
    global dt, DistributedDataParallel
    real = dt, DistributedDataParallel
    dt, DistributedDataParallel = plain, plain.DistributedDataParallel
    try:
        return train(name)
    finally:
        dt, DistributedDataParallel = real


if __name__ == "__main__":
    main(by_torch)
