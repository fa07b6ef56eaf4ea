"""What is done to a job, and when: drawn from a seed before anything starts."""
import random
from dataclasses import dataclass, field

# Host 1 has the server: without --server-faults nothing is done to it that a server does not survive.
SERVER_HOST = 1
DEAD_AFTER_S = 3.0
# dtlaunch starts a supervisor again 5 times in 60 s.
SUPERVISOR_KILLS, SUPERVISOR_KILLS_S = 4, 60.0
# A job whose dtlaunch is killed stops and restarts from its checkpoint: it must train in between.
DTLAUNCH_KILLS_APART_S = 20.0
DETACHED = 0.3            # fraction of the seeds

# Relative frequency of each kind of fault.
WEIGHTS = {
    "kill worker": 5, "stop worker": 4, "stop worker for good": 2,
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
NEEDS_CUT = {"cut host", "cut data", "cut master"}
NEEDS_POWER = {"power"}
NEEDS_VOLUME = {"stall volume"}
SERVER_FAULTS = {"kill server", "stop server for good"}
# A server that is silent for longer is lost (--server-dead-after); without a checkpoint that ends the job.
SERVER_MAY_STOP_S = 1.5
NEEDS_DTLAUNCH = {"kill dtlaunch", "stop dtlaunch"}
# What is killed with dtlaunch, and which command takes the job over.
ALONE, WITH_SUPERVISOR, LEFT_ALONE = "alone; dtlaunch --resume", "with the supervisor; dtlaunch --resume", "with the supervisor; dtctl resume"
WAYS = ["append", "truncate", "rename", "copy", "in two writes"]
BAD = ["half a line", "garbage", "empty", "gone", "no final newline", "a bad line among good ones", "a folder"]


def taken_up_by(way):
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
    wanted: list = field(default_factory=list)  # host numbers, one per wanted worker

    def __str__(self):
        more = [f"host {self.host}"] if self.host else []
        more += [self.way] if self.way else []
        more += [f"with host {self.other}"] if self.other else []
        more += [f"wanted {self.wanted}"] if self.wanted else []
        more += [f"for {self.lasts:.1f} s"] if self.lasts else []
        return f"{self.at:7.2f}  {self.kind:22}{', '.join(more)}"


class Schedule:
    """`faults` in the order of their times; `wanted`: the file's hosts when they are over."""

    def __init__(self, seed, seconds, hosts, server_faults=False):
        self.random = random.Random(seed)
        self.hosts, self.base = hosts, [1, 2]
        self.detach = self.random.random() < DETACHED
        self.transport = self.random.choice(["auto", "auto", "tcp"])
        self.deterministic = self.random.random() < 0.5
        kinds = {k: w * self.random.choice([0, 1, 1, 1, 3]) for k, w in WEIGHTS.items()
                 if (server_faults or k not in SERVER_FAULTS) and not (self.detach and k in NEEDS_DTLAUNCH)}
        kinds["kill worker"] = max(1, kinds["kill worker"])
        kinds["edit"] = max(2, kinds["edit"])
        mean_gap = self.random.choice([0.8, 1.5, 3.0])
        self.server_faults = server_faults
        self.server_quiet_from = 0.0
        self.supervisor_kills, self.dtlaunch_killed_at = [], -DTLAUNCH_KILLS_APART_S
        self.faults, at = [], 1.0
        while True:
            at += min(8.0, self.random.expovariate(1 / mean_gap))
            if at > seconds:
                break
            kind = self.random.choices(list(kinds), kinds.values())[0]
            fault = self.draw(kind, at)
            if fault:
                self.faults.append(fault)
        self.wanted = self.some_hosts()

    def draw(self, kind, at):
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
            if at < self.dtlaunch_killed_at + DTLAUNCH_KILLS_APART_S:
                return None
            self.dtlaunch_killed_at = at
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
        if self.silences_server(fault):
            # Together they must stay well below the time after which a server counts as lost.
            if at < self.server_quiet_from:
                return None
            self.server_quiet_from = at + fault.lasts + 5.0
        return fault

    @staticmethod
    def silences_server(fault):
        if fault.kind in ("cut master", "stop server"):
            return True
        return fault.host == SERVER_HOST and fault.kind in ("stop agent", "kill connection", "stop connection", "stop sshd",
                                                            "cut host", "freeze host", "stop guard", "kill guard")

    def some_hosts(self):
        """Of a wanted host_worker: the base, which it cannot remove, and any others, some twice."""
        r = self.random
        others = [h for h in range(1, self.hosts + 1) for _ in range(2) if r.random() < 0.4]
        return (self.base if r.random() < 0.8 else []) + [h for h in others if h not in self.base or r.random() < 0.3] \
            or list(self.base)
