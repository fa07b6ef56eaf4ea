"""The tensors of a model that no optimizer changes, and how all workers have them alike."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Sequence, Tuple

import numpy
import torch

from ..errors import InvalidUse
from ..store import Store
from .layout import plain, plain_names, take_words, words
from .transfer import Channel

_KEY = "dtkv.buffer."


class Buffers:
    """The buffers of models, by name, looked up whenever they are needed; and tensors of job.state().

    Statistics of batch normalisation (`running_mean` and `running_var` of a module that has both) and what was added as
    a mean become the mean of all workers, computed in float64: the mean of equal numbers is that number. Of all others,
    those that changed on any worker since the last exchange become the lead's, bit by bit. A change is another tensor,
    or another version of it: `buffer.data` has versions of its own, which are not seen.

    One key for each: float64 for a mean, else the bytes as int64.
    """

    def __init__(self) -> None:
        self._models: Dict[str, Any] = {}
        self._added: Dict[str, Tuple[Any, bool]] = {}
        self._seen: Dict[str, Tuple[Any, int]] = {}
        """Tensors and their versions at the last exchange."""

    def add_model(self, name: str, model: Any) -> None:
        """A model whose buffers' names begin with `name`."""
        self._models[name] = model

    def add(self, key: str, tensor: Any, is_mean: bool) -> None:
        """A tensor that is not the model's."""
        self._added[key] = (tensor, is_mean)

    def has(self, key: str) -> bool:
        """Whether it was added."""
        return key in self._added

    def added(self) -> Dict[str, Any]:
        """What was added, by key."""
        return {key: tensor for key, (tensor, _) in self._added.items()}

    def named(self) -> Dict[str, Any]:
        """The models', by name."""
        return {at + name: one for at, model in self._models.items() for name, one in plain(model.named_buffers()).items()}

    def arrays(self) -> Dict[str, Any]:
        """The present values, as the keys have them."""
        means, others = self._found()
        return {**_doubles(means), **{key: words(one) for key, one in others.items()}}

    def pull(self, store: Store) -> None:
        """All become what the keys have."""
        means, others = self._found()
        values = self.arrays()
        store.pull(values)
        self._take(means, values)
        for key, one in others.items():
            take_words(one, values[key])
        self._note(others)

    def note(self) -> None:
        """The present ones are equal on all workers."""
        self._note(self._found()[1])

    def _note(self, others: Dict[str, Any]) -> None:
        self._seen = {key: (one, one._version) for key, one in others.items()}

    def exchange(
        self, store: Store, channel: Channel, create: Callable[[str, Any, bool], None], step: int, mine: Sequence[int]
    ) -> List[int]:
        """All workers call it, and have them alike afterwards. `create` creates a key, once, which checkpoints have or not.
        Returns the sums of the numbers `mine` over the workers."""
        means, others = self._found()
        keys = sorted(others)
        counts = numpy.array([*mine, *(self._has_changed(key, others[key]) for key in keys)], numpy.int64)
        doubles, meeting = _doubles(means), f"dtkv.meeting.{len(keys)}"
        create(meeting, counts, False)
        for key, one in doubles.items():
            create(key, one, True)
        values = {meeting: counts, **doubles}
        store.pushpull(values, step=step)
        self._take(means, values)
        changed = {key: words(others[key]) for key, count in zip(keys, counts[len(mine) :]) if count}
        for key, one in changed.items():
            create(key, one, True)
        if changed:
            channel.share(changed)
        for key, one in changed.items():
            take_words(others[key], one)
        self._note(others)
        sums: List[int] = counts[: len(mine)].tolist()
        return sums

    # ----------------------------------------------------------------

    def _found(self) -> Tuple[Dict[str, Any], Dict[str, Any]]:
        """Those that become a mean, and the others, by key."""
        found: List[Tuple[str, Any, bool]] = [(key, one, is_mean) for key, (one, is_mean) in self._added.items()]
        for at, model in self._models.items():
            means = set()
            for path, module in model.named_modules():
                own = dict(module.named_buffers(recurse=False))
                pair = [f"{path}.{name}".lstrip(".") for name in ("running_mean", "running_var")]
                if all(name.rpartition(".")[2] in own for name in pair):
                    means.update(pair)
            named = dict(model.named_buffers())
            names = plain_names(named)
            found += [(_KEY + at + names[name], one, name in means) for name, one in named.items()]
        return (
            {key: one for key, one, is_mean in found if is_mean and one.is_floating_point()},
            {key: one for key, one, is_mean in found if not (is_mean and one.is_floating_point())},
        )

    def _has_changed(self, key: str, tensor: Any) -> bool:
        seen, version = self._seen.get(key, (None, 0))
        if seen is not None and seen.shape != tensor.shape:
            raise InvalidUse(
                f"{key.split('.', 2)[2]} has the shape {tuple(tensor.shape)} now, and had {tuple(seen.shape)}: a buffer keeps its "
                "size for the whole training"
            )
        return seen is not tensor or version != tensor._version

    @staticmethod
    def _take(means: Dict[str, Any], values: Dict[str, Any]) -> None:
        with torch.no_grad():
            for key, one in means.items():
                one.copy_(values[key].to(one.device).reshape(one.shape))


def _doubles(tensors: Dict[str, Any]) -> Dict[str, Any]:
    return {key: one.detach().double().contiguous() for key, one in tensors.items()}
