"""What torchrun starts in pause_bench: a network of elastic_worker's size under DDP with gloo, the same
--log lines, and a snapshot every few steps by rank 0, with which every start begins.

usage: torch_step.py LOG SNAPSHOT STEP_MS STEPS_PER_EPOCH SNAPSHOT_EVERY
"""
import json
import os
import sys
import time

import no_libuv  # noqa: F401  before all others of PyTorch
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def main():
    log_path, snapshot, step_ms, per_epoch, every = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:])
    log = open(log_path, "a", buffering=1)

    def note(**what):
        log.write(json.dumps({"t_ns": time.monotonic_ns(), **what}) + "\n")

    note(event="start", pid=os.getpid())
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(784, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    step = 0
    if os.path.exists(snapshot):
        saved = torch.load(snapshot)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        step = saved["step"]
    parallel = DistributedDataParallel(model)
    rank, world = dist.get_rank(), dist.get_world_size()
    while True:
        begin = time.monotonic_ns()
        x, y = torch.rand(32, 784), torch.randint(0, 10, (32,))
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(parallel(x), y).backward()
        optimizer.step()
        time.sleep(max(0, step_ms / 1e3 - (time.monotonic_ns() - begin) / 1e9))  # how long a step lasts, not a wait
        note(event="step", epoch=step // per_epoch, step=step % per_epoch, begin_ns=begin, rank=rank, world=world)
        step += 1
        if rank == 0 and step % every == 0:
            torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step},
                       snapshot + ".new")
            os.rename(snapshot + ".new", snapshot)


if __name__ == "__main__":
    main()
