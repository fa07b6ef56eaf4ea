#!/usr/bin/env python3
"""One training on random data in five ways, alone or under dtlaunch: how fast each is, and that they are equal.

Prints for each epoch RATE and, with --model small, LOSS; for the last epoch PART, what is not forward and backward
(the device is waited for between the two, so that epoch's rate is lower); in the end HASH, of all parameters.
"""
import argparse
import hashlib
import os
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn

SGD = {"lr": 0.01, "momentum": 0.9}


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--how", choices=["plain", "ddp", "l1", "l2", "l3"], required=True,
                        help="torch.optim alone, DistributedDataParallel alone, dt.Job, dt.Optimizer, dt.ddp_hook")
    parser.add_argument("--model", choices=["resnet50", "resnet14", "small"], default="resnet50",
                        help="small: exact arithmetic, the same in any world")
    parser.add_argument("--batch", type=int, default=64, help="of a worker; with small, of all workers")
    parser.add_argument("--steps", type=int, default=30, help="in an epoch")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--size", type=int, default=224, help="pixels of an image's edge")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--float32", action="store_true", help="not autocast to bfloat16")
    parser.add_argument("--contiguous", action="store_true", help="not channels_last")
    return parser.parse_args()


def convolution(inputs, outputs, kernel, stride=1):
    return [nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False), nn.BatchNorm2d(outputs)]


class Bottleneck(nn.Module):
    def __init__(self, inputs, width, stride):
        super().__init__()
        self.body = nn.Sequential(*convolution(inputs, width, 1), nn.ReLU(), *convolution(width, width, 3, stride),
                                  nn.ReLU(), *convolution(width, 4 * width, 1))
        same = stride == 1 and inputs == 4 * width
        self.shortcut = nn.Identity() if same else nn.Sequential(*convolution(inputs, 4 * width, 1, stride))

    def forward(self, x):
        return F.relu(self.body(x) + self.shortcut(x))


def resnet(blocks):
    """(3, 4, 6, 3): ResNet-50, 161 tensors of 25.6 million elements."""
    layers, inputs = [*convolution(3, 64, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1)], 64
    for stage, count in enumerate(blocks):
        for block in range(count):
            layers.append(Bottleneck(inputs, 64 << stage, 2 if stage and not block else 1))
            inputs = 256 << stage
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, 1000))


def small():
    """GroupNorm, not BatchNorm: an image's output does not depend on how batches are divided."""
    return nn.Sequential(nn.Conv2d(3, 32, 3), nn.GroupNorm(8, 32), nn.ReLU(), nn.Conv2d(32, 64, 3, stride=2),
                         nn.GroupNorm(8, 64), nn.ReLU(), nn.Flatten(), nn.Linear(64 * 14 * 14, 512), nn.ReLU(),
                         nn.Linear(512, 10))


