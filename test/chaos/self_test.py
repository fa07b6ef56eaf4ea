"""test/chaos/chaos.py --self-test: the watch sees what it is to see, also of real processes; schedules are what they are to be."""
from __future__ import annotations

import collections
import errno
import os
import signal
import subprocess
import tempfile
import time

import checks
import schedule
import watch
from faults import Faults
from volume import Control
from watch import Scan, Supervisor, Trainer, Watch

A, B = Trainer(1, "a", -1, 2), Trainer(2, "b", -1, 3)
FIRST, SECOND = Trainer(3, "a", 0, 2), Trainer(4, "a", 1, 3)


def told(looks: list[tuple[float, list[Trainer], set[int]]]) -> list[str]:
    seen = Watch()
    return [text for at, trainers, apart in looks for text in seen.look(at, trainers, [], apart)]


def watch_sees() -> None:
    nothing: set[int] = set()
    assert told([(0, [A], nothing), (1, [A], nothing), (2, [B], nothing), (9, [B], nothing)]) == []
    assert told([(0, [A, B], nothing), (0.4, [A, B], nothing), (0.6, [B], nothing), (3, [B], nothing)]) == [], "one that is just ending"
    assert [text[:21] for text in told([(t, [A, B], nothing) for t in (0, 1, 2)])] == ["two jobs train at onc"], "told once"
    assert told([(t, [A, B], {3}) for t in (0, 1, 2)]) == [], "on a host that cannot be reached"
    assert len(told([(0, [A, B], {3}), (1, [A, B], {3}), (2, [A, B], nothing), (3.1, [A, B], nothing)])) == 1, "and can be again"
    assert len(told([(0, [FIRST, SECOND], nothing), (1.1, [FIRST, SECOND], nothing)])) == 1, "two groups"
    assert told([(0, [FIRST], nothing), (1.1, [SECOND], nothing)]) == []
    two = [Supervisor(1, 0), Supervisor(2, 0)]
    seen = Watch()
    assert not seen.look(0, [], two, []) and seen.look(watch.SUPERVISORS_S, [], two, []), "two supervisors"
    seen = Watch()
    former = [Supervisor(1, 0), Supervisor(2, -1)]
    assert not seen.look(0, [], former, []) and not seen.look(99, [], former, []), "a former master's is looked at by the keeper"


def scan_sees() -> None:
    """Processes with the environment of workers of two jobs, one of which is stopped meanwhile."""
    words = {"a": {"DT_JOB": "a"}, "b": {"DT_JOB": "b"}, "group": {"DT_JOB": "g", "DT_ON_CHANGE": "restart", "TORCHELASTIC_RESTART_COUNT": "4"}}
    started = {name: subprocess.Popen(["sleep", "60"], env={"DT_ROLE": "worker", **more}) for name, more in words.items()}
    others = [subprocess.Popen(["sleep", "60"], env={"DT_ROLE": "server", "DT_JOB": "c"})]
    names = {process.pid: name for name, process in started.items()}
    try:
        scan, seen = Scan(lambda pid: 1 if pid in names else None), Watch()

        def look() -> tuple[set[tuple[str, str, int]], list[str]]:
            trainers = [t for t in scan.look()[0] if t.pid in {*names, others[0].pid}]
            return {(names[t.pid], t.job, t.group) for t in trainers}, seen.look(time.monotonic(), trainers, [], [])
        everyone = {("a", "a", -1), ("b", "b", -1), ("group", "g", 4)}
        until, wrong = time.monotonic() + 20, list[str]()
        while not wrong:
            assert time.monotonic() < until, "two jobs train at once, and nothing is said"
            found, wrong = look()
            time.sleep(watch.LOOK_S)  # between two looks, not a wait
        assert found == everyone, found
        os.kill(started["a"].pid, signal.SIGSTOP)
        os.waitpid(started["a"].pid, os.WUNTRACED)
        assert look()[0] == everyone - {("a", "a", -1)}
    finally:
        for process in [*started.values(), *others]:
            process.kill()
            process.wait()


def schedules_are_drawn() -> None:
    kinds: collections.Counter[str] = collections.Counter()
    plans = [schedule.Schedule(seed, 120, 4) for seed in range(300)]
    assert list(map(str, plans[7].faults)) == list(map(str, schedule.Schedule(7, 120, 4).faults)), "a seed is a schedule"
    for seed, plan in enumerate(plans):
        assert [f.at for f in plan.faults] == sorted(f.at for f in plan.faults), seed
        of_machines = {f.kind for f in plan.faults if f.kind in schedule.MACHINES}
        kinds.update(of_machines)
        assert len(of_machines) >= 2, f"seed {seed}: {of_machines}"
        taken = [f.at for f in plan.faults if f.kind in schedule.TAKEN_UP]
        assert all(b - a >= schedule.TAKEN_UP_APART_S - 0.01 for a, b in zip(taken, taken[1:])), f"seed {seed}: {taken}"
        assert not any(f.kind == "notice" and f.host < 2 for f in plan.faults), seed
        if plan.default_budgets and plan.groups:
            assert sum(f.kind in schedule.DEATHS for f in plan.faults) <= schedule.DEATHS_OF_GROUPS, seed
        elif plan.default_budgets:
            assert not any(f.kind in schedule.DEATHS and f.host == schedule.SERVER_HOST for f in plan.faults), seed
    assert min(kinds[kind] for kind in schedule.MACHINES) > 60, kinds
    assert 80 < sum(plan.default_budgets for plan in plans) < 120 and 50 < sum(plan.groups for plan in plans) < 100


def gaps_are_found() -> None:
    both = [*range(13), *range(12, 31), 13, 31]
    assert not checks.gap(range(9), 1) and not checks.gap(both, 2), "two masters, and each one's lines in order"
    for numbers, masters in (([0, 2], 1), ([0, 0], 1), (both, 1), ([0, 5], 2), ([0, 1, 0, 1, 0], 2), ([*both, 33], 2)):
        assert checks.gap(numbers, masters), (numbers, masters)


def volumes_are_mended() -> None:
    with tempfile.TemporaryDirectory() as folder:
        one, two = (Control(f"{folder}/{name}") for name in "ab")
        faults = Faults.__new__(Faults)
        faults.in_force = {}
        of_both = faults.forced("fails", [one, two], changes=errno.ENOSPC)
        of_one = faults.forced("fails", [Control(one.path)], changes=errno.EIO)
        of_both()
        assert (one.fails, two.fails) == (errno.EIO, 0), "the end of a fault that another volume still has"
        of_one()
        assert one.fails == 0


def main() -> None:
    for test in (watch_sees, scan_sees, schedules_are_drawn, gaps_are_found, volumes_are_mended):
        test()
        print(f"{test.__name__}: ok")
