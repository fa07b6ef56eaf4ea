"""The package dtkv on a store of this process: arrays, lifetimes, threads, signals, forks.

Run by ctest with PYTHONPATH and DTKV_LIBRARY; by hand the same way: python3 local_test.py [TEST...]
"""

import array
import contextlib
import ctypes
import functools
import gc
import mmap
import os
import pathlib
import pickle
import re
import signal
import subprocess
import sys
import threading
import time
import unittest
import weakref

import numpy as np

import dtkv
from dtkv import _library, arrays

try:
    import torch
except ImportError:
    torch = None

HALF_TENSORS = ((torch.float16, arrays.FLOAT16), (torch.bfloat16, arrays.BFLOAT16)) if torch else ()
NEEDS_TORCH = unittest.skipIf(torch is None, "no torch")


@contextlib.contextmanager
def instead_of(name, function):
    """libdtkv's function `name` is `function(real, *arguments)` meanwhile."""
    library = _library.library()
    real = getattr(library, name)
    setattr(library, name, lambda *arguments: function(real, *arguments))
    try:
        yield
    finally:
        setattr(library, name, real)


def addresses(call):
    """The addresses that `call` gives to dtkv_push."""
    seen = []

    def push(real, store, count, keys, arrays, *rest):
        seen.extend(arrays[i].data for i in range(count))
        return real(store, count, keys, arrays, *rest)

    with instead_of("dtkv_push", push):
        call()
    return seen


def is_mapped(address):
    ranges = (line.split()[0].split("-") for line in pathlib.Path("/proc/self/maps").read_text().splitlines())
    return any(int(begin, 16) <= address < int(end, 16) for begin, end in ranges)


class OnlyDLPack:
    """An array of a package that is neither numpy nor torch."""

    def __init__(self, of):
        self.of = of

    def __dlpack__(self, stream=None):
        return self.of.__dlpack__()


