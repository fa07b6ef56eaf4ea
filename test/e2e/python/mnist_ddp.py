#!/usr/bin/python3
"""PyTorch's MNIST example with DistributedDataParallel, elastic by dt.ddp_hook, on digits that are made here; options
as elastic_worker's. Its log has a line for each begin and end of an epoch, which audit.py reads, with the accuracy."""

import argparse
import json
import os

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.optim.lr_scheduler import StepLR
from torch.utils.data import DataLoader, TensorDataset

import dtkv.torch as dt


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 8, 3, 1)
        self.conv2 = nn.Conv2d(8, 16, 3, 1)
        self.dropout1 = nn.Dropout(0.25)
        self.fc1 = nn.Linear(16 * 5 * 5, 32)
        self.fc2 = nn.Linear(32, 10)

    def forward(self, x):
        x = F.relu(self.conv1(x))
        x = F.relu(self.conv2(x))
        x = self.dropout1(F.max_pool2d(x, 2)).flatten(1)
        return F.log_softmax(self.fc2(F.relu(self.fc1(x))), dim=1)


def digits(count):
    """Noise of 14 x 14 in which a bright row is the label; and the number of the sample."""
    random = torch.Generator().manual_seed(1)
    images = torch.randn(count, 1, 14, 14, generator=random)
    labels = torch.randint(0, 10, (count,), generator=random)
    images[torch.arange(count), 0, labels + 2] += 1.5
    return TensorDataset(images, labels, torch.arange(count))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--log", required=True)
    parser.add_argument("--epochs", type=int, required=True)
    parser.add_argument("--steps-per-epoch", type=int, required=True)
    args, _ = parser.parse_known_args()
    log = open(args.log.replace("%i", os.environ["DT_WORKER_ID"]), "w", buffering=1)

    def say(facts):
        log.write(json.dumps(facts, separators=(",", ":")) + "\n")

    torch.set_num_threads(1)
    data = digits(60 * args.steps_per_epoch)

    dt.init_process_group()
    model = DDP(Net())
    optimizer = torch.optim.Adadelta(model.parameters(), lr=1.0)
    scheduler = StepLR(optimizer, step_size=1, gamma=0.98)
    kv = dt.DDPState(model, optimizer)
    kv.register(scheduler=scheduler)
    model.register_comm_hook(kv, dt.ddp_hook)
    loader = DataLoader(data, batch_sampler=kv.batches(data, 20, global_batch=60))
    for epoch in kv.epochs(args.epochs):
        say({"epoch": epoch, "event": "begin", "world": kv.world_size})
        model.train()
        right, used = 0, []
        for image, label, number in loader:
            kv.samples = len(image)
            optimizer.zero_grad()
            output = model(image)
            F.nll_loss(output, label).backward()
            optimizer.step()
            right += (output.argmax(1) == label).sum().item()
            used += number.tolist()
        scheduler.step()
        total = kv.total(right=right, total=len(used))
        facts = {"epoch": epoch, "event": "end", "world": kv.world_size, "used": used, **total, "count": len(data)}
        facts["weights"] = sum(p.double().sum().item() for p in model.parameters())
        facts["accuracy"] = total["right"] / max(total["total"], 1)
        say(facts)


if __name__ == "__main__":
    main()
