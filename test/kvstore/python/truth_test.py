"""dtkv.torch means what the program means: state by name, weights that the program changes, lines that it forgets, memory
layouts. One process; where the other workers matter, what they contribute is written here."""

import contextlib
import io
import math
import random
import unittest
import warnings
import zlib
from types import SimpleNamespace
from unittest import mock

import numpy
import torch
import torch.nn.functional as F
from local_test import Alarm, instead_of
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, RandomSampler, TensorDataset

import dtkv
import dtkv.torch as dt
from dtkv.torch import layout, plan, states
from dtkv.torch.buffers import Buffers
from dtkv.torch.sampler import Plan
from dtkv.torch.transfer import Channel, pack, unpack

X = torch.randn(40, 8, generator=torch.Generator().manual_seed(1))
Y = (X[:, 0] > 0).long()


def model(seed=2):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))


def backward(net, ids=slice(None)):
    loss = F.cross_entropy(net(X[ids]), Y[ids])
    loss.backward()
    return loss


def copy_of(net):
    return {name: one.clone() for name, one in net.state_dict().items()}


def of(training):
    """The training of a dt.Optimizer; a Job and a DDPState are one."""
    return getattr(training, "_training", training)


def buffers_of(net):
    buffers = Buffers()
    buffers.add_model("", net)
    return buffers


def is_equal(state, other):
    return state.keys() == other.keys() and all(torch.equal(state[name], other[name]) for name in state)


class Several:
    """A store of several workers: `others` gives what each of the others contributes to a key, of this worker's array.
    Sums are made in the arrays' type, one worker after the other."""

    type = "dist_sync"
    worker_id = 3

    def __init__(self, others=lambda key, mine: [], is_lead=True):
        self.others = others
        self.is_lead = is_lead
        self.is_newcomer = False
        self.created = []
        self.sent = []

    def init(self, keys, values=None, **flags):
        self.created += list(keys) if isinstance(keys, dict) else [keys]

    def pushpull(self, keys, values=None, out=None, *, step=0, reduce="auto", **options):
        for key, one in (keys if isinstance(keys, dict) else {keys: values}).items():
            self.sent.append(key)
            array = one.numpy() if isinstance(one, torch.Tensor) else one
            parts = [array.copy(), *self.others(key, array.copy())]
            total = parts[0]
            for part in parts[1:]:
                total = total + numpy.asarray(part, array.dtype)
            array[...] = total if array.dtype == numpy.int64 or reduce == "sum" else total / len(parts)

    def finish_steps(self):
        pass

    def close(self):
        pass


class Trainings(unittest.TestCase):
    """Warnings are errors."""

    def setUp(self):
        caught = warnings.catch_warnings()
        caught.__enter__()
        self.addCleanup(caught.__exit__, None, None, None)
        warnings.simplefilter("error")

    def job(self, net, optimizer="sgd", lr=0.1):
        made = dt.Job(net, optimizer, lr, type="local")
        self.addCleanup(made.close)
        made._owns_data = True
        return made

    def optimizer(self, net, inner=None):
        made = dt.Optimizer(inner or torch.optim.SGD(net.parameters(), 0.1), net, type="local")
        self.addCleanup(made.close)
        of(made)._owns_data = True
        return made

    def trainings(self, make=model):
        """L1 and L2, each with its model and its step."""
        ours = make()
        job = self.job(ours)
        yield job, ours, lambda: job.step(len(X))
        theirs = make()
        optimizer = self.optimizer(theirs)
        yield optimizer, theirs, lambda: (optimizer.step(samples=len(X)), optimizer.zero_grad())

    def begin(self, training):
        """The training is in its first epoch until the test ends."""
        epochs = training.epochs(1)
        self.addCleanup(epochs.close)
        next(epochs)
        return training


def kept(store, key, like):
    """What the store has."""
    out = torch.zeros_like(like)
    store.pull(key, out)
    return out


def sent_in(training):
    """The keys that pushpull() is given from now on."""
    sent, real = [], training.store.pushpull

    def pushpull(keys, *arguments, **options):
        sent.extend(keys if isinstance(keys, dict) else [keys])
        return real(keys, *arguments, **options)

    training.store.pushpull = pushpull
    return sent


class Norms(nn.Module):
    """Statistics, and buffers of other kinds."""

    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(8)
        self.last = nn.Linear(8, 2)
        self.register_buffer("mask", torch.full((3,), torch.finfo(torch.float32).min))
        self.register_buffer("table", torch.rand(1000, generator=torch.Generator().manual_seed(3)))
        self.register_buffer("flags", torch.tensor([True, False, True]))
        self.register_buffer("center", torch.zeros(5))
        self.register_buffer("calls", torch.tensor(0), persistent=False)

    def forward(self, x):
        self.center = self.center * 0.5 + 1
        self.calls += 1
        return self.last(self.norm(x))


class Means(Trainings):
    """T3, T5."""

    def exchange(self, buffers, store):
        created = set()

        def create(key, like, is_kept=False):
            if key not in created:
                created.add(key)
                store.init(key, like, auxiliary=True)

        return buffers.exchange(store, Channel(store), create, 0, [5, 1])

    def test_the_mean_of_equal_numbers_is_that_number_bit_by_bit(self):
        net = nn.BatchNorm1d(100_000)
        values = torch.rand(100_000, generator=torch.Generator().manual_seed(1))
        values[:3] = torch.tensor([torch.finfo(torch.float32).max, torch.finfo(torch.float32).min, 1e-45])
        for workers in range(2, 12):
            net.running_mean.copy_(values)
            is_alike = lambda key: "running" in key or "meeting" in key
            store = Several(lambda key, mine: [mine * is_alike(key)] * (workers - 1))
            self.assertEqual(self.exchange(buffers_of(net), store), [5 * workers, workers])
            self.assertTrue(torch.equal(net.running_mean, values), workers)

    def test_means_are_of_statistics_and_added_tensors_alone_and_in_float64(self):
        net = Norms()
        job = self.job(net)
        job.state("ema", torch.ones(2))
        job.state("half", torch.ones(2).half())
        job.state("lead", torch.ones(2), reduce="lead")
        means, others = job._buffers._found()
        self.assertEqual(
            sorted(means),
            ["dtkv.buffer.norm.running_mean", "dtkv.buffer.norm.running_var", "dtkv.state.ema", "dtkv.state.half"],
        )
        self.assertEqual(
            sorted(others),
            [f"dtkv.buffer.{n}" for n in ("calls", "center", "flags", "mask", "norm.num_batches_tracked", "table")]
            + ["dtkv.state.lead"],
        )
        for _ in job.epochs(1):
            pass
        for key, one in means.items():
            self.assertEqual(kept(job.store, key, one.double()).float().tolist(), one.float().tolist())
        for key, one in others.items():
            self.assertTrue(torch.equal(kept(job.store, key, layout.words(one)), layout.words(one)), key)

    def test_a_module_with_one_of_the_two_statistics_has_no_mean(self):
        net = nn.Module()
        net.register_buffer("running_mean", torch.ones(2))
        net.part = nn.BatchNorm1d(2, track_running_stats=False)
        self.assertEqual(list(buffers_of(net)._found()[0]), [])

    def test_statistics_are_the_mean_and_other_buffers_the_leads(self):
        net, lead = Norms(), Norms()
        lead.table.mul_(3)
        lead.mask[1] = -math.inf
        lead.flags.logical_not_()
        lead.calls += 7
        lead.norm.num_batches_tracked += 9
        mine = buffers_of(net)
        named = {f"dtkv.buffer.{name}": one for name, one in lead.named_buffers()}
        others = sorted(key for key in named if "running" not in key)

        def contributes(key, array):
            if key.startswith("dtkv.meeting"):
                return [[0, 1] + [1] * len(others)]
            if key == "dtkv.channel.head":
                return [[1, 0, checksum([named[key] for key in others])]]
            if "running" in key:
                return [numpy.full(8, 3.0)]
            return [layout.words(named[key]).numpy()]

        self.exchange(mine, Several(contributes, is_lead=False))
        for name, one in net.named_buffers():
            if "running" in name:
                expected = torch.full((8,), 1.5 if "mean" in name else 2.0)
                self.assertTrue(torch.equal(one, expected), name)
            else:
                self.assertTrue(torch.equal(one, dict(lead.named_buffers())[name]), name)
                self.assertEqual(one.dtype, dict(lead.named_buffers())[name].dtype)

    def test_what_the_module_replaces_is_exchanged_and_what_is_unchanged_is_not_sent(self):
        for training, net, step in self.trainings(Norms):
            with self.subTest(type(training).__name__):
                sent = []
                for epoch in training.epochs(3):
                    if epoch == 0:
                        sent = sent_in(training)
                    sent.clear()
                    if epoch == 1:
                        net.table[4] = 7
                    before = net.center
                    for _ in range(epoch != 2):
                        backward(net)
                        step()
                    self.assertEqual(net.center is before, epoch == 2)
                    if epoch == 2:
                        net._buffers["flags"] = net.flags.clone()  # another object
                    training.total(n=1)
                    found = {key[len("dtkv.buffer.") :] for key in sent if key.startswith("dtkv.buffer.")}
                    means = {"norm.running_mean", "norm.running_var"}
                    changed = [
                        {"center", "calls", "norm.num_batches_tracked"},
                        {"center", "calls", "norm.num_batches_tracked", "table"},
                        {"flags"},
                    ][epoch]
                    first = found - means - changed
                    self.assertEqual(found - first, means | changed)
                    self.assertEqual(first & {"mask"}, set())
                    if epoch > 0:
                        self.assertEqual(first, set())
                    for name in sorted(changed):
                        one = dict(net.named_buffers())[name]
                        there = kept(training.store, f"dtkv.buffer.{name}", layout.words(one))
                        self.assertTrue(torch.equal(there, layout.words(one)), name)

    def test_a_buffer_that_another_worker_changed_is_exchanged(self):
        net = Norms()
        mine = buffers_of(net)
        mine.note()
        store = Several(lambda key, array: [numpy.zeros_like(array)])
        self.exchange(mine, store)
        self.assertEqual([key for key in store.sent if "table" in key], [])
        keys = sorted(mine._found()[1])
        at = 2 + keys.index("dtkv.buffer.table")
        store = Several(lambda key, array: [(numpy.arange(len(array)) == at) if "meeting" in key else array * 0])
        self.exchange(mine, store)
        self.assertEqual([key for key in store.sent if key in keys], ["dtkv.buffer.table"])

    def test_a_buffer_keeps_its_size(self):
        net = Norms()
        job = self.job(net)
        with self.assertRaisesRegex(dtkv.InvalidUse, r"^center has the shape \(6,\) now, and had \(5,\)"):
            for _ in job.epochs(1):
                net.center = torch.zeros(6)

    def test_words_have_the_bits_of_each_type(self):
        for one in (
            torch.tensor([1.0, -0.0, math.nan, -math.inf]),
            torch.tensor([True, False, True]),
            torch.tensor(3, dtype=torch.int16),
            torch.tensor([1, 2, 3], dtype=torch.uint8),
            torch.ones(3).bfloat16(),
            torch.zeros(0),
            torch.tensor([1 + 2j]),
            torch.randn(2, 3, 4, 5).contiguous(memory_format=torch.channels_last),
            torch.arange(12.0).reshape(3, 4)[:, ::2],
        ):
            back = torch.zeros_like(one)
            layout.take_words(back, layout.words(one))
            bits = [layout.row_bytes(each).tolist() for each in (back, one)]
            self.assertEqual(*bits)
            version = back._version
            layout.take_words(back, layout.words(one))
            self.assertEqual(back._version, version, "equal values are not written again")


