"""An optimizer of torch.optim in a job of several workers."""

from __future__ import annotations

import functools
from typing import Any, Callable, Dict, Optional

import torch

from ..errors import InvalidUse
from .early import Early
from .replica import Replica
from .replicas import Replicas, training_of

_Base: Any = torch.optim.Optimizer


class Optimizer(_Base):  # type: ignore[misc]
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
    are the optimizer's own. A newcomer gets the lead's state of model and optimizer, and of what register() was given;
    a GradScaler must be, for the mean is one of scaled gradients: a step that overflows on one worker is skipped on all.
    After the loss of a server the epoch of the newest checkpoint comes again, with the state that it began with.
    One thread.

    Under dtlaunch gradients leave while backward computes the rest; step() or synchronize() waits for their mean. All bits are those
    of overlap=False. `overlap`: None, where the program's steps fit (python.md says which do); True looks on for steps that
    fit; False never. `optimizer.overlap` says whether, and why not. `optimizer.samples`: for programs whose steps have another
    number of samples than their batches, set before backward.

    Several of them in a process, for the parts of a GAN, are one training: any of them has its epochs(), batches() and
    totals. Where two models have parameters of the same names, `name` tells them apart: dt.Optimizer(opt, D, name="D").
    """

    _step_supports_amp_scaling = True
    """GradScaler calls step() and leaves it to step() to look for infinities, which are to be found in the mean.
    step() must not name `grad_scaler`: PyTorch 2 takes that for the contract of PyTorch 1, and warns."""

    def __init__(
        self,
        optimizer: Any,
        model: Any,
        *,
        name: str = "",
        overlap: Optional[bool] = None,
        type: Optional[str] = None,  # noqa: A002
    ) -> None:
        self._optimizer = optimizer
        self._replica = Replica(model, optimizer, name)
        self._training = training_of(self._replica, type)
        self._early = Early(self._training, self._replica.model, overlap, self._training.store.type)
        self._replica.early = self._early

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

    @property
    def overlap(self) -> str:
        """Whether gradients leave in backward: "yes", or "no" and why."""
        return str(self._early)

    @property
    def samples(self) -> Optional[int]:
        """Of the next step: what its gradients say that leave before step() is called."""
        return self._early.samples

    @samples.setter
    def samples(self, samples: Optional[int]) -> None:
        self._early.samples = samples

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
        training = self._training
        if training._has_keys:
            with training._unless_servers_are_lost():
                training._follow_program()

    # ---------------------------------------------------------------- steps

    def synchronize(self, samples: int = 1) -> None:
        """The gradients become the mean over all workers, for clipping before step(), which then does not exchange
        them. With a GradScaler it comes before unscale_(). After the loss of a server it does nothing, as step()."""
        training = self._training
        samples = training._check_step(samples)
        if training._is_lost:
            self._early.end_step()
            return
        if training._scaler is not None and _is_unscaled(training._scaler, self):
            raise InvalidUse(
                "unscale_() before the mean over the workers, which may overflow elsewhere: call "
                "optimizer.synchronize(samples), then scaler.unscale_(optimizer)"
            )
        with training._unless_servers_are_lost(), torch.no_grad():
            training._exchange(self._replica, samples)
            self._replica.is_mean = True

    def step(
        self, closure: Optional[Callable[[], Any]] = None, *, samples: int = 1, **of_scaler: Any
    ) -> Optional[Any]:
        """The optimizer's step with the mean gradient of all workers. `samples`: this worker's weight in the mean, the
        number of samples that its gradient is the mean of. `closure`: each of its calls is followed by an exchange of
        gradients and losses; the result is the mean loss. After the loss of a server it does nothing, and the batches
        end. `of_scaler` is GradScaler's: scaler.step(optimizer, samples=len(x))."""
        training = self._training
        samples = training._check_step(samples)
        scaler = self._scaler_at_work(of_scaler)
        result = self._step_with(closure, samples) if closure is not None else self._step_once(scaler, samples)
        training._count_step()
        training._raise_refused()
        return result

    def _step_once(self, scaler: Any, samples: int) -> Optional[Any]:
        if not self._replica.is_mean:
            self.synchronize(samples)
        self._replica.is_mean = False
        if scaler is not None and not _is_unscaled(scaler, self):
            scaler.unscale_(self)
        training = self._training
        if training._is_lost or not training._has_samples or (scaler is not None and _has_overflowed(scaler, self)):
            return None
        return self._optimizer.step()

    def _scaler_at_work(self, of_scaler: Dict[str, Any]) -> Any:
        """The GradScaler whose step() this is, if any. PyTorch 1's gives itself, PyTorch 2's sets attributes."""
        is_scaled = of_scaler.pop("grad_scaler", None) is not None or "found_inf" in self.__dict__
        if of_scaler:
            raise TypeError(f"step() has no argument '{next(iter(of_scaler))}'")
        if not is_scaled:
            return None
        scaler = self._training._scaler
        if scaler is None or id(self) not in scaler._per_optimizer_states:
            raise InvalidUse(
                "this GradScaler is not registered, so newcomers would not get its scale: call "
                "optimizer.register(scaler=scaler) before epochs()"
            )
        return scaler

    def _step_with(self, closure: Callable[[], Any], samples: int) -> Optional[Any]:
        training = self._training
        self._early.stop("step() is given a closure")

        def mean_closure() -> Any:
            loss = closure()
            with torch.no_grad():
                training._exchange(self._replica, samples, loss=float(loss))
                mean = training._mean_loss()
                return torch.full_like(loss, mean) if isinstance(loss, torch.Tensor) else mean

        if not training._is_lost:
            with training._unless_servers_are_lost():
                return self._optimizer.step(mean_closure)
        return None

    # ---------------------------------------------------------------- the training's

    def __enter__(self) -> Optimizer:
        return self

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        self._training.__exit__(kind, error, traceback)


def _of_training(name: str) -> Any:
    """A method or an attribute of the training, by the optimizer."""
    found = getattr(Replicas, name, None)
    if found is None or isinstance(found, property):
        return property(lambda self: getattr(self._training, name), doc=getattr(found, "__doc__", None))

    @functools.wraps(found)
    def call(self: Optimizer, *arguments: Any, **options: Any) -> Any:
        return getattr(self._training, name)(*arguments, **options)

    return call


for _name in (
    *("batches", "close", "epochs", "eval_batches", "register", "report", "total"),
    *("epoch", "interrupted", "is_lead", "last_join_s", "left", "rank", "rolled_back", "store", "world_size"),
):
    setattr(Optimizer, _name, _of_training(_name))


def _is_unscaled(scaler: Any, optimizer: Optimizer) -> bool:
    state = scaler._per_optimizer_states.get(id(optimizer))
    return state is not None and bool(state["stage"].name == "UNSCALED")


def _has_overflowed(scaler: Any, optimizer: Optimizer) -> bool:
    found = scaler._per_optimizer_states[id(optimizer)]["found_inf_per_device"]
    return any(one.item() for one in found.values())
