"""What must hold when a job that faults happened to has ended. Each check gives sentences of what is wrong."""
from __future__ import annotations

import collections
import glob
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

Line = dict[str, Any]
View = dict[int, tuple[int, int]]  # each worker: (rank, world)

LOG_LINE = re.compile(r"(\d+) (ADDED|REMOVED) (\S+) (\d{19})\n")
# Training's own noise: another number of workers, other samples in a step.
ACCURACY_TOLERANCE = 0.03
# An event and its line of the log are made in one step, but read the clock twice.
SAME_CHANGE_NS = 1_000_000_000
# A killed supervisor loses the events that were not yet on the volume; the log is made from the journal and
# loses nothing.
LOOKING_S = 5.0  # from a job's look for a checkpoint to its own folder
UNTOLD_S = 20.0
# So long before and after another master takes the job over the old one's volume may stall.
LAGS_S = 60.0
# Longest wait at a boundary: the job's own deadlines for a member that is stopped for good, and a restart.
LONGEST_WAIT_S = 60.0
# Some time after the faults they have no effect any more.
SETTLING_S, SETTLED_WAIT_S = 45.0, 3.0


def json_lines(path: str) -> Iterator[Line]:
    with open(path, errors="replace") as file:
        for line in file:
            if line.endswith("\n"):
                try:
                    yield json.loads(line)
                except ValueError:
                    pass  # a line of a process that was killed while writing


class Run:
    """The files of a job to check. A job whose dtlaunch was killed is followed by the one that continued it."""

    def __init__(self, folder: str, job: str, is_last: bool, base: list[str], began_at: float, faults_over_at: float,
                 supervisor_kills: Sequence[float] = (), standstills: Sequence[tuple[float, float]] = (), taken_over: Sequence[float] = ()) -> None:
        self.job, self.is_last = job, is_last
        self.base = base  # names of the base workers' hosts
        self.began_at, self.faults_over_at = began_at, faults_over_at  # monotonic seconds
        self.supervisor_kills = supervisor_kills  # seconds since 1970, by the master's clock
        self.standstills = standstills  # (begin, end) of what nobody can decide in, monotonic seconds
        self.files = f"{folder}/disk/.dtlaunch/{job}"
        self.logs = {int(re.findall(r"w(\d+)\.jsonl", path)[0]): list(json_lines(path))
                     for path in glob.glob(f"{folder}/logs/{job}.w*.jsonl")}
        shown = f"{folder}/disk" if is_last else self.files  # the next job sets them aside there
        self.events = list(json_lines(f"{shown}/events.jsonl"))
        with open(f"{shown}/host_worker_log") as file:
            self.log = file.readlines()
        self.taken_over = taken_over  # by another master: when, in seconds since 1970 by the old one's clock
        self.rollbacks = self._forget_what_was_rolled_back()

    def _forget_what_was_rolled_back(self) -> int:
        """Removes the training beyond a checkpoint to which the job rolled back. Returns the number of rollbacks."""
        back: dict[int, tuple[int, int]] = {}  # generation: the epoch that began again, and when
        for _, line in self.lines("boundary_leave"):
            if line["result"] == "rollback":
                epoch, since = back.get(line["generation"], (line["epoch"], line["t_ns"]))
                back[line["generation"]] = (epoch, min(since, line["t_ns"]))
        for worker, log in self.logs.items():
            self.logs[worker] = [line for line in log if line["event"] not in ("boundary_leave", "step", "epoch")
                                 or not any(line["epoch"] >= epoch and line["t_ns"] < since for epoch, since in back.values())]
        for _, line in self.lines("boundary_leave"):
            if line["result"] == "rollback":
                line["result"] = "ok"
        return len(back)

    def lines(self, name: str) -> list[tuple[int, Line]]:
        """(worker, line) of every such line of the workers' logs."""
        return [(worker, line) for worker, log in self.logs.items() for line in log if line["event"] == name]

    def last_epoch(self) -> int:
        return int(max((line["epoch"] for _, line in self.lines("epoch")), default=-1))

    def first_epoch(self) -> int | None:
        """None: none was released."""
        return min((line["epoch"] for _, line in self.lines("boundary_leave") if line["result"] == "ok"), default=None)

    def checkpoints(self) -> dict[int, str]:
        """By epoch: the folder."""
        return {int(path[-6:]): path for path in glob.glob(f"{self.files}/checkpoints/epoch-*") if re.search(r"epoch-\d+$", path)}

    def accuracy(self) -> float:
        return float(max((line["accuracy"] for _, line in self.lines("epoch") if line["epoch"] == self.last_epoch()), default=0))


