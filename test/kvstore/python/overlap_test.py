"""dt.Job's exchange beside its compute, in one process: what leaves when, who waits for it, which steps fit, and what is
said where they do not.

Run by ctest with PYTHONPATH and DTKV_LIBRARY; by hand the same way.
"""

import contextlib
import copy
import gc
import io
import os
import pathlib
import threading
import unittest
import unittest.mock
import warnings

import torch
import torch.nn.functional as F
from torch import nn

import dtkv
import dtkv.torch as dt
from dtkv.torch import under_way
from recording import recorded

WIDTH = 512
"""A layer's weight has 1 MiB, a bucket of its own."""
X = torch.randn(64, WIDTH, generator=torch.Generator().manual_seed(1))
Y = (X[:, 0] > 0).long()


def model(layers=3):
    torch.manual_seed(2)
    return nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(layers)))


def loss_of(net, count=8):
    return F.cross_entropy(net(X[:count]), Y[:count])


def make_step(job, net, count=8):
    loss_of(net, count).backward()
    job.step(count)


def marked(net):
    return sum(type(p) is under_way.UnderWay for p in net.parameters())


def same(a, b):
    return all(torch.equal(p, q) for p, q in zip(a.state_dict().values(), b.state_dict().values()))


class Case(unittest.TestCase):
    def job(self, net, optimizer="sgd momentum=0.9", lr=0.1, overlap=True):
        job = dt.Job(net, optimizer, lr, type="local", overlap=overlap)
        self.addCleanup(job.close)
        dt.own_data()
        return job

    @contextlib.contextmanager
    def overlapping(self, net, **options):
        """A job within its first epoch, which overlaps, with nothing under way."""
        job = self.job(net, **options)
        for _ in job.epochs(1):
            for _ in range(2):
                make_step(job, net)
            self.assertEqual(job.overlap, "yes")
            job.settle()
            yield job
            job.settle()

    def as_without(self, steps, make=model, **options):
        """steps(job, net) gives the same weights with overlap and without; the former's network."""
        nets = []
        for overlap in (False, True):
            nets.append(make())
            job = self.job(nets[-1], overlap=overlap, **options)
            for _ in job.epochs(1):
                steps(job, nets[-1])
            self.assertEqual(marked(nets[-1]), 0)
        self.assertTrue(same(*nets))
        return nets[1]


class Streams(unittest.TestCase):
    def test_wait_in_stream_ends_as_wait_does(self):
        import numpy

        with recorded() as double, dtkv.Store("local") as store:
            array = numpy.ones(2)
            store.init("w", array)
            store.epoch_boundary(0)
            handle = store.pushpull("w", array, wait=False)
            answers = [dtkv.Timeout.code, 0]
            double.instead["dtkv_wait_in_stream"] = lambda real, *_: answers.pop(0)
            handle.wait_in_stream()
            self.assertEqual(answers, [])
            double.instead["dtkv_wait_in_stream"] = lambda real, *_: dtkv.Timeout.code
            with self.assertRaisesRegex(dtkv.Timeout, "after 0.15 s"):
                handle.wait_in_stream(0.15)
            double.instead["dtkv_wait_in_stream"] = lambda real, *_: dtkv.Mismatch.code
            double.instead["dtkv_wait"] = lambda real, *_: dtkv.Mismatch.code
            with self.assertRaises(dtkv.Mismatch):
                handle.wait_in_stream()
            handle.wait_in_stream()


