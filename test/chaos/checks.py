"""What must hold when a job that faults happened to has ended. Each check gives sentences of what is wrong."""
import collections
import glob
import json
import re

LOG_LINE = re.compile(r"(\d+) (ADDED|REMOVED) (\S+) (\d{19})\n")
# Training's own noise: another number of workers, other samples in a step.
ACCURACY_TOLERANCE = 0.03
# Of a boundary: what the job's own deadlines allow a member that is stopped for good, and a restart.
LONGEST_WAIT_S = 60.0
# Some time after the faults nothing of them is felt any more.
SETTLING_S, SETTLED_WAIT_S = 45.0, 3.0


def json_lines(path):
    with open(path, errors="replace") as file:
        for line in file:
            if line.endswith("\n"):
                try:
                    yield json.loads(line)
                except ValueError:
                    pass  # of a process killed as it wrote


class Run:
    """What a run left to be checked."""

    def __init__(self, folder, base, began_at, faults_over_at):
        self.folder, self.base = folder, base  # names of the base workers' hosts
        self.began_at, self.faults_over_at = began_at, faults_over_at  # monotonic seconds
        self.job = f"{folder}/job"
        self.logs = {int(re.findall(r"w(\d+)\.jsonl", path)[0]): list(json_lines(path))
                     for path in glob.glob(f"{folder}/logs/w*.jsonl")}
        self.events = list(json_lines(f"{self.job}/events.jsonl"))
        with open(f"{self.job}/host_worker_log") as file:
            self.log = file.readlines()

    def lines(self, name):
        """(worker, line) of every such line of the workers' logs."""
        return [(worker, line) for worker, log in self.logs.items() for line in log if line["event"] == name]

    def last_epoch(self):
        return max((line["epoch"] for _, line in self.lines("epoch")), default=-1)

    def accuracy(self):
        return max((line["accuracy"] for _, line in self.lines("epoch") if line["epoch"] == self.last_epoch()), default=0)


def workers_started_once(run):
    for worker, log in run.logs.items():
        if sum(line["event"] == "start" for line in log) > 1:
            yield f"worker {worker} was started twice"
    launched = collections.Counter(e["worker"] for e in run.events if e["event"] == "worker_launched")
    for worker, times in launched.items():
        if times > 1:
            yield f"events.jsonl: worker {worker} was launched {times} times"


def epochs_released_once(run):
    """And in order, with dense ranks, the same world for everyone."""
    views = collections.defaultdict(dict)
    for worker, log in run.logs.items():
        before = None
        for line in log:
            if line["event"] != "boundary_leave" or line["result"] != "ok":
                continue
            if before is not None and line["epoch"] != before + 1:
                yield f"worker {worker}: epoch {line['epoch']} released after epoch {before}"
            before = line["epoch"]
            views[line["epoch"], line["generation"]][worker] = (line["rank"], line["world"])
    generations = collections.defaultdict(list)
    for (epoch, generation), view in sorted(views.items()):
        generations[epoch].append(generation)
        ranks = [rank for rank, _ in view.values()]
        worlds = {world for _, world in view.values()}
        if len(set(ranks)) != len(ranks) or len(worlds) != 1 or max(ranks) >= min(worlds):
            yield f"epoch {epoch}, generation {generation}: worker: (rank, world) is {view}"
    for epoch, several in generations.items():
        # Only when nobody is left of the first does an epoch begin again.
        for earlier, later in zip(several, several[1:]):
            if set(views[epoch, earlier]) & set(views[epoch, later]):
                yield f"epoch {epoch} was released in generations {earlier} and {later} to one worker"
            survivors = [w for w in views[epoch, earlier] if run.logs[w][-1]["epoch"] > epoch]
            if survivors:
                yield f"epoch {epoch} was released again in generation {later} though {survivors} went on"


def steps_done_once(run):
    for worker, log in run.logs.items():
        before = None
        for line in log:
            if line["event"] != "step":
                continue
            at = (line["epoch"], line["step"])
            if before and at not in ((before[0], before[1] + 1), (before[0] + 1, 0)):
                yield f"worker {worker}: step {at} follows {before}"
            before = at


def weights_agree(run):
    epochs = collections.defaultdict(dict)
    for worker, line in run.lines("epoch"):
        epochs[line["epoch"]].setdefault(line["hash"], []).append(worker)
    for epoch, hashes in sorted(epochs.items()):
        if len(hashes) > 1:
            yield f"epoch {epoch} ended with different weights: {dict(hashes)}"


def checkpoints_are_the_weights(run):
    """What the servers saved before an epoch is what the workers held at the end of the one before."""
    ended = {line["epoch"]: line["hash"] for _, line in run.lines("epoch")}
    folders = [p for p in glob.glob(f"{run.job}/.dtlaunch/*/checkpoints/epoch-*") if re.search(r"epoch-\d+$", p)]
    for folder in folders:
        epoch = int(folder[-6:])
        found = weights_hash(folder)
        if epoch - 1 in ended and found != ended[epoch - 1]:
            yield f"checkpoint of epoch {epoch}: weights {found}, and the workers had {ended[epoch - 1]}"
    if not folders:
        yield "no checkpoint was saved"


