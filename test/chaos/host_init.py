#!/usr/bin/env python3
"""The first process of a host of a chaos run, in its own namespaces.

usage: host_init.py [FOLDER [DISK JOB]]   (FOLDER has sshd.conf; DISK is mounted at JOB through sshfs)
Prints its process id, waits for a line (its network is made meanwhile), prints "ready" once its sshd
listens, and then reaps orphans. Without FOLDER it only keeps a network: the master's.
"""
import os
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))
import hosts  # noqa: E402


def start_sshd(folder):
    sshd = "/usr/sbin/sshd"
    subprocess.Popen([sshd, "-D", "-f", f"{folder}/sshd.conf", "-E", f"{folder}/sshd.log"], stdin=subprocess.DEVNULL,
                     stdout=subprocess.DEVNULL)
    until = time.monotonic() + 10
    while "Server listening" not in open(f"{folder}/sshd.log").read() if os.path.exists(f"{folder}/sshd.log") else True:
        if time.monotonic() > until:
            sys.exit("sshd does not listen")
        time.sleep(0.02)


def be_host(folder, volume):
    hosts.die_with_parent()
    hosts.private_mounts()
    sys.stdin.readline()
    if volume:
        hosts.forget_mount(volume[1])
        hosts.mount_volume(*volume)
    if os.path.exists(f"{folder}/sshd.log"):
        os.remove(f"{folder}/sshd.log")
    start_sshd(folder)
    print("ready", flush=True)
    while True:
        try:
            os.wait()
        except ChildProcessError:
            signal.pause()


def main():
    hosts.die_with_parent()
    if len(sys.argv) == 1:
        hosts.unshare(hosts.NEW_NET)
        print(os.getpid(), flush=True)
        sys.stdin.readline()
        print("ready", flush=True)
        while True:
            signal.pause()
    hosts.unshare(hosts.NEW_NS | hosts.NEW_UTS | hosts.NEW_IPC | hosts.NEW_PID | hosts.NEW_NET)
    child = os.fork()
    if child == 0:
        be_host(sys.argv[1], sys.argv[2:])
    print(child, flush=True)
    os.waitpid(child, 0)


if __name__ == "__main__":
    main()
