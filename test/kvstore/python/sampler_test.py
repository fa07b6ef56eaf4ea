"""The samples of dtkv.torch are those of dttrain: 200 cases against trainer/data/sampler.h ($DT_SAMPLER_CASES prints its)."""

import os
import random
import subprocess
import unittest

from dtkv.torch.sampler import Batches, Now, part, shuffled


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
            self.assertEqual(list(batches), expected, (samples, whole, rank, world, seed, epoch, shuffles))
            self.assertEqual(len(batches), len(expected))

    def test_parts_are_disjoint_and_complete(self):
        for world in range(1, 9):
            for count in (0, 1, 7, 64, 100):
                parts = [range(count)[part(count, 16, rank, world, step)] for step in range(7) for rank in range(world)]
                self.assertEqual([i for one in parts for i in one], list(range(count)))

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


if __name__ == "__main__":
    unittest.main()
