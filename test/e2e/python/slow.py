#!/usr/bin/env python3
"""A training in which each step of worker 1, or of every worker, takes 20 ms longer: slow.py L0|L1|L2 [all]."""
import sys
import time


def one_is_slow(rank):
    if rank == 1 or "all" in sys.argv:
        time.sleep(0.02)  # how long a slow step lasts, not a wait


def arrays():
    import numpy as np

    import dtkv

    kv = dtkv.Store()
    w = np.zeros(1000, np.float32)
    kv.init({"w": w})
    for view in kv.epochs(1000):
        for step in range(40):
            one_is_slow(view.rank)
            kv.pushpull("w", w, step=step)
            kv.report(step=step, phase="slow")


def torch_at(level):
    import torch

    import dtkv.torch as dt

    torch.manual_seed(0)
    net = torch.nn.Linear(16, 4)
    if level == "L1":
        job = dt.Job(net, "sgd", lr=0.01)
    else:
        job = dt.Optimizer(torch.optim.SGD(net.parameters(), 0.01), net)
    batches = job.batches(6400, 64)
    for _ in job.epochs(1000):
        for part in batches:
            one_is_slow(job.rank)
            net(torch.randn(len(part), 16)).square().mean().backward()
            if level == "L1":
                job.step(len(part))
            else:
                job.step(samples=len(part))
                job.zero_grad()


arrays() if sys.argv[1] == "L0" else torch_at(sys.argv[1])
