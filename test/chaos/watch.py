"""What must hold at every moment of a run: one job trains at a time, one group of it, and one supervisor acts."""
from __future__ import annotations

import os
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

from hosts import Namespaces, Site

LOOK_S = 0.2
# A job begins when all processes of the one before have ended; what is seen at two looks lives at the same time.
TOGETHER_S = 1.0
# A second one does nothing, and waits for 20 s that the first, which has the journal, may be about to end.
SUPERVISORS_S = 30.0


@dataclass(frozen=True)
class Trainer:
    pid: int
    job: str
    group: int  # -1: of a job whose workers come and go one by one
    host: int


@dataclass(frozen=True)
class Supervisor:
    pid: int
    host: int  # 0: on the master; -1: on a former one


class Watch:
    """Pure: is told who lives, and says what is wrong."""

    def __init__(self) -> None:
        self.since: dict[str, float] = {}  # what is so: since when without a break
        self.told: set[str] = set()
        self.looks = 0
        self.seen: set[tuple[str, int]] = set()
        self.longest_s = 0.0  # that two trained together

    def look(self, now: float, trainers: Iterable[Trainer], supervisors: Collection[Supervisor], separated: Collection[int]) -> list[str]:
        """`separated`: hosts that their master cannot reach: what runs there need not be known to it."""
        self.looks += 1
        who: dict[tuple[str, int], list[Trainer]] = defaultdict(list)
        for trainer in trainers:
            self.seen.add((trainer.job, trainer.group))
            if trainer.host not in separated:
                who[trainer.job, trainer.group].append(trainer)
        bounds: dict[str, tuple[float, str]] = {}
        names = sorted(who)
        for n, first in enumerate(names):
            for second in names[n + 1:]:
                what = "two jobs train" if first[0] != second[0] else "two groups of a job train"
                key = f"{what} at once: {first[0]}/{first[1]} and {second[0]}/{second[1]}"
                bounds[key] = TOGETHER_S, self._named(who[first]) + "; " + self._named(who[second])
        here = [s for s in supervisors if s.host == 0]
        if len(here) > 1:
            bounds["two supervisors live at once"] = SUPERVISORS_S, " ".join(str(s.pid) for s in here)
        self.since = {key: self.since.get(key, now) for key in bounds}
        wrong = []
        for key, (bound, details) in bounds.items():
            if bound == TOGETHER_S:
                self.longest_s = max(self.longest_s, now - self.since[key])
            if now - self.since[key] >= bound and key not in self.told:
                self.told.add(key)
                wrong.append(f"{key}, for {now - self.since[key]:.1f} s: {details}")
        return wrong

    @staticmethod
    def _named(several: list[Trainer]) -> str:
        return ", ".join(f"pid {t.pid} on host {t.host}" for t in several)


class Scan:
    """Who lives, by /proc: by what every worker has in its environment."""

    def __init__(self, host_of: Callable[[int], int | None], folder: str = "") -> None:
        """`folder`: other runs have processes here, too; those of this one have it in their environment."""
        self.host_of, self.folder = host_of, folder.encode()
        self.known: dict[tuple[int, str], Trainer | Supervisor | None] = {}  # by pid and start time, as of the last look

    def look(self) -> tuple[list[Trainer], list[Supervisor]]:
        """Those that run: not stopped, not dead."""
        known: dict[tuple[int, str], Trainer | Supervisor | None] = {}
        living: list[Trainer | Supervisor] = []
        for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
            try:
                with open(f"/proc/{pid}/stat") as file:
                    before, _, after = file.read().rpartition(")")
                name, fields = before.partition("(")[2], after.split()
                # A process that executes another program is another one to us.
                key = (pid, fields[19] + name)
                known[key] = self.known[key] if key in self.known else self.identify(pid, name)
            except (OSError, ValueError, IndexError):
                continue
            process = known[key]
            if process and fields[0] not in "TtZX":
                living.append(process)
        self.known = known
        return [p for p in living if isinstance(p, Trainer)], [p for p in living if isinstance(p, Supervisor)]

    def identify(self, pid: int, name: str) -> Trainer | Supervisor | None:
        host = self.host_of(pid)
        with open(f"/proc/{pid}/environ", "rb") as file:
            environment = file.read()
        if self.folder not in environment:
            return None
        if name == "dtsupervisor":
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                return None if b"--volume-helper" in file.read() else Supervisor(pid, host or 0)
        words = dict(word.partition(b"=")[::2] for word in environment.split(b"\0"))
        # The guard and the agent's own children before they execute the worker are no workers.
        if words.get(b"DT_ROLE") != b"worker" or name.startswith("dtagent"):
            return None
        is_group = words.get(b"DT_ON_CHANGE") == b"restart"
        return Trainer(pid, words.get(b"DT_JOB", b"").decode(), int(words.get(b"TORCHELASTIC_RESTART_COUNT", b"0")) if is_group else -1,
                       host if host is not None else -2)


class Watcher(threading.Thread):
    """Looks all the time, from another thread; `wrong` has what it saw."""

    def __init__(self, site: Site, separated: Callable[[], Mapping[int, float]], tell: Callable[[str], None]) -> None:
        super().__init__(daemon=True)
        self.watch, self.scan = Watch(), Scan(site.host_of, "" if isinstance(site, Namespaces) else site.folder)
        self.separated, self.tell = separated, tell
        self.wrong: list[str] = []
        self.longest_break_s = 0.0
        self._ends = threading.Event()

    def run(self) -> None:
        last = time.monotonic()
        while not self._ends.wait(LOOK_S):
            trainers, supervisors = self.scan.look()
            now = time.monotonic()
            self.longest_break_s, last = max(self.longest_break_s, now - last), now
            apart = {host for host, until in list(self.separated().items()) if until > now}
            for text in self.watch.look(now, trainers, supervisors, apart):
                self.wrong.append(text)
                self.tell(f"         {text}")

    def close(self) -> None:
        self._ends.set()
        if self.is_alive():
            self.join(5)
