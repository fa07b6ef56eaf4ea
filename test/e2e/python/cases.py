"""Small programs that end with a dict of tensors, or in a sentence. A file of them calls main():

    FILE names                   of all its programs
    FILE run NAME FOLDER         a worker, or a program alone
    FILE alone FOLDER NAME...    each in a process of its own, without a job; the folder has one for each
    FILE check FOLDER...         a line for each folder's case, FILE/NAME: "CASE ok" or "CASE why it fails"
    FILE same FOLDER...          the same: FOLDER, alone, and FOLDER.job, a job of one worker, have equal bits or errors
"""

import os
import pathlib
import re
import sys

import torch

from dtkv.torch.layout import is_same
from levels import forked

CASES = {}
WORLD = 2


def add(name, function, says=None, goes_on=False):
    """says: the pattern of the sentence that a worker ends in; goes_on: it is one warning of each worker."""
    CASES[name] = function, says, goes_on


def case(says=None, goes_on=False):
    return lambda function: add(function.__name__, function, says, goes_on)


def worker():
    return int(os.environ.get("DT_WORKER_ID", 0))


def train(name):
    torch.manual_seed(7 + worker())
    torch.set_num_threads(1)
    return CASES[name][0]()


def run(name, folder):
    torch.save(train(name) or {}, f"{folder}/{os.environ.get('DT_WORKER_ID', 'alone')}.pt")


def error_of(out):
    """The last exception that a worker wrote."""
    out = re.sub(r"\(exit code \d+: (.*)\)$", r"\1", out, flags=re.M)  # dtlaunch's words around it
    return (re.findall(r"((?:\w+Error|dtkv\.\S+)(?:: .*)?)$", out, re.M) or [""])[-1]


def describe(value):
    return f"{value.flatten()[:4].tolist()} of {tuple(value.shape)}"


def check(folder, reference):
    """Why the program failed, or nothing. reference(NAME): what it is to end with, but for the keys "own..."."""
    name, status, out = folder.name, int((folder / "status").read_text()), (folder / "out").read_text()
    _, says, goes_on = CASES[name]
    times = len(re.findall(says, out)) if says else 0
    if status == 124 or (status != 0 and (goes_on or not times)) or (says and not times):
        return f"exit status {status}{f', and no /{says}/' if says else ''}: {error_of(out)}"
    if says and not goes_on:
        return None
    if times != (WORLD if goes_on else 0) or (not goes_on and "Warning: " in out):
        return "it warns: " + (re.findall(r".*Warning: .*", out) or [f"{times} times"])[0]
    found = [torch.load(path) for path in sorted(folder.glob("*.pt"))]
    if len(found) != WORLD:
        return f"{len(found)} workers came to the end"
    for key, value in found[0].items():
        if any(not torch.equal(one[key], value) for one in found):
            return f"{key} differs between workers"
        if not value.isfinite().all():
            return f"{key} is not finite"
    for key, value in reference(name).items():
        mine = found[0][key]
        is_near = mine.shape == value.shape and torch.allclose(mine.double(), value.double(), rtol=1e-6, atol=1e-6)
        if not is_near and not key.startswith("own"):
            return f"{key} is {describe(mine)}, and {describe(value)} by torch alone"
    return None


def same(alone, job):
    """How a program alone and as a job of one worker differ, or nothing."""
    said = [((one / "status").read_text().strip(), error_of((one / "out").read_text())) for one in (alone, job)]
    if said[0] != said[1]:
        return f"exit status and error: {said[0]} alone, {said[1]} as a job"
    files = [[path for path in sorted(one.iterdir()) if path.suffix in (".jsonl", ".pt")] for one in (alone, job)]
    if len(files[0]) != len(files[1]):
        return f"{len(files[0])} files alone, {len(files[1])} as a job"
    for mine, other in zip(*files):
        if mine.suffix == ".jsonl":
            if mine.read_bytes() != other.read_bytes():
                return f"{mine.name} has other bytes"
            continue
        ours, theirs = torch.load(mine), torch.load(other)
        for key, value in ours.items():
            if value.shape != theirs[key].shape or not is_same(value, theirs[key]):
                return f"{key} is {describe(value)} alone, {describe(theirs[key])} as a job"
    return None


def main(reference=lambda name: {}):
    kind = pathlib.Path(sys.argv[0]).stem
    what, *words = sys.argv[1:]
    if what == "names":
        print(*CASES)
    elif what == "run":
        run(*words)
    elif what == "alone":
        for name in words[1:]:
            forked(f"{words[0]}/{name}", run, name)
    elif what == "check":
        for folder in map(pathlib.Path, words):
            print(f"{kind}/{folder.name}", check(folder, reference) or "ok")
    elif what == "same":
        for alone in map(pathlib.Path, words):
            print(f"alone/{alone.name}", same(alone, pathlib.Path(f"{alone}.job")) or "ok")