def checksum(tensors):
    out = bytearray()
    for one in tensors:
        out += layout.words(one).numpy().data
    return zlib.crc32(out)


class Frozen(Trainings):
    """T6."""

    def net(self):
        net = model()
        net[0].weight.requires_grad_(False)
        return net

    def roll(self, job):
        return kept(job.store, job._roll_key(), torch.zeros(8, dtype=torch.int64)).reshape(-1, 2)

    def test_the_key_of_a_frozen_parameter_is_its_digest(self):
        net = self.net()
        job = self.begin(self.job(net))
        by_name = dict(zip(sorted(dict(net.named_parameters())), self.roll(job).tolist()))
        self.assertEqual(by_name.pop("0.weight"), [0, layout.digests({"0.weight": net[0].weight})["0.weight"]])
        self.assertEqual([one[0] for one in by_name.values()], [1, 1, 1])
        with self.assertRaises(dtkv.Error):
            kept(job.store, "0.weight", net[0].weight.detach())

    def resumed(self, net):
        """A job whose servers have the keys of another one with self.net()."""
        first = self.begin(self.job(self.net()))
        job = self.job(net)
        job.store.init(job._roll_key(), self.roll(first).reshape(-1), auxiliary=True)
        return job

    def test_a_lead_with_other_frozen_weights_than_the_checkpoints_is_refused_by_name(self):
        next(self.resumed(self.net()).epochs(1))
        other = self.net()
        with torch.no_grad():
            other[0].weight[3, 5] += 1e-6
        with self.assertRaisesRegex(dtkv.InvalidUse, "^0.weight is frozen, and differs from what the training began with"):
            next(self.resumed(other).epochs(1))

    def test_another_worker_takes_the_leads(self):
        other, lead = self.net(), self.net()
        with torch.no_grad():
            other[0].weight.mul_(2)
            other[0].bias.mul_(2)
        job = self.resumed(other)
        job._view = job._view._replace(num_workers=2)
        job._channel = SimpleNamespace(any=bool, broadcast=lambda give: pack({"0.weight": lead[0].weight}))
        with mock.patch.object(dt.Job, "is_lead", False):
            job._begin_keys()
            self.assertEqual(job._take_all(), ["0.weight"])
            job._begin_epoch(is_changed=True)
        self.assertTrue(torch.equal(other[0].weight, lead[0].weight))

    def test_a_parameter_that_is_frozen_here_alone_is_a_mismatch(self):
        with self.assertRaisesRegex(dtkv.Mismatch, "^0.weight has another shape, .* or is frozen here alone"):
            next(self.resumed(model()).epochs(1))

    def test_another_set_of_parameters_is_a_mismatch(self):
        job = self.job(nn.Sequential(*model(), nn.Linear(2, 2)))
        job.store.init("dtkv.names", numpy.array([7, 4]), auxiliary=True)
        with self.assertRaisesRegex(dtkv.Mismatch, r"^the lead's model has other parameters \(4\) than this worker's \(6\)"):
            next(job.epochs(1))


class Loaded(Trainings):
    """T8."""

    def test_what_is_loaded_before_the_first_epoch_counts(self):
        other = model(9)
        for training, net, step in self.trainings():
            net.load_state_dict(other.state_dict())
            for _ in training.epochs(1):
                self.assertTrue(is_equal(net.state_dict(), other.state_dict()), type(training))
                step()
        job = self.job(model())
        value = job.state("value", 1.0)
        value.fill_(5)
        self.begin(job)
        self.assertEqual(value.item(), 5)

    def test_it_trains_on_from_there(self):
        results = []
        for training, net, step in self.trainings():
            net.load_state_dict(model(9).state_dict())
            for _ in training.epochs(2):
                backward(net)
                step()
            results.append(copy_of(net))
        theirs = model(9)
        alone = torch.optim.SGD(theirs.parameters(), 0.1)
        for _ in range(2):
            alone.zero_grad()
            backward(theirs)
            alone.step()
        for one in results:
            for name, value in theirs.state_dict().items():
                torch.testing.assert_close(one[name], value)

    def test_the_states_of_the_servers_optimizer_take_the_weights_when_they_are_set(self):
        first = self.job(model(), "sgd momentum=0.9")
        for _ in first.epochs(1):
            backward(first._model)
            first.step(len(X))
            first.total(n=1)
            momentum, updates = first.pull_state(1)
        saved = copy_of(first._model)

        def goes_on(job):
            for _ in job.epochs(2, 1):
                backward(job._model)
                job.step(len(X))
            return copy_of(job._model)

        second = self.job(model(7), "sgd momentum=0.9")
        second._model.load_state_dict(saved)
        second.init_state(1, momentum, updates)
        third = self.job(model(7), "sgd momentum=0.9")
        third._model.load_state_dict(saved)
        whole = self.job(model(), "sgd momentum=0.9")
        for _ in whole.epochs(2):
            backward(whole._model)
            whole.step(len(X))
        resumed = goes_on(second)
        self.assertTrue(is_equal(resumed, copy_of(whole._model)))
        self.assertFalse(is_equal(resumed, goes_on(third)))


WAYS = {
    "load_state_dict": lambda net: net.load_state_dict(model(5).state_dict()),
    "clamp_": lambda net: net[0].weight.clamp_(-0.01, 0.01),
    "mul_": lambda net: net[0].weight.mul_(0.5),
    "copy_": lambda net: net[0].weight.copy_(torch.ones(16, 8)),
    "an index": lambda net: net[0].weight.__setitem__((2, 3), 9.0),
    "a view": lambda net: net[0].weight.view(-1)[:5].zero_(),
    "detach": lambda net: net[0].weight.detach().add_(1),
    "nn.init": lambda net: nn.init.normal_(net[0].weight),
    "reset_parameters": lambda net: net[0].reset_parameters(),
    "vector_to_parameters": lambda net: [p.copy_(p + 1) for p in net.parameters()],
    "an optimizer": lambda net: torch.optim.SGD(net.parameters(), 1.0, weight_decay=0.1).step(),
    "foreach": lambda net: torch._foreach_mul_(list(net.parameters()), 0.5),
}


