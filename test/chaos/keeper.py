"""Starts the job, follows it to its end, and takes it over again when a fault has left no process to do so."""
from __future__ import annotations

import glob
import json
import os
import re
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hosts import Master, Namespaces, Site

JOB_RUNNING = 68
JOURNAL_FAILED = 1        # the exit code of a job that ended because its journal cannot be written
AGAIN_S = 1.0             # between two tries to take the job up
# A job whose dtlaunch is gone stops by itself, or its supervisor is gone too, or its volume answers again within this time.
TAKEN_UP_S = 150.0
# A job that restarts while hosts are still cut off or down may fail this often in succession.
FAILED_BEGINNINGS = 3
UNSUPERVISED_S = 5.0        # without a fault a supervisor is never missing for this long
JOURNAL_FAILS_S = 60.0      # so long after it failed may a job end of it
TAKE_OVER = "dtlaunch --resume --take-over"


@dataclass
class Former:
    """What an earlier master ran when another one took the job over, and when all of it must have ended."""
    master: Master
    processes: list[subprocess.Popen[bytes]]
    ends_by: float
    is_over: bool = False


class Keeper:
    """In the foreground there is a dtlaunch (`process`); detached, or left alone, the job has only its supervisor."""

    def __init__(self, site: Site, folder: str, tell: Callable[[str], None]) -> None:
        self.site, self.folder, self.tell = site, folder, tell
        self.process: subprocess.Popen[bytes] | None = None  # the dtlaunch that owns the job
        self.is_detached = False  # then a dtlaunch ends as soon as the job has a supervisor
        self.takers: list[subprocess.Popen[bytes]] = []      # running: dtctl resume
        self.formers: list[Former] = []
        self.jobs: list[str] = []  # in their order: clocks are stepped, so that their names do not tell it
        self.due: float | None = None  # when the job is taken over, ...
        self.how = ""                  # ... and by which command
        self.tried_since = 0.0
        self.is_left_alone = False  # by a dtctl resume at a moment at which the job was to stop
        self.failed = 0
        self.missing_since: float | None = None
        self.taken_from = ""  # the job that another master ran, until there is another job
        self.taken_over: list[tuple[str, str]] = []  # the jobs before and after
        self.journal_failed_until = 0.0
        self.journal_ended = 0  # how many jobs ended because of it
        self.is_excused: Callable[[], bool] = lambda: False
        self._said_before = 0  # bytes of dtlaunch.out before the present command
        self._state_before = ("", False)

    def start(self, words: list[str], is_detached: bool) -> None:
        self.process = self._spawn(words, f"{self.folder}/job")
        self.is_detached = is_detached
        if is_detached:
            code = self.process.wait(60)
            assert code == 0, f"dtlaunch --detach ended with {code}"
            self.process = None

    def _spawn(self, words: list[str], where: str = "/") -> subprocess.Popen[bytes]:  # not on a volume that may stall
        with open(f"{self.folder}/dtlaunch.out", "ab") as out:
            self._said_before = out.tell()
            self._state_before = self.state()
            return subprocess.Popen(self.site.on_master(*words, where=where), stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                                    env=self.site.master.environment())

    def _said(self) -> str:
        with open(f"{self.folder}/dtlaunch.out", errors="replace") as file:
            file.seek(self._said_before)
            return file.read()

    # ---- the job, by the volume's own files

    def pointer(self) -> dict[str, Any]:
        try:
            with open(f"{self.folder}/disk/.dtlaunch/current.json") as file:
                return dict(json.load(file))
        except (OSError, ValueError):
            return {}

    def job(self) -> str:
        return str(self.pointer().get("job", ""))

    def state(self) -> tuple[str, bool]:
        """The job, and whether it has ended."""
        pointer = self.pointer()
        return str(pointer.get("job", "")), bool(pointer.get("ended"))

    def epoch(self) -> int:
        """The newest that any worker of the present job is in; -1: none has begun."""
        newest = -1
        for path in glob.glob(f"{self.folder}/logs/{self.job() or '-'}.w*.jsonl"):
            with open(path, "rb") as file:
                file.seek(max(0, os.path.getsize(path) - 1000))
                lines = [json.loads(line) for line in file.read().split(b"\n")[1:] if line.endswith(b"}")]
            if lines and any(line["event"] in ("boundary_leave", "step", "epoch") for line in lines):
                newest = max(newest, lines[-1]["epoch"])
        return newest

    def is_beginning(self) -> bool:
        """Between two jobs, or before the present one's first epoch."""
        pointer = self.pointer()
        return bool(pointer.get("ended")) or self.epoch() < 0

    def can_be_taken_over(self) -> bool:
        return not self.taken_from and self.due is None and not self.takers and not self.is_left_alone

    # ---- effects of faults

    def pid(self) -> int | None:
        return self.process.pid if self.process and self.process.poll() is None else None

    def dtlaunch_killed(self, seconds: float, how: str) -> None:
        assert self.process
        self.process.wait()
        self.process = None
        self.is_left_alone = False
        self.take_up_later(seconds, how)

    def supervisor_killed(self, seconds: float, how: str) -> None:
        """Its dtlaunch starts it again; without one a command does, later."""
        if not self.process and self.due is None:
            self.take_up_later(seconds, how)

    def rebooted(self, seconds: float, how: str) -> None:
        """Nothing of the master's lives."""
        for process in [*self.takers, *([self.process] if self.process else [])]:
            process.wait()
        self.process, self.takers, self.is_left_alone = None, [], False
        self.take_up_later(seconds, how)

    def second_master(self, old: Master, ends_after: float) -> None:
        """Another one is the master from here on: it takes the job over from the old one, which may live."""
        self.formers.append(Former(old, [*self.takers, *([self.process] if self.process else [])], time.monotonic() + ends_after))
        self.process, self.takers, self.is_left_alone = None, [], False
        self.taken_from = self.job()
        self.take_up_later(0, TAKE_OVER)

    def journal_fails(self, seconds: float) -> None:
        self.journal_failed_until = time.monotonic() + seconds + JOURNAL_FAILS_S

    def take_up_later(self, seconds: float, how: str) -> None:
        self.due, self.how, self.tried_since = time.monotonic() + seconds, how, time.monotonic() + seconds

    # ---- following it

    def look(self) -> int | None:
        """The job's exit code once it has ended for good."""
        if (job := self.job()) and job not in self.jobs:
            self.jobs.append(job)
        if self.taken_from and job not in ("", self.taken_from):
            self.taken_over.append((self.taken_from, job))
            self.taken_from = ""
        for former in self.formers:
            self._look_at_former(former)
        if self.process:
            return self._look_at_dtlaunch()
        if self.takers:
            self._look_at_takers()
        elif self.due is not None:
            if time.monotonic() >= self.due and self.site.is_on(0):
                self._take_up()
        else:
            return self._look_at_supervisor()
        return None

    def _look_at_former(self, former: Former) -> None:
        if former.is_over or not isinstance(self.site, Namespaces) or self.taken_from:
            # Until there is another job it need not know anything of it.
            former.ends_by = max(former.ends_by, time.monotonic() + 30) if self.taken_from else former.ends_by
            return
        living = [pid for pid in former.master.processes() if comm(pid) in ("dtlaunch", "dtsupervisor", "dtctl")]
        if not living:
            codes = [process.wait() for process in former.processes]
            self.tell(f"         {os.path.basename(former.master.folder)} has ended what it ran: {codes}")
            self.site.switch_off_master(former.master)
            former.is_over = True
        assert time.monotonic() < former.ends_by, \
            f"{os.path.basename(former.master.folder)}, whose job was taken over, still runs " + " ".join(f"{comm(pid)} {pid}" for pid in living)

    def _take_up(self) -> None:
        self.due = None
        folder = f"{self.folder}/job"
        if self.taken_from:
            self.process = self._spawn(["dtlaunch", "--resume", folder, "--take-over"])
        elif self.how.startswith("dtlaunch"):
            self.process = self._spawn(["dtlaunch", "--resume", folder])
        else:
            count = 2 if self.how.startswith("two") else 1
            self.takers = [self._spawn(["dtctl", "--job-dir", folder, "resume"]) for _ in range(count)]

    def _look_at_dtlaunch(self) -> int | None:
        assert self.process
        code = self.process.poll()
        if code is None:
            return None
        if code == JOB_RUNNING:  # still stopping, or taken over by another process
            if self.is_left_alone and self._since() > TAKEN_UP_S / 2:
                self.process = None
                return None
            self._again(f"dtlaunch was killed and its job neither stops nor can be taken up after {TAKEN_UP_S:.0f} s")
            return None
        state = self.state()
        if code == 0 and self.is_detached and not state[1]:
            self.process = None
            return None
        if code and self.tried_since and self.is_excused() and state == self._state_before:  # it has come to nothing
            self._again(f"dtlaunch --resume ends with {code} after {TAKEN_UP_S:.0f} s")
            return None
        if self._ended_by_journal(code):
            return None
        is_excused = self.is_excused()
        if code != 0 and (self.epoch() < 0 or self.taken_from) and self.tried_since and (is_excused or self.failed < FAILED_BEGINNINGS):
            self.failed += not is_excused
            self.tell(f"         the job did not begin anew ({code}); again")
            self.process, self.due, self.how = None, time.monotonic() + AGAIN_S, "dtlaunch --resume"
            return None
        return code

    def _ended_by_journal(self, code: int) -> bool:
        """Nothing may happen that is not journalled: a job whose journal fails ends, and goes on from its checkpoint."""
        if code != JOURNAL_FAILED or time.monotonic() > self.journal_failed_until:
            return False
        self.journal_ended += 1
        self.tell("         the job has ended: its journal could not be written")
        self.process = None
        self.take_up_later(AGAIN_S, "dtlaunch --resume")
        return True

    def _since(self) -> float:
        return time.monotonic() - self.tried_since

    def _again(self, complaint: str) -> None:
        assert self._since() < TAKEN_UP_S, f"{complaint}: {self._said()[-300:]}"
        self.process, self.takers, self.due = None, [], time.monotonic() + AGAIN_S

    def _look_at_takers(self) -> None:
        codes = [taker.poll() for taker in self.takers]
        if None in codes:
            assert self._since() < TAKEN_UP_S, f"{self.how} does not end"
        elif 0 in codes:
            self.takers = []
        elif self.pointer().get("ended"):  # it has ended before the command came
            self.takers = []
            self.take_up_later(AGAIN_S, "dtlaunch --resume")
        else:
            self._again(f"{self.how} ends with {codes} after {TAKEN_UP_S:.0f} s")

    def _look_at_supervisor(self) -> int | None:
        pointer = self.pointer()
        if pointer.get("ended"):
            code = int(pointer["ended"]["exit_code"])
            return None if self._ended_by_journal(code) else code
        if pointer and not os.path.exists(f"/proc/{pointer['pid']}"):
            self.missing_since = self.missing_since or time.monotonic()
            if time.monotonic() - self.missing_since >= UNSUPERVISED_S:
                assert time.monotonic() < self.journal_failed_until, "the supervisor is gone, and nothing was done to it"
                self.journal_ended += 1
                self.tell("         the job has ended, and could not say so on its volume: its journal could not be written")
                self.take_up_later(AGAIN_S, "dtctl resume")
        else:
            self.missing_since = None
        return None

    def close(self) -> None:
        for process in [*self.takers, *(process for former in self.formers for process in former.processes)]:
            if process.poll() is None:
                process.kill()


def comm(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/comm") as file:
            return file.read().strip()
    except OSError:
        return ""
