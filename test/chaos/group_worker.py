#!/usr/bin/python3
"""A worker that knows nothing of dtlaunch, for --on-change restart: it has a snapshot of its own, and logs like elastic_worker."""
import argparse
import json
import os
import time

parser = argparse.ArgumentParser()
parser.add_argument("--steps-per-epoch", type=int, required=True)
parser.add_argument("--epochs", type=int, required=True)
parser.add_argument("--step-ms", type=float, default=0)
parser.add_argument("--log", required=True)
parser.add_argument("--snapshot", required=True)
options = parser.parse_args()

rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
worker, group = int(os.environ["DT_WORKER_ID"]), int(os.environ["TORCHELASTIC_RESTART_COUNT"])
log = open(options.log.replace("%i", str(worker)), "a", buffering=1, encoding="ascii")


def note(event: str, epoch: int, **facts: object) -> None:
    line = {"t_ns": time.monotonic_ns(), "worker": worker, "event": event, "epoch": epoch, "rank": rank, "world": world, "group": group}
    log.write(json.dumps({**line, **facts}, separators=(",", ":")) + "\n")


def begin() -> int:
    try:
        with open(options.snapshot, encoding="ascii") as file:
            return int(file.read())
    except FileNotFoundError:
        return 0


note("start", begin(), pid=os.getpid())
for at in range(begin(), options.epochs):
    for step in range(options.steps_per_epoch):
        time.sleep(options.step_ms / 1000)  # how long a step lasts, not a wait
        note("step", at, step=step)
    if rank == 0:
        with open(options.snapshot + ".new", "w", encoding="ascii") as snapshot:
            snapshot.write(str(at + 1))
        os.replace(options.snapshot + ".new", options.snapshot)
    note("epoch", at)
note("end", options.epochs - 1)
