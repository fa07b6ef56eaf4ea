"""A snippet of the documents as a worker. The training begins with one worker; a second one joins, and leaves again.

    documents.py names             of all snippets
    documents.py run NAME FOLDER   a worker; the file FOLDER/ID.json has the worlds of its epochs
    documents.py check FOLDER...   a line for each: "NAME ok" or "NAME why it is not what it should be"
"""

import json
import os
import pathlib
import re
import sys
import time

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "kvstore/python"))
import snippets  # noqa: E402

HELD = 2
"""Worker 0 stays at the begin of so many epochs until FOLDER/go.N is there: the test edits host_worker meanwhile, the first
time after FOLDER/begun."""


def watched(boundary, folder, worker, worlds):
    """Store.epoch_boundary, below epochs() of every level, that notes the world and holds the lead."""

    def epoch_boundary(self, epoch):
        view = boundary(self, epoch)
        if worker == 0 and len(worlds) < HELD:
            (folder / "begun").touch()
            while not (folder / f"go.{len(worlds)}").exists():
                time.sleep(0.01)  # between two looks, not a wait
        worlds.append(view.num_workers)
        return view

    return epoch_boundary


def run(name, folder):
    import torch

    import dtkv

    worker, worlds, folder = int(os.environ["DT_WORKER_ID"]), [], pathlib.Path(folder)
    torch.manual_seed(worker)
    torch.set_num_threads(1)
    dtkv.Store.epoch_boundary = watched(dtkv.Store.epoch_boundary, folder, worker, worlds)
    snippets.run(name)
    (folder / f"{worker}.json").write_text(json.dumps(worlds))


def check(folder):
    """Why it is not as documented, or nothing."""
    out, changes, removed = ((folder / name).read_text() for name in ("out", "changes", "removed"))
    worlds = [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]
    status = int((folder / "status").read_text())
    complaint = re.findall(r".*(?:\b\w*Error\b|dtkv\.errors\.|Warning\b|Traceback).*", out)
    if complaint:
        return f"exit status {status}, and it complains: {complaint[-1]}"
    if status != 0:
        return f"exit status {status}{', after a minute' if status == 124 else ''}"
    if len(worlds) != 2:
        return f"{len(worlds)} of 2 workers came to the program's end"
    if worlds[0][:3] != [1, 2, 1] or 2 in worlds[0][3:] or worlds[1] != [2]:
        return f"the worlds of the epochs are {worlds[0]}, and {worlds[1]} for who joined and left"
    if changes != "0 ADDED localhost\n1 REMOVED localhost\n":
        return f"host_worker_log is {changes!r}"
    if "worker 1 on localhost is no member any more (exit code 0)" not in removed:
        return f"who left did not end as it should: {removed.strip()}"
    return None


def main():
    what, *words = sys.argv[1:]
    if what == "names":
        unknown = snippets.found().keys() ^ snippets.SNIPPETS.keys()
        assert not unknown, f"no snippet, or one without a row in SNIPPETS: {unknown}"
        print(*snippets.SNIPPETS)
    elif what == "run":
        run(*words)
    elif what == "check":
        for folder in map(pathlib.Path, words):
            print(f"documents/{folder.name}", check(folder) or "ok")


if __name__ == "__main__":
    main()
