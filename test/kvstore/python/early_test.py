"""dt.Optimizer's exchange beside its compute, in one process: what leaves when, which steps fit, and what is said where they do
not.

Run by ctest with PYTHONPATH and DTKV_LIBRARY; by hand the same way.
"""

import contextlib
import unittest
import warnings

import torch
import torch.nn.functional as F
from torch import nn

import dtkv
import dtkv.torch as dt
from recording import recorded

WIDTH = 512
"""A layer's weight has 1 MiB, a bucket of its own."""
X = torch.randn(64, WIDTH, generator=torch.Generator().manual_seed(1))
Y = (X[:, 0] > 0).long()


def model(dtype=torch.float32):
    torch.manual_seed(2)
    return nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(3))).to(dtype)


def loss_of(net, count=8):
    return F.cross_entropy(net(X[:count].to(net[0].weight.dtype)).float(), Y[:count])


def sgd(parameters):
    return torch.optim.SGD(parameters, 0.1, momentum=0.9)


class Case(unittest.TestCase):
    def optimizer(self, net, make=sgd, overlap=True, name=""):
        optimizer = dt.Optimizer(make(net.parameters()), net, overlap=overlap, name=name, type="local")
        self.addCleanup(optimizer.close)
        dt.own_data()
        return optimizer

    def as_without(self, steps, net=model, make=sgd):
        """steps(optimizer, net) gives the same weights with overlap and without; returns what optimizer.overlap said."""
        nets = []
        for overlap in (False, True):
            nets.append(net())
            optimizer = self.optimizer(nets[-1], make, overlap)
            for _ in optimizer.epochs(1):
                steps(optimizer, nets[-1])
        for p, q in zip(*(one.parameters() for one in nets)):
            self.assertTrue(torch.equal(p, q))
        self.assertFalse(torch.equal(nets[0][0].weight, net()[0].weight))
        return optimizer.overlap

    @contextlib.contextmanager
    def overlapping(self, net, **options):
        """An optimizer within its first epoch, whose gradients leave in backward."""
        optimizer = self.optimizer(net, **options)
        for _ in optimizer.epochs(1):
            for _ in range(2):
                make_step(optimizer, net)
            self.assertEqual(optimizer.overlap, "yes")
            yield optimizer


def make_step(optimizer, net, count=8):
    optimizer.zero_grad(set_to_none=True)
    loss_of(net, count).backward()
    optimizer.step(samples=count)


class Order(Case):
    def test_gradients_leave_in_backward_and_their_means_are_waited_for_in_step(self):
        net = model()
        with recorded() as double, self.overlapping(net) as optimizer:
            for at, layer in enumerate(net):
                layer.weight.register_hook(lambda _, at=at: double.note("gradient", at))
            optimizer.zero_grad(set_to_none=True)
            begin = len(double.log)
            loss_of(net).backward()
            double.note("step")
            own = [p.grad.clone() for p in net.parameters()]
            optimizer.step(samples=8)
            said = double.since(begin)
            backward = said[: said.index(("step",))]
            pushed = [sorted(one[1]) for one in backward if one[0] == "push"]
            self.assertEqual(pushed, [[f"{at}.bias", f"{at}.weight"] for at in (2, 1, 0)])
            self.assertEqual([one[3] for one in double.pushes(begin)], [8, 8, 8])
            self.assertLess([one[0] for one in backward].index("push"), backward.index(("gradient", 0)))
            self.assertNotIn(("wait",), backward)
            self.assertEqual(len(double.pushes(begin)), 3)
            for p, gradient in zip(net.parameters(), own):  # alone the mean is the worker's own
                self.assertTrue(torch.equal(p.grad, gradient))

    def test_the_programs_gradient_is_its_own_until_step(self):
        net = model()
        with self.overlapping(net) as optimizer:
            optimizer.zero_grad(set_to_none=True)
            loss_of(net).backward()
            kept = net[0].weight.grad
            optimizer.step(samples=8)
            self.assertIs(net[0].weight.grad, kept)
            optimizer.zero_grad(set_to_none=True)
            net[2](torch.ones(WIDTH)).sum().backward()
            optimizer.step(samples=8)
            self.assertIsNone(net[0].weight.grad)