class Written(Trainings):
    """T9."""

    WHY = r"^\d\.\w+ was changed by the program \(load_state_dict, clamp_, \.\.\.\): .* use dt.Optimizer"

    def test_each_way_of_writing_is_refused_by_name(self):
        for name, write in WAYS.items():
            with self.subTest(name):
                net = model()
                job = self.begin(self.job(net))
                backward(net)
                job.step(len(X))
                with torch.no_grad():
                    write(net)
                with self.assertRaisesRegex(dtkv.InvalidUse, self.WHY):
                    job.step(len(X))

    def test_at_an_epochs_end_and_between_epochs_too(self):
        def write(net):
            with torch.no_grad():
                net[2].bias.mul_(2)

        for is_at_end in (True, False):
            net = model()
            job, done = self.job(net), []
            with self.assertRaisesRegex(dtkv.InvalidUse, "^2.bias was changed by the program"):
                for epoch in job.epochs(2):
                    done.append(epoch)
                    backward(net)
                    job.step(len(X))
                    if is_at_end:
                        write(net)
                    job.total(n=1)
                    done.append("met")
                    write(net)
            self.assertEqual(done, [0] if is_at_end else [0, "met"])

    def test_an_embedding_that_renormalises_itself_is_refused(self):
        net = nn.Embedding(4, 8, max_norm=0.1)
        job = self.begin(self.job(net))
        net(torch.tensor([1, 2])).sum().backward()
        with self.assertRaisesRegex(dtkv.InvalidUse, "^weight was changed by the program"):
            job.step(2)

    def test_an_average_that_is_swapped_in_and_out_passes(self):
        net, other = model(), model()
        job, alone = self.job(net), self.job(other)
        for training, one in ((job, net), (alone, other)):
            for _ in training.epochs(2):
                for _ in range(2):
                    backward(one)
                    training.step(len(X))
                    if training is job:
                        with torch.no_grad():
                            kept_ones = [p.clone() for p in net.parameters()]
                            for p in net.parameters():
                                p.mul_(0.5)
                            for p, value in zip(net.parameters(), kept_ones):
                                p.copy_(value)
        self.assertTrue(is_equal(net.state_dict(), other.state_dict()))

    def test_with_dist_async_other_versions_are_refused(self):
        net = model()
        job = self.begin(self.job(net))
        job._is_async = True
        with torch.no_grad():
            net[2].weight.copy_(net[2].weight.clone())
        with self.assertRaisesRegex(dtkv.InvalidUse, "^2.weight was changed by the program"):
            job.step(1)

    def test_what_is_written_to_data_is_not_seen_and_does_not_count(self):
        net, other = model(), model()
        for one in (net, other):
            job = self.job(one)
            for _ in job.epochs(2):
                backward(one)
                job.step(len(X))
                if one is net:
                    net[0].weight.data.clamp_(-0.01, 0.01)
        self.assertTrue(is_equal(net.state_dict(), other.state_dict()))

    def test_beside_an_unfreezing_too(self):
        net = model()
        net[0].requires_grad_(False)
        job = self.begin(self.job(net))
        net[0].requires_grad_(True)
        with torch.no_grad():
            net[2].weight.clamp_(-0.01, 0.01)
        backward(net)
        with self.assertRaisesRegex(dtkv.InvalidUse, "^2.weight was changed by the program"):
            job.step(len(X))

    def test_a_torch_optimizer_may_write(self):
        net = model()
        optimizer = self.optimizer(net)
        for _ in optimizer.epochs(2):
            backward(net)
            optimizer.step()
            with torch.no_grad():
                net[0].weight.clamp_(-0.01, 0.01)
        self.assertLessEqual(net[0].weight.abs().max().item(), 0.01)


class Unfrozen(Trainings):
    """T10."""

    @staticmethod
    def change(net, epoch, add=lambda layer: None):
        """Before epoch 1 the first layer is unfrozen; before 2 it is frozen, and a layer is added; before 3 unfrozen."""
        if epoch != 2:
            net[0].requires_grad_(epoch > 0)
            net[2].requires_grad_(epoch != 1)
            return
        net[0].requires_grad_(False)
        net[0].zero_grad(set_to_none=True)
        net[2].requires_grad_(True)
        torch.manual_seed(4)
        layer = nn.Linear(2, 2)
        net.append(layer)
        add(layer)

    def alone(self, momentum=0.9):
        net = model()
        optimizer = torch.optim.SGD(net.parameters(), 0.1, momentum=momentum)
        found = []
        for epoch in range(4):
            optimizer.zero_grad(set_to_none=True)
            self.change(net, epoch, lambda layer: optimizer.add_param_group({"params": layer.parameters()}))
            for _ in range(3):
                optimizer.zero_grad(set_to_none=True)
                backward(net)
                optimizer.step()
            found.append(copy_of(net))
        return found

    def test_what_is_unfrozen_frozen_or_added_before_an_epochs_first_step_trains_or_stays_as_with_torch(self):
        expected = self.alone()
        for epoch, (before, after) in enumerate(zip(expected, expected[1:]), 1):
            self.assertEqual(torch.equal(before["0.weight"], after["0.weight"]), epoch == 2)
            self.assertEqual(torch.equal(before["2.weight"], after["2.weight"]), epoch == 1)

        net = model()
        net[0].requires_grad_(False)
        job = self.job(net, "sgd momentum=0.9")
        for epoch in job.epochs(4):
            self.change(net, epoch)
            for _ in range(3):
                backward(net)
                job.step(len(X))
            self.assertEqual(net.state_dict().keys(), expected[epoch].keys())
            for name, value in net.state_dict().items():
                torch.testing.assert_close(value, expected[epoch][name], msg=f"L1, epoch {epoch}: {name}")

        net = model()
        optimizer = self.optimizer(net, torch.optim.SGD(net.parameters(), 0.1, momentum=0.9))
        for epoch in optimizer.epochs(4):
            optimizer.zero_grad(set_to_none=True)
            self.change(net, epoch, lambda layer: optimizer.add_param_group({"params": layer.parameters()}))
            for _ in range(3):
                optimizer.zero_grad(set_to_none=True)
                backward(net)
                optimizer.step(samples=len(X))
            for name, value in net.state_dict().items():
                torch.testing.assert_close(value, expected[epoch][name], msg=f"L2, epoch {epoch}: {name}")

    def test_a_new_key_has_the_leads_weights_and_a_frozen_one_none(self):
        net = model()
        net[0].requires_grad_(False)
        job = self.job(net)
        for epoch in job.epochs(2):
            if epoch == 1:
                net[0].requires_grad_(True)
                net[2].requires_grad_(False)
            backward(net)
            job.step(len(X))
            layer = ("2", "0")[epoch]
            self.assertEqual(list(job._parameters), [f"{layer}.weight", f"{layer}.bias"])
            for name, p in net.named_parameters():
                if p.requires_grad:
                    self.assertTrue(torch.equal(kept(job.store, name, p.detach()), p), name)
            roll = job._servers_roll()
            self.assertEqual([name for name, one in roll.items() if one[0]], [f"{layer}.bias", f"{layer}.weight"])

    def test_in_the_middle_of_an_epoch_it_is_refused_by_name(self):
        def freeze(net):
            net[2].bias.requires_grad_(False)

        def unfreeze(net):
            net[0].weight.requires_grad_(True)

        def append(net):
            net.append(nn.Linear(2, 2))

        def make():
            net = model()
            net[0].weight.requires_grad_(False)
            return net

        for what, name, word in (
            (freeze, "2.bias", "frozen"),
            (unfreeze, "0.weight", "unfrozen or added"),
            (append, "3.weight", "unfrozen or added"),
        ):
            for training, net, step in self.trainings(make):
                if what is append and isinstance(training, dt.Optimizer):
                    continue  # add_param_group() takes part at once
                with self.subTest(type(training).__name__, what=what.__name__):
                    with self.assertRaisesRegex(dtkv.InvalidUse, f"^{name} was {word} in the middle of epoch 0: do it before"):
                        for _ in training.epochs(1):
                            backward(net)
                            step()
                            what(net)
                            backward(net)
                            step()

    def test_what_changed_while_it_was_frozen_is_refused(self):
        net = model()
        job = self.job(net)
        with self.assertRaisesRegex(dtkv.InvalidUse, "^0.weight was changed by the program while it was frozen"):
            for epoch in job.epochs(3):
                net[0].weight.requires_grad_(epoch != 1)
                if epoch == 1:
                    with torch.no_grad():
                        net[0].weight.mul_(2)
                backward(net)
                job.step(len(X))

    def test_with_ddp_a_new_parameter_needs_another_wrapper(self):
        dt.init_process_group()
        net = model()
        net[0].requires_grad_(False)
        wrapped = DDP(net)
        state = dt.DDPState(wrapped, torch.optim.SGD(net.parameters(), 0.1), type="local")
        self.addCleanup(state.close)
        state._owns_data = True
        wrapped.register_comm_hook(state, dt.ddp_hook)
        with self.assertRaisesRegex(dtkv.InvalidUse, r"^0.bias is trained now: wrap the model in DDP again"):
            for _ in state.epochs(1):
                net[0].requires_grad_(True)
                backward(wrapped)

    def test_the_plan_has_a_checksum_of_the_trained_parameters(self):
        for training, net, _ in self.trainings():
            first = of(training)._checksum()
            net[0].weight.requires_grad_(False)
            second = of(training)._checksum()
            net[0].weight.requires_grad_(True)
            self.assertNotEqual(first, second)
            self.assertEqual(of(training)._checksum(), first)


