#!/usr/bin/python3
"""A small network learns ten patterns under noise, with numpy alone; workers join and leave while it trains.

    python3 digits.py                                                      alone
    dtlaunch -n 2 -H hosts --elastic-training-enabled python3 digits.py    on two hosts, and more later

A step waits until --step-ms are over, as if a device computed: so more workers are faster on one machine, too.
"""
import argparse
import time

import numpy as np

import dtkv

TRAIN, TEST, BATCH, NOISE = 6000, 2000, 120, 6.5


def digits(count, seed):
    """So much noise that no network knows them at once."""
    patterns = np.random.default_rng(1).normal(size=(10, 784))
    random = np.random.default_rng(seed)
    labels = random.integers(0, 10, count)
    return (patterns[labels] / NOISE + random.normal(size=(count, 784))).astype("f4"), labels


def forward(w, x):
    hidden = np.maximum(x @ w["w1"] + w["b1"], 0)
    p = np.exp(hidden @ w["w2"] + w["b2"])
    return hidden, p / p.sum(1, keepdims=True)


def gradient(w, x, y):
    hidden, p = forward(w, x)
    p[np.arange(len(y)), y] -= 1
    p /= len(y)
    back = (p @ w["w2"].T) * (hidden > 0)
    return {"w1": x.T @ back, "b1": back.sum(0), "w2": hidden.T @ p, "b2": p.sum(0)}


def train(kv, view, w, x, y, step_s):
    """One epoch, in which each worker has its part of the samples; returns the samples a second of all workers."""
    order = np.random.default_rng(view.epoch).permutation(TRAIN)[view.rank :: view.num_workers]
    steps = TRAIN // (BATCH * view.num_workers)  # as many on all workers
    begin = time.monotonic()
    for step in range(steps):
        until = time.monotonic() + step_s
        mine = order[step * BATCH : (step + 1) * BATCH]
        g = gradient(w, x[mine], y[mine])
        time.sleep(max(0, until - time.monotonic()))
        kv.pushpull(g, w, samples=BATCH, step=view.epoch << 32 | step, learning_rate=0.01)
        kv.progress(view.epoch, step)
    return steps * BATCH * view.num_workers / (time.monotonic() - begin)


def main():
    parser = argparse.ArgumentParser(description="ten patterns under noise, elastic under dtlaunch")
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--step-ms", type=float, default=60, help="a step takes at least so long")
    options = parser.parse_args()
    (x, y), (test_x, test_y) = digits(TRAIN, 2), digits(TEST, 3)
    random = np.random.default_rng(1)
    w = {"w1": random.normal(size=(784, 64)) * 0.05, "b1": np.zeros(64), "w2": random.normal(size=(64, 10)) * 0.1,
         "b2": np.zeros(10)}
    w = {name: value.astype("f4") for name, value in w.items()}
    with dtkv.Store() as kv:
        kv.init(w)
        kv.set_optimizer("sgd momentum=0.9")
        if kv.is_lead and options.step_ms:
            print(f"each step waits until {options.step_ms:g} ms are over, as if a device computed (--step-ms)")
        for view in kv.epochs(options.epochs):  # workers join and leave here
            try:
                kv.pull(w)
                rate = train(kv, view, w, x, y, options.step_ms / 1000)
            except dtkv.Rollback:  # a server was lost: the epoch of the newest checkpoint comes again
                continue
            if kv.is_lead:
                accuracy = (forward(w, test_x)[1].argmax(1) == test_y).mean()
                kv.report(accuracy=accuracy)
                print(f"epoch {view.epoch}: accuracy {accuracy:.3f}, {view.num_workers} workers, {rate:.0f} samples/s")


if __name__ == "__main__":
    main()
