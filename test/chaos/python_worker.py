#!/usr/bin/python3
"""elastic_worker in Python, by dtkv.torch.Job: the same options that chaos uses, and the same lines of a log."""

import argparse
import json
import os
import time

import torch
import torch.nn.functional as F

import dtkv
import dtkv.torch as dt

parser = argparse.ArgumentParser()
parser.add_argument("--samples", type=int, required=True)
parser.add_argument("--batch", type=int, required=True)
parser.add_argument("--lr", type=float, required=True)
parser.add_argument("--steps-per-epoch", type=int, required=True)
parser.add_argument("--epochs", type=int, required=True)
parser.add_argument("--step-ms", type=float, default=0)
parser.add_argument("--log", default="")
options = parser.parse_args()

torch.set_num_threads(1)
torch.manual_seed(1)
X = torch.randn(options.samples, 8)
Y = (X[:, 0] > 0).long()
model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
job = dt.Job(model, "sgd momentum=0.9", lr=options.lr)
worker = job.store.worker_id
log = open(options.log.replace("%i", str(worker)), "w", buffering=1, encoding="utf-8") if options.log else None
at = {"epoch": 0, "rank": job.rank, "world": job.world_size}


def note(event, **facts):
    if log is not None:
        facts = {"t_ns": time.monotonic_ns(), "worker": worker, "event": event, **at, **facts}
        log.write(json.dumps(facts, separators=(",", ":")) + "\n")


def noted(pass_boundary):
    def boundary(epoch):
        note("boundary_enter", next=epoch)
        try:
            view = pass_boundary(epoch)
        except dtkv.Leave:
            note("boundary_leave", result="leave")
            raise
        at.update(epoch=view.epoch, rank=view.rank, world=view.num_workers)
        note("boundary_leave", result="rollback" if view.rolled_back else "ok", generation=view.generation)
        return view

    return boundary


def weights_hash():
    value = 0xCBF29CE484222325
    for p in model.parameters():
        for byte in p.detach().numpy().tobytes():
            value = (value ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return f"{value:016x}"


job.store.epoch_boundary = noted(job.store.epoch_boundary)
note("start", pid=os.getpid())
batches = job.batches(options.samples, options.batch)
for epoch in job.epochs(options.epochs):
    step = 0
    while step < options.steps_per_epoch and not job.interrupted:
        for ids in batches:
            begin = time.monotonic_ns()
            F.cross_entropy(model(X[ids]), Y[ids]).backward()
            job.step(len(ids))
            if job.interrupted:
                break
            time.sleep(max(0.0, options.step_ms / 1000 - (time.monotonic_ns() - begin) / 1e9))  # how long a step lasts, not a wait
            note("step", step=step, begin_ns=begin)
            step += 1
            if step == options.steps_per_epoch:
                break
    total = job.total(workers=1)
    if job.interrupted:
        note("servers_lost")
        continue
    job.store.pull({name: p.detach() for name, p in model.named_parameters()})
    with torch.no_grad():
        accuracy = (model(X).argmax(1) == Y).double().mean().item()
    print(f"Epoch[{epoch}] Validation-accuracy={accuracy:.4f} rank {job.rank} of {job.world_size}", flush=True)
    note("epoch", accuracy=round(accuracy, 4), hash=weights_hash())
if not job.left:
    note("end")
job.close()