class States(Trainings):
    """T11, T12, T13, T43."""

    def trained(self, order, make=torch.optim.Adam, groups=None, steps=3):
        net = nn.ModuleDict({"a": nn.Linear(8, 4), "b": nn.Linear(4, 2)})
        torch.manual_seed(1)
        for p in net.parameters():
            nn.init.normal_(p)
        named = dict(net.named_parameters())
        optimizer = make([{"params": [named[name] for name in one], "lr": rate} for rate, one in (groups or order)])
        for _ in range(steps):
            optimizer.zero_grad()
            F.cross_entropy(net["b"](net["a"](X)), Y).backward()
            optimizer.step()
        return net, optimizer

    ALL = [(0.1, ["a.weight", "a.bias"]), (0.2, ["b.weight", "b.bias"])]

    def check(self, groups, make=torch.optim.Adam):
        net, optimizer = self.trained(self.ALL, make)
        sent = unpack(pack(states.of_optimizer(optimizer, net)))
        other, taken = self.trained(groups, make, steps=1)
        other.load_state_dict(net.state_dict())
        states.take_optimizer(taken, other, sent)
        names = {id(p): name for name, p in other.named_parameters()}
        found = [[names[id(p)] for p in group["params"]] for group in taken.param_groups]
        self.assertEqual(found, [one for _, one in self.ALL])
        self.assertEqual([group["lr"] for group in taken.param_groups], [0.1, 0.2])
        for name, p in other.named_parameters():
            theirs, ours = optimizer.state[dict(net.named_parameters())[name]], taken.state[p]
            self.assertEqual(theirs.keys(), ours.keys())
            for key, value in theirs.items():
                self.assertTrue(torch.equal(torch.as_tensor(value), torch.as_tensor(ours[key])), (name, key))
        self.assertEqual(len(taken.state), 4)
        for its, one in ((net, optimizer), (other, taken)):
            one.zero_grad()
            F.cross_entropy(its["b"](its["a"](X)), Y).backward()
            one.step()
        self.assertTrue(is_equal(net.state_dict(), other.state_dict()))

    def test_another_order_of_the_parameters(self):
        self.check([(0.1, ["b.bias", "a.bias"]), (0.2, ["a.weight", "b.weight"])])
        self.check([(0.1, ["a.bias", "a.weight"]), (0.2, ["b.bias", "b.weight"])])

    def test_fewer_and_more_groups_and_parameters(self):
        self.check([(0.1, ["a.weight", "a.bias"])])
        self.check([(0.3, ["a.weight"])])
        self.check([(0.3, [name]) for name in ("b.bias", "a.weight", "b.weight", "a.bias")])
        self.check([(0.1, ["a.weight", "a.bias"])], torch.optim.AdamW)
        self.check([(0.3, ["a.weight"])], lambda groups: torch.optim.SGD(groups, 0.1, momentum=0.9))

    def test_a_name_that_this_worker_lacks_is_refused(self):
        net, optimizer = self.trained(self.ALL)
        sent = states.of_optimizer(optimizer, net)
        other = nn.ModuleDict({"a": nn.Linear(8, 4)})
        with self.assertRaisesRegex(dtkv.InvalidUse, "^the lead's optimizer has b.weight in its group 1, this worker's model"):
            states.take_optimizer(torch.optim.Adam(other.parameters()), other, sent)

    def test_a_newcomer_takes_groups_frozen_parameters_and_buffers(self):
        def make():
            net = Norms()
            net.extra = nn.Linear(2, 2)
            return net, self.optimizer(net, torch.optim.Adam(net.last.parameters(), 0.1))

        net, lead = make()
        for epoch in lead.epochs(2):
            if epoch == 1:
                lead.add_param_group({"params": net.extra.parameters(), "lr": 0.5})
                net.last.bias.requires_grad_(False)
            lead.zero_grad()
            F.cross_entropy(net.extra(net(X)), Y).backward()
            lead.step(samples=len(X))
        other, newcomer = make()
        of(newcomer)._begin_keys()
        of(newcomer)._take(unpack(pack(of(lead)._state())))
        self.assertTrue(is_equal(net.state_dict(), other.state_dict()))
        self.assertEqual(other.calls.item(), net.calls.item())
        self.assertFalse(other.last.bias.requires_grad)
        self.assertEqual([group["lr"] for group in newcomer.param_groups], [0.1, 0.5])
        self.assertEqual(sorted(newcomer._replica.parameters), ["extra.bias", "extra.weight", "last.weight"])
        self.assertEqual(pack(of(newcomer)._state()), pack(of(lead)._state()))

    def test_parameters_that_are_not_of_the_model_are_refused_at_construction(self):
        net, other = model(), model()
        both = [*net.parameters(), *other.parameters()]
        why = r"^parameter 4 of the optimizer's group 0, of shape \(16, 8\), is not of the model: .*torch.nn.ModuleDict"
        with self.assertRaisesRegex(dtkv.InvalidUse, why):
            dt.Optimizer(torch.optim.SGD(both, 0.1), net, type="local")
        with self.assertRaisesRegex(dtkv.InvalidUse, why):
            dt.DDPState(net, torch.optim.SGD(both, 0.1), type="local")
        loose = nn.Parameter(torch.ones(3))
        with self.assertRaisesRegex(dtkv.InvalidUse, "^parameter 0 of the optimizer's group 1"):
            dt.Optimizer(torch.optim.SGD([{"params": net.parameters()}, {"params": loose}], 0.1), net, type="local")
        self.optimizer(nn.ModuleDict({"net": net, "other": other}), torch.optim.SGD(both, 0.1))
        optimizer = self.begin(self.optimizer(model()))
        with self.assertRaisesRegex(dtkv.InvalidUse, "^parameter 0 of the optimizer's group 1"):
            optimizer.add_param_group({"params": loose})


class Named(Trainings):
    """T43."""

    class Wrapper(nn.Module):
        def __init__(self, name, inner):
            super().__init__()
            self._modules[name] = inner
            self.name = name

        def forward(self, x):
            return self._modules[self.name](x)

    def test_names_are_without_what_wrappers_add(self):
        names = ["module._orig_mod.a.weight", "_orig_mod.b", "module.module.c", "d._orig_mod.weight", "e.module.x", "module"]
        self.assertEqual(
            layout.plain_names(names),
            dict(zip(names, ["a.weight", "b", "c", "d.weight", "e.module.x", "module"])),
        )
        same = ["module.a", "a"]
        self.assertEqual(layout.plain_names(same), {"module.a": "module.a", "a": "a"})

    def wrapped(self, net):
        yield net
        yield self.Wrapper("module", net)
        yield self.Wrapper("_orig_mod", net)
        yield self.Wrapper("module", self.Wrapper("_orig_mod", net))
        yield nn.DataParallel(net)

    def test_keys_digests_and_states_are_alike_whatever_wraps_the_model(self):
        found = []
        for i in range(5):
            net = Norms()
            torch.manual_seed(3)
            net.last.reset_parameters()
            wrapped = list(self.wrapped(net))[i]
            job = self.job(wrapped)
            for _ in job.epochs(1):
                backward(wrapped)
                job.step(len(X))
            kept(job.store, "last.weight", net.last.weight.detach())
            kept(job.store, "dtkv.buffer.norm.running_mean", net.norm.running_mean.double())
            other = list(self.wrapped(Norms()))[i]
            optimizer = self.begin(self.optimizer(other))
            state = of(optimizer)._state()
            found.append(
                (
                    list(job._parameters),
                    job._roll_key(),
                    job._roll().tolist(),
                    job._checksum(),
                    layout.digests({**of(optimizer)._local(), **of(optimizer)._buffers.named()}).keys(),
                    state["model"]["values"].keys(),
                    state["optimizer"]["param_groups"],
                )
            )
        for one in found[1:]:
            self.assertEqual(one, found[0])

    def test_a_state_goes_from_one_wrapper_to_another(self):
        plain, other = Norms(), Norms()
        for p in plain.parameters():
            nn.init.normal_(p)
        plain.calls += 4
        plain.last.bias.requires_grad_(False)
        wrapped = self.Wrapper("module", self.Wrapper("_orig_mod", other))
        states.take_model(wrapped, unpack(pack(states.of_model(plain))))
        self.assertTrue(is_equal(plain.state_dict(), other.state_dict()))
        self.assertEqual(other.calls.item(), 4)
        self.assertFalse(other.last.bias.requires_grad)
        wrapped = self.Wrapper("_orig_mod", Norms())
        states.take_model(plain, states.of_model(wrapped))
        self.assertEqual(plain.calls.item(), 0)


