"""An optimizer of torch.optim in a job of several workers."""

from __future__ import annotations

from typing import Any, Callable, Dict, Optional

import torch

from .replicas import Replicas

_Base: Any = torch.optim.Optimizer


class Optimizer(Replicas, _Base):  # type: ignore[misc]
    """Trains `model` by `optimizer` with all workers of the job; a program that dtlaunch did not start trains alone.

    optimizer: any of torch.optim, or of its kind, with dense gradients. model: a torch.nn.Module; the optimizer's
    parameters are of float32, float64, float16 or bfloat16. The mean of the latter's gradients is computed in float32.

        optimizer = dt.Optimizer(torch.optim.Adam(model.parameters()), model)
        loader = DataLoader(data, batch_sampler=optimizer.batches(data, 64))
        for epoch in optimizer.epochs(10):
            for x, y in loader:
                optimizer.zero_grad()
                cross_entropy(model(x), y).backward()
                optimizer.step(samples=len(x))
            print(optimizer.total(right=right, seen=seen))

    It is a torch.optim.Optimizer: learning rate schedulers and GradScaler take it, and its param_groups and state_dict
    are the optimizer's own. A newcomer gets the lead's state of model and optimizer, and of what register() was given.
    After the loss of a server the epoch of the newest checkpoint comes again, with the state that it began with.
    One thread.
    """

    _step_supports_amp_scaling = True
    """GradScaler calls step() and leaves it to step() to look for infinities, which are to be found in the mean."""

    def __init__(self, optimizer: Any, model: Any, *, type: Optional[str] = None) -> None:  # noqa: A002
        self._is_mean = False
        Replicas.__init__(self, model, optimizer, type)

    # ---------------------------------------------------------------- the optimizer's own

    def __getattr__(self, name: str) -> Any:
        if "_optimizer" not in self.__dict__:
            raise AttributeError(name)
        return getattr(self._optimizer, name)

    @property
    def param_groups(self) -> Any:
        """The optimizer's."""
        return self._optimizer.param_groups

    @param_groups.setter
    def param_groups(self, groups: Any) -> None:
        self._optimizer.param_groups = groups

    @property
    def state(self) -> Any:
        """The optimizer's, by parameter."""
        return self._optimizer.state

    @state.setter
    def state(self, state: Any) -> None:
        self._optimizer.state = state

    @property
    def defaults(self) -> Any:
        """The optimizer's."""
        return self._optimizer.defaults

    def __repr__(self) -> str:
        return f"dtkv.torch.Optimizer({self._optimizer!r})"

    def __reduce__(self) -> Any:
        raise TypeError("an optimizer with a store cannot be copied or sent: use its state_dict()")

    def state_dict(self) -> Dict[str, Any]:
        """The optimizer's: for a checkpoint, which the lead writes."""
        state: Dict[str, Any] = self._optimizer.state_dict()
        return state

    def load_state_dict(self, state_dict: Dict[str, Any]) -> None:
        """Before epochs() the lead's call counts for all workers."""
        self._optimizer.load_state_dict(state_dict)

    def zero_grad(self, *arguments: Any, **options: Any) -> None:
        """The optimizer's."""
        self._optimizer.zero_grad(*arguments, **options)

    def add_param_group(self, param_group: Dict[str, Any]) -> None:
        """On all workers, between the same steps: the parameters take part from the next step on."""
        self._optimizer.add_param_group(param_group)
        self._copies.clear()  # of other groups
        with self._unless_servers_are_lost():
            self._create_keys(list(self._find_parameters()))

    # ---------------------------------------------------------------- steps

    def synchronize(self, samples: int = 1) -> None:
        """The gradients become the mean over all workers, for clipping before step(), which then does not exchange
        them. After the loss of a server it does nothing, as step()."""
        samples = self._check_step(samples)
        if self._is_lost:
            return
        with self._unless_servers_are_lost(), torch.no_grad():
            self._exchange(samples)
            self._is_mean = True

    def step(
        self, closure: Optional[Callable[[], Any]] = None, *, samples: int = 1, grad_scaler: Any = None
    ) -> Optional[Any]:
        """The optimizer's step with the mean gradient of all workers. `samples`: this worker's weight in the mean, the
        number of samples that its gradient is the mean of. `closure`: each of its calls is followed by an exchange of
        gradients and losses; the result is the mean loss. After the loss of a server it does nothing, and the batches
        end."""
        samples = self._check_step(samples)
        if closure is not None:
            return self._step_with(closure, samples)
        if not self._is_mean:
            is_unscaled = grad_scaler is not None and _is_unscaled(grad_scaler, self)
            self.synchronize(samples)
            if grad_scaler is not None and is_unscaled and not self._is_lost:
                self._report_infinities(grad_scaler)
        self._is_mean = False
        if self._is_lost:
            return None
        if grad_scaler is not None:
            if not _is_unscaled(grad_scaler, self):
                grad_scaler.unscale_(self)
            if any(found.item() for found in _infinities(grad_scaler, self)):
                return None
        return self._optimizer.step()

    def _step_with(self, closure: Callable[[], Any], samples: int) -> Optional[Any]:
        def mean_closure() -> Any:
            loss = closure()
            with torch.no_grad():
                self._exchange(samples, loss=float(loss))
                mean = self._mean_loss()
                return torch.full_like(loss, mean) if isinstance(loss, torch.Tensor) else mean

        if not self._is_lost:
            with self._unless_servers_are_lost():
                return self._optimizer.step(mean_closure)
        return None

    def _report_infinities(self, scaler: Any) -> None:
        """The scaler looked at this worker's gradients before another's infinities came into the mean."""
        gradients = [p.grad for p in self._parameters.values() if p.grad is not None]
        if not all(torch.isfinite(one).all() for one in gradients):
            for found in _infinities(scaler, self):
                found.fill_(1.0)

    def _begin_epoch(self) -> None:
        self._is_mean = False
        super()._begin_epoch()


def _is_unscaled(scaler: Any, optimizer: Optimizer) -> bool:
    return bool(scaler._per_optimizer_states[id(optimizer)]["stage"].name == "UNSCALED")


def _infinities(scaler: Any, optimizer: Optimizer) -> Any:
    return scaler._per_optimizer_states[id(optimizer)]["found_inf_per_device"].values()
