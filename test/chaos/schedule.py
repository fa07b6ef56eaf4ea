"""What is done to a job, and when: drawn from a seed before anything starts."""
import random
from collections.abc import Iterator
from dataclasses import dataclass, field

# Host 1 has the server: without --server-faults nothing is done to it that a server does not survive.
SERVER_HOST = 1
DEAD_AFTER_S = 3.0
# dtlaunch starts a supervisor again 5 times in 60 s.
SUPERVISOR_KILLS, SUPERVISOR_KILLS_S = 4, 60.0
# A job whose dtlaunch is killed stops and restarts from its checkpoint: it must train in between.
TAKEN_UP_APART_S = 20.0
SECOND_MASTERS_APART_S = 45.0
DETACHED = 0.3            # fraction of the seeds
GROUPS = 0.25             # of them: --on-change restart
DEFAULT_BUDGETS = 1 / 3   # of them: no --max-restarts, --restart-refill, --max-futile-restarts
DEATHS_OF_GROUPS = 3      # a job with default budgets bears so many in a row
SURE = 4                  # kinds of the machine's and the volume's faults that every seed has

# Relative frequency of each kind of fault.
WEIGHTS = {
    "kill worker": 5.0, "stop worker": 4, "stop worker for good": 2,
    "kill agent": 2, "stop agent": 2, "kill guard": 1, "stop guard": 1,
    "kill connection": 3, "stop connection": 2, "stop sshd": 1,
    "kill supervisor": 2, "stop supervisor": 2, "kill helper": 1, "stop helper": 2,
    "kill dtlaunch": 3, "stop dtlaunch": 1,
    "stop server": 1, "stop server for good": 1, "kill server": 1,
    "cut host": 4, "cut data": 2, "cut master": 1,
    "power": 2, "freeze host": 2,
    "edit": 8, "bad edit": 4, "dtctl": 4,
    "stall volume": 2,
}
# Of these every seed has some for sure.
MACHINES = {
    "reboot master": 1.0, "second master": 1, "full volume": 1, "failing volume": 1, "slow volume": 1, "long stall": 0.5,
    "full journal": 1, "failing journal": 0.5, "step clock": 2, "notice": 2,
}
NEEDS_CUT = {"cut host", "cut data", "cut master", "second master", "reboot master"}
NEEDS_POWER = {"power"}
NEEDS_VOLUME = {"stall volume", "full volume", "failing volume", "slow volume", "long stall", "full journal", "failing journal"}
SERVER_FAULTS = {"kill server", "stop server for good"}
# A server that is silent for longer is lost (--server-dead-after); without a checkpoint that ends the job.
SERVER_MAY_STOP_S = 1.5
NEEDS_DTLAUNCH = {"kill dtlaunch", "stop dtlaunch"}
# Whose workers count as failed.
DEATHS = {"kill worker", "stop worker for good", "kill agent", "kill guard", "power", "freeze host", "stop agent", "cut host"}
# What is killed with dtlaunch, and which command takes the job over.
ALONE, WITH_SUPERVISOR, LEFT_ALONE = "alone; dtlaunch --resume", "with the supervisor; dtlaunch --resume", "with the supervisor; dtctl resume"
STALLS, CUT_OFF, LIVES, DEAD = "the old one's volume stalls", "the old one is cut off", "the old one lives", "the old one is dead"
EVERYWHERE, FOR_THE_MASTER = "everywhere", "for the master"
TAKEN_UP = {"kill dtlaunch", "reboot master", "second master", "failing journal"}
WAYS = ["append", "truncate", "rename", "copy", "in two writes"]
BAD = ["half a line", "garbage", "empty", "gone", "no final newline", "a bad line among good ones", "a folder"]
CLOCK_STEPS_S = [7200.0, 600.0, 30.0, 1.5, -1.5, -30.0, -600.0, -7200.0]


def taken_up_by(way: str) -> str:
    """The command in a way of killing dtlaunch."""
    return way.partition("; ")[2]


@dataclass
class Fault:
    at: float                 # seconds from the first fault's possible moment
    kind: str
    host: int = 0             # 0: the master
    lasts: float = 0.0        # seconds; 0: nothing to undo
    way: str = ""
    other: int = 0
    wanted: list[int] = field(default_factory=list)  # host numbers, one per wanted worker
    amount: float = 0.0       # of a clock: seconds; of a slow volume: MB/s

    def __str__(self) -> str:
        more = [f"host {self.host}"] if self.host else []
        more += [self.way] if self.way else []
        more += [f"with host {self.other}"] if self.other else []
        more += [f"wanted {self.wanted}"] if self.wanted else []
        more += [f"by {self.amount:+g} s" if self.kind == "step clock" else f"{self.amount:.1f} MB/s"] if self.amount else []
        more += [f"for {self.lasts:.1f} s"] if self.lasts else []
        return f"{self.at:7.2f}  {self.kind:22}{', '.join(more)}"


