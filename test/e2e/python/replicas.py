#!/usr/bin/python3
"""A worker with dt.Optimizer, or with DDP and dt.ddp_hook; options as elastic_worker's. Its log has a line for each
begin and end of an epoch, which audit.py reads; `state` are checksums of all that newcomers get.

--scaler: with a GradScaler, whose scale follows. Every ninth step's gradients are infinite on one worker, and worker 1 makes
one step fewer in each epoch."""

import argparse
import json
import math
import os
import sys
import time
import zlib

import torch
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset

import dtkv.torch as dt
from dtkv.torch.transfer import pack

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../../kvstore/python"))
from cpu_scaler import cpu_scaler  # noqa: E402

parser = argparse.ArgumentParser()
parser.add_argument("--log", required=True)
parser.add_argument("--epochs", type=int, required=True)
parser.add_argument("--steps-per-epoch", type=int, required=True)
parser.add_argument("--step-ms", type=float, required=True)
parser.add_argument("--ddp", action="store_true")
parser.add_argument("--scaler", action="store_true")
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
    return [zlib.crc32(pack(one)) for one in getattr(training, "_training", training)._state().values()]


def main():
    torch.manual_seed(me)  # the lead's weights count
    torch.set_num_threads(1)
    count = 12 * options.steps_per_epoch + 1
    data = TensorDataset(torch.randn(count, 8, generator=torch.Generator().manual_seed(1)), torch.arange(count))
    model = net = Net()
    adam = torch.optim.Adam(model.parameters(), 0.01)
    if options.ddp:
        dt.init_process_group()
        model = DDP(model, find_unused_parameters=True, bucket_cap_mb=0.001)
        training, optimizer = dt.DDPState(model, adam), adam
        model.register_comm_hook(training, dt.ddp_hook)
    else:
        training = optimizer = dt.Optimizer(adam, model)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 50, 0.999)
    scaler = cpu_scaler(init_scale=64.0, growth_interval=20, enabled=options.scaler)
    training.register(schedule=schedule, scaler=scaler)
    inner = getattr(training, "_training", training)
    with training:
        loader = DataLoader(data, batch_sampler=training.batches(data, 6, global_batch=12))
        sequence = training.batches(count, 1, global_batch=7, steps=3)
        for _ in training.epochs(options.epochs):
            facts = {"rolled_back": training.rolled_back, "join_s": training.last_join_s}
            say("begin", training, state=checksums(training), **facts)
            used, positions = [], [sequence.position, 7 * 3 * training.epoch]
            assert len(list(sequence)) == 3
            for step, (x, ids) in enumerate(loader, 1):
                used += ids.tolist()
                if options.scaler and training.rank == 1 and step == len(loader):
                    net.norm.num_batches_tracked += 1  # an integer, which has no mean
                    break
                training.samples = len(x)  # ddp_hook's
                optimizer.zero_grad()
                loss = F.cross_entropy(model(x, training.rank == 1), ids % 2)
                if options.scaler and step % 9 == 0 and training.rank == step // 9 % training.world_size:
                    loss = loss * math.inf
                scaler.scale(loss).backward()
                if options.ddp:
                    scaler.step(optimizer)
                else:
                    scaler.step(optimizer, samples=len(x))
                scaler.update()
                if not options.scaler:
                    schedule.step()
                time.sleep(options.step_ms / 1000)  # how long a step lasts, not a wait
            total = training.total(used=len(used))
            mean = dt.all_reduce(torch.tensor([1.0, me * 0.0]))
            assert inner._is_lost or mean.tolist() == [1, 0], mean
            assert inner._is_lost or dt.broadcast((training.epoch, "a")) == (training.epoch, "a")
            weights = sum(p.double().sum().item() for p in model.parameters())
            facts = {"used": used, "total": total["used"], "count": count, "weights": weights, "scale": scaler.get_scale()}
            say("end", training, state=checksums(training), positions=positions, **facts)


if __name__ == "__main__":
    main()
