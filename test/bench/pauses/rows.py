"""What is done to a running job, row by row, and what its workers' logs then say.

Each function takes the options and gives {row: [values]}; several rows share one job, by `Shared`.
"""
import json
import os
import re
import signal
import statistics
import subprocess
import tempfile
import time

from pauses import processes, step_log
from pauses.job import TOP, Job

STEPS_PER_EPOCH = 50
SUPERVISOR_KILLS = 4  # in one job: dtlaunch gives up at the sixth death within a minute
NEAR_NS = 100_000_000  # a pause lies in the worker's current step or the next


class Shared:
    """A job of four workers that stays, and the times at which something was done to it."""

    def __init__(self, options):
        self.options = options
        self.job = Job(options)
        try:
            self.job.wait("the first steps", lambda: self.job.newest_steps()[0] > 0)
        except BaseException:
            self.job.stop()
            raise
        self.windows = {"join": [], "leave": [], "notice": []}
        self.warmups = []

    def join(self, edit=None):
        job = self.job
        lines, workers = job.changes(), job.newest_steps()[1]
        begun = edit() if edit else job.edit(add=True)
        job.wait("the newcomer's steps", lambda: job.newest_steps()[1] > workers and job.newest_steps()[0] > 0)
        self.windows["join"].append((begun, time.monotonic_ns()))
        newcomer = max(job.logs(), key=lambda events: events[0]["worker"])
        released = next(e["t_ns"] for e in newcomer if e["event"] == "boundary_leave")
        self.warmups.append((begun, released))
        job.wait("ADDED", lambda: job.changes() == lines + 1)

    def leave(self):
        lines = self.job.changes()
        begun = self.job.edit(add=False)
        self.job.wait("REMOVED", lambda: self.job.changes() == lines + 1)
        self.settle()
        self.windows["leave"].append((begun, time.monotonic_ns()))

    def leave_by_notice(self):
        lines = self.job.changes()
        begun = self.job.control("leave", self.job.fourth, "--in", "30s")
        self.job.wait("REMOVED", lambda: self.job.changes() == lines + 1)
        self.settle()
        self.windows["notice"].append((begun, time.monotonic_ns()))

    def settle(self):
        """An ordinary epoch edge lies between two changes."""
        time.sleep(self.options.settle)  # how long between two changes, not a wait

    def fourth(self):
        """Of the worker on the fourth host: (its pid, the ids of the others)."""
        status = self.job.wait("four members", self.four_members)
        pid = next(w["pid"] for w in status["workers"] if w["host"] == self.job.fourth)
        return pid, [w["id"] for w in status["workers"] if w["host"] != self.job.fourth]

    def four_members(self):
        status = self.job.status()
        members = [w for w in status["workers"] if w["state"] == "MEMBER"] if status else []
        return status if len(members) == 4 else None

    def standstills(self, since, survivors, until=None):
        """Of the survivors, in seconds: inside an epoch, and at an epoch's edge."""
        found = [step_log.standstill(step_log.steps(events), since, until or since + NEAR_NS)
                 for events in self.job.logs_of(survivors)]
        return [[pair[i] for pair in found if pair[i] is not None] for i in (0, 1)]


def longest(pair):
    return max(value for value in pair if value is not None)


def redone(logs, since):
    """Steps that a worker made twice after `since`, over all logs."""
    count = 0
    for events in logs:
        made = [(s.epoch, s.step) for s in step_log.steps(events) if s.end > since]
        count += len(made) - len(set(made))
    return count


def joins_and_leaves(shared, changes):
    for change in range(changes):
        shared.leave()
        shared.join()
        shared.settle()
        print("leave and join %d of %d done" % (change + 1, changes), flush=True)
    logs = shared.job.logs()
    found = {kind: step_log.pauses(logs, shared.windows[kind]).get(kind, []) for kind in ("leave", "join")}
    found["edge"] = step_log.pauses(logs)["none"]
    warm, usual = step_log.warm_steps(logs, shared.warmups, world=3)
    if warm and usual:
        print("a step takes %.2f times as long while a newcomer warms up" % (
            statistics.median(warm) / statistics.median(usual)))
    return found


def notices(shared, changes):
    for change in range(changes):
        shared.leave_by_notice()
        shared.join(lambda: shared.job.control("add", shared.job.fourth))
        shared.settle()
        print("notice %d of %d done" % (change + 1, changes), flush=True)
    return {"notice": step_log.pauses(shared.job.logs(), shared.windows["notice"]).get("leave", [])}