def weights_hash(folder):
    """Of a checkpoint, as mlp_worker makes it of its weights: keys 0 to 3 in their order."""
    chunks = {}
    for path in glob.glob(f"{folder}/*.safetensors"):
        with open(path, "rb") as file:
            header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
            data = file.read()
        for name, array in header.items():
            match = re.fullmatch(r"key(\d+)\.chunk(\d+)", name)
            if match and int(match[1]) < 4:
                begin, end = array["data_offsets"]
                chunks[int(match[1]), int(match[2])] = data[begin:end]
    value = 0xcbf29ce484222325
    for _, chunk in sorted(chunks.items()):
        for byte in chunk:
            value = (value ^ byte) * 0x100000001b3 & 0xffffffffffffffff
    return f"{value:016x}"


def change_log_adds_up(run):
    """host_worker_log has every change once, agrees with the events, and leads to who was there at the end."""
    changes = []
    for number, line in enumerate(run.log):
        match = LOG_LINE.fullmatch(line)
        if not match or int(match[1]) != number:
            yield f"host_worker_log, line {number}: {line!r}"
            return
        changes.append((match[2], match[3], int(match[4])))
    members = collections.Counter(run.base)
    for change, host, _ in changes:
        members[host] += 1 if change == "ADDED" else -1
        if members[host] < 0:
            yield f"host_worker_log removes more workers of {host} than there were"
    hosts = {e["worker"]: e["host"].rsplit(":", 1)[0] for e in run.events if e["event"] == "worker_launched"}
    ended = {w for w, log in run.logs.items() if log and log[-1]["event"] == "end"}
    unknown = [w for w in ended if w not in hosts]
    there = collections.Counter(hosts[w] for w in ended if w in hosts)
    if not unknown and +members != there:
        yield f"host_worker_log leads to {dict(+members)}, and at the end there were {dict(there)}"


def events_agree_with_log(run):
    numbers = [e["n"] for e in run.events]
    if numbers != list(range(len(numbers))):
        yield "events.jsonl is not numbered through"
    names = {"worker_added": "ADDED", "worker_removed": "REMOVED"}
    told = collections.Counter((names[e["event"]], e["host"].rsplit(":", 1)[0]) for e in run.events if e["event"] in names)
    logged = collections.Counter(tuple(line.split()[1:3]) for line in run.log)
    if told - logged:
        yield f"events.jsonl tells of what is not in host_worker_log: {dict(told - logged)}"
    if logged - told:
        yield f"host_worker_log has what events.jsonl does not tell of: {dict(logged - told)}"


def nobody_waited_too_long(run):
    for worker, log in run.logs.items():
        entered = None
        for line in log:
            if line["event"] == "boundary_enter":
                entered = line
            elif line["event"] == "boundary_leave" and entered:
                begin, wait = entered["t_ns"] / 1e9, (line["t_ns"] - entered["t_ns"]) / 1e9
                bound = SETTLED_WAIT_S if begin > run.faults_over_at + SETTLING_S else LONGEST_WAIT_S
                if wait > bound:
                    yield (f"worker {worker} waited {wait:.1f} s at the boundary of epoch {line['epoch']}, "
                           f"from {begin - run.began_at:.1f} s on")


def all_ended_together(run, epochs):
    """Whoever said goodbye had done the last epoch; somebody did."""
    ended = [w for w, log in run.logs.items() if log and log[-1]["event"] == "end"]
    if not ended:
        yield "no worker came to the end"
    for worker in ended:
        if run.logs[worker][-1]["epoch"] != epochs - 1:
            yield f"worker {worker} ended in epoch {run.logs[worker][-1]['epoch']}"
    for worker, line in run.lines("error"):
        if line.get("epoch") == epochs - 1:
            yield f"worker {worker} ended with an error in the last epoch: {line}"


def model_is_as_good(run, undisturbed):
    if run.accuracy() < undisturbed - ACCURACY_TOLERANCE:
        yield f"accuracy {run.accuracy():.3f}, and {undisturbed:.3f} undisturbed"


def check(run, epochs, undisturbed):
    """Everything that is wrong."""
    out = []
    for rule in (workers_started_once, epochs_released_once, steps_done_once, weights_agree, checkpoints_are_the_weights,
                 change_log_adds_up, events_agree_with_log, nobody_waited_too_long):
        out += [f"{rule.__name__}: {text}" for text in rule(run)]
    out += [f"all_ended_together: {text}" for text in all_ended_together(run, epochs)]
    out += [f"model_is_as_good: {text}" for text in model_is_as_good(run, undisturbed)]
    return out

