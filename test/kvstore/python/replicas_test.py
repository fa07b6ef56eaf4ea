"""dtkv.torch.Optimizer, DDPState and what they send, in one process, beside torch alone."""

import collections
import math
import unittest
import zlib
from types import SimpleNamespace
from unittest import mock

import numpy
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset

import dtkv
import dtkv.torch as dt
from dtkv.torch import replicas
from dtkv.torch.transfer import Channel, pack, unpack
from recording import recorded

X = torch.randn(100, 8, generator=torch.Generator().manual_seed(1))
Y = (X[:, 0] > 0).long()


def model():
    torch.manual_seed(2)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))


def is_equal(a, b):
    return all(torch.equal(p, q) for p, q in zip(a.parameters(), b.parameters()))


def begin(case, training):
    """The training is in its first epoch until the test ends; its program divides its data itself."""
    epochs = training.epochs(1)
    case.addCleanup(epochs.close)
    next(epochs)
    training._owns_data = True


def backward(net, ids=slice(None)):
    loss = F.cross_entropy(net(X[ids]), Y[ids])
    loss.backward()
    return loss


class Transfer(unittest.TestCase):
    def test_plain_values_come_back_as_they_were(self):
        tree = {
            "numbers": [0, -(2**70), 0.1, math.inf, True, None, "text \u00e9"],
            "pair": (0.9, [0.999]),
            3: collections.OrderedDict([("b", 1), ("a", 2)]),
            "milestones": collections.Counter({30: 1, 80: 2}),
            None: {},
        }
        back = unpack(pack(tree))
        self.assertEqual(back, tree)
        self.assertIs(type(back[3]), collections.OrderedDict)
        self.assertIs(type(back["milestones"]), collections.Counter)
        self.assertIs(type(back["numbers"][4]), bool)

    def test_tensors_of_each_type_come_back_with_their_bits(self):
        values = torch.tensor([0.0, -1.5, math.nan, 3.0])
        for dtype in ("float32", "float64", "float16", "bfloat16", "int64", "int32", "uint8", "bool", "complex64"):
            for tensor in (values.to(getattr(torch, dtype)), torch.ones((), dtype=getattr(torch, dtype))):
                with self.subTest(dtype, shape=tensor.shape):
                    back = unpack(pack([tensor, 1]))[0]
                    self.assertEqual((back.dtype, back.shape), (tensor.dtype, tensor.shape))
                    raw = [one.reshape(-1).view(torch.uint8).tolist() for one in (tensor, back)]
                    self.assertEqual(*raw)
        self.assertEqual(unpack(pack(torch.empty(0, 3))).shape, (0, 3))
        strided = torch.arange(6).reshape(2, 3).t()
        self.assertTrue(torch.equal(unpack(pack(nn.Parameter(strided.float()))), strided.float()))

    def test_optimizers_states_come_back(self):
        for make in (torch.optim.Adam, torch.optim.LBFGS, torch.optim.Rprop):
            net, other = model(), model()
            optimizer, again = make(net.parameters()), make(other.parameters())

            def step(one, its):
                def closure():
                    one.zero_grad()
                    return backward(its)

                one.step(closure)

            for _ in range(3):
                step(optimizer, net)
            again.load_state_dict(unpack(pack(optimizer.state_dict())))
            other.load_state_dict(unpack(pack(net.state_dict())))
            step(optimizer, net)
            step(again, other)
            self.assertTrue(is_equal(net, other), make)

    def test_anything_else_is_refused_by_name(self):
        class Special(dict):
            pass

        for value, why in (
            ({"hook": print}, "state.hook: builtin_function_or_method cannot be sent"),
            ({"a": [1, object()]}, r"state.a\[1\]: object cannot"),
            ({"a": Special()}, "state.a: Special cannot"),
            ({(1, 2): 3}, "state: a key of type tuple"),
            ({"t": torch.eye(2).to_sparse()}, "state.t: a tensor of torch.float32, torch.sparse_coo"),
            (b"bytes", "state: bytes cannot"),
        ):
            with self.subTest(why), self.assertRaisesRegex(TypeError, "^" + why):
                pack(value, "state")

    def test_bytes_of_another_kind_are_refused(self):
        for form in (b'{"tensor": "builtins.eval", "shape": [], "at": 0}', b'{"os": []}', b"{", b'{"a": 1, "b": 2}'):
            with self.subTest(form), self.assertRaises(ValueError):
                unpack(bytearray(len(form).to_bytes(8, "little") + form + bytes(64)))
        far = b'{"tensor": "torch.float32", "shape": [99], "at": 0}'
        with self.assertRaises(ValueError):
            unpack(bytearray(len(far).to_bytes(8, "little") + far + bytes(64)))


