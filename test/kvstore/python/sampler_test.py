"""The samples of dtkv.torch are those of dttrain: 200 cases against trainer/data/sampler.h ($DT_SAMPLER_CASES prints its)."""

import itertools
import os
import random
import subprocess
import unittest
import warnings
from unittest import mock

import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    IterableDataset,
    RandomSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)
from torch.utils.data import Sampler as TorchSampler
from torch.utils.data.distributed import DistributedSampler

import dtkv
import dtkv.torch as dt
from dtkv.torch.sampler import Batches, Now, Take, shuffled


def of_all(count, batch, world, epoch=0, **options):
    """Each worker's batches of an epoch."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        nows = [Now(epoch, rank, world) for rank in range(world)]
        return [list(Batches(count, batch, lambda now=now: now, lambda: False, **options)) for now in nows]


def in_order(parts):
    """All samples in the order of the epoch."""
    return [i for step in zip(*parts) for ids in step for i in ids]


def drawn(cases=3000):
    """Random numbers of samples and workers, batches and options."""
    draw = random.Random(11)
    for _ in range(cases):
        world = draw.randint(1, 9)
        count = draw.choice((draw.randint(0, 300), world * draw.randint(0, 30) + draw.randint(-1, 1), world - 1))
        batch = draw.randint(1, 20)
        options = {"global_batch": draw.choice((None, draw.randint(1, 60))), "seed": draw.randint(1, 9)}
        options["least"] = draw.randint(1, min(3, options["global_batch"] or batch))
        yield max(0, count), batch, world, options


class ByLength(TorchSampler):
    """Neighbours are of a length, as bucketing has them; numpy's integers."""

    def __init__(self):
        self.epochs = []

    def set_epoch(self, epoch):
        self.epochs.append(epoch)

    def __len__(self):
        return 100

    def __iter__(self):
        for bucket in torch.randperm(10).numpy():
            yield from bucket * 10 + torch.randperm(10).numpy()


