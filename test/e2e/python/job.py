#!/usr/bin/python3
"""A worker with dtkv.torch.Job; options as elastic_worker's. Its log has a line for each begin and end of an epoch;
the end has the samples that the epoch used."""

import argparse
import json
import os
import time

import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

import dtkv.torch as dt

parser = argparse.ArgumentParser()
parser.add_argument("--log", required=True)
parser.add_argument("--epochs", type=int, required=True)
parser.add_argument("--steps-per-epoch", type=int, required=True)
parser.add_argument("--step-ms", type=float, required=True)
parser.add_argument("--processes", type=int, default=0, help="of the DataLoader")
options, _ = parser.parse_known_args()
log = open(options.log.replace("%i", os.environ["DT_WORKER_ID"]), "w", buffering=1)


def say(what, job, **facts):
    facts = {"epoch": job.epoch, "event": what, "world": job.world_size, "pid": os.getpid(), **facts}
    log.write(json.dumps(facts, separators=(",", ":")) + "\n")


def main():
    torch.manual_seed(1)
    torch.set_num_threads(1)
    count = 12 * options.steps_per_epoch + 3  # with BatchNorm a worker cannot have one of the last three
    data = TensorDataset(torch.randn(count, 8), torch.arange(count))
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 2))
    with dt.Job(model, "sgd momentum=0.9", lr=0.01) as job:
        mean, lead = job.state("mean", 0.0), job.state("lead", 0, reduce="lead")
        batches = job.batches(data, 6, global_batch=12, least=2)
        sequence = job.batches(count, 1, global_batch=7, steps=3)
        loader = DataLoader(data, batch_sampler=batches, num_workers=options.processes)
        for _ in job.epochs(options.epochs):
            say("begin", job)
            used, states, positions = [], [mean.item(), lead.item()], [sequence.position, 7 * 3 * job.epoch]
            assert len(list(sequence)) == 3
            for x, ids in loader:
                F.cross_entropy(model(x), ids % 2).backward()
                job.step(len(x))
                used += ids.tolist()
                job.report(used=len(used))
                mean += 1 / (len(batches) * (job.rank + 1))
                lead += 1 + 10 * job.rank
                time.sleep(options.step_ms / 1000)  # how long a step lasts, not a wait
            total = job.total(used=len(used))
            weights = sum(p.double().sum().item() for p in model.parameters())
            say("end", job, used=used, total=total["used"], count=count, weights=weights, states=states, positions=positions)


if __name__ == "__main__":
    main()
