#!/usr/bin/env python3
"""The first process of a host of a chaos run, or of a master, in its own namespaces.

usage: host_init.py host FOLDER DISK JOB                 (FOLDER has sshd.conf; DISK is the volume, mounted at JOB)
       host_init.py master FOLDER DISK JOB [HIDDEN...]   (FOLDER has its clock, boot id and own disk; HIDDEN: others' folders)
Prints its process id, waits for a line (its network is made meanwhile), prints "ready" once its sshd listens, and its
volumes are there, and then reaps orphans. A master has no process ids of its own.
"""
import os
import signal
import socket
import subprocess
import sys
import time
from typing import NoReturn

sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))
import hosts  # noqa: E402


def start_sshd(folder: str) -> None:
    sshd = "/usr/sbin/sshd"
    subprocess.Popen([sshd, "-D", "-f", f"{folder}/sshd.conf", "-E", f"{folder}/sshd.log"], stdin=subprocess.DEVNULL,
                     stdout=subprocess.DEVNULL)
    until = time.monotonic() + 10
    while "Server listening" not in open(f"{folder}/sshd.log").read() if os.path.exists(f"{folder}/sshd.log") else True:
        if time.monotonic() > until:
            sys.exit("sshd does not listen")
        time.sleep(0.02)  # between two looks, not a wait


def stay() -> NoReturn:
    print("ready", flush=True)
    while True:
        try:
            os.wait()
        except ChildProcessError:
            signal.pause()


def be_host(folder: str, disk: str, job: str) -> NoReturn:
    hosts.die_with_parent()
    hosts.private_mounts()
    sys.stdin.readline()
    hosts.mount_volume(disk, job, f"{folder}/volume")
    if os.path.exists(f"{folder}/sshd.log"):
        os.remove(f"{folder}/sshd.log")
    start_sshd(folder)
    stay()


def be_master(folder: str, disk: str, job: str, hidden: list[str]) -> NoReturn:
    hosts.unshare(hosts.NEW_NS | hosts.NEW_UTS | hosts.NEW_NET)
    hosts.be_private()
    socket.sethostname(os.path.basename(folder))
    hosts.mount(f"{folder}/boot_id", "/proc/sys/kernel/random/boot_id", "none", hosts.MS_BIND)
    for other in hidden:
        hosts.mount("none", other, "tmpfs")
    print(os.getpid(), flush=True)
    sys.stdin.readline()
    hosts.mount_volume(disk, job, f"{folder}/volume")
    hosts.mount_volume(f"{folder}/disk", f"{folder}/state", f"{folder}/journal")
    stay()


def main() -> None:
    hosts.die_with_parent()
    what, folder, *others = sys.argv[1:]
    if what == "master":
        be_master(folder, others[0], others[1], others[2:])
    hosts.unshare(hosts.NEW_NS | hosts.NEW_UTS | hosts.NEW_IPC | hosts.NEW_PID | hosts.NEW_NET)
    child = os.fork()
    if child == 0:
        be_host(folder, *others)
    print(child, flush=True)
    os.waitpid(child, 0)


if __name__ == "__main__":
    main()
