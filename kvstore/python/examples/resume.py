#!/usr/bin/python3
"""Saves a model with the state of the servers' optimizer, and goes on with both in another job.

    python3 resume.py --file two.pt --epochs 2     trains two epochs
    python3 resume.py --file two.pt --epochs 4     goes on: two more; the weights are those of four epochs in one run

The job's own checkpoints are for a lost server and `dtlaunch --resume`. A file like this one is for another job, with
any number of workers.
"""
import argparse
import contextlib
import os

import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

import dtkv
import dtkv.torch as dt


def save(path, job, model, epoch):
    """After total(), by one worker: then all workers have made their last step of the epoch."""
    spec, count = job.store.optimizer()  # "sgd momentum=0.9 ..." keeps 1 state for each parameter, "adam" 2
    states = [job.pull_state(which) for which in range(1, count + 1)]
    saved = {"next_epoch": epoch + 1, "model": model.state_dict(), "optimizer": spec, "states": states}
    torch.save(saved, path + ".new")
    os.replace(path + ".new", path)


def load(saved, job):
    """By all workers, after the Job is made, before its first epoch. A newcomer's call changes nothing."""
    for which, (state, updates) in enumerate(saved["states"], 1):
        job.init_state(which, state, updates)


def main():
    parser = argparse.ArgumentParser(description="saves and loads a model with its optimizer")
    parser.add_argument("--file", required=True)
    parser.add_argument("--epochs", type=int, default=4)
    options = parser.parse_args()
    saved = torch.load(options.file) if os.path.exists(options.file) else None

    random = torch.Generator().manual_seed(1)
    x = torch.randn(2000, 20, generator=random)
    data = TensorDataset(x, (x @ torch.randn(20, 5, generator=random)).argmax(1))
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(20, 32), torch.nn.ReLU(), torch.nn.Linear(32, 5))
    if saved:
        model.load_state_dict(saved["model"])  # before the Job: rank 0's weights are the servers' first
    job = dt.Job(model, saved["optimizer"] if saved else "adam", lr=0.003)
    if saved:
        load(saved, job)
    loader = DataLoader(data, batch_sampler=job.batches(data, 50, global_batch=50))
    for epoch in job.epochs(options.epochs, begin=saved["next_epoch"] if saved else 0):
        loss_sum = 0.0
        for x, y in loader:
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            job.step(len(x))
            loss_sum += loss.item() * len(x)
        loss_sum = job.total(loss=loss_sum)["loss"]
        if job.is_lead and not job.interrupted:
            print(f"epoch {epoch}: loss {loss_sum / len(data):.4f}, {job.world_size} workers")
            with contextlib.suppress(dtkv.Rollback):  # a server was lost: an epoch is run again
                save(options.file, job, model, epoch)


if __name__ == "__main__":
    main()
