"""The kvstore for PyTorch: five lines in a training script, and workers join and leave at each epoch.

    import dtkv.torch as dt
    job = dt.Job(model, "sgd momentum=0.9 weight_decay=1e-4", lr=0.03)      # instead of torch.optim.SGD(...)
    loader = DataLoader(data, batch_sampler=job.batches(data, 64))
    for epoch in job.epochs(10):                                            # instead of range(10)
        for x, y in loader:
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            job.step(len(x))                                                # instead of optimizer.step(), zero_grad()

Job has its optimizer on the servers. Optimizer is for any of torch.optim, DDPState with ddp_hook for scripts that use
DistributedDataParallel: there every worker has the whole state, and newcomers get the lead's.
"""

try:
    import torch as _torch  # noqa: F401
except ImportError as error:
    raise ImportError("dtkv.torch needs PyTorch: install python3-torch, or torch by pip") from error

from .collectives import all_reduce, broadcast
from .ddp import DDPState, ddp_hook, init_process_group
from .elastic import own_data, take
from .job import Job
from .optimizer import Optimizer
from .sampler import Batches

__all__ = [
    "Batches",
    "DDPState",
    "Job",
    "Optimizer",
    "all_reduce",
    "broadcast",
    "ddp_hook",
    "init_process_group",
    "own_data",
    "take",
]