def workers_started_once(run: Run) -> Iterator[str]:
    """Checks the workers' own logs: worker_launched may be repeated when an agent never got the start."""
    for worker, log in run.logs.items():
        if sum(line["event"] == "start" for line in log) > 1:
            yield f"worker {worker} was started twice"


def releases(run: Run) -> dict[int, list[View]]:
    """By epoch: its releases in order, each worker: (rank, world). An epoch begins again when no member is left."""
    views: dict[tuple[int, int], View] = collections.defaultdict(dict)
    for worker, line in run.lines("boundary_leave"):
        if line["result"] == "ok":
            views[line["epoch"], line["generation"]][worker] = (line["rank"], line["world"])
    out: dict[int, list[View]] = collections.defaultdict(list)
    for (epoch, _), view in sorted(views.items()):
        # A death between two releases raises the generation and keeps ranks and world: one release.
        last = out[epoch][-1] if out[epoch] else None
        if last and not set(last.values()) & set(view.values()) and {w for _, w in last.values()} == {w for _, w in view.values()}:
            last.update(view)
        else:
            out[epoch].append(view)
    return out


def epochs_released_once(run: Run) -> Iterator[str]:
    """And in order, with dense ranks, the same world for everyone."""
    for worker, log in run.logs.items():
        before = None
        for line in log:
            if line["event"] != "boundary_leave" or line["result"] != "ok":
                continue
            if before is not None and line["epoch"] != before + 1:
                yield f"worker {worker}: epoch {line['epoch']} released after epoch {before}"
            before = line["epoch"]
    for epoch, several in releases(run).items():
        for view in several:
            ranks = [rank for rank, _ in view.values()]
            worlds = {world for _, world in view.values()}
            if len(set(ranks)) != len(ranks) or len(worlds) != 1 or max(ranks) >= min(worlds):
                yield f"epoch {epoch}: worker: (rank, world) is {view}"
        for first, second in zip(several, several[1:]):
            went_on = [w for w in first if w in second or run.logs[w][-1]["epoch"] > epoch]
            if went_on:
                yield f"epoch {epoch} was released to {first} and again to {second}, though {went_on} went on"


def steps_done_once(run: Run) -> Iterator[str]:
    for worker, log in run.logs.items():
        before = None
        for line in log:
            if line["event"] != "step":
                continue
            at = (line["epoch"], line["step"])
            if before and at not in ((before[0], before[1] + 1), (before[0] + 1, 0)):
                yield f"worker {worker}: step {at} follows {before}"
            before = at


def weights_agree(run: Run) -> Iterator[str]:
    hashes = {(line["epoch"], worker): line["hash"] for worker, line in run.lines("epoch")}
    for epoch, several in releases(run).items():
        for view in several:
            found = {w: hashes[epoch, w] for w in view if (epoch, w) in hashes}
            if len(set(found.values())) > 1:
                yield f"epoch {epoch} ended with different weights: {found}"


def checkpoints_are_the_weights(run: Run) -> Iterator[str]:
    """What the servers saved before an epoch is what the workers held at the end of the one before."""
    hashes = {(line["epoch"], worker): line["hash"] for worker, line in run.lines("epoch")}
    begun = releases(run)
    ended = {epoch: hashes[epoch, w] for epoch, several in begun.items() for w in several[-1] if (epoch, w) in hashes}
    for epoch, folder in run.checkpoints().items():
        found = weights_hash(folder)
        if len(begun[epoch]) > 1:  # nobody was left in it: it begins again with what its steps had made of the weights
            continue
        if epoch - 1 in ended and found != ended[epoch - 1]:
            yield f"checkpoint of epoch {epoch}: weights {found}, and the workers had {ended[epoch - 1]}"
    if not run.checkpoints() and run.is_last:
        yield "no checkpoint was saved"


