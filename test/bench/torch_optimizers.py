#!/usr/bin/env python3
"""Fused optimizer steps of kvstore/compute/cuda beside PyTorch's, over ResNet-50's 161 tensors.

Both work on tensors of PyTorch's, in float32, each on a copy of its own, in turn, on one stream: our library
(liboptimizer_steps.so, test/bench/optimizer_steps.cpp) is called with their addresses. First a few steps of each are
compared, element by element. Then pairs of steps are timed by the stream's events:

  called  from the first launch to the last one's end, Python's own time included where the device waits for it
  queued  the same with all launches queued behind other work: the device's time alone

A ratio is the median of ours / PyTorch's over pairs: below 1 ours is faster.

Exit codes: 0 the values agree, and on a device ours is faster than each of PyTorch's in both ways; 1 they differ, or
something failed; 2 bad usage; 3 not faster; 77 SKIPPED: without PyTorch or the device.
"""
import argparse
import ctypes
import json
import math
import os
import statistics
import sys
import time

SKIPPED = 77
NOT_FASTER = 3
COMPARED_STEPS = 3
# Values differ by the order of roundings, a few units in the last place of a step.
ABSOLUTE, RELATIVE = 1e-6, 1e-5
# Long enough for a list of launches to be queued behind it; of the device's clock.
DELAY_CYCLES = 40_000_000
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
                                   ctypes.c_void_p, ctypes.POINTER(ctypes.c_char_p)]
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
        self.steps = library.steps_make(rule.name.encode(), number, arrays, len(values), self.stream(),
                                        ctypes.byref(error))
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


class Clock:
    """Times a step by events of the device, or by the host's clock where there is none."""

    def __init__(self, torch, device):
        self.torch, self.device = torch, device
        self.is_cuda = device.type == "cuda"
        if self.is_cuda:
            self.begin, self.end = (torch.cuda.Event(enable_timing=True) for _ in range(2))

    def milliseconds(self, step, queued):
        if not self.is_cuda:
            begin = time.perf_counter()
            step()
            return (time.perf_counter() - begin) * 1e3
        self.torch.cuda.synchronize(self.device)
        if queued:
            self.torch.cuda._sleep(DELAY_CYCLES)
        self.begin.record()
        step()
        self.end.record()
        self.end.synchronize()
        return self.begin.elapsed_time(self.end)


def measure(torch, device, all_, pairs, queued):
    """Milliseconds of each, in turn; whoever went first goes last."""
    clock = Clock(torch, device)
    for one in all_:
        for _ in range(3):
            one.step()
    times = {one.name: [] for one in all_}
    for pair in range(pairs):
        for i in range(len(all_)):
            one = all_[(i + pair) % len(all_)]
            times[one.name].append(clock.milliseconds(one.step, queued))
    return times


def compare(torch, library, rule, device, sizes, arguments):
    """Lines for people, and what was found."""
    all_, lacking = contenders(torch, library, rule, device, sizes)
    found = {"rule": rule.title, "peers": [], "lacking": lacking}
    with torch.no_grad():
        for _ in range(COMPARED_STEPS):
            for one in all_:
                one.step()
        differences = {one.name: difference(torch, all_[0], one) for one in all_[1:]}
        ways = ["called", "queued"] if device.type == "cuda" else ["called"]
        times = {way: measure(torch, device, all_, arguments.pairs, way == "queued") for way in ways}
    for one in all_[1:]:
        peer = {"peer": one.name, "difference": differences[one.name], "agrees": differences[one.name] <= 1}
        for way in ways:
            ours, theirs = times[way]["ours"], times[way][one.name]
            peer[way] = {"ours_ms": statistics.median(ours), "peer_ms": statistics.median(theirs),
                         "ratio": statistics.median(a / b for a, b in zip(ours, theirs))}
        found["peers"].append(peer)
    for one in all_:
        one.close()
    return found


def text_of(found):
    lines = []
    for peer in found["peers"]:
        line = f"{found['rule']:<14}{peer['peer']:<9}"
        for way in ("called", "queued"):
            if way in peer:
                figures = peer[way]
                line += (f"{way} {figures['ours_ms']:8.3f} ms to {figures['peer_ms']:8.3f} ms, ratio "
                         f"{figures['ratio']:.2f}   ")
        lines.append(line + ("values agree" if peer["agrees"] else
                             f"VALUES DIFFER, {peer['difference']:.3g} times what is allowed"))
    return lines + [f"{found['rule']:<14}{lack}" for lack in found["lacking"]]


def parse(words):
    parser = argparse.ArgumentParser(prog="torch_optimizers.py", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda:0", help="cuda:N (cuda:0), or cpu: our host form, which is not for speed")
    parser.add_argument("--pairs", type=int, default=15, help="steps of each that are timed, in turn (15)")
    parser.add_argument("--shrink", type=int, default=1, help="tensors have 1/N of their elements (1)")
    parser.add_argument("--library", default=os.path.join(HERE, "liboptimizer_steps.so"),
                        help="ours (liboptimizer_steps.so beside this script)")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of lines")
    arguments = parser.parse_args(words)
    if arguments.pairs < 1 or arguments.shrink < 1:
        parser.error("--pairs and --shrink are at least 1")
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
        all_ = [compare(torch, library, rule, device, sizes, arguments) for rule in RULES]
    except RuntimeError as error:
        print(f"torch_optimizers.py: {error}", file=sys.stderr)
        return 1
    peers = [peer for found in all_ for peer in found["peers"]]
    agree = all(peer["agrees"] for peer in peers)
    faster = all(peer[way]["ratio"] < 1 for peer in peers for way in ("called", "queued") if way in peer)
    whole = {"torch": torch.__version__, "device": str(device), "tensors": len(sizes), "elements": sum(sizes),
             "pairs": arguments.pairs, "rules": all_, "agree": agree,
             "faster": faster if device.type == "cuda" else None}
    if arguments.json:
        print(json.dumps(whole, indent=1))
    else:
        name = torch.cuda.get_device_name(device) if device.type == "cuda" else "the CPU, where times say nothing"
        print(f"PyTorch {torch.__version__}, {name}; {len(sizes)} tensors, {sum(sizes)} elements, medians of "
              f"{arguments.pairs} pairs")
        for found in all_:
            print("\n".join(text_of(found)))
    if not agree:
        return 1
    return 0 if faster or device.type != "cuda" else NOT_FASTER


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
