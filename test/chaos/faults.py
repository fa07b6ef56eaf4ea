"""Carries the faults of a schedule out on a running job, and ends them."""
from __future__ import annotations

import contextlib
import errno
import heapq
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import schedule
from hosts import MASTER, Namespaces, Site

if TYPE_CHECKING:
    from keeper import Keeper
    from schedule import Fault
    from volume import Control


@dataclass
class Process:
    pid: int
    parent: int
    role: str
    host: int  # number; 0: the master; -1: a former one


def words_of(pid: int, name: str) -> bytes:
    with open(f"/proc/{pid}/{name}", "rb") as file:
        return file.read()


def role_of(name: str, command: list[str], parent_name: str) -> str:
    if name == "dtagent-guard":
        return "guard"
    if name == "dtagent":
        return "agent" if "--daemon" in command else "bridge" if "--attach" in command else ""
    if name == "dtsupervisor":
        return "supervisor"
    if "--volume-helper" in command:
        return "helper"
    if any(word.endswith("chaos/volume.py") for word in command):
        return "volume"
    if name == "sshd":
        return "connection" if parent_name == "sshd" else "sshd"
    if name in ("dtserver", "elastic_worker", "python3") and parent_name in ("dtagent", "dtagent-guard"):
        return "server" if name == "dtserver" else "worker"
    return ""


def processes(site: Site) -> list[Process]:
    """Every process of the run that something can be done to."""
    found: dict[int, tuple[int, str, list[str]]] = {}
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
        role = role_of(name, command, found[parent][1] if parent in found else "")
        if role:
            out.append(Process(pid, parent, role, site.host_of(pid) or 0))
    return out


