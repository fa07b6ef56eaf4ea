#!/usr/bin/env python3
"""Kills the supervisor at random moments of elastic jobs, and checks what must hold all the same.

usage: test/chaos/supervisor_kills.py [--kills N] [--seed N] [--bin DIR] [--ssh | --local] [--only KIND] [--keep]

Jobs of elastic_worker, some in the foreground (dtlaunch starts the supervisor again, at most 5 times in
60 s), some detached (`dtctl resume` does, from another shell), on this machine or on three sshds of
scripts/sshd-hosts. host_worker is edited and workers are killed all the time. A kill is one of: at
any moment; right after an edit or a worker's death; at a boundary; of a supervisor that is only
just starting; several in the same second.

After each kill and at the end: taken up again (agents of all members attached; the time is
printed); host_worker_log only grew, gapless; replayed it equals the members, and the events; no
worker was started twice; no rank twice in a generation; every process is known; at the end exit
code 0 and nothing left. The seed gives the moments and edits, not how the machine schedules them.
"""
import argparse
import collections
import glob
import json
import os
import random
import shutil
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time

SOURCE = os.path.normpath(os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", ".."))
KILLS_OF_A_FOREGROUND_JOB = 5  # in 60 s, or dtlaunch gives up: console.cpp
TAKEN_UP_DEADLINE = 30.0
EPOCH_S = 0.3


class Wrong(Exception):
    pass


def check(ok, text):
    if not ok:
        raise Wrong(text)


def eventually(seconds, what, condition):
    """Waits until condition() gives no complaint."""
    until = time.monotonic() + seconds
    while True:
        complaint = condition()
        if not complaint:
            return
        if time.monotonic() > until:
            raise Wrong(f"{what}, waited {seconds} s: {complaint}")
        time.sleep(0.02)  # between two looks, not a wait


def read(path):
    try:
        with open(path, errors="replace") as file:
            return file.read()
    except FileNotFoundError:
        return ""


def json_lines(path):
    """Whole lines only: the last one may be being written."""
    return [json.loads(line) for line in read(path).splitlines(True) if line.endswith("\n")]


def is_alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except (OSError, IndexError):
        return False


def started_at(pid):
    """On the clock of time.monotonic(); to 10 ms."""
    with open(f"/proc/{pid}/stat") as file:
        ticks = int(file.read().rsplit(")", 1)[1].split()[19])
    boot = time.clock_gettime(time.CLOCK_BOOTTIME) - time.monotonic()
    return ticks / os.sysconf("SC_CLK_TCK") - boot


class Job:
    def __init__(self, args, number, kills):
        self.args, self.kills = args, kills
        self.random = random.Random(args.seed * 1000 + number)
        self.detached = number % 2 == 1
        self.ssh = args.ssh or (not args.local and number % 4 >= 2)
        self.top = tempfile.mkdtemp(prefix="dtk.", dir="/tmp")  # short: socket paths end at 108 bytes
        self.folder = self.top + "/job"
        for name in ("job", "run", "state"):
            os.mkdir(f"{self.top}/{name}", 0o700)
        self.environment = {k: v for k, v in os.environ.items() if k not in ("SSH_AUTH_SOCK", "DISPLAY")}
        self.environment |= {
            "PATH": args.bin + ":" + os.environ["PATH"], "LC_ALL": "C",
            "XDG_RUNTIME_DIR": self.top + "/run", "XDG_STATE_HOME": self.top + "/state",
            "XDG_CACHE_HOME": self.top + "/cache"}
        self.hosts, self.options = ["localhost"], []
        self.dtlaunch = None
        self.log = ""
        self.taken_up = []
        self.done = collections.Counter()
        self.killed_pids = set()
        self.worker_kills = self.edits = 0

    # ------------------------------------------------------------ the job

    def start(self):
        if self.ssh:
            first = 250 + os.getpid() % 200 * 100 + 2
            out = subprocess.run([SOURCE + "/scripts/sshd-hosts", "start", self.top + "/ssh", "-n", "3",
                                  "--first", str(first)], check=True, capture_output=True, text=True).stdout
            said = dict(line.split("=", 1) for line in out.splitlines())
            self.addresses = said["addresses"].split()
            self.hosts = [f"{a}:{said['port']}" for a in self.addresses]
            with open(self.top + "/hosts", "w") as file:
                file.write(self.hosts[0] + "\n")
            self.options = ["-H", self.top + "/hosts"] + said["options"].split()
        # Long enough for the kills; after the last one epochs are left in which nothing happens.
        self.epochs = self.kills * 8 + 15
        command = [self.args.bin + "/dtlaunch", "-n", "1", "-s", "1", *self.options,
                   "--elastic-training-enabled", "--poll-interval", "200ms", "--max-restarts", "1000",
                   "--max-futile-restarts", "100000", "--orphan-timeout", "60",
                   *(["--detach"] if self.detached else []),
                   self.args.bin + "/elastic_worker", "--log", self.top + "/w%i.jsonl", "--samples", "200",
                   "--epochs", str(self.epochs), "--steps-per-epoch", "15", "--step-ms", str(1000 * EPOCH_S / 15)]
        self.out = open(self.top + "/out", "w")
        self.dtlaunch = subprocess.Popen(command, cwd=self.folder, env=self.environment, stdin=subprocess.DEVNULL,
                                         stdout=self.out, stderr=subprocess.STDOUT, start_new_session=True)
        eventually(60, "the job's beginning", lambda: None if self.epoch() >= 1 else "no epoch")
        self.pointer = json.loads(read(self.folder + "/.dtlaunch/current.json"))
        self.spec = self.pointer["state_dir"] + "/spec.json"
        self.base = self.hosts[0].split(":")[0]

    def epoch(self):
        """The highest that any worker has begun."""
        return max((int(json.loads(lines[-1])["epoch"]) for lines in
                    (read(path).splitlines(True)[-2:] for path in glob.glob(self.top + "/w*.jsonl"))
                    if lines and lines[-1].endswith("\n")), default=-1)

    def ask(self, op="status"):
        """The supervisor's answer, or None."""
        try:
            with socket.socket(socket.AF_UNIX) as link:
                link.settimeout(2)
                link.connect(self.pointer["socket"])
                text = json.dumps({"op": op}).encode()
                body = struct.pack("<HI", 160, len(text)) + text
                link.sendall(struct.pack("<I", len(body)) + body)
                head = link.recv(4, socket.MSG_WAITALL)
                if len(head) < 4:
                    return None
                body = link.recv(struct.unpack("<I", head)[0], socket.MSG_WAITALL)
                status = json.loads(body[6:])
                return status if "workers" in status else None  # not ready yet
        except (OSError, KeyError, ValueError):
            return None

    def supervisors(self):
        """Pids of this job's, without their helpers, starting ones included."""
        found = []
        for name in os.listdir("/proc"):
            if not name.isdigit():
                continue
            try:
                with open(f"/proc/{name}/cmdline", "rb") as file:
                    words = file.read().split(b"\0")
                if not words[0].endswith(b"dtsupervisor") or self.spec.encode() not in words:
                    continue
                # The supervisor leads its session; a child that is not yet its helper does not.
                if os.getsid(int(name)) == int(name) and is_alive(name) and int(name) not in self.killed_pids:
                    found.append(int(name))
            except OSError:
                continue
        return found

    def ended(self):
        return json.loads(read(self.folder + "/.dtlaunch/current.json") or "{}").get("ended")

    def members(self, status):
        count = collections.Counter()
        for worker in status["workers"]:
            if worker["state"] in ("MEMBER", "LEAVING"):
                count[worker["host"].split(":")[0]] += 1
        return count

    # ------------------------------------------------------------ faults and edits

    def edit(self):
        """Another number of workers on a host; the base worker's line stays."""
        self.edits += 1
        lines = [self.hosts[0] + f" slots={self.random.randint(1, 2 if self.ssh else 4)}"]
        lines += [host for host in self.hosts[1:] if self.random.random() < 0.6]
        with open(self.folder + "/host_worker", "w") as file:
            file.write("\n".join(lines) + "\n")

    def kill_worker(self):
        """One that has trained; never the last one, which would repeat the epoch."""
        status = self.ask()
        if not status or self.epoch() > self.epochs - 12:
            return
        members = [w for w in status["workers"] if w["state"] == "MEMBER" and w["pid"]]
        if len(members) > 1:
            self.worker_kills += 1
            self.kill(self.random.choice(members)["pid"])

    @staticmethod
    def kill(pid):
        try:
            os.kill(pid, 9)
        except ProcessLookupError:
            pass

    def kill_supervisor(self, pid):
        self.killed_pids.add(pid)
        self.kill(pid)

    def at_boundary(self):
        """Waits until a worker's log shows that it entered one."""
        paths = glob.glob(self.top + "/w*.jsonl")
        sizes = {path: os.path.getsize(path) for path in paths}
        until = time.monotonic() + 2
        while time.monotonic() < until:
            for path in paths:
                if os.path.getsize(path) > sizes[path]:
                    with open(path) as file:
                        file.seek(sizes[path])
                        if "boundary_enter" in file.read():
                            return
                    sizes[path] = os.path.getsize(path)
            time.sleep(0.0005)  # between two looks, not a wait

    def resume(self):
        """From another shell, as its user would; it may be killed as it starts."""
        return subprocess.Popen([self.args.bin + "/dtctl", "resume"], cwd=self.folder, env=self.environment,
                                stdin=subprocess.DEVNULL, stdout=self.out, stderr=subprocess.STDOUT)

    def is_started_by_us(self, pid):
        starters = [self.dtlaunch.pid] + [resuming.pid for resuming in self.resuming]
        try:
            status = read(f"/proc/{pid}/status")
        except OSError:
            return False
        return any(f"PPid:\t{starter}\n" in status for starter in starters)

    def next_supervisor(self):
        """The pid of the one that is started after a kill; None if the job is over."""
        until = time.monotonic() + 20
        resuming = None
        while time.monotonic() < until:
            found = self.supervisors()
            if found and not self.is_started_by_us(found[0]):
                # Perhaps a child of the dead one, which leads a session and is not yet its own program.
                time.sleep(0.2)  # how long a child may lead a session before its program begins, not a wait
                found = [pid for pid in found if pid in self.supervisors()]
            if found:
                return found[0]
            if self.detached:
                if resuming is None or resuming.poll() is not None:
                    if self.ended():
                        return None
                    resuming = self.resume()
                    self.resuming.append(resuming)
            elif self.dtlaunch.poll() is not None:
                return None
            time.sleep(0.002)  # between two looks, not a wait
        raise Wrong("no supervisor was started again")

    def strike(self, left):
        """One kill or several; how many. Waits until the job is taken up again."""
        kinds = ["any", "edit", "worker", "boundary"] + (["starting", "burst"] if left > 1 else [])
        kind = self.args.only or self.random.choice(kinds)
        running = self.supervisors()
        if len(running) != 1:
            return 0 if self.over() else self.fail_on(running)
        if kind == "edit":
            self.edit()
            time.sleep(self.random.uniform(0, 1.2))  # at a random stage of a join or leave, not a wait
        elif kind == "worker":
            self.kill_worker()
            time.sleep(self.random.uniform(0, 0.5))  # until a random moment, not a wait
        elif kind == "boundary":
            self.at_boundary()
            time.sleep(self.random.uniform(0, 0.01))  # until a random moment, not a wait
        else:
            time.sleep(self.random.uniform(0, 0.4))  # until a random moment, not a wait
        self.resuming = []
        self.kill_supervisor(running[0])
        count = 1
        more = {"starting": 1, "burst": self.random.randint(2, 3)}.get(kind, 0)
        while more > 0 and count < left:
            pid = self.next_supervisor()
            if pid is None:
                break
            time.sleep(self.random.uniform(0, 0.3 if kind == "starting" else 0.1))  # until a random moment, not a wait
            self.kill_supervisor(pid)
            count, more = count + 1, more - 1
        self.done[kind] += count
        pid = self.next_supervisor()
        if pid is None:
            return count
        self.taken_up_by(pid)
        for resuming in self.resuming:
            resuming.wait(30)
        return count

    def fail_on(self, running):
        raise Wrong(f"{len(running)} supervisors run: {running}")

    def taken_up_by(self, pid):
        start = started_at(pid)

        def complaint():
            status = self.ask()
            if not status:
                return None if self.over() else "no status"
            hosts = {entry["host"] for entry in status["workers"] if entry["state"] == "MEMBER"}
            hosts |= {entry["host"] for entry in status["servers"]}
            down = [h["host"] for h in status["hosts"] if h["host"] in hosts and h["link"] != "up"]
            # The supervisor also learns of a dead member from its agent.
            return f"not attached: {down}" if down or not hosts else None

        eventually(TAKEN_UP_DEADLINE, "taken up again", complaint)
        if not self.over():
            self.taken_up.append(time.monotonic() - start)

    def over(self):
        if not self.detached:
            return self.dtlaunch.poll() is not None
        return self.ended() is not None

    # ------------------------------------------------------------ checks

    def check_log(self):
        text = read(self.folder + "/host_worker_log")
        text = text[:text.rfind("\n") + 1]
        check(text.startswith(self.log), f"host_worker_log lost lines: was\n{self.log}is\n{text}")
        self.log = text
        count, last = collections.Counter({self.base: 1}), 0
        for number, line in enumerate(text.splitlines()):
            seq, what, host, when = line.split(" ")
            check(seq == str(number) and what in ("ADDED", "REMOVED"), f"line {number} is: {line}")
            count[host] += 1 if what == "ADDED" else -1
            check(count[host] >= 0, f"{host} is removed more often than added at: {line}")
        return +count

    def check_members(self):
        """The log's and the events' against the members, once all is said."""
        def complaint():
            status = self.ask()
            if not status:
                return None if self.over() else "no status"
            replayed = self.check_log()
            if status["log_lines"] != len(self.log.splitlines()):
                return f"{status['log_lines']} lines are told, {len(self.log.splitlines())} are there"
            members = self.members(status)
            if replayed != members:
                return f"by the log {dict(replayed)}, by status {dict(members)}"
            pids = {w["pid"] for w in status["workers"] if w["pid"] and is_alive(w["pid"])}
            running = {int(pid) for pid, command in self.left_over() if "elastic_worker" in command.split(" ")[0]}
            return f"workers run as {running}, known are {pids}" if running != pids else None

        eventually(20, "log, members and processes", complaint)

    def left_over(self):
        out = subprocess.run([sys.executable, SOURCE + "/scripts/leftovers.py", self.top], capture_output=True,
                             text=True).stdout
        return [line.split(" ", 1) for line in out.splitlines() if "sshd" not in line]

    def check_workers(self):
        """Each started once; a rank once in a generation."""
        holders = {}
        for path in glob.glob(self.top + "/w*.jsonl"):
            lines = json_lines(path)
            starts = sum(line["event"] == "start" for line in lines)
            check(starts == 1, f"{path} tells of {starts} starts")
            for line in lines:
                if line["event"] != "boundary_leave" or line["result"] != "ok":
                    continue
                place = (line["generation"], line["epoch"], line["rank"])
                holder = holders.setdefault(place, line["worker"])
                check(holder == line["worker"], f"rank {place} is held by workers {holder} and {line['worker']}")

    def check_events(self):
        wanted = [line.split(" ") for line in self.log.splitlines()]
        events = json_lines(self.folder + "/events.jsonl")
        names = {"worker_added": "ADDED", "worker_removed": "REMOVED"}
        told = [[str(e["seq"]), names[e["event"]], e["host"].split(":")[0], str(e["time_ns"])]
                for e in events if e["event"] in names]
        numbers = [e["n"] for e in events]
        lost = [line for line in wanted if line not in told]
        check(told == wanted, f"events.jsonl lacks {lost} or has another order, others or too many: {told}")
        check(numbers == list(range(len(numbers))), f"events are numbered {numbers}")

    # ------------------------------------------------------------ from start to end

    def run(self):
        self.start()
        done = 0
        began = time.monotonic()
        while done < self.kills and not self.over():
            if self.epoch() > self.epochs - 8:
                break  # the rest is done by another job
            done += self.strike(self.kills - done)
            self.check_log()
            if self.random.random() < 0.5:
                self.edit()
            if self.random.random() < 0.3:
                self.kill_worker()
            self.check_members()
            self.check_workers()
        self.log_at_end = self.log
        if self.detached:
            eventually(300, "the job's end", lambda: None if self.over() else f"epoch {self.epoch()}")
            code = self.ended()["exit_code"] if isinstance(self.ended(), dict) else self.ended()
        else:
            try:
                code = self.dtlaunch.wait(300)
            except subprocess.TimeoutExpired:
                raise Wrong(f"the job has not ended; epoch {self.epoch()} of {self.epochs}")
        check(code == 0, f"the job ended with {code}")
        eventually(15, "left over", lambda: self.left_over() or None)
        self.check_log()
        self.check_workers()
        self.check_events()
        print(f"{'detached' if self.detached else 'foreground'}, {'ssh' if self.ssh else 'local'}: {done} kills "
              f"({', '.join(f'{n} {kind}' for kind, n in sorted(self.done.items()))}), {self.edits} edits, "
              f"{self.worker_kills} workers killed, {len(self.log.splitlines())} log lines, "
              f"{time.monotonic() - began:.0f} s", flush=True)
        return done

    def tell(self):
        for name in ("out", "job/host_worker", "job/host_worker_log", "job/events.jsonl"):
            print(f"---- {name}\n" + "".join(read(f"{self.top}/{name}").splitlines(True)[-40:]))
        for pid, command in self.left_over():
            print(pid, read(f"/proc/{pid}/wchan"), command)
        print("---- supervisor.log\n" + "".join(
            read(self.pointer["state_dir"] + "/supervisor.log" if hasattr(self, "pointer") else "")
            .splitlines(True)[-40:]))

    def clean_up(self):
        for pid, _ in self.left_over():
            self.kill(int(pid))
        if self.dtlaunch:
            self.dtlaunch.wait(20)
        if os.path.isdir(self.top + "/ssh"):
            subprocess.run([SOURCE + "/scripts/sshd-hosts", "stop", self.top + "/ssh"], check=False)
        if self.args.keep:
            print("kept:", self.top)
        else:
            shutil.rmtree(self.top, ignore_errors=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--bin", default=SOURCE + "/build/dev/bin")
    parser.add_argument("--ssh", action="store_true", help="ssh hosts in all jobs")
    parser.add_argument("--local", action="store_true", help="in none")
    parser.add_argument("--kills-per-job", type=int, default=25, help="of a detached job; a foreground one has 5")
    parser.add_argument("--only", help="one kind of kill: any, edit, worker, boundary, starting, burst")
    parser.add_argument("--keep", action="store_true", help="the jobs' folders stay")
    args = parser.parse_args()
    args.bin = os.path.abspath(args.bin)
    print(f"seed {args.seed}")
    done, number, taken_up = 0, 0, []
    while done < args.kills:
        most = args.kills_per_job if number % 2 else KILLS_OF_A_FOREGROUND_JOB
        job = Job(args, number, min(most, args.kills - done))
        number += 1
        try:
            done += job.run()
        except Wrong as wrong:
            job.tell()
            sys.exit(f"FAILED: job {number} of seed {args.seed}: {wrong}")
        finally:
            taken_up += job.taken_up
            job.clean_up()
    print(f"{done} kills in {number} jobs; taken up again (from its start to the agents of all members attached): "
          f"median {statistics.median(taken_up):.3f} s, at most {max(taken_up):.3f} s, {len(taken_up)} times")


if __name__ == "__main__":
    main()
