"""The Python in the documents: README.md, packaging/doc, the docstrings of dtkv, and the manuals. Each snippet is completed
with what it takes for granted. document_test.py runs each of them alone, t2616-python-documents.sh in a job that grows and
shrinks. Only what runs a snippet imports PyTorch, which takes seconds.

Shell commands are none: python.md's L4 (--on-change restart) has no Python, and t1503 and t1504 run its commands.
"""

import ast
import inspect
import pathlib
import re
import textwrap
import warnings

import numpy as np

TOP = pathlib.Path(__file__).resolve().parents[3]
PACKAGE = TOP / "kvstore/python"

# ---------------------------------------------------------------- where they are


def after_change(diff):
    """The program that a diff leads to."""
    return "\n".join(line[2:] for line in diff.splitlines() if not line.startswith("-"))


def is_python(text):
    """Whether it is a program, also one whose last loop lacks its body; `scripts/test` is but an expression."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SyntaxWarning)  # a shell's backslash is none of Python's, and Python 3.12 says so
        for body in ("", "\n" + " " * 40 + "pass"):
            try:
                return not all(isinstance(one, ast.Expr) for one in ast.parse(text + body).body)
            except SyntaxError:
                pass
    return False


def indented(text):
    """The blocks that four spaces mark."""
    found = re.findall(r"(?:(?<=\n\n)|\A)((?: {4}.*\n|\n(?= {4}))+)", text + "\n")
    return [code for code in map(textwrap.dedent, found) if is_python(code)]


def of_markdown(path):
    text, found = path.read_text(encoding="utf-8"), []
    fence = re.compile(r"^```(\w*)\n(.*?)^```$", re.M | re.S)
    for match in fence.finditer(text):
        code = after_change(match[2]) if match[1] == "diff" else match[2]
        if match[1] == "python" or is_python(code):
            found.append(code)
    return found + indented(fence.sub("", text))


def of_manual(path):
    text = re.sub(r"\\\((aq|dq)", lambda match: {"aq": "'", "dq": '"'}[match[1]], path.read_text(encoding="utf-8"))
    blocks = re.findall(r"^\.(?:nf|EX)\n(.*?)^\.(?:fi|EE)$", text.replace(r"\-", "-").replace(r"\e", "\\"), re.M | re.S)
    return [code for code in map(textwrap.dedent, blocks) if is_python(code)]


def docstrings():
    """Name and text of each in the package."""
    for path in sorted(PACKAGE.glob("dtkv/**/*.py")):
        module = ".".join(path.relative_to(PACKAGE).with_suffix("").parts).replace(".__init__", "")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)):
                name = module if isinstance(node, ast.Module) else f"{module}.{node.name}"
                yield name, inspect.cleandoc(ast.get_docstring(node) or "")


def found():
    """All snippets by name, as they are written."""
    out = {}
    for path in [TOP / "README.md", PACKAGE / "README.md", *sorted(TOP.glob("packaging/doc/*.md"))]:
        of = "kvstore-" if path.parent == PACKAGE else ""
        out.update((f"{of}{path.name}-{n}", code) for n, code in enumerate(of_markdown(path), 1))
    for path in sorted(TOP.glob("packaging/man/*")):
        out.update((f"{path.name}-{n}", code) for n, code in enumerate(of_manual(path), 1))
    for name, text in docstrings():
        for n, code in enumerate(indented(text), 1):
            out[name if n == 1 else f"{name}-{n}"] = code
    return out


# ---------------------------------------------------------------- what they take for granted


def model_of_zeros():
    """Its loss is ln 2 before the first step."""
    import torch

    model = torch.nn.Linear(4, 2)
    for p in model.parameters():
        p.data.zero_()
    return model


WANTED = np.array([1, -1, 2, 0.5], np.float32)


def batches(view):
    """This worker's part of an epoch of 200 samples, in 5 batches."""
    x = np.random.default_rng(1).standard_normal((200, 4), np.float32)[view.rank :: view.num_workers]
    return [(part, part @ WANTED) for part in np.array_split(x, 5)]


def names():
    import torch
    import torch.nn.functional as F
    from torch.nn.parallel import DistributedDataParallel
    from torch.utils.data import DataLoader, TensorDataset

    import dtkv
    import dtkv.torch as dt

    x = torch.randn(200, 4, generator=torch.Generator().manual_seed(1))
    data = TensorDataset(x, (x[:, 0] > 0).long())
    return {
        "DDP": DistributedDataParallel,
        "DataLoader": DataLoader,
        "DistributedDataParallel": DistributedDataParallel,
        "F": F,
        "Job": dt.Job,
        "Net": model_of_zeros,
        "__name__": "__main__",
        "batches": batches,
        "cross_entropy": F.cross_entropy,
        "data": data,
        "dt": dt,
        "dtkv": dtkv,
        "gradient": lambda w, x, y: x.T @ (x @ w - y) / len(x),
        "model": model_of_zeros(),
        "np": np,
        "right": 3,
        "seen": 5,
        "stream": data,
        "test": data,
        "torch": torch,
        "w": np.zeros(4, np.float32),
    }


def learns(known):
    x, y = known["data"].tensors
    with known["torch"].no_grad():
        return known["cross_entropy"](known["model"](x), y).item() < 0.692


def approaches(known):
    return np.linalg.norm(known["w"] - WANTED) < np.linalg.norm(WANTED)


def has_means(known):
    """In a world of one the mean is 1, in a world of two 1.5."""
    return 0.5 < known["w"].min() and known["w"].max() < 2


def as_it_is(code):
    return code


def of_take(code):
    """It begins behind the Job and ends with an empty loop. Twenty batches of an epoch show what a thousand do."""
    body = "loss = F.cross_entropy(model(x), y)\nloss.backward()\njob.step(len(x))\n"
    job = 'job = dt.Job(model, "sgd momentum=0.9", lr=0.03)\n'
    return job + code.replace("1000", "20") + textwrap.indent(body, " " * 8)


def of_evaluation(code):
    """In each epoch, and after all of them as python.md says."""
    inner = textwrap.indent(code, " " * 4)
    return f"{found()['python.md-1']}\n{inner}\nif not job.left:\n{inner}"


SNIPPETS = {
    "README.md-1": (as_it_is, learns),
    "python.md-1": (as_it_is, learns),
    "python.md-2": (as_it_is, learns),
    "python.md-3": (as_it_is, learns),
    "python.md-4": (as_it_is, has_means),
    "python.md-5": (of_evaluation, learns),
    "dtkv": (as_it_is, approaches),
    "dtkv.torch": (as_it_is, learns),
    "dtkv.torch.ddp.DDPState": (as_it_is, learns),
    "dtkv.torch.elastic.take": (of_take, learns),
    "dtkv.torch.job.Job": (as_it_is, learns),
    "dtkv.torch.optimizer.Optimizer": (as_it_is, learns),
}
"""How each is completed, and what holds when it has run, also at a worker that was there for one epoch."""


def program(name):
    return SNIPPETS[name][0](found()[name])


def run(name, **others):
    """Runs it in this process; the names that it leaves."""
    code, known = program(name), {**names(), **others}
    exec(compile(code, name, "exec"), known)
    assert SNIPPETS[name][1](known), "it does not learn: " + code
    return known
