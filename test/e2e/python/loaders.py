#!/usr/bin/python3
"""loaders.py WAY EPOCHS PROCESSES: a Job whose DataLoader starts its processes in this way, in each epoch: without a warning,
and with every sample."""

import sys
import warnings

import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

import dtkv.torch as dt

SAMPLES = 240


def main():
    warnings.simplefilter("error")
    # From Python 3.12 on, of every fork in a process that has threads, as a store has.
    warnings.filterwarnings("ignore", ".*is multi-threaded, use of fork", DeprecationWarning)
    torch.set_num_threads(1)
    way, epochs, processes = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    data = TensorDataset(torch.randn(SAMPLES, 8), torch.arange(SAMPLES) % 2)
    model = torch.nn.Linear(8, 2)
    with dt.Job(model, "sgd", lr=0.1) as job:
        batches = job.batches(data, 20)
        loader = DataLoader(data, batch_sampler=batches, num_workers=processes, multiprocessing_context=way)
        for _ in job.epochs(epochs):
            seen = 0
            for x, y in loader:
                F.cross_entropy(model(x), y).backward()
                job.step(len(x))
                seen += len(x)
            if job.total(seen=seen)["seen"] != SAMPLES:
                sys.exit(f"{seen} samples")


if __name__ == "__main__":
    main()
