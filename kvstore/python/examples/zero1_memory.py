#!/usr/bin/python3
"""What a parameter takes of a worker's memory: with Adam at the servers, or with torch.optim's in the worker.

    python3 zero1_memory.py --how adam                     torch.optim.Adam, as in each process of DDP
    dtlaunch -n 2 -s 2 python3 zero1_memory.py             dt.Job: each server has half of the optimizer's state
"""
import argparse
import ctypes

import torch

WIDTH, BATCH, STEPS = 1024, 8, 5


def resident():
    """Bytes that are in use, those that are shared with servers of this host included."""
    ctypes.CDLL("libc.so.6").malloc_trim(0)
    with open("/proc/self/status", encoding="ascii") as file:
        return sum(int(line.split()[1]) for line in file if line.startswith("VmRSS")) * 1024


def layers(count, width):
    return torch.nn.Sequential(*[torch.nn.Linear(width, width) for _ in range(count)])


def steps(model, width, finish):
    for _ in range(STEPS):
        model(torch.ones(BATCH, width)).square().mean().backward()
        finish()


def main():
    parser = argparse.ArgumentParser(description="bytes of a worker's memory for each parameter")
    parser.add_argument("--how", choices=["job", "adam"], default="job")
    parser.add_argument("--layers", type=int, default=16, help="of a million parameters each")
    parser.add_argument("--no-overlap", action="store_true", help="values arrive in the parameters themselves")
    options = parser.parse_args()
    steps(layers(1, 8), 8, lambda: None)  # what PyTorch allocates once
    before = resident()
    model = layers(options.layers, WIDTH)
    count = sum(p.numel() for p in model.parameters())
    if options.how == "adam":
        optimizer = torch.optim.Adam(model.parameters())
        steps(model, WIDTH, lambda: (optimizer.step(), optimizer.zero_grad(set_to_none=False)))
        print(f"adam: {(resident() - before) / count:.1f} bytes a parameter, 1 workers")
        return
    import dtkv.torch as dt

    job = dt.Job(model, "adam", lr=1e-3, overlap=False if options.no_overlap else None)
    dt.own_data()  # the workers' samples are alike
    for _ in job.epochs(2):
        steps(model, WIDTH, lambda: job.step(BATCH))
        if job.rank == 0:
            print(f"job: {(resident() - before) / count:.1f} bytes a parameter, {job.world_size} workers")
    job.close()


if __name__ == "__main__":
    main()
