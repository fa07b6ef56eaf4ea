#!/usr/bin/env python3
"""The lifecycle table: every state of a job x every command that takes it up, ends it or begins another x a signal in
its midst x who calls it. A line a cell: exit code, and who runs afterwards.

usage: lifecycle.py FOLDER [--all] [--only WORD,...]
FOLDER is empty, and open for all users where this is root: then the job's user is another one than root. Without --all a
diagonal, in which each word comes twice. --only takes the cells that have all of these words.
"""
import argparse
import glob
import json
import os
import shutil
import signal
import subprocess
import sys
import time

LIMIT = 30  # seconds of any wait
WORKER = "./worker --samples 200 --epochs 4000 --steps-per-epoch 5 --step-ms 20".split()
LAUNCH = ["dtlaunch", "-n", "2", "--stop-timeout", "2s", "--prepare-data", "./hold preparing", "--elastic-training-enabled",
          "--checkpoint-every", "1"]
STATES = ["starting", "checking", "running", "stopping", "ended-badly", "supervisor-dead", "all-dead", "rebooted",
          "no-copy", "upgraded"]
COMMANDS = {"resume": ["dtctl", "resume"], "stop": ["dtctl", "stop"], "clean": ["dtctl", "clean", "--all-jobs"],
            "--resume": ["dtlaunch", "--resume", "."], "--take-over": ["dtlaunch", "--resume", ".", "--take-over"],
            "--auto-resume": [*LAUNCH, "--auto-resume", *WORKER], "new": [*LAUNCH, *WORKER]}
STAYS = ("--resume", "--take-over", "--auto-resume", "new")  # until the job has ended
SIGNALS = {"none": None, "INT": signal.SIGINT, "TERM": signal.SIGTERM, "HUP": signal.SIGHUP}
LIVES = ("starting", "checking", "running", "stopping")  # with a supervisor
LEFT = ("supervisor-dead", "no-copy", "upgraded", "all-dead", "rebooted")  # without
USER, STRANGER = 61001, 61002


class Wrong(Exception):
    pass


def until(what, holds):
    """Waits until it holds."""
    end = time.monotonic() + LIMIT
    while not holds():
        if time.monotonic() > end:
            raise Wrong(f"waited in vain: {what}")
        time.sleep(0.05)  # between two looks, not a wait


