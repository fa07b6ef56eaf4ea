"""The store: arrays in, arrays out. dtkv.h defines each operation; this module adds Python's threads, signals and
lifetimes.

Threads: one thread at a time; a second one gets a RuntimeError. Calls that wait let other threads run, and signal
handlers (Ctrl-C) run within 0.1 s of the main thread's wait. Fork: a child cannot use its parent's store.
"""

from __future__ import annotations

import atexit
import ctypes
import numbers
import operator
import os
import sys
import threading
import time
import weakref
from typing import Any, Callable, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Union

from . import _library, arrays
from .errors import Error, InvalidUse, Leave, Rollback, Timeout, from_code

Key = Union[str, int]
Keys = Union[Key, Sequence[Key], Mapping[Any, Any]]

_TIMEOUT = Timeout.code
_REDUCE = {"auto": 0, "sum": 1, "mean": 2}
_LOOK_EVERY = 0.1
"""Seconds between looks at signals while the main thread waits."""
_AUXILIARY = 1
_TRANSIENT = 2


class View(NamedTuple):
    """What begins at an epoch boundary (dtkv_view).

    generation: the view's number; it rises with every change of the workers. rank: 0 to num_workers - 1. epoch: the
    one that begins; for a newcomer, and after a rollback, another one than epoch_boundary()'s argument. changed: rank
    or num_workers differ from before, make the data iterators again. rolled_back: the servers have the values of that
    epoch's begin, pull every key.
    """

    generation: int
    rank: int
    num_workers: int
    epoch: int
    changed: bool
    rolled_back: bool


class Handle:
    """An operation under way. Its arrays belong to the store until wait() has returned or raised."""

    __slots__ = ("_number", "_store")

    def __init__(self, store: "Store", number: int) -> None:
        self._store: Optional[Store] = store
        self._number = number

    def wait(self, timeout: Optional[float] = None) -> None:
        """Waits until the operation is done, at most `timeout` seconds (None: the store's own deadlines), and raises
        what went wrong. After dtkv.Timeout it can be waited for again; else a second call does nothing."""
        store = self._store
        if store is None:
            return
        try:
            store._wait(self._number, timeout)
        except Timeout:
            raise
        except Error:
            self._store = None
            raise
        self._store = None

    def wait_in_stream(self, timeout: Optional[float] = None) -> None:
        """As wait(), but for arrays on devices it waits only until the copies of the values are on the arrays' streams: what
        is put on these streams later comes after them. wait() tells later how the operation ended."""
        if self._store is not None:
            self._store._wait_in_stream(self._number, timeout)


def version() -> str:
    """The version of libdtkv."""
    text: bytes = _library.library().dtkv_version()
    return text.decode()


def _default_type() -> str:
    has_servers = os.environ.get("DT_NUM_SERVERS", "0") != "0"
    return "dist_sync" if "DT_AGENT_SOCKET" in os.environ and has_servers else "local"


def _names(keys: Sequence[Key]) -> List[str]:
    for key in keys:
        if isinstance(key, bool) or not isinstance(key, (str, int)):
            raise TypeError(f"a key is a str or an int, not {type(key).__name__}")
    return [str(key) for key in keys]


def _entries(keys: Keys, values: Any, what: str) -> Tuple[List[str], List[Any]]:
    """Names and arrays of equal number. One key with a list of arrays: the arrays of several devices."""
    if isinstance(keys, Mapping):
        if values is not None:
            raise TypeError(f"{what}: a dict of arrays comes alone")
        return _names(list(keys)), list(keys.values())
    if values is None:
        raise TypeError(f"{what}: keys without arrays")
    if isinstance(keys, (str, int)):
        several = list(values) if isinstance(values, (list, tuple)) else [values]
        return _names([keys]) * len(several), several
    if not isinstance(values, (list, tuple)):
        raise TypeError(f"{what}: a list of keys needs a list of arrays, not {type(values).__name__}")
    if len(keys) != len(values):
        raise ValueError(f"{what}: {len(keys)} keys and {len(values)} arrays")
    return _names(keys), list(values)