class Digests(Trainings):
    """T14."""

    def different(self, a, b, name_of_b="a"):
        self.assertNotEqual(layout.digests({"a": a})["a"], layout.digests({name_of_b: b})[name_of_b])

    def test_each_flipped_bit_changes_it(self):
        draw = random.Random(1)
        for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.uint8, torch.complex64):
            for count in (1, 3, 8, 1000):
                value = torch.zeros(count, dtype=dtype)
                data = layout.row_bytes(value)
                first = layout.digests({"a": value})["a"]
                for place in {0, data.numel() - 1, draw.randrange(data.numel())}:
                    for bit in range(8):
                        data[place] ^= 1 << bit
                        self.assertNotEqual(layout.digests({"a": value})["a"], first, (dtype, count, place, bit))
                        data[place] ^= 1 << bit
                self.assertEqual(layout.digests({"a": value})["a"], first)
        flag = torch.tensor([True, False])
        self.different(flag, torch.tensor([False, True]))
        self.different(torch.tensor(True), torch.tensor(False))

    def test_swapped_elements_change_it_in_a_piece_and_between_pieces(self):
        value = torch.arange(1 << 20, dtype=torch.float32)
        for i, j in ((0, 1), (0, 2), (5, 100_000), (7, 7 + (1 << 18)), (3, (1 << 20) - 1), (1 << 18, 3 << 18)):
            other = value.clone()
            other[i], other[j] = value[j], value[i]
            self.different(value, other)
        half = len(value) // 2
        self.different(value, torch.cat([value[half:], value[:half]]))

    def test_another_shape_strides_type_or_name_changes_it(self):
        value = torch.zeros(2, 3)
        self.different(value, torch.zeros(3, 2))
        self.different(value, torch.zeros(6))
        self.different(value, torch.zeros(2, 3, dtype=torch.int32))
        self.different(value, torch.zeros(3, 2).t())
        self.different(torch.zeros(2, 3, 4, 5), torch.zeros(2, 3, 4, 5).contiguous(memory_format=torch.channels_last))
        self.different(value, value, "b")
        self.different(torch.zeros(0, 3), torch.zeros(3, 0))
        self.different(torch.zeros(5, 0), torch.zeros(7, 0))
        self.different(torch.zeros(()), torch.zeros(1))

    def test_strides_that_do_not_matter_do_not_change_it(self):
        value = torch.randn(3, 1, 2, 2)
        other = value.contiguous(memory_format=torch.channels_last)
        self.assertEqual(layout.strides(torch.randn(4, 1)), layout.strides(torch.as_strided(torch.randn(4), (4, 1), (1, 9))))
        self.assertEqual(layout.digests({"a": value}), layout.digests({"a": value.as_strided(value.shape, (4, 17, 2, 1))}))
        scattered = torch.randn(6, 4)[:, ::2]
        self.assertEqual(layout.digests({"a": scattered}), layout.digests({"a": scattered.contiguous()}))
        self.assertTrue(torch.equal(value, other))

    def test_they_are_int64_numbers(self):
        for one in layout.digests({"a": torch.full((9,), -1), "b": torch.randn(5), "c": torch.zeros(2)}).values():
            self.assertTrue(-1 << 63 <= one < 1 << 63)

    def compare(self, training, mine, leads):
        """A boundary at which the lead, worker 0, and worker 3, this one, compare."""
        whole = sum(leads.values()) & ((1 << 63) - 1)
        alike = lambda key, array: [array * ("running" in key)]
        store = Several(lambda key, array: [[1, whole]] if key == "dtkv.digest" else alike(key, array), is_lead=False)
        training = of(training)
        training.store, training._view = store, training._view._replace(num_workers=2)
        training._channel = SimpleNamespace(broadcast=lambda give: pack((0, leads)), share=lambda arrays: None)
        training._created.clear()
        training._compare()

    def test_a_worker_that_differs_says_the_name_and_both_workers(self):
        for training, net, _ in self.trainings(Norms):
            net.last.bias.requires_grad_(False)  # of L1 it is compared then
            self.begin(training)
            of(training)._buffers.note()
            here = {**of(training)._local(), **of(training)._buffers.named()}
            leads = layout.digests(here)
            self.compare(training, here, leads)
            leads["last.bias"] ^= 1 << 40
            with self.assertRaisesRegex(
                dtkv.Mismatch, r"^epoch 0: last.bias differs: worker 3 here, worker 0 \(the lead\)$"
            ):
                self.compare(training, here, leads)
            del leads["last.bias"]
            with self.assertRaisesRegex(dtkv.Mismatch, "last.bias differs"):
                self.compare(training, here, leads)

    def test_of_all_workers_parameters_and_buffers(self):
        job, optimizer = (one for one, _, _ in self.trainings(Norms))
        self.assertEqual(sorted(of(optimizer)._local()), ["last.bias", "last.weight", "norm.bias", "norm.weight"])
        self.assertEqual(job._local(), {})
        self.assertEqual(len(of(optimizer)._buffers.named()), 8)


class Plans(unittest.TestCase):
    """T20."""

    ONE = Plan(100, 64, 7, 12345)

    def check(self, mine, others, parameters=9, others_parameters=9, flags=()):
        one = plan.Contribution(mine, parameters, flag=0 in flags)
        sums = one.packed()
        for i, other in enumerate(others, 1):
            sums = sums + plan.Contribution(other, others_parameters, flag=i in flags).packed()
        return plan.check(one, sums, 4).flag

    def test_equal_plans_pass(self):
        big = Plan(10**12, 1 << 40, (1 << 48) - 1, (1 << 48) - 1)
        for count in (1, 2, 3, 1000):
            for one in (self.ONE, big, None):
                self.assertFalse(self.check(one, [one] * count, (1 << 63) - 1, (1 << 63) - 1))
                self.assertTrue(self.check(one, [one] * count, flags=(count,)))

    def test_each_difference_has_its_sentence(self):
        for other, why in (
            (self.ONE._replace(samples=90), "this worker's data has 100 samples, the mean over the workers is 95"),
            (self.ONE._replace(batch=32), "this worker's batches are for steps of 64 samples, .* is 48"),
            (self.ONE._replace(seed=8), "this worker's samples are shuffled by the seed 7, .* is 7.5"),
            (self.ONE._replace(checksum=1), "this worker's samples have another order than those of the other workers"),
            (None, "this worker's data has 100 samples, the mean over the workers is 50"),
        ):
            with self.assertRaisesRegex(dtkv.Mismatch, f"^epoch 4: {why}"):
                self.check(self.ONE, [other])
        with self.assertRaisesRegex(dtkv.Mismatch, "^epoch 4: this worker trains other parameters than the others"):
            self.check(self.ONE, [self.ONE], 9, 10)
        with self.assertRaises(dtkv.Mismatch):
            self.check(self.ONE, [self.ONE] * 2, 1 << 62, (1 << 62) + 1)

    def test_a_newcomer_that_differs_ends_alone(self):
        old, new = plan.Contribution(self.ONE, 9, 0.1, is_proven=True), plan.Contribution(self.ONE, 9, 0.1)
        for odd, why in (
            (new._replace(rate=0.2), "^epoch 4: this worker's first step has the learning rate 0.2, the other workers'"),
            (new._replace(plan=self.ONE._replace(samples=90)), "^epoch 4: this worker's data has 90 samples"),
        ):
            sums = old.packed() + old.packed() + odd.packed()
            self.assertTrue(plan.check(old, sums, 4).has_newcomers)
            with self.assertRaisesRegex(dtkv.Mismatch, why):
                plan.check(odd, sums, 4)
            with self.assertRaises(dtkv.Mismatch):  # at the start all end
                plan.check(new, new.packed() + odd.packed(), 4)
        sums = new.packed() + new._replace(rate=0.1 + 1e-12).packed() + new._replace(rate=None).packed()
        self.assertFalse(plan.check(new, sums, 4).has_newcomers)
        self.assertFalse(plan.check(old, old.packed() + old.packed(), 4).has_newcomers)
        with self.assertRaises(dtkv.Mismatch):
            plan.check(old, old.packed() + old._replace(rate=0.3).packed(), 4)


class Agreed(Trainings):
    def test_the_first_step_compares_once_and_so_does_an_epoch_without_a_step(self):
        net = model()
        job = self.begin(self.job(net))
        for _ in range(2):
            job._view = job._view._replace(num_workers=2)
            job._has_agreed = False
            job.store.pushpull, real = lambda key, sums, **options: sums.__iadd__(self.other), job.store.pushpull
            self.other = plan.Contribution(None, job._checksum()).packed()
            job._agree()
            self.other = plan.Contribution(None, 77).packed()
            job._agree()
            job._has_agreed = False
            with self.assertRaisesRegex(dtkv.Mismatch, "trains other parameters"):
                job.step(1)
            job.store.pushpull = real
            job._view = job._view._replace(num_workers=1)

    def test_rates_that_differ_are_a_mismatch_but_in_dist_async(self):
        for is_async in (False, True):
            job = self.begin(self.job(model()))
            job._is_async = is_async
            job._view = job._view._replace(num_workers=2)
            job._has_agreed = False
            other = plan.Contribution(None, job._checksum(), 0.2).packed()
            job.store.pushpull = lambda key, sums, other=other, **options: sums.__iadd__(other)
            with contextlib.nullcontext() if is_async else self.assertRaisesRegex(dtkv.Mismatch, "learning rate 0.1"):
                job.step(1)
            del job.store.pushpull
            job._view = job._view._replace(num_workers=1)