class Values(unittest.TestCase):
    def setUp(self):
        self.store = dtkv.Store("local")
        self.addCleanup(self.store.close)

    def test_a_local_store_has_one_worker(self):
        self.assertEqual((self.store.rank, self.store.num_workers, self.store.is_lead), (0, 1, True))
        self.assertFalse(self.store.is_newcomer)

    def test_sgd_steps_are_the_servers(self):
        w = np.array([1, 2], np.float32)
        self.store.init({"w": w})
        self.store.set_optimizer("sgd")
        view = self.store.epoch_boundary(0)
        self.assertEqual((view.rank, view.num_workers, view.epoch, view.rolled_back), (0, 1, 0, False))
        self.store.pushpull({"w": np.array([2, 4], np.float32)}, {"w": w}, samples=8, learning_rate=0.25)
        self.assertEqual(w.tolist(), [0.5, 1])
        self.store.progress(0, 1)
        self.store.report(train_loss=0.5, steps_in_epoch=10, phase="warm-up")
        with self.assertRaisesRegex(dtkv.InvalidUse, "'Loss' names no figure"):
            self.store.report(Loss=1)
        self.store.finish_steps()
        self.store.finish_epoch()
        self.assertEqual(self.store.epoch_boundary(1).epoch, 1)

    def test_a_text_that_c_would_end_early_is_refused(self):
        one = np.ones(1, np.float32)
        for call in (
            lambda: self.store.init({"w\0x": one}),
            lambda: dtkv.Store("local\0x"),
            lambda: self.store.set_optimizer("sgd\0 momentum=0.9"),
            lambda: self.store.set_gradient_compression("none\0"),
            lambda: self.store.report(**{"loss\0x": 1}),
            lambda: self.store.report(phase="warm\0up"),
        ):
            with self.assertRaisesRegex(ValueError, r"\\x00.*must not contain a NUL"):
                call()
        self.store.init({"w": one})

    def test_epochs_are_those_of_the_views(self):
        self.assertEqual([view.epoch for view in self.store.epochs(3)], [0, 1, 2])
        self.assertEqual([view.epoch for view in self.store.epochs(4, begin=3)], [3])
        with self.assertRaisesRegex(dtkv.InvalidUse, r"^epoch_boundary\(2\) in epoch 3: go on with view.epoch \+ 1, or use"):
            next(self.store.epochs(3, begin=2))
        self.assertEqual(list(self.store.epochs(0)), [])
        self.assertFalse(self.store.left)
        # A newcomer's boundary comes back with the others' epoch, one after the loss of a server with an earlier one.
        comes, asked = iter([7, 8, 8, 9]), []

        def boundary(real, at, epoch, view):
            asked.append(epoch)
            view._obj.epoch = next(comes)
            return 0

        def lose_servers(real, *arguments):
            real(*arguments)
            return dtkv.Rollback.code

        self.store.init({"w": np.zeros(1)})
        with instead_of("dtkv_epoch_boundary", boundary):
            for turn, view in enumerate(self.store.epochs(10)):
                with instead_of("dtkv_wait", lose_servers) if turn == 1 else contextlib.nullcontext():
                    try:
                        self.store.pushpull("w", np.ones(1))
                    except dtkv.Rollback:
                        self.assertEqual(turn, 1)
                        continue
        self.assertEqual(asked, [0, 8, 8, 9])
        comes = iter([12])
        with instead_of("dtkv_epoch_boundary", boundary):
            self.assertEqual(list(self.store.epochs(10)), [])
        with instead_of("dtkv_epoch_boundary", lambda real, *arguments: dtkv.Leave.code):
            self.assertEqual(list(self.store.epochs(10)), [])
        self.assertTrue(self.store.left)

    def test_calls_go_on_where_no_thread_starts(self):
        def refuse(thread):
            raise RuntimeError("can't create new thread at interpreter shutdown")  # Python 3.12

        start, threading.Thread.start = threading.Thread.start, refuse
        try:
            self.store.barrier()
            self.store.close()
        finally:
            threading.Thread.start = start

    def test_a_state_goes_on_in_another_store(self):
        def steps(store, w, count):
            for _ in range(count):
                store.pushpull({"w": np.array([2, 4], np.float32)}, {"w": w}, learning_rate=0.25)

        w = np.array([1, 2], np.float32)
        self.store.init({"w": w})
        self.store.set_optimizer("sgd momentum=0.5")
        self.assertEqual(self.store.optimizer(), ("sgd momentum=0.5 nesterov=0 weight_decay=0", 1))
        steps(self.store, w, 2)
        momentum, values = np.zeros(2, np.float32), w.copy()
        updates = self.store.pull_state({"w": momentum}, 1)
        self.assertEqual((momentum.tolist(), updates), ([3, 6], [2]))
        steps(self.store, w, 1)
        with dtkv.Store("local") as other:
            other.init({"w": values})
            other.set_optimizer("sgd momentum=0.5")
            other.init_state({"w": momentum}, 1, updates=updates)
            steps(other, values, 1)
            self.assertEqual(values.tolist(), w.tolist())
            with self.assertRaisesRegex(dtkv.InvalidUse, "1 or 2, not 3"):
                other.pull_state({"w": momentum}, 3)
            with self.assertRaises(ValueError):
                other.init_state({"w": momentum}, 1, updates=[])

    def test_transient_keys_are_like_others(self):
        for auxiliary in (False, True):
            key, value = f"t{auxiliary}", np.ones(2)
            self.store.init(key, value, auxiliary=auxiliary, transient=True)
            with self.assertRaises(dtkv.Mismatch):
                self.store.init(key, value, auxiliary=auxiliary)
            self.store.pushpull(key, value)
            self.assertEqual(value.tolist(), [1, 1])

    def test_forms_of_keys_and_arrays(self):
        a, b = np.ones(2), np.ones(3)
        self.store.init(["a", 7], [a, b])
        self.store.epoch_boundary(0)
        self.store.push({"a": a, 7: b})
        out = np.zeros(2)
        self.store.push("a", a)
        self.store.pull("a", out)
        self.assertEqual(out.tolist(), [1, 1])
        self.store.pushpull("7", b, b)
        self.store.pushpull({"a": a})
        several = [np.zeros(2), np.zeros(2)]
        self.store.push("a", [np.full(2, 2.0), np.full(2, 3.0)])
        self.store.pull("a", several)
        self.assertEqual([v.tolist() for v in several], [[5, 5], [5, 5]])
        for wrong in (
            lambda: self.store.push(["a"], [a, b]),
            lambda: self.store.pushpull({"a": a}, {"b": a}),
            lambda: self.store.push("a", a, samples=-1),
            lambda: self.store.push("a", a, samples=np.ones(1)),
            lambda: self.store.push("a", a, samples=True),
            lambda: self.store.push("a", a, samples=2**64),
            lambda: self.store.pushpull("a", a, step=2**70),
            lambda: self.store.epoch_boundary(-1),
            lambda: self.store.epoch_boundary(2**32),
            lambda: self.store.progress(0, -1),
            lambda: self.store.init_state("a", 1, a, updates=[-1]),
            lambda: self.store.push("a", a, reduce="median"),
        ):
            self.assertRaises(ValueError, wrong)
        for wrong in (
            lambda: self.store.push("a"),
            lambda: self.store.push(["a"], a),
            lambda: self.store.push(1.5, a),
            lambda: self.store.push({"a": a}, a),
        ):
            self.assertRaises(TypeError, wrong)
        self.store.push("a", a, samples=0)
        self.store.push("a", a, samples=2**64 - 1, step=np.int64(3))

    def test_errors_are_classes_with_the_librarys_sentence(self):
        self.store.init({"w": np.ones(3, np.float32)})
        with self.assertRaisesRegex(dtkv.Error, "w"):
            self.store.pull({"w": np.ones(4, np.float32)})
        with self.assertRaisesRegex(dtkv.InvalidUse, "nonsense"):
            self.store.set_optimizer("nonsense")
        with self.assertRaisesRegex(dtkv.InvalidUse, "is none of local"):
            dtkv.Store("nonsense")
        with self.assertRaisesRegex(dtkv.Error, "dtlaunch"):
            dtkv.Store("dist_sync")
        header = pathlib.Path(os.environ["DTKV_HEADER"]).read_text(encoding="utf-8")
        for kind in (c for c in vars(dtkv).values() if isinstance(c, type) and issubclass(c, dtkv.Error)):
            name = {"Error": "INTERNAL", "InvalidUse": "INVALID"}.get(kind.__name__, kind.__name__.upper())
            self.assertRegex(header, rf"DTKV_{name} =\s+{kind.code}\b")

    def test_every_function_of_the_header_is_declared_with_its_arguments(self):
        header = pathlib.Path(os.environ["DTKV_HEADER"]).read_text(encoding="utf-8")
        declared = re.findall(r"DTKV_API [\w\s*]*?(dtkv_\w+)\(([^;]*)\);", header)
        self.assertGreater(len(declared), 25)
        not_used = {"dtkv_broadcast": "Store.broadcast() is init() and pull(), after a look at its arrays"}
        self.assertEqual({name for name, _ in declared}, _library._FUNCTIONS.keys() | not_used.keys())
        for name, arguments in declared:
            if name in not_used:
                continue
            count = 0 if arguments.strip() == "void" else arguments.count(",") + 1
            self.assertEqual(len(_library._FUNCTIONS[name][1]), count, name)

    def test_the_manual_has_every_function_of_the_header_and_every_error(self):
        """Each function in the synopsis with its arguments' names, and in the description."""
        header = pathlib.Path(os.environ["DTKV_HEADER"])
        text = header.read_text(encoding="utf-8")
        page = (header.parents[1] / "packaging/man/dtkv.3").read_text(encoding="utf-8")
        synopsis, description = page.split(".SH DESCRIPTION")
        synopsis = " ".join(re.sub(r'^\.[A-Z]+ |"', "", synopsis, flags=re.M).split())
        for name, arguments in re.findall(r"DTKV_API [\w\s*]*?(dtkv_\w+)\(([^;]*)\);", text):
            written = re.search(rf"\b{name}\((.*?)\) ?;", synopsis)
            self.assertIsNotNone(written, f"dtkv.3's synopsis has no {name}")
            names = [re.findall(r"\w+", one)[-1] for one in arguments.split(",")]
            self.assertEqual([re.findall(r"\w+", one)[-1] for one in written[1].split(",")], names, name)
            self.assertTrue(re.search(rf"(?m)^\.BR? .*\b{name}\b", description), f"dtkv.3 does not describe {name}")
        errors = re.findall(r"^  (DTKV_\w+) =", text.split("enum dtkv_error")[1].split("}")[0], flags=re.M)
        self.assertGreater(len(errors), 8)
        for error in set(errors) - {"DTKV_OK"}:
            self.assertRegex(page.split(".SH RETURN VALUE")[1], rf"(?m)^\.B {error}$")


