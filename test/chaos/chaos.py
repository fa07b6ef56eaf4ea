#!/usr/bin/env python3
"""Random faults on a real job, from a seed; at the end everything must be as if little had happened."""
import argparse
import collections
import contextlib
import glob
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable

ROOT = os.path.normpath(os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", ".."))
sys.dont_write_bytecode = True
import checks  # noqa: E402
import hosts  # noqa: E402
import self_test  # noqa: E402
import watch  # noqa: E402
from faults import Faults, File, processes  # noqa: E402
from keeper import Keeper  # noqa: E402
from schedule import ALONE, MACHINES, WEIGHTS, Schedule  # noqa: E402

EXAMPLES = """examples:
  test/chaos/chaos.py --seed 1                      a minute and a half on four hosts
  test/chaos/chaos.py --seed 7 --seconds 60 --hosts 6 --verbose
  test/chaos/chaos.py --seed 7 --print              what would be done, and nothing else
  for seed in $(seq 10); do test/chaos/chaos.py --seed $seed --ledger || break; done

Hosts are network namespaces with an sshd each, where there is root; else loopback addresses, and what
cannot be done to those is told. The job folder is a volume of its own (a FUSE), and so is the master's disk: they stall,
are slow, are full and fail. A master is rebooted, and another machine takes the job over. A seed gives the same faults at
the same times, and says what the job is: with or without --detach, --on-change restart, the default budgets of restarts.
All the time a second thread looks whether two jobs or two groups of one train at once. Exit: 0 clean; 1 a check failed, the folder is kept;
2 wrong usage; 130 interrupted."""

STEPS, STEP_MS = 20, 20
EPOCH_S = 0.45            # of an undisturbed job
DISTURBED = 0.8           # usual fraction of the faults' time that is spent in training
CLOSING_S = 20.0          # at least so much of training is left when the faults end
FINISH_S = 60.0           # longest epoch after the faults, whatever their effects and however busy the machine
LONGEST_FINISH_S = 600.0
LEFTOVER_S = 60.0        # an unreachable host ends its processes by itself: --orphan-timeout
JOB_OPTIONS = ["--elastic-training-enabled", "--poll-interval", "300ms", "--boundary-timeout", "15s", "--hang-timeout", "12s",
               "--leave-timeout", "5s", "--stop-timeout", "5s", "--orphan-timeout", "40s", "--start-timeout", "60s",
               "--notice-margin", "1s"]
BUDGETS = ["--max-restarts", "1000", "--restart-refill", "5s", "--max-futile-restarts", "1000"]
CHECKPOINTS = ["--checkpoint-every", "5", "--keep-checkpoints", "1000"]
GROUPS = ["--on-change", "restart", "--change-settle", "500ms"]
# After these a master's own events may be missing.
SUPERVISOR_ENDS = ("kill supervisor", "kill dtlaunch", "reboot master", "second master", "failing journal")
SAID = {"full volume": "No space left on device", "full journal": "No space left on device",
        "failing volume": "Input/output error", "failing journal": "Input/output error"}
# While these last nobody decides, or nobody can.
STANDSTILLS = ("long stall", "full journal", "failing journal", "reboot master", "second master", "slow volume")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, help="what the faults are drawn from")
    parser.add_argument("--seconds", type=float, default=90, help="of faults (90); the job has time to end after them")
    parser.add_argument("--hosts", type=int, default=4, help="2 to 40 (4); two are the base")
    parser.add_argument("--build", default=os.environ.get("DT_BIN", f"{ROOT}/build/release/bin"), help="folder of the programs")
    parser.add_argument("--server-faults", action="store_true", help="the server, its agent and its host die as well; the job goes back to its checkpoints")
    parser.add_argument("--data-auth", default="auto", choices=("auto", "frames", "handshake"), help="what the job's data connections authenticate")
    parser.add_argument("--groups", action=argparse.BooleanOptionalAction, help="--on-change restart, or not, whatever the seed says")
    parser.add_argument("--only", default="", metavar="KIND,...", help="these faults alone, as in --print")
    parser.add_argument("--python", action="store_true", help="the workers are in Python, with dtkv.torch.Job")
    parser.add_argument("--loopback", action="store_true", help="no namespaces though there is root")
    parser.add_argument("--ledger", action="store_true", help="add a line to test/chaos/LEDGER.md")
    parser.add_argument("--keep", action="store_true", help="keep the folder though all is well")
    parser.add_argument("--verbose", action="store_true", help="tell every fault as it happens")
    parser.add_argument("--print", action="store_true", help="print the faults and start nothing")
    parser.add_argument("--self-test", action="store_true", help="look whether the checks of a run can fail, and start no job")
    options = parser.parse_args()
    if options.seed is None and not options.self_test:
        parser.error("--seed: which one?")
    if not 2 <= options.hosts <= 40:
        parser.error("--hosts: 2 to 40")
    if unknown := only(options) - {*WEIGHTS, *MACHINES}:
        parser.error(f"--only: no fault is called {' or '.join(sorted(unknown))}")
    missing = [p for p in ("dtlaunch", "dtsupervisor", "dtagent", "dtserver", "dtctl", "elastic_worker") if not os.path.exists(f"{options.build}/{p}")]
    if missing and not options.print and not options.self_test:
        parser.error(f"--build: {options.build} lacks {' '.join(missing)}")
    return options