def bases_replaced(shared, changes):
    """The third host, one of the launch, and the fourth replace one another."""
    shared.leave()
    hosts, windows = [shared.job.third, shared.job.fourth], []
    for change in range(changes + changes % 2):  # then all is as before
        lines = shared.job.changes()
        begun = shared.job.control("replace", *hosts)
        shared.job.wait("ADDED and REMOVED", lambda: shared.job.changes() == lines + 2)
        shared.settle()
        windows.append((begun, time.monotonic_ns()))
        hosts.reverse()
        print("replacement %d of %d done" % (change + 1, changes), flush=True)
    shared.join()
    return {"replace": step_log.pauses(shared.job.logs(), windows).get("swap", [])}


def workers_killed(shared, changes):
    found = {"killed": [], "killed redone": []}
    for change in range(changes):
        victim, survivors = shared.fourth()
        lines = shared.job.changes()
        since = time.monotonic_ns()
        os.kill(victim, signal.SIGKILL)
        shared.job.wait("REMOVED and ADDED", lambda: shared.job.changes() == lines + 2)
        shared.settle()
        logs = shared.job.logs_of(survivors)
        pairs = [step_log.standstill(step_log.steps(events), since, since + NEAR_NS) for events in logs]
        found["killed"] += [longest(pair) for pair in pairs]
        found["killed redone"].append(redone(logs, since))
        print("kill %d of %d done" % (change + 1, changes), flush=True)
    return found


def hosts_lost(shared, changes):
    """Every process of the fourth host is stopped: its connections stay and say nothing more."""
    found = {"lost": [], "lost redone": []}
    for change in range(changes):
        victim, survivors = shared.fourth()
        lines = shared.job.changes()
        host = " --host %s" % shared.job.fourth
        stopped = [victim] + [pid for pid, text in shared.job.processes().items()
                              if "dtagent" in text and host in text + " "]
        since = time.monotonic_ns()
        for pid in stopped:
            os.kill(pid, signal.SIGSTOP)
        try:
            shared.job.wait("REMOVED", lambda: shared.job.changes() == lines + 1)
        finally:
            for pid in stopped:
                os.kill(pid, signal.SIGCONT)
        shared.job.wait("ADDED", lambda: shared.job.changes() == lines + 2)
        shared.settle()
        logs = shared.job.logs_of(survivors)
        pairs = [step_log.standstill(step_log.steps(events), since, since + NEAR_NS) for events in logs]
        found["lost"] += [longest(pair) for pair in pairs]
        found["lost redone"].append(redone(logs, since))
        print("lost host %d of %d done" % (change + 1, changes), flush=True)
    return found


def supervisors_killed(options, changes):
    found = {"supervisor": [], "supervisor edge": [], "supervisor up": []}
    for begin in range(0, changes, SUPERVISOR_KILLS):
        shared = Shared(options)
        try:
            shared.join()
            supervisors_of_one_job(shared, range(begin, min(begin + SUPERVISOR_KILLS, changes)), found)
        finally:
            shared.job.stop()
    return found


def supervisors_of_one_job(shared, changes, found):
    for change in changes:
        _, others = shared.fourth()
        pid, term = shared.job.supervisor(), shared.job.status()["term"]
        since = time.monotonic_ns()
        os.kill(pid, signal.SIGKILL)

        def taken_up():
            status = shared.job.status()
            return status and status.get("term", 0) > term and all(h["link"] == "up" for h in status["hosts"])

        shared.job.wait("the next supervisor", taken_up)
        found["supervisor up"].append(processes.age_s(shared.job.supervisor()))
        until = time.monotonic_ns()
        shared.settle()
        inside, edge = shared.standstills(since, others, until)
        found["supervisor"] += inside
        found["supervisor edge"] += edge
        print("supervisor %d of %d killed" % (change + 1, shared.options.changes), flush=True)


def kind(text):
    """Of a process, by its command line: trains, master or host."""
    name = os.path.basename(text.split(" ")[0]).rstrip(":")
    if name in ("elastic_worker", "dttrain", "dtserver"):
        return "trains"
    return "host" if name in ("dtagent", "sshd") else "master"


def watching(shared, seconds):
    """CPU time of everything but the workers and servers while nothing happens, as a part of all that
    a machine like this has: the master's (supervisor, its helper, dtlaunch), and on the average that
    of a host (agent, guard, ssh session); in ten parts of the time."""
    shared.fourth()
    shared.settle()
    pids = shared.job.processes()
    found, whole = {"watching master": [], "watching host": []}, {"trains": 0, "master": 0, "host": 0}
    for _ in range(10):
        begun, before = time.monotonic(), {pid: processes.cpu_s(pid) for pid in pids}
        time.sleep(seconds / 10)  # how long a sample lasts, not a wait
        took, spent = time.monotonic() - begun, dict.fromkeys(whole, 0)
        for pid in pids:
            spent[kind(pids[pid])] += processes.cpu_s(pid) - before[pid]
        all_of_it = took * os.cpu_count()
        found["watching master"].append(spent["master"] / all_of_it)
        found["watching host"].append(spent["host"] / all_of_it / 4)
        whole = {name: whole[name] + spent[name] for name in whole}
    print("CPU time in %.1f s of training: %s" % (
        seconds, ", ".join("%s %.3f s" % item for item in whole.items())), flush=True)
    return found