class Forgotten(Trainings):
    """T21. All of them alone."""

    WARNS = r"^each worker goes through all of its data: batch_sampler=job.batches\(data, 64\), or dt.own_data\(\)"

    def test_the_optimizers_step_that_was_kept(self):
        net = model()
        job, inner = self.job(net), torch.optim.SGD(net.parameters(), 0.1)
        with self.assertRaisesRegex(
            dtkv.InvalidUse, r"^no (job\.)?step\(\) in epoch 0: write loss.backward\(\); job.step\(len\(x\)\) instead of optimizer"
        ):
            for _ in job.epochs(1):
                inner.zero_grad()
                backward(net)
                inner.step()
        net = model()
        inner = torch.optim.SGD(net.parameters(), 0.1)
        optimizer = self.optimizer(net, inner)
        with self.assertRaisesRegex(dtkv.InvalidUse, r"^no .*step\(\) in epoch 0: write optimizer.step\(samples=len\(x\)\)"):
            for _ in optimizer.epochs(1):
                inner.zero_grad()
                backward(net)
                inner.step()

    def test_it_is_found_though_the_gradients_are_gone(self):
        for training, net, _ in self.trainings():
            inner = torch.optim.SGD(net.parameters(), 0.1)
            with self.subTest(type(training).__name__):
                with self.assertRaisesRegex(dtkv.InvalidUse, r"^no .*step\(\) in epoch 0: "):
                    for _ in training.epochs(1):
                        backward(net)
                        inner.step()
                        inner.zero_grad(set_to_none=True)

    def test_no_step_at_all(self):
        for training, net, _ in self.trainings():
            with self.assertRaisesRegex(dtkv.InvalidUse, r"^no .*step\(\) in epoch 1: "):
                for epoch in training.epochs(2):
                    if epoch == 1:
                        backward(net)

    def test_the_hook_that_was_not_registered(self):
        dt.init_process_group()
        net = model()
        wrapped = DDP(net)
        inner = torch.optim.SGD(wrapped.parameters(), 0.1)
        state = dt.DDPState(wrapped, inner, type="local")
        self.addCleanup(state.close)
        with self.assertRaisesRegex(dtkv.InvalidUse, r"^no .*in epoch 0: .*register_comm_hook\(kv, dt.ddp_hook\)"):
            for _ in state.epochs(1):
                inner.zero_grad()
                backward(wrapped)
                inner.step()

    def test_epochs(self):
        for training, net, step in self.trainings():
            backward(net)
            with self.assertRaisesRegex(dtkv.InvalidUse, r"^a step outside of epochs\(\): .*for epoch in job.epochs\(10\)"):
                step()
            for _ in training.epochs(1):
                step()
            with self.assertRaisesRegex(dtkv.InvalidUse, "^a step outside of epochs"):
                step()

    def train(self, training, loader, net, step):
        for _ in training.epochs(3):
            for x, y in loader:
                F.cross_entropy(net(x), y).backward()
                step()

    def test_batches_that_are_not_the_jobs_are_warned_of_once(self):
        data = TensorDataset(X, Y)
        for loader in (DataLoader(data, 16, shuffle=True), DataLoader(data, 16, sampler=RandomSampler(data))):
            for training, net, step in self.trainings():
                of(training)._owns_data = False
                with warnings.catch_warnings(record=True) as caught:
                    warnings.simplefilter("always")
                    self.train(training, loader, net, step)
                self.assertEqual(len(caught), 1)
                self.assertRegex(str(caught[0].message), self.WARNS)
                self.assertIs(caught[0].category, RuntimeWarning)

    def test_nothing_is_said_of_what_is_right(self):
        data = TensorDataset(X, Y)
        for right in (
            lambda training: DataLoader(data, batch_sampler=training.batches(data, 16)),
            lambda training: DataLoader(data, batch_sampler=training.batches(data, 16), num_workers=2),
            lambda training: dt.own_data() or DataLoader(data, 16, shuffle=True),
            lambda training: dt.take(DataLoader(data, 16), 4),
        ):
            for training, net, step in self.trainings():
                of(training)._owns_data = False
                with mock.patch("dtkv.torch.elastic._newest", lambda training=training: of(training)):
                    self.train(training, right(training), net, step)

    def test_an_epoch_of_evaluation_is_silent(self):
        for training, net, step in self.trainings(Norms):
            of(training)._owns_data = False
            batches = training.batches(len(X), 16)
            before = copy_of(net.last)
            for epoch in training.epochs(4):
                if epoch == 1:  # after gradients, too
                    for ids in batches:
                        backward(net, ids)
                        step()
                    before = copy_of(net.last)
                    continue
                with torch.no_grad():
                    for ids in training.eval_batches(len(X), 16):
                        net(X[ids])
                training.total(n=1)
                self.assertTrue(is_equal(net.last.state_dict(), before))


class Totals(Trainings):
    """T23."""

    def total(self, others, **numbers):
        job = self.begin(self.job(model()))
        job._has_met = True
        job.store = Several(others)
        return job.total(**numbers)

    def test_of_each_kind_of_number(self):
        job = self.begin(self.job(model()))
        for value, expected in (
            (3, 3),
            (2**53 + 1, 2**53 + 1),
            (-(2**62), -(2**62)),
            (True, 1),
            (numpy.int64(2**53 + 1), 2**53 + 1),
            (numpy.int32(-3), -3),
            (numpy.uint8(200), 200),
            (numpy.bool_(True), 1),
            (torch.tensor(2**53 + 1), 2**53 + 1),
            (torch.tensor(7, dtype=torch.int32), 7),
            (torch.tensor(True), 1),
            (0.25, 0.25),
            (3.0, 3.0),
            (numpy.float64(0.1), 0.1),
            (numpy.float32(0.5), 0.5),
            (torch.tensor(0.5), 0.5),
            (torch.tensor([0.5], requires_grad=True).sum().detach(), 0.5),
            (math.inf, math.inf),
        ):
            with self.subTest(repr(value)):
                found = job.total(value=value)["value"]
                self.assertEqual((found, type(found)), (expected, type(expected)))
        self.assertTrue(math.isnan(job.total(value=math.nan)["value"]))
        self.assertEqual(job.total(), {})

    def test_it_is_a_float_where_any_workers_is_one(self):
        def other(is_float, value):
            def contributes(key, array):
                if ".int." in key:
                    return [[0 if is_float else value, is_float]]
                return [[value if is_float else 0.0]]

            return contributes

        for mine, theirs, expected in ((0, 0.25, 0.25), (0.25, 0, 0.25), (2**53 + 1, 2, 2**53 + 3), (0.5, 0.25, 0.75)):
            found = self.total(other(isinstance(theirs, float), theirs), loss=mine)["loss"]
            self.assertEqual((found, type(found)), (expected, type(expected)))

    def test_workers_that_have_finished_count_as_0(self):
        self.assertEqual(self.total(lambda key, array: [], n=3, x=0.5), {"n": 3, "x": 0.5})


class Refused(Trainings):
    """T24: Nonfinite within a step."""

    ERROR = dtkv.Nonfinite("worker 3: 1 of 2 elements of its gradient are infinite or NaN")

    def test_a_job_counts_the_step_and_pulls(self):
        net = model()
        job = self.begin(self.job(net))
        refused = mock.patch.object(job.store, "pushpull_again", side_effect=self.ERROR)
        before, pulled = job._step, []
        backward(net)
        real = job.store.pull
        with refused, mock.patch.object(job.store, "pull", lambda *a, **o: (pulled.append(1), real(*a, **o))[1]):
            with self.assertRaises(dtkv.Nonfinite):
                job.step(len(X))
        self.assertEqual((job._step, job._steps_made, len(pulled)), (before + 1, 1, 1))
        self.assertTrue(all(not p.grad.any() for p in net.parameters()))
        backward(net)
        job.step(len(X))
        self.assertEqual(job._step, before + 2)

    def test_an_optimizer_makes_the_step_of_all_and_raises_then(self):
        net, other = model(), model()
        optimizer = self.begin(self.optimizer(net, torch.optim.SGD(net.parameters(), 0.1, momentum=0.9)))
        alone = torch.optim.SGD(other.parameters(), 0.1, momentum=0.9)
        real = of(optimizer)._push

        def push(gradients, samples):
            real(gradients, samples).wait()
            for one in gradients.values():
                one.fill_(math.nan)
            return SimpleNamespace(wait=self.refuse)

        for step in range(3):
            for its, one in ((net, optimizer), (other, alone)):
                one.zero_grad()
                backward(its)
            if step == 1:
                with mock.patch.object(of(optimizer), "_push", push), self.assertRaises(dtkv.Nonfinite):
                    optimizer.step(samples=len(X))
            else:
                optimizer.step(samples=len(X))
            alone.step()
            self.assertEqual(of(optimizer)._step, step + 1)
            self.assertTrue(is_equal(net.state_dict(), other.state_dict()), step)

    def refuse(self):
        raise self.ERROR

    def test_with_ddp_backward_raises_after_the_step(self):
        dt.init_process_group()
        net, other = model(), model()
        wrapped = DDP(net)
        inner, alone = (torch.optim.SGD(one.parameters(), 0.1) for one in (net, other))
        state = dt.DDPState(wrapped, inner, type="local")
        self.addCleanup(state.close)
        state._owns_data = True
        wrapped.register_comm_hook(state, dt.ddp_hook)
        self.begin(state)
        real = state._push

        def push(gradients, samples):
            real(gradients, samples).wait()
            for one in gradients.values():
                one.fill_(math.nan)
            return SimpleNamespace(wait=self.refuse)

        for step in range(3):
            inner.zero_grad()
            alone.zero_grad()
            if step == 1:
                with mock.patch.object(state, "_push", push), self.assertRaises(dtkv.Nonfinite):
                    backward(wrapped)
            else:
                backward(wrapped)
                inner.step()
            backward(other)
            alone.step()
            self.assertEqual(state._step, step + 1)
            self.assertTrue(is_equal(net.state_dict(), other.state_dict()), step)


class Graphs(Trainings):
    """T27, T30."""

    def test_a_graph_of_the_weights_before_a_step_is_not_used(self):
        for name, make in (
            ("a linear layer", lambda: nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 2))),
            ("a scalar", lambda: Scaled(torch.tensor(2.0))),
            ("channels_last", lambda: Scaled(torch.ones(2, 3, 2, 2).contiguous(memory_format=torch.channels_last))),
        ):
            with self.subTest(name):
                net = make()
                job = self.begin(self.job(net))
                loss = net(X).pow(2).sum()
                net(X).sum().backward()
                job.step(len(X))
                with self.assertRaisesRegex(RuntimeError, "modified by an inplace operation"):
                    loss.backward()

    def test_nor_is_one_of_the_epoch_before(self):
        net = model()
        job = self.job(net)
        with self.assertRaisesRegex(RuntimeError, "modified by an inplace operation"):
            for epoch in job.epochs(2):
                if epoch == 1:
                    loss.backward()
                loss = net(X).pow(2).sum()

    def train(self, net, step, zero=lambda: None):
        for i in range(4):
            zero()
            loss = net(X[i * 10 : i * 10 + 10], i).pow(2).mean()
            self.backward(loss)
            step()

    def test_create_graph(self):
        def penalised(net, step):
            for _ in range(3):
                loss = F.cross_entropy(net(X), Y)
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    loss.backward(create_graph=True)
                sum(p.grad.pow(2).sum() for p in net.parameters()).backward()
                step()

        ours, theirs = model(), model()
        job = self.begin(self.job(ours))
        penalised(ours, lambda: job.step(len(X)))
        alone = torch.optim.SGD(theirs.parameters(), 0.1)
        penalised(theirs, lambda: (alone.step(), alone.zero_grad(set_to_none=True)))
        for p, q in zip(ours.parameters(), theirs.parameters()):
            torch.testing.assert_close(p, q)
            self.assertFalse(p.grad.requires_grad)

    def test_a_parameter_that_a_batch_does_not_use_contributes_no_old_gradient(self):
        class Branches(nn.Module):
            def __init__(self):
                super().__init__()
                torch.manual_seed(2)
                self.a, self.b = nn.Linear(8, 2), nn.Linear(8, 2)

            def forward(self, x, i):
                return self.a(x) + self.b(x) if i % 2 == 0 else self.a(x)

        self.backward = lambda loss: loss.backward()
        ours, theirs = Branches(), Branches()
        job = self.begin(self.job(ours))
        self.train(ours, lambda: job.step(10), lambda: ours.zero_grad(set_to_none=True))
        alone = torch.optim.SGD(theirs.parameters(), 0.1)
        self.train(theirs, alone.step, lambda: alone.zero_grad(set_to_none=True))
        for p, q in zip(ours.parameters(), theirs.parameters()):
            torch.testing.assert_close(p, q)
        before = ours.b.weight.detach().clone()
        ours(X, 0).sum().backward()
        ours.zero_grad(set_to_none=True)  # that batch does not count
        ours(X, 1).sum().backward()
        job.step(10)
        self.assertTrue(torch.equal(ours.b.weight, before))


