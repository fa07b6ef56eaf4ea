#!/usr/bin/python3
"""An elastic worker in Python whose batches come from a DataLoader with two processes; options as elastic_worker's.

Its log has a line per epoch: the epoch, the world size, the processes of the DataLoader.
"""

import argparse
import json
import os
import time

import numpy as np
import torch
from torch.utils.data import DataLoader, TensorDataset

import dtkv

parser = argparse.ArgumentParser()
parser.add_argument("--log", required=True)
parser.add_argument("--epochs", type=int, required=True)
parser.add_argument("--steps-per-epoch", type=int, required=True)
parser.add_argument("--step-ms", type=float, required=True)
parser.add_argument("--start", default="fork", help="how the DataLoader starts its processes")
options, _ = parser.parse_known_args()
log = open(options.log.replace("%i", os.environ["DT_WORKER_ID"]), "w", buffering=1)


class Rows(TensorDataset):
    """As a program would have it that keeps its store within reach of the data."""

    def __getitem__(self, index):
        try:
            kv.barrier()
        except (dtkv.InvalidUse, NameError):  # a forked child's, or a started one's, which has none
            return super().__getitem__(index)
        raise AssertionError("a child used the store")


def main():
    global kv
    kv = dtkv.Store()
    torch.set_num_threads(1)
    w = kv.allocate((10, 100))
    kv.init({"w": w})
    kv.set_optimizer("sgd momentum=0.9")
    rows = Rows(torch.ones(4 * options.steps_per_epoch, 100))
    for view in kv.epochs(options.epochs):
        kv.pull({"w": w})
        loader = DataLoader(rows, batch_size=4, num_workers=2, multiprocessing_context=options.start)
        batches = iter(loader)
        children = [process.pid for process in batches._workers]
        line = {"epoch": view.epoch, "world": view.num_workers, "pid": os.getpid(), "children": children}
        log.write(json.dumps(line, separators=(",", ":")) + "\n")
        for step, (x,) in enumerate(batches):
            gradient = np.tile(x.mean(0).numpy() * np.float32(1e-3), (10, 1))
            kv.pushpull({"w": gradient}, {"w": w}, samples=len(x), step=step, learning_rate=0.1)
            time.sleep(options.step_ms / 1000)  # how long a step lasts, not a wait
    assert kv.left
    kv.close()


if __name__ == "__main__":
    main()
