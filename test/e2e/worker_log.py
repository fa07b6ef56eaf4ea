#!/usr/bin/env python3
"""Looks into a log of elastic_worker (--log).

usage: worker_log.py waits FILE SECONDS [FROM]   from epoch FROM on every boundary was crossed faster,
                                               and no step took twice as long
       worker_log.py once FILE                   one process; no step done twice, none left out
       worker_log.py left FILE                   the last word: told to leave
       worker_log.py agree FILE...               the same weights at the end of each epoch
"""
import json
import sys


def check(ok, text):
    if not ok:
        sys.exit(f"{sys.argv[2]}: {text}")


def waits(lines, most, first=1):
    entered, longest, count = None, 0.0, 0
    for before, line in zip(lines, lines[1:]):
        if line["event"] == "step" and line["epoch"] >= int(first):
            took = (line["t_ns"] - before["t_ns"]) / 1e9
            check(took < 2 * float(most), f"{took:.3f} s for step {line['step']} of epoch {line['epoch']}")
    for line in lines:
        if line["event"] == "boundary_enter":
            entered = line
        elif line["event"] == "boundary_leave" and entered and entered["next"] >= int(first):
            wait = (line["t_ns"] - entered["t_ns"]) / 1e9
            longest, count = max(longest, wait), count + 1
            check(wait < float(most), f"{wait:.3f} s at the boundary of epoch {line['epoch']}")
    check(count > 0, "no boundary was crossed")
    print(f"{count} boundaries, longest wait {longest:.4f} s")


def once(lines):
    check(sum(line["event"] == "start" for line in lines) == 1, "more than one process")
    before, ends = None, set()
    for at in ((line["epoch"], line["step"]) for line in lines if line["event"] == "step"):
        if before:
            expected = [(before[0], before[1] + 1), (before[0] + 1, 0)]
            check(at in expected, f"step {at} follows {before}")
            if at[1] == 0:
                ends.add(before[1])
        before = at
    check(len(ends) <= 1, f"epochs end with different steps: {sorted(ends)}")
    for begun, line in zip(lines, lines[1:]):
        if line["event"] == "step" and line["step"] == 0:
            check(begun["event"] == "boundary_leave", f"epoch {line['epoch']} without its boundary")


def left(lines):
    check(lines[-1]["event"] == "boundary_leave" and lines[-1]["result"] == "leave", f"ends with {lines[-1]}")


def read(path):
    with open(path) as file:
        return [json.loads(line) for line in file if line.endswith("\n")]


def agree(_, *others):
    epochs = {}
    for line in (line for path in (sys.argv[2], *others) for line in read(path)):
        if line["event"] == "epoch":
            epochs.setdefault(line["epoch"], {})[line["worker"]] = line["hash"]
    check(any(len(hashes) > 1 for hashes in epochs.values()), "no epoch of several workers")
    for epoch, hashes in epochs.items():
        check(len(set(hashes.values())) == 1, f"epoch {epoch} ended with different weights: {hashes}")


{"waits": waits, "once": once, "left": left, "agree": agree}[sys.argv[1]](read(sys.argv[2]), *sys.argv[3:])
