"""The code in README.md and packaging/doc/python.md runs, on a store of this process.

Run by ctest with PYTHONPATH, DTKV_LIBRARY and DTKV_HEADER; by hand the same way.
"""

import os
import pathlib
import re
import textwrap
import traceback
import unittest

import numpy as np
import torch
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

import dtkv
import dtkv.torch as dt

TOP = pathlib.Path(os.environ["DTKV_HEADER"]).parents[1]


def after_change(diff):
    """The program that a diff leads to."""
    return "\n".join(line[2:] for line in diff.splitlines() if not line.startswith("-"))


def model_of_zeros():
    """Its loss is ln 2 before the first step."""
    model = torch.nn.Linear(4, 2)
    for p in model.parameters():
        p.data.zero_()
    return model


def names():
    """What the code takes for granted."""
    x = torch.randn(200, 4, generator=torch.Generator().manual_seed(1))
    data = TensorDataset(x, (x[:, 0] > 0).long())
    return {
        "DataLoader": DataLoader,
        "DistributedDataParallel": DistributedDataParallel,
        "F": F,
        "Net": model_of_zeros,
        "data": data,
        "dt": dt,
        "dtkv": dtkv,
        "model": model_of_zeros(),
        "np": np,
        "test": data,
        "torch": torch,
    }


class Documents(unittest.TestCase):
    def alone(self, function):
        """Runs it in a child: a process has one store."""
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                function()
                code = 0
            except BaseException:
                traceback.print_exc()
            os._exit(code)
        self.assertEqual(os.waitpid(pid, 0)[1], 0)

    def train(self, code, known):
        exec(compile(code, "document", "exec"), known)
        with torch.no_grad():
            x, y = known["data"].tensors
            self.assertLess(F.cross_entropy(known["model"](x), y).item(), 0.692, "it does not learn: " + code)

    def test_python_md(self):
        text = (TOP / "packaging/doc/python.md").read_text(encoding="utf-8")
        blocks = re.findall(r"```(diff|python)\n(.*?)```", text, flags=re.S)
        self.assertEqual([kind for kind, _ in blocks], ["diff"] + ["python"] * 4)
        five_lines, optimizer, ddp, store, evaluation = (code for _, code in blocks)
        self.assertEqual(len(re.findall(r"^\+", five_lines, flags=re.M)), 5)

        def job():
            known = names()
            self.train(after_change(five_lines), known)
            accuracy = []
            exec(compile(evaluation, "evaluation", "exec"), {**known, "print": accuracy.append})
            self.assertGreater(accuracy[0], 0.9)

        def numpy_alone():
            known = names()
            exec(compile(store, "store", "exec"), known)
            self.assertLess(abs(known["w"] - 1).max(), 0.5)

        self.alone(job)
        self.alone(lambda: self.train(optimizer, names()))
        self.alone(lambda: self.train(ddp, names()))
        self.alone(numpy_alone)

    def test_readme(self):
        text = (TOP / "README.md").read_text(encoding="utf-8")
        code = re.search(r"^((?:    .*\n)*    import dtkv\.torch.*\n(?:    .*\n)+)", text, flags=re.M)
        self.assertIsNotNone(code, "README.md does not begin with Python")
        self.alone(lambda: self.train("model = Net()\n" + textwrap.dedent(code[1]), names()))


if __name__ == "__main__":
    torch.set_num_threads(1)
    unittest.main()
