"""Starts the job, follows it to its end, and takes it over again when a fault has left no process to do so."""
import glob
import json
import os
import re
import subprocess
import time

JOB_RUNNING = 68
AGAIN_S = 1.0             # between two tries to take the job up
# A job whose dtlaunch is gone stops by itself, or its supervisor is gone too, within this time.
TAKEN_UP_S = 90.0
# A job that restarts while hosts are still cut off or down may fail this often in succession.
FAILED_BEGINNINGS = 3
UNSUPERVISED_S = 5.0        # without a fault a supervisor is never missing for this long


class Keeper:
    """In the foreground there is a dtlaunch (`process`); detached, or left alone, the job has only its supervisor."""

    def __init__(self, site, folder, tell):
        self.site, self.folder, self.tell = site, folder, tell
        self.process = None       # the dtlaunch that owns the job
        self.takers = []          # running: dtctl resume
        self.due, self.how = None, ""  # when the job is taken over, and by which command
        self.tried_since = 0.0
        self.is_left_alone = False  # by a dtctl resume at a moment at which the job was to stop
        self.failed = 0
        self.missing_since = None

    def start(self, words, is_detached):
        self.process = self._spawn(words, f"{self.folder}/job")
        if is_detached:
            code = self.process.wait(60)
            assert code == 0, f"dtlaunch --detach ended with {code}"
            self.process = None

    def _spawn(self, words, where="/"):  # not on a volume that may stall
        with open(f"{self.folder}/dtlaunch.out", "ab") as out:
            return subprocess.Popen(self.site.on_master(*words), stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                                    cwd=where)

    # ---- the job, by the volume's own files

    def pointer(self):
        try:
            with open(f"{self.folder}/disk/.dtlaunch/current.json") as file:
                return json.load(file)
        except (OSError, ValueError):
            return {}

    def job(self):
        return self.pointer().get("job", "")

    def epoch(self):
        """The newest that any worker of the present job is in; -1: none has begun."""
        newest = -1
        for path in glob.glob(f"{self.folder}/logs/{self.job() or '-'}.w*.jsonl"):
            with open(path, "rb") as file:
                file.seek(max(0, os.path.getsize(path) - 1000))
                lines = [json.loads(line) for line in file.read().split(b"\n")[1:] if line.endswith(b"}")]
            if lines and any(line["event"] in ("boundary_leave", "step", "epoch") for line in lines):
                newest = max(newest, lines[-1]["epoch"])
        return newest

    def is_beginning(self):
        """Between two jobs, or before the present one's first epoch."""
        pointer = self.pointer()
        return bool(pointer.get("ended")) or self.epoch() < 0

    # ---- effects of faults

    def pid(self):
        return self.process.pid if self.process and self.process.poll() is None else None

    def dtlaunch_killed(self, seconds, how):
        self.process.wait()
        self.process = None
        self.is_left_alone = False
        self.take_up_later(seconds, how)

    def supervisor_killed(self, seconds, how):
        """Its dtlaunch starts it again; without one a command does, later."""
        if not self.process and self.due is None:
            self.take_up_later(seconds, how)

    def take_up_later(self, seconds, how):
        self.due, self.how, self.tried_since = time.monotonic() + seconds, how, time.monotonic() + seconds

    # ---- following it

    def look(self):
        """The job's exit code once it has ended for good."""
        if self.process:
            return self._look_at_dtlaunch()
        if self.takers:
            self._look_at_takers()
        elif self.due is not None:
            if time.monotonic() >= self.due:
                self._take_up()
        else:
            return self._look_at_supervisor()
        return None

    def _take_up(self):
        self.due = None
        folder = f"{self.folder}/job"
        if self.how == "dtlaunch --resume":
            self.process = self._spawn(["dtlaunch", "--resume", folder])
        else:
            count = 2 if self.how.startswith("two") else 1
            self.takers = [self._spawn(["dtctl", "--job-dir", folder, "resume"]) for _ in range(count)]

    def _look_at_dtlaunch(self):
        code = self.process.poll()
        if code is None:
            return None
        if code == JOB_RUNNING:  # still stopping, or taken over by another process
            if self.is_left_alone and self._since() > TAKEN_UP_S / 2:
                self.process = None
                return None
            self._again(f"dtlaunch was killed and its job neither stops nor can be taken up after {TAKEN_UP_S:.0f} s")
            return None
        if code != 0 and self.epoch() < 0 and self.tried_since and self.failed < FAILED_BEGINNINGS:
            self.failed += 1
            self.tell(f"         the job did not begin anew ({code}); again")
            self.process, self.due, self.how = None, time.monotonic() + AGAIN_S, "dtlaunch --resume"
            return None
        return code

    def _since(self):
        return time.monotonic() - self.tried_since

    def _again(self, complaint):
        assert self._since() < TAKEN_UP_S, complaint
        self.process, self.takers, self.due = None, [], time.monotonic() + AGAIN_S

    def _look_at_takers(self):
        codes = [taker.poll() for taker in self.takers]
        if None in codes:
            assert self._since() < TAKEN_UP_S, f"{self.how} does not end"
        elif 0 in codes:
            self.takers = []
        else:
            self._again(f"{self.how} ends with {codes} after {TAKEN_UP_S:.0f} s")

    def _look_at_supervisor(self):
        pointer = self.pointer()
        if pointer.get("ended"):
            return pointer["ended"]["exit_code"]
        if pointer and not os.path.exists(f"/proc/{pointer['pid']}"):
            self.missing_since = self.missing_since or time.monotonic()
            assert time.monotonic() - self.missing_since < UNSUPERVISED_S, "the supervisor is gone, and nothing was done to it"
        else:
            self.missing_since = None
        return None

    def close(self):
        for taker in self.takers:
            if taker.poll() is None:
                taker.kill()


def jobs_of(folder):
    """Names of the jobs that began in it, in their order."""
    return sorted(name for path in glob.glob(f"{folder}/.dtlaunch/*/spec.json")
                  if re.fullmatch(r"\d{8}-\d{6}-[0-9a-f]{8}", name := os.path.basename(os.path.dirname(path))))
