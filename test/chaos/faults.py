"""Carries the faults of a schedule out on a running job, and ends them."""
import contextlib
import heapq
import os
import shutil
import signal
import subprocess
import time
from dataclasses import dataclass

import schedule


@dataclass
class Process:
    pid: int
    parent: int
    role: str
    host: int  # number; 0: the master


def words_of(pid, name):
    with open(f"/proc/{pid}/{name}", "rb") as file:
        return file.read()


def role_of(pid, name, command, parent_name):
    if name == "dtagent-guard":
        return "guard"
    if name == "dtagent":
        return "agent" if "--daemon" in command else "bridge" if "--attach" in command else ""
    if name == "dtsupervisor":
        return "supervisor"
    if "--volume-helper" in command:
        return "helper"
    if name == "sftp-server":
        return "sftp"
    if name == "sshd":
        return "connection" if parent_name == "sshd" else "sshd"
    if name in ("dtserver", "elastic_worker", "python3") and parent_name in ("dtagent", "dtagent-guard"):
        return "server" if name == "dtserver" else "worker"
    return ""


def processes(site):
    """Every process of the run that something can be done to."""
    found = {}
    for pid in (int(p) for p in os.listdir("/proc") if p.isdigit()):
        try:
            text = words_of(pid, "stat").decode(errors="replace")
            name, rest = text[text.index("(") + 1:text.rindex(")")], text[text.rindex(")") + 2:].split()
            if rest[0] in "ZX":
                continue
            found[pid] = (int(rest[1]), name, words_of(pid, "cmdline").decode(errors="replace").split("\0"))
        except (OSError, ValueError):
            continue
    out = []
    for pid, (parent, name, command) in found.items():
        role = role_of(pid, name, command, found.get(parent, (0, "", ""))[1])
        if role:
            out.append(Process(pid, parent, role, site.host_of(pid) or 0))
    return out


