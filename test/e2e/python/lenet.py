#!/usr/bin/python3
"""dttrain's LeNet in Python: the same names, weights, batches and steps.

    lenet.py --data DIR --load FILE.safetensors --save FILE.safetensors [--epochs N] [--with-dttrain]

--with-dttrain: by the store alone, which is all that dttrain's workers know.
"""

import argparse

import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

import dtkv
import dtkv.torch as dt
from dtkv.torch.sampler import Now
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


SPEC, RATE = "sgd momentum=0.9 weight_decay=0.0001", 0.03


def train(model, data, epochs):
    """Returns the worker's rank."""
    with dt.Job(model, SPEC, RATE) as job:
        loader = DataLoader(data, batch_sampler=job.batches(data, 32, global_batch=64))
        for _ in job.epochs(epochs):
            for x, y in loader:
                F.cross_entropy(model(x), y).backward()
                job.step(len(x))
        return job.rank


def train_with_dttrain(model, data, epochs):
    parameters = dict(model.named_parameters())
    values = {name: p.detach() for name, p in parameters.items()}
    with dtkv.Store() as kv:
        kv.init(values)
        kv.set_optimizer(SPEC)
        for view in kv.epochs(epochs):
            kv.pull(values)
            now = Now(view.epoch, view.rank, view.num_workers)
            batches = dt.Batches(data, 32, lambda: now, lambda: False, global_batch=64)
            for step, (x, y) in enumerate(DataLoader(data, batch_sampler=batches)):
                model.zero_grad()
                F.cross_entropy(model(x), y).backward()
                gradients = {name: p.grad for name, p in parameters.items()}
                kv.pushpull(gradients, values, samples=len(x), step=view.epoch << 32 | step, learning_rate=RATE)
        return view.rank


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data")
    parser.add_argument("--load")
    parser.add_argument("--save")
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--with-dttrain", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    model = LeNet()
    model.load_state_dict({name: torch.from_numpy(array) for name, array in read_safetensors(options.load).items()})
    data = TensorDataset(*map(torch.from_numpy, read_data(options.data)))
    rank = (train_with_dttrain if options.with_dttrain else train)(model, data, options.epochs)
    weights = {name: parameter.detach().numpy() for name, parameter in model.named_parameters()}
    write_safetensors(options.save.replace("%r", str(rank)), weights)


main()