class Schedule:
    """`faults` in the order of their times; `wanted`: the file's hosts when they are over."""

    def __init__(self, seed: int, seconds: float, hosts: int, server_faults: bool = False, groups: bool | None = None,
                 only: frozenset[str] = frozenset()) -> None:
        self.random = random.Random(seed)
        self.hosts, self.base = hosts, [1, 2]
        self.detach = self.random.random() < DETACHED
        self.transport = self.random.choice(["auto", "auto", "tcp"])
        self.deterministic = self.random.random() < 0.5
        drawn = self.random.random() < GROUPS
        self.groups = drawn if groups is None else groups
        self.default_budgets = self.random.random() < DEFAULT_BUDGETS
        kinds = {k: w * self.random.choice([0, 1, 1, 1, 3]) for k, w in (WEIGHTS | MACHINES).items()
                 if (server_faults or k not in SERVER_FAULTS) and not (self.detach and k in NEEDS_DTLAUNCH)}
        kinds["kill worker"] = max(1, kinds["kill worker"])
        kinds["edit"] = max(2, kinds["edit"])
        if only:
            kinds = {kind: weight for kind, weight in (WEIGHTS | MACHINES).items() if kind in only}
        # A group begins again at every change, and takes its time.
        mean_gap = self.random.choice([4.0, 6.0] if self.groups else [0.8, 1.5, 3.0])
        self.server_faults = server_faults
        self.server_quiet_from = 0.0
        self.supervisor_kills: list[float] = []
        self.taken_up_at = -TAKEN_UP_APART_S
        self.second_master_at = -SECOND_MASTERS_APART_S
        self.stalled_until = self.notice_until = 0.0
        self.deaths = 0
        sure = [(self.random.uniform(0.05, 0.6) * seconds, kind) for kind in self.random.sample(sorted(MACHINES), SURE)
                if not only or kind in only]
        others = [(at, self.random.choices(list(kinds), list(kinds.values()))[0]) for at in self.times(seconds, mean_gap)]
        drawn_faults = [self.draw(kind, at) for at, kind in sorted(sure + others)]
        self.faults = [fault for fault in drawn_faults if fault]
        self.wanted = self.some_hosts()

    def times(self, seconds: float, mean_gap: float) -> Iterator[float]:
        at = 1.0
        while (at := at + min(8.0, self.random.expovariate(1 / mean_gap))) <= seconds:
            yield at

    def draw(self, kind: str, at: float) -> Fault | None:
        r = self.random
        host = r.randint(1, self.hosts)
        # Short, as long as a host may be silent, or past that.
        lasts = round(r.choice([r.uniform(0.2, 2.0), r.uniform(0.2, 8.0), r.uniform(DEAD_AFTER_S, 8.0)]), 1)
        fault = Fault(round(at, 2), kind, host, lasts)
        verb, _, what = kind.partition(" ")
        if what in ("supervisor", "helper", "dtlaunch", "master"):
            fault.host = 0
        if verb == "kill":
            fault.lasts = 0.0
        if what in ("server", "server for good"):
            fault.host = SERVER_HOST
        if what.endswith(" for good"):
            fault.lasts = 0.0
        if kind == "stop server" and not self.server_faults:
            fault.lasts = min(fault.lasts, SERVER_MAY_STOP_S)
        if kind == "kill supervisor":
            recent = [t for t in self.supervisor_kills if t > at - SUPERVISOR_KILLS_S]
            if len(recent) >= SUPERVISOR_KILLS:
                return None
            self.supervisor_kills.append(at)
            # For a job without a dtlaunch: until one or two commands take it over.
            fault.lasts, fault.way = round(r.uniform(0.1, 6.0), 1), r.choice(["dtctl resume", "dtctl resume", "two of dtctl resume"])
        if kind == "kill dtlaunch":
            fault.lasts, fault.way = round(r.uniform(0.0, 6.0), 1), r.choice([ALONE, WITH_SUPERVISOR, LEFT_ALONE])
        if kind in ("kill agent", "power") and host == SERVER_HOST and not self.server_faults:
            fault.host = r.randint(2, self.hosts)
        if kind == "power":
            fault.lasts = max(fault.lasts, 1.0)
        if kind in ("cut host", "cut master"):
            fault.way = r.choice(["in", "out", "all"])
        if kind == "cut data":
            fault.way, fault.other = r.choice(["in", "out", "all"]), SERVER_HOST
            fault.host = r.randint(2, self.hosts)
        if kind == "edit":
            fault.host, fault.lasts, fault.way, fault.wanted = 0, 0.0, r.choice(WAYS), self.some_hosts()
        if kind == "bad edit":
            fault.host, fault.way, fault.wanted = 0, r.choice(BAD), self.some_hosts()
        if kind == "dtctl":
            fault.lasts, fault.way = 0.0, r.choice(["add", "add", "add", "remove", "remove", "resume"])
        if kind == "stall volume":
            fault.host = r.choice([0, 0, host])
            fault.lasts = round(r.uniform(0.5, 12.0), 1)
        if kind in MACHINES:
            self.draw_of_machine(fault)
        if self.is_too_much(fault):
            return None
        if self.silences_server(fault):
            # Together they must stay well below the time after which a server counts as lost.
            if at < self.server_quiet_from:
                return None
            self.server_quiet_from = at + fault.lasts + 5.0
        return fault

    def draw_of_machine(self, fault: Fault) -> None:
        r, kind = self.random, fault.kind
        if kind == "notice":  # the first host stays: a job that no host is left to ends
            fault.host = r.choice([2, fault.host if fault.host != 1 else 2])
            fault.way = r.choice(["goes away", "goes away", "cancelled"])
            fault.lasts = round(r.uniform(1.5, 15.0), 1)
        elif kind == "step clock":
            fault.host = r.choice([0, 0, fault.host])
            fault.amount, fault.lasts = r.choice(CLOCK_STEPS_S), round(r.uniform(1.0, 20.0), 1)
        elif kind == "reboot master":
            fault.lasts, fault.way = round(r.uniform(0.5, 8.0), 1), r.choice(["dtlaunch --resume", "dtctl resume"])
        elif kind == "second master":
            fault.lasts, fault.way = round(r.uniform(8.0, 25.0), 1), r.choice([STALLS, STALLS, CUT_OFF, LIVES, DEAD])
        else:
            fault.host = 0
            fault.way = r.choice([EVERYWHERE, FOR_THE_MASTER]) if kind.endswith("volume") else ""
            if kind == "long stall":
                fault.lasts = round(r.choice([r.uniform(21.0, 30.0), r.uniform(51.0, 57.0)]), 1)
            elif kind == "failing journal":
                fault.lasts = round(r.uniform(0.5, 3.0), 1)
            else:
                fault.lasts = round(r.uniform(2.0, 12.0), 1)
            if kind == "slow volume":
                fault.amount = round(r.uniform(0.2, 2.0), 1)

    def is_too_much(self, fault: Fault) -> bool:
        """Whether it comes too soon after another one of its kind, or takes more than a job has to bear."""
        at, end = fault.at, fault.at + fault.lasts
        if fault.kind in DEATHS and self.default_budgets:
            self.deaths += 1
            return self.deaths > DEATHS_OF_GROUPS if self.groups else fault.host == SERVER_HOST
        if fault.kind == "second master" and at < self.second_master_at + SECOND_MASTERS_APART_S:
            return True
        if fault.kind in TAKEN_UP:
            if at < self.taken_up_at + TAKEN_UP_APART_S:
                return True
            self.taken_up_at = at
        if fault.kind == "second master":
            self.second_master_at = at
        if fault.kind == "long stall":
            if self.stalled_until:
                return True
            self.stalled_until = end
        if fault.kind == "notice":
            if at < self.notice_until:
                return True
            self.notice_until = end + 5.0
        return False

    @staticmethod
    def silences_server(fault: Fault) -> bool:
        if fault.kind in ("cut master", "stop server"):
            return True
        return fault.host == SERVER_HOST and fault.kind in ("stop agent", "kill connection", "stop connection", "stop sshd",
                                                            "cut host", "freeze host", "stop guard", "kill guard")

    def some_hosts(self) -> list[int]:
        """Of a wanted host_worker: the base, which it cannot remove, and any others, some twice."""
        r = self.random
        others = [h for h in range(1, self.hosts + 1) for _ in range(2) if r.random() < 0.4]
        return (self.base if r.random() < 0.8 else []) + [h for h in others if h not in self.base or r.random() < 0.3] \
            or list(self.base)

    def told(self) -> str:
        """What the job itself is like."""
        words = ["--on-change restart"] if self.groups else []
        words += ["default budgets"] if self.default_budgets else []
        words += ["detached"] if self.detach else []
        return ", ".join(words) or "as ever"
