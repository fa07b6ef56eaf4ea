"""dtkv.torch.Job in one process, beside torch.optim on the same model and data."""

import contextlib
import gc
import io
import os
import pathlib
import unittest

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import dtkv
import dtkv.torch as dt
from dtkv.torch import selftest

X = torch.randn(200, 8, generator=torch.Generator().manual_seed(1))
Y = (X[:, 0] > 0).long()


def model():
    torch.manual_seed(2)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))


def difference(a, b):
    return max((p - q).abs().max().item() for p, q in zip(a.parameters(), b.parameters()))


class SelfTest(unittest.TestCase):
    def test_all_checks_pass_here_and_a_wrong_weight_fails_one(self):
        def run():
            said = io.StringIO()
            with contextlib.redirect_stdout(said):
                return selftest.run(), said.getvalue()

        is_well, said = run()
        self.assertTrue(is_well and said.count("passed:") == 4, said)
        right, selftest._sgd = selftest._sgd, lambda p: torch.optim.SGD(p, 0.2)
        try:
            is_well, said = run()
        finally:
            selftest._sgd = right
        self.assertIn("differs by", said)
        self.assertFalse(is_well)


class States(unittest.TestCase):
    def test_a_registered_tensor_or_number_is_a_key(self):
        with dt.Job(model(), "sgd", 0.1, type="local") as job:
            ema = torch.ones(3)
            self.assertIs(job.state("ema", ema), ema)
            best = job.state("best", 0.5)
            count = job.state("count", 7, reduce="lead")
            self.assertEqual((best.dtype, count.dtype, best.item(), count.item()), (torch.float64, torch.int64, 0.5, 7))
            for wrong, error in (
                (lambda: job.state("ema", 1.0), dtkv.InvalidUse),
                (lambda: job.state("n", 1), TypeError),
                (lambda: job.state("x", 1.0, reduce="max"), ValueError),
            ):
                self.assertRaises(error, wrong)
            for _ in job.epochs(2):
                ema += 1
                count += 1
            self.assertEqual((ema.tolist(), best.item(), count.item()), ([3, 3, 3], 0.5, 9))
            with self.assertRaisesRegex(dtkv.InvalidUse, "after the first epoch"):
                job.state("late", 1.0)


class Memory(unittest.TestCase):
    def test_closed_jobs_leave_nothing(self):
        def used():
            gc.collect()
            pages = int(pathlib.Path("/proc/self/statm").read_text().split()[1])
            return pages * os.sysconf("SC_PAGE_SIZE"), len(os.listdir("/proc/self/fd"))

        def run(count):
            for _ in range(count):
                net = nn.Linear(128, 128)
                with dt.Job(net, "sgd momentum=0.9", 0.1, type="local") as job:
                    dt.own_data()
                    for _ in job.epochs(1):
                        net(torch.ones(1, 128)).sum().backward()
                        job.step(1)

        run(50)
        before, descriptors = used()
        run(450)
        after, left = used()
        self.assertEqual(left, descriptors)
        self.assertLess(after - before, 8 << 20)  # blocks of 450 jobs are 60 MB


