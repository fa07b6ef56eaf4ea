#!/usr/bin/python3
"""dttrain's LeNet in Python: the same names, weights, batches and steps.

    lenet.py --data DIR --load FILE.safetensors --save FILE.safetensors [--samples N] [--epochs N]
    lenet.py --make DIR        writes a small data set in MNIST's format
    lenet.py --compare A B     prints the largest difference of two safetensors files
"""

import argparse
import json
import pathlib
import struct

import numpy as np
import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

import dtkv.torch as dt


class LeNet(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = torch.nn.Conv2d(1, 20, 5)
        self.conv2 = torch.nn.Conv2d(20, 50, 5)
        self.fc1 = torch.nn.Linear(800, 500)
        self.fc2 = torch.nn.Linear(500, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        return self.fc2(F.relu(self.fc1(x.flatten(1))))


def read_safetensors(path):
    data = pathlib.Path(path).read_bytes()
    (size,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + size])
    header.pop("__metadata__", None)
    out = {}
    for name, one in header.items():
        begin, end = one["data_offsets"]
        array = np.frombuffer(data[8 + size + begin : 8 + size + end], {"F32": "<f4", "I64": "<i8"}[one["dtype"]])
        out[name] = torch.from_numpy(array.reshape(one["shape"]).copy())
    return out


def write_safetensors(path, tensors):
    header, blob = {}, b""
    for name, tensor in tensors.items():
        raw = tensor.detach().contiguous().numpy().tobytes()
        header[name] = {"dtype": "F32", "shape": list(tensor.shape), "data_offsets": [len(blob), len(blob) + len(raw)]}
        blob += raw
    text = json.dumps(header).encode()
    pathlib.Path(path).write_bytes(struct.pack("<Q", len(text)) + text + blob)


def make(folder):
    """Noise in which a bright row is the label."""
    random = np.random.default_rng(1)
    for name, count in (("train", 3200), ("t10k", 100)):
        labels = random.integers(0, 10, count, dtype=np.uint8)
        images = random.integers(0, 100, (count, 28, 28), dtype=np.uint8)
        images[np.arange(count), 2 * labels + 4] += 100
        head = struct.pack(">IIII", 0x803, count, 28, 28)
        pathlib.Path(folder, f"{name}-images-idx3-ubyte").write_bytes(head + images.tobytes())
        pathlib.Path(folder, f"{name}-labels-idx1-ubyte").write_bytes(struct.pack(">II", 0x801, count) + labels.tobytes())


def read_data(folder):
    images = pathlib.Path(folder, "train-images-idx3-ubyte").read_bytes()[16:]
    labels = pathlib.Path(folder, "train-labels-idx1-ubyte").read_bytes()[8:]
    mean, deviation = np.float32(0.1307), np.float32(0.3081)
    x = np.frombuffer(images, np.uint8).reshape(-1, 1, 28, 28).astype("f4")
    x = x * (np.float32(1) / (np.float32(255) * deviation)) - mean / deviation
    return TensorDataset(torch.from_numpy(x), torch.from_numpy(np.frombuffer(labels, np.uint8).astype("i8")))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data")
    parser.add_argument("--load")
    parser.add_argument("--save")
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--make")
    parser.add_argument("--compare", nargs=2)
    options = parser.parse_args()
    if options.make:
        return make(options.make)
    if options.compare:
        a, b = map(read_safetensors, options.compare)
        assert a.keys() == b.keys(), (a.keys(), b.keys())
        return print(max((a[name] - b[name]).abs().max().item() for name in a))
    torch.set_num_threads(1)
    model = LeNet()
    model.load_state_dict(read_safetensors(options.load))
    data = read_data(options.data)
    with dt.Job(model, "sgd momentum=0.9 weight_decay=0.0001", lr=0.03) as job:
        loader = DataLoader(data, batch_sampler=job.batches(data, 32, global_batch=64))
        for _ in job.epochs(options.epochs):
            for x, y in loader:
                F.cross_entropy(model(x), y).backward()
                job.step(len(x))
        write_safetensors(options.save.replace("%r", str(job.rank)), dict(model.named_parameters()))


main()