def only(options: argparse.Namespace) -> frozenset[str]:
    return frozenset(filter(None, options.only.split(",")))


class Chaos:
    def __init__(self, options: argparse.Namespace, folder: str, skipped: dict[str, str]) -> None:
        self.options, self.folder, self.skipped = options, folder, skipped
        self.schedule = schedule_of(options)
        self.epochs = int((options.seconds * DISTURBED + CLOSING_S) / EPOCH_S)
        self.wrong: list[str] = []
        self.result = ""
        self.counts: dict[str, int] = {}   # faults carried out
        self.effects: dict[str, int] = {}  # of those of machines and disks: how often it was seen what they did
        self.closing = contextlib.ExitStack()
        self.story = open(f"{folder}/faults.txt", "w", buffering=1)
        self.tell(f"the job: {self.schedule.told()}")
        self.site: hosts.Site
        self.keeper: Keeper
        self.watcher: watch.Watcher
        self.faults: Faults
        self.reference: subprocess.Popen[bytes]
        self.began_at = self.faults_over_at = 0.0

    def run(self) -> list[str]:
        """Everything that is wrong, as sentences."""
        try:
            self.make_hosts()
            self.start_job()
            self.disturb()
            self.finish()
            self.look_for_leftovers()
            if not self.wrong:
                self.check()
        except AssertionError as error:
            self.wrong.append(str(error))
        finally:
            self.closing.close()
        return self.wrong

    # ---- the job

    def make_hosts(self) -> None:
        for name in ("disk", "job", "logs"):
            os.makedirs(f"{self.folder}/{name}", mode=0o700)
        os.environ.update(LC_ALL="C", PATH=f"{os.path.abspath(self.options.build)}:{os.environ['PATH']}")
        for name in ("DISPLAY", "SSH_AUTH_SOCK"):
            os.environ.pop(name, None)
        library = "" if "clocks" in self.skipped else clock_library(self.options)
        if "namespaces" in self.skipped:
            os.rmdir(f"{self.folder}/disk")
            os.symlink(f"{self.folder}/job", f"{self.folder}/disk")
            self.site = hosts.Loopback(self.folder, self.options.hosts, library)
        else:
            self.site = hosts.Namespaces(self.folder, self.options.hosts, library)
        self.closing.callback(self.site.close)
        with open(f"{self.folder}/hosts", "w") as file:
            file.writelines(self.site.line(n) + "\n" for n in self.schedule.base)

    def start_job(self) -> None:
        self.keeper = Keeper(self.site, self.folder, self.tell)
        if "namespaces" in self.skipped:
            self.closing.callback(self.kill_hosts)
        self.closing.callback(self.keeper.close)
        self.faults = Faults(self.site, File(f"{self.folder}/disk/host_worker", self.site.line), f"{self.folder}/job", self.keeper, self.tell)
        self.keeper.is_excused, self.counts = self.faults.is_excused, self.faults.counts
        if self.schedule.groups:
            worker = ["/usr/bin/python3", f"{ROOT}/test/chaos/group_worker.py", "--snapshot", f"{self.folder}/snapshot"]
        else:
            worker = [f"{os.path.abspath(self.options.build)}/elastic_worker"]
            if self.options.python:
                worker = ["/usr/bin/python3", f"{ROOT}/test/chaos/python_worker.py"]
            worker += ["--samples", "1000", "--batch", "8", "--lr", "0.01"]
        worker += ["--steps-per-epoch", str(STEPS), "--epochs", str(self.epochs)]
        if not self.schedule.groups:
            with open(f"{self.folder}/reference.out", "wb") as out:
                # dtlaunch brings the package to the workers.
                env = dict(os.environ, PYTHONPATH=f"{ROOT}/kvstore/python", DTKV_LIBRARY=f"{self.options.build}/../lib/libdtkv.so.0")
                self.reference = subprocess.Popen(worker, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=env)
            self.closing.callback(self.end_reference)
        words = ["dtlaunch", "-n", str(len(self.schedule.base)), "-s", "0" if self.schedule.groups else "1", "-H",
                 f"{self.folder}/hosts", *self.site.options(), *JOB_OPTIONS, *(GROUPS if self.schedule.groups else CHECKPOINTS),
                 *([] if self.schedule.default_budgets else BUDGETS), "--transport", self.schedule.transport, "--data-auth", self.options.data_auth]
        words += ["--deterministic"] if self.schedule.deterministic else []
        words += ["--detach"] if self.schedule.detach else []
        # A restarted job has its own logs.
        log = f'exec "$0" "$@" --step-ms {STEP_MS} --log "{self.folder}/logs/$DT_JOB.w%i.jsonl"'
        self.keeper.start(words + ["sh", "-c", log, *worker], self.schedule.detach)
        self.watcher = watch.Watcher(self.site, lambda: self.faults.separated, self.tell)
        self.closing.callback(self.watcher.close)
        self.watcher.start()
        self.wait("the job's first epoch", 60, lambda: self.keeper.epoch() >= 1)
        if not self.schedule.groups:
            self.wait("a checkpoint", 60, lambda: glob.glob(f"{self.folder}/disk/.dtlaunch/*/checkpoints/epoch-*[0-9]"))

    def wait(self, what: str, seconds: float, condition: Callable[[], object]) -> None:
        until = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < until, f"waited {seconds:.0f} s in vain for {what}"
            code = self.keeper.look()
            assert code is None, f"the job ended with {code} before {what}"
            time.sleep(0.1)  # between two looks, not a wait

    def epochs_left_s(self) -> float:
        return max(0, self.epochs - self.keeper.epoch()) * EPOCH_S

    # ---- faults

    def disturb(self) -> None:
        self.began_at = time.monotonic()
        self.faults.file.good = open(f"{self.folder}/disk/host_worker").read()
        waiting = collections.deque(self.schedule.faults)
        next_look = 0.0
        while time.monotonic() < self.began_at + self.options.seconds:
            now = time.monotonic()
            code = self.keeper.look()
            if code is not None:
                raise AssertionError(f"the job ended with {code} while faults went on")
            self.raise_what_was_seen()
            if now >= next_look:
                next_look = now + 1.0
                if self.epochs_left_s() < CLOSING_S:
                    self.tell(f"{now - self.began_at:7.2f}  the job is near its end: no more faults")
                    break
            due = self.faults.due(now)
            while waiting and self.began_at + waiting[0].at <= now:
                self.faults.begin(waiting.popleft())
            moments = [now + 0.2, due or now + 1] + ([self.began_at + waiting[0].at] if waiting else [])
            time.sleep(max(0.001, min(moments) - time.monotonic()))  # until the next fault begins or ends, not a wait
        self.faults.end_all(self.schedule.wanted)
        self.faults_over_at = time.monotonic()
        self.tell(f"{self.faults_over_at - self.began_at:7.2f}  faults are over; epoch {self.keeper.epoch()} of {self.epochs}")

    def raise_what_was_seen(self) -> None:
        assert not self.watcher.wrong, f"{time.monotonic() - self.began_at:.1f} s after the first fault: {'; '.join(self.watcher.wrong)}"

    def tell(self, text: str) -> None:
        self.story.write(text + "\n")
        if self.options.verbose:
            print(text, flush=True)

    # ---- its end

    def finish(self) -> None:
        """What keeps the job from its end may still have to be taken up; every epoch comes within its time."""
        newest, until, last = ("", -1), 0.0, time.monotonic() + LONGEST_FINISH_S
        while (code := self.keeper.look()) is None:
            self.raise_what_was_seen()
            now = (self.keeper.job(), self.keeper.epoch())
            if now != newest:
                newest, until = now, time.monotonic() + FINISH_S
            if time.monotonic() > min(until, last):
                self.photograph()
                raise AssertionError(f"the job has not finished; in epoch {newest[1]} of {self.epochs} for {FINISH_S:.0f} s"
                                     if time.monotonic() < last else f"the job has not finished in {LONGEST_FINISH_S:.0f} s")
            time.sleep(0.2)  # between two looks, not a wait
        assert code == 0, f"the job ended with {code} after the faults"
        self.tell(f"{time.monotonic() - self.began_at:7.2f}  the job has finished")

    def photograph(self) -> None:
        """What a job that does not end looks like."""
        with open(f"{self.folder}/stuck.txt", "w") as out:
            for words in (self.site.on_master("dtctl", "--job-dir", f"{self.folder}/job", "status"),
                          self.site.on_master("dtctl", "--job-dir", f"{self.folder}/job", "status", "--json"),
                          ["ps", "-eo", "pid,ppid,stat,etimes,wchan:20,args"]):
                try:
                    out.write(subprocess.run(words, capture_output=True, text=True, timeout=10, env=self.site.master.environment()).stdout + "\n")
                except subprocess.TimeoutExpired:
                    out.write(f"{words[0]} does not answer\n")

    def look_for_leftovers(self) -> None:
        """Of the job, on any host. The hosts themselves (sshd, the volume) are still there."""
        until = time.monotonic() + LEFTOVER_S
        while self.leftovers():
            if time.monotonic() > until:
                self.photograph()
                self.wrong.append("left over: " + "; ".join(self.leftovers()))
                return
            time.sleep(0.2)  # between two looks, not a wait

    def leftovers(self) -> list[str]:
        out = subprocess.run([sys.executable, f"{ROOT}/scripts/leftovers.py", self.folder], capture_output=True, text=True).stdout
        infrastructure = ("sshd", "chaos/volume.py", "host_init.py", f"{self.folder}/ssh/")
        return [line for line in out.splitlines() if not any(word in line for word in infrastructure) or "dtagent" in line]

    def check(self) -> None:
        base = [self.site.names[n] for n in self.schedule.base]
        told = self.faults.told
        jobs = self.keeper.jobs
        standstills = [(begin, end) for begin, end, fault in told if fault.kind in STANDSTILLS]
        runs = [checks.Run(self.folder, job, job == jobs[-1], base, self.began_at, self.faults_over_at, self.master_clock(*SUPERVISOR_ENDS), standstills,
                           self.master_clock("second master") if job in dict(self.keeper.taken_over) else [])
                for job in jobs]
        changes = f"{sum(len(r.logs) for r in runs)} workers, {sum(len(r.log) for r in runs)} changes, "
        if self.schedule.groups:
            self.wrong += checks.check_groups(runs, self.epochs)
            self.result = changes + f"{sum(len({line['group'] for _, line in r.lines('start')}) for r in runs)} groups, {self.begun_anew()}"
        else:
            self.wrong += checks.check(runs, self.epochs, self.undisturbed())
            self.result = changes + (f"{sum(r.rollbacks for r in runs)} rollbacks, {self.begun_anew()}, "
                                     f"accuracy {runs[-1].accuracy():.3f} ({self.undisturbed():.3f} undisturbed)")
        self.wrong += self.without_effect()
        self.result += f"; {self.watcher.watch.looks} looks, at most {self.watcher.longest_break_s:.1f} s apart: nobody beside another one"

    def master_clock(self, *kinds: str) -> list[float]:
        """When such faults were, in seconds since 1970 by the master's clock at that time, or shortly before."""
        since_1970 = time.time() - time.monotonic()
        told = self.faults.told
        steps = [(begin, end, fault.amount) for begin, end, fault in told if fault.kind == "step clock" and fault.host == 0]
        moments = [begin for begin, _, fault in told if fault.kind in kinds and fault.way != ALONE]
        return [at + since_1970 + shift for at in moments
                for shift in {0.0} | {by for since, until, by in steps if since < at < until + checks.UNTOLD_S}]

    def without_effect(self) -> list[str]:
        """Faults that have not done what their name says, though they were carried out."""
        counts, seen, story = self.faults.counts, dict(self.faults.effects), self.story_of_job()
        seen["second master"] = len(self.keeper.taken_over)
        seen["notice"] = min(counts.get("notice", 0), story.count("notice: chaos") + story.count("(chaos)"))
        looked_at = [kind for kind in MACHINES if counts.get(kind)]
        self.effects = {kind: seen.get(kind, 0) for kind in looked_at}
        # A disk is not written to at each moment: one of three faults has its effect. A notice has, once a supervisor has taken it.
        owed = {kind: count - self.faults.hidden.get(kind, 0) for kind, count in counts.items()}
        owed |= {"notice": 3 if any(notice.poll() == 0 for notice in self.faults.notices) else 0}
        wrong = [f"without effect: {kind}" for kind in looked_at
                 if not seen.get(kind) and (owed[kind] > 2 or kind in ("second master", "reboot master"))]
        wrong += [f"without effect: nobody tells of '{SAID[kind]}' though {kind} made requests fail" for kind in looked_at
                  if kind in SAID and seen.get(kind, 0) > 2 and SAID[kind] not in story]
        return wrong

    def story_of_job(self) -> str:
        """What its logs and events say."""
        paths = [f"{self.folder}/dtlaunch.out", *glob.glob(f"{self.folder}/disk/events.jsonl"),
                 *glob.glob(f"{self.folder}/disk/.dtlaunch/*/events.jsonl"), *glob.glob(f"{self.folder}/master-*/disk/dtlaunch/*/supervisor.log")]
        return "\n".join(open(path, errors="replace").read() for path in paths)

    def begun_anew(self) -> str:
        words = [f"begun anew {len(self.keeper.jobs) - 1} times"] + ([self.schedule.told()] if self.schedule.told() != "as ever" else [])
        return ", ".join(words)

    def undisturbed(self) -> float:
        """Accuracy of one worker that nothing happened to."""
        assert self.reference.wait(120) == 0, "the undisturbed run failed"
        with open(f"{self.folder}/reference.out") as file:
            lines = [line for line in file if "Validation-accuracy" in line]
        return float(lines[-1].split("Validation-accuracy=")[1].split()[0])

    def kill_hosts(self) -> None:
        """What runs on loopback addresses outlives nobody else."""
        for process in processes(self.site):
            if self.site.host_of(process.pid) or process.pid == self.keeper.pid():
                Faults.send(process.pid, signal.SIGKILL)

    def end_reference(self) -> None:
        self.reference.kill()
        self.reference.wait()