def weights_hash(folder: str) -> str:
    """Of a checkpoint, as elastic_worker makes it of its weights: keys 0 to 3 in their order."""
    chunks: dict[tuple[int, int], bytes] = {}
    for path in glob.glob(f"{folder}/*.safetensors"):
        with open(path, "rb") as file:
            header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
            data = file.read()
        for name, array in header.items():
            match = re.fullmatch(r"key(\d+)\.chunk(\d+)", name)
            if match and int(match[1]) < 4:
                begin, end = array["data_offsets"]
                chunks[int(match[1]), int(match[2])] = data[begin:end]
    value = 0xcbf29ce484222325
    for _, chunk in sorted(chunks.items()):
        for byte in chunk:
            value = (value ^ byte) * 0x100000001b3 & 0xffffffffffffffff
    return f"{value:016x}"


def change_log_adds_up(run: Run) -> Iterator[str]:
    """host_worker_log has every change once, agrees with the events, and leads to who was there at the end."""
    changes = []
    for number, line in enumerate(run.log):
        match = LOG_LINE.fullmatch(line)
        if not match or int(match[1]) != number:
            yield f"host_worker_log, line {number}: {line!r}"
            return
        changes.append((match[2], match[3], int(match[4])))
    members = collections.Counter(run.base)
    for change, host, _ in changes:
        members[host] += 1 if change == "ADDED" else -1
        if members[host] < 0:
            yield f"host_worker_log removes more workers of {host} than there were"
    hosts = {e["worker"]: e["host"].rsplit(":", 1)[0] for e in run.events if e["event"] == "worker_launched"}
    ended = {w for w, log in run.logs.items() if log and log[-1]["event"] == "end"}
    unknown = [w for w in ended if w not in hosts]
    there = collections.Counter(hosts[w] for w in ended if w in hosts)
    if run.is_last and not unknown and +members != there:
        yield f"host_worker_log leads to {dict(+members)}, and at the end there were {dict(there)}"


def gap(numbers: Iterable[int], masters: int) -> str | None:
    """The first of the events' numbers that does not follow. Of several masters one whose volume stalled goes on where it was, until it
    learns of the other one, which has read the file before that."""
    following = [0]
    for number in numbers:
        if number in following:
            following.remove(number)
        elif number > max(following) or len(following) == masters:
            return f"number {number} where {following[-1]} would follow"
        following.append(number + 1)
    return None


def events_agree_with_log(run: Run) -> Iterator[str]:
    wrong = gap((e["n"] for e in run.events), 1 + len(run.taken_over))
    if wrong:
        yield f"events.jsonl has {wrong}"
    names = {"worker_added": "ADDED", "worker_removed": "REMOVED"}
    told = [(names[e["event"]], e["host"].rsplit(":", 1)[0], e["time_ns"]) for e in run.events if e["event"] in names]
    for line in run.log:
        _, change, host, written_ns = line.split()
        match = next((t for t in told if t[:2] == (change, host) and abs(t[2] - int(written_ns)) < SAME_CHANGE_NS), None)
        if match:
            told.remove(match)
        elif not any(0 <= kill - int(written_ns) / 1e9 < UNTOLD_S for kill in run.supervisor_kills):
            yield f"events.jsonl does not tell of {line.strip()}"
    for change, host, wall_ns in told:
        # Another master goes by the journal's copy, which lacks what the old one decided while it could not write it.
        if not any(abs(at - wall_ns / 1e9) < LAGS_S for at in run.taken_over):
            yield f"host_worker_log does not have {change} {host} at {wall_ns}"


def nobody_waited_too_long(run: Run) -> Iterator[str]:
    for worker, log in run.logs.items():
        entered = None
        for line in log:
            if line["event"] == "boundary_enter":
                entered = line
            elif line["event"] == "boundary_leave" and entered:
                begin, wait = entered["t_ns"] / 1e9, (line["t_ns"] - entered["t_ns"]) / 1e9
                bound = SETTLED_WAIT_S if begin > run.faults_over_at + SETTLING_S else LONGEST_WAIT_S
                bound += sum(end - since for since, end in run.standstills if since < begin + wait and begin < end + SETTLING_S)
                if wait > bound:
                    yield (f"worker {worker} waited {wait:.1f} s at the boundary of epoch {line['epoch']}, "
                           f"from {begin - run.began_at:.1f} s on")