class Arrays:
    """Keys and their arrays as the C functions take them, for calls that come again with the same arrays. `is_written`:
    values will be pulled into them. The arrays' memory must stay where it is."""

    def __init__(self, names: List[str], values: List[Any], is_written: bool) -> None:
        described = [arrays.describe(name, value, is_written) for name, value in zip(names, values)]
        self.count = len(names)
        self.keys = (ctypes.c_char_p * self.count)(*[_library.c_text(name) for name in names])
        self.arrays = (_library.Array * self.count)(*[one.array for one in described])
        self.owners = [one.owner for one in described]

    def follow_streams(self) -> None:
        """Those of PyTorch on GPUs are used after the work that is on the present streams now, not when they were described."""
        for at, owner in zip(self.arrays, self.owners):
            if getattr(owner, "is_cuda", False):
                at.stream = sys.modules["torch"].cuda.current_stream(owner.device).cuda_stream


def _whole(name: str, number: Any, bits: int) -> int:
    """`number`, which must fit into an unsigned C number of so many bits."""
    if isinstance(number, bool) or not isinstance(number, numbers.Integral) or not 0 <= int(number) < 1 << bits:
        raise ValueError(f"{name} is a whole number from 0 to 2**{bits} - 1, not {number!r}")
    return int(number)


def _options(samples: int, step: int, learning_rate: float, reduce: str, priority: int) -> _library.PushOptions:
    if reduce not in _REDUCE:
        raise ValueError(f"reduce is one of {', '.join(_REDUCE)}, not {reduce!r}")
    return _library.PushOptions(
        _REDUCE[reduce], _whole("samples", samples, 64), _whole("step", step, 64), float(learning_rate), int(priority)
    )


class _Call:
    """A call of the store, from before it has its turn until it is over."""

    __slots__ = ("_is_open", "thread")

    def __init__(self) -> None:
        self.thread = threading.current_thread().name
        self._is_open = {0: True}

    def take(self) -> bool:
        """True for the first caller: the one that runs the call, or gives it up."""
        return self._is_open.pop(0, False)