class Order(Case):
    def test_pushes_leave_in_backward_and_each_wait_is_before_a_use(self):
        net = model()
        with recorded() as double, self.overlapping(net) as job:
            for at, layer in enumerate(net):
                layer.register_forward_pre_hook(lambda *_, at=at: double.note("forward", at))
                layer.weight.register_hook(lambda _, at=at: double.note("gradient", at))
            make_step(job, net)
            begin = len(double.log)
            loss = loss_of(net)
            double.note("backward")
            loss.backward()
            double.note("step")
            job.step(8)
            said = [one[0] if one[0] in ("wait", "backward", "step") else one[:2] for one in double.since(begin)]
            names = [[f"{at}.{kind}" for kind in ("bias", "weight")] for at in range(3)]
            forward, backward = said[: said.index("backward")], said[said.index("backward") + 1 :]
            self.assertEqual(forward, ["wait", ("forward", 0), "wait", ("forward", 1), "wait", ("forward", 2)])
            pushed = [sorted(one[1]) for one in backward if one[0] == "push"]
            self.assertEqual(pushed, names[::-1])
            self.assertLess(backward.index(("push", double.since(begin)[len(forward) + 2][1])), backward.index(("gradient", 0)))
            self.assertEqual(backward[-1], "step")  # nothing is left to send, and step() does not wait
            self.assertNotIn("wait", backward)
            priorities = [one[2] for one in double.pushes(begin)]
            self.assertEqual(priorities, [0, 1, 2])
            self.assertEqual(marked(net), 6)

    def test_what_has_no_gradient_is_sent_by_step(self):
        def steps(job, net):
            for i in range(6):
                F.cross_entropy(net[: 2 + i % 2](X[:8]), Y[:8]).backward()
                job.step(8)

        self.as_without(steps)
        net = model()
        with recorded() as double, self.overlapping(net) as job:
            begin = len(double.log)
            job.step(0)
            self.assertEqual([one[3] for one in double.pushes(begin)], [0, 0, 0])

    def test_a_push_of_each_step_begins_with_the_same_key(self):
        """libdtkv counts steps and samples, which `dtctl status` shows, by the first key that a job pushed."""
        with recorded() as double:
            net = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
            job = self.job(net)
            for _ in job.epochs(2):
                for _ in range(4):
                    net(X[:8, :8]).sum().backward()
                    job.step(8)
            self.assertEqual([one[1][0] for one in double.pushes()], ["0.weight"] * 8)

    def test_the_first_step_of_an_epoch_is_sent_as_a_whole(self):
        net = model()
        job = self.job(net)
        kinds = []
        for _ in job.epochs(2):
            for _ in range(3):
                make_step(job, net)
                kinds.append(marked(net))
        self.assertEqual(kinds, [0, 6, 6, 6, 6, 6])
        self.assertEqual(marked(net), 0)


