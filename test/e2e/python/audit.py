"""audit.py LOG...: of job.py's workers: every epoch that all its workers ended used each sample once, every total was
right, and the workers had the same weights, registered states, checksums and positions, where they give them. An epoch
that begins again after the loss of a server has the checksums that it began with before. Prints how many epochs of how many
world sizes were looked at, and how many began again."""

import collections
import json
import pathlib
import sys

again = 0
begins, ends = collections.defaultdict(list), collections.defaultdict(list)
for path in sys.argv[1:]:
    latest = {}
    for line in pathlib.Path(path).read_text(encoding="utf-8").splitlines():
        if line.endswith("}"):
            one = json.loads(line)
            earlier = latest.get((one["event"], one["epoch"]))
            if one.get("rolled_back") and earlier and "state" in one:
                if one["state"] != earlier["state"]:
                    sys.exit(f"{path}: epoch {one['epoch']} begins again with another state than before")
                again += 1
            latest[one["event"], one["epoch"]] = one  # an epoch that was run again counts as it was last
    for (event, epoch), one in latest.items():
        (ends if event == "end" else begins)[epoch].append(one)

audited, worlds, before = 0, collections.Counter(), None
for epoch, of_epoch in sorted(ends.items()):
    world, count = of_epoch[0]["world"], of_epoch[0]["count"]
    if len(of_epoch) != world:
        continue  # a worker was killed or has not ended it yet
    used = sorted(i for one in of_epoch for i in one["used"])
    if used != list(range(count)):
        twice = [i for i, n in collections.Counter(used).items() if n > 1]
        sys.exit(f"epoch {epoch}: {len(used)} of {count} samples, twice: {twice[:9]}")
    for one in of_epoch:
        if one["total"] != count:
            sys.exit(f"epoch {epoch}: the total is {one['total']}, not {count}")
    if len({round(one["weights"], 9) for one in of_epoch}) != 1:
        sys.exit(f"epoch {epoch}: weights differ: {[one['weights'] for one in of_epoch]}")
    for one in of_epoch:
        if len(set(one.get("positions", ()))) > 1:
            sys.exit(f"epoch {epoch} began at sample {one['positions'][0]}, not {one['positions'][1]}, of its sequence")
    if "states" in of_epoch[0]:
        if len({tuple(one["states"]) for one in of_epoch}) != 1:
            sys.exit(f"epoch {epoch}: registered states differ: {[one['states'] for one in of_epoch]}")
        mean, lead = of_epoch[0]["states"]
        is_next = before is not None and before[0] == epoch - 1
        if is_next and (abs(mean - before[1] - before[3]) > 1e-6 or lead <= before[2]):
            sys.exit(f"epoch {epoch}: the states {mean}, {lead} came after {before}")
        # Each worker adds 1 / (its rank + 1) to the mean.
        before = epoch, mean, lead, sum(1 / (r + 1) for r in range(world)) / world
    for one in begins[epoch + 1]:
        if "state" in one and not one["rolled_back"] and one["state"][1:] != of_epoch[0]["state"][1:]:
            sys.exit(f"epoch {epoch + 1} does not begin with the state that epoch {epoch} ended with")
    # BatchNorm's statistics are each worker's own until the epoch is over.
    first, last = {str(one.get("state")) for one in begins[epoch]}, {str(one.get("state", [])[1:]) for one in of_epoch}
    if len(first) != 1 or len(last) != 1:
        sys.exit(f"epoch {epoch}: states differ: {[one['state'] for one in begins[epoch] + of_epoch]}")
    audited += 1
    worlds[world] += 1
print(f"{audited} epochs, {' '.join(f'{n} of world size {world}' for world, n in sorted(worlds.items()))}; {again} begun again")
