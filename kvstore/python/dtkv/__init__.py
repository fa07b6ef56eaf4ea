"""The kvstore of dtlaunch for programs in Python.

    import dtkv
    with dtkv.Store() as kv:                       # alone: a store of this process; under dtlaunch: the job's
        kv.init({"w": w})
        kv.set_optimizer("sgd momentum=0.9")
        for view in kv.epochs(10):                 # workers join and leave here
            kv.pull({"w": w})
            for step, (x, y) in enumerate(batches(view)):
                kv.pushpull({"w": gradient(w, x, y)}, {"w": w}, samples=len(x), step=step, learning_rate=0.1)

Arrays of numpy, PyTorch and others are sent from, and received into, their own memory (see dtkv.arrays). Nothing is
compiled: libdtkv is loaded when the first store is made. dtkv.torch is for PyTorch. `python3 -m dtkv` prints what is
found here.
"""

from ._library import ABI
from .arrays import bfloat16
from .errors import (
    Error,
    Fenced,
    Internal,
    InvalidUse,
    Leave,
    Mismatch,
    Nonfinite,
    Rollback,
    Timeout,
    Unavailable,
)
from .store import Handle, Store, View, version

__all__ = [
    "ABI",
    "Error",
    "Fenced",
    "Handle",
    "Internal",
    "InvalidUse",
    "Leave",
    "Mismatch",
    "Nonfinite",
    "Rollback",
    "Store",
    "Timeout",
    "Unavailable",
    "View",
    "bfloat16",
    "version",
]