class Observing(Case):
    """Each step fails one condition alone."""

    def reasons(self, step, overlap=True):
        net = model()
        job = self.job(net, overlap=overlap)
        found = []
        for _ in job.epochs(1):
            for i in range(5):
                step(job, net, i)
                found.append(job.overlap)
            self.assertEqual(marked(net) > 0, found[-1] == "yes")
        return found[1:]

    def says(self, pattern, step):
        for one in self.reasons(step):
            self.assertRegex(one, rf"^no \({pattern}")

    def test_one_gradient_a_parameter(self):
        def twice(job, net, _):
            loss_of(net).backward()
            make_step(job, net)

        def graph(job, net, _):
            loss_of(net).backward(create_graph=True)
            job.step(8)

        self.says(r"2\.(bias|weight) had two gradients in a step", twice)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.says(r"backward\(create_graph=True\)", graph)

    def test_no_gradient_changes_after_backward(self):
        def changes(how):
            def step(job, net, _):
                loss_of(net).backward()
                how(net)
                job.step(8)

            return step

        def replace(net):
            net[1].bias.grad = net[1].bias.grad.clone()

        self.says("0.weight's gradient was changed", changes(lambda net: nn.utils.clip_grad_norm_(net.parameters(), 0.1)))
        self.says("0.weight's gradient was changed", changes(lambda net: nn.utils.clip_grad_norm_(net.parameters(), 1e9)))
        self.says("0.weight's gradient was changed", changes(lambda net: nn.utils.clip_grad_value_(net.parameters(), 1e-5)))
        self.says("2.weight's gradient was changed", changes(lambda net: net[2].weight.grad.numpy().__imul__(0.5)))
        self.says("1.bias's gradient was changed", changes(replace))
        self.says("2.bias's gradient was changed", changes(lambda net: setattr(net[2].bias, "grad", None)))

    def test_the_rate_is_known_before_backward(self):
        def given(job, net, _):
            loss_of(net).backward()
            job.step(8, lr=0.1)

        def late(job, net, i):
            loss_of(net).backward()
            job.lr = 0.1 / (i + 2)
            job.step(8)

        self.says("the learning rate is known in step", given)
        self.says("the learning rate is known in step", late)

    def test_the_samples_are_known_before_backward(self):
        def tokens(job, net, _):
            loss_of(net).backward()
            job.step(7)

        self.says("nothing says before backward that the step has 7 samples: set job.samples", tokens)

        def said(job, net, _):
            job.samples = 7
            tokens(job, net, _)

        self.assertEqual(self.reasons(said), ["yes"] * 4)

    def test_dimensions_of_the_input_say_the_samples(self):
        net, sent = nn.LSTM(WIDTH, WIDTH), []
        with recorded() as double:
            job = self.job(net)
            for _ in job.epochs(1):
                for count in (4, 4, 5):
                    net(X[: 3 * count].view(3, count, WIDTH))[0].sum().backward()
                    job.step(count)
            sent = [one[3] for one in double.pushes()]
        self.assertEqual(job.overlap, "yes")
        self.assertEqual(set(sent), {4, 5})

    def test_batches_say_the_samples(self):
        net = model(2)
        job = self.job(net)
        used = []
        loader = torch.utils.data.DataLoader(range(64), batch_sampler=job.batches(64, 10), num_workers=1)
        for _ in job.epochs(2):
            for ids in loader:
                F.cross_entropy(net(X[ids][:3]), Y[ids][:3]).backward()
                job.step(len(ids))
                used.append(len(ids))
        self.assertEqual(used, [10, 10, 10, 10, 10, 10, 4] * 2)
        self.assertEqual(job.overlap, "yes")

    def test_a_batch_that_is_skipped(self):
        def steps(job, net):
            for i, ids in enumerate(job.batches(44, 8)):
                if i != 3:
                    F.cross_entropy(net(X[ids]), Y[ids]).backward()
                    job.step(len(ids))

        with warnings.catch_warnings(), recorded() as double:
            warnings.simplefilter("error")
            self.as_without(steps)
            self.assertEqual({one[3] for one in double.pushes()[-2:]}, {4})  # the last batch

    def test_three_failures_are_enough(self):
        seen = []

        def step(job, net, i):
            loss_of(net).backward()
            if i < 4:
                net[0].weight.grad.mul_(0.5)
            job.step(8)
            seen.append(len(job._overlap._hooks))

        with unittest.mock.patch.object(dtkv.Store, "type", "dist_sync"):
            self.reasons(step, overlap=None)
        self.assertTrue(all(seen[:3]) and not any(seen[3:]), seen)
        self.assertEqual(self.reasons(step)[-1], "yes")

    def test_off(self):
        net = model()
        for options, why in (({"overlap": False}, "overlap=False"), ({"overlap": None}, "the process is alone")):
            job = self.job(net, **options)
            self.assertEqual((job.overlap, job._overlap._hooks), (f"no ({why})", []))
        with unittest.mock.patch.dict(os.environ, DT_OVERLAP="0"):
            self.assertEqual(self.job(net).overlap, "no (DT_OVERLAP=0)")


