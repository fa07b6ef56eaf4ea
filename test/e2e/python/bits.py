#!/usr/bin/python3
"""Programs with dt.Job whose weights must have the same bits whether its exchange overlaps with compute or not, and the same
as before it could. A case is LOOP/PART/OPTIMIZER/WORLD.

    bits.py cases                all cases
    bits.py is-known             0: bits.txt has what this machine's PyTorch computes
    bits.py run CASE FOLDER      a worker
    bits.py check FOLDER...      a line for each: "CASE ok" or "CASE why it fails". FOLDER is WHAT.on or WHAT.off
    bits.py note FOLDER...       writes their weights to bits.txt
"""

import hashlib
import itertools
import json
import os
import pathlib
import signal
import sys

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset

import dtkv.torch as dt
from cases import error_of
from zoo import waits_for

KNOWN = pathlib.Path(__file__).with_suffix(".txt")
COUNT, BATCH, EPOCHS, WIDTH = 51, 8, 2, 64  # 7 steps; the last one is short
OPTIMIZERS = {"sgd": "sgd", "momentum": "sgd momentum=0.9 weight_decay=1e-4", "adam": "adam"}
ME = int(os.environ.get("DT_WORKER_ID", 0))
_random = torch.Generator().manual_seed(1)
X = torch.randn(COUNT, WIDTH, generator=_random)
TOKENS = torch.randint(WIDTH, (COUNT,), generator=_random)
Y = (X[:, 0] > 0).long()

# ---------------------------------------------------------------- models