class Arrays(unittest.TestCase):
    def setUp(self):
        self.store = dtkv.Store("local")
        self.addCleanup(self.store.close)
        for name in ("f4", "f8", "i8"):
            self.store.init({name: np.zeros(4, name)})
        self.store.epoch_boundary(0)

    def test_nothing_is_copied(self):
        for name in ("f4", "f8", "i8"):
            v = np.ones((2, 2), name)
            self.assertEqual(addresses(lambda: self.store.push(name, v)), [v.ctypes.data])
        v = array.array("f", [1, 2, 3, 4])
        self.assertEqual(addresses(lambda: self.store.push("f4", v)), [v.buffer_info()[0]])
        v = (ctypes.c_double * 4)()
        self.assertEqual(addresses(lambda: self.store.push("f8", v)), [ctypes.addressof(v)])
        v = np.ones(4, "f4")
        self.assertEqual(addresses(lambda: self.store.push("f4", OnlyDLPack(v))), [v.ctypes.data])
        self.assertEqual(addresses(lambda: self.store.push("f4", v.__dlpack__())), [v.ctypes.data])
        v = self.store.allocate((2, 2))
        self.assertEqual(addresses(lambda: self.store.push("f4", v)), [v.ctypes.data])

    @NEEDS_TORCH
    def test_tensors_are_not_copied(self):
        v = torch.ones(2, 2, requires_grad=True)
        self.assertEqual(addresses(lambda: self.store.push("f4", v)), [v.data_ptr()])
        self.assertEqual(addresses(lambda: self.store.push("f4", OnlyDLPack(v.detach()))), [v.data_ptr()])
        v = torch.from_numpy(self.store.allocate(4))
        self.assertEqual(addresses(lambda: self.store.push("f4", v)), [v.data_ptr()])
        v.zero_()
        self.store.pull("f4", v)
        self.assertEqual(v.tolist(), [0, 0, 0, 0])

    def test_half_precision_belongs_to_float32_keys(self):
        bits = np.full(4, 0x3F80, np.uint16)  # 1
        for value, dtype in (
            (np.ones((2, 2), "f2"), arrays.FLOAT16),
            (dtkv.bfloat16(bits), arrays.BFLOAT16),
            *((torch.ones(4, dtype=kind), number) for kind, number in HALF_TENSORS),
        ):
            described = arrays.describe("h", value, True).array
            self.assertEqual((described.dtype, described.count), (dtype, 4))
            self.store.init({f"h{dtype}": value})
            self.store.push(f"h{dtype}", np.full(4, 1 + 2**-12, "f4"))
            self.store.pull(f"h{dtype}", value)
            out = np.zeros(4, "f4")
            self.store.pull(f"h{dtype}", out)
            self.assertEqual(out.tolist(), [1 + 2**-12] * 4)
            self.store.pushpull(f"h{dtype}", value)
            self.store.broadcast({f"h{dtype}": value})
            self.store.pull(f"h{dtype}", out)
            self.assertEqual(out.tolist(), [1] * 4)
        self.assertEqual(bits.tolist(), [0x3F80] * 4)
        with self.assertRaisesRegex(dtkv.Mismatch, "'f8' .*float16 and bfloat16 arrays belong to float32 keys"):
            self.store.push("f8", np.ones(4, "f2"))
        with self.assertRaisesRegex(TypeError, "^h: .*uint16"):
            arrays.describe("h", dtkv.bfloat16(np.zeros(4, np.int16)), False)

    def test_weights_of_half_precision_are_float32_at_the_servers(self):
        """A hundred steps of a size that float16 cannot add to 1."""
        with dtkv.Store("local") as store:
            w = store.allocate(4, "f2")
            w[:] = 1
            store.init({"w": w})
            store.set_optimizer("sgd momentum=0.5")
            for _ in range(100):
                store.pushpull({"w": np.full(4, -0.25, "f2")}, {"w": w}, learning_rate=2.0**-14)
            self.assertEqual(w.tolist(), [1 + 3 * 2.0**-10] * 4)
            momentum = np.zeros(4, "f4")
            self.assertEqual(store.pull_state({"w": momentum}, 1), [100])
            self.assertEqual(momentum.tolist(), [-0.5] * 4)

    def refused(self, kind, word, call):
        """`call` raises, names key and reason, and gives nothing to the library."""

        def never(real, *arguments):
            self.fail("the library was called")

        with instead_of("dtkv_push", never), instead_of("dtkv_pull", never):
            with self.assertRaisesRegex(kind, f"^f4: .*{word}"):
                call()

    def test_wrong_arrays_are_refused_by_key_and_reason(self):
        push = lambda v: lambda: self.store.push("f4", v)
        pull = lambda v: lambda: self.store.pull("f4", v)
        self.refused(ValueError, "contiguous", push(np.ones((4, 4), "f4")[:, 0]))
        self.refused(ValueError, "contiguous", push(np.ones((4, 4), "f4").T[1:]))
        self.refused(ValueError, "contiguous", push(memoryview(array.array("f", [1] * 8))[::2]))
        self.refused(TypeError, "complex64", push(np.ones(4, "c8")))
        self.refused(TypeError, ">f4", push(np.ones(4, ">f4")))
        self.refused(TypeError, "object", push(np.array([None] * 4)))
        self.refused(TypeError, "'B'", push(b"1234"))
        self.refused(TypeError, "list is no array", push([[1.0]]))
        self.refused(TypeError, "float is no array", push(1.0))
        fixed = np.ones(4, "f4")
        fixed.flags.writeable = False
        self.refused(ValueError, "read-only", pull(fixed))
        self.refused(ValueError, "read-only", pull(memoryview(array.array("f", [1] * 4)).toreadonly()))
        self.store.push("f4", fixed)
        capsule = np.ones(4, "f4").__dlpack__()
        np.from_dlpack(type("Given", (), {"__dlpack__": lambda s, **k: capsule, "__dlpack_device__": lambda s: (1, 0)})())
        self.refused(ValueError, "taken already", push(capsule))

    @NEEDS_TORCH
    def test_wrong_tensors_are_refused_by_key_and_reason(self):
        push = lambda v: lambda: self.store.push("f4", v)
        self.refused(ValueError, "contiguous", push(torch.ones(4, 4)[:, 0]))
        self.refused(TypeError, "torch.int32", push(torch.ones(4, dtype=torch.int32)))
        self.refused(TypeError, "sparse", push(torch.ones(4).to_sparse()))
        self.refused(TypeError, "meta", push(torch.ones(4, device="meta")))

    def test_an_array_that_the_program_drops_lives_until_its_operation_is_done(self):
        """Each array is overwritten as soon as it is free: a push that reads it later adds another number."""
        self.store.init({"sum": np.zeros(1000)})
        for _ in range(10_000 // 10):
            for _ in range(10):
                self.store.push("sum", np.full(1000, 1.0), wait=False)
                np.full(1000, 9.0)
            self.store.wait_all()
            gc.collect(0)
        out = np.zeros(1000)
        self.store.pull("sum", out)
        self.assertEqual(set(out.tolist()), {1.0})
        self.assertEqual(self.store._pending, {})

    def test_memory_of_allocate_is_freed_with_its_last_array(self):
        before = len(os.listdir("/proc/self/fd"))
        for is_open in (True, False):
            if not is_open:
                self.store = dtkv.Store("local")
            first = self.store.allocate(1 << 20)
            address = first.ctypes.data
            view = first.reshape(4, -1)[1]
            del first
            gc.collect()
            view[:] = 7
            self.store.barrier() if is_open else self.store.close()
            self.assertTrue(is_mapped(address))
            self.assertEqual(len(os.listdir("/proc/self/fd")), before)
            del view
            if is_open:
                self.store.barrier()
            self.assertFalse(is_mapped(address), f"is_open={is_open}")
            if is_open:
                self.store.close()
        self.store = dtkv.Store("local")
        self.assertRaises(TypeError, self.store.allocate, 4, "complex64")

    def test_memory_of_allocate_outlives_the_store(self):
        kept = self.store.allocate(1 << 16)
        self.store.close()
        kept[:] = 3
        self.assertEqual(kept.sum(), 3 * (1 << 16))

    def test_a_closed_store_says_so(self):
        self.store.close()
        self.store.close()
        with self.assertRaisesRegex(dtkv.InvalidUse, "closed"):
            self.store.rank
        with self.assertRaisesRegex(TypeError, "another process"):
            pickle.dumps(self.store)


class ThreadsAndSignals(unittest.TestCase):
    def setUp(self):
        self.store = dtkv.Store("local")
        self.addCleanup(self.store.close)

    @contextlib.contextmanager
    def a_barrier_that_lasts(self, seconds):
        """libdtkv's barrier, in which the C code of this process sleeps."""
        sleep = ctypes.CDLL(None).usleep

        def barrier(real, store):
            sleep(int(seconds * 1e6))  # how long the C code lasts, not a wait
            return 0

        with instead_of("dtkv_barrier", barrier):
            yield

    def test_a_second_thread_is_refused_by_name(self):
        with self.a_barrier_that_lasts(0.5):
            waiting = threading.Thread(target=self.store.barrier, name="trainer")
            waiting.start()
            while not self.store._calls:
                time.sleep(0.001)  # between two looks, not a wait
            with self.assertRaisesRegex(RuntimeError, "'trainer' is using this store: 'MainThread' cannot"):
                self.store.epoch_boundary(0)
            waiting.join()
        self.store.epoch_boundary(0)

    def test_ctrl_c_ends_a_wait_of_the_main_thread(self):
        with self.a_barrier_that_lasts(1.5):
            threading.Timer(0.2, lambda: signal.raise_signal(signal.SIGINT)).start()
            with self.assertRaises(KeyboardInterrupt):
                self.store.barrier()
            with self.assertRaisesRegex(RuntimeError, "is using this store"):
                self.store.rank
            while self.store._calls:
                time.sleep(0.01)  # between two looks, not a wait
        self.assertEqual(self.store.rank, 0)

    def test_other_threads_run_during_a_wait(self):
        counted = [0]
        is_over = threading.Event()

        def count():
            while not is_over.is_set():
                counted[0] += 1

        counter = threading.Thread(target=count)
        with self.a_barrier_that_lasts(0.3):
            counter.start()
            before = counted[0]
            self.store.barrier()
            during = counted[0] - before
        is_over.set()
        counter.join()
        self.assertGreater(during, 1000)

    def test_a_forked_child_cannot_use_it(self):
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                self.store.rank
            except dtkv.InvalidUse as error:
                expected = f"this store belongs to process {os.getppid()}; a forked child cannot use it"
                code = 0 if str(error) == expected else 2
                self.store.close()
                self.store = None
                gc.collect()
            os._exit(code)
        self.assertEqual(os.waitpid(pid, 0)[1], 0)
        self.assertEqual(self.store.rank, 0)


class Alarm(Exception):
    pass


def raise_alarm(*_):
    raise Alarm


class Faults(unittest.TestCase):
    """A signal's handler raises when a function of libdtkv has returned."""

    def setUp(self):
        self.store = dtkv.Store("local")
        self.addCleanup(self.store.close)
        self.store.init({"w": np.zeros(1024, "f4")})
        self.store.set_optimizer("sgd momentum=0.9")
        self.store.epoch_boundary(0)

    def raising(self, name):
        def function(real, *arguments):
            real(*arguments)
            raise Alarm

        return instead_of(name, function)

    def works(self, store):
        value = np.ones(1024, "f4")
        store.pushpull("w", value, learning_rate=1)
        self.assertEqual((store._pending, store._begun, store._waited, store._failed, store._calls), ({}, [], [], {}, {}))

    def test_arrays_belong_to_the_store_until_the_operation_is_waited_for(self):
        for name, call in (
            ("dtkv_push", lambda a: self.store.push("w", a)),
            ("dtkv_pull", lambda a: self.store.pull("w", a)),
            ("dtkv_pushpull", lambda a: self.store.pushpull("w", a)),
            ("dtkv_wait", lambda a: self.store.pushpull("w", a)),
            ("dtkv_wait", lambda a: self.store.pushpull("w", a, wait=False).wait()),
        ):
            memory = mmap.mmap(-1, 4096)
            value = np.frombuffer(memory, "f4")
            is_there = weakref.ref(value)
            del memory
            with self.raising(name):
                with self.assertRaises(Alarm):
                    call(value)
            del value
            gc.collect()
            self.assertIsNotNone(is_there(), f"after {name} the array may be unmapped, and libdtkv has it")
            self.store.wait_all()
            gc.collect()
            self.assertIsNone(is_there(), name)
            self.works(self.store)

    def test_the_store_works_after_a_fault_in_any_call(self):
        w = np.ones(1024, "f4")
        for name, call in (
            ("dtkv_init", lambda: self.store.init("v", w)),
            ("dtkv_set_optimizer", lambda: self.store.set_optimizer("sgd momentum=0.9")),
            ("dtkv_optimizer", self.store.optimizer),
            ("dtkv_pull_state", lambda: self.store.pull_state("w", 1, w)),
            ("dtkv_init_state", lambda: self.store.init_state("w", 1, w, updates=[0])),
            ("dtkv_set_gradient_compression", lambda: self.store.set_gradient_compression("none")),
            ("dtkv_barrier", self.store.barrier),
            ("dtkv_finish_steps", self.store.finish_steps),
            ("dtkv_finish_epoch", self.store.finish_epoch),
            ("dtkv_epoch_boundary", lambda: self.store.epoch_boundary(1)),
            ("dtkv_progress", lambda: self.store.progress(0, 0)),
            ("dtkv_report", lambda: self.store.report(loss=1)),
            ("dtkv_report_text", lambda: self.store.report(phase="a")),
            ("dtkv_allocate", lambda: self.store.allocate(4)),
            ("dtkv_rank", lambda: self.store.rank),
        ):
            with self.raising(name):
                with self.assertRaises(Alarm, msg=name):
                    call()
            self.works(self.store)

    def test_a_fault_in_the_first_and_the_last_call(self):
        with self.raising("dtkv_create"):
            with self.assertRaises(Alarm):
                dtkv.Store("local")
        kept = self.store.allocate(4)
        for name in ("dtkv_keep", "dtkv_destroy"):
            with self.raising(name):
                with self.assertRaises(Alarm):
                    self.store.close()
        self.store.close()
        kept[:] = 1
        with self.assertRaisesRegex(dtkv.InvalidUse, "closed"):
            self.store.rank

    def test_an_error_is_not_lost_if_a_handler_raises_when_the_wait_returns(self):
        """The wait is a sleep that the signal ends with -1, as C's next step; Python's handler comes after it."""
        sleep = ctypes.CDLL(None)["usleep"]
        sleep.argtypes = [ctypes.c_uint32, ctypes.c_void_p, ctypes.c_uint64, ctypes.c_double]
        handle = self.store.push("w", np.ones(1024, "f4"), wait=False)
        library = _library.library()
        real, before = library.dtkv_wait, signal.signal(signal.SIGALRM, raise_alarm)
        self.addCleanup(signal.signal, signal.SIGALRM, before)
        library.dtkv_wait = functools.partial(sleep, 10_000_000)
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.05)
            with self.assertRaises(Alarm):
                handle.wait()
        finally:
            library.dtkv_wait = real
        with self.assertRaises(dtkv.Internal):
            handle.wait()
        handle.wait()
        self.works(self.store)


