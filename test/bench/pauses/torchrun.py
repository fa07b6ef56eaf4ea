"""The peer: torchrun with four agents of one worker each on this machine, elastic from 1 to 4.

Tuned: it looks after its workers every 0.1 s and gives latecomers 1 s when a group forms. Its PyTorch is that of DT_TORCH_PYTHON,
or of /usr/bin/python3.
"""
import os
import signal
import socket
import subprocess
import tempfile

from pauses.restarted import FOURTH, PYTHON, SNAPSHOT_EVERY, STEP_MS, STEPS_PER_EPOCH, Restarted

HERE = os.path.dirname(os.path.abspath(__file__))


def missing():
    """Why there can be no such peer here, or nothing."""
    found = subprocess.run([PYTHON, "-c", "import torch.distributed.run"], stdin=subprocess.DEVNULL,
                           stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return None if found.returncode == 0 else "%s has no torchrun (python3-torch): %s" % (PYTHON, found.stdout.strip())


class Group(Restarted):
    name = "torchrun"

    def __init__(self):
        self.folder = tempfile.mkdtemp(prefix="dtp.", dir="/tmp")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.agents = {}
        try:
            self.begin(0)  # it holds the rendezvous store
            self.wait("the rendezvous store", self.has_store)
            for agent in (1, 2, FOURTH):
                self.begin(agent)
            self.wait("four in a group", lambda: self.trained(range(4), 0, 4))
        except BaseException:
            self.stop()
            raise

    def has_store(self):
        with socket.socket() as link:
            return link.connect_ex(("127.0.0.1", self.port)) == 0

    def begin(self, agent):
        command = [PYTHON, os.path.join(HERE, "torchrun_main.py"), "--nnodes", "1:4", "--nproc_per_node", "1", "--max_restarts", "1000",
                   "--rdzv_backend", "c10d", "--rdzv_endpoint", "127.0.0.1:%d" % self.port, "--rdzv_id", "pauses",
                   "--rdzv_conf", "last_call_timeout=1", "--monitor_interval", "0.1",
                   # 1.13 under Python 3.11 does not understand its own defaults of these two.
                   "--redirects", "1", "--tee", "1", "--log_dir", self.folder + "/logs",
                   os.path.join(HERE, "torch_step.py"), self.log(agent), self.folder + "/snapshot",
                   str(STEP_MS), str(STEPS_PER_EPOCH), str(SNAPSHOT_EVERY)]
        if agent == 0:
            print(" ".join(command), flush=True)
        # 2.6's agents that keep one store wait in vain for its address when their group grows.
        env = dict(os.environ, OMP_NUM_THREADS="1", TORCH_DISABLE_SHARE_RDZV_TCP_STORE="1")
        out = open("%s/agent-%d.out" % (self.folder, agent), "a")
        self.agents[agent] = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                                              start_new_session=True, env=env)

    def log(self, agent):
        return "%s/steps-%d.jsonl" % (self.folder, agent)

    def join(self):
        if self.agents[FOURTH].poll() is None:
            self.agents[FOURTH].wait()
        self.begin(FOURTH)

    def leave(self):
        self.agents[FOURTH].terminate()

    def lose(self):
        self.kill(FOURTH)

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