class Carried(unittest.TestCase):
    def test_a_transfer_begins_anew_when_the_lead_is_lost(self):
        """One worker of several; what the others' sums are is written here."""
        data = bytearray(numpy.random.default_rng(1).bytes(10 * 2**20 + 5))
        good, bad = bytearray(data), bytearray(data)
        bad[9 * 2**20] ^= 1
        whole = [1, len(data), zlib.crc32(data)]
        script = [([0, 0, 0], b""), ([2, 7, 7], b""), (whole, bad), (whole, good)]
        turns = []

        class Others:
            is_lead = False

            def init(self, keys, auxiliary, **flags):
                assert auxiliary

            def pushpull(self, key, array, reduce, wait=True):
                assert reduce == "sum" and not array.any()
                if key == "dtkv.channel.head":
                    turns.append(0)
                    array[:] = script[len(turns) - 1][0]
                    return None
                part = script[len(turns) - 1][1][turns[-1] * 2**20 :][: 2**20]
                turns[-1] += 1
                padded = bytes(part) + bytes(2**20 - len(part))
                return SimpleNamespace(wait=lambda: array.__setitem__(slice(None), numpy.frombuffer(padded, "i8")))

        self.assertEqual(Channel(Others()).broadcast(lambda: self.fail("it is not the lead")), data)
        self.assertEqual(turns, [0, 0, 11, 11])

    def test_arrays_become_the_leads_and_begin_anew_when_it_is_lost(self):
        """This worker is not the lead at first, and then it is."""
        leads, given, mine = torch.tensor([7, 8]), torch.tensor([7, 9]), torch.tensor([1, 2])
        good, sent = zlib.crc32(leads.numpy().data), []

        class Others:
            heads = [[0, 0, 0], [1, 16, good], [0, 0, 0]]
            is_lead = property(lambda self: len(self.heads) == 1)

            def init(self, keys, auxiliary, **flags):
                assert auxiliary

            def pushpull(self, keys, array=None, reduce="auto"):
                assert reduce == "sum"
                if keys == "dtkv.channel.head":
                    array += numpy.array(self.heads.pop(0))
                    return
                sent.append(keys["a"].tolist())
                keys["a"] += given * (not self.is_lead and bool(self.heads))

        Channel(Others()).share({"a": mine})
        self.assertEqual(sent, [[0, 0], [1, 2]])
        self.assertEqual(mine.tolist(), [1, 2])