class Program(unittest.TestCase):
    """The package in a fresh interpreter."""

    def run_python(self, text, **environment):
        return subprocess.run(
            [sys.executable, "-c", text],
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            timeout=60,
        )

    def test_import_loads_neither_numpy_nor_torch_nor_the_library(self):
        done = self.run_python(
            "import sys, dtkv\n"
            "print([m for m in ('numpy', 'torch') if m in sys.modules], 'libdtkv' in open('/proc/self/maps').read())"
        )
        self.assertEqual(done.stdout, "[] False\n", done.stderr)

    def test_python_m_dtkv_says_what_is_there(self):
        done = subprocess.run([sys.executable, "-m", "dtkv"], capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, r"libdtkv +\S+, ABI 1 \(.*libdtkv")
        self.assertIn("numpy      there", done.stdout)

    def test_another_library_is_refused_in_a_sentence(self):
        done = self.run_python("import dtkv; dtkv.Store()", DTKV_LIBRARY="libc.so.6")
        self.assertEqual(done.returncode, 1)
        self.assertIn("libc.so.6 is older than this package: it has no ABI number", done.stderr)
        done = self.run_python("import dtkv._library as l; l.ABI = 99; import dtkv; dtkv.Store()")
        self.assertRegex(done.stderr, r"has ABI 1, and this package of dtkv needs 99")
        done = self.run_python("import dtkv; dtkv.Store()", DTKV_LIBRARY="/nowhere/libdtkv.so")
        self.assertRegex(done.stderr, r"ImportError: libdtkv cannot be loaded \(/nowhere.*DTKV_LIBRARY")

    def test_a_store_alone_is_local(self):
        done = self.run_python("import dtkv\nprint(dtkv.Store().type)")
        self.assertEqual(done.stdout, "local\n", done.stderr)

    def test_a_store_that_nobody_closes_ends_with_the_program(self):
        done = self.run_python("import dtkv\ns = dtkv.Store()\nt = dtkv.Store('local')\nt.loop = t")
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))

    def test_a_store_alone_is_local(self):
        self.assertEqual(self.run_python("import dtkv; print(dtkv.Store().type)").stdout, "local\n")

    def test_a_process_has_one_store_for_its_life(self):
        made = "import dtkv, os, sys\nkv = dtkv.Store()\n"
        sentence = "a process has one store for its life: start each fold as a job of its own, or give type='local'"
        for again in ("dtkv.Store()", "kv.close(); dtkv.Store()", "dtkv.Store('dist_sync')"):
            done = self.run_python(made + again)
            self.assertEqual(done.stderr.splitlines()[-1:], ["dtkv.errors.InvalidUse: " + sentence], again)
        for again in ("dtkv.Store('local')", "dtkv.Store('device')", "sys.ps1 = '>>> '; dtkv.Store()"):
            self.assertEqual(self.run_python(made + again).stderr, "", again)
        for first in ("dtkv.Store('local')", "pass"):
            self.assertEqual(self.run_python(f"import dtkv, os\n{first}\ndtkv.Store()").stderr, "", first)
        child = "pid = os.fork()\nif not pid: dtkv.Store(); os._exit(0)\nsys.exit(os.waitpid(pid, 0)[1] != 0)"
        self.assertEqual(self.run_python(made + child).returncode, 0)

    def test_an_exception_comes_out_as_it_is(self):
        done = self.run_python("import dtkv\nwith dtkv.Store() as s:\n    raise KeyError('mine')")
        self.assertEqual(done.returncode, 1)
        self.assertEqual(done.stderr.splitlines()[-1], "KeyError: 'mine'")


if __name__ == "__main__":
    unittest.main()