def noticed_after(job, since_wall):
    """Seconds until the job decided to go back, by its own events."""
    for event in job.events():
        if event["event"] == "rolling_back" and event["time_ns"] >= since_wall:
            return (event["time_ns"] - since_wall) / 1e9
    return None


def begun_again(job, workers, since):
    pairs = [step_log.restarted(step_log.steps(events), since, STEPS_PER_EPOCH) for events in job.logs_of(workers)]
    return pairs if all(pairs) else None


def servers_lost(options, changes, row, number):
    """A server gets the signal: the running job goes back to its newest checkpoint, with new servers
    and the same workers."""
    found = {row: [], row + " redone": [], row + " noticed": []}
    job = Job(options, extra=["--checkpoint-every", "1"], base=4)
    try:
        job.wait("steps of four", lambda: len(job.log_paths()) == 4 and job.newest_steps()[0] > 0)
        for change in range(changes):
            time.sleep(options.settle)  # how long between two changes, not a wait
            status = job.wait("a checkpoint", lambda: has_checkpoint(job))
            since, wall = time.monotonic_ns(), time.time_ns()
            os.kill(status["servers"][1]["pid"], number)
            for seconds, steps in job.wait("every worker's next step", lambda: begun_again(job, range(4), since)):
                found[row].append(seconds)
                found[row + " redone"].append(steps)
            found[row + " noticed"].append(job.wait("the decision", lambda: noticed_after(job, wall)))
            print("%s %d of %d" % (row, change + 1, changes), flush=True)
    finally:
        job.stop()
    return found


def server_hosts_lost(options, changes):
    """Every process of a base host with a server is stopped; a new job for each time, with a server on
    every base host, as by default."""
    found = {"server host": [], "server host redone": [], "server host noticed": []}
    for change in range(changes):
        # Hosts of this bench share a machine; a host that is lost shares no memory with the others.
        job = Job(options, extra=["--checkpoint-every", "1", "--transport", "tcp"], base=4, servers=4)
        stopped = []
        try:
            job.wait("steps of four", lambda: len(job.log_paths()) == 4 and job.newest_steps()[0] > 0)
            time.sleep(options.settle)  # how long it trains before, not a wait
            status = job.wait("a checkpoint", lambda: has_checkpoint(job))
            victims = [p for p in status["workers"] + status["servers"] if p["host"] == job.fourth]
            survivors = [w["id"] for w in status["workers"] if w["host"] != job.fourth]
            stopped = [p["pid"] for p in victims] + [pid for pid, text in job.processes().items()
                                                     if "dtagent" in text and " --host %s " % job.fourth in text + " "]
            since, wall = time.monotonic_ns(), time.time_ns()
            for pid in stopped:
                os.kill(pid, signal.SIGSTOP)
            for seconds, steps in job.wait("every survivor's next step", lambda: begun_again(job, survivors, since)):
                found["server host"].append(seconds)
                found["server host redone"].append(steps)
            found["server host noticed"].append(job.wait("the decision", lambda: noticed_after(job, wall)))
            print("server host %d of %d lost" % (change + 1, changes), flush=True)
        finally:
            for pid in stopped:
                try:
                    os.kill(pid, signal.SIGCONT)
                except ProcessLookupError:
                    pass
            job.stop()
    return found


def fleets_killed(options, seconds):
    """By how much the usual step is longer while dtfleet and its provider are killed all the time, and the provider knows
    nothing, than it was before: of each worker."""
    with tempfile.TemporaryDirectory() as folder:
        machines = folder + "/machines"
        job = Job(options, extra=["--fleet", "%s/packaging/fleet/example.sh %s" % (TOP, machines)], base=4)
        try:
            with open(machines + ".away", "w") as file:
                file.writelines(re.sub(r"^.*@|:\d+$", "", host) + "\n" for host in job.hosts)
            os.rename(machines + ".away", machines)
            job.wait("steps of four", lambda: len(job.log_paths()) == 4 and job.newest_steps()[0] > 0)
            job.wait("the fleet", lambda: ((job.status() or {}).get("fleet") or {}).get("text", "").startswith("4"))
            times = [time.monotonic_ns()]
            time.sleep(min(seconds, 120))  # how long is measured, not a wait
            times.append(time.monotonic_ns())
            os.rename(machines, machines + ".away")
            kills = 0
            while time.monotonic_ns() < times[1] + seconds * 1e9:
                found = subprocess.run(["pkill", "-KILL", "-f", "^[^ ]*dtfleet --job-dir %s |^[^ ]*bash .*example.sh %s$" % (
                    job.job, machines)])
                kills += found.returncode == 0
                time.sleep(0.5)  # between two kills, not a wait
            times.append(time.monotonic_ns())
            usual = [[statistics.median(s.end - s.begin for s in step_log.steps(events) if begin < s.begin < end)
                      for begin, end in zip(times, times[1:])] for events in job.logs()]
        finally:
            job.stop()
    print("%d kills; a usual step: %.2f ms before, %.2f ms meanwhile" % (
        kills, *(statistics.median(column) / 1e6 for column in zip(*usual))))
    return {"fleet": [meanwhile / before - 1 for before, meanwhile in usual]}


