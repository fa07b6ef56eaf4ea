#!/usr/bin/python3
"""A worker with dt.Optimizer, or with DDP and dt.ddp_hook; options as elastic_worker's. Its log has a line for each
begin and end of an epoch, which audit.py reads; `state` are checksums of all that newcomers get."""

import argparse
import json
import os
import time
import zlib

import torch
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset

import dtkv.torch as dt
from dtkv.torch.transfer import pack

parser = argparse.ArgumentParser()
parser.add_argument("--log", required=True)
parser.add_argument("--epochs", type=int, required=True)
parser.add_argument("--steps-per-epoch", type=int, required=True)
parser.add_argument("--step-ms", type=float, required=True)
parser.add_argument("--ddp", action="store_true")
options, _ = parser.parse_known_args()
me = int(os.environ["DT_WORKER_ID"])
log = open(options.log.replace("%i", str(me)), "w", buffering=1)


class Net(torch.nn.Module):
    """Its second branch is used on one worker only."""

    def __init__(self):
        super().__init__()
        self.body, self.norm = torch.nn.Linear(8, 64), torch.nn.BatchNorm1d(64)
        self.head, self.branch = torch.nn.Linear(64, 2), torch.nn.Linear(64, 2)
        self.large = torch.nn.Parameter(torch.randn(300_000))  # its state takes several rounds

    def forward(self, x, with_branch):
        x = self.body(x) + self.large[:64] * self.large[-64:]
        x = torch.relu(self.norm(x) if len(x) > 1 else x)
        return self.head(x) + self.branch(x) if with_branch else self.head(x)


def say(what, training, **facts):
    facts = {"epoch": training.epoch, "event": what, "world": training.world_size, "pid": os.getpid(), **facts}
    log.write(json.dumps(facts, separators=(",", ":")) + "\n")


def checksums(training):
    """Of the states of model, optimizer and scheduler."""
    return [zlib.crc32(pack(one)) for one in training._state().values()]


def main():
    torch.manual_seed(me)  # the lead's weights count
    torch.set_num_threads(1)
    count = 12 * options.steps_per_epoch + 1
    data = TensorDataset(torch.randn(count, 8, generator=torch.Generator().manual_seed(1)), torch.arange(count))
    model = Net()
    adam = torch.optim.Adam(model.parameters(), 0.01)
    if options.ddp:
        dt.init_process_group()
        model = DDP(model, find_unused_parameters=True, bucket_cap_mb=0.001)
        training, optimizer = dt.DDPState(model, adam), adam
        model.register_comm_hook(training, dt.ddp_hook)
    else:
        training = optimizer = dt.Optimizer(adam, model)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 50, 0.999)
    training.register(schedule=schedule)
    with training:
        loader = DataLoader(data, batch_sampler=training.batches(data, 6, global_batch=12))
        for _ in training.epochs(options.epochs):
            facts = {"rolled_back": training.rolled_back, "join_s": training.last_join_s}
            say("begin", training, state=checksums(training), **facts)
            used = []
            for x, ids in loader:
                training.samples = len(x)  # ddp_hook's
                optimizer.zero_grad()
                F.cross_entropy(model(x, training.rank == 1), ids % 2).backward()
                if options.ddp:
                    optimizer.step()
                else:
                    optimizer.step(samples=len(x))
                schedule.step()
                used += ids.tolist()
                time.sleep(options.step_ms / 1000)
            total = training.total(used=len(used))
            mean = dt.all_reduce(torch.tensor([1.0, me * 0.0]))
            assert training._is_lost or mean.tolist() == [1, 0], mean
            assert training._is_lost or dt.broadcast((training.epoch, "a")) == (training.epoch, "a")
            weights = sum(p.double().sum().item() for p in model.parameters())
            facts = {"used": used, "total": total["used"], "count": count, "weights": weights}
            say("end", training, state=checksums(training), **facts)


if __name__ == "__main__":
    main()
