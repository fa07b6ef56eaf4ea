#!/usr/bin/python3
"""A script with DistributedDataParallel and an optimizer of torch.optim; workers join and leave while it trains. The
lines with a + make it so.

    python3 mnist_ddp.py                                                      alone
    dtlaunch -n 2 -H hosts --elastic-training-enabled python3 mnist_ddp.py    on two hosts, and more later
"""
import argparse

import torch
import torch.nn.functional as F
from mnist import digits, lenet  # the example beside this one
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.optim.lr_scheduler import StepLR
from torch.utils.data import DataLoader

import dtkv.torch as dt  # +


def main():
    parser = argparse.ArgumentParser(description="LeNet on MNIST with DDP, elastic under dtlaunch")
    parser.add_argument("--data", help="folder of MNIST's idx files, plain or .gz; without it digits are made up")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--samples", type=int, default=60000, help="at most, for training and for the test")
    parser.add_argument("--save", metavar="FILE", help="written after the last epoch")
    options = parser.parse_args()
    train, test = (digits(options.data, part, options.samples) for part in ("train", "t10k"))
    dt.init_process_group()  # + instead of torch.distributed.init_process_group
    torch.manual_seed(1)
    model = DDP(lenet())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    scheduler = StepLR(optimizer, step_size=1, gamma=0.7)
    kv = dt.DDPState(model, optimizer)  # +
    kv.register(scheduler=scheduler)  # + a newcomer gets its state, too
    model.register_comm_hook(kv, dt.ddp_hook)  # +
    loader = DataLoader(train, batch_sampler=kv.batches(train, 64))  # + no DistributedSampler
    test_loader = DataLoader(test, batch_sampler=kv.eval_batches(test, 500))
    for epoch in kv.epochs(options.epochs):  # +
        for x, y in loader:
            kv.samples = len(x)  # + this worker's weight in the mean
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
        scheduler.step()
        with torch.no_grad():
            right = sum((model.module(x).argmax(1) == y).sum().item() for x, y in test_loader)
        right = kv.total(right=right)["right"]
        if kv.is_lead and not kv.interrupted:
            print(f"epoch {epoch}: accuracy {right / len(test):.4f}, {kv.world_size} workers")
    if options.save and kv.is_lead and not kv.left:
        torch.save({"model": model.module.state_dict(), "optimizer": optimizer.state_dict()}, options.save)


if __name__ == "__main__":
    main()