def spots_taken(options, changes):
    """EC2 marks the fourth host in an epoch of an hour, two minutes before it takes it."""
    found = {"spot": [], "spot gone": []}
    for change in range(changes):
        with tempfile.TemporaryDirectory() as folder:
            clouds = []

            def begin_cloud(job):
                with open(folder + "/names", "w") as file:
                    file.writelines(re.sub(r"^.*@|:\d+$", "", host) + "\n" for host in job.hosts)
                fake = [TOP + "/test/fleet/fake_aws.py", folder]
                clouds.append(subprocess.Popen([*fake, "--names", folder + "/names"]))
                job.wait("the stand-in", lambda: os.path.exists(folder + "/port"), living=False)
                subprocess.run([*fake, "do", "group", "DesiredCapacity=4"], check=True, stdout=subprocess.DEVNULL)
                with open(folder + "/port") as file:
                    job.env.update(AWS_ENDPOINT_URL="http://127.0.0.1:" + file.read(), AWS_ACCESS_KEY_ID="AKTEST",
                                   AWS_SECRET_ACCESS_KEY="s", AWS_REGION="eu-west-1", AWS_EC2_METADATA_DISABLED="true")
                return ["--fleet", "aws:c"]

            job = Job(options, base=4, prepare=begin_cloud,
                      command="elastic_worker --epochs 1 --steps-per-epoch 180000 --samples 2000 --step-ms 20")
            try:
                job.wait("steps of four", lambda: len(job.log_paths()) == 4 and job.newest_steps()[0] > 0)
                job.wait("the fleet", lambda: ((job.status() or {}).get("fleet") or {}).get("text", "").startswith("4"))
                time.sleep(options.settle)  # how long it trains before, not a wait
                shown = json.loads(subprocess.run([TOP + "/test/fleet/fake_aws.py", folder, "do", "show"], check=True,
                                                  capture_output=True, text=True).stdout)
                taken = next(one["id"] for one in shown if one["name"] in job.fourth)
                survivors = [w["id"] for w in job.status()["workers"] if w["host"] != job.fourth]
                since, wall = time.monotonic_ns(), time.time_ns()
                subprocess.run([TOP + "/test/fleet/fake_aws.py", folder, "do", "interrupt", taken, "120"], check=True,
                               stdout=subprocess.DEVNULL)
                job.wait("REMOVED", lambda: job.changes() == 1, seconds=150)
                time.sleep(options.settle)  # how long is measured, not a wait
                found["spot gone"] += [(event["time_ns"] - wall) / 1e9 for event in job.events() if event["event"] == "worker_removed"]
                pairs = [step_log.standstill(step_log.steps(events), since, time.monotonic_ns()) for events in job.logs_of(survivors)]
                found["spot"] += [longest(pair) for pair in pairs]
            finally:
                job.stop()
                for cloud in clouds:
                    cloud.terminate()
                    cloud.wait()
        print("spot instance %d of %d taken" % (change + 1, changes), flush=True)
    return found


def has_checkpoint(job):
    status = job.status()
    return status if status and status["checkpoint"]["newest"] else None


def checkpoints(options, seconds):
    """What saving costs: before every second epoch is a checkpoint. How much longer epochs with it
    are, pair by pair, from one arrival at the boundary to the next."""
    job = Job(options, extra=["--checkpoint-every", "2"], base=4)
    try:
        job.wait("steps of four", lambda: len(job.log_paths()) == 4 and job.newest_steps()[0] > 0)
        time.sleep(seconds)  # how long is measured, not a wait
    finally:
        job.stop()
    entered = [e["t_ns"] for e in job.logs_of([0])[0] if e["event"] == "boundary_enter"]
    took = [(b - a) / 1e9 for a, b in zip(entered, entered[1:])][2:]  # from the third on: an even one first
    longer = [saved - unsaved for saved, unsaved in zip(took[::2], took[1::2])]
    if len(longer) < 2:
        return {}
    print("epochs of %.2f s; standard error of the mean of %d differences: %.1f ms" % (
        statistics.median(took), len(longer), 1e3 * statistics.stdev(longer) / len(longer) ** 0.5))
    return {"checkpoints": longer}