def all_ended_together(run: Run, epochs: int) -> Iterator[str]:
    """Every worker that ended in order had finished the last epoch; at least one did."""
    ended = [w for w, log in run.logs.items() if log and log[-1]["event"] == "end"]
    if not ended:
        yield "no worker came to the end"
    for worker in ended:
        if run.logs[worker][-1]["epoch"] != epochs - 1:
            yield f"worker {worker} ended in epoch {run.logs[worker][-1]['epoch']}"
    for worker, line in run.lines("error"):
        if line.get("epoch") == epochs - 1:
            yield f"worker {worker} ended with an error in the last epoch: {line}"


def model_is_as_good(run: Run, undisturbed: float) -> Iterator[str]:
    if run.accuracy() < undisturbed - ACCURACY_TOLERANCE:
        yield f"accuracy {run.accuracy():.3f}, and {undisturbed:.3f} undisturbed"


def jobs_follow_each_other(runs: list[Run]) -> Iterator[str]:
    """The next begins with the newest checkpoint that was there; the epochs after it are done again. A master whose volume
    stalls may finish one later."""
    for n, run in enumerate(runs[1:], 1):
        begun = os.stat(f"{run.files}/spec.json").st_mtime
        there = [(epoch, os.stat(folder).st_ctime) for before in runs[:n] for epoch, folder in before.checkpoints().items()]
        least = max((epoch for epoch, at in there if at < begun - LOOKING_S), default=None)
        newest = max((epoch for epoch, at in there if at < begun), default=None)
        just_now = [epoch for epoch, at in there if begun - LOOKING_S <= at < begun]
        if run.first_epoch() not in (least, newest, None, *just_now):
            yield f"job {run.job} began with epoch {run.first_epoch()}, and the newest checkpoint was of epoch {newest}"


def groups_are_whole(run: Run) -> Iterator[str]:
    """Of a job whose workers all restart at a change: each group's ranks are dense, and no worker of it is there twice."""
    groups: dict[int, View] = collections.defaultdict(dict)
    for worker, line in run.lines("start"):
        groups[line["group"]][worker] = (line["rank"], line["world"])
    for group, view in groups.items():
        ranks = [rank for rank, _ in view.values()]
        worlds = {world for _, world in view.values()}
        if len(set(ranks)) != len(ranks) or len(worlds) != 1 or max(ranks) >= min(worlds):
            yield f"group {group}: worker: (rank, world) is {view}"


def groups_go_on(runs: list[Run]) -> Iterator[str]:
    """Nobody trains an epoch whose snapshot is there already."""
    done, since = 0, 0
    lines = sorted(((line["t_ns"], line) for run in runs for _, line in run.lines("start") + run.lines("epoch") if line["rank"] == 0 or line["event"] == "start"),
                   key=lambda pair: int(pair[0]))
    for t_ns, line in lines:
        if line["event"] == "epoch":
            done, since = max(done, line["epoch"] + 1), t_ns
        elif line["epoch"] < done and t_ns > since + SAME_CHANGE_NS:
            yield f"worker {line['worker']} of group {line['group']} began with epoch {line['epoch']}, and {done} were done"


def check_groups(runs: list[Run], epochs: int) -> list[str]:
    """Everything that is wrong, of jobs with --on-change restart."""
    return apply(runs, (workers_started_once, steps_done_once, groups_are_whole, change_log_adds_up, events_agree_with_log)) \
        + [f"groups_go_on: {text}" for text in groups_go_on(runs)] \
        + [f"all_ended_together: {text}" for text in all_ended_together(runs[-1], epochs)]


def apply(runs: list[Run], rules: Sequence[Callable[[Run], Iterator[str]]]) -> list[str]:
    return [f"{rule.__name__}{'' if run.is_last else f' ({run.job})'}: {text}" for rule in rules for run in runs for text in rule(run)]


def check(runs: list[Run], epochs: int, undisturbed: float) -> list[str]:
    """Everything that is wrong; of jobs that followed each other."""
    out = [f"jobs_follow_each_other: {text}" for text in jobs_follow_each_other(runs)]
    out += apply(runs, (workers_started_once, epochs_released_once, steps_done_once, weights_agree, checkpoints_are_the_weights,
                        change_log_adds_up, events_agree_with_log, nobody_waited_too_long))
    out += [f"all_ended_together: {text}" for text in all_ended_together(runs[-1], epochs)]
    out += [f"model_is_as_good: {text}" for text in model_is_as_good(runs[-1], undisturbed)]
    return out
