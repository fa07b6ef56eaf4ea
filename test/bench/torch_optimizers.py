#!/usr/bin/env python3
"""Optimizer steps of kvstore/compute/cuda beside PyTorch's, over ResNet-50's 161 tensors: the values agree.

Both work on tensors of PyTorch's, in float32, each on a copy of its own, in turn, on one stream: our library
(liboptimizer_steps.so, test/bench/optimizer_steps.cpp) is called with their addresses. After a few steps of each they
are compared, element by element. How fast a step is, gpu_bench says.

Exit codes: 0 the values agree; 1 they differ, or something failed; 2 bad usage; 77 SKIPPED: without PyTorch or the
device.
"""
import argparse
import ctypes
import json
import math
import os
import sys

SKIPPED = 77
COMPARED_STEPS = 3
# Values differ by the order of roundings, a few units in the last place of a step.
ABSOLUTE, RELATIVE = 1e-6, 1e-5
HERE = os.path.dirname(os.path.abspath(__file__))


def resnet50():
    """Elements of each tensor, as torchvision has them."""
    sizes = []

    def convolution(inputs, outputs, kernel):
        sizes.extend([inputs * outputs * kernel * kernel, outputs, outputs])

    convolution(3, 64, 7)
    inputs = 64
    for stage, blocks in enumerate((3, 4, 6, 3)):
        for block in range(blocks):
            width = 64 << stage
            convolution(inputs, width, 1)
            convolution(width, width, 3)
            convolution(width, 4 * width, 1)
            if block == 0:
                convolution(inputs, 4 * width, 1)
            inputs = 4 * width
    return sizes + [inputs * 1000, 1000]


class Arrays(ctypes.Structure):
    _fields_ = [("values", ctypes.c_void_p), ("gradient", ctypes.c_void_p), ("first", ctypes.c_void_p),
                ("second", ctypes.c_void_p), ("elements", ctypes.c_uint64)]


def load(path):
    library = ctypes.CDLL(path)
    library.steps_why_not.restype = ctypes.c_char_p
    library.steps_make.restype = ctypes.c_void_p
    library.steps_make.argtypes = [ctypes.c_char_p, ctypes.c_int, ctypes.POINTER(Arrays), ctypes.c_uint64,
                                   ctypes.POINTER(ctypes.c_char_p)]
    library.steps_run.restype = ctypes.c_char_p
    library.steps_run.argtypes = [ctypes.c_void_p, ctypes.POINTER(ctypes.c_float), ctypes.c_void_p]
    library.steps_free.argtypes = [ctypes.c_void_p]
    return library


class Rule:
    """What a person sets, and what our kernel makes of it at step t, from 1."""

    def __init__(self, name, title, settings, constants):
        self.name, self.title, self.settings, self.constants = name, title, settings, constants


def sgd_constants(settings, _):
    return [settings["lr"], settings["momentum"], settings["weight_decay"]]


def adamw_constants(settings, t):
    (beta1, beta2), rate = settings["betas"], settings["lr"]
    return [1 - rate * settings["weight_decay"], beta1, 1 - beta1, beta2, 1 - beta2, rate / (1 - beta1**t),
            1 / math.sqrt(1 - beta2**t), settings["eps"]]


RULES = [
    Rule("sgd", "SGD-momentum", {"lr": 0.01, "momentum": 0.9, "weight_decay": 1e-4}, sgd_constants),
    Rule("adam", "AdamW", {"lr": 1e-3, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.01}, adamw_constants),
]


class Ours:
    name = "ours"

    def __init__(self, torch, library, rule, device, values, gradients):
        self.torch, self.library, self.rule, self.device = torch, library, rule, device
        self.values = values
        self.gradients = gradients  # stay alive
        self.first = [torch.zeros_like(v) for v in values]
        self.second = [torch.zeros_like(v) for v in values]
        arrays = (Arrays * len(values))(*[
            Arrays(v.data_ptr(), g.data_ptr(), m.data_ptr(), s.data_ptr() if rule.name == "adam" else None, v.numel())
            for v, g, m, s in zip(values, gradients, self.first, self.second)])
        self.t = 0
        error = ctypes.c_char_p()
        number = -1 if device.type == "cpu" else device.index
        self.steps = library.steps_make(rule.name.encode(), number, arrays, len(values), ctypes.byref(error))
        if not self.steps:
            raise RuntimeError(error.value.decode())

    def stream(self):
        return None if self.device.type == "cpu" else self.torch.cuda.current_stream(self.device).cuda_stream

    def step(self):
        self.t += 1
        constants = self.rule.constants(self.rule.settings, self.t)
        error = self.library.steps_run(self.steps, (ctypes.c_float * len(constants))(*constants), self.stream())
        if error:
            raise RuntimeError(error.decode())

    def close(self):
        self.library.steps_free(self.steps)


