#!/usr/bin/python3
"""Softmax regression with numpy and the kvstore, without PyTorch; workers join and leave while it trains.

    python3 numpy_sgd.py                                                      alone
    dtlaunch -n 2 -H hosts --elastic-training-enabled python3 numpy_sgd.py    on two hosts, and more later
"""
import argparse

import numpy as np

import dtkv

COUNT, FEATURES, CLASSES, GLOBAL_BATCH = 6000, 20, 5, 60


def gradient(w, x, y):
    """Of the mean loss, shape (FEATURES, CLASSES); and the loss's sum over the samples."""
    scores = x @ w
    p = np.exp(scores - scores.max(1, keepdims=True))
    p /= p.sum(1, keepdims=True)
    loss = -np.log(p[np.arange(len(y)), y]).sum()
    p[np.arange(len(y)), y] -= 1
    return x.T @ p / max(len(y), 1), loss


def train(kv, view, w, x, y):
    """One epoch; returns the mean loss of all workers' samples. A step has GLOBAL_BATCH samples in any world."""
    order = np.random.default_rng(view.epoch).permutation(COUNT)  # the same on all workers
    total = 0.0
    for step, batch in enumerate(order.reshape(-1, GLOBAL_BATCH)):
        mine = np.array_split(batch, view.num_workers)[view.rank]
        g, loss = gradient(w, x[mine], y[mine])
        kv.pushpull("w", g, w, samples=len(mine), step=view.epoch << 32 | step, learning_rate=0.5)
        kv.progress(view.epoch, step)
        total += loss
    total = np.array([total], np.float64)
    kv.pushpull("loss", total, reduce="sum", step=view.epoch)
    return total[0] / COUNT


def main():
    parser = argparse.ArgumentParser(description="softmax regression, elastic under dtlaunch")
    parser.add_argument("--epochs", type=int, default=10)
    options = parser.parse_args()
    random = np.random.default_rng(1)
    x = random.normal(size=(COUNT, FEATURES)).astype("f4")
    y = (x @ random.normal(size=(FEATURES, CLASSES))).argmax(1)
    w = np.zeros((FEATURES, CLASSES), "f4")
    with dtkv.Store() as kv:
        kv.init({"w": w})
        kv.init({"loss": np.zeros(1)}, auxiliary=True)  # no optimizer: a sum over the workers
        kv.set_optimizer("sgd momentum=0.9")
        for view in kv.epochs(options.epochs):  # workers join and leave here
            try:
                kv.pull("w", w)
                loss = train(kv, view, w, x, y)
            except dtkv.Rollback:  # a server was lost: the epoch of the newest checkpoint comes again
                continue
            if kv.is_lead:
                kv.report(train_loss=loss)
                print(f"epoch {view.epoch}: loss {loss:.4f}, {view.num_workers} workers")


if __name__ == "__main__":
    main()
