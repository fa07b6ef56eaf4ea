#!/usr/bin/env python3
"""torch_optimizers.py without PyTorch, without a GPU, and on the CPU where PyTorch is: torch_optimizers_test.py LIBRARY

Without a LIBRARY (a sanitizer's cannot be loaded) nothing is computed.
"""
import json
import os
import subprocess
import sys
import tempfile

SCRIPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "torch_optimizers.py")


def run(words, code, python=sys.executable, folder=None):
    environment = dict(os.environ, CUDA_VISIBLE_DEVICES="")
    if folder:
        environment["PYTHONPATH"] = folder
    done = subprocess.run([python, SCRIPT, *words], env=environment, capture_output=True, text=True, timeout=100)
    assert done.returncode == code, (words, done.returncode, done.stdout, done.stderr)
    return done


def says(why, code, text, words=()):
    """With `text` for PyTorch it ends with `code` and one line that has `why`."""
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "torch.py"), "w", encoding="utf-8") as file:
            file.write(text)
        done = run(words, code, folder=folder)
    assert done.stdout == "" and done.stderr.count("\n") == 1, done
    assert why in done.stderr, done.stderr


def the_words_are_explained():
    assert "--shrink" in run(["--help"], 0).stdout
    run(["--shrink", "0"], 2)
    run(["--speed"], 2)


def what_is_missing_is_said():
    says("SKIPPED: " + sys.executable + " has no PyTorch: not here", 77, "raise ImportError('not here')")
    torch = """
__version__ = "9.9"
def device(name):
    class Device: type, index = name.split(":")[0], 0
    return Device
class cuda:
    def is_available(): return False
"""
    says("SKIPPED: PyTorch 9.9 finds no CUDA device", 77, torch)
    says("(--library)", 1, torch, ["--device", "cpu", "--library", "./no-such-library.so"])


def python_with_torch():
    look = "import importlib.util, sys; sys.exit(importlib.util.find_spec('torch') is None)"
    for python in (sys.executable, "/usr/bin/python3"):
        if os.path.exists(python) and subprocess.run([python, "-c", look], check=False).returncode == 0:
            return python
    return None


def both_compute_the_same(python, library):
    cpu = ["--device", "cpu", "--library", library, "--shrink", "1000"]
    found = json.loads(run([*cpu, "--json"], 0, python).stdout)
    assert found["tensors"] == 161 and found["agree"], found
    for rule in found["rules"]:
        foreach = rule["peers"][0]
        assert foreach["peer"] == "foreach" and foreach["agrees"], rule
    # A step with another decay is noticed.
    changed = ("import sys; sys.path.insert(0, sys.argv[1]); import torch_optimizers as t\n"
               "right = t.adamw_constants\n"
               "t.RULES[1].constants = lambda s, n: right(dict(s, weight_decay=0.02), n)\n"
               "sys.exit(t.main(sys.argv[2:]))")
    done = subprocess.run([python, "-c", changed, os.path.dirname(SCRIPT), *cpu], capture_output=True, text=True,
                          timeout=100, check=False)
    assert done.returncode == 1 and "VALUES DIFFER" in done.stdout and "values agree" in done.stdout, done


the_words_are_explained()
what_is_missing_is_said()
python = python_with_torch()
if python and len(sys.argv) > 1:
    both_compute_the_same(python, sys.argv[1])