class Contradictions(Case):
    def test_a_gradient_that_changes_after_it_left(self):
        for how, name in (
            (lambda net: nn.utils.clip_grad_norm_(net.parameters(), 0.1), r"2\.bias|2\.weight"),
            (lambda net: loss_of(net).backward(), r"2\.bias|2\.weight"),
            (lambda net: setattr(net[1].weight, "grad", None), r"1\.weight"),
        ):
            net = model()
            job = self.job(net)
            with self.assertRaisesRegex(dtkv.InvalidUse, rf"({name})'s gradient changed after backward sent it: dt.Job\(..., overlap=False\)"):
                for _ in job.epochs(1):
                    for i in range(4):
                        loss_of(net).backward()
                        if i == 3:
                            how(net)
                        job.step(8)
            self.assertEqual(marked(net), 0)

    def test_other_samples_or_rate_than_sent(self):
        for samples, rate in ((5, None), (8, 0.01)):
            net, twin = model(), model()
            with recorded() as double, self.overlapping(net) as job, self.overlapping(twin) as other:
                make_step(other, twin)
                other.settle()
                begin = len(double.log)
                loss_of(net).backward()
                with self.assertWarnsRegex(RuntimeWarning, f"step.. was given {samples} samples .*{rate or 0.1:g}, and .* with 8 .*0.1, which count"):
                    job.step(samples, lr=rate)
                self.assertEqual({one[3] for one in double.pushes(begin)}, {8})
                self.assertTrue(same(net, twin))
                self.assertEqual(marked(net), 0)
                with warnings.catch_warnings():
                    warnings.simplefilter("error")
                    for _ in range(2):
                        make_step(job, net)
                        make_step(other, twin)
                other.settle()
                self.assertTrue(same(net, twin))
                self.assertRegex(job.overlap, "^no .step.. was given")

    def test_backward_without_step(self):
        net = model()
        job = self.job(net)
        with self.assertRaisesRegex(dtkv.InvalidUse, "no step.. followed"):
            for _ in job.epochs(1):
                for _ in range(3):
                    make_step(job, net)
                loss_of(net).backward()


USES = {
    "forward": lambda net: net(X[:2]),
    "state_dict": lambda net: list(net.state_dict().values()),
    "deepcopy": lambda net: list(copy.deepcopy(net).parameters()),
    "deepcopy of one": lambda net: copied(net.parameters()),
    "save": lambda net: saved(net),
    "numpy": lambda net: [torch.from_numpy(p.detach().numpy()) for p in net.parameters()],
    "data": lambda net: [p.data for p in net.parameters()],
    "foreach": lambda net: torch._foreach_add([p.detach() for p in net.parameters()], 1.0),
    "lists": lambda net: torch.cat([p.reshape(-1) for p in net.parameters()]),
    "vector": lambda net: nn.utils.parameters_to_vector(net.parameters()),
    "operators": lambda net: [2 * p - 1 for p in net.parameters()],
    "functional": lambda net: F.linear(X[:2], net[0].weight, net[0].bias),
    "keywords": lambda net: [torch.add(input=torch.ones(1), other=p) for p in net.parameters()],
    "clone": lambda net: [p.clone() for p in net.parameters()],
    "gradients": lambda net: [p.grad for p in net.parameters()],
    "norm": lambda net: torch.stack([p.norm() for p in net.parameters()]),
    "printed": lambda net: torch.tensor([len(repr(net[0].weight))]),
    "evaluation": lambda net: net.eval()(X[:2]),
}


def copied(parameters):
    found = list(map(copy.deepcopy, parameters))
    assert all(type(p) is nn.Parameter for p in found), "a copy is under way"
    return found


def saved(net):
    file = io.BytesIO()
    torch.save(net, file)
    file.seek(0)
    options = {"weights_only": False} if torch.__version__ >= (2, 0) else {}
    return list(torch.load(file, **options).parameters())


def tensors(found):
    return [one.detach().clone() for one in ([found] if isinstance(found, torch.Tensor) else found)]


