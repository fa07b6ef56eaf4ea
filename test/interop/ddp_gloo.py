"""A PyTorch script as anybody writes it for torchrun: DistributedDataParallel over gloo, found by
the environment (env://). It knows nothing of dtlaunch. Ends with 0 if the loss has fallen and all
ranks have the same weights."""

import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
assert (rank, world) == (int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))

torch.manual_seed(1)
inputs = torch.randn(96, 8)
targets = inputs @ torch.randn(8, 1)
mine = slice(rank, None, world)
model = DistributedDataParallel(torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.2)


def step():
    loss = torch.nn.functional.mse_loss(model(inputs[mine]), targets[mine])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


first = step()
for _ in range(40):
    last = step()
assert last < first / 100, (first, last)

weights = torch.cat([p.detach().flatten() for p in model.parameters()])
everyones = [torch.empty_like(weights) for _ in range(world)]
dist.all_gather(everyones, weights)
assert all(torch.equal(weights, other) for other in everyones)
print(f"rank {rank} of {world}: trained", flush=True)
dist.destroy_process_group()