class Linear(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(WIDTH, WIDTH)

    def forward(self, x, tokens):
        return self.layer(x)


class BatchNorm(Linear):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(WIDTH)

    def forward(self, x, tokens):
        return self.norm(self.layer(x))


class Lstm(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.LSTM(WIDTH, WIDTH, batch_first=True)

    def forward(self, x, tokens):
        return self.layer(x.unsqueeze(1).repeat(1, 3, 1))[0].sum(1)


class Twice(Linear):
    def forward(self, x, tokens):
        return self.layer(torch.tanh(self.layer(x)))


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(WIDTH, WIDTH)

    def forward(self, x, tokens):
        return (x + self.words(tokens)) @ self.words.weight.t()


class Unused(Linear):
    def forward(self, x, tokens):
        return x


class Frozen(Linear):
    def __init__(self):
        super().__init__()
        self.requires_grad_(False)


class Double(Linear):
    def __init__(self):
        super().__init__()
        self.double()

    def forward(self, x, tokens):
        return self.layer(x.double()).float()


class Checkpointed(Linear):
    def forward(self, x, tokens):
        if not torch.is_grad_enabled():  # it would warn
            return torch.tanh(self.layer(x))
        return checkpoint(lambda x: torch.tanh(self.layer(x)), x, use_reentrant=True)


PARTS = {one.__name__: one for one in (BatchNorm, Lstm, Twice, Tied, Unused, Frozen, Double, Checkpointed)}


class Net(nn.Module):
    """Its first layers have 1 MiB each, so that some gradients leave before others are there."""

    def __init__(self, part):
        super().__init__()
        self.base = nn.Sequential(nn.Linear(WIDTH, 4096), nn.ReLU(), nn.Linear(4096, WIDTH))
        self.parts = nn.ModuleList(PARTS[name]() for name in ([part] if part != "all" else PARTS))
        self.out = nn.Linear(WIDTH, 2)

    def forward(self, x, tokens):
        x = self.base(x)
        return self.out(sum(part(x, tokens) for part in self.parts) / len(self.parts))


# ---------------------------------------------------------------- loops


def loss_of(net, ids):
    return F.cross_entropy(net(X[ids], TOKENS[ids]), Y[ids])


def plain(job, net, ids, step):
    loss_of(net, ids).backward()
    job.step(len(ids))


def two_backwards(job, net, ids, step):
    loss_of(net, ids).backward()
    plain(job, net, ids, step)


def accumulate(job, net, ids, step):
    job.samples = len(ids)
    with job.accumulate():
        loss_of(net, ids[: len(ids) // 2]).backward()
    plain(job, net, ids, step)


def rates(job, net, ids, step):
    job.lr = 0.05 / (1 + job.epoch * 10 + step)
    plain(job, net, ids, step)


def rates_of_steps(job, net, ids, step):
    loss_of(net, ids).backward()
    job.step(len(ids), lr=0.05 / (1 + job.epoch * 10 + step))


def clips(how):
    def step_of(job, net, ids, step):
        loss_of(net, ids).backward()
        how(net)
        job.step(len(ids))

    return step_of


def by_numpy(net):
    for p in net.parameters():
        if p.grad is not None:
            p.grad.numpy()[...] *= 0.5


def without_backward(job, net, ids, step):
    if step == 3 and ME == 1:
        job.step(0)
    else:
        plain(job, net, ids, step)


def average(job, net, ids, step):
    """Each step is followed by a use of all weights."""
    plain(job, net, ids, step)
    with torch.no_grad():
        for mean, p in zip(net.means, net.parameters()):
            mean.mul_(0.9).add_(p, alpha=0.1)


def evaluates(job, net, ids, step):
    plain(job, net, ids, step)
    net.eval()
    with torch.no_grad():
        net.seen.append(net(X[:5], TOKENS[:5]).sum().item())
    net.train()


def killed(job, net, ids, step):
    """Worker 1 ends before backward has the first gradient."""
    out = net(X[ids], TOKENS[ids])
    if ME == 1 and (job.epoch, step) == (1, 3):
        out.register_hook(lambda _: os.kill(os.getpid(), signal.SIGKILL))
    F.cross_entropy(out, Y[ids]).backward()
    job.step(len(ids))


def server_lost(job, net, ids, step):
    plain(job, net, ids, step)
    if ME == 0 and (job.epoch, step) == (1, 3) and not job.rolled_back:
        pathlib.Path(sys.argv[3], "has_stepped").touch()
        waits_for(pathlib.Path(sys.argv[3], "goes_on"))


def mixed(job, net, ids, step):
    """Worker 1 alone does not overlap: see train()."""
    plain(job, net, ids, step)


LOOPS = {
    **{one.__name__: one for one in (plain, two_backwards, accumulate, rates, rates_of_steps, without_backward, average,
                                     evaluates, killed, server_lost, mixed)},
    "fewer": plain,
    "clip_norm": clips(lambda net: nn.utils.clip_grad_norm_(net.parameters(), 0.1)),
    "clip_value": clips(lambda net: nn.utils.clip_grad_value_(net.parameters(), 0.01)),
    "clip_numpy": clips(by_numpy),
}  # fmt: skip
NEVER = "two_backwards", "rates_of_steps", "clip_norm", "clip_value", "clip_numpy"
CASES = [f"plain/{part}/momentum/2" for part in PARTS]
CASES += [f"plain/all/{optimizer}/{world}" for optimizer, world in itertools.product(OPTIMIZERS, (1, 2, 3))]
CASES += [f"{loop}/all/momentum/2" for loop in LOOPS if loop != "plain"]


def train(case, folder):
    loop, part, optimizer, _ = case.split("/")
    torch.manual_seed(7)
    torch.set_num_threads(1)
    net = Net(part)
    net.means, net.seen = [p.detach().clone() for p in net.parameters()], []
    options = {"overlap": False} if loop == "mixed" and ME == 1 and hasattr(dt.Job, "overlap") else {}
    with dt.Job(net, OPTIMIZERS[optimizer], 0.05, **options) as job:
        batches = job.batches(COUNT, BATCH, global_batch=BATCH, least=2)
        if loop == "fewer":
            dt.own_data()
            batches = [list(range(ME + i, COUNT, 7)) for i in range(7 - 3 * ME)]
        loader = DataLoader(TensorDataset(torch.arange(COUNT)), batch_sampler=batches)
        for _ in job.epochs(EPOCHS):
            for step, (ids,) in enumerate(loader):
                LOOPS[loop](job, net, ids, step)
        seen = [*net.state_dict().values(), *net.means, torch.tensor(net.seen)]
        bits = hashlib.sha256(b"".join(one.detach().numpy().tobytes() for one in seen)).hexdigest()
        facts = {"bits": bits, "overlap": getattr(job, "overlap", "")}
    pathlib.Path(folder, f"{ME}.json").write_text(json.dumps(facts))


# ---------------------------------------------------------------- verdicts


def machine():
    """What a program by PyTorch alone computes here, and the processor's vector units, which the servers use."""
    torch.manual_seed(7)
    torch.set_num_threads(1)
    net = Net("all")
    optimizer = torch.optim.Adam(net.parameters(), 0.01)
    for _ in range(3):
        optimizer.zero_grad()
        loss_of(net, torch.arange(COUNT)).backward()
        optimizer.step()
    bits = hashlib.sha256(b"".join(one.numpy().tobytes() for one in net.state_dict().values()))
    flags = pathlib.Path("/proc/cpuinfo").read_text().split("flags", 1)[-1].split("\n", 1)[0].split()
    bits.update(" ".join(sorted(one for one in flags if one.startswith(("avx", "fma", "sse")))).encode())
    return f"{torch.__version__}/{bits.hexdigest()[:12]}"


def known():
    """By machine and case."""
    rows = [line.split() for line in KNOWN.read_text().splitlines() if not line.startswith("#")] if KNOWN.exists() else []
    return {(row[0], row[1]): row[2] for row in rows}


def facts_of(folder):
    return [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]


def check(folder, bits_before):
    """Why it fails, or nothing."""
    case, is_on = (folder / "case").read_text().strip(), folder.suffix == ".on"
    loop, _, _, world = case.split("/")
    status = (folder / "status").read_text().strip()
    out = (folder / "out").read_text()
    if status != "0" and loop != "killed":
        return f"exit status {status}: {error_of(out)}"
    found = facts_of(folder)
    if len(found) != int(world) - (loop == "killed"):
        return f"{len(found)} workers came to the end: {error_of(out)}"
    if len({one["bits"] for one in found}) != 1 and loop not in ("average", "evaluates"):
        return "the workers differ"
    wanted = ["no" if not is_on or loop in NEVER or (loop == "mixed" and i == 1) else "yes" for i in range(len(found))]
    said = [one["overlap"][:3].strip() or want for one, want in zip(found, wanted)]  # none: a package that cannot overlap
    if loop != "fewer" and said != wanted:
        return f"it overlaps: {[one['overlap'] for one in found]}"
    if "Warning: " in out:
        return f"it warns: {out}"
    if bits_before is not None and found[0]["bits"] != bits_before:
        return "its weights are not those of a job whose exchange does not overlap"
    return None


def main():
    what, *words = sys.argv[1:]
    folders = list(map(pathlib.Path, words))
    if what == "cases":
        print(*CASES)
    elif what == "run":
        train(*words)
    elif what == "is-known":
        sys.exit(machine() not in {here for here, _ in known()})
    elif what == "check":
        here, rows = machine(), known()
        off = {(one / "case").read_text(): facts_of(one)[0]["bits"] for one in folders if one.suffix == ".off" and facts_of(one)}
        for folder in folders:
            case = (folder / "case").read_text()
            before = rows.get((here, case.strip()), off.get(case))
            print(folder.suffix[1:], case.strip(), check(folder, before) or ("ok" if before else "has nothing to compare with"))
    else:
        here, rows = machine(), known()
        for folder in folders:
            rows[here, (folder / "case").read_text().strip()] = facts_of(folder)[0]["bits"]
        text = "# Machine, case and SHA-256 of the weights: see bits.py.\n"
        KNOWN.write_text(text + "".join(f"{at} {case} {bits}\n" for (at, case), bits in sorted(rows.items())))


if __name__ == "__main__":
    main()
