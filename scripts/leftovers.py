#!/usr/bin/env python3
"""Lists, as "PID command", the processes that belong to jobs run in a folder.

usage: leftovers.py FOLDER
A process belongs to the folder if its command line or environment names it, or if it carries the
marker (DT_MARK) of a job whose folder lies below. The caller's ancestors and process group (its
pipes and background jobs) are left out. Exit 1 if there is one.
"""
import glob
import os
import sys


def read(pid, name):
    with open(f"/proc/{pid}/{name}", "rb") as file:
        return file.read()


def ancestors(pid):
    while pid > 0:
        yield pid
        try:
            pid = int(read(pid, "stat").rsplit(b")", 1)[1].split()[1])
        except (OSError, ValueError):
            return


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    folder = sys.argv[1].rstrip("/")
    own, group = set(ancestors(os.getpid())), os.getpgrp()
    jobs = {os.path.basename(d.rstrip("/")) for depth in ("", "*/", "*/*/")
            for d in glob.glob(f"{folder}/{depth}.dtlaunch/*/")}
    marks = [folder.encode()] + [f"DT_MARK={job}/".encode() for job in jobs]
    found = 0
    for pid in (int(name) for name in os.listdir("/proc") if name.isdigit()):
        if pid in own:
            continue
        try:
            state, _, process_group = read(pid, "stat").rsplit(b")", 1)[1].split()[:3]
            if state in (b"Z", b"X") or int(process_group) == group:
                continue
            command, environment = read(pid, "cmdline"), read(pid, "environ")
        except OSError:
            continue
        if any(mark in command or mark in environment for mark in marks):
            found += 1
            print(pid, command.replace(b"\0", b" ").decode(errors="replace").strip()[:160])
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
