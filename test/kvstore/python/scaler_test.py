"""GradScaler and autocast with dtkv.torch, in one process, beside torch alone. Warnings are errors."""

import math
import unittest
import warnings

import torch
import torch.nn.functional as F
from cpu_scaler import cpu_scaler
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

import dtkv
import dtkv.torch as dt
from dtkv.torch import replicas

X = torch.randn(100, 8, generator=torch.Generator().manual_seed(1))
Y = (X[:, 0] > 0).long()
HAS_FLOAT16 = hasattr(torch, "amp") and hasattr(torch.amp, "GradScaler")
"""Whether PyTorch computes in float16 on the CPU."""


def model():
    torch.manual_seed(2)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))


def is_equal(a, b):
    return all(torch.equal(p, q) for p, q in zip(a.parameters(), b.parameters()))


def sgd(net):
    return torch.optim.SGD(net.parameters(), 0.5, momentum=0.9)


def loss_of(net, step=0):
    """In float16, or bfloat16; infinite in step 2."""
    with torch.autocast("cpu", dtype=torch.float16 if HAS_FLOAT16 else torch.bfloat16):
        out = net(X)
    loss = F.cross_entropy(out.float(), Y)
    return loss * math.inf if step == 2 else loss


class Scaling(unittest.TestCase):
    def setUp(self):
        caught = warnings.catch_warnings()
        caught.__enter__()
        self.addCleanup(caught.__exit__, None, None, None)
        warnings.simplefilter("error")

    def optimizer(self, net, scaler=None):
        optimizer = dt.Optimizer(sgd(net), net, type="local")
        self.addCleanup(optimizer.close)
        if scaler is not None:
            optimizer.register(scaler=scaler)
        self.begin(optimizer)
        return optimizer

    def begin(self, training):
        """The training is in its first epoch until the test ends."""
        epochs = training.epochs(1)
        self.addCleanup(epochs.close)
        next(epochs)

    def train(self, net, optimizer, scaler, before_step=lambda scaler: None, **with_samples):
        """The scales after five steps."""
        scales = []
        for step in range(5):
            optimizer.zero_grad()
            scaler.scale(loss_of(net, step)).backward()
            before_step(scaler)
            scaler.step(optimizer, **with_samples)
            scaler.update()
            scales.append(scaler.get_scale())
        return scales

    def test_an_optimizer_trains_as_torch_alone(self):
        for options in ({"init_scale": 8.0, "growth_interval": 2}, {"enabled": False}):
            ours, theirs = model(), model()
            scaler, alone = cpu_scaler(**options), cpu_scaler(**options)
            scales = self.train(ours, self.optimizer(ours, scaler), scaler, samples=100)
            self.assertEqual(scales, self.train(theirs, sgd(theirs), alone))
            if scaler.is_enabled():
                self.assertEqual(scales, [8, 16, 8, 8, 16])
                self.assertTrue(all(torch.isfinite(p).all() for p in ours.parameters()))
                self.assertTrue(is_equal(ours, theirs))
                self.assertFalse(is_equal(ours, model()))

    @staticmethod
    def clip(net, optimizer):
        def before_step(scaler):
            if isinstance(optimizer, dt.Optimizer):
                optimizer.synchronize(100)
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(net.parameters(), 0.1)

        return before_step

    def test_clipping_the_mean(self):
        ours, theirs = model(), model()
        scaler, alone = cpu_scaler(init_scale=8.0), cpu_scaler(init_scale=8.0)
        optimizer, other = self.optimizer(ours, scaler), sgd(theirs)
        self.train(ours, optimizer, scaler, self.clip(ours, optimizer))
        self.train(theirs, other, alone, self.clip(theirs, other))
        self.assertTrue(is_equal(ours, theirs))
        self.assertEqual(optimizer._training._step, 5)

        scaler.scale(loss_of(ours)).backward()
        scaler.unscale_(optimizer)
        for wrong in (lambda: optimizer.synchronize(1), lambda: scaler.step(optimizer)):
            with self.assertRaisesRegex(dtkv.InvalidUse, r"^unscale_\(\) before the mean"):
                wrong()

    def test_the_scaler_must_be_registered(self):
        net, scaler = model(), cpu_scaler()
        for optimizer in (self.optimizer(net), self.optimizer(net, cpu_scaler())):
            optimizer.zero_grad()
            scaler.scale(loss_of(net)).backward()
            with self.assertRaisesRegex(dtkv.InvalidUse, "^this GradScaler is not registered"):
                scaler.step(optimizer)
        with self.assertRaisesRegex(ValueError, "^other: one GradScaler is registered"):
            optimizer.register(other=scaler)
        with self.assertRaisesRegex(TypeError, "^step.. has no argument 'sample'"):
            optimizer.step(sample=3)

    def test_steps_after_the_loss_of_a_server_do_nothing(self):
        net, scaler = model(), cpu_scaler()
        optimizer = self.optimizer(net, scaler)
        optimizer._training._is_lost = True
        self.train(net, optimizer, scaler)
        self.train(net, optimizer, scaler, self.clip(net, optimizer))
        self.assertTrue(is_equal(net, model()))

    def test_who_follows_the_others_steps_has_the_same_weights_and_scale(self):
        """Of two workers, one without a batch: _follow() with the mean that the exchange left."""
        ours, theirs = model(), model()
        scaler, alone = cpu_scaler(init_scale=8.0, growth_interval=2), cpu_scaler(init_scale=8.0, growth_interval=2)
        optimizer, other = self.optimizer(ours, scaler), sgd(theirs)
        scales = []
        for step in range(5):
            optimizer.zero_grad()
            (loss_of(ours, step) * scaler.get_scale()).backward()
            optimizer._training._facts.sums[replicas._Facts.SAMPLES] = 100
            optimizer._training._follow(optimizer._replica)
            scales.append(scaler.get_scale())
        self.assertEqual(scales, self.train(theirs, other, alone))
        self.assertTrue(is_equal(ours, theirs))

    def test_ddp_trains_as_torch_alone(self):
        dt.init_process_group()
        ours, theirs = DDP(model()), model()
        scaler, alone = cpu_scaler(init_scale=8.0), cpu_scaler(init_scale=8.0)
        optimizer = sgd(ours)
        state = dt.DDPState(ours, optimizer, type="local")
        self.addCleanup(state.close)
        state.register(scaler=scaler)
        ours.register_comm_hook(state, dt.ddp_hook)
        self.begin(state)
        self.assertEqual(self.train(ours, optimizer, scaler), self.train(theirs, sgd(theirs), alone))
        self.assertTrue(is_equal(ours, theirs))

    def test_a_job_trains_with_autocast(self):
        ours, theirs = model(), model()
        other = torch.optim.SGD(theirs.parameters(), 0.5)
        with dt.Job(ours, "sgd", 0.5, type="local") as job:
            dt.own_data()
            for _ in job.epochs(3):
                loss_of(ours).backward()
                job.step(100)
                other.zero_grad()
                loss_of(theirs).backward()
                other.step()
        for p, q in zip(ours.parameters(), theirs.parameters()):
            torch.testing.assert_close(p, q)
        self.assertFalse(is_equal(ours, model()))


if __name__ == "__main__":
    torch.set_num_threads(1)
    unittest.main()
