"""Reads --log files of elastic_worker or dttrain, and what stood still according to them.

All times are nanoseconds of the monotonic clock, comparable between processes of one machine.
"""
import collections
import json
import statistics

# One parameter update; run: how often training had restarted before it, in a new process or, after
# servers were lost, in the same one.
Step = collections.namedtuple("Step", "epoch step begin end world run")


def read(path):
    """The events of one worker; a killed worker's last line may be torn."""
    events = []
    with open(path) as file:
        for line in file:
            try:
                events.append(json.loads(line))
            except ValueError:
                break
    return events


def steps(events):
    found, run = [], -1
    for event in events:
        if event["event"] == "start" or event.get("result") == "rollback":
            run += 1
        elif event["event"] == "step":
            found.append(Step(event["epoch"], event["step"], event["begin_ns"], event["t_ns"], event["world"], run))
    return found


def edges(events):
    """Yields (kind, nanoseconds, begin, world) of every epoch edge the worker passed: from the last
    step's end before a boundary to the first one's begin after it. kind: join, leave, swap or none;
    world: how many workers there were before."""
    last_step, before, crossed = None, None, None
    for event in events:
        if event["event"] == "boundary_leave" and event.get("result") == "ok":
            if before is not None and last_step is not None:
                crossed = kind_of(before, event)
            before = event
        elif event["event"] == "step":
            if crossed is not None:
                yield crossed, event["begin_ns"] - last_step["t_ns"], last_step["t_ns"], last_step["world"]
                crossed = None
            last_step = event


def kind_of(before, now):
    if now["world"] > before["world"]:
        return "join"
    if now["world"] < before["world"]:
        return "leave"
    return "none" if now["generation"] == before["generation"] else "swap"


def pauses(logs, windows=None):
    """{kind: [seconds]} over all workers, minus the median of the worker's ordinary edges, those of
    the same world where there are some; the ordinary ones as "none", unreduced. Changes count only
    where they begin in one of the windows (from, until), if some are given."""
    found = {}
    for events in logs:
        own = list(edges(events))
        ordinary = {}
        for kind, took, _, world in own:
            if kind == "none":
                ordinary.setdefault(world, []).append(took)
        everything = sum(ordinary.values(), [])
        if not everything:
            continue
        for kind, took, begin, world in own:
            if kind == "none":
                found.setdefault(kind, []).append(took / 1e9)
            elif windows is None or any(a <= begin <= b for a, b in windows):
                usual = statistics.median(ordinary.get(world, everything))
                found.setdefault(kind, []).append((took - usual) / 1e9)
    return found


def standstill(made, since, until):
    """Seconds that a worker stood still because of what happened at `since`, where it stayed the
    same process and the step it was in came to its end late: the longest time from a step's end to
    the begin of the next but one, over those that lie in part between since and until, minus what
    that usually takes. Two results: inside an epoch, and over an epoch's edge (None: there was none).
    """
    spans = {False: [], True: []}
    for first, last in zip(made, made[2:]):
        spans[first.epoch != last.epoch].append((last.begin - first.end, first.end, last.begin))
    result = []
    for all_of_kind in spans.values():
        # At least one overlaps `since`; only that one covers a moment between two steps.
        near = [took for took, begin, end in all_of_kind if end > since and begin <= until]
        usual = statistics.median(took for took, _, _ in all_of_kind) if all_of_kind else 0
        result.append((max(near) - usual) / 1e9 if near else None)
    return result


def restarted(made, since, steps_per_epoch, world=None):
    """(seconds, steps redone) where training began again from an earlier state after `since`: from
    the last step's end before to the first one's begin after, minus the usual time between steps.
    Nothing while that has not happened. world: only steps of so many workers are its new ones."""
    usual = statistics.median(b.begin - a.end for a, b in zip(made, made[1:])) if len(made) > 1 else 0
    for before, after in zip(made, made[1:]):
        if after.end <= since or after.run == before.run:
            continue
        new = next((s for s in made[made.index(after):] if world in (None, s.world)), None)
        if new is None:
            return None
        done = (before.epoch - new.epoch) * steps_per_epoch + before.step + 1 - new.step
        return (new.begin - before.end - usual) / 1e9, max(done, 0)
    return None


def warm_steps(logs, warmups, world):
    """Step times of the first two workers in seconds: (while a newcomer warmed up, otherwise)."""
    warm, usual = [], []
    for events in logs:
        for step in steps(events):
            if step.world != world or events[0]["worker"] > 1:
                continue
            inside = any(a <= step.begin and step.end <= b for a, b in warmups)
            (warm if inside else usual).append((step.end - step.begin) / 1e9)
    return warm, usual