class Uses(Case):
    def test_each_sees_the_new_values(self):
        for name, use in USES.items():
            with self.subTest(name):
                found = []
                for overlap in (False, True):
                    net = model()
                    job = self.job(net, overlap=overlap)
                    for _ in job.epochs(1):
                        for _ in range(3):
                            make_step(job, net)
                        self.assertEqual(marked(net), 6 * overlap)
                        before = job._parameters["0.weight"].value.clone()
                        found.append(tensors(use(net)))
                        if overlap:
                            self.assertFalse(torch.equal(before, net[0].weight))
                self.assertTrue(all(torch.equal(p, q) for p, q in zip(*found)))
                self.assertTrue(all(type(p) is nn.Parameter for p in net[0].parameters()))

    def test_layers_of_all_kinds(self):
        class Convolution(nn.Conv2d):
            def forward(self, x):
                return super().forward(x.view(-1, 2, 16, 16))

        class Words(nn.Embedding):
            def forward(self, x):
                return super().forward(x[:, :4].abs().long())

        for make in (
            lambda: nn.LSTM(WIDTH, 8),
            lambda: Convolution(2, 4, 3),
            lambda: Words(8, 4),
            lambda: nn.TransformerEncoderLayer(WIDTH, 4, 16, dropout=0),
            lambda: nn.utils.weight_norm(nn.Linear(WIDTH, 4)),
            lambda: nn.Sequential(nn.Linear(WIDTH, 8), nn.LayerNorm(8), nn.PReLU()),
        ):

            def build():
                torch.manual_seed(3)
                return make()

            def steps(job, net):
                for _ in range(5):
                    out = net(X[:8])
                    (out[0] if isinstance(out, tuple) else out).sum().backward()
                    job.step(8)
                    self.assertEqual(marked(net), len(list(net.parameters())) if job.overlap == "yes" else 0)

            self.as_without(steps, build)

    def test_a_moving_average_and_an_evaluation_after_each_step(self):
        seen = []

        def steps(job, net):
            means = [torch.zeros_like(p) for p in net.parameters()]
            for _ in range(5):
                make_step(job, net)
                with torch.no_grad():
                    for mean, p in zip(means, net.parameters()):
                        mean.mul_(0.9).add_(p, alpha=0.1)
                    net.eval()
                    means.append(net(X[:4]))
                    net.train()
            seen.append(means)

        self.as_without(steps)
        self.assertTrue(all(torch.equal(a, b) for a, b in zip(*seen)))

    def test_a_submodule_in_eval_mode_waits_for_what_is_below_it_alone(self):
        net = model()
        with self.overlapping(net) as job:
            make_step(job, net)
            net[0].eval()
            net[0](X[:1])
            self.assertEqual(marked(net), 4)
            net.eval()
            net.register_forward_pre_hook(lambda *_: self.assertEqual(marked(net), 0))
            net(X[:1])

    def test_a_graph_from_before_the_step_is_refused(self):
        net = model()
        with self.overlapping(net) as job:
            for _ in range(2):
                loss = loss_of(net)
                loss.backward(retain_graph=True)
                job.step(8)
                with self.assertRaisesRegex(RuntimeError, "modified by an inplace operation"):
                    loss.backward()
                net.zero_grad()

    def test_a_gradient_that_comes_before_its_parameter_is_used(self):
        def steps(job, net):
            for _ in range(5):
                bias = net[0].bias + 0  # its graph saves no value
                make_step(job, net)
                bias.sum().backward()
                job.step(8)

        self.as_without(steps)

    def test_writes_of_the_program_are_refused(self):
        net = model()
        job = self.job(net)
        with self.assertRaisesRegex(dtkv.InvalidUse, "^1.weight was changed by the program"):
            for _ in job.epochs(1):
                for i in range(4):
                    make_step(job, net)
                    if i == 2:
                        with torch.no_grad():
                            net[1].weight.mul_(0.5)
        net = model()
        with self.overlapping(net) as job:
            make_step(job, net)
            before = copy.deepcopy(net.state_dict())
            with torch.no_grad():
                net[1].weight.mul_(0.5)
                net[1].weight.copy_(before["1.weight"])
            make_step(job, net)

    def test_a_scripted_layer_makes_step_wait(self):
        def make():
            torch.manual_seed(2)
            return nn.Sequential(nn.Linear(WIDTH, WIDTH), torch.jit.script(nn.Linear(WIDTH, WIDTH)))

        def steps(job, net):
            for _ in range(4):
                make_step(job, net)
                self.assertEqual(marked(net), 0)

        self.as_without(steps, make)

    @unittest.skipUnless(hasattr(torch, "compile"), "PyTorch 1.13")
    def test_a_model_compiled_after_the_job_is_compiled_whole(self):
        graphs = []

        def backend(graph, _):
            graphs.append(graph)
            return graph.forward

        def steps(job, net):
            compiled = torch.compile(net, backend=backend)
            for _ in range(4):
                make_step(job, compiled)
                self.assertEqual(marked(net), 0)
            self.assertEqual(len(graphs), 1)
            graphs.clear()
            torch._dynamo.reset()
            torch._dynamo.utils.counters.clear()  # of code that was compiled in this process

        self.as_without(steps)

    def test_copies_have_no_hooks(self):
        net = model()
        with recorded() as double, self.overlapping(net) as job:
            other = copy.deepcopy(net)
            make_step(job, net)
            begin = len(double.log)
            loss_of(other).backward()
            self.assertEqual(double.since(begin), [])
            self.assertEqual(marked(net), 6)
            self.assertFalse(any(module._forward_pre_hooks for module in net.modules()))

    def test_settle_and_calls_that_wait(self):
        net = model()
        with self.overlapping(net) as job:
            for call in (job.settle, lambda: job.pull_state(1), lambda: job.total(n=1)):
                make_step(job, net)
                self.assertEqual(marked(net), 6)
                call()
                self.assertEqual(marked(net), 0)

    def test_micro_batches(self):
        def steps(job, net):
            for _ in range(5):
                job.samples = 16
                with job.accumulate():
                    loss_of(net).backward()
                loss_of(net, 16).backward()
                job.step(16)

        self.as_without(steps)

    def test_layers_are_frozen_and_unfrozen_between_epochs(self):
        nets = []
        for overlap in (False, True):
            nets.append(model())
            job = self.job(nets[-1], overlap=overlap)
            for epoch in job.epochs(3):
                nets[-1][1].requires_grad_(epoch != 1)
                for _ in range(4):
                    make_step(job, nets[-1])
        self.assertEqual(job.overlap, "yes")
        self.assertTrue(same(*nets))

    def test_both_precisions_and_a_memory_format(self):
        def make():
            torch.manual_seed(2)
            conv = nn.Conv2d(8, 16, 3).to(memory_format=torch.channels_last)
            return nn.ModuleList([conv, nn.Linear(16 * 36, 4).double()])

        def steps(job, net):
            for i in range(5):
                job.samples = 8
                net[1](net[0](X[:8].view(8, 8, 8, 8)).flatten(1).double()).sum().backward()
                job.step(8)
                self.assertEqual(marked(net), 4 if i and job.overlap == "yes" else 0)

        net = self.as_without(steps, make)
        self.assertTrue(net[0].weight.is_contiguous(memory_format=torch.channels_last))


