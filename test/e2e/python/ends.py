#!/usr/bin/python3
"""A job that ends in the way of its argument, in the middle of an epoch with a DataLoader of 4 forked workers."""

import pathlib
import sys
import time

import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

import dtkv.torch as dt

how = sys.argv[1]
torch.set_num_threads(1)
data = TensorDataset(torch.randn(400, 8), torch.arange(400) % 2)
model = torch.nn.Linear(8, 2)
job = dt.Job(model, "sgd", lr=0.1)
last = job.world_size - 1
loader = DataLoader(data, batch_sampler=job.batches(data, 4), num_workers=4)


def one_epoch():
    for step, (x, y) in enumerate(loader):
        F.cross_entropy(model(x), y).backward()
        job.step(len(x))
        if step == 10 and (how == "raise" or job.store.worker_id == last):
            if how == "raise":
                raise ValueError("the data is bad")
            if how.isdigit():
                sys.exit(int(how))
        if how == "wait":
            pathlib.Path("waits").touch()
            time.sleep(0.1)  # between two looks, not a wait


for epoch in job.epochs(2):
    one_epoch()
print("the last line", flush=True)
