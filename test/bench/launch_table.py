"""Runs commands by turns, in a random order, and prints a table: wall time, CPU time of the command with all its
children, and the peak of their summed resident sizes (sampled).

    launch_table.py TITLE RUNS WORD,WORD < TOOLS

TOOLS is JSON, {name: [command, environment]}; what the environment names is added to this process's own. Only tools
whose names contain a WORD run. The first one is what the others are compared with.
"""
import json
import os
import random
import statistics
import subprocess
import sys
import time


def rss(root):
    """kB resident in a process and all below it."""
    parents, size = {}, {}
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit():
            continue
        try:
            with open(entry.path + "/stat") as f:
                rest = f.read().rsplit(")", 1)[1].split()
        except OSError:
            continue
        parents[int(entry.name)] = int(rest[1])
        size[int(entry.name)] = int(rest[21]) * 4
    total = 0
    for p in size:
        q = p
        while q > 1 and q != root:
            q = parents.get(q, 0)
        total += size[p] if q == root else 0
    return total

def measure(argv, extra):
    environment = dict(os.environ, **extra)
    start = time.monotonic()
    child = subprocess.Popen(argv, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                             stderr=subprocess.DEVNULL)
    peak = 0
    while True:
        done, status, used = os.wait4(child.pid, os.WNOHANG)
        if done:
            child.returncode = os.waitstatus_to_exitcode(status)
            return (time.monotonic() - start, used.ru_utime + used.ru_stime,
                    max(peak, used.ru_maxrss) / 1024, child.returncode)
        peak = max(peak, rss(child.pid))
        time.sleep(0.05)  # how long between two samples, not a wait


def main():
    title, runs, only = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    tools = {name: tool for name, tool in json.load(sys.stdin).items() if any(word in name for word in only.split(","))}
    results = {name: [] for name in tools}
    for _ in range(runs):
        order = list(tools)
        random.shuffle(order)
        for name in order:
            got = measure(*tools[name])
            if got[3] != 0:
                print("%s failed with exit code %d" % (name, got[3]))
            results[name].append(got)
            time.sleep(0.3)  # how long the machine rests, not a wait
    print("%s, %d interleaved runs, median [min-max]; load %.1f" % (title, runs, os.getloadavg()[0]))
    print("%-24s %-22s %-22s %s" % ("", "wall s", "client CPU s", "client memory MB"))
    first = None
    for name, got in results.items():
        def cell(i, form):
            values = [run[i] for run in got]
            return (form + " [" + form + "-" + form + "]") % (statistics.median(values), min(values), max(values))

        wall, cpu = (statistics.median(run[i] for run in got) for i in (0, 1))
        ratio = "%.2fx wall, %.0fx client CPU" % (wall / first[0], cpu / first[1]) if first else ""
        first = first or (wall, cpu)
        print("%-24s %-22s %-22s %-18s %s" % (name, cell(0, "%.2f"), cell(1, "%.3f"), cell(2, "%.0f"), ratio))


if __name__ == "__main__":
    main()
