#!/usr/bin/env python3
"""Compares what runs with the table of packaging/doc/processes.md.

usage: processes.py PAGE FOLDER NAME...
Looks at the processes whose environment or command names FOLDER for 2 s, and until one of each NAME, a first cell of the
table, was there, at most 60 s. A program of ours without a row, a thread without a name in its row, and more threads than
the row says are wrong if they last: exit 1.
"""
import collections
import os
import re
import sys
import time

LASTS_S = 0.3  # a process that has just been forked has its parent's name
PROGRAMS = ("dtlaunch", "dtsupervisor", "dtfleet", "dtagent", "dtserver", "dtctl", "dtgpucheck")


def read(pid, name):
    with open(f"/proc/{pid}/{name}", "rb") as file:
        return file.read().decode(errors="replace")


def rows_of(page):
    """Name to (most threads, their names); a row's fourth cell begins with the number, if there is a bound."""
    rows = {}
    for line in page.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        for name in (re.findall(r"`([^`]+)`", cells[0]) or cells[:1]) if len(cells) == 5 else ():
            rows[name] = int((re.match(r"\d+", cells[3]) or ["1000000"])[0]), set(re.findall(r"`([^`]+)`", cells[3]))
    return rows


def name_of(pid):
    """The first cell of its row; None: it is none of ours."""
    words, comm = read(pid, "cmdline").split("\0"), read(pid, "comm").strip()
    if os.path.basename(os.readlink(f"/proc/{pid}/exe")).removesuffix(" (deleted)") not in PROGRAMS:
        return "a worker" if "\0DT_ROLE=worker\0" in "\0" + read(pid, "environ") else None
    mode = next((word for word in words[1:] if word in ("--attach", "--daemon", "--hold", "--check", "--clean")), "")
    return f"{comm} {mode}".strip() if comm == "dtagent" else comm


def main():
    page, folder, wanted = sys.argv[1], sys.argv[2], set(sys.argv[3:])
    with open(page, encoding="utf-8") as file:
        rows = rows_of(file.read())
    wrong, seen = {}, collections.Counter()
    begin = time.monotonic()
    while (now := time.monotonic() - begin) < 2 or now < 60 and not wanted <= seen.keys():
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                if folder not in read(pid, "environ") + read(pid, "cmdline"):
                    continue
                name = name_of(pid)
                threads = [re.sub(r"\d+$", "N", read(pid, f"task/{task}/comm").strip()) for task in os.listdir(f"/proc/{pid}/task")]
                own = read(pid, "comm").strip()
            except OSError:
                continue
            if name is None:
                continue
            if name == "a worker":  # the others are its program's
                threads = [thread for thread in threads if thread.startswith("dtkv-")]
            most, names = rows.get(name, (0, set()))
            seen[name] = max(seen[name], len(threads))
            if name not in rows:
                wrong.setdefault(f"process {pid}: {name} has no row", []).append(now)
            elif len(threads) > most or not set(threads) <= names | {own}:
                wrong.setdefault(f"process {pid}: {name} has the threads {sorted(threads)}", []).append(now)
        time.sleep(0.01)  # between two looks, not a wait
    bad = [f"not seen: {name}" for name in sorted(wanted - seen.keys())]
    bad += [f"{text}" for text, at in wrong.items() if at[-1] - at[0] > LASTS_S]
    print(*(f"{name}: at most {count} threads" for name, count in sorted(seen.items())), *bad, sep="\n")
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())