def report(chaos: Chaos, wrong: list[str], options: argparse.Namespace) -> None:
    faults = sum(chaos.counts.values())
    if wrong:
        print(f"chaos: FAILED with --seed {options.seed} --seconds {options.seconds:g} --hosts {options.hosts}")
        for text in wrong[:20]:
            print(f"  {text[:600]}")
        if os.path.exists(f"{chaos.folder}/faults.txt"):
            print(open(f"{chaos.folder}/faults.txt").read(), end="")
        print(f"kept: {chaos.folder} (faults.txt, dtlaunch.out, job/, logs/)")
    else:
        print(f"chaos: seed {options.seed} clean: {faults} faults, {chaos.epochs} epochs, {chaos.result}")
        print(f"chaos: effects seen: {', '.join(f'{kind} {n}' for kind, n in chaos.effects.items())}")
    if options.ledger:
        add_to_ledger(chaos, wrong, options, faults)


def add_to_ledger(chaos: Chaos, wrong: list[str], options: argparse.Namespace, faults: int) -> None:
    version = subprocess.run([f"{options.build}/dtsupervisor", "--version"], capture_output=True, text=True).stdout
    commit = version.partition("(commit ")[2].partition(")")[0][:7] or "unknown"
    kinds = ", ".join(f"{n} {kind}" for kind, n in sorted(chaos.counts.items()))
    minutes = max(0.0, chaos.faults_over_at - chaos.began_at) / 60
    how = "Python, " if options.python else ""
    result = f"FAILED: {wrong[0][:120]}" if wrong else f"clean, {chaos.begun_anew()}"
    with open(f"{ROOT}/test/chaos/LEDGER.md", "a") as file:
        file.write(f"| {commit} | {options.seed} | {minutes:.1f} | {options.hosts} | {how}{faults}: {kinds} | {result} |\n")