class Cell:
    def __init__(self, folder, state, command, number, caller):
        self.words = (state, command, number, caller)
        self.state, self.command, self.number, self.caller = self.words
        self.folder = folder
        self.job = f"{folder}/job"
        self.is_root = os.getuid() == 0
        self.output = ""
        self.asker = "owner"
        for uid in {self.uid("owner"), self.uid(caller)}:
            for place in ("run", "state", "cache"):
                os.makedirs(f"{folder}/{uid}/{place}", 0o700)
            self.give(f"{folder}/{uid}", uid)
        os.mkdir(self.job)
        shutil.copytree(os.environ["PROGRAMS"], f"{folder}/p", copy_function=os.link, symlinks=True)
        self.write("hold", '#!/bin/sh\nwhile [ -e "hold-$1" ]; do sleep 0.05; done\n')  # between two looks, not a wait
        self.write("worker", '#!/bin/sh\n./hold starting\n[ ! -e stubborn ] || trap "" TERM INT\nexec elastic_worker "$@"\n')
        self.give(self.job, self.uid("owner"))

    def uid(self, who):
        return {"owner": USER, "another": STRANGER, "root": 0}[who] if self.is_root else os.getuid()

    def give(self, place, uid):
        if self.is_root:
            os.chown(place, uid, uid)
            for name in glob.glob(f"{glob.escape(place)}/*"):
                os.chown(name, uid, uid, follow_symlinks=False)

    def write(self, name, text):
        path = f"{self.job}/{name}"
        with open(path, "w", encoding="ascii") as file:
            file.write(text)
        os.chmod(path, 0o755)
        self.give(path, self.uid("owner"))

    def start(self, words, who, boot=False):
        uid = self.uid(who)
        home = f"{self.folder}/{uid}"
        environment = {**os.environ, "PATH": f"{self.folder}/p/bin:/usr/bin:/bin", "HOME": home,
                       "XDG_RUNTIME_DIR": f"{home}/run", "XDG_STATE_HOME": f"{home}/state", "XDG_CACHE_HOME": f"{home}/cache"}
        if self.is_root and uid:
            words = ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", *words]
        if boot and self.is_root:
            other = f"{self.folder}/boot"
            with open(other, "w", encoding="ascii") as file:
                file.write("5c6dd0c5-0000-4000-8000-000000000001\n")
            words = ["unshare", "--mount", "sh", "-c",
                     f'mount --bind {other} /proc/sys/kernel/random/boot_id && exec "$@"', "sh", *words]
        # HUP as in a terminal, whatever this program was started with.
        return subprocess.Popen(words, cwd=self.job, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, text=True, start_new_session=True,
                                preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL))

    def do(self, *words, who="owner", boot=False):
        with self.start(list(words), who, boot) as process:
            text = process.communicate(timeout=LIMIT)[0]
        return process.returncode, text

    def status(self, who=None):
        code, text = self.do("dtctl", "status", "--json", who=who or self.asker)
        return json.loads(text) if code == 0 else {}

    def pointer(self):
        try:
            with open(f"{self.job}/.dtlaunch/current.json", encoding="utf-8") as file:
                return json.load(file)
        except FileNotFoundError:
            return {}

    def processes(self, name):
        """Those of this cell that run the program."""
        found = []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/environ", "rb") as file:
                    is_ours = f"{self.folder}/".encode() in file.read()
                with open(f"/proc/{pid}/comm", encoding="utf-8") as file:
                    if is_ours and file.read().startswith(name[:15]):
                        found.append(int(pid))
            except OSError:
                continue
        return found

    def kill(self, *names):
        for name in names:
            for pid in self.processes(name):
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
        until(f"{names} are gone", lambda: not any(self.processes(name) for name in names))

    def trains(self):
        return len(self.processes("elastic_worker")) >= 2 and self.status().get("state") == "running"

    # ------------------------------------------------------------ the states

    def bring_about(self):
        hold = {"starting": "hold-starting", "checking": "hold-preparing"}.get(self.state)
        if hold:
            self.write(hold, "")
        if self.state == "stopping":
            self.write("stubborn", "")
        words = [*LAUNCH, "--quiet"]
        if self.state == "stopping" and self.command != "stop":
            words[words.index("--stop-timeout") + 1] = "25s"  # it is still being stopped when the command comes
        if self.state in LIVES:
            code, text = self.do(*words, "--detach", *WORKER)
            if code:
                raise Wrong(f"the job does not begin: {code} {text}")
        else:
            first = self.start([*words, *(["--max-restarts", "0"] if self.state == "ended-badly" else []), *WORKER], "owner")
        if hold:
            return
        # Its files are there before the journal has it.
        until("a checkpoint", lambda: self.status("owner").get("checkpoint", {}).get("newest") is not None)
        if self.state == "stopping":
            self.start(["dtctl", "stop"], "owner")
            until("it is being stopped", lambda: self.status("owner").get("state") == "stopping")
        elif self.state == "ended-badly":
            self.kill("elastic_worker")
            until("its end", lambda: self.pointer().get("ended"))
            until("nothing is left", lambda: not self.left())
        if self.state in LEFT:
            for pid in self.processes("dtsupervisor"):
                os.kill(pid, signal.SIGSTOP)  # it must not end the job because dtlaunch died
            self.kill("dtlaunch", "dtsupervisor")
        if self.state not in LIVES:
            first.communicate(timeout=LIMIT)
        if self.state in ("all-dead", "rebooted"):
            self.kill("dtagent", "dtserver", "elastic_worker")
        owner = f"{self.folder}/{self.uid('owner')}"
        if self.state == "rebooted":
            shutil.rmtree(f"{owner}/run/dtlaunch")
        if self.state == "no-copy":
            os.unlink(glob.glob(f"{self.job}/.dtlaunch/2*/journal")[0])
        if self.state == "upgraded":
            with open(glob.glob(f"{owner}/state/dtlaunch/2*/programs/protocol")[0], "w", encoding="ascii") as file:
                file.write("1\n")
            os.unlink(f"{self.folder}/p/bin/dtsupervisor")
            with open(f"{self.folder}/p/bin/dtsupervisor", "w", encoding="ascii") as file:  # it begins new jobs alone
                file.write(f'#!/bin/sh\ncase "$*" in *--resume*) exit 1 ;; esac\nexec {os.environ["PROGRAMS"]}/bin/dtsupervisor "$@"\n')
            os.chmod(f"{self.folder}/p/bin/dtsupervisor", 0o755)

    def left(self):
        return [name for name in ("dtlaunch", "dtsupervisor", "dtagent", "dtserver", "elastic_worker", "worker")
                for pid in self.processes(name)]

    # ------------------------------------------------------------ what must be

    def expected(self):
        """(exit codes, who runs afterwards: "job", "none", "same")."""
        if self.caller == "another" or (self.caller == "root" and self.state not in LIVES):
            return {"clean": (0, 1, 2)}.get(self.command, (1, 2, 3, 68)), "same"
        if self.state in LIVES:
            if self.caller == "root" and self.command not in ("resume", "stop"):
                return ((0, 1, 2), "same") if self.command == "clean" else ((1, 2, 68), "same")
            return {"resume": ((0,), "same"), "stop": ((0,), "none"), "clean": ((0,), "same")}.get(self.command, ((68,), "same"))
        if self.state == "ended-badly" and self.command in ("resume", "stop"):
            return (3,), "none"
        if self.command in ("stop", "clean"):
            return (0,), "none"
        return (0,), "job"

    def run(self):
        self.bring_about()
        codes, after = self.expected()
        self.asker = self.caller if after == "job" else "owner"
        before = self.pointer()
        process = self.start(COMMANDS[self.command], self.caller, self.state == "rebooted")
        stays = after == "job" and self.command in STAYS
        try:
            if stays:
                if self.number == "none":
                    until("it trains", lambda: self.trains() or process.poll() is not None)
                else:
                    until("it has begun", lambda: self.processes("dtsupervisor") or process.poll() is not None)
                process.send_signal(SIGNALS[self.number] or signal.SIGINT)
                codes, after = (130,), "none"
            self.output = process.communicate(timeout=LIMIT)[0]
        except subprocess.TimeoutExpired as late:
            process.kill()
            raise Wrong(f"it does not end: {process.communicate()[0]}") from late
        if self.state == "stopping":
            self.kill("elastic_worker")
        if process.returncode not in codes:
            raise Wrong(f"exit code {process.returncode}, not {codes}")
        if after == "none" or self.state == "stopping":
            until(f"nothing is left, but there is {self.left()}", lambda: not self.left())
        elif after == "job":
            until("it trains", self.trains)
        elif self.state in ("running", "starting", "checking"):
            if self.pointer() != before or not self.processes("dtsupervisor"):
                raise Wrong("the job that ran is another one")
        return process.returncode

    def tidy(self):
        for name in ("dtlaunch", "dtsupervisor", "dtctl", "dtagent", "dtserver", "elastic_worker"):
            self.kill(name)
        until("nothing is left", lambda: not self.left())


