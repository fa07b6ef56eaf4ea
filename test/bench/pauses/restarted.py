"""What pause_bench does to programs that are started again at each change: torch_step.py under torchrun, and under
dtlaunch --on-change restart."""
import os
import signal
import time

from pauses import step_log

STEPS_PER_EPOCH, SNAPSHOT_EVERY, STEP_MS = 50, 25, 20
PATIENCE_S = 100
PYTHON = os.environ.get("DT_TORCH_PYTHON", "/usr/bin/python3")
FOURTH = 3


class Restarted:
    """Four places for a worker, the last of which comes and goes. Subclasses have log(place), and lose_worker(), leave(),
    lose() and join(), which do that to the fourth place."""

    name = ""

    def events(self, place):
        try:
            return step_log.read(self.log(place))
        except FileNotFoundError:
            return []

    def worker(self, place):
        return [event["pid"] for event in self.events(place) if event["event"] == "start"][-1]

    def grow_old(self):
        """Waits until the death of a worker counts as the first one."""

    def trained(self, places, since, world):
        """All of them made steps in a group of so many, begun after `since`."""
        for place in places:
            if not any(e["event"] == "step" and e["begin_ns"] > since and e["world"] == world
                       for e in self.events(place)[-100:]):
                return False
        return True

    def wait(self, what, condition):
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            if time.monotonic() > deadline:
                raise TimeoutError("%s: waited %d s in vain for: %s (see %s)" % (self.name, PATIENCE_S, what, self.folder))
            time.sleep(0.2)  # between two looks, not a wait

    def after(self, what, since, world):
        """Of the first three: ([seconds of standstill], [steps redone]) until a new group of so many."""
        def begun_again():
            pairs = [step_log.restarted(step_log.steps(self.events(place)), since, STEPS_PER_EPOCH, world)
                     for place in range(3)]
            return pairs if all(pairs) else None

        self.wait(what, begun_again)
        time.sleep(1)  # how long the new group goes on, not a wait
        pauses, redone = zip(*begun_again())
        print("%s, %s: %s s" % (self.name, what, " ".join("%.2f" % pause for pause in pauses)), flush=True)
        return list(pauses), list(redone)


def measure(group, rows, changes):
    """{row: [values]}, of the rows asked for that such programs have."""
    found = {}

    def take(row, what, since, world):
        pauses, redone = group.after(what, since, world)
        found.setdefault(row, []).extend(pauses)
        found.setdefault(row + " redone", []).extend(redone)

    def join():
        since = time.monotonic_ns()
        group.join()
        take("join", "join", since, 4)

    try:
        for _ in range(changes):
            if "killed" in rows:
                group.grow_old()
                since = time.monotonic_ns()
                os.kill(group.worker(FOURTH), signal.SIGKILL)
                take("killed", "worker killed", since, 4)
            if "leave" in rows:
                since = time.monotonic_ns()
                group.leave()
                take("leave", "polite leave", since, 3)
                join()
            if "lost" in rows and hasattr(group, "lose"):
                since = time.monotonic_ns()
                group.lose()
                take("lost", "host lost", since, 3)
                join()
    except TimeoutError as error:
        print(error)
    finally:
        group.stop()
    return found