class Sampler(unittest.TestCase):
    def test_the_same_as_dttrains(self):
        draw = random.Random(7)
        cases = [(0, 1, 0, 1, 1, 0, 1), (1, 64, 1, 2, 1, 0, 1), (60_000, 192, 2, 3, 2**40, 9, 1)]
        while len(cases) < 200:
            world = draw.randint(1, 9)
            case = (draw.randint(0, 400), draw.randint(1, 70), draw.randrange(world), world)
            cases.append((*case, draw.getrandbits(draw.randint(1, 63)), draw.randint(0, 1000), draw.randint(0, 1)))
        given = "".join(" ".join(map(str, case)) + "\n" for case in cases)
        done = subprocess.run([os.environ["DT_SAMPLER_CASES"]], input=given, capture_output=True, text=True, timeout=60)
        lines = done.stdout.splitlines()
        self.assertEqual(len(lines), len(cases))
        for (samples, whole, rank, world, seed, epoch, shuffles), line in zip(cases, lines):
            expected = [[int(i) for i in word.split(",")] for word in line.split() if word != "-"]
            batches = Batches(
                samples,
                1,
                lambda: Now(epoch, rank, world),
                lambda: False,
                global_batch=whole,
                shuffle=bool(shuffles),
                seed=seed,
            )
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                self.assertEqual(list(batches), expected, (samples, whole, rank, world, seed, epoch, shuffles))
            self.assertEqual(len(batches), len(expected))

    def test_all_workers_have_as_many_batches_and_together_each_sample_once(self):
        for count, batch, world, options in drawn():
            with self.subTest(count=count, batch=batch, world=world, **options):
                parts = of_all(count, batch, world, **options)
                if count < world:
                    self.assertEqual(sorted(sum((sum(part, []) for part in parts), [])), list(range(count)))
                    continue
                self.assertEqual(len({len(part) for part in parts}), 1)
                self.assertEqual(in_order(parts), shuffled(count, options["seed"] * 1_000_003))
                for step in zip(*parts):
                    sizes = [len(ids) for ids in step]
                    self.assertTrue(0 < max(sizes) <= min(sizes) + 1)
                    if count >= options["least"] * world:
                        self.assertGreaterEqual(min(sizes), options["least"])

    def test_a_last_batch_of_too_few_samples_goes_with_the_one_before_it(self):
        for count, least, sizes in (
            (130, 1, [64, 1]),
            (130, 2, [65]),
            (131, 2, [65]),
            (132, 2, [64, 2]),
            (128, 2, [64]),
            (3, 2, [1]),
            (2, 1, [1]),
        ):
            parts = of_all(count, 64, 2, least=least)
            self.assertEqual([len(ids) for ids in parts[0]], sizes, (count, least))
            self.assertEqual(sorted(in_order(parts)), list(range(count)))

    def test_a_last_batch_that_is_not_whole_is_dropped(self):
        for count, batch, world, options in drawn(500):
            parts = of_all(count, batch, world, drop_last=True, **options)
            whole = max(options["global_batch"] or batch * world, options["least"] * world)
            self.assertEqual(len({len(part) for part in parts}), 1)
            order = shuffled(count, options["seed"] * 1_000_003)
            self.assertEqual(in_order(parts), order[: count - count % whole])

    def test_its_length_is_that_of_its_list(self):
        for count, batch, world, options in drawn(500):
            for rank in range(world):
                batches = Batches(count, batch, lambda r=rank: Now(0, r, world), lambda: False, **options)
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    self.assertEqual(len(batches), len(list(batches)))
        self.assertEqual(len(Batches(10**15, 1, lambda: Now(0, 0, 1), lambda: False)), 10**15)

    def test_numbers_that_do_not_suit_the_world_are_warned_of_once(self):
        world = [3]
        for count, options, what in (
            (2, {}, "^2 samples for 3 workers: some workers have no batch"),
            (5, {"least": 2}, "^5 samples for 3 workers: some workers have fewer than least=2"),
            (181, {"global_batch": 2}, "^global_batch=2 for 3 workers: each step has 3 samples"),
            (181, {"global_batch": 5, "least": 2}, "^global_batch=5 for 3 workers: each step has 6 samples"),
            (181, {"drop_last": True}, "^181 samples with drop_last are fewer than a global batch of 192: there is no"),
        ):
            batches = Batches(count, 64, lambda: Now(0, 0, world[0]), lambda: False, **options)
            with self.assertWarnsRegex(RuntimeWarning, what):
                list(batches)
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                list(batches)
                world[0] = 1
                list(batches)
                self.assertEqual(caught, [])
                world[0] = 4
                list(batches)
                self.assertEqual(len(caught), 1)
            world[0] = 3

    def test_each_iteration_reads_the_view_again_and_a_lost_server_ends_it(self):
        now, is_over = [Now(0, 0, 1)], [False]
        batches = Batches(100, 10, lambda: now[0], lambda: is_over[0])
        first = list(batches)
        self.assertEqual((len(first), len(first[0])), (10, 10))
        now[0] = Now(1, 1, 2)
        second = list(batches)
        self.assertEqual((len(second), len(second[0])), (5, 10))
        self.assertEqual(sorted(i for one in first for i in one), list(range(100)))
        ids = iter(batches)
        next(ids)
        is_over[0] = True
        self.assertEqual(list(ids), [])

    def test_other_epochs_have_another_order(self):
        self.assertNotEqual(shuffled(100, 1), shuffled(100, 2))
        self.assertEqual(sorted(shuffled(100, 1)), list(range(100)))

    def test_wrong_numbers_are_refused(self):
        for wrong in ((-1, 1, None), (1, 0, None), (1, 1, 0)):
            with self.assertRaises(ValueError):
                Batches(wrong[0], wrong[1], lambda: Now(0, 0, 1), lambda: False, global_batch=wrong[2])
        for wrong in ({"least": 0}, {"least": 5}, {"least": 3, "global_batch": 2}):
            with self.assertRaisesRegex(ValueError, f"^least={wrong['least']} is not within 1 and the batch of [24] "):
                Batches(9, 4, lambda: Now(0, 0, 1), lambda: False, **wrong)

    def test_a_sampler_of_torch_gives_the_same_order_to_all_workers(self):
        weights = [0.0] * 50 + [1.0] * 50
        for make in (
            lambda: RandomSampler(range(100)),
            lambda: RandomSampler(range(100), generator=torch.Generator()),
            lambda: RandomSampler(range(100), replacement=True, num_samples=70),
            lambda: WeightedRandomSampler(weights, 60),
            lambda: WeightedRandomSampler(weights, 60, generator=torch.Generator()),
            lambda: SubsetRandomSampler(range(20, 80)),
            ByLength,
        ):
            epochs = []
            for epoch in (0, 1, 1):
                parts = []
                for rank in range(3):
                    torch.manual_seed(rank)
                    before = torch.get_rng_state()
                    parts += [list(Batches(100, 7, lambda r=rank: Now(epoch, r, 3), lambda: False, order=make()))]
                    self.assertTrue(torch.equal(torch.get_rng_state(), before), "the program's random numbers changed")
                self.assertEqual(len(in_order(parts)), len(make()))
                self.assertEqual(in_order(parts), in_order(of_all(100, 21, 1, epoch, order=make())))
                self.assertTrue(all(type(i) is int for i in in_order(parts)))
                epochs.append(in_order(parts))
            self.assertNotEqual(epochs[0], epochs[1])
            self.assertEqual(epochs[1], epochs[2])
        weighted = in_order(of_all(100, 7, 3, order=WeightedRandomSampler(weights, 60)))
        self.assertTrue(min(weighted) >= 50)
        sampler = ByLength()
        of_all(100, 10, 1, 5, order=sampler)
        self.assertEqual(sampler.epochs, [5])
        self.assertEqual(in_order(of_all(3, 2, 1, order=[4, 4, 7])), [4, 4, 7])

    def test_samplers_that_cannot_be_divided_are_refused(self):
        def refused(error, why, order, **options):
            with self.assertRaisesRegex(error, why):
                of_all(100, 10, 2, order=order, **options)

        refused(ValueError, "^order= beside shuffle=", range(9), shuffle=True)
        refused(ValueError, "^order= beside shuffle=", range(9), shuffle=False)
        refused(ValueError, "^order: DistributedSampler divides", DistributedSampler(range(9), 2, 0))
        lists = BatchSampler(RandomSampler(range(9)), 3, False)
        refused(TypeError, r"^order: BatchSampler gives \[\d, \d, \d\], which is no index", lists)

        refused(TypeError, "^order: list gives 0.5, which is no index", [0, 0.5])

        class Fewer(ByLength):
            def __iter__(self):
                return iter(range(90))

        refused(dtkv.InvalidUse, r"^order: Fewer gives 90 indices, and its len\(\) was 100", Fewer())

    def test_an_epoch_of_steps_goes_on_where_the_last_one_ended(self):
        """Audit over joins, leaves and a rollback: each pass has each sample once, in the order of an epoch of its number."""
        draw = random.Random(5)
        for case in range(100):
            count, steps, batch = draw.randint(1, 60), draw.randint(1, 9), draw.randint(1, 9)
            seed, now = draw.randint(1, 9), [Now(0, 0, 1)]
            options = {"global_batch": draw.choice((None, 9, 70)), "seed": seed, "steps": steps}
            options["order"] = draw.choice((None, RandomSampler(range(count))))

            def make():
                return Batches(count, batch, lambda: now[0], lambda: False, **options)

            workers, used, before = [make()], [], None
            for epoch in range(8):
                world = draw.randint(1, 5)
                workers = workers[:world] + [make() for _ in range(world - len(workers))]
                if epoch == 5:  # back to epoch 4's begin
                    used, workers[0].position = before
                for one in workers[1:]:  # newcomers, too
                    one.position = workers[0].position
                if epoch == 4:
                    before = list(used), workers[0].position
                parts = []
                for rank, one in enumerate(workers):
                    now[0] = Now(epoch, rank, world)
                    next(iter(one), None)  # of no consequence
                    parts.append(list(one))
                    self.assertEqual((len(parts[-1]), len(one)), (steps, steps))
                used += in_order(parts)
                self.assertEqual(len({len(one) for one in parts}), 1)
                for one in workers:
                    one.advance()
                    self.assertEqual(one.position, len(used))
                    one.advance()  # at the end of an epoch in which it was not iterated
                    self.assertEqual(one.position, len(used))
            expected = []
            for number in range(len(used) // count + 1):
                expected += in_order(of_all(count, 1, 1, number, seed=seed, order=options["order"]))
            self.assertEqual(used, expected[: len(used)], (case, options))

    def test_a_trainings_epochs_go_on_at_the_position_that_all_workers_have(self):
        """It is a tensor among those that the workers exchange: the lead's counts at the start, and each epoch's end moves
        it."""

        def optimizer():
            net = torch.nn.Linear(1, 1)
            made = dt.Optimizer(torch.optim.SGD(net.parameters(), 0.1), net, type="local")
            self.addCleanup(made.close)
            return made

        first = optimizer()
        batches = first.batches(10, 2, steps=3, shuffle=False)
        found = [list(batches) for _ in first.epochs(3)]
        self.assertEqual(sum(sum(found, []), []), [i % 10 for i in range(18)])
        self.assertEqual(batches.position, 18)
        (position,) = first._training._buffers.added().values()
        self.assertEqual(position.item(), 18)
        with self.assertRaisesRegex(dtkv.InvalidUse, r"^batches\(steps=(...)?\) after the first epoch"):
            first.batches(10, 2, steps=3)

        again = optimizer()
        batches = again.batches(10, 2, steps=3, shuffle=False)
        batches.position = 18
        for epoch in again.epochs(2):
            if epoch == 0:
                self.assertEqual(list(batches), [[8, 9], [0, 1], [2, 3]])
                (position,) = again._training._buffers.added().values()
                position.fill_(0)  # of no consequence: the epoch's end writes it
        self.assertEqual(batches.position, 24)

        newcomer = optimizer()
        batches = newcomer.batches(10, 2, steps=3, shuffle=False)
        newcomer._training._take({**first._training._state(), "added": again._training._buffers.added()})
        with mock.patch.object(newcomer._training, "_begin_keys"):
            next(newcomer.epochs(1))
        self.assertEqual(batches.position, 24)

    def test_steps_are_not_for_every_option(self):
        for wrong in ({"steps": 0}, {"steps": 2, "drop_last": True}):
            with self.assertRaisesRegex(ValueError, "^steps="):
                of_all(9, 2, 1, **wrong)
        with self.assertRaisesRegex(ValueError, "^steps=1 of 0 samples"):
            of_all(0, 2, 1, steps=1)

    def test_an_iterator_does_not_pass_an_epochs_boundary(self):
        now, is_over = [Now(3, 0, 2, 1)], [False]
        batches = Batches(100, 10, lambda: now[0], lambda: is_over[0])
        unused, used, at_its_end, interrupted = (iter(batches) for _ in range(4))
        next(used)
        next(interrupted)
        self.assertEqual(len([next(at_its_end) for _ in range(5)]), 5)
        is_over[0] = True
        self.assertEqual(list(interrupted), [])
        is_over[0] = False
        for old, again in ((used, Now(3, 0, 1, 2)), (unused, Now(4, 1, 2, 3))):  # epoch 3 again after the loss of a server
            now[0] = again
            with self.assertRaisesRegex(dtkv.InvalidUse, f"^these batches are of epoch 3, and epoch {again.epoch} has begun"):
                next(old)
            self.assertEqual(len(list(batches)), len(batches))
        self.assertEqual(list(at_its_end), [])
        self.assertEqual(list(interrupted), [])

    def test_a_dataloader_begins_each_epoch_again(self):
        now = [Now(0, 0, 1, 0)]
        for processes in (0, 2):
            batches = Batches(100, 10, lambda: now[0], lambda: False)
            loader = DataLoader(range(100), batch_sampler=batches, num_workers=processes, persistent_workers=processes > 0)
            early = iter(loader)
            for boundary in range(1, 4):
                now[0] = Now(boundary, 0, 1, boundary)
                found = [ids.tolist() for ids in loader]
                self.assertEqual(found, list(batches))
                next(iter(loader))
            if not processes:
                with self.assertRaisesRegex(dtkv.InvalidUse, "^these batches are of epoch 0, and epoch 3 has begun"):
                    next(early)

    def test_the_plan_is_alike_on_all_workers_and_shows_each_difference(self):
        now = [Now(1, 0, 2, 1)]

        def plan(count=100, batch=10, position=0, **options):
            batches = Batches(count, batch, lambda: now[0], lambda: False, **options)
            self.assertIsNone(batches.plan)
            batches.position = position
            next(iter(batches))
            return batches

        one = plan()
        now[0] = Now(1, 1, 2, 1)
        self.assertEqual(one.plan, plan().plan)
        self.assertEqual(one.plan[:3], (100, 20, 1))
        self.assertEqual(plan(batch=20, global_batch=20).plan, one.plan)
        for field, other in (
            ("samples", plan(99)),
            ("batch", plan(batch=11)),
            ("seed", plan(seed=2)),
            ("checksum", plan(shuffle=False)),
            ("checksum", plan(order=RandomSampler(range(100)))),
        ):
            self.assertNotEqual(getattr(other.plan, field), getattr(one.plan, field), field)
        self.assertNotEqual(plan(steps=3).plan, plan(steps=3, position=20).plan)
        swapped = list(range(100))
        swapped[7], swapped[8] = 8, 7
        self.assertNotEqual(plan(order=swapped).plan, plan(order=range(100)).plan)
        for value in one.plan:
            self.assertTrue(0 <= value < 1 << 48)
        before = one.plan
        now[0] = Now(2, 0, 2, 2)
        self.assertIsNone(one.plan)
        next(iter(one))
        self.assertNotEqual(one.plan.checksum, before.checksum)
        self.assertEqual(of_all(0, 2, 1), [[]])


class Stream(IterableDataset):
    """0 to count - 1; each worker's number is another one."""

    def __init__(self, count):
        self.count = count
        self.begun = 0

    def __iter__(self):
        self.begun += 1
        return iter(range(self.count))


class Taken(unittest.TestCase):
    def test_each_epoch_has_as_many_batches_and_goes_on(self):
        for count, processes in ((7, 0), (7, 2), (100, 0)):
            one = dt.take(DataLoader(Stream(count), batch_size=None, num_workers=processes and 1), 5)
            self.assertEqual(len(one), 5)
            found = []
            for _ in range(4):
                epoch = list(one)
                self.assertEqual(len(epoch), 5)
                found += epoch
            self.assertEqual(found, [i % count for i in range(20)])

    def test_it_begins_a_loader_when_its_batches_are_asked_for_and_only_then(self):
        stream = Stream(5)
        one = dt.take(DataLoader(stream, batch_size=None), 5)
        self.assertEqual(stream.begun, 0)
        list(one)
        self.assertEqual(stream.begun, 1)
        list(one)
        self.assertEqual(stream.begun, 2)
        for _ in one:
            break
        self.assertEqual(next(iter(one)), 1)
        self.assertEqual(list(dt.take(itertools.count(), 3)), [0, 1, 2])

    def test_an_empty_loader_is_an_error_and_no_endless_loop(self):
        for empty in ([], DataLoader(Stream(0)), iter([])):
            with self.assertRaisesRegex(dtkv.InvalidUse, r"^take\(\): \w+ has no batch"):
                list(dt.take(empty, 3))
        once = iter([1, 2])
        found = []
        with self.assertRaisesRegex(dtkv.InvalidUse, "a generator has one start"):
            found.extend(dt.take(once, 3))
        with self.assertRaisesRegex(ValueError, r"^take\(0\)"):
            dt.take([1], 0)

    def test_batches_have_steps_for_it(self):
        batches = Batches(100, 10, lambda: Now(0, 0, 1), lambda: False)
        for loader in (batches, DataLoader(range(100), batch_sampler=batches)):
            with self.assertRaisesRegex(ValueError, r"batches\(..., steps=7\)"):
                dt.take(loader, 7)

    def test_it_ends_after_the_loss_of_a_server(self):
        is_over = []
        found = []
        for i in Take(itertools.count(), 9, lambda: bool(is_over)):
            found.append(i)
            is_over += [1] * (i == 3)
        self.assertEqual(found, [0, 1, 2, 3])


if __name__ == "__main__":
    unittest.main()
