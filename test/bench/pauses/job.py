"""A running dtlaunch: four workers and two servers on loopback sshds, everything in one folder."""
import glob
import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time

from pauses import processes, step_log

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))


class Job:
    """Workers 0 to 2 are on base hosts; the fourth host comes and goes with host_worker."""

    def __init__(self, options, extra=(), base=3, command=None, servers=2, prepare=lambda job: []):
        """`prepare`: more words for dtlaunch, once the hosts are known."""
        self.folder = tempfile.mkdtemp(prefix="dtp.", dir="/tmp")  # short: socket paths end at 108 bytes
        self.job = os.path.join(self.folder, "job")
        self.ssh = os.path.join(self.folder, "ssh")
        self.env = dict(os.environ, PATH=options.bin + ":" + os.environ["PATH"])
        for name, sub in (("XDG_RUNTIME_DIR", "run"), ("XDG_STATE_HOME", "state"), ("XDG_CACHE_HOME", "cache")):
            self.env[name] = os.path.join(self.folder, sub)
            os.makedirs(self.env[name], mode=0o700)
        os.makedirs(self.job, mode=0o700)
        # Away from the addresses of tests that may run on this machine.
        subprocess.run([os.path.join(TOP, "scripts/sshd-hosts"), "start", self.ssh, "-n", "4", "--first", "30002"],
                       check=True, stdout=subprocess.DEVNULL)
        with open(os.path.join(self.ssh, "hosts")) as file:
            lines = file.read().splitlines()
        self.hosts, self.third, self.fourth = lines, lines[2], lines[3]
        hosts = os.path.join(self.folder, "hosts")
        with open(hosts, "w") as file:
            file.write("\n".join(lines[:base]) + "\n")
        self.console = open(os.path.join(self.folder, "console.log"), "w")
        program, *arguments = shlex.split(command or options.command)
        # The hosts' PATH does not lead into a build folder.
        self.start(["dtlaunch", "-n", str(base), "-s", str(servers), "-H", hosts, "--ssh-config", self.ssh + "/ssh_config",
                    "--ssh-known-hosts", "strict", "--job-dir", self.job, "--elastic-training-enabled",
                    "--max-restarts", "1000", "--restart-refill", "1", *extra, *prepare(self),
                    os.path.join(options.bin, program), *arguments, "--log", self.job + "/steps-%i.jsonl"])

    def start(self, command):
        print(" ".join(command), flush=True)
        self.process = subprocess.Popen(command, env=self.env, cwd=self.job, stdin=subprocess.DEVNULL,
                                        stdout=self.console, stderr=self.console)

    def wait(self, what, condition, seconds=60, living=True):
        """Until the condition holds; the benchmark ends here if it does not, or if the job ends before."""
        deadline = time.monotonic() + seconds
        while True:
            value = condition()
            if value:
                return value
            if living and self.process.poll() is not None:
                sys.exit("pause_bench: the job ended before: %s (see %s)" % (what, self.console.name))
            if time.monotonic() > deadline:
                sys.exit("pause_bench: waited %d s in vain for: %s (see %s)" % (seconds, what, self.console.name))
            time.sleep(0.02)  # between two looks, not a wait

    def log_paths(self):
        return sorted(glob.glob(self.job + "/steps-*.jsonl"), key=lambda path: int(path.rsplit("-", 1)[1][:-6]))

    def logs(self):
        return [step_log.read(path) for path in self.log_paths()]

    def logs_of(self, ids):
        return [step_log.read("%s/steps-%d.jsonl" % (self.job, id)) for id in ids]

    def newest_steps(self):
        """Steps of the worker that came last, and how many workers there were."""
        paths = self.log_paths()
        return (len(step_log.steps(step_log.read(paths[-1]))) if paths else 0, len(paths))

    def events(self):
        try:
            with open(self.job + "/events.jsonl") as file:
                return [json.loads(line) for line in file if line.endswith("\n")]
        except OSError:
            return []

    def changes(self):
        """Lines of host_worker_log."""
        try:
            with open(self.job + "/host_worker_log") as file:
                return len(file.readlines())
        except FileNotFoundError:
            return 0

    def edit(self, add):
        """Adds or removes the fourth host, by renaming a new file into place."""
        path = self.job + "/host_worker"
        with open(path) as file:
            lines = [line for line in file.read().split() if line != self.fourth]
        with open(path + ".new", "w") as file:
            file.write("\n".join(lines + [self.fourth] * add) + "\n")
        os.rename(path + ".new", path)
        return time.monotonic_ns()

    def control(self, *words):
        """Runs dtctl; the time before."""
        now = time.monotonic_ns()
        subprocess.run(["dtctl", "--job-dir", self.job, *words], env=self.env, cwd=self.job, check=True,
                       stdout=self.console, stderr=self.console)
        return now

    def status(self):
        """dtctl's status, or None while no supervisor answers."""
        out = subprocess.run(["dtctl", "--job-dir", self.job, "status", "--json"], env=self.env, text=True,
                             stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=self.job)
        try:
            return json.loads(out.stdout)
        except ValueError:
            return None

    def supervisor(self):
        with open(self.job + "/.dtlaunch/current.json") as file:
            return json.load(file)["pid"]

    def processes(self):
        return processes.of_folder(TOP, self.folder)

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.process.kill()
        subprocess.run([os.path.join(TOP, "scripts/sshd-hosts"), "stop", self.ssh], check=False)
