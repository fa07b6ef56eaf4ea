"""The peer: torchrun with four agents of one worker each on this machine, elastic from 1 to 4.

Tuned: it looks after its workers every 0.1 s and gives latecomers 1 s when a group forms.
"""
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time

from pauses import step_log

HERE = os.path.dirname(os.path.abspath(__file__))
STEPS_PER_EPOCH, SNAPSHOT_EVERY, STEP_MS = 50, 25, 20
PATIENCE_S = 100
FOURTH = 3


def missing():
    """Why there can be no such peer here, or nothing. Debian's python3-torch belongs to /usr/bin/python3."""
    if shutil.which("torchrun") is None:
        return "there is no torchrun (python3-torch)"
    return None


class Group:
    def __init__(self):
        self.folder = tempfile.mkdtemp(prefix="dtp.", dir="/tmp")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.agents = {}
        try:
            self.begin(0)  # it holds the rendezvous store
            time.sleep(2)
            for agent in (1, 2, FOURTH):
                self.begin(agent)
            self.wait("four in a group", lambda: self.trained(range(4), 0, 4))
        except BaseException:
            self.stop()
            raise

    def begin(self, agent):
        command = [shutil.which("torchrun"), "--nnodes", "1:4", "--nproc_per_node", "1", "--max_restarts", "1000",
                   "--rdzv_backend", "c10d", "--rdzv_endpoint", "127.0.0.1:%d" % self.port, "--rdzv_id", "pauses",
                   "--rdzv_conf", "last_call_timeout=1", "--monitor_interval", "0.1",
                   # 1.13 under Python 3.11 does not understand its own defaults of these two.
                   "--redirects", "1", "--tee", "1", "--log_dir", self.folder + "/logs",
                   os.path.join(HERE, "torch_step.py"), self.log(agent), self.folder + "/snapshot",
                   str(STEP_MS), str(STEPS_PER_EPOCH), str(SNAPSHOT_EVERY)]
        if agent == 0:
            print(" ".join(command), flush=True)
        out = open("%s/agent-%d.out" % (self.folder, agent), "a")
        self.agents[agent] = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                                              start_new_session=True, env=dict(os.environ, OMP_NUM_THREADS="1"))

    def log(self, agent):
        return "%s/steps-%d.jsonl" % (self.folder, agent)

    def events(self, agent):
        try:
            return step_log.read(self.log(agent))
        except FileNotFoundError:
            return []

    def worker(self, agent):
        return [event["pid"] for event in self.events(agent) if event["event"] == "start"][-1]

    def trained(self, agents, since, world):
        """All of them made steps in a group of so many, begun after `since`."""
        for agent in agents:
            if not any(e["event"] == "step" and e["begin_ns"] > since and e["world"] == world
                       for e in self.events(agent)[-100:]):
                return False
        return True

    def wait(self, what, condition):
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            if time.monotonic() > deadline:
                raise TimeoutError("torchrun: waited %d s in vain for: %s (see %s)" % (PATIENCE_S, what, self.folder))
            time.sleep(0.2)

    def after(self, what, since, world):
        """Of the first three: ([seconds of standstill], [steps redone]) until a new group of so many."""
        def begun_again():
            pairs = [step_log.restarted(step_log.steps(self.events(agent)), since, STEPS_PER_EPOCH, world)
                     for agent in range(3)]
            return pairs if all(pairs) else None

        self.wait(what, begun_again)
        time.sleep(1)
        pauses, redone = zip(*begun_again())
        print("torchrun, %s: %s s" % (what, " ".join("%.1f" % pause for pause in pauses)), flush=True)
        return list(pauses), list(redone)

    def stop(self):
        for agent in self.agents:
            self.kill(agent)

    def kill(self, agent):
        """The agent and its worker, which has a session of its own."""
        process = self.agents[agent]
        try:
            os.killpg(process.pid, signal.SIGKILL)
            for event in self.events(agent):
                if event["event"] == "start" and command_names(event["pid"], self.folder):
                    os.kill(event["pid"], signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.wait()


def command_names(pid, folder):
    try:
        with open("/proc/%d/cmdline" % pid, "rb") as file:
            return folder.encode() in file.read()
    except OSError:
        return False


def measure(rows, changes):
    """{row: [values]}, of the rows asked for that torchrun has."""
    group, found = Group(), {}

    def take(row, what, since, world):
        pauses, redone = group.after(what, since, world)
        found.setdefault(row, []).extend(pauses)
        found.setdefault(row + " redone", []).extend(redone)

    def join():
        since = time.monotonic_ns()
        group.begin(FOURTH)
        take("join", "join", since, 4)

    try:
        for _ in range(changes):
            if "killed" in rows:
                since = time.monotonic_ns()
                os.kill(group.worker(FOURTH), signal.SIGKILL)
                take("killed", "worker killed", since, 4)
            if "leave" in rows:
                since = time.monotonic_ns()
                group.agents[FOURTH].terminate()
                take("leave", "polite leave", since, 3)
                group.agents[FOURTH].wait()
                join()
            if "lost" in rows:
                since = time.monotonic_ns()
                group.kill(FOURTH)
                take("lost", "host lost", since, 3)
                join()
    except TimeoutError as error:
        print(error)
    finally:
        group.stop()
    return found