def cells():
    for state in STATES:
        for command in COMMANDS:
            for number in SIGNALS:
                for caller in ("owner", "another", "root") if os.getuid() == 0 else ("owner",):
                    ends_at_once = state in LIVES or command not in STAYS or caller != "owner"
                    if number == "none" or not ends_at_once:
                        yield state, command, number, caller


def diagonal(table):
    """28 cells in which each word comes at least twice."""
    names = list(COMMANDS)
    chosen = [("rebooted", name, "none", "owner") for name in ("resume", "stop", "--resume")]
    chosen.append(("upgraded", "resume", "none", "owner"))
    for turn in range(24):
        fit = [cell for cell in table if cell[:2] == (STATES[turn % len(STATES)], names[turn % len(names)])
               and (turn % 4 == 3 or cell[3] == "owner")]
        chosen += [cell for cell in fit[turn * 5 % len(fit):][:1] if cell not in chosen]
    for word in (*STATES, *COMMANDS, *SIGNALS, *sorted({cell[3] for cell in table})):
        others = [cell for cell in table if word in cell and cell not in chosen]
        chosen += others[:max(0, 2 - sum(word in cell for cell in chosen))]
    return chosen


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--only", default="")
    given = parser.parse_args()
    only = set(filter(None, given.only.split(",")))
    table = list(cells())
    chosen = [cell for cell in table if only <= set(cell)] if only else table if given.all else diagonal(table)
    print(f"{len(chosen)} of {len(table)} cells", flush=True)
    failed = 0
    for number, words in enumerate(chosen):
        folder = f"{given.folder}/{number}"
        os.mkdir(folder, 0o755)
        cell = Cell(folder, *words)
        began = time.monotonic()
        try:
            outcome = f"exit code {cell.run()}"
        except (Wrong, subprocess.TimeoutExpired, OSError, IndexError) as wrong:
            failed += 1
            outcome = f"FAILED: {wrong}\n{cell.output}"
        cell.tidy()
        print(f"{' x '.join(words)}: {outcome}, {time.monotonic() - began:.1f} s", flush=True)
        shutil.rmtree(folder)
    sys.exit(f"{failed} of {len(chosen)} cells failed" if failed else 0)


if __name__ == "__main__":
    main()