class Scaled(nn.Module):
    def __init__(self, value):
        super().__init__()
        self.scale = nn.Parameter(value)

    def forward(self, x):
        return x.mean() * (self.scale * self.scale).sum()


class Nobody(Trainings):
    """T28."""

    def test_a_round_in_which_nobody_counts_is_zero(self):
        with dtkv.Store("local") as store:
            store.init("w", numpy.zeros(2, numpy.float32))
            store.epoch_boundary(0)
            for reduce in ("mean", "sum"):
                out = numpy.ones(2, numpy.float32)
                store.pushpull("w", numpy.full(2, 5, numpy.float32), out, step=1, reduce=reduce)
                self.assertEqual(out.tolist(), [5, 5])
                store.pushpull("w", numpy.full(2, 9, numpy.float32), out, step=2, samples=0, reduce=reduce)
                self.assertEqual(out.tolist(), [0, 0], reduce)

    def test_an_optimizer_makes_no_step_then(self):
        net = model()
        inner = torch.optim.Adam(net.parameters(), 0.1, weight_decay=0.5)
        optimizer = self.begin(self.optimizer(net, inner))
        backward(net)
        optimizer.step(samples=len(X))
        before, state = copy_of(net), str(inner.state_dict())
        backward(net)
        optimizer.step(samples=0)
        optimizer.synchronize(0)
        optimizer.step(samples=0)
        self.assertTrue(is_equal(before, net.state_dict()))
        self.assertEqual(str(inner.state_dict()), state)
        optimizer.step(samples=1)
        self.assertFalse(is_equal(before, net.state_dict()))


class Lengths(Trainings):
    """T29."""

    def test_reductions_of_many_lengths_have_few_keys(self):
        job = self.begin(self.job(model()))
        with mock.patch.object(job.store, "init", wraps=job.store.init) as init:
            for count in range(901):
                tensor = torch.arange(float(count))
                self.assertTrue(torch.equal(dt.all_reduce(tensor), torch.arange(float(count))), count)
            self.assertLessEqual(init.call_count, 11)
            dt.all_reduce(torch.ones(5, dtype=torch.float64))
            dt.all_reduce(torch.ones(5, 1, 100).transpose(0, 2))
            self.assertLessEqual(init.call_count, 12)

    def test_they_are_the_mean_or_the_sum_of_all_workers(self):
        job = self.begin(self.job(model()))
        job.store = Several(lambda key, array: [array * 0 + 3])
        for shape in ((), (3,), (2, 3), (0,)):
            self.assertTrue(torch.equal(dt.all_reduce(torch.ones(shape)), torch.full(shape, 2.0)))
            whole = dt.all_reduce(torch.ones(shape, dtype=torch.int64), op="sum")
            self.assertTrue(torch.equal(whole, torch.full(shape, 4)))


class Layouts(Trainings):
    """T31."""

    @staticmethod
    def net():
        torch.manual_seed(2)
        net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Conv2d(4, 2, 3, groups=2)).to(memory_format=torch.channels_last)
        net.scale = nn.Parameter(torch.tensor(1.5))
        net.nothing = nn.Parameter(torch.zeros(0, 3))
        net.scattered = nn.Parameter(torch.arange(12.0).reshape(3, 4)[:, ::2])
        net.turned = nn.Parameter(torch.arange(6.0).reshape(2, 3).t())
        net.wide = nn.Parameter(torch.ones(1).expand(3).detach())
        return net

    @staticmethod
    def loss_of(net, images):
        used = net.scattered.sum() * 2 + net.turned.pow(2).sum() + net.wide.sum() + net.nothing.sum()
        return net(images).pow(2).mean() * net.scale + used

    def test_strides_of_values_and_gradients_are_kept(self):
        images = torch.randn(2, 3, 8, 8).contiguous(memory_format=torch.channels_last)
        ours, theirs = self.net(), self.net()
        theirs.scattered = nn.Parameter(theirs.scattered.detach().clone())
        theirs.wide = nn.Parameter(theirs.wide.detach().clone())
        given = {name: p.stride() for name, p in ours.named_parameters()}
        job, alone = self.job(ours, lr=0.01), torch.optim.SGD(theirs.parameters(), 0.01)
        for p, q in zip(ours.parameters(), theirs.parameters()):
            self.assertTrue(torch.equal(p, q))
        for _ in job.epochs(2):
            self.loss_of(ours, images).backward()
            job.step(2)
            alone.zero_grad()
            self.loss_of(theirs, images).backward()
            alone.step()
            for (name, p), q in zip(ours.named_parameters(), theirs.parameters()):
                torch.testing.assert_close(p, q, msg=name)
                if name in ("scattered", "wide"):
                    self.assertTrue(p.is_contiguous() and p.grad.is_contiguous(), name)
                else:
                    self.assertEqual((p.stride(), p.grad.stride()), (given[name], given[name]), name)
        self.assertTrue(ours[0].weight.is_contiguous(memory_format=torch.channels_last))
        self.assertFalse(ours[0].weight.is_contiguous())
        for name, p in ours.named_parameters():
            row = torch.zeros(p.numel())
            job.store.pull(name, row)
            self.assertTrue(torch.equal(layout.shaped(row, p), p), name)

    def test_gradients_that_backward_made_elsewhere_have_their_order(self):
        images = torch.randn(2, 3, 8, 8)
        ours, theirs = self.net(), self.net()
        for p in theirs.parameters():
            p.data = p.data.clone(memory_format=torch.contiguous_format)
        optimizer = self.begin(self.optimizer(ours, torch.optim.SGD([*ours.parameters()][:4], 0.01)))
        job = self.begin(self.job(theirs, lr=0.01))
        for _ in range(2):
            for one, net in ((optimizer, ours), (job, theirs)):
                net.zero_grad(set_to_none=True)
                self.loss_of(net, images).backward()
            for p in ours.parameters():
                p.grad = p.grad.clone(memory_format=torch.contiguous_format)
            sent = {name: p.grad.clone() for name, p in ours.named_parameters()}
            optimizer.step(samples=2)
            job.step(2)
            for name, p in list(ours.named_parameters())[:4]:
                row = kept(optimizer.store, name, torch.zeros(p.numel()))
                self.assertTrue(torch.equal(layout.shaped(row, p), sent[name]), name)
        for p, q in list(zip(ours.parameters(), theirs.parameters()))[:4]:
            torch.testing.assert_close(p, q, rtol=1e-4, atol=1e-4)

    def test_a_file_of_a_small_layer_is_small(self):
        net = nn.ModuleDict({"large": nn.Linear(1000, 1000), "small": nn.Linear(2, 2)})
        self.begin(self.job(net))
        for one in (net["small"], net["small"].state_dict(), net["small"].weight.grad):
            file = io.BytesIO()
            torch.save(one, file)
            self.assertLess(file.tell(), 4000)
        file = io.BytesIO()
        torch.save(net["large"].weight, file)
        self.assertLess(file.tell(), 4_004_000)

    def test_a_state_is_given_back_in_the_parameters_shape(self):
        ours = self.net()
        job = self.job(ours, "sgd momentum=0.9", lr=0.01)
        for _ in job.epochs(1):
            self.loss_of(ours, torch.ones(1, 3, 8, 8)).backward()
            expected = {name: p.grad.clone() for name, p in ours.named_parameters()}
            job.step(1)
            job.total(n=1)
            found, updates = job.pull_state(1)
        for name, one in expected.items():
            torch.testing.assert_close(found[name], one, msg=name)
        other = self.job(self.net(), "sgd momentum=0.9", lr=0.01)
        other.init_state(1, {name: one.numpy() for name, one in found.items()}, updates)
        again, _ = other.pull_state(1)
        for name, one in found.items():
            self.assertTrue(torch.equal(one, again[name]), name)

    def test_dense_is_one_row_in_any_order_of_the_dimensions(self):
        for one, is_dense in (
            (torch.zeros(2, 3), True),
            (torch.zeros(2, 3).t(), True),
            (torch.zeros(2, 3, 4, 5).permute(2, 0, 3, 1), True),
            (torch.zeros(4, 1).expand(4, 3), False),
            (torch.zeros(4, 4)[:, 1:], False),
            (torch.zeros(4, 4)[1:], True),
            (torch.zeros(()), True),
            (torch.zeros(0, 5), True),
            (torch.as_strided(torch.zeros(9), (2, 2), (1, 1)), False),
        ):
            self.assertEqual(layout.is_dense(one), is_dense, one.stride())
            self.assertEqual(layout.flat(one).shape, (one.numel(),))
        base = torch.arange(24.0).reshape(2, 3, 4).permute(2, 0, 1)[1:]
        self.assertTrue(torch.equal(layout.shaped(layout.flat(base).clone(), base), base))
        self.assertEqual(layout.flat(base).is_contiguous(), True)


