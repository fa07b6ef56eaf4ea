"""A GradScaler for the CPU: PyTorch's own, or where it has none (before 2.3) the one for CUDA with kernels for the CPU."""

from unittest import mock

import torch


class _CudaScaler(torch.cuda.amp.GradScaler):
    """Its step(), stages and state are PyTorch's."""

    def __init__(self, **options):
        with mock.patch("torch.cuda.amp.grad_scaler.amp_definitely_not_available", lambda: False):
            super().__init__(**options)

    def scale(self, outputs):
        if not self.is_enabled():
            return outputs
        if self._scale is None:
            self._lazy_init_scale_growth_tracker(outputs.device)
        return outputs * self._scale[0]

    def _unscale_grads_(self, optimizer, inv_scale, found_inf, allow_fp16):
        for p in (p for group in optimizer.param_groups for p in group["params"] if p.grad is not None):
            if not torch.isfinite(p.grad).all():
                found_inf.fill_(1)
            p.grad.mul_(inv_scale)
        return {found_inf.device: found_inf}

    def update(self, new_scale=None):
        def update_scale(scale, tracker, found_inf, growth, backoff, interval):
            if found_inf.item():
                scale *= backoff
                tracker.zero_()
            else:
                tracker += 1
                if tracker.item() == interval:
                    scale *= growth
                    tracker.zero_()

        with mock.patch.object(torch, "_amp_update_scale_", update_scale):
            super().update(new_scale)


def cpu_scaler(**options):
    if hasattr(torch, "amp") and hasattr(torch.amp, "GradScaler"):
        return torch.amp.GradScaler("cpu", **options)
    return _CudaScaler(**options)