def schedule_of(options: argparse.Namespace) -> Schedule:
    return Schedule(options.seed, options.seconds, options.hosts, options.server_faults, options.groups, only(options))


def clock_library(options: argparse.Namespace) -> str:
    return os.path.normpath(f"{os.path.abspath(options.build)}/../test/clock_shift/clock_shift.so")


def what_is_skipped(options: argparse.Namespace) -> dict[str, str]:
    """Parts of the run that this machine cannot give, and why."""
    skipped = {}
    why = "asked for" if options.loopback else hosts.missing_for_namespaces()
    if why:
        skipped["namespaces"] = f"SKIPPED: cuts, power faults, other masters and disks, hosts are loopback addresses: {why}"
    if not os.path.exists(clock_library(options)):
        skipped["clocks"] = f"SKIPPED: steps of clocks: no {clock_library(options)}"
    return skipped


def inside(options: argparse.Namespace, folder: str, skipped: dict[str, str]) -> int:
    """The run itself; in a process namespace of its own where there is one."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    signal.signal(signal.SIGHUP, lambda *_: sys.exit(129))
    chaos = Chaos(options, folder, skipped)
    wrong = chaos.run()
    report(chaos, wrong, options)
    return 1 if wrong else 0


def first_process(options: argparse.Namespace, folder: str, skipped: dict[str, str]) -> int:
    """The namespaces' init: its end ends all their processes. Reaps orphans."""
    hosts.die_with_parent()
    hosts.private_mounts()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal sends it to the run itself
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os._exit(ended(lambda: inside(options, folder, skipped)))
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda n, _: os.kill(child, n))
    while True:
        pid, status = os.wait()
        if pid == child:
            return os.waitstatus_to_exitcode(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status)