class File:
    """host_worker, edited as another client of the volume does it."""

    def __init__(self, path, line):
        self.path, self.line = path, line
        self.good = ""  # the content while no bad edit lasts

    def text(self, wanted):
        return "".join(self.line(n) + "\n" for n in wanted)

    def edit(self, way, wanted):
        before, self.good = self.good, self.text(wanted)
        self.mend()
        if way == "append" and self.good.startswith(before):
            self._write("a", self.good[len(before):])
        elif way == "rename":
            self._write("w", self.good, self.path + ".new")
            os.rename(self.path + ".new", self.path)
        elif way == "copy":
            self._write("w", self.good, self.path + ".other")
            shutil.copyfile(self.path + ".other", self.path)
            os.remove(self.path + ".other")
        elif way == "in two writes":
            half = len(self.good) // 2
            with open(self.path, "w") as file:
                file.write(self.good[:half])
                file.flush()
                time.sleep(0.05)  # the moment in which others can see the half
                file.write(self.good[half:])
        else:
            self._write("w", self.good)

    def spoil(self, way, wanted):
        good = self.text(wanted)
        self.mend()
        if way == "half a line":
            self._write("w", good[:-len(self.line(wanted[-1])) // 2 - 1])
        elif way == "no final newline":
            self._write("w", good.rstrip("\n"))
        elif way == "garbage":
            with open(self.path, "wb") as file:
                file.write(bytes(range(256)) * 20)
        elif way == "empty":
            self._write("w", "")
        elif way == "a bad line among good ones":
            self._write("w", good + "not a host !!\n" + good)
        else:
            with contextlib.suppress(FileNotFoundError):  # an earlier one may have removed it
                os.remove(self.path)
            if way == "a folder":
                os.mkdir(self.path)

    def restore(self):
        self.mend()
        self._write("w", self.good)

    def mend(self):
        if os.path.isdir(self.path):
            os.rmdir(self.path)

    def _write(self, mode, text, path=None):
        with open(path or self.path, mode) as file:
            file.write(text)


class Faults:
    """Carries out due faults; `told` lists every fault begun: (begin, end, text), monotonic seconds."""

    def __init__(self, site, file, job_folder, keeper, tell):
        self.site, self.file, self.job_folder, self.keeper, self.tell = site, file, job_folder, keeper, tell
        self.told, self.counts = [], {}
        self.stopped = {}     # pid: until when
        self.ends = []        # (time, number, function)
        self.cuts = {}        # host: until when
        self.off = {}         # host: until when
        self.children = []
        self.last_host = schedule.SERVER_HOST

    def begin(self, fault):
        now = time.monotonic()
        verb, _, what = fault.kind.partition(" ")
        if fault.kind in schedule.NEEDS_CUT and not self.site.can_cut or fault.kind in schedule.NEEDS_POWER and not self.site.can_switch_off:
            outcome = "SKIPPED: not on loopback"
        elif self.keeper.is_beginning():
            # The workers of a launch must reach their first boundary, or the job ends.
            outcome = "nobody there: the job begins anew"
        elif fault.kind in ("edit", "bad edit"):
            outcome = self.edit(fault)
        elif fault.kind == "dtctl":
            outcome = self.dtctl(fault)
        elif verb == "cut":
            outcome = self.cut(fault)
        elif fault.kind == "power":
            outcome = self.power(fault)
        elif fault.kind == "kill dtlaunch":
            outcome = self.kill_dtlaunch(fault)
        else:
            outcome = self.signal(fault, verb, what)
        begun = outcome is None or not outcome.startswith(("nobody", "SKIPPED"))
        if begun:
            self.counts[fault.kind] = self.counts.get(fault.kind, 0) + 1
            self.told.append((now, now + fault.lasts, str(fault)))
        self.tell(f"{fault}{'' if outcome is None else '  -> ' + outcome}")

    def due(self, now):
        """Ends what is over; the time of the next end, or None."""
        while self.ends and self.ends[0][0] <= now:
            heapq.heappop(self.ends)[2]()
        self.children = [c for c in self.children if c.poll() is None]
        return self.ends[0][0] if self.ends else None

    def end_all(self, wanted):
        """The faults are over. Who was stopped for good stays so: the job is to deal with it."""
        self.stopped.clear()
        while self.ends:
            heapq.heappop(self.ends)[2]()
        for child in self.children:
            child.kill()
            child.wait()
        self.file.edit("rename", wanted)

    def after(self, seconds, call):
        heapq.heappush(self.ends, (time.monotonic() + seconds, len(self.ends) + time.monotonic_ns(), call))

    # ---- kinds

    def victims(self, fault, verb, what):
        everyone = processes(self.site)
        if fault.kind == "freeze host":
            return [p for p in everyone if p.host == fault.host and p.role != "sftp"]
        role = {"volume": "sftp", "worker for good": "worker", "server for good": "server"}.get(what, what)
        if role == "dtlaunch":
            return [Process(self.keeper.pid(), 0, role, 0)] if self.keeper.pid() else []
        here = [p for p in everyone if p.role == role and p.host == fault.host]
        # A host may have several workers: the youngest is chosen. A connection has one process per level.
        return here if role in ("connection", "sftp") else sorted(here, key=lambda p: p.pid)[-1:]

    def signal(self, fault, verb, what):
        chosen = self.victims(fault, verb, what)
        if not chosen:
            return "nobody there"
        for p in chosen:
            self.send(p.pid, signal.SIGKILL if verb == "kill" else signal.SIGSTOP)
        if fault.kind == "kill supervisor":
            self.keeper.supervisor_killed(fault.lasts, fault.way)
        if verb != "kill" and fault.lasts:
            until = time.monotonic() + fault.lasts
            for p in chosen:
                self.stopped[p.pid] = max(self.stopped.get(p.pid, 0), until)
            self.after(fault.lasts, lambda: self.go_on([p.pid for p in chosen]))
        return "pid " + " ".join(str(p.pid) for p in chosen)

    def kill_dtlaunch(self, fault):
        dtlaunch = self.keeper.pid()
        if not dtlaunch:
            return "nobody there"
        # Stopped first, neither sees the other die.
        pids = [dtlaunch] + ([] if fault.way == schedule.ALONE else [p.pid for p in processes(self.site) if p.role == "supervisor"])
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for pid in pids:
                self.send(pid, number)
        self.keeper.dtlaunch_killed(fault.lasts, schedule.taken_up_by(fault.way))
        return "pid " + " ".join(str(pid) for pid in pids)

    def go_on(self, pids):
        for pid in pids:
            # If it was stopped again meanwhile, for longer, it continues then.
            if self.stopped.get(pid, 0) <= time.monotonic() + 0.01:
                self.stopped.pop(pid, None)
                self.send(pid, signal.SIGCONT)

    @staticmethod
    def send(pid, number):
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            pass

    def cut(self, fault):
        if not self.site.is_on(fault.host) or fault.host in self.cuts:
            return "nobody there"
        self.cuts[fault.host] = True
        self.site.cut(fault.host, fault.way, fault.other or None)
        self.after(fault.lasts, lambda: self.mend(fault.host))
        return None

    def mend(self, host):
        self.cuts.pop(host, None)
        self.site.mend(host)

    def power(self, fault):
        if not self.site.is_on(fault.host):
            return "nobody there"
        self.cuts.pop(fault.host, None)
        self.site.switch_off(fault.host)
        self.after(fault.lasts, lambda: self.site.switch_on(fault.host))
        return None

    def edit(self, fault):
        if fault.kind == "edit":
            self.file.edit(fault.way, fault.wanted)
            return None
        self.file.spoil(fault.way, fault.wanted)
        self.after(fault.lasts, self.file.restore)
        return None

    def dtctl(self, fault):
        if fault.host == 0:
            fault.host = self.last_host
        words = ["dtctl", "--job-dir", self.job_folder, fault.way]
        if fault.way == "resume":
            self.keeper.is_left_alone = True
        else:
            words.append(self.site.line(fault.host))
        # It waits for a supervisor that is stopped, or a volume that stalls; no part of chaos waits for it.
        out = open(f"{self.site.folder}/dtctl.out", "ab")
        self.children.append(subprocess.Popen(self.site.on_master(*words), stdin=subprocess.DEVNULL, stdout=out, stderr=out))
        out.close()
        return None

