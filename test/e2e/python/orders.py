#!/usr/bin/env python3
"""Programs of two workers in which all come to wait for each other: orders.py NAME."""
import sys
import time

import numpy as np

import dtkv


def order(kv, view):
    """Two keys in two orders."""
    for key in ["a", "b"] if view.rank == 0 else ["b", "a"]:
        kv.pushpull(key, np.zeros(3, np.float32))


def alone(kv, view):
    """A key that only the worker without rank 0 makes, as all_reduce() of one worker alone would."""
    if view.rank == 1:
        kv.init({"dtkv.all_reduce.float32.1": np.zeros(1, np.float32)}, auxiliary=True)
    kv.pushpull("a", np.zeros(3, np.float32))


def barrier(kv, view):
    """A barrier of the lead alone."""
    if view.rank == 0:
        kv.barrier()
    else:
        kv.pushpull("a", np.zeros(3, np.float32))


def sleeps(kv, view):
    """No standstill: the lead sleeps, and the other one waits for it."""
    if view.rank == 0:
        time.sleep(6)  # how long the lead sleeps, not a wait
    kv.pushpull("a", np.zeros(3, np.float32))


kv = dtkv.Store()
kv.init({"a": np.zeros(3, np.float32), "b": np.zeros(3, np.float32)})
globals()[sys.argv[1]](kv, kv.epoch_boundary(0))
print("done")