class Training:
    """`run` trains; what differs between the ways is in `__init__` and `step`."""

    def __init__(self, words):
        self.words = words
        self.device = torch.device(words.device)
        self.is_small = words.model == "small"
        self.format = torch.contiguous_format if words.contiguous else torch.channels_last
        torch.manual_seed(0)
        torch.backends.cudnn.benchmark = not self.is_small
        torch.backends.cudnn.deterministic = self.is_small
        if self.is_small:
            torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
        blocks = {"resnet50": (3, 4, 6, 3), "resnet14": (1, 1, 1, 1)}
        made = small() if self.is_small else resnet(blocks[words.model])
        self.model = self.net = made.to(self.device).to(memory_format=self.format)
        self.job = self.optimizer = None
        self._prepare(words.how)
        self._make_data()

    def _prepare(self, how):
        if how in ("plain", "l2"):
            self.optimizer = torch.optim.SGD(self.model.parameters(), **SGD)
        if how == "plain":
            return
        if how == "ddp":
            import torch.distributed as dist
            dist.init_process_group("nccl" if self.device.type == "cuda" else "gloo", store=dist.HashStore(), rank=0,
                                    world_size=1)
            self.net = nn.parallel.DistributedDataParallel(self.model)
            self.optimizer = torch.optim.SGD(self.model.parameters(), **SGD)
            return
        import dtkv.torch as dt
        if how == "l1":
            self.job = dt.Job(self.model, "sgd momentum=0.9", lr=SGD["lr"])
        elif how == "l2":
            self.optimizer = self.job = dt.Optimizer(self.optimizer, self.model)
        else:
            dt.init_process_group()
            self.net = nn.parallel.DistributedDataParallel(self.model)
            self.optimizer = torch.optim.SGD(self.model.parameters(), **SGD)
            self.job = dt.DDPState(self.net, self.optimizer)
            self.net.register_comm_hook(self.job, dt.ddp_hook)

    def _make_data(self):
        words = self.words
        size, classes = (32, 10) if self.is_small else (words.size, 1000)
        count = words.steps if self.is_small else 4
        generator = torch.Generator().manual_seed(1)
        images = torch.randn(count * words.batch, 3, size, size, generator=generator)
        labels = torch.randint(0, classes, (len(images),), generator=generator)
        self.images = images.to(self.device).to(memory_format=self.format)
        self.labels = labels.to(self.device)
        self.order = None
        if self.is_small and self.job:
            self.order = self.job.batches(len(images), words.batch, global_batch=words.batch)
        elif self.is_small:  # as the only worker of a job has it
            from dtkv.torch.sampler import Batches, Now
            self.order = Batches(len(images), words.batch, lambda: Now(self.epoch, 0, 1), lambda: False,
                                 global_batch=words.batch)

    def batches(self):
        batch = self.words.batch
        if self.order is None:
            for step in range(self.words.steps):
                part = slice(step % 4 * batch, step % 4 * batch + batch)
                yield self.images[part], self.labels[part]
            return
        for indices in self.order:
            picked = torch.tensor(indices, device=self.device)
            yield self.images[picked], self.labels[picked]

    def wait(self):
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def step(self, images, labels, is_split):
        """Returns the loss, and the seconds of what is not forward and backward if is_split."""
        how, count = self.words.how, len(images)
        if how == "l3":
            self.job.samples = count
        if self.optimizer:
            self.optimizer.zero_grad()
        is_half = not (self.is_small or self.words.float32)
        with torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=is_half):
            loss = F.cross_entropy(self.net(images), labels)
        loss.backward()
        if is_split:
            self.wait()
        begin = time.perf_counter()
        if how == "l1":
            self.job.step(count)
        elif how == "l2":
            self.optimizer.step(samples=count)
        else:
            self.optimizer.step()
        if is_split:
            self.wait()
        return loss.detach(), time.perf_counter() - begin

    def run(self):
        who = f"{self.words.how} worker {os.environ.get('DT_WORKER_ID', '-')}"
        epochs = self.words.epochs
        for self.epoch in self.job.epochs(epochs) if self.job else range(epochs):
            is_last = self.epoch == epochs - 1
            rest, losses, samples = 0.0, [], 0
            self.wait()
            begin = time.perf_counter()
            for images, labels in self.batches():
                loss, seconds = self.step(images, labels, is_last)
                rest += seconds
                losses.append(loss * len(images))
                samples += len(images)
            self.wait()
            seconds = time.perf_counter() - begin
            world = self.job.world_size if self.job else 1
            a_step = 1e3 / max(1, len(losses))
            print(f"RATE {who} epoch {self.epoch} world {world}: {samples / seconds:.1f} samples/s, "
                  f"{a_step * seconds:.2f} ms a step", flush=True)
            if is_last:
                print(f"PART {who}: exchange and optimizer {a_step * rest:.2f} ms, forward and backward "
                      f"{a_step * (seconds - rest):.2f} ms", flush=True)
            if self.is_small:
                total = {"loss": float(sum(losses)), "samples": samples}
                total = self.job.total(**total) if self.job else total
                print(f"LOSS {who} epoch {self.epoch} world {world}: {total['loss'] / total['samples']:.4f}", flush=True)
        if self.job:
            self.job.close()
        if self.device.type == "cuda":
            print(f"PEAK {who}: {torch.cuda.max_memory_allocated(self.device) / 1e9:.2f} GB", flush=True)
        digest = hashlib.sha256()
        for name, tensor in self.model.named_parameters():
            if tensor.dim() == 4 and not tensor.is_contiguous(memory_format=self.format):
                sys.exit(f"{name} has the strides {tensor.stride()}, and had those of {self.format}")
            digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
        print(f"HASH {who}: {digest.hexdigest()[:16]}", flush=True)


if __name__ == "__main__":
    Training(parse()).run()