class File:
    """host_worker, edited as another client of the volume does it."""

    def __init__(self, path: str, line: Callable[[int], str]) -> None:
        self.path, self.line = path, line
        self.good = ""  # the content while no bad edit lasts

    def text(self, wanted: list[int]) -> str:
        return "".join(self.line(n) + "\n" for n in wanted)

    def edit(self, way: str, wanted: list[int]) -> None:
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
                time.sleep(0.05)  # how long others can see the half, not a wait
                file.write(self.good[half:])
        else:
            self._write("w", self.good)

    def spoil(self, way: str, wanted: list[int]) -> None:
        good = self.text(wanted)
        self.mend()
        if way == "half a line":
            self._write("w", good[:-len(self.line(wanted[-1])) // 2 - 1])
        elif way == "no final newline":
            self._write("w", good.rstrip("\n"))
        elif way == "garbage":
            with open(self.path, "wb") as garbage:
                garbage.write(bytes(range(256)) * 20)
        elif way == "empty":
            self._write("w", "")
        elif way == "a bad line among good ones":
            self._write("w", good + "not a host !!\n" + good)
        else:
            with contextlib.suppress(FileNotFoundError):  # an earlier one may have removed it
                os.remove(self.path)
            if way == "a folder":
                os.mkdir(self.path)

    def restore(self) -> None:
        self.mend()
        self._write("w", self.good)

    def mend(self) -> None:
        if os.path.isdir(self.path):
            os.rmdir(self.path)

    def _write(self, mode: str, text: str, path: str | None = None) -> None:
        with open(path or self.path, mode) as file:
            file.write(text)


class Faults:
    """Carries out due faults; `told` lists every fault begun: (begin, end, fault), monotonic seconds."""

    # How long after its end a host that could not be reached may still have what its master does not know of, ...
    REACHED_S = 10.0
    # ... a command may still end because of a disk that failed, and a master may still act that another one followed.
    EXCUSED_S, ENDS_S = 25.0, 30.0
    SEEN_S = 2.0  # a file that is good again may so long be read as it was

    def __init__(self, site: Site, file: File, job_folder: str, keeper: Keeper, tell: Callable[[str], None]) -> None:
        self.site, self.file, self.job_folder, self.keeper, self.tell = site, file, job_folder, keeper, tell
        self.told: list[tuple[float, float, Fault]] = []
        self.counts: dict[str, int] = {}
        self.notices: list[subprocess.Popen[bytes]] = []  # the commands that gave them
        self.effects: dict[str, int] = {}    # kind: how often its effect was seen, where that can be seen at once
        self.hidden: dict[str, int] = {}     # kind: how often a stall held, most of the time, what it would have failed
        self.stopped: dict[int, float] = {}  # pid: until when
        self.ends: list[tuple[float, int, Callable[[], object]]] = []
        self.cuts: set[int] = set()  # a machine that is started again, and a new master, are not cut off
        self.children: list[subprocess.Popen[bytes]] = []
        self.last_host = schedule.SERVER_HOST
        self.separated: dict[int, float] = {}  # host: until when what runs there need not be known to its master
        self.in_force: dict[tuple[str, str], int] = {}  # what a volume does: how many faults want it
        self.spoilt_until = 0.0  # host_worker
        self.disk_fails_until = 0.0

    def begin(self, fault: Fault) -> None:
        now = time.monotonic()
        site = self.site
        outcome: str | None
        if fault.kind in schedule.NEEDS_CUT and not site.can_cut or fault.kind in schedule.NEEDS_POWER and not site.can_switch_off:
            outcome = "SKIPPED: not on loopback"
        elif fault.kind in schedule.NEEDS_VOLUME and not isinstance(site, Namespaces):
            outcome = "SKIPPED: no volume of its own"
        elif fault.kind == "step clock" and not site.master.clock.library:
            outcome = "SKIPPED: no clock_shift.so"
        elif self.keeper.is_beginning():
            # The workers of a launch must reach their first boundary, or the job ends.
            outcome = "nobody there: the job begins anew"
        else:
            outcome = self.carry_out(fault)
        if outcome is None or not outcome.startswith(("nobody", "SKIPPED")):
            self.counts[fault.kind] = self.counts.get(fault.kind, 0) + 1
            self.told.append((now, now + fault.lasts, fault))
            if fault.host > 0 and fault.kind in ("stop agent", "kill connection", "stop connection", "stop sshd", "cut host", "power",
                                                 "freeze host", "kill agent", "kill guard", "stop guard"):
                self.separated[fault.host] = max(self.separated.get(fault.host, 0), now + fault.lasts + self.REACHED_S)
        self.tell(f"{fault}{'' if outcome is None else '  -> ' + outcome}")

    def carry_out(self, fault: Fault) -> str | None:
        """What became of it, where there is something to tell."""
        verb, _, what = fault.kind.partition(" ")
        if fault.kind in ("edit", "bad edit"):
            self.edit(fault)
            return None
        if fault.kind in ("dtctl", "notice"):
            return self.dtctl(fault) if fault.kind == "dtctl" else self.notice(fault)
        if fault.kind == "kill dtlaunch":
            return self.kill_dtlaunch(fault)
        if fault.kind == "step clock":
            return self.step_clock(fault)
        if isinstance(self.site, Namespaces):
            if verb == "cut":
                return self.cut(fault, self.site)
            if fault.kind == "power":
                return self.power(fault, self.site)
            if fault.kind in ("stall volume", "long stall", "slow volume", "full volume", "failing volume", "full journal", "failing journal"):
                return self.disk(fault, self.site)
            if fault.kind == "reboot master":
                return self.reboot(fault, self.site)
            if fault.kind == "second master":
                return self.second_master(fault, self.site)
        return self.signal(fault, verb, what)

    def due(self, now: float) -> float | None:
        """Ends what is over; the time of the next end, or None."""
        while self.ends and self.ends[0][0] <= now:
            heapq.heappop(self.ends)[2]()
        self.children = [c for c in self.children if c.poll() is None]
        return self.ends[0][0] if self.ends else None

    def end_all(self, wanted: list[int]) -> None:
        """The faults are over. Who was stopped for good stays so: the job is to deal with it."""
        self.stopped.clear()
        while self.ends:
            heapq.heappop(self.ends)[2]()
        for child in self.children:
            child.kill()
            child.wait()
        self.file.edit("rename", wanted)

    def after(self, seconds: float, call: Callable[[], object]) -> None:
        heapq.heappush(self.ends, (time.monotonic() + seconds, len(self.ends) + time.monotonic_ns(), call))

    def is_excused(self) -> bool:
        """Whether a command may end because a disk fails, a volume does not answer, or host_worker names no hosts."""
        return time.monotonic() < max(self.disk_fails_until, self.spoilt_until)

    def saw(self, kind: str) -> None:
        self.effects[kind] = self.effects.get(kind, 0) + 1

    # ---- kinds

    def victims(self, fault: Fault, what: str) -> list[Process]:
        everyone = processes(self.site)
        if fault.kind == "freeze host":
            return [p for p in everyone if p.host == fault.host and p.role != "volume"]
        role = {"worker for good": "worker", "server for good": "server"}.get(what, what)
        if role == "dtlaunch":
            pid = self.keeper.pid()
            return [Process(pid, 0, role, 0)] if pid else []
        here = [p for p in everyone if p.role == role and p.host == fault.host]
        # A host may have several workers: the youngest is chosen. A connection has one process per level.
        return here if role == "connection" else sorted(here, key=lambda p: p.pid)[-1:]

    def signal(self, fault: Fault, verb: str, what: str) -> str:
        chosen = self.victims(fault, what)
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

    def kill_dtlaunch(self, fault: Fault) -> str:
        dtlaunch = self.keeper.pid()
        if not dtlaunch:
            return "nobody there"
        # Stopped first, neither sees the other die.
        pids = [dtlaunch] + ([] if fault.way == schedule.ALONE else
                             [p.pid for p in processes(self.site) if p.role == "supervisor" and p.host == MASTER])
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for pid in pids:
                self.send(pid, number)
        self.keeper.dtlaunch_killed(fault.lasts, schedule.taken_up_by(fault.way))
        return "pid " + " ".join(str(pid) for pid in pids)

    def go_on(self, pids: list[int]) -> None:
        for pid in pids:
            # If it was stopped again meanwhile, for longer, it continues then.
            if self.stopped.get(pid, 0) <= time.monotonic() + 0.01:
                self.stopped.pop(pid, None)
                self.send(pid, signal.SIGCONT)

    @staticmethod
    def send(pid: int, number: int) -> None:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            pass

    def cut(self, fault: Fault, site: Namespaces) -> str | None:
        if not site.is_on(fault.host) or fault.host in self.cuts:
            return "nobody there"
        self.cuts.add(fault.host)
        mend = site.cut(fault.host, fault.way, fault.other or None)

        machine = site.inits[fault.host]

        def end() -> None:
            if site.inits[fault.host] == machine:
                self.cuts.discard(fault.host)
            mend()
        self.after(fault.lasts, end)
        return None

    def power(self, fault: Fault, site: Namespaces) -> str | None:
        if not site.is_on(fault.host):
            return "nobody there"
        site.switch_off(fault.host)
        self.cuts.discard(fault.host)
        self.after(fault.lasts, lambda: site.switch_on(fault.host))
        return None

    def reboot(self, fault: Fault, site: Namespaces) -> str | None:
        if not site.is_on(MASTER):
            return "nobody there"
        before = site.master.boot_id()
        site.switch_off(MASTER)
        self.cuts.discard(MASTER)
        self.keeper.rebooted(fault.lasts + 0.5, fault.way)

        def on() -> None:
            site.switch_on(MASTER)
            now = subprocess.run(site.on_master("cat", "/proc/sys/kernel/random/boot_id"), capture_output=True, text=True).stdout
            if now.strip() not in ("", before) and not os.listdir(f"{site.master.folder}/run"):
                self.saw(fault.kind)
        self.after(fault.lasts, on)
        return None

    def second_master(self, fault: Fault, site: Namespaces) -> str | None:
        """It takes the job up at once; the old one is as the fault says, for as long as that lasts."""
        if not site.is_on(MASTER) or not self.keeper.can_be_taken_over():
            return "nobody there"
        old = site.master
        end: Callable[[], None] = lambda: None
        if fault.way == schedule.STALLS:
            end = self.forced(f"{old.folder} stall", site.volumes(MASTER), stall=True)
            # It cannot know of hosts whose lines were taken out meanwhile; they end by the old one's order, once it sees.
            wanted = self.file.good.split()
            for number in range(1, len(site.names)):
                if site.line(number) not in wanted and number not in (1, 2):
                    self.separated[number] = time.monotonic() + fault.lasts + self.REACHED_S
        elif fault.way == schedule.CUT_OFF:
            end = site.cut(MASTER, "all")
        self.cuts.discard(MASTER)
        if fault.way == schedule.DEAD:
            site.switch_off(MASTER)
        site.add_master()
        self.keeper.second_master(old, fault.lasts + self.ENDS_S)
        self.after(fault.lasts, end)
        return f"{os.path.basename(old.folder)} is followed by {os.path.basename(site.master.folder)}"

    # ---- disks and clocks

    def forced(self, name: str, controls: list[Control], stall: bool = False, changes: int = 0, reads: int = 0,
               rate: int = 0) -> Callable[[], None]:
        """Makes volumes do that; what this gives ends it, unless another fault still wants it."""
        for control in controls:
            key = name, control.path
            self.in_force[key] = self.in_force.get(key, 0) + 1
            control.stalls += stall
            control.fails, control.fails_reads = changes or control.fails, reads or control.fails_reads
            control.rate = rate or control.rate

        def end() -> None:
            for control in controls:
                self.in_force[name, control.path] -= 1
                is_last = not self.in_force[name, control.path]
                control.stalls -= stall
                if is_last and (changes or reads):
                    control.fails = control.fails_reads = 0
                if is_last and rate:
                    control.rate = 0
        return end

    def disk(self, fault: Fault, site: Namespaces) -> str | None:
        is_journal = fault.kind.endswith("journal")
        everywhere = fault.kind == "long stall" or fault.way == schedule.EVERYWHERE
        if not site.is_on(fault.host):
            return "nobody there"
        if fault.kind == "failing journal" and not self.keeper.can_be_taken_over():
            return "nobody there: the job is being taken up"
        controls = [site.journal()] if is_journal else site.volumes(None if everywhere else fault.host)
        # What fails, and how much, is told by the last of several faults of a volume; the first to end does not end the others.
        name = f"{site.master.folder} journal" if is_journal else "rate" if fault.kind == "slow volume" else "fails"
        number = {"full": errno.ENOSPC, "failing": errno.EIO}.get(fault.kind.partition(" ")[0], 0)
        before = [(control.failed, control.held_ms) for control in controls]
        end = self.forced(name if number or fault.amount else "stall", controls, stall="stall" in fault.kind, changes=number,
                          reads=number if fault.kind == "failing volume" and fault.way == schedule.EVERYWHERE else 0,
                          rate=int(fault.amount * 1e6))
        self.disk_fails_until = max(self.disk_fails_until, time.monotonic() + fault.lasts + self.EXCUSED_S)
        if fault.kind == "failing journal":
            self.keeper.journal_fails(fault.lasts)

        def over() -> None:
            end()
            failed = sum(control.failed - was for control, (was, _) in zip(controls, before))
            held = sum(control.held_ms - was for control, (_, was) in zip(controls, before))
            if failed if number else held > 0:
                self.saw(fault.kind)
            elif held > fault.lasts * 500:
                self.hidden[fault.kind] = self.hidden.get(fault.kind, 0) + 1
            self.tell(f"         {fault.kind} is over: {failed} requests failed, {held / 1000:.1f} s were they held")
        self.after(fault.lasts, over)
        return None

    def step_clock(self, fault: Fault) -> str | None:
        if not self.site.is_on(fault.host):
            return "nobody there"
        clock = self.site.clock(fault.host)
        clock.shift_s = fault.amount
        if fault.host == MASTER:
            said = subprocess.run(self.site.on_master("date", "+%s"), env=self.site.master.environment(), capture_output=True, text=True)
            if abs(float(said.stdout or 0) - time.time() - fault.amount) < 2:
                self.saw(fault.kind)
        elif any(p.role == "agent" and p.host == fault.host and clock.path.encode() in words_of(p.pid, "maps") for p in processes(self.site)):
            self.saw(fault.kind)
        self.after(fault.lasts, lambda: setattr(clock, "shift_s", 0.0))
        return None

    # ---- what a user does

    def edit(self, fault: Fault) -> None:
        if fault.kind == "edit":
            self.file.edit(fault.way, fault.wanted)
            return
        self.file.spoil(fault.way, fault.wanted)
        self.spoilt_until = time.monotonic() + fault.lasts + self.SEEN_S
        self.after(fault.lasts, self.file.restore)

    def command(self, *words: str) -> subprocess.Popen[bytes]:
        # It waits for a supervisor that is stopped, or a volume that stalls; no part of chaos waits for it.
        with open(f"{self.site.folder}/dtctl.out", "ab") as out:
            self.children.append(subprocess.Popen(self.site.on_master("dtctl", "--job-dir", self.job_folder, *words),
                                                  env=self.site.master.environment(), stdin=subprocess.DEVNULL, stdout=out, stderr=out))
        return self.children[-1]

    def dtctl(self, fault: Fault) -> str | None:
        if not self.site.is_on(MASTER):
            return "nobody there"
        if fault.host == 0:
            fault.host = self.last_host
        if fault.way == "resume":
            self.keeper.is_left_alone = True
            self.command(fault.way)
        else:
            self.command(fault.way, self.site.line(fault.host))
        return None

    def notice(self, fault: Fault) -> str | None:
        """The host goes away, or after all does not."""
        if not self.site.is_on(MASTER):
            return "nobody there"
        host = self.site.line(fault.host)
        if fault.way == "cancelled":
            self.notices.append(self.command("leave", host, "--in", "1m", "--why", "chaos"))
            self.after(fault.lasts, lambda: self.command("leave", host, "--cancel") if self.site.is_on(MASTER) else None)
        else:
            self.notices.append(self.command("leave", host, "--in", f"{fault.lasts:.1f}", "--why", "chaos"))
        return None