class Store:
    """A connection to the job's kvstore, or a store of this process alone.

    type: "dist_sync", "dist_async" (under dtlaunch), "local" or "device"; None: "dist_sync" in a job with servers, else
    "local". Raises dtkv.Error if the servers cannot be reached, ImportError if libdtkv is not found. A process has one
    store for its life, also alone, and any number of "local" ones; in an interactive interpreter alone, where cells are
    run again, any number. Used by one thread at a time.

    Keys and arrays of a call are given in one of three ways: push("w", a), push(["w", "b"], [a, b]) or
    push({"w": a, "b": b}). push("w", [a0, a1]) is one contribution by arrays of several devices: their sum. A key is a
    str, or an int, which stands for its decimal text. An array has any shape; its number of elements and its type are
    those of the key. dtkv.arrays says which types are taken.
    """

    def __init__(self, type: Optional[str] = None) -> None:  # noqa: A002
        self.left = False
        """Whether this worker was removed from the job: epochs() has ended, and the program should exit with 0."""
        self._library = _library.library()
        self._pointer: Optional[int] = None
        self._process = os.getpid()
        self._is_foreign = False
        self._calls: Dict[_Call, None] = {}
        """The first one uses the store."""
        self._pending: Dict[int, List[Any]] = {}
        """The arrays of the operations under way."""
        self._begun: List[Tuple[ctypes.c_uint64, List[Any]]] = []
        self._waited: List[Tuple[int, int]] = []
        """Handles with arrays, and handles with results, on their way to _pending and _failed: see _adopt."""
        self._failed: Dict[int, Error] = {}
        """What the operations' waits are to raise."""
        self._is_lost = False
        """A server was lost since the last boundary."""
        self._allocated: Dict[int, Any] = {}
        self._unused: List[int] = []
        made = ctypes.c_void_p()
        named = type or _default_type()
        is_the_process = type not in ("local", "device")
        is_free = not named.startswith("dist") and hasattr(sys, "ps1")
        if is_the_process and _made and not is_free:
            raise InvalidUse(
                "a process has one store for its life: start each fold as a job of its own, or give type='local'"
            )
        name = _library.c_text(named)
        _stores.add(self)

        def create(_: Any) -> int:
            try:
                code: int = self._library.dtkv_create(name, ctypes.byref(made))
            finally:
                self._pointer = made.value
                if is_the_process and self._pointer is not None:
                    _made.append(True)
            return code

        self._call(create, is_open=False)

    # ---------------------------------------------------------------- who this worker is

    @property
    def type(self) -> str:
        """The store's type."""
        text: bytes = self._ask("dtkv_type")
        return text.decode()

    @property
    def rank(self) -> int:
        """0 to num_workers - 1; a prediction until a newcomer's first boundary."""
        return int(self._ask("dtkv_rank"))

    @property
    def num_workers(self) -> int:
        """The present world size."""
        return int(self._ask("dtkv_num_workers"))

    @property
    def generation(self) -> int:
        """The number of the present view."""
        return int(self._ask("dtkv_generation"))

    @property
    def worker_id(self) -> int:
        """A number that no other worker of the job has or had."""
        return int(self._ask("dtkv_worker_id"))

    @property
    def is_newcomer(self) -> bool:
        """Whether the job was already running when this worker joined."""
        return bool(self._ask("dtkv_is_newcomer"))

    @property
    def is_lead(self) -> bool:
        """Whether this worker has rank 0's duties."""
        return bool(self._ask("dtkv_is_lead"))

    # ---------------------------------------------------------------- values

    def init(self, keys: Keys, values: Any = None, *, auxiliary: bool = False, transient: bool = False) -> None:
        """Creates keys with rank 0's values; the others' sizes and types are compared. Keys that exist are not changed.
        `auxiliary`: no optimizer, never compressed, the mean of all workers (integers: the sum), e.g. BatchNorm
        statistics. `transient`: not in checkpoints; after the loss of a server such keys are created again. All workers
        call it."""
        what = Arrays(*_entries(keys, values, "init"), is_written=False)
        flags = (_AUXILIARY if auxiliary else 0) | (_TRANSIENT if transient else 0)
        self._call(lambda at: self._library.dtkv_init(at, what.count, what.keys, what.arrays, flags))

    def broadcast(self, keys: Keys, values: Any = None) -> None:
        """init, then every worker has rank 0's values in its arrays."""
        names, arrays_of = _entries(keys, values, "broadcast")
        Arrays(names, arrays_of, is_written=True)
        self.init(names, arrays_of)
        self.pull(names, arrays_of)

    def push(
        self,
        keys: Keys,
        values: Any = None,
        *,
        samples: int = 1,
        step: int = 0,
        learning_rate: float = 0.0,
        reduce: str = "auto",
        priority: int = 0,
        wait: bool = True,
    ) -> Handle:
        """Contributes to the keys' next round. samples: this contribution's weight in a mean; 0 takes part and adds
        nothing. step: a number that all workers of a round have alike, from 0 on. learning_rate: of this step, for the
        servers' optimizer; a float32, the same on all workers. reduce: "auto" (mean for keys with an optimizer, else
        sum), "sum", "mean". priority: higher goes first. wait=False returns at once: wait for the handle, or wait_all(),
        before the arrays change."""
        options = _options(samples, step, learning_rate, reduce, priority)
        what = Arrays(*_entries(keys, values, "push"), is_written=False)
        return self._begin(
            lambda at, handle: self._library.dtkv_push(
                at, what.count, what.keys, what.arrays, ctypes.byref(options), handle
            ),
            [what],
            wait,
        )

    def pull(self, keys: Keys, out: Any = None, *, priority: int = 0, wait: bool = True) -> Handle:
        """Writes the values to `out`, arrays of the keys' sizes and types, after this worker's last push of the keys
        took effect. priority and wait: as push()."""
        into = Arrays(*_entries(keys, out, "pull"), is_written=True)
        return self._begin(
            lambda at, handle: self._library.dtkv_pull(at, into.count, into.keys, into.arrays, int(priority), handle),
            [into],
            wait,
        )

    def pushpull(
        self,
        keys: Keys,
        values: Any = None,
        out: Any = None,
        *,
        samples: int = 1,
        step: int = 0,
        learning_rate: float = 0.0,
        reduce: str = "auto",
        priority: int = 0,
        wait: bool = True,
    ) -> Handle:
        """Both: the value, or without an optimizer the reduced contribution, of exactly this round. `out` None: in
        place. With a dict of values, `out` may be a dict of the same keys; so may the second argument. The others: as
        push()."""
        options = _options(samples, step, learning_rate, reduce, priority)
        if isinstance(keys, Mapping):
            if values is not None and out is not None:
                raise TypeError("pushpull: a dict of arrays to push, and a dict to pull into")
            target = values if values is not None else out
            if target is None:
                target = keys
            elif not isinstance(target, Mapping) or set(target) != set(keys):
                raise ValueError("pushpull: the dict to pull into has other keys")
            names, sent = _entries(keys, None, "pushpull")
            received = [target[key] for key in keys]
        else:
            names, sent = _entries(keys, values, "pushpull")
            same_names, received = _entries(keys, values if out is None else out, "pushpull")
            if same_names != names:
                raise ValueError(f"pushpull: {len(sent)} arrays to push and {len(received)} to pull into")
        into = Arrays(names, received, is_written=True)
        is_in_place = all(map(operator.is_, sent, received))
        return self._begin_pushpull(into if is_in_place else Arrays(names, sent, is_written=False), into, options, wait)

    def pushpull_again(
        self,
        values: Arrays,
        out: Arrays,
        *,
        samples: int,
        step: int,
        learning_rate: float = 0.0,
        reduce: str = "auto",
        priority: int = 0,
        wait: bool = True,
    ) -> Handle:
        """pushpull() of arrays that were described once: for many small arrays that takes longer than the call."""
        return self._begin_pushpull(values, out, _options(samples, step, learning_rate, reduce, priority), wait)

    def wait_all(self, timeout: Optional[float] = None) -> None:
        """Waits for all operations, at most `timeout` seconds, and raises the first one's error."""
        ends = None if timeout is None else time.monotonic() + timeout
        first: Optional[Exception] = None
        if self._begun or self._waited:
            self._call(lambda at: 0, interruptibly=False)
        for number in [*self._failed, *self._pending]:
            try:
                self._wait(number, None if ends is None else max(0.0, ends - time.monotonic()))
            except Exception as error:  # each of them is waited for
                first = first or error
        if first is not None:
            raise first

    def allocate(self, shape: Union[int, Sequence[int]], dtype: Any = "float32") -> Any:
        """A numpy array of zeros, of a shape and a type, in memory that servers of this host access without a copy.
        Allocate few large ones: in a job each needs a descriptor. The memory is freed with the last array that uses it.
        Forked children share it."""
        import numpy

        like = numpy.empty(0, dtype=dtype)
        arrays.describe("allocate", like, is_written=True)
        size = int(numpy.prod(shape, dtype=numpy.int64)) * like.itemsize
        memory = ctypes.c_void_p()
        self._call(lambda at: self._library.dtkv_allocate(at, size, ctypes.byref(memory)))
        address = int(memory.value or 0)
        block = (ctypes.c_char * size).from_address(address)
        # The list and not the store: an array must not keep the store alive.
        self._allocated[address] = weakref.finalize(block, self._unused.append, address)
        self._allocated[address].atexit = False
        return numpy.frombuffer(memoryview(block), dtype=like.dtype).reshape(shape)

    # ---------------------------------------------------------------- the job

    def set_optimizer(self, spec: str) -> None:
        """The servers' optimizer: "sgd momentum=0.9 weight_decay=1e-4 nesterov=1", "adam beta1=0.9", "adamw ..."."""
        self._call(lambda at: self._library.dtkv_set_optimizer(at, _library.c_text(spec)))

    def optimizer(self) -> Tuple[str, int]:
        """The servers' optimizer ("": none), and how many states it keeps for each parameter: 1 for sgd with momentum,
        2 for adam and adamw."""
        text = ctypes.create_string_buffer(256)
        states = ctypes.c_int()
        self._call(lambda at: self._library.dtkv_optimizer(at, text, len(text), ctypes.byref(states)))
        return text.value.decode(), states.value

    def pull_state(self, keys: Keys, which: int, out: Any = None) -> List[int]:
        """Writes the optimizer's state number `which` (1: momentum or first moment; 2: adam's second moment) of the keys to
        arrays of their shapes and types; returns each key's number of updates. After the last step of an epoch."""
        into = Arrays(*_entries(keys, out, "pull_state"), is_written=True)
        updates = (ctypes.c_uint64 * into.count)()
        self._call(lambda at: self._library.dtkv_pull_state(at, into.count, into.keys, which, into.arrays, updates))
        return list(updates)

    def init_state(self, keys: Keys, which: int, values: Any = None, *, updates: Sequence[int]) -> None:
        """Sets the keys' states as rank 0 has them, with the numbers of updates that pull_state() returned. All workers
        call it after init() and set_optimizer(), before the first epoch_boundary(). Keys that were updated stay."""
        from_ = Arrays(*_entries(keys, values, "init_state"), is_written=False)
        if len(updates) != from_.count:
            raise ValueError(f"init_state: {from_.count} keys and {len(updates)} numbers of updates")
        counts = (ctypes.c_uint64 * from_.count)(*[_whole("updates", one, 64) for one in updates])
        self._call(lambda at: self._library.dtkv_init_state(at, from_.count, from_.keys, which, from_.arrays, counts))

    def set_gradient_compression(self, spec: str) -> None:
        """How gradients are sent from now on: "none", "fp16", "bf16", "2bit threshold=0.5"."""
        self._call(lambda at: self._library.dtkv_set_gradient_compression(at, _library.c_text(spec)))

    def barrier(self) -> None:
        """All workers meet: returns when each of them has called it."""
        self._call(self._library.dtkv_barrier)

    def finish_steps(self) -> None:
        """This worker has made its last push of a parameter in this epoch: the others do not wait for more."""
        self._call(self._library.dtkv_finish_steps)

    def finish_epoch(self) -> None:
        """This worker has made its last push of this epoch."""
        self._call(self._library.dtkv_finish_epoch)

    def epochs(self, count: int, begin: int = 0) -> Iterator[View]:
        """The epochs to run, `begin` to count - 1, each with its view: workers join and leave between them. A newcomer
        begins with the others' epoch. Ends early, with `left`, when this worker was removed. After dtkv.Rollback (a server
        was lost) `continue`: the epoch of the newest checkpoint comes next."""
        epoch = begin
        while epoch < count:
            try:
                view = self.epoch_boundary(epoch)
            except Leave:
                self.left = True
                return
            if view.epoch >= count:
                return
            yield view
            epoch = view.epoch if self._is_lost else view.epoch + 1

    def epoch_boundary(self, epoch: int) -> View:
        """To be called before each epoch, 0 included: workers join and leave here. Blocks until all have arrived. The next
        one is that of the view's epoch + 1: a newcomer begins with the others' epoch. epochs() does all that.
        dtkv.Leave: this worker was removed; stop training and exit with 0."""
        out = _library.ViewOut()
        number = _whole("epoch", epoch, 32)
        self._call(lambda at: self._library.dtkv_epoch_boundary(at, number, ctypes.byref(out)))
        self._is_lost = False
        return View(
            out.generation, out.rank, out.num_workers, out.epoch, bool(out.changed), bool(out.rolled_back)
        )

    def progress(self, epoch: int, step: int) -> None:
        """Reports to the supervisor which epoch and step, both from 0 on, this worker is at; cheap."""
        place = _whole("epoch", epoch, 32), _whole("step", step, 64)
        self._call(lambda at: self._library.dtkv_progress(at, *place), interruptibly=False)

    def report(self, **values: Union[float, str]) -> None:
        """Figures for people, in `dtctl status`: report(train_loss=0.3, phase="warm-up"). The latest of each name is
        sent once a second, at most 32 names. A number that is not finite is dropped. `steps_in_epoch` is the number
        of steps that an epoch has."""
        for name, value in values.items():
            self._report(_library.c_text(name), value)

    def _report(self, name: bytes, value: Union[float, str]) -> None:
        report, given = ((self._library.dtkv_report_text, _library.c_text(value)) if isinstance(value, str)
                         else (self._library.dtkv_report, float(value)))
        self._call(lambda at: report(at, name, given), interruptibly=False)

    def close(self) -> None:
        """Says goodbye to the servers. Operations under way have 5 s. Arrays of allocate() stay usable. A second call
        does nothing, nor does a call in a forked child."""
        if self._pointer is None or self._is_foreign:
            return

        def destroy(at: Any) -> int:
            for address, last_use in self._allocated.items():
                alive = last_use.detach()
                if alive is not None:
                    self._library.dtkv_keep(at, address)
                    weakref.finalize(alive[0], self._library.dtkv_unkeep, address).atexit = False
            self._allocated.clear()
            try:
                self._library.dtkv_destroy(at)
            finally:
                self._pointer = None
                self._pending.clear()
            return 0

        self._call(destroy, interruptibly=not sys.is_finalizing(), patience=2.0)

    def __enter__(self) -> "Store":
        return self

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        try:
            self.close()
        except RuntimeError:
            if error is None:
                raise

    def __del__(self) -> None:
        if getattr(self, "_pointer", None) is not None and not self._is_foreign and not self._calls:
            self.close()

    def __reduce__(self) -> Any:
        raise TypeError("a store cannot be sent to another process: make one there")

    # ---------------------------------------------------------------- calls

    def _enter(self, call: _Call, is_open: bool = True, patience: float = 0.0) -> None:
        """Waits for the call's turn. A signal's handler may raise after any step, also after the one that took the turn:
        the caller's `finally` takes the call out of _calls, whether it is there or not."""
        if self._is_foreign:
            raise InvalidUse(f"this store belongs to process {self._process}; a forked child cannot use it")
        ends = time.monotonic() + patience
        self._calls[call] = None
        while True:
            first = list(self._calls)[0]
            if first is call:
                break
            if time.monotonic() >= ends:
                raise RuntimeError(
                    f"the thread '{first.thread}' is using this store: '{call.thread}' cannot use it before that call is over"
                )
            time.sleep(0.01)
        if is_open and self._pointer is None:
            raise InvalidUse("this store is closed")
        self._adopt()

    def _adopt(self) -> None:
        """Notes which operations are under way and which are over, also for a call whose signal's handler raised in
        between: arrays are noted before libdtkv has them."""
        while self._begun:
            handle, owners = self._begun[0]
            if handle.value:
                self._pending[handle.value] = owners
            del self._begun[0]
        while self._waited:
            number, code = self._waited[0]
            if code != _TIMEOUT:
                if code:
                    self._failed.setdefault(number, self._error(code))
                self._pending.pop(number, None)
            del self._waited[0]

    def _error(self, code: int) -> Error:
        """The exception for what libdtkv has returned just now."""
        self._is_lost = self._is_lost or code == Rollback.code
        return from_code(code, _library.last_error())

    def _ask(self, function: str) -> Any:
        call = _Call()
        try:
            self._enter(call)
            return getattr(self._library, function)(self._pointer)
        finally:
            self._calls.pop(call, None)

    def _call(
        self, function: Callable[[Any], Any], interruptibly: bool = True, is_open: bool = True, patience: float = 0.0
    ) -> None:
        """Calls `function` with the store; raises its error. If a signal's handler raises while it runs, it goes on in its
        own thread, and the store is free when it is done."""
        call = _Call()
        if not interruptibly or threading.current_thread() is not threading.main_thread():
            try:
                self._enter(call, is_open, patience)
                self._free_unused(self._pointer)
                code = function(self._pointer)
                if code:
                    raise self._error(code)
            finally:
                self._calls.pop(call, None)
            return
        result: List[Any] = []
        is_done = threading.Event()

        def run() -> None:
            if not call.take():
                return
            try:
                code = function(self._pointer)
                result.append(self._error(code) if code else None)
            except BaseException as error:
                result.append(error)
            finally:
                self._calls.pop(call, None)
                is_done.set()

        try:
            self._enter(call, is_open, patience)
            self._free_unused(self._pointer)
            try:
                threading.Thread(target=run, name=call.thread, daemon=True).start()
            except RuntimeError:  # no thread starts while the interpreter ends, since Python 3.12
                run()
            while not is_done.wait(_LOOK_EVERY):
                pass
        finally:
            if call.take():
                self._calls.pop(call, None)
        if result[0] is not None:
            raise result.pop()

    def _begin(self, function: Callable[[Any, Any], Any], used: List[Arrays], wait: bool) -> Handle:
        number = ctypes.c_uint64()
        call = _Call()
        try:
            self._enter(call)
            self._free_unused(self._pointer)
            self._begun.append((number, [one.owners for one in used]))
            code = function(self._pointer, ctypes.byref(number))
            if code:
                raise self._error(code)
            self._adopt()
        finally:
            self._calls.pop(call, None)
        handle = Handle(self, number.value)
        if wait:
            handle.wait()
        return handle

    def _begin_pushpull(self, from_: Arrays, into: Arrays, options: _library.PushOptions, wait: bool) -> Handle:
        return self._begin(
            lambda at, handle: self._library.dtkv_pushpull(
                at, from_.count, from_.keys, from_.arrays, into.arrays, ctypes.byref(options), handle
            ),
            [from_, into],
            wait,
        )

    def _wait(self, number: int, timeout: Optional[float]) -> None:
        ends = None if timeout is None else time.monotonic() + timeout
        is_main = threading.current_thread() is threading.main_thread()
        while True:
            left = None if ends is None else ends - time.monotonic()
            if is_main:
                turn = _LOOK_EVERY if left is None else min(left, _LOOK_EVERY)
            else:
                turn = 0.0 if left is None else left
            if left is not None:
                turn = max(turn, 1e-6)  # 0 is no limit
            call = _Call()
            code, message = 0, ""
            try:
                self._enter(call)
                if number in self._pending:
                    # From C to C: no signal's handler runs before the result is noted.
                    one = map(self._library.dtkv_wait, (self._pointer,), (number,), (turn,))
                    self._waited.extend(zip((number,), one))
                    code = self._waited[-1][1]
                    message = _library.last_error() if code else ""
                    self._adopt()
            finally:
                self._calls.pop(call, None)
            if number in self._failed:
                try:
                    raise self._failed[number]
                finally:
                    del self._failed[number]
            if code == 0:
                return  # done, now or by wait_all or an earlier wait
            if left is not None and left <= turn:
                raise from_code(code, message)

    def _wait_in_stream(self, number: int, timeout: Optional[float]) -> None:
        ends = None if timeout is None else time.monotonic() + timeout
        code = _TIMEOUT
        while code == _TIMEOUT and number in self._pending:
            turn = _LOOK_EVERY if ends is None else min(_LOOK_EVERY, ends - time.monotonic())
            if turn <= 0:
                raise from_code(code, f"the values are not on their streams after {timeout:g} s")
            call = _Call()
            try:
                self._enter(call)
                code = self._library.dtkv_wait_in_stream(self._pointer, number, turn)
            finally:
                self._calls.pop(call, None)
        if code:
            self._wait(number, timeout)  # it is over, or was before, and raises what went wrong

    def _free_unused(self, at: Any) -> None:
        """Frees memory of allocate() whose last array is gone."""
        while self._unused:
            address = self._unused.pop()
            if self._allocated.pop(address, None) is not None:
                self._library.dtkv_free(at, address)


_stores: "weakref.WeakSet[Store]" = weakref.WeakSet()
_made: List[bool] = []
"""Not empty: this process has had its store."""


def _in_forked_child() -> None:
    _made.clear()
    for store in list(_stores):
        store._is_foreign = True


def _at_exit() -> None:
    """Says goodbye, unless the program ends by an exception with operations under way: others may never answer them."""
    has_failed = hasattr(sys, "last_type")
    for store in list(_stores):
        if not store._calls and not (has_failed and (store._pending or store._begun)):
            store.close()


os.register_at_fork(after_in_child=_in_forked_child)
atexit.register(_at_exit)
