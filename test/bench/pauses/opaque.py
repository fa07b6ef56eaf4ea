"""torch_step.py under dtlaunch --on-change restart, each host with its parent interpreter (dtkv.run)."""
import os
import shutil
import tempfile
import time

from pauses.job import Job
from pauses.restarted import PYTHON, SNAPSHOT_EVERY, STEP_MS, STEPS_PER_EPOCH, Restarted

HERE = os.path.dirname(os.path.abspath(__file__))
WARM = PYTHON + " -m dtkv.run --preload torch"
# A log for each host, as each of torchrun's agents has its own.
WORKER = """#!/bin/sh
exec %s %s %s/steps-$DT_HOST.jsonl %s/snapshot %d %d %d
"""


class Group(Restarted):
    name = "dtlaunch --on-change restart"

    def __init__(self, options):
        self.folder = tempfile.mkdtemp(prefix="dtq.", dir="/tmp")
        worker = self.folder + "/worker"
        with open(worker, "w") as file:
            file.write(WORKER % (WARM, os.path.join(HERE, "torch_step.py"), self.folder, self.folder, STEP_MS,
                                 STEPS_PER_EPOCH, SNAPSHOT_EVERY))
        os.chmod(worker, 0o700)
        self.job = Job(options, base=3, command=worker, servers=0,
                       extra=["--on-change", "restart", "--change-settle", "1ms", "--env", "OMP_NUM_THREADS=1",
                              "--prepare-data", WARM + " --prepare"])
        with open(os.path.join(self.job.ssh, "hosts")) as file:
            self.hosts = file.read().split()
        try:
            self.wait("three in a group", lambda: self.trained(range(3), 0, 3))
            self.join()
            self.wait("four in a group", lambda: self.trained(range(4), 0, 4))
        except BaseException:
            self.stop()
            raise

    def log(self, place):
        return "%s/steps-%s.jsonl" % (self.folder, self.hosts[place])

    def join(self):
        self.job.edit(add=True)

    def leave(self):
        self.job.edit(add=False)

    def grow_old(self):
        # Deaths of groups that lived less than a minute delay the next group, each one longer.
        begun = max(event["t_ns"] for place in range(4) for event in self.events(place) if event["event"] == "start")
        time.sleep(max(0, 62 - (time.monotonic_ns() - begun) / 1e9))  # how long a group must have lived, not a wait

    def stop(self):
        self.job.stop()
        shutil.rmtree(self.folder)