class Ends(Case):
    def under_way(self, double):
        """A job with values under way."""
        net = model()
        job = self.job(net)
        epochs = job.epochs(1)
        next(epochs)
        for _ in range(3):
            make_step(job, net)
        self.assertEqual(marked(net), 6)
        self.addCleanup(lambda: epochs)
        return job, net, epochs

    def fails_with(self, code, use):
        with recorded() as double:
            job, net, _ = self.under_way(double)
            before = {name: one.value.clone() for name, one in job._parameters.items()}
            double.instead["dtkv_wait"] = lambda real, *_: code
            use(net)
            self.assertEqual(marked(net), 0)
            for name, p in net.named_parameters():
                self.assertTrue(torch.equal(p, before[name]))
                self.assertFalse(p.grad.any())
            return job

    def test_an_error_of_the_exchange(self):
        def use(net):
            with self.assertRaises(dtkv.Mismatch):
                net(X[:1])

        self.fails_with(dtkv.Mismatch.code, use)

    def test_a_lost_server(self):
        job = self.fails_with(dtkv.Rollback.code, lambda net: [p.sum() for p in net.parameters()])
        self.assertTrue(job.interrupted)

    def test_ctrl_c_in_a_wait_can_be_waited_for_again(self):
        def interrupt(real, *arguments):
            del double.instead["dtkv_wait"]
            raise KeyboardInterrupt

        net, twin = model(), model()
        with recorded() as double, self.overlapping(net) as job, self.overlapping(twin) as other:
            make_step(job, net)
            make_step(other, twin)
            double.instead["dtkv_wait"] = interrupt
            with self.assertRaises(KeyboardInterrupt):
                net.state_dict()
            self.assertEqual(marked(net), 6)
            self.assertTrue(same(net, twin))

    def test_a_refused_gradient_is_said_by_the_next_call(self):
        with recorded() as double:
            job, net, _ = self.under_way(double)
            real_wait = double._real.dtkv_wait

            def refuse_once(real, *arguments):
                del double.instead["dtkv_wait"]
                real_wait(*arguments)
                return dtkv.Nonfinite.code

            double.instead["dtkv_wait"] = refuse_once
            loss_of(net).backward()
            with self.assertRaises(dtkv.Nonfinite):
                job.step(8)
            make_step(job, net)

    def test_an_error_in_backward_is_raised_by_step(self):
        net = model()
        with recorded() as double, self.assertRaises(dtkv.Unavailable):
            with self.overlapping(net) as job:
                double.instead["dtkv_pushpull"] = lambda real, *_: dtkv.Unavailable.code
                loss_of(net).backward()
                job.step(8)
        self.assertEqual(marked(net), 0)

    def test_a_server_lost_in_backward(self):
        with recorded() as double:
            job, net, _ = self.under_way(double)
            answers = [0, dtkv.Rollback.code]

            def lose(real, *arguments):
                return real(*arguments) if not answers.pop(0) else dtkv.Rollback.code

            double.instead["dtkv_pushpull"] = lose
            loss_of(net).backward()
            job.step(8)
            self.assertTrue(job.interrupted)
            self.assertEqual(marked(net), 0)
            self.assertFalse(any(p.grad.any() for p in net.parameters()))

    def test_closing_gives_the_values(self):
        for how in ("close", "exit", "error"):
            nets = []
            for overlap in (False, True):
                nets.append(model())
                job = self.job(nets[-1], overlap=overlap)
                with contextlib.suppress(ZeroDivisionError), contextlib.ExitStack() as stack:
                    if how != "close":
                        stack.enter_context(job)
                    for _ in job.epochs(1):
                        for _ in range(3):
                            make_step(job, nets[-1])
                        if how == "error":
                            raise ZeroDivisionError
                        break
                job.close()
                self.assertEqual(marked(nets[-1]), 0)
            self.assertTrue(same(*nets))

    def test_a_forked_child_has_the_old_values_and_never_waits(self):
        with recorded() as double:
            job, net, _ = self.under_way(double)
            before = job._parameters["0.weight"].value.clone()
            pid = os.fork()
            if pid == 0:
                begin = len(double.log)
                is_well = marked(net) == 0 and torch.equal(net[0].weight, before) and net[0].weight.grad is None
                net(X[:1])
                with contextlib.suppress(RuntimeError):  # PyTorch 2.6's autograd has threads, and refuses
                    loss_of(net).backward()
                os._exit(0 if is_well and double.since(begin) == [] else 1)
            self.assertEqual(os.waitpid(pid, 0)[1], 0)
            self.assertEqual(marked(net), 6)
            self.assertFalse(torch.equal(net[0].weight, before))

    def test_closed_jobs_leave_nothing(self):
        def used():
            gc.collect()
            return int(pathlib.Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

        def run(count):
            for _ in range(count):
                net = model(1)
                with dt.Job(net, "sgd", 0.1, type="local", overlap=True) as job:
                    dt.own_data()
                    for _ in job.epochs(1):
                        for _ in range(3):
                            make_step(job, net)
                self.assertEqual(job.overlap, "no (the job is closed)")

        run(5)
        before = used()
        run(20)
        self.assertLess(used() - before, 24 << 20)  # blocks of 20 jobs are 60 MiB
        self.assertFalse(under_way._waits)
        self.assertFalse(torch.nn.modules.module._global_forward_pre_hooks)


class Threads(Case):
    def test_hooks_of_another_thread(self):
        def steps(job, net):
            for _ in range(5):
                thread = threading.Thread(target=loss_of(net).backward)
                thread.start()
                thread.join()
                job.step(8)

        self.as_without(steps)


if __name__ == "__main__":
    torch.set_num_threads(1)
    unittest.main()