class Theirs:
    def __init__(self, torch, rule, how, values, gradients):
        self.name = how
        self.values = [torch.nn.Parameter(v) for v in values]
        for value, gradient in zip(self.values, gradients):
            value.grad = gradient
        optimizer = torch.optim.SGD if rule.name == "sgd" else torch.optim.AdamW
        self.optimizer = optimizer(self.values, **{how: True}, **rule.settings)

    def step(self):
        self.optimizer.step()

    def close(self):
        pass


def contenders(torch, library, rule, device, sizes):
    """Ours and each of PyTorch's that this version has, all on copies of the same values. And what it lacks."""
    generator = torch.Generator().manual_seed(1)
    values = [torch.randn(n, generator=generator) * 0.05 for n in sizes]
    gradients = [(torch.randn(n, generator=generator) * 0.01).to(device) for n in sizes]
    copies = lambda: [v.clone().to(device) for v in values]
    all_, lacking = [Ours(torch, library, rule, device, copies(), gradients)], []
    for how in ("foreach", "fused"):
        try:
            all_.append(Theirs(torch, rule, how, copies(), gradients))
        except (TypeError, RuntimeError) as error:  # this version, or this device, has it not
            lacking.append(f"{how}: {str(error).splitlines()[0]}")
    return all_, lacking


def difference(torch, ours, theirs):
    """The largest, in units of what is allowed."""
    worst = 0.0
    for a, b in zip(ours.values, theirs.values):
        b = b.detach()
        allowed = ABSOLUTE + RELATIVE * b.abs()
        found = float(((a - b).abs() / allowed).max())
        worst = found if math.isnan(found) else max(worst, found)
        if math.isnan(worst):
            break
    return worst


def compare(torch, library, rule, device, sizes):
    """What was found."""
    all_, lacking = contenders(torch, library, rule, device, sizes)
    with torch.no_grad():
        for _ in range(COMPARED_STEPS):
            for one in all_:
                one.step()
        differences = {one.name: difference(torch, all_[0], one) for one in all_[1:]}
    for one in all_:
        one.close()
    return {"rule": rule.title, "lacking": lacking,
            "peers": [{"peer": name, "difference": found, "agrees": found <= 1}
                      for name, found in differences.items()]}


def text_of(found):
    lines = [f"{found['rule']:<14}{peer['peer']:<9}" +
             ("values agree" if peer["agrees"] else
              f"VALUES DIFFER, {peer['difference']:.3g} times what is allowed") for peer in found["peers"]]
    return lines + [f"{found['rule']:<14}{lack}" for lack in found["lacking"]]


def parse(words):
    parser = argparse.ArgumentParser(prog="torch_optimizers.py", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda:0", help="cuda:N (cuda:0), or cpu: our host form")
    parser.add_argument("--shrink", type=int, default=1, help="tensors have 1/N of their elements (1)")
    parser.add_argument("--library", default=os.path.join(HERE, "liboptimizer_steps.so"),
                        help="ours (liboptimizer_steps.so beside this script)")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of lines")
    arguments = parser.parse_args(words)
    if arguments.shrink < 1:
        parser.error("--shrink is at least 1")
    return arguments


def skipped(why):
    print(f"torch_optimizers.py: SKIPPED: {why}", file=sys.stderr)
    return SKIPPED


def main(words):
    arguments = parse(words)
    try:
        import torch
    except ImportError as error:
        return skipped(f"{sys.executable} has no PyTorch: {error}")
    device = torch.device(arguments.device)
    if device.type == "cuda" and not torch.cuda.is_available():
        return skipped(f"PyTorch {torch.__version__} finds no CUDA device")
    try:
        library = load(arguments.library)
    except OSError as error:
        print(f"torch_optimizers.py: {error} (--library)", file=sys.stderr)
        return 1
    if device.type == "cuda":
        device = torch.device("cuda", device.index or 0)
        why = library.steps_why_not(device.index)
        if why:
            return skipped(why.decode())
        torch.cuda.set_device(device)
    sizes = [max(1, n // arguments.shrink) for n in resnet50()]
    try:
        all_ = [compare(torch, library, rule, device, sizes) for rule in RULES]
    except RuntimeError as error:
        print(f"torch_optimizers.py: {error}", file=sys.stderr)
        return 1
    peers = [peer for found in all_ for peer in found["peers"]]
    agree = all(peer["agrees"] for peer in peers)
    whole = {"torch": torch.__version__, "device": str(device), "tensors": len(sizes), "elements": sum(sizes),
             "rules": all_, "agree": agree}
    if arguments.json:
        print(json.dumps(whole, indent=1))
    else:
        name = torch.cuda.get_device_name(device) if device.type == "cuda" else "the CPU"
        print(f"PyTorch {torch.__version__}, {name}; {len(sizes)} tensors, {sum(sizes)} elements")
        for found in all_:
            print("\n".join(text_of(found)))
    return 0 if agree else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
