#!/usr/bin/python3
"""dttrain's LeNet in Python: the same names, weights, batches and steps.

    lenet.py --data DIR --load FILE.safetensors --save FILE.safetensors [--epochs N]
"""

import argparse

import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

import dtkv.torch as dt
from lenet_files import read_data, read_safetensors, write_safetensors


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


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data")
    parser.add_argument("--load")
    parser.add_argument("--save")
    parser.add_argument("--epochs", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(1)
    model = LeNet()
    model.load_state_dict({name: torch.from_numpy(array) for name, array in read_safetensors(options.load).items()})
    data = TensorDataset(*map(torch.from_numpy, read_data(options.data)))
    with dt.Job(model, "sgd momentum=0.9 weight_decay=0.0001", lr=0.03) as job:
        loader = DataLoader(data, batch_sampler=job.batches(data, 32, global_batch=64))
        for _ in job.epochs(options.epochs):
            for x, y in loader:
                F.cross_entropy(model(x), y).backward()
                job.step(len(x))
        weights = {name: parameter.detach().numpy() for name, parameter in model.named_parameters()}
        write_safetensors(options.save.replace("%r", str(job.rank)), weights)


main()
