"""A training at one of the levels, with the same words for all of them. Also what tests do to compare trainings."""

import base64
import json
import os
import pathlib
import sys
import traceback

import torch
from torch.nn.parallel import DistributedDataParallel

import dtkv.torch as dt

LEVELS = ("L1", "async", "L2", "L3")
"""async: L1 with the store's type dist_async."""


def optimizer_of(level, net):
    """By torch what the level's workers or servers have."""
    trained = [p for p in net.parameters() if p.requires_grad]
    return torch.optim.Adam(trained, 0.01) if level == "L2" else torch.optim.SGD(trained, 0.05, momentum=0.9)


class Level:
    """`training` has the epochs and the batches, `model` is to be called, `optimizer` is the workers', if it is."""

    def __init__(self, level, net, has_unused=False):
        self.level, self.model, self.optimizer = level, net, None
        if level in ("L1", "async"):
            is_async = level == "async" and "DT_WORKER_ID" in os.environ
            self.training = dt.Job(net, "sgd momentum=0.9", lr=0.05, type="dist_async" if is_async else None)
            return
        self.optimizer = optimizer_of(level, net)
        if level == "L2":
            self.training = self.optimizer = dt.Optimizer(self.optimizer, net)
        else:
            dt.init_process_group()
            # gloo of PyTorch 1.13 has no bool.
            ignored = [name for name, b in net.named_buffers() if b.dtype == torch.bool]
            DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(net, ignored)
            self.model = DistributedDataParallel(net, find_unused_parameters=has_unused, broadcast_buffers=False)
            self.training = dt.DDPState(self.model, self.optimizer)
            self.model.register_comm_hook(self.training, dt.ddp_hook)

    def step(self, loss, samples):
        if self.level in ("L1", "async"):
            loss.backward()
            self.training.step(samples)
            return
        self.optimizer.zero_grad(set_to_none=True)
        if self.level == "L2":
            loss.backward()
            self.optimizer.step(samples=samples)
        else:
            self.training.samples = samples
            loss.backward()
            self.optimizer.step()


def packed(state):
    """A state_dict for JSON: type, shape, strides and bits of each name."""
    out = {}
    for name, value in state.items():
        value = value.detach()
        flat = value.contiguous().reshape(-1)
        bits = b"" if value.numel() == 0 else flat.view(torch.uint8).numpy().tobytes()
        strides = list(value.stride()) if value.numel() > 1 else []
        out[name] = [str(value.dtype)[len("torch.") :], list(value.shape), strides, base64.b64encode(bits).decode()]
    return out


def unpacked(state):
    out = {}
    for name, (dtype, shape, strides, text) in state.items():
        bits = bytearray(base64.b64decode(text))
        value = torch.zeros(shape, dtype=getattr(torch, dtype))
        if bits:
            value = torch.frombuffer(bits, dtype=value.dtype).reshape(shape)
        out[name] = torch.empty_strided(shape, strides, dtype=value.dtype).copy_(value) if strides else value
    return out


def differing(one, other, names=None):
    """The names, all or of `names`, whose packed values are not the same bits."""
    return sorted(n for n in one.keys() | other.keys() if (names is None or n in names) and one.get(n) != other.get(n))


def far(one, other):
    """The names whose packed values differ in type, shape or strides, or by more than 1e-6."""
    found = []
    for name in sorted(one.keys() | other.keys()):
        a, b = one.get(name), other.get(name)
        if a is None or b is None or a[:3] != b[:3]:
            found.append(f"{name} {a and a[:3]} for {b and b[:3]}")
            continue
        a, b = unpacked({name: a})[name], unpacked({name: b})[name]
        if not torch.allclose(a.double(), b.double(), rtol=1e-6, atol=1e-6):
            found.append(f"{name} by {(a.double() - b.double()).abs().max().item():.2g}")
    return found


def forked(folder, action, *arguments):
    """Calls action(*arguments, folder) in a process of its own; torch is imported once for all of them. The folder gets its
    exit status and output."""
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True)
    pid = os.fork()
    if pid == 0:
        status = 1
        with open(folder / "out", "w") as out:
            os.dup2(out.fileno(), 1)
            os.dup2(out.fileno(), 2)
        try:
            action(*arguments, str(folder))
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)
    (folder / "status").write_text(str(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])))


class Log:
    """JSON lines, of one worker."""

    def __init__(self, path):
        self.file = open(path, "w", buffering=1)

    def say(self, **facts):
        self.file.write(json.dumps(facts) + "\n")