class Optimizers(unittest.TestCase):
    def optimizer(self, net, make=lambda p: torch.optim.Adam(p, 0.01)):
        optimizer = dt.Optimizer(make(net.parameters()), net, type="local")
        self.addCleanup(optimizer.close)
        return optimizer

    def test_alone_it_is_the_optimizer(self):
        ours, theirs = model(), model()
        optimizer, alone = self.optimizer(ours), torch.optim.Adam(theirs.parameters(), 0.01)
        loader = DataLoader(TensorDataset(X, Y), batch_sampler=optimizer.batches(X, 32))
        steps = 0
        for _ in optimizer.epochs(3):
            for x, y in loader:
                for one, net in ((optimizer, ours), (alone, theirs)):
                    one.zero_grad()
                    F.cross_entropy(net(x), y).backward()
                optimizer.step(samples=len(x))
                alone.step()
                steps += 1
        self.assertEqual(steps, 12)
        self.assertTrue(is_equal(ours, theirs))
        self.assertFalse(is_equal(ours, model()))
        self.assertEqual(str(optimizer.state_dict()), str(alone.state_dict()))

    def test_it_is_an_optimizer_of_torch(self):
        net = model()
        optimizer = self.optimizer(net, lambda p: torch.optim.SGD(p, 0.1, momentum=0.9))
        schedulers = [
            torch.optim.lr_scheduler.MultiStepLR(optimizer, [2, 4]),
            torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer),
            torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=10),
        ]
        optimizer.register(**{f"schedule{i}": one for i, one in enumerate(schedulers)})
        dt.own_data()
        for _ in optimizer.epochs(2):
            optimizer.zero_grad(set_to_none=True)
            self.assertIsNone(net[0].weight.grad)
            backward(net)
            optimizer.step()
            schedulers[2].step()
        self.assertEqual(optimizer.param_groups[0]["lr"], schedulers[2].get_last_lr()[0])
        saved = optimizer.state_dict()
        optimizer.load_state_dict(saved)
        self.assertIs(optimizer.state[net[0].weight], optimizer._optimizer.state[net[0].weight])
        self.assertEqual(optimizer.defaults["momentum"], 0.9)
        self.assertIn("SGD", repr(optimizer))
        with self.assertRaises(AttributeError):
            optimizer.no_such_thing
        with self.assertRaisesRegex(TypeError, "state_dict"):
            torch.save(optimizer, "/dev/null")

    def test_closures(self):
        for make in (torch.optim.LBFGS, lambda p: torch.optim.SGD(p, 0.1)):
            ours, theirs = model(), model()
            optimizer, alone = self.optimizer(ours, make), make(theirs.parameters())
            dt.own_data()
            for _ in optimizer.epochs(2):
                losses = []
                for one, net in ((optimizer, ours), (alone, theirs)):

                    def closure(one=one, net=net):
                        one.zero_grad()
                        return backward(net)

                    losses.append(one.step(closure).item())
                self.assertEqual(*losses)
            self.assertTrue(is_equal(ours, theirs))

    def test_parameters_without_a_gradient_stay(self):
        net = model()
        optimizer = self.optimizer(net, lambda p: torch.optim.SGD(p, 0.1, weight_decay=0.5))
        begin(self, optimizer)
        (net[2](torch.ones(16)).sum()).backward()
        optimizer.step()
        self.assertIsNone(net[0].weight.grad)
        self.assertTrue(torch.equal(net[0].weight, model()[0].weight))
        self.assertFalse(torch.equal(net[2].weight, model()[2].weight))

    def test_groups_that_are_added_later(self):
        net = model()
        net.loose = loose = nn.Parameter(torch.ones(3))
        optimizer = dt.Optimizer(torch.optim.SGD(net[0].parameters(), 0.1), net, type="local")
        self.addCleanup(optimizer.close)
        dt.own_data()
        for epoch in optimizer.epochs(2):
            if epoch == 1:
                optimizer.add_param_group({"params": net[2].parameters(), "lr": 0.2})
                optimizer.add_param_group({"params": loose})
            optimizer.zero_grad()
            backward(net)
            loose.sum().backward()
            optimizer.step()
            self.assertEqual(torch.equal(net[2].weight, model()[2].weight), epoch == 0)
        self.assertTrue(torch.allclose(loose, torch.full((3,), 1 - 0.1)))

    def test_clipping_the_mean(self):
        net = model()
        optimizer = self.optimizer(net, lambda p: torch.optim.SGD(p, 1.0))
        dt.own_data()
        for _ in optimizer.epochs(1):
            backward(net)
            optimizer.synchronize(len(X))
            nn.utils.clip_grad_norm_(net.parameters(), 1e-3)
            step = optimizer._training._step
            optimizer.step()
            self.assertEqual(optimizer._training._step, step)
            norm = sum(((p - q) ** 2).sum() for p, q in zip(net.parameters(), model().parameters())).sqrt()
            self.assertAlmostEqual(norm.item(), 1e-3, places=6)

    def test_a_step_of_no_samples_and_wrong_uses(self):
        net = model()
        optimizer = self.optimizer(net, lambda p: torch.optim.SGD(p, 1.0))
        dt.own_data()
        for _ in optimizer.epochs(1):
            backward(net)
            optimizer.step(samples=0)
            self.assertTrue(is_equal(net, model()))
            for wrong in (-1, 0.5, "3", torch.ones(1)):
                with self.assertRaisesRegex(ValueError, "^samples is the number"):
                    optimizer.step(samples=wrong)
            self.assertEqual(optimizer.total(n=2**60 + 1), {"n": 2**60 + 1})
            with self.assertRaisesRegex(dtkv.InvalidUse, "after total"):
                optimizer.step()
        sparse = nn.Embedding(4, 2, sparse=True)
        optimizer = self.optimizer(sparse, lambda p: torch.optim.SGD(p, 1.0))
        begin(self, optimizer)
        sparse(torch.tensor([1])).sum().backward()
        with self.assertRaisesRegex(TypeError, "^weight: its gradient is sparse"):
            optimizer.step()
        with self.assertRaisesRegex(TypeError, "^bias: .*complex64"):
            self.optimizer(nn.Linear(2, 2, dtype=torch.complex64))
        net = model()
        optimizer = self.optimizer(net)
        with self.assertRaisesRegex(dtkv.Mismatch, "0.bias"):
            begin(self, optimizer)
            net.double()
            net[0].weight.sum().backward()
            optimizer.step()

    def test_parameters_of_bfloat16_train_as_with_torch_alone(self):
        net, alone = model().bfloat16(), model().bfloat16()
        optimizer = self.optimizer(net, lambda p: torch.optim.SGD(p, 0.125, momentum=0.5))
        plain = torch.optim.SGD(alone.parameters(), 0.125, momentum=0.5)
        dt.own_data()
        for _ in optimizer.epochs(2):
            for _ in range(5):
                for its, one in ((net, optimizer), (alone, plain)):
                    one.zero_grad()
                    F.cross_entropy(its(X.bfloat16()).float(), Y).backward()
                    one.step()
        self.assertTrue(is_equal(net, alone))
        self.assertFalse(is_equal(net, model().bfloat16()))

    def test_after_the_loss_of_a_server_an_epoch_begins_with_the_state_that_it_had(self):
        net = model()
        optimizer = self.optimizer(net, lambda p: torch.optim.Adam(p, 0.1))
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
        optimizer.register(scheduler=scheduler)
        dt.own_data()
        first, views = optimizer._training._view, {}
        optimizer.store.epoch_boundary = lambda epoch: views.pop(epoch, None) or first._replace(epoch=epoch)
        begins = []
        with mock.patch.object(dtkv.Store, "type", "dist_sync"), mock.patch.object(replicas, "_COPIES_BYTES", 0):
            for epoch in optimizer.epochs(6):
                begins.append((epoch, pack(optimizer._training._state())))
                optimizer.zero_grad()
                backward(net)
                optimizer.step()
                scheduler.step()
                if len(begins) == 3:  # epochs 0 to 2
                    views[3] = optimizer._training._view._replace(epoch=1, rolled_back=True)
            self.assertEqual([epoch for epoch, _ in begins], [0, 1, 2, 1, 2, 3, 4, 5])
            for first, again in ((1, 3), (2, 4)):
                self.assertEqual(begins[first], begins[again])
            self.assertEqual(sorted(optimizer._training._copies), [4, 5])
            views[6] = optimizer._training._view._replace(epoch=3, rolled_back=True)
            before = pack(optimizer._training._state())
            with self.assertWarnsRegex(RuntimeWarning, "^epoch 3 begins again with this worker's present weights"):
                next(optimizer.epochs(7, 6))
            self.assertEqual(pack(optimizer._training._state()), before)

    def test_a_parameter_that_is_replaced_is_refused_by_name(self):
        net = model()
        optimizer = self.optimizer(net)
        net[2] = nn.Linear(16, 2)
        with self.assertRaisesRegex(dtkv.InvalidUse, "^2.bias was replaced in the model"):
            next(optimizer.epochs(1))

    def test_a_parameter_that_is_replaced_between_epochs_is_refused_by_name(self):
        net = model()
        optimizer = self.optimizer(net)
        with self.assertRaisesRegex(dtkv.InvalidUse, "^2.bias was replaced in the model"):
            for _ in optimizer.epochs(2):
                optimizer.total(n=1)
                net[2] = nn.Linear(16, 2)

    def test_statistics_that_moved_are_found(self):
        net = nn.BatchNorm1d(8)
        optimizer = self.optimizer(net)
        net._buffers["running_mean"] = net.running_mean.clone()  # as .to() does
        for _ in optimizer.epochs(1):
            net(X)
        kept = numpy.zeros(8)
        optimizer.store.pull("dtkv.buffer.running_mean", kept)
        self.assertTrue(torch.equal(torch.from_numpy(kept).float(), net.running_mean))
        self.assertFalse(torch.equal(net.running_mean, torch.zeros(8)))

    def test_what_is_registered_has_a_plain_state(self):
        optimizer = self.optimizer(model())
        good = SimpleNamespace(state_dict=lambda: {"a": 1, "f": print}, load_state_dict=print)
        optimizer.register(good=good)
        with self.assertRaisesRegex(ValueError, "'good' is registered"):
            optimizer.register(good=good)
        with self.assertRaisesRegex(TypeError, "^number: int has no state_dict"):
            optimizer.register(number=3)
        with self.assertRaisesRegex(TypeError, "^bad.x: object cannot be sent"):
            optimizer.register(bad=SimpleNamespace(state_dict=lambda: {"x": object()}, load_state_dict=print))
        optimizer.state[optimizer.param_groups[0]["params"][0]]["mine"] = object()
        with self.assertRaisesRegex(TypeError, r"^state.optimizer.state.0.weight.mine: object cannot be sent"):
            next(optimizer.epochs(1))

    def test_collectives(self):
        with self.assertRaisesRegex(dtkv.InvalidUse, "before the first epoch"):
            self.optimizer(model())
            dt.all_reduce(torch.ones(2))
        optimizer = self.optimizer(model())
        for _ in optimizer.epochs(1):
            for tensor in (torch.arange(6.0).reshape(2, 3), torch.arange(6.0).reshape(2, 3).t(), torch.tensor(2.5)):
                before = tensor.clone()
                self.assertIs(dt.all_reduce(tensor), tensor)
                self.assertTrue(torch.equal(tensor, before))
            self.assertEqual(dt.all_reduce(torch.tensor([2**60 + 1]), op="sum").item(), 2**60 + 1)
            self.assertEqual(dt.all_reduce(torch.ones(2).half()).tolist(), [1, 1])
            with self.assertRaisesRegex(TypeError, "complex64"):
                dt.all_reduce(torch.ones(2, dtype=torch.complex64))
            with self.assertRaisesRegex(ValueError, "max"):
                dt.all_reduce(torch.ones(2), op="max")
            self.assertEqual(dt.broadcast({"a": (1, "b")}), {"a": (1, "b")})
            with self.assertRaisesRegex(TypeError, "^object.f: "):
                dt.broadcast({"f": print})