def ended(call: Callable[[], int]) -> int:
    """call()'s result as an exit code, whatever way it ends."""
    try:
        code = call()
    except KeyboardInterrupt:
        code = 130
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:  # noqa: BLE001 - printed, and turned into an exit code
        import traceback
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    return code


def in_namespaces(options: argparse.Namespace, folder: str, skipped: dict[str, str]) -> int:
    """In new namespaces, and in a process of its own: who made them can start nothing once they have ended."""
    def make() -> int:
        hosts.die_with_parent()
        hosts.unshare(hosts.NEW_NS | hosts.NEW_NET | hosts.NEW_PID | hosts.NEW_IPC)
        return in_child(lambda: first_process(options, folder, skipped))
    return in_child(make)


def in_child(call: Callable[[], int]) -> int:
    """call()'s exit code, from a forked process. Signals are forwarded; an interrupt reaches all processes anyway."""
    child = os.fork()
    if child == 0:
        os._exit(ended(call))
    before = {n: signal.signal(n, lambda number, _: os.kill(child, number)) for n in (signal.SIGTERM, signal.SIGHUP)}
    before[signal.SIGINT] = signal.signal(signal.SIGINT, signal.SIG_IGN)
    _, status = os.waitpid(child, 0)
    for number, handler in before.items():
        signal.signal(number, handler)
    return os.waitstatus_to_exitcode(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status)


def main() -> int:
    options = parse()
    if options.self_test:
        self_test.main()
        return 0
    if options.print:
        plan = schedule_of(options)
        print(f"the job: {plan.told()}", *plan.faults, sep="\n")
        return 0
    skipped = what_is_skipped(options)
    for text in skipped.values():
        print(text, flush=True)
    folder = tempfile.mkdtemp(prefix="dtc.", dir="/tmp")  # short: socket paths end at 108 bytes
    if "namespaces" in skipped:
        code = ended(lambda: inside(options, folder, skipped))
    else:
        code = in_namespaces(options, folder, skipped)
    left = subprocess.run([sys.executable, f"{ROOT}/scripts/leftovers.py", folder], capture_output=True, text=True).stdout
    left += "".join(line for line in open("/proc/self/mounts") if folder in line)
    if left:
        print(f"chaos: FAILED: left behind by chaos itself:\n{left}", end="")
        code = code or 1
    if code in (0, 130, 129, 143) and not options.keep:
        shutil.rmtree(folder, ignore_errors=True)
    elif code != 1:
        print(f"kept: {folder}")
    return code


if __name__ == "__main__":
    sys.exit(main())
