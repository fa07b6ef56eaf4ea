"""A model whose optimizer is on the job's servers."""

from __future__ import annotations

import contextlib
import numbers
import zlib
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

import numpy
import torch

from ..errors import InvalidUse, Mismatch, Nonfinite
from ..store import Arrays, Handle
from .ahead import Step
from .elastic import Elastic
from .layout import digests, flat, is_same, plain, shaped, signature
from .overlap import Overlap
from .parameter import Trained, count_writes, note, rows_for
from .transfer import pack, unpack

_NAMES = "dtkv.names"
"""The key of what _names_of_model() gives for the lead."""


class Job(Elastic):
    """Trains `model` with all workers of the job; a program that dtlaunch did not start trains alone.

    model: a torch.nn.Module of float32 or float64 parameters, on its device. optimizer: the servers' ("sgd momentum=0.9
    weight_decay=1e-4 nesterov=1", "adam", "adamw weight_decay=0.01"). lr: the learning rate, also `job.lr` later; it
    must be the same on all workers in each step.

        job = Job(model, "sgd momentum=0.9", lr=0.03)
        loader = DataLoader(data, batch_sampler=job.batches(data, 64))
        for epoch in job.epochs(10):
            for x, y in loader:
                loss = cross_entropy(model(x), y)
                loss.backward()
                job.step(len(x))
            print(job.total(right=right, seen=seen))

    Parameters that require a gradient are keys of the kvstore, by their names, from the first epochs() on: until then the
    program may load weights. Their values and gradients lie in the kvstore's memory. Later the servers have the weights;
    a write of the program is an error (through `parameter.data` it is not seen). Parameters may be frozen and unfrozen, and
    layers added, before an epoch's first step. Frozen ones and buffers are the lead's: see dtkv.torch.buffers. One
    thread, and one Job for each process of a job.

    Under dtlaunch gradients leave while backward computes the rest, and step() returns before the new weights are there: the
    next forward waits for each layer's when it comes to it, and so does whoever uses a parameter. All bits are those of
    overlap=False. `overlap`: None, where the program's steps fit (python.md says which do); True looks on for steps that fit;
    False never. `job.overlap` says whether, and why not.

    Attributes: samples, for programs whose steps have another number of samples than their batches: set before backward;
    epoch, the present one, from 0 on; left, whether this worker was removed; rolled_back, whether the epoch
    begins again after the loss of a server; store, the dtkv.Store.
    """

    def __init__(
        self,
        model: Any,
        optimizer: str,
        lr: float,
        *,
        overlap: Optional[bool] = None,
        type: Optional[str] = None,  # noqa: A002
    ) -> None:
        self.lr = lr
        self.samples: Optional[int] = None
        """Of the next step: what its gradients say that leave before step() is called."""
        self._is_accumulating = False
        self._parameters: Dict[str, Trained] = {}
        self._gradient_blocks: List[Any] = []
        """Tensors that together are all gradients."""
        self._arrays: Optional[Tuple[Arrays, Arrays]] = None
        """Gradients and values for pushpull_again()."""
        self._goes_ahead = False
        """Alone on a device: step() does not wait for it."""
        self._ahead: Optional[Handle] = None
        """The last step then."""
        self._unfrozen: Dict[str, Any] = {}
        """Rows of parameters that the program has unfrozen, as they were: a rollback to an earlier epoch needs them."""
        self._is_first = True
        trained = self._trained_of(plain(model.named_parameters()))
        super().__init__(type)
        self._model = model
        self._buffers.add_model("", model)
        self._is_async = self.store.type == "dist_async"
        self._overlap = Overlap(self, model, overlap, self.store.type)
        self._lay_out(trained)
        with self._unless_servers_are_lost():
            self.store.set_optimizer(optimizer)

    def step(self, samples: int, lr: Optional[float] = None) -> None:
        """Contributes the gradients since the last step, as the mean over `samples`, and returns with the new weights of
        the whole job's step, or with overlap before they are there; the gradients are zero then. Parameters without a
        gradient contribute zeros. After the loss of a server it does nothing, and the batches end. Nonfinite
        (--refuse-nonfinite): the step was made without the parts of this worker's gradients that were refused; with overlap
        the next step() may raise it, settle() or total()."""
        samples = self._check_step(samples)
        if self._is_accumulating:
            raise InvalidUse("step() inside accumulate(): call it after the last micro-batch's backward, outside")
        rate = float(self.lr if lr is None else lr)
        self._overlap.settle()
        with self._unless_servers_are_lost():
            if not self._is_lost:
                self._agree(None if self._is_async else rate)
                self._check_weights()
                self._overlap.look(Step(samples, self._step_number, rate), lr is not None)
        self._collect()
        try:
            with self._unless_servers_are_lost():
                self._exchange(samples, rate)
        finally:
            self._note_pull()
            self._step += 1
            if not self._overlap.is_under_way:
                self._zero_gradients()
            self._overlap.end_step()
            self._count_step()
        self._raise_refused()

    @property
    def overlap(self) -> str:
        """Whether gradients leave in backward: "yes", or "no" and why."""
        return str(self._overlap)

    def settle(self) -> None:
        """Returns when all parameters have the values of the last step: for a program that keeps an alias of one
        (`p.data`, a view of numpy), or measures time. Nonfinite: as step()."""
        self._overlap.settle()
        self._raise_refused()

    def state(self, name: str, value: Any, *, reduce: str = "mean") -> Any:
        """Registers a tensor or a number that all workers are to have alike, newcomers too, and returns it, a number as a
        tensor of one element. Each worker changes it in place during an epoch; after the epoch all have the mean ("mean";
        not for integers) or rank 0's ("lead"). On all workers, before epochs()."""
        if reduce not in ("mean", "lead"):
            raise ValueError(f'reduce is "mean" or "lead", not {reduce!r}')
        key = f"dtkv.state.{name}"
        if self._has_keys or self._buffers.has(key):
            raise InvalidUse(f"state({name!r}): {'after the first epoch' if self._has_keys else 'registered before'}")
        tensor = value
        if not isinstance(value, torch.Tensor):
            dtype = torch.int64 if isinstance(value, numbers.Integral) else torch.float64
            tensor = torch.tensor(value, dtype=dtype)
        if reduce == "mean" and not tensor.is_floating_point():
            raise TypeError(f'state({name!r}): integers have no mean: reduce="lead" keeps rank 0\'s')
        self._buffers.add(key, tensor, is_mean=reduce == "mean")
        return tensor

    def init_state(self, which: int, values: Mapping[str, Any], updates: Sequence[int]) -> None:
        """Sets the servers' optimizer state number `which` of each parameter (1: momentum or first moment; 2: second
        moment), as pull_state() of another job returned it. Before epochs(), on all workers; the model's weights are taken
        now."""
        self.settle()
        self._begin_keys()
        self.store.init_state({name: self._row(name, values[name]) for name in self._parameters}, which, updates=updates)

    def pull_state(self, which: int) -> Tuple[Dict[str, Any], List[int]]:
        """The servers' optimizer state number `which` of each parameter, by name, and the parameters' numbers of updates.
        After total(), or before epochs(): the model's weights are taken then."""
        self.settle()
        self._begin_keys()
        rows = {name: torch.zeros_like(one.row) for name, one in self._parameters.items()}
        updates = self.store.pull_state(rows, which)
        return {name: shaped(row, self._parameters[name].value).clone() for name, row in rows.items()}, updates

    @contextlib.contextmanager
    def accumulate(self) -> Iterator[None]:
        """Micro-batches: backward inside adds to the gradients and nothing is sent; the next step() outside sends the
        sum. Divide each loss by the number of micro-batches for a mean."""
        self._is_accumulating = True
        one = self._pass
        asked = 0 if one is None else one.asked
        try:
            yield
        finally:
            self._is_accumulating = False
            if one is not None:
                one.micro += max(1, one.asked - asked)

    # ---------------------------------------------------------------- parameters

    @staticmethod
    def _trained_of(parameters: Mapping[str, Any]) -> Dict[str, Any]:
        """Those that are to be trained, by name."""
        trained = {name: p for name, p in parameters.items() if p.requires_grad}
        for name, p in trained.items():
            if p.dtype not in (torch.float32, torch.float64):
                raise TypeError(f"{name}: parameters of type {p.dtype} are not supported; supported are float32 and float64")
        return trained

    def _all(self) -> Dict[str, Any]:
        """The model's parameters, by name."""
        return plain(self._model.named_parameters())

    def _frozen(self) -> Dict[str, Any]:
        return {name: p for name, p in self._all().items() if not p.requires_grad}

    def _lay_out(self, trained: Mapping[str, Any]) -> None:
        """Values and gradients become views of blocks, which on the CPU are the store's memory."""
        tensors = list(trained.values())
        rows, _ = rows_for(self.store, tensors)
        rows = [row if row.device.type == "cpu" else torch.empty_like(row) for row in rows]  # each in a file without others
        gradient_rows, blocks = rows_for(self.store, tensors)
        self._gradient_blocks += blocks
        for (name, p), *places in zip(trained.items(), rows, gradient_rows):
            self._parameters[name] = Trained(name, p, *places)
        self._arrays = None
        self._of_model = [one.parameter for one in self._parameters.values()]
        self._note_pull(is_pulled=False)
        self._overlap.lay_out(list(self._parameters.values()))

    def _row(self, name: str, values: Any) -> Any:
        """An array of a parameter's shape, in the order of its memory."""
        tensor = torch.as_tensor(values)
        like = self._parameters[name].value
        return flat(torch.empty_like(like, dtype=tensor.dtype).copy_(tensor.reshape(like.shape)))

    def _zero_gradients(self) -> None:
        for block in self._gradient_blocks:
            block.zero_()

    def _collect(self) -> None:
        """The gradients are in their places."""
        for one in self._parameters.values():
            if one.has_moved:
                raise InvalidUse(f"{one.name} moved: make the Job after .to(), .half() and the like")
        for one in self._parameters.values():
            one.collect()

    # ---------------------------------------------------------------- the program's changes

    def _changes(self) -> Tuple[Dict[str, Any], List[str]]:
        """Parameters that are to be trained from now on, and names of those that are not any more. InvalidUse: one was
        replaced."""
        present = self._all()
        for name, one in self._parameters.items():
            if present.get(name) is not one.parameter:
                raise InvalidUse(f"{name} was replaced in the model: make the Job after the model is complete")
        trained = self._trained_of(present)
        new = {name: p for name, p in trained.items() if name not in self._parameters}
        return new, [name for name in self._parameters if name not in trained]

    def _follow_program(self) -> None:
        new, gone = self._changes()
        if not new and not gone:
            return
        self._check_weights(but=gone)
        before = {name: flat(p).clone() for name, p in new.items()}
        self._unfrozen.update(before)
        gradients = {name: p.grad for name, p in new.items()}  # of this step's backward
        self._retrain(new, gone)
        for name, gradient in gradients.items():
            new[name].grad = gradient
        for name, row in before.items():
            if self.is_lead and not is_same(row, self._parameters[name].row):
                raise InvalidUse(f"{name} was changed by the program while it was frozen: the servers have its weights")
        key = self._roll_key()
        keys = {key: torch.from_numpy(self._roll()), _NAMES: torch.tensor(self._names_of_model())}
        self._create(key, keys[key], is_kept=True)
        self._channel.share(keys)

    def _replace(self, new: Mapping[str, Any], gone: Sequence[str]) -> None:
        for name in gone:
            self._parameters.pop(name).parameter.grad = None
        self._lay_out(new)

    def _retrain(self, new: Mapping[str, Any], gone: Sequence[str]) -> None:
        """Makes the new ones keys, with the lead's values, and forgets the others."""
        self._replace(new, gone)
        if new:
            rows = {name: self._parameters[name].row for name in new}
            self.store.init(rows)
            self.store.pull(rows)
        self._note_pull()

    def _check_program(self) -> None:
        self._overlap.check_ended()
        new, gone = self._changes()
        for name in [*new, *gone]:
            word = "frozen" if name in gone else "unfrozen or added"
            raise InvalidUse(f"{name} was {word} in the middle of epoch {self.epoch}: do it before the epoch's first step")

    def _check_weights(self, but: Sequence[str] = ()) -> None:
        """InvalidUse: the program has changed weights, which the servers have."""
        written = [one for one in self._parameters.values() if one.is_written]
        for one in written:
            if one.name in but:
                continue
            row = torch.zeros_like(one.row)
            if not self._is_async:
                self.store.pull(one.name, row)
            if self._is_async or not is_same(row, one.row):
                raise InvalidUse(
                    f"{one.name} was changed by the program (load_state_dict, clamp_, ...): with dt.Job the servers have "
                    "the weights; use dt.Optimizer, or change it before epochs()"
                )
        note(written)

    def _are_weights_changed(self) -> bool:
        try:
            self._check_weights()
        except InvalidUse:
            return True
        return False

    def _roll(self) -> Any:
        """Of each parameter of the model, in the names' order: 1 and a checksum of its layout, or, if it is frozen, 0 and a
        digest of its values."""
        present = self._all()
        frozen = digests({name: p for name, p in present.items() if name not in self._parameters})
        pairs = [(0, frozen[n]) if n in frozen else (1, signature(n, self._parameters[n].value)) for n in sorted(present)]
        return numpy.array(pairs, numpy.int64).reshape(-1)

    def _roll_by_name(self, roll: Any) -> Dict[str, List[int]]:
        return dict(zip(sorted(self._all()), roll.reshape(-1, 2).tolist()))

    def _servers_roll(self) -> Dict[str, List[int]]:
        names = numpy.zeros(2, numpy.int64)
        self.store.pull(_NAMES, names)
        count = self._names_of_model()[1]
        if names.tolist() != self._names_of_model():
            raise Mismatch(f"the lead's model has other parameters ({names[1]}) than this worker's ({count})")
        roll = numpy.zeros(2 * count, numpy.int64)
        self.store.pull(self._roll_key(), roll)
        return self._roll_by_name(roll)

    def _names_of_model(self) -> List[int]:
        """A checksum of the parameters' names, and their number."""
        names = sorted(self._all())
        return [zlib.crc32(" ".join(names).encode()), len(names)]

    def _roll_key(self) -> str:
        """For the present names."""
        return f"dtkv.parameters.{self._names_of_model()[0]:x}"

    # ---------------------------------------------------------------- epochs

    _how_to_step = "write loss.backward(); job.step(len(x)) instead of optimizer.step()"

    def _trained(self) -> List[Any]:
        return self._of_model

    def _local(self) -> Dict[str, Any]:
        return self._frozen()

    def _to_train(self) -> Dict[str, Any]:
        return self._trained_of(self._all())

    def _train_as(self, roll: Mapping[str, List[int]]) -> None:
        """Freezes and unfreezes what the servers' roll has so."""
        for name, p in self._all().items():
            p.requires_grad_(bool(roll[name][0]))
        new, gone = self._changes()
        self._retrain(new, gone)
        with torch.no_grad():
            for name, p in self._frozen().items():
                if name in gone and name in self._unfrozen:
                    p.copy_(shaped(self._unfrozen[name], p))

    def _make_keys(self) -> None:
        if self.rolled_back:  # what was unfrozen later is no key again
            self._train_as(self._servers_roll())
        self._replace(*self._changes())
        self.store.init({name: one.row for name, one in self._parameters.items()})
        names = numpy.array(self._names_of_model(), numpy.int64)
        self.store.init({**self._buffers.arrays(), self._roll_key(): self._roll(), _NAMES: names}, auxiliary=True)

    def _begin_epoch(self, is_changed: bool) -> None:
        wanted: List[str] = []
        if self._is_first or self.rolled_back:
            wanted = self._take_all()
            self._is_first = False
        else:
            self._check_weights()
        if is_changed and self.world_size > 1 and self._channel.any(bool(wanted)):
            received = self._channel.broadcast(lambda: pack(self._frozen()))
            with torch.no_grad():
                for name, p in self._frozen().items():
                    if name in wanted and received is not None:
                        p.copy_(unpack(received)[name])

    def _take_all(self) -> List[str]:
        """Takes the servers' weights and buffers. Returns the names of frozen parameters that differ from the lead's."""
        found = self._servers_roll()
        if not self.rolled_back and (self.epoch > 0 or self.store.is_newcomer):
            self._train_as(found)
        if self.rolled_back:
            self._zero_gradients()
        self._pull()
        self._buffers.pull(self.store)
        mine = self._roll_by_name(self._roll())
        differ = [name for name in found if mine[name] != found[name]]
        for name in differ:
            if mine[name][0] or found[name][0]:
                raise Mismatch(f"{name} has another shape, other strides or another type than the lead's, or is frozen here alone")
            if self.is_lead:
                raise InvalidUse(f"{name} is frozen, and differs from what the training began with: load the same weights")
        return differ

    def _settle(self, is_final: bool) -> None:
        self._overlap.settle()
        one = self._pass
        if is_final or (one is not None and one.given == 0):  # fewer samples than workers
            self._finish_steps()

    def _may_share(self) -> bool:
        """A worker that has skipped batches may owe steps, which the others wait for until it has finished."""
        one = self._pass
        if one is None or one.given == 0 or self._is_async:
            return True
        return one.steps > 0 and (one.steps % one.given == 0 or one.steps + one.micro == one.given)

    def _refresh(self) -> None:
        if self._has_finished_steps or self._is_async:
            self._check_weights()
            self._pull()

    def _exchange(self, samples: int, rate: float) -> None:
        if self._is_lost:
            return
        step = Step(samples, self._step_number, rate)
        if self._overlap.exchange(step):
            self._arrays = None
        else:
            self._exchange_now(step)
        self.store.progress(self.epoch, self._step)

    def _exchange_now(self, step: Step) -> None:
        """Sends all gradients and waits for all values."""
        if self._arrays is None:
            ours = list(self._parameters.values())
            names = [one.name for one in ours]
            gradients = Arrays(names, [one.gradient_row for one in ours], is_written=False)
            self._arrays = gradients, Arrays(names, [one.row for one in ours], is_written=True)
            is_alone = not self.store.type.startswith("dist")
            self._goes_ahead = is_alone and all(one.row.device.type != "cpu" for one in ours)
        for one in self._arrays:
            one.follow_streams()
        try:
            if self._ahead is not None:
                self._ahead.wait()
            push = self.store.pushpull_again(
                *self._arrays, samples=step.samples, step=step.number, learning_rate=step.rate, wait=not self._goes_ahead
            )
            self._ahead = push if self._goes_ahead else None
            if self._ahead is not None:
                self._ahead.wait_in_stream()
        except Nonfinite:
            self._pull()
            raise

    # ---------------------------------------------------------------- what overlap asks

    def _may_send(self) -> bool:
        return super()._may_send() and not self._is_accumulating

    def _step_now(self, samples: int) -> Step:
        """The step that is made now, as a backward that begins sees it."""
        return Step(samples, self._step_number, float(self.lr))

    def _raise_refused(self) -> None:
        error = self._overlap.refused()
        if error is not None and not self._is_lost:
            raise error

    def _give_up(self) -> None:
        self._overlap.close()

    def _pull(self) -> None:
        self.store.pull({name: one.row for name, one in self._parameters.items()})
        self._note_pull()

    def _note_pull(self, is_pulled: bool = True) -> None:
        """The parameters have new values: a graph that has the old ones must not be used."""
        ours = list(self._parameters.values())
        if is_pulled:
            count_writes(ours)
        note(ours)
