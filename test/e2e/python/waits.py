#!/usr/bin/python3
"""A worker of two, with a server: arrays that the program drops, signals, threads and errors while a call waits for the
other worker. Ends with 0 if all of it holds. waits.py NAMES: initialises only these keys on worker 1, and a and b on worker 0."""

import gc
import mmap
import os
import signal
import sys
import threading
import time

import numpy as np

import dtkv
from dtkv import _library

kv = dtkv.Store()
COUNT = 20_000


class Alarm(Exception):
    pass


def on_alarm(number, frame):
    raise Alarm


def check(what, *facts):
    if not what:
        raise AssertionError(facts)


def dropped_arrays():
    """Each array is free as soon as it is handed over, and its memory soon another's."""
    out = np.empty(COUNT)
    for turn in range(int(os.environ.get("TURNS", "10000"))):
        kv.push("sum", np.full(COUNT, 1.0 + turn), wait=False)
        np.full(COUNT, -1.0)
        if turn % 50 == 49:
            kv.wait_all()
            kv.pull("sum", out)
            check((out == 2.0 * (1 + turn)).all(), turn, out)


def signals():
    """A signal's handler runs while a call waits, and may end it; the operation goes on."""
    signal.signal(signal.SIGALRM, on_alarm)
    mine, out = np.full(4, 1.0), np.zeros(4)
    if kv.rank == 0:
        handle = kv.pushpull("small", mine, out, wait=False)
        for wait in (handle.wait, kv.barrier):
            signal.setitimer(signal.ITIMER_REAL, 0.3)
            begin = time.monotonic()
            try:
                wait()
            except Alarm:
                print(f"ended {time.monotonic() - begin - 0.3:.3f} s after the signal", flush=True)
            else:
                raise AssertionError("the signal was not seen")
        try:
            handle.wait(0.01)
        except RuntimeError as busy:  # the barrier's thread is still in it
            check("is using this store" in str(busy), busy)
        while kv._calls:
            time.sleep(0.01)  # between two looks, not a wait
    else:
        time.sleep(1.5)  # how long the other one waits for this one, not a wait
        handle = kv.pushpull("small", mine, out, wait=False)
        kv.barrier()
    handle.wait()
    check(out.tolist() == [2.0] * 4, out)


def interrupted():
    """A signal's handler raises when libdtkv has an operation and its call returns, and the arrays are unmapped at once:
    the answer comes later."""
    memory, keys = [mmap.mmap(-1, 8 * COUNT) for _ in range(20)], ["late%d" % i for i in range(20)]
    values = [np.frombuffer(one) for one in memory]
    kv.init(keys, values)
    del memory
    if kv.rank == 0:
        real = _library.library().dtkv_pushpull

        def faulty(*arguments):
            real(*arguments)
            raise Alarm

        _library.library().dtkv_pushpull = faulty
        try:
            kv.pushpull(keys, values)
        except Alarm:
            pass
        _library.library().dtkv_pushpull = real
        del values
        gc.collect()
        kv.barrier()
        kv.wait_all()
        check(kv._pending == {}, kv._pending)
    else:
        kv.barrier()
        kv.pushpull(keys, values)
        check(values[0].tolist() == [0.0] * COUNT)


def threads():
    """While a thread waits for the other worker, another computes."""
    if kv.rank == 1:
        time.sleep(1)  # how long the other one waits for this one, not a wait
        kv.barrier()
        return
    counted, is_over = [0], threading.Event()

    def count():
        while not is_over.is_set():
            counted[0] += 1

    counter = threading.Thread(target=count)
    counter.start()
    kv.barrier()
    is_over.set()
    counter.join()
    check(counted[0] > 10_000, counted)


def timeouts():
    """A time limit raises Timeout; the handle can be waited for again."""
    out = np.zeros(4)
    if kv.rank == 1:
        time.sleep(0.5)  # how long the other one waits for this one, not a wait
    handle = kv.pushpull("small", np.ones(4), out, wait=False)
    if kv.rank == 0:
        try:
            handle.wait(0.05)
        except dtkv.Timeout as error:
            check("not done" in str(error), error)
        else:
            raise AssertionError("no Timeout")
    kv.wait_all()
    handle.wait()
    check(out.tolist() == [2.0] * 4, out)


def mismatches():
    """Workers that disagree get an error that names the key."""
    if kv.rank == 1:
        kv.set_gradient_compression("fp16")
    try:
        kv.pushpull({"w": np.ones(8, "f4")}, step=1)
    except dtkv.Mismatch as error:
        check("key 'w'" in str(error), error)
    else:
        raise AssertionError("no Mismatch")
    kv.set_gradient_compression("none")


def halves():
    """A float16 and a bfloat16 worker of a float32 key: the mean is float32's, and each has it in its type."""
    values = np.array([1.0, -0.3125, 2.0**-20, 300.0], "f4").repeat(COUNT)
    mine = [values.astype("f2"), values.view("u4") >> 16][kv.rank].astype(["f2", "u2"][kv.rank])
    shared = kv.allocate(mine.shape, "f2").view(mine.dtype)
    shared[:] = mine
    typed = [lambda a: a, dtkv.bfloat16][kv.rank]
    exact = [mine.astype("f4"), (mine.astype("u4") << 16).view("f4")][kv.rank]
    other = np.empty_like(exact)
    kv.init({"half": typed(np.zeros_like(mine)), "exact": np.zeros_like(exact)}, auxiliary=True)
    for place in (mine, shared):
        kv.pushpull({"half": typed(place), "exact": exact}, {"half": typed(place), "exact": other}, samples=1 + kv.rank)
        wanted = other.astype("f2") if kv.rank == 0 else bfloat16_bits(other)
        check((place == wanted).all(), place, wanted)
    pulled = np.empty_like(exact)
    kv.pull("half", pulled)
    # The second round's addends were the same.
    check((pulled == other).all(), pulled, other)


def bfloat16_bits(values):
    """To the nearest, ties to even."""
    bits = values.view("u4")
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype("u2")


def different_names(names):
    """Workers with different parameters learn it when they meet."""
    keys = {name: np.zeros(4) for name in (names if kv.rank == 1 else ["a", "b"])}
    try:
        kv.init(keys)
        kv.epoch_boundary(0)
    except dtkv.Mismatch as error:
        print(f"worker {kv.rank}: {error}", flush=True)
        raise
    kv.pushpull("b", np.ones(4))


def second_store():
    """A worker has one store for its life: another one would wait for servers that do not answer it."""
    begin = time.monotonic()
    try:
        dtkv.Store()
    except dtkv.InvalidUse as error:
        check("a process has one store for its life" in str(error), error)
    else:
        raise AssertionError("a second store")
    check(time.monotonic() - begin < 1)
    dtkv.Store("local").close()


def main():
    check((kv.type, kv.num_workers) == ("dist_sync", 2))
    if sys.argv[1:]:
        return different_names(sys.argv[1:])
    kv.init({"sum": np.zeros(COUNT), "small": np.zeros(4)})
    kv.init({"w": np.zeros(8, "f4")})
    kv.init({"mean": np.zeros(2)}, auxiliary=True)
    kv.epoch_boundary(0)
    for part in (dropped_arrays, signals, interrupted, threads, timeouts, halves, mismatches, second_store):
        part()
        kv.barrier()
        print(f"{part.__name__}: well", flush=True)
    kv.close()
    second_store()


main()