class Passes(Trainings):
    """T2: after a pass through a sampler all workers share what they have."""

    def train(self, training, net, loader, step, passes=1, stop=None):
        """How many steps had been made when they shared."""
        shared, steps = [], [0]
        with mock.patch.object(of(training), "_share_early", lambda: shared.append(steps[0])):
            for _ in training.epochs(1):
                for _ in range(passes):
                    for i, (x, y) in enumerate(loader):
                        F.cross_entropy(net(x), y).backward()
                        steps[0] += 1
                        step(i)
                        if i == stop:
                            break
        return shared

    def loader(self, training, processes=0, batch=8, **options):
        data = TensorDataset(X, Y)
        return DataLoader(data, batch_sampler=training.batches(data, batch), num_workers=processes, **options)

    def test_after_the_step_of_the_last_batch(self):
        for processes in (0, 2):
            for batch, count in ((8, 5), (20, 2), (40, 1), (2, 20)):
                for training, net, step in self.trainings():
                    with self.subTest(type(training).__name__, processes=processes, batches=count):
                        loader = self.loader(training, processes, batch)
                        shared = self.train(training, net, loader, lambda i: step())
                        self.assertEqual(shared, [count])

    def test_after_each_pass_of_an_epoch(self):
        for processes in (0, 2):
            for training, net, step in self.trainings():
                loader = self.loader(training, processes)
                self.assertEqual(self.train(training, net, loader, lambda i: step(), passes=2), [5, 10])

    def test_not_when_the_program_breaks_out(self):
        for processes in (0, 2):
            for training, net, step in self.trainings():
                self.assertEqual(self.train(training, net, self.loader(training, processes), lambda i: step(), stop=1), [])

    def test_micro_batches_count(self):
        for processes in (0, 2):
            net = model()
            job = self.job(net)
            shared = []
            loader = self.loader(job, processes, 5)
            with mock.patch.object(job, "_share_early", lambda: shared.append(job._steps_made)):
                for _ in job.epochs(1):
                    for i, (x, y) in enumerate(loader):
                        if i % 2 == 0:
                            with job.accumulate():
                                F.cross_entropy(net(x), y).backward()
                        else:
                            F.cross_entropy(net(x), y).backward()
                            job.step(10)
            self.assertEqual(shared, [4], processes)

    def train_by_two(self, processes):
        net = model()
        optimizer = self.optimizer(net)
        step = lambda i: i % 2 and (optimizer.step(samples=10), optimizer.zero_grad())
        return self.train(optimizer, net, self.loader(optimizer, processes, 5), step)

    def test_several_backwards_for_a_step_of_an_optimizer(self):
        self.assertEqual(self.train_by_two(0), [8])

    def test_several_backwards_for_a_step_of_an_optimizer_with_batches_read_ahead(self):
        self.assertEqual(self.train_by_two(2), [8])

    def test_several_backwards_in_one_accumulate(self):
        for processes in (0, 2):
            net = model()
            job = self.job(net)
            shared = []
            with mock.patch.object(job, "_share_early", lambda: shared.append(job._steps_made)):
                for _ in job.epochs(1):
                    batches = iter(self.loader(job, processes, 5))
                    for _ in range(2):
                        with job.accumulate():
                            for x, y in (next(batches) for _ in range(3)):
                                F.cross_entropy(net(x), y).backward()
                        for x, y in (next(batches),):
                            F.cross_entropy(net(x), y).backward()
                        job.step(20)
                    self.assertIsNone(next(batches, None))
            self.assertEqual(shared, [2], processes)

    def test_batches_without_a_step(self):
        for training, net, step in self.trainings():
            loader = self.loader(training)
            self.assertEqual(self.train(training, net, loader, lambda i: step() if i != 2 else None), [5])

    def test_it_agrees_settles_exchanges_and_refreshes_and_steps_may_follow(self):
        net = model()
        job = self.begin(self.job(net))
        done = []
        for name in ("_agree", "_settle", "_exchange_buffers", "_refresh"):
            setattr(job, name, lambda name=name, **options: done.append((name, *options.values())))
        job._share_early()
        self.assertEqual(done, [], "one worker has nobody to share with")
        job._view = job._view._replace(num_workers=2)
        job._share_early()
        self.assertEqual(done, [("_agree",), ("_settle", False), ("_exchange_buffers", False), ("_refresh",)])
        self.assertFalse(job._has_finished_steps)
        for reason in ("_has_met", "_is_lost"):
            done.clear()
            setattr(job, reason, True)
            job._share_early()
            self.assertEqual(done, [])
            setattr(job, reason, False)

    def test_own_loaders_of_exactly_so_many_batches_are_passes_too(self):
        for training, net, step in self.trainings():
            data = TensorDataset(X, Y)
            with mock.patch("dtkv.torch.elastic._newest", lambda training=training: of(training)):
                taken = dt.take(DataLoader(data, 16), 3)
                self.assertEqual(self.train(training, net, taken, lambda i: step()), [3])


class Leads(Trainings):
    """T2b."""

    def test_after_the_epochs_the_lead_is_who_it_was_when_all_met(self):
        for training, net, step in self.trainings():
            with mock.patch.object(type(training.store), "is_lead", False):
                for _ in training.epochs(1):
                    self.assertFalse(training.is_lead)
                    step()
            self.assertTrue(training.store.is_lead)
            self.assertFalse(training.is_lead)


class Loops(Trainings):
    """Several loops over epochs in a program."""

    def test_a_newcomer_of_a_later_loop_begins_there(self):
        for training, net, step in self.trainings():
            store, asked = training.store, []

            def boundary(epoch):
                asked.append(epoch)
                return dtkv.View(1, 0, 1, max(epoch, 3), False, False)

            with mock.patch.object(store, "epoch_boundary", boundary):
                seen = [*training.epochs(2), *training.epochs(5, begin=2)]
            self.assertEqual((seen, asked), ([3, 4], [0, 4]))


class Removed(Trainings):
    """What follows epochs() at a worker that was removed."""

    def test_a_sum_of_a_removed_worker_says_what_to_write(self):
        job = self.job(model())

        def leaves(epoch):
            raise dtkv.Leave("removed")

        with mock.patch.object(job.store, "epoch_boundary", leaves):
            self.assertEqual(list(job.epochs(2)), [])
        self.assertTrue(job.left)
        self.assertFalse(job.is_lead)
        for call in (lambda: job.total(n=1), lambda: dt.all_reduce(torch.ones(1))):
            with self.assertRaisesRegex(dtkv.InvalidUse, "if not job.left:"):
                call()


class Faults(Trainings):
    """A signal's handler raises when a function of libdtkv has returned, in L1 to L3; the program goes on."""

    STEP = ("dtkv_init", "dtkv_push", "dtkv_pull", "dtkv_pushpull", "dtkv_wait", "dtkv_progress", "dtkv_finish_steps")

    def once(self, name):
        """After its next call."""
        has_raised = []

        def function(real, *arguments):
            code = real(*arguments)
            if not has_raised:
                has_raised.append(True)
                raise Alarm
            return code

        return instead_of(name, function)

    def all_trainings(self):
        for training, net, step in self.trainings():
            yield training, lambda net=net, step=step: (backward(net), step())
        dt.init_process_group()
        wrapped = DDP(model())
        optimizer = torch.optim.SGD(wrapped.parameters(), 0.1)
        state = dt.DDPState(wrapped, optimizer, type="local")
        self.addCleanup(state.close)
        state._owns_data = True
        wrapped.register_comm_hook(state, dt.ddp_hook)
        yield state, lambda: (backward(wrapped), optimizer.step(), optimizer.zero_grad())

    def test_in_a_step_a_total_and_a_sum(self):
        for name in self.STEP:
            for training, step in self.all_trainings():
                inner = of(training)
                with self.subTest(name=name, training=type(training).__name__):
                    for _ in training.epochs(2):
                        step()
                        for action in (step, lambda: dt.all_reduce(torch.ones(3)), lambda: training.total(n=1)):
                            with self.once(name):
                                try:
                                    action()
                                except Alarm:
                                    pass
                            if action is step:
                                step()
                        self.assertEqual(training.total(n=2), {"n": 2})
                    self.assertEqual(dt.all_reduce(torch.full((3,), 5.0)).tolist(), [5, 5, 5])
                    inner.store.wait_all()
                    self.assertEqual((inner.store._pending, inner.store._calls), ({}, {}))

    def test_at_a_boundary_after_which_the_program_begins_its_epochs_again(self):
        for name in (*self.STEP, "dtkv_epoch_boundary"):
            for training, step in self.all_trainings():
                with self.subTest(name=name, training=type(training).__name__):
                    with self.once(name):
                        try:
                            for _ in training.epochs(1):
                                step()
                        except Alarm:
                            pass
                    done = 0
                    for _ in training.epochs(3, begin=1):
                        step()
                        done += training.total(n=1)["n"]
                    self.assertEqual(done, 2)


if __name__ == "__main__":
    torch.set_num_threads(1)
    unittest.main()