class Branches(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(8, 2), nn.Linear(8, 2)

    def forward(self, x, both=True):
        return self.a(x) + self.b(x) if both else self.a(x)


class Hooks(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        dt.init_process_group()
        dt.init_process_group()

    def ddp(self, net, make=lambda p: torch.optim.SGD(p, 0.1, momentum=0.9), **options):
        wrapped = DDP(net, **options)
        optimizer = make(wrapped.parameters())
        state = dt.DDPState(wrapped, optimizer, type="local")
        self.addCleanup(state.close)
        wrapped.register_comm_hook(state, dt.ddp_hook)
        return wrapped, optimizer, state

    def test_alone_it_is_ddp(self):
        for options in ({}, {"bucket_cap_mb": 1e-4}, {"gradient_as_bucket_view": True}):
            with self.subTest(options):
                ours, theirs = model(), model()
                wrapped, optimizer, state = self.ddp(ours, **options)
                alone = torch.optim.SGD(theirs.parameters(), 0.1, momentum=0.9)
                for _ in state.epochs(3):
                    for ids in state.batches(X, 32):
                        state.samples = len(ids)
                        for one, net in ((optimizer, wrapped), (alone, theirs)):
                            one.zero_grad()
                            backward(net, ids)
                            one.step()
                    self.assertEqual(state._step, 4)
                self.assertTrue(is_equal(ours, theirs))
                self.assertFalse(is_equal(ours, model()))

    def test_no_sync_sends_nothing(self):
        wrapped, optimizer, state = self.ddp(model())
        begin(self, state)
        with wrapped.no_sync():
            backward(wrapped)
        self.assertEqual(state._step, 0)
        backward(wrapped)
        self.assertEqual(state._step, 1)

    def test_a_branch_that_is_not_used(self):
        wrapped, optimizer, state = self.ddp(Branches(), find_unused_parameters=True)
        begin(self, state)
        before = wrapped.module.b.weight.clone()
        for both in (False, True, False):
            optimizer.zero_grad(set_to_none=True)
            wrapped(X, both).sum().backward()
            self.assertEqual(wrapped.module.b.weight.grad is not None, both)
            optimizer.step()
            self.assertEqual(torch.equal(wrapped.module.b.weight, before), not both and state._step == 1)

    def test_each_bucket_is_complete_when_its_mean_is_there(self):
        futures, seen = [], []

        def hook(state, bucket):
            futures.append(dt.ddp_hook(state, bucket))
            return futures[-1]

        def wait(real, *arguments):
            seen.append([one.done() for one in futures])
            return real(*arguments)

        net = nn.Sequential(nn.Linear(8, 1 << 15), nn.Linear(1 << 15, 8), nn.Linear(8, 1 << 15))  # 1 MiB each
        with recorded() as double:
            wrapped = DDP(net, bucket_cap_mb=1)
            state = dt.DDPState(wrapped, torch.optim.SGD(wrapped.parameters(), 0.1), type="local")
            self.addCleanup(state.close)
            wrapped.register_comm_hook(state, hook)
            begin(self, state)
            wrapped(X[:2]).sum().backward()
            futures.clear()  # of one bucket: DDP divides the parameters after its first step
            double.instead["dtkv_wait"] = wait
            wrapped(X[:2]).sum().backward()
        self.assertGreater(len(futures), 2)
        done = [[i < count for i in range(len(futures))] for count in range(len(futures) + 1)]
        self.assertEqual(seen, done)  # the last wait is that for the facts

    def test_errors_keep_their_class(self):
        wrapped, optimizer, state = self.ddp(model())
        begin(self, state)
        state.samples = -1
        with self.assertRaisesRegex(ValueError, "^samples is the number"):
            backward(wrapped)
        wrapped, optimizer, state = self.ddp(model())
        begin(self, state)
        state.total(n=1)
        with self.assertRaisesRegex(dtkv.InvalidUse, "after total"):
            backward(wrapped)
        other = DDP(model())
        other.register_comm_hook(state, dt.ddp_hook)
        state._has_finished_steps = False
        with self.assertRaisesRegex(dtkv.InvalidUse, r"shape \(.*\) is not of the model"):
            backward(other)


if __name__ == "__main__":
    torch.set_num_threads(1)
    unittest.main()
