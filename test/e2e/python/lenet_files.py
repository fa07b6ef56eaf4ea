#!/usr/bin/python3
"""The files of lenet.py: safetensors, and data sets in MNIST's format. It needs numpy alone.

    lenet_files.py --make DIR        writes a small data set
    lenet_files.py --compare A B     prints the largest difference of two safetensors files
"""

import argparse
import json
import pathlib
import struct

import numpy as np


def read_safetensors(path):
    data = pathlib.Path(path).read_bytes()
    (size,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + size])
    header.pop("__metadata__", None)
    out = {}
    for name, one in header.items():
        begin, end = one["data_offsets"]
        array = np.frombuffer(data[8 + size + begin : 8 + size + end], {"F32": "<f4", "I64": "<i8"}[one["dtype"]])
        out[name] = array.reshape(one["shape"]).copy()
    return out


def write_safetensors(path, arrays):
    header, blob = {}, b""
    for name, array in arrays.items():
        raw = np.ascontiguousarray(array, "<f4").tobytes()
        header[name] = {"dtype": "F32", "shape": list(array.shape), "data_offsets": [len(blob), len(blob) + len(raw)]}
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
    """Pictures and labels to train on, as dttrain normalizes them."""
    images = pathlib.Path(folder, "train-images-idx3-ubyte").read_bytes()[16:]
    labels = pathlib.Path(folder, "train-labels-idx1-ubyte").read_bytes()[8:]
    mean, deviation = np.float32(0.1307), np.float32(0.3081)
    x = np.frombuffer(images, np.uint8).reshape(-1, 1, 28, 28).astype("f4")
    x = x * (np.float32(1) / (np.float32(255) * deviation)) - mean / deviation
    return x, np.frombuffer(labels, np.uint8).astype("i8")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--make")
    parser.add_argument("--compare", nargs=2)
    options = parser.parse_args()
    if options.make:
        return make(options.make)
    a, b = map(read_safetensors, options.compare)
    assert a.keys() == b.keys(), (a.keys(), b.keys())
    print(max(np.abs(a[name] - b[name]).max() for name in a))


if __name__ == "__main__":
    main()
