#!/usr/bin/env python3
"""Looks into a log of mlp_worker (--log).

usage: worker_log.py waits FILE SECONDS [FROM]   every boundary from epoch FROM on was crossed faster
       worker_log.py once FILE                   one process; no step done twice, none left out
       worker_log.py left FILE                   the last word: told to leave
"""
import json
import sys


def check(ok, text):
    if not ok:
        sys.exit(f"{sys.argv[2]}: {text}")


def waits(lines, most, first=1):
    entered, longest, count = None, 0.0, 0
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
    before = None
    for at in ((line["epoch"], line["step"]) for line in lines if line["event"] == "step"):
        if before:
            expected = [(before[0], before[1] + 1), (before[0] + 1, 0)]
            check(at in expected, f"step {at} follows {before}")
        before = at
    for begun, line in zip(lines, lines[1:]):
        if line["event"] == "step" and line["step"] == 0:
            check(begun["event"] == "boundary_leave", f"epoch {line['epoch']} without its boundary")


def left(lines):
    check(lines[-1]["event"] == "boundary_leave" and lines[-1]["result"] == "leave", f"ends with {lines[-1]}")


with open(sys.argv[2]) as file:
    log = [json.loads(line) for line in file if line.endswith("\n")]
{"waits": waits, "once": once, "left": left}[sys.argv[1]](log, *sys.argv[3:])
