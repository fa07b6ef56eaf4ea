"""The exchange of dt.Optimizer: gradients leave in backward (see ahead), and step() waits for their means, which arrive beside
them: until then `.grad` is the worker's own.
"""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Set, Tuple

import torch

from ..errors import InvalidUse
from ..store import Arrays, Handle
from .ahead import Ahead, Step, divided
from .layout import shaped
from .parameter import rows_for


class _Place:
    """Where a parameter's gradient leaves, and its mean arrives."""

    def __init__(self, name: str, parameter: Any) -> None:
        self.name = name
        self.parameter = parameter
        self.row: Any = None
        """The gradient's elements, once there is such a place."""
        self.left: Optional[Tuple[Any, int]] = None
        """The gradient that left in backward, and its version."""

    @property
    def gradient(self) -> Any:
        """What the program has set: step() sends it."""
        return self.parameter.grad

    def collect(self) -> None:
        """Copies the gradient; zeros where there is none."""
        found = self.parameter.grad
        if found is not None and found.layout != torch.strided:
            raise TypeError(f"{self.name}: its gradient is sparse; the mean over workers is made of dense gradients")
        place = shaped(self.row, self.parameter)
        with torch.no_grad():
            if found is None:
                place.zero_()
            else:
                place.copy_(found.detach())

    @property
    def has_changed(self) -> bool:
        """Whether the program has changed what was collected in backward."""
        if self.left is None:
            return False
        found, version = self.left
        return self.parameter.grad is not found or found._version != version


class _Bucket:
    """Parameters whose gradients leave together."""

    def __init__(self, places: List[_Place]) -> None:
        self.places = places
        self.arrays = Arrays([one.name for one in places], [one.row for one in places], is_written=True)
        self.missing: Set[_Place] = set(places)
        """Those without a gradient of this step."""
        self.push: Optional[Handle] = None


class Early(Ahead):
    """Of one optimizer."""

    called = "optimizer"
    how_to_do_without = "dt.Optimizer(..., overlap=False)"

    def __init__(self, training: Any, model: Any, wanted: Optional[bool], type: str) -> None:  # noqa: A002
        self.samples: Optional[int] = None
        """Of the next step, as the program says."""
        self._places: List[_Place] = []
        self._buckets: List[_Bucket] = []
        self._bucket_of: Dict[int, _Bucket] = {}
        self._is_only = True
        super().__init__(training, model, wanted, type)

    def lay_out(self, parameters: Dict[str, Any], is_only: bool) -> None:
        """The optimizer has these parameters from now on. `is_only`: no other one trains in this process, whose backward would
        bring gradients to this one's model, too, that are not to leave."""
        self._is_only = is_only
        if not is_only and self._is_observing and not self._wanted:
            self._turn_off("several optimizers train")
        self._places = [_Place(name, p) for name, p in parameters.items()]
        self._buckets, self._bucket_of = [], {}
        self._watch(self._places)

    def _make_buckets(self, order: List[int]) -> None:
        in_store = [one for one in self._places if one.parameter.dtype != torch.bfloat16]  # which numpy has not
        rows = dict(zip(in_store, rows_for(self._training.store, [one.parameter for one in in_store])[0]))
        for one in self._places:
            p = one.parameter
            one.row = rows[one] if one in rows else torch.zeros(p.numel(), dtype=p.dtype, device=p.device)
        for numbers in divided([one.row for one in self._places], order):
            self._buckets.append(_Bucket([self._places[number] for number in numbers]))
            self._bucket_of.update(dict.fromkeys(numbers, self._buckets[-1]))

    def _samples(self) -> List[Optional[int]]:
        _, of_batch, *others = super()._samples()
        return [self.samples, of_batch if self._is_only else None, *others, 1]

    # ---------------------------------------------------------------- backward

    def _begin_sending(self) -> None:
        pass

    def _take_gradient(self, number: int) -> None:
        bucket, one = self._bucket_of[number], self._places[number]
        if bucket.push is not None:
            raise self.changed_after(one.name)
        one.collect()
        one.left = one.parameter.grad, one.parameter.grad._version
        bucket.missing.discard(one)
        if not bucket.missing:
            assert self._sent is not None
            self._send(bucket, self._sent)

    def _send(self, bucket: _Bucket, step: Step) -> None:
        bucket.arrays.follow_streams()
        bucket.push = self._training.store.pushpull_again(
            bucket.arrays, bucket.arrays, samples=step.samples, step=step.number, reduce="mean", wait=False
        )

    # ---------------------------------------------------------------- step()

    def exchange(self, step: Step) -> Optional[Tuple[Dict[str, Any], List[Handle]]]:
        """step() begins, and all gradients are as the program left them. Sends those that have not left. Returns the rows in which
        the means arrive, by name, and the pushes; None: the step is the caller's to make. Raises what went wrong in backward."""
        if self._error is not None:
            raise self._error
        if self._observed is not None and not self._observed.is_empty:
            self._judge(self._observed, step, is_rate_given=False)
            return None
        if not self._is_on:
            return None
        sent = self._sent or step
        if sent.number != step.number:
            raise InvalidUse("another step was made between backward and step(): " + self.how_to_do_without)
        for bucket in self._buckets:
            changed = [one for one in bucket.places if one in bucket.missing or one.has_changed]
            if bucket.push is None:
                for one in changed:
                    one.collect()
                self._send(bucket, sent)
            elif changed:
                raise self.changed_after(changed[0].name)
        if sent.samples != step.samples:
            self._left_otherwise(f"{step.samples} samples", str(sent.samples), "optimizer.samples", depth=6)
        return {one.name: one.row for one in self._places}, [bucket.push for bucket in self._buckets if bucket.push is not None]

    def end_step(self) -> None:
        """The means are the parameters', or the step has failed."""
        for bucket in self._buckets:
            bucket.push = None
            bucket.missing.update(bucket.places)
        for one in self._places:
            one.left = None
        self._forget_step()

    def check_ended(self) -> None:
        """InvalidUse: backward sent gradients, and no step() followed."""
        if any(bucket.push is not None for bucket in self._buckets):
            raise InvalidUse("backward sent gradients, and no step() followed: " + self.how_to_do_without)

    def stop(self, why: str) -> None:
        """From now on gradients leave in step() alone."""
        self.check_ended()
        self._turn_off(why)
        self._tell()
