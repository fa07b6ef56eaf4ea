"""For PyTorch's own examples where there are no two GPUs: what they ask an accelerator for is done
by the CPU and gloo. Everything between processes, which is what is tried, is theirs."""

import types

import torch
import torch.distributed
import torch.nn.parallel

torch.accelerator = types.SimpleNamespace(
    is_available=lambda: True,
    device_count=lambda: 2,
    current_accelerator=lambda: torch.device("cpu"),
    set_device_index=lambda index: None,
)
torch.cuda.set_device = lambda device: None
torch.distributed.get_default_backend_for_device = lambda device: "gloo"

_init_process_group = torch.distributed.init_process_group


def init_process_group(backend=None, *words, **names):
    return _init_process_group("gloo", *words, **names)


torch.distributed.init_process_group = init_process_group


def _on_cpu(method):
    def to(self, device=None, *words, **names):
        return method(self, "cpu" if isinstance(device, int) else device, *words, **names)

    return to


torch.nn.Module.to = _on_cpu(torch.nn.Module.to)
torch.Tensor.to = _on_cpu(torch.Tensor.to)

_ddp_init = torch.nn.parallel.DistributedDataParallel.__init__


def _ddp(self, module, device_ids=None, **names):
    _ddp_init(self, module, **names)


torch.nn.parallel.DistributedDataParallel.__init__ = _ddp
