"""CPU time and starting times of processes, from /proc."""
import os
import subprocess
import time


def cpu_s(pid):
    """CPU seconds of a process's living threads so far, from schedstat; 0 if that is missing."""
    try:
        tasks = os.listdir("/proc/%d/task" % pid)
        return sum(int(open("/proc/%d/task/%s/schedstat" % (pid, task)).read().split()[0]) for task in tasks) / 1e9
    except (OSError, IndexError):
        return 0.0


def stat(pid):
    """The fields of /proc/PID/stat from the state on; the parent is [1], the start in ticks [19]."""
    with open("/proc/%d/stat" % pid) as file:
        return file.read().rsplit(")", 1)[1].split()


def parent(pid):
    return int(stat(pid)[1])


def age_s(pid):
    """How long ago a process was started, to a tick of 10 ms."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) - int(stat(pid)[19]) / os.sysconf("SC_CLK_TCK")


def command(pid):
    with open("/proc/%d/cmdline" % pid, "rb") as file:
        return file.read().replace(b"\0", b" ").decode(errors="replace").strip()


def of_folder(top, folder):
    """{pid: command} of the processes that belong to jobs run in a folder, and the ssh sessions
    (not the listening sshds) that lead to them."""
    listed = subprocess.run([os.path.join(top, "scripts/leftovers.py"), folder], stdout=subprocess.PIPE, text=True)
    found = {}
    for line in listed.stdout.splitlines():
        pid, _, text = line.partition(" ")
        found[int(pid)] = text
    for pid in [pid for pid, text in found.items() if "dtagent --attach" in text]:
        try:
            for _ in range(3):
                pid = parent(pid)
                if command(pid).startswith("sshd: "):
                    found[pid] = command(pid)
        except (OSError, IndexError):
            pass  # the session has just ended
    return found
