#!/usr/bin/python3
"""LeNet on MNIST; workers join and leave while it trains. The lines with a + make it so.

    python3 mnist.py                                                      alone
    dtlaunch -n 2 -H hosts --elastic-training-enabled python3 mnist.py    on two hosts, and more later
"""
import argparse
import contextlib
import gzip
import os
import time

import numpy as np
import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

import dtkv
import dtkv.torch as dt  # +


def lenet():
    nn, relu, pool = torch.nn, torch.nn.ReLU(), torch.nn.MaxPool2d(2)
    layers = [nn.Conv2d(1, 20, 5), relu, pool, nn.Conv2d(20, 50, 5), relu, pool, nn.Flatten(), nn.Linear(800, 500)]
    return nn.Sequential(*layers, relu, nn.Linear(500, 10))


def read_idx(folder, name, skip):
    """The bytes of an idx file, plain or .gz, after its `skip` bytes of header."""
    path = os.path.join(folder, name)
    with open(path, "rb") if os.path.exists(path) else gzip.open(path + ".gz") as file:
        return np.frombuffer(file.read(), np.uint8)[skip:]


def digits(folder, part, count):
    """The first samples of a part of MNIST; without a folder: noise in which a bright row is the label."""
    if folder:
        images = read_idx(folder, f"{part}-images-idx3-ubyte", 16).reshape(-1, 1, 28, 28)[:count]
        labels = read_idx(folder, f"{part}-labels-idx1-ubyte", 8)[:count]
    else:
        random = np.random.default_rng(len(part))
        labels = random.integers(0, 10, count)
        images = random.integers(0, 100, (count, 1, 28, 28), np.uint8)
        images[np.arange(count), 0, 2 * labels + 4] += 100
    x = (torch.from_numpy(images.astype("f4")) / 255 - 0.1307) / 0.3081
    return TensorDataset(x, torch.from_numpy(labels.astype("i8")))


def save(path, job, model, epoch):
    """The weights and the servers' momentum; resume.py shows how to load them. By one worker, after total()."""
    job.store.pull(dict(model.named_parameters()))
    momentum = {name: torch.zeros_like(p) for name, p in model.named_parameters()}
    updates = job.store.pull_state(momentum, 1)
    saved = {"next_epoch": epoch + 1, "model": model.state_dict(), "states": [momentum], "updates": [updates]}
    torch.save(saved, path + ".new")
    os.replace(path + ".new", path)


def main():
    parser = argparse.ArgumentParser(description="LeNet on MNIST, elastic under dtlaunch")
    parser.add_argument("--data", help="folder of MNIST's idx files, plain or .gz; without it digits are made up")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--samples", type=int, default=60000, help="at most, for training and for the test")
    parser.add_argument("--step-ms", type=float, default=0, help="a step takes at least so long, as if a device computed")
    parser.add_argument("--save", metavar="FILE", help="written after each epoch")
    options = parser.parse_args()
    train, test = (digits(options.data, part, options.samples) for part in ("train", "t10k"))
    torch.manual_seed(1)
    model = lenet()
    job = dt.Job(model, "sgd momentum=0.9 weight_decay=1e-4", lr=0.03)  # +
    loader = DataLoader(train, batch_sampler=job.batches(train, 64))  # +
    test_loader = DataLoader(test, batch_sampler=job.eval_batches(test, 500))
    for epoch in job.epochs(options.epochs):  # +
        begin = time.monotonic()
        job.lr = 0.03 if epoch < options.epochs * 3 // 4 else 0.003
        for x, y in loader:
            until = time.monotonic() + options.step_ms / 1000
            F.cross_entropy(model(x), y).backward()
            time.sleep(max(0, until - time.monotonic()))
            job.step(len(x))  # +
        rate = f"{len(train) / (time.monotonic() - begin):.0f} samples/s"
        with torch.no_grad():
            right = job.total(right=sum((model(x).argmax(1) == y).sum().item() for x, y in test_loader))["right"]
        if job.is_lead and not job.interrupted:
            print(f"epoch {epoch}: accuracy {right / len(test):.4f}, {job.world_size} workers, {rate}")
        if job.is_lead and options.save:
            with contextlib.suppress(dtkv.Rollback):  # a server was lost: an epoch is run again
                save(options.save, job, model, epoch)


if __name__ == "__main__":
    main()