class Bits(Case):
    def test_of_optimizers_and_types(self):
        for make in (sgd, lambda p: torch.optim.Adam(p, 0.01), lambda p: torch.optim.SGD(p, 0.1)):
            for dtype in (torch.float32, torch.float64, torch.bfloat16):

                def steps(optimizer, net):
                    for count in (8, 8, 7, 8):
                        make_step(optimizer, net, count)

                with self.subTest(dtype=dtype):
                    self.assertEqual(self.as_without(steps, lambda dtype=dtype: model(dtype), make), "yes")

    def test_of_gradients_that_are_zeroed_in_place_and_of_layers_without_one(self):
        def steps(optimizer, net):
            for i in range(5):
                optimizer.zero_grad(set_to_none=False)
                optimizer.samples = 8  # nothing else says so
                F.cross_entropy(net[: 2 + i % 2](X[:8]), Y[:8]).backward()
                optimizer.step(samples=8)

        self.assertEqual(self.as_without(steps), "yes")

    def test_of_clipping_the_mean(self):
        def steps(optimizer, net):
            for _ in range(4):
                optimizer.zero_grad(set_to_none=True)
                loss_of(net).backward()
                optimizer.synchronize(8)
                nn.utils.clip_grad_norm_(net.parameters(), 1e-3)
                optimizer.step(samples=8)

        self.assertEqual(self.as_without(steps), "yes")

    def test_of_programs_that_do_not_fit(self):
        def clips(optimizer, net):
            loss_of(net).backward()
            nn.utils.clip_grad_value_(net.parameters(), 1e-4)
            optimizer.step(samples=8)

        def accumulates(optimizer, net):
            for _ in range(2):
                (loss_of(net) / 2).backward()
            optimizer.step(samples=8)

        def closes(optimizer, net):
            def closure():
                optimizer.zero_grad()
                loss = loss_of(net)
                loss.backward()
                return loss

            optimizer.step(closure, samples=8)

        def knows_late(optimizer, net):
            loss_of(net).backward()
            optimizer.step(samples=5)

        for one, why in (
            (clips, "gradient was changed between backward and step"),
            (accumulates, "had two gradients in a step"),
            (closes, "step.. is given a closure"),
            (knows_late, "nothing says before backward that the step has 5 samples: set optimizer.samples"),
        ):

            def steps(optimizer, net, one=one):
                for _ in range(4):
                    optimizer.zero_grad(set_to_none=True)
                    one(optimizer, net)

            with self.subTest(why=why):
                self.assertRegex(self.as_without(steps), rf"^no \(.*{why}")


class Words(Case):
    def test_step_without_samples_and_the_programs_own_word(self):
        net = model()
        optimizer = self.optimizer(net)
        for _ in optimizer.epochs(1):
            for _ in range(3):
                optimizer.zero_grad(set_to_none=True)
                loss_of(net).backward()
                optimizer.step()
            self.assertEqual(optimizer.overlap, "yes")
        net = model()
        optimizer = self.optimizer(net)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for _ in optimizer.epochs(1):
                for count in (5, 5, 4, 3):
                    optimizer.samples = count
                    optimizer.zero_grad(set_to_none=True)
                    loss_of(net).backward()
                    optimizer.step(samples=count)
                self.assertEqual(optimizer.overlap, "yes")

    def test_samples_that_differ_from_what_was_sent_count_no_more(self):
        net = model()
        with self.overlapping(net) as optimizer:
            optimizer.zero_grad(set_to_none=True)
            loss_of(net).backward()
            with self.assertWarnsRegex(RuntimeWarning, "was given 5 samples, .* left in backward with 8, which count"):
                optimizer.step(samples=5)
            self.assertEqual(optimizer.overlap, "no (step() was given 5 samples)")
            make_step(optimizer, net)

    def test_a_gradient_that_changes_when_it_has_left_is_an_error(self):
        for change in (lambda p: p.grad.mul_(0.5), lambda p: setattr(p, "grad", None), lambda p: p.sum().backward()):
            net = model()
            with self.overlapping(net) as optimizer:
                optimizer.zero_grad(set_to_none=True)
                loss_of(net).backward()
                change(net[1].weight)
                with self.assertRaisesRegex(dtkv.InvalidUse, "^1.weight's gradient changed .*Optimizer.*overlap=False"):
                    optimizer.step(samples=8)
                make_step(optimizer, net)

    def test_a_backward_without_a_step_is_an_error(self):
        net = model()
        optimizer = self.optimizer(net)
        with self.assertRaisesRegex(dtkv.InvalidUse, "no step.. followed"):
            for _ in optimizer.epochs(1):
                for _ in range(2):
                    make_step(optimizer, net)
                loss_of(net).backward()

    def test_the_loss_of_a_server_leaves_no_gradient_behind(self):
        for lost in ("in backward", "before step", "and no step is made"):
            net = model()
            with self.subTest(lost), recorded() as double:
                optimizer = self.optimizer(net)
                view = optimizer._training._view
                optimizer.store.epoch_boundary = lambda epoch, view=view: view._replace(epoch=epoch)
                begun = 0
                for _ in optimizer.epochs(3):
                    begun += 1
                    for i in range(4):
                        is_now = (begun, i) == (2, 2)
                        optimizer.zero_grad(set_to_none=True)
                        if is_now and lost == "in backward":
                            double.instead["dtkv_pushpull"] = lambda real, *_: dtkv.Rollback.code
                        loss_of(net).backward()
                        double.instead.clear()
                        optimizer._training._is_lost |= is_now and lost != "in backward"
                        if is_now and lost == "and no step is made":
                            break
                        optimizer.step(samples=8)
                        self.assertEqual(optimizer.interrupted, is_now)
                        if is_now:
                            break
                self.assertEqual((begun, optimizer.overlap), (4, "yes"))

    def test_several_optimizers_do_not_overlap(self):
        nets = {name: model() for name in "DG"}
        both = {
            name: dt.Optimizer(sgd(net.parameters()), net, name=name, overlap=None, type=None) for name, net in nets.items()
        }
        self.addCleanup(both["D"].close)
        dt.own_data()
        for one in both.values():  # a process alone, as a worker of a job
            one._early._is_observing = True
        for _ in both["D"].epochs(1):
            for name, net in nets.items():
                make_step(both[name], net)
            self.assertEqual(both["G"].overlap, "no (several optimizers train)")

    def test_the_environment_and_the_program_turn_it_off(self):
        self.assertEqual(self.optimizer(model(), overlap=False).overlap, "no (overlap=False)")
        self.assertEqual(self.optimizer(model(), overlap=None).overlap, "no (the process is alone)")


if __name__ == "__main__":
    unittest.main()