class Jobs(unittest.TestCase):
    def job(self, of, optimizer="sgd", lr=0.1):
        job = dt.Job(of, optimizer, lr, type="local")
        self.addCleanup(job.close)
        return job

    def train(self, job, net, epochs=3, before_backward=lambda: None):
        loader = DataLoader(TensorDataset(X, Y), batch_sampler=job.batches(len(X), 32))
        for _ in job.epochs(epochs):
            for x, y in loader:
                loss = F.cross_entropy(net(x), y)
                before_backward()
                loss.backward()
                job.step(len(x))

    def test_the_weights_are_those_of_torch_optim(self):
        for spec, make in (
            ("sgd momentum=0.9 weight_decay=0.01", lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, weight_decay=0.01)),
            ("sgd momentum=0.9 nesterov=1", lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, nesterov=True)),
            ("adam", lambda p: torch.optim.Adam(p, 0.1)),
            ("adamw weight_decay=0.1", lambda p: torch.optim.AdamW(p, 0.1, weight_decay=0.1)),
        ):
            with self.subTest(spec):
                ours, theirs = model(), model()
                optimizer = make(theirs.parameters())
                job = self.job(ours, spec)
                batches = job.batches(len(X), 32)
                for _ in job.epochs(3):
                    for ids in batches:
                        F.cross_entropy(ours(X[ids]), Y[ids]).backward()
                        job.step(len(ids))
                        optimizer.zero_grad()
                        F.cross_entropy(theirs(X[ids]), Y[ids]).backward()
                        optimizer.step()
                self.assertLess(difference(ours, theirs), 1e-5)
                self.assertGreater(difference(ours, model()), 0.01)

    def test_gradients_that_are_set_to_none_are_found(self):
        ours, other = model(), model()
        self.train(self.job(ours), ours)
        self.train(self.job(other), other, before_backward=lambda: other.zero_grad(set_to_none=True))
        self.assertEqual(difference(ours, other), 0)

    def test_a_step_without_backward_contributes_zeros_and_two_backwards_their_sum(self):
        net = nn.Linear(2, 1, bias=False)
        job = self.job(net, lr=1.0)
        dt.own_data()
        before = net.weight.detach().clone()
        for _ in job.epochs(1):
            job.step(4)
            self.assertTrue(torch.equal(net.weight, before))
            for _ in range(2):
                net(torch.ones(1, 2)).sum().backward()
            job.step(4)
            self.assertTrue(torch.allclose(net.weight, before - 2))
            with job.accumulate():
                net(torch.ones(1, 2)).sum().backward()
                with self.assertRaisesRegex(dtkv.InvalidUse, "inside accumulate"):
                    job.step(1)
            net(torch.ones(1, 2)).sum().backward()
            job.step(0, lr=0.5)
            self.assertTrue(torch.allclose(net.weight, before - 2))
            net(torch.ones(1, 2)).sum().backward()
            job.step(1, lr=0.5)
            self.assertTrue(torch.allclose(net.weight, before - 2.5))

    def test_frozen_parameters_stay(self):
        net = model()
        net[0].weight.requires_grad_(False)
        before = net[0].weight.clone()
        self.train(self.job(net, "sgd weight_decay=0.1"), net)
        self.assertTrue(torch.equal(net[0].weight, before))

    def test_values_of_both_precisions(self):
        net = model()
        net[2].double()
        job = self.job(net)
        dt.own_data()
        for _ in job.epochs(1):
            F.cross_entropy(net[2](net[1](net[0](X)).double()), Y).backward()
            job.step(len(X))
        self.assertGreater(difference(net, model()), 0)
        with self.assertRaisesRegex(TypeError, "^0.weight: .*float16"):
            dt.Job(model().half(), "sgd", 0.1, type="local")

    def test_a_model_that_changes_is_refused_by_name(self):
        net = model()
        job = self.job(net)
        with self.assertRaisesRegex(dtkv.InvalidUse, r"^0.weight moved: make the Job after \.to"):
            for _ in job.epochs(1):
                net.double()
                job.step(1)
        net = model()
        job = self.job(net)
        net[2] = nn.Linear(16, 2)
        with self.assertRaisesRegex(dtkv.InvalidUse, "^2.weight was replaced"):
            next(job.epochs(1))

    def test_totals(self):
        job = self.job(model())
        dt.own_data()
        for _ in job.epochs(2):
            job.step(1)
            self.assertEqual(job.total(right=2**53 + 1, loss=0.25), {"right": 2**53 + 1, "loss": 0.25})
            self.assertEqual(job.total(right=3), {"right": 3})
            self.assertEqual(job.total(right=0.5), {"right": 0.5})
            with self.assertRaisesRegex(dtkv.InvalidUse, "after total"):
                job.step(1)

    def test_wrong_numbers_of_samples(self):
        job = self.job(model())
        for _ in job.epochs(1):
            for wrong in (-1, 1.5, torch.ones(1), "3"):
                with self.assertRaisesRegex(ValueError, "^samples is the number"):
                    job.step(wrong)

    def test_values_outlive_the_job_and_move_with_the_model(self):
        net = model()
        with dt.Job(net, "sgd", 0.1, type="local") as job:
            self.train(job, net, epochs=1)
            trained = {name: value.clone() for name, value in net.state_dict().items()}
        for name, value in net.state_dict().items():
            self.assertTrue(torch.equal(value, trained[name]))
        net(X).sum().backward()
        net.double()

    def test_a_dataloader_may_be_read_ahead(self):
        net = model()
        job = self.job(net)
        loader = DataLoader(
            TensorDataset(X, Y), batch_sampler=job.batches(X, 32), num_workers=2, persistent_workers=True
        )
        self.assertEqual(len(loader), 7)
        for _ in job.epochs(2):
            seen = 0
            for x, _ in loader:
                seen += len(x)
                job.step(len(x))
            self.assertEqual(seen, 200)


if __name__ == "__main__":
    torch.set_num_threads(1)
    unittest.main()
