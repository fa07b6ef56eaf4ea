#!/usr/bin/env python3
"""Which folder may include which. The table MAY below is the architecture.
No rooms (x.h with x.cpp is one room) include each other in a circle, but for those in CIRCLES.

usage: layers.py [ROOT]              each include against the rules, as file:line: reason; exit 1 if there is one
       layers.py --report [ROOT]     per folder: files, lines, longest chain of includes, project headers reached
       layers.py --picture           the folders, a line a layer, as ARCHITECTURE.md has them between two marks
       layers.py --self-test         shows that each rule finds what breaks it

core and kvstore/protocol are pure (core/base/result.cpp's abort with a message aside): the standard library without
clocks, files, threads and randomness, fmt, tl::expected, Boost.PFR and, in .cpp files, nlohmann's JSON. kvstore/compute/cuda is compiled alone on machines with a
GPU: the standard library, CUDA and kernels.h. test/ may include everything.
"""
import os
import re
import statistics
import sys

# Folder: the folders whose headers it may include, besides its own. "core/*" are all folders below core.
MAY = {
    "core/base": "",
    "core/files": "core/base",
    "core/fleet": "core/base core/files",
    "core/launch": "core/base core/files core/fleet",
    "core/protocol": "core/base core/files",
    "core/preflight": "core/base core/files core/protocol",
    "core/job": "core/base core/files core/launch core/protocol",
    "io": "core/base core/protocol",
    "io/job": "core/base core/files core/fleet core/job core/launch core/preflight core/protocol io",
    "launcher": "core/base core/files core/job core/launch core/protocol io io/job",
    "launcher/agent": "core/base core/launch core/preflight core/protocol io io/job launcher",
    "launcher/backend": "core/base core/files core/launch io launcher",
    "launcher/backend/ssh": "core/base core/files io io/job launcher launcher/backend",
    "launcher/reach": "core/base core/files core/launch core/protocol io io/job launcher launcher/backend"
                      " launcher/backend/ssh",
    "launcher/check": "core/base core/files core/launch core/preflight core/protocol io io/job launcher"
                      " launcher/backend launcher/reach",
    "launcher/placement": "core/base core/files core/launch io io/job launcher",
    "launcher/cli": "core/* io io/job launcher launcher/check launcher/placement",
    "supervisor/volume": "core/* io io/job",
    "supervisor/context": "core/base core/job io io/job",
    "supervisor/control": "core/* io io/job launcher launcher/backend supervisor/context supervisor/volume",
    "supervisor/files": "core/* io io/job supervisor/context supervisor/volume",
    "supervisor/hosts": "core/* io io/job launcher launcher/backend launcher/check supervisor/context supervisor/control"
                        " supervisor/files supervisor/volume",
    "supervisor/fleet": "core/base core/files core/fleet core/launch core/protocol io io/job launcher/backend"
                        " launcher/placement",
    "supervisor/dtctl": "core/base core/files core/fleet core/launch core/protocol io io/job launcher"
                        " launcher/backend launcher/placement launcher/reach supervisor/fleet",
    "supervisor": "core/* io io/job launcher launcher/backend launcher/backend/ssh launcher/check launcher/reach"
                  " supervisor/context supervisor/control supervisor/files supervisor/hosts supervisor/volume",
    "kvstore/protocol": "core/base",
    "kvstore/compute/kernels": "",
    "kvstore/compute/cuda": "kvstore/compute/kernels/kernels.h",
    "kvstore/compute": "core/base kvstore/protocol kvstore/compute/*",
    "kvstore/link": "core/base core/protocol io io/job kvstore/protocol kvstore/compute kvstore/compute/cuda"
                    " kvstore/compute/kernels",
    "kvstore": "core/base kvstore/protocol kvstore/compute/cuda",  # the public headers and the contract behind them
    "kvstore/worker/links": "core/base core/protocol io kvstore kvstore/protocol kvstore/compute kvstore/compute/cuda"
                            " kvstore/link",
    "kvstore/worker/device": "core/base io kvstore kvstore/protocol kvstore/compute kvstore/compute/cuda kvstore/link"
                             " kvstore/worker/links",
    "kvstore/worker": "core/base core/protocol io kvstore kvstore/protocol kvstore/compute kvstore/compute/cuda"
                      " kvstore/link kvstore/worker/*",
    "kvstore/server/checkpoint": "core/base core/files io io/job kvstore/protocol kvstore/compute",
    "kvstore/server": "core/base core/protocol io io/job kvstore/protocol kvstore/compute kvstore/compute/* kvstore/link"
                      " kvstore/server/checkpoint",
    "kvstore/api": "core/base kvstore kvstore/protocol kvstore/compute kvstore/compute/cuda kvstore/link kvstore/server"
                   " kvstore/worker kvstore/worker/device",
    "kvstore/gpucheck": "core/base core/protocol io kvstore/compute/cuda",
    "trainer/data": "core/base kvstore/dtkv.h kvstore/kvstore.h",
    "trainer/models": "core/base",
    "trainer": "core/base core/files/safetensors.h kvstore/dtkv.h kvstore/kvstore.h trainer/data trainer/models",
    "trainer/examples": "core/base kvstore/dtkv.h kvstore/kvstore.h trainer/data",
}
TOP = ("core", "io", "launcher", "supervisor", "kvstore", "trainer")

# The circles of rooms that there are, each with its reason. No other one may come, and what ends is taken out.
CIRCLES = {
    "io/job/job_flags io/job/master_folders io/job/spec":
        "a spec is read and written by the rows of its flags, which set the spec's members; its default folders and the"
        " master's folders share home_dir and make_private_dir, which stand in spec.h",
    "kvstore/worker/calls kvstore/worker/client kvstore/worker/failover kvstore/worker/key_init kvstore/worker/member_state"
    " kvstore/worker/memory_sharing": "ClientOptions, which the client's parts read, are declared with the client",
    "kvstore/worker/links/server_link kvstore/worker/links/server_links":
        "a link tells all of them of loops, trouble and room to send; they own it",
    "launcher/backend/ssh/connect launcher/backend/ssh/pool launcher/backend/ssh/ssh":
        "SshLimits, which connections and pool read, are declared with the SshBackend",
}

# All headers of kvstore/compute/cuda but one are for every compiler.
CUDA = "kvstore/compute/cuda"
CUDA_HEADERS = re.compile(r"^(cuda\w*\.h|nccl\.h|dlfcn\.h|[a-z_]+)$")
ONLY_FOR_NVCC = CUDA + "/launch_kernel.h"

PURE = ("core/", "kvstore/protocol")
PURE_HEADERS = re.compile(r"^(boost/pfr/core\.hpp|fmt/[a-z]+\.h|tl/expected\.hpp|nlohmann/json\.hpp|[a-z_]+)$")
IMPURE_HEADERS = {
    "atomic", "barrier", "condition_variable", "coroutine", "csignal", "ctime",
    "filesystem", "fstream", "future", "iostream", "latch", "mutex", "random", "semaphore",
    "shared_mutex", "stop_token", "syncstream", "thread",
}
IMPURE_CODE = [
    (re.compile(r"\b\w*clock\w*::now\b|\bclock_gettime\b|\bgettimeofday\b|\bstd::time\s*\("), "reads a clock"),
    (re.compile(r"\b(?:secure_)?getenv\b|\benviron\b"), "reads the environment"),
    (re.compile(r"\bs?rand\s*\(|\brandom_device\b|\bmt19937"), "draws random numbers"),
    (re.compile(r"\bsleep_for\b|\bsleep_until\b|\busleep\b"), "sleeps"),
    (re.compile(r"\bsocket\s*\(|\bfopen\s*\(|::open\s*\("), "opens something"),
]
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
COMMENT_OR_TEXT = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"', re.S)


def is_allowed(folder, name):
    """Whether a file of `folder` may include the project's header `name`."""
    target = os.path.dirname(name)
    if target == folder:
        return True
    for may in MAY[folder].split():
        if may in (target, name) or may.endswith("/*") and target.startswith(may[:-1]):
            return True
    return False


def picture():
    """The table drawn: each folder as low as it can stand above all that it may include something of."""
    layers = {}

    def layer(folder):
        if folder not in layers:
            layers[folder] = 0
            may = MAY[folder].split()
            layers[folder] = 1 + max((layer(other) for other in MAY if other != folder and (
                is_allowed(folder, other + "/any.h") or any(m.endswith(".h") and os.path.dirname(m) == other for m in may))), default=0)
        return layers[folder]

    rows = [["", *TOP]] + [[str(number)] + [
        ", ".join(folder[len(top) + 1:] or top for folder in MAY if folder.split("/")[0] == top and layer(folder) == number)
        for top in TOP] for number in range(1, 1 + max(map(layer, MAY)))]
    widths = [max(map(len, column)) for column in zip(*rows)]
    return "".join("    " + "  ".join(map(str.ljust, row, widths)).rstrip() + "\n" for row in rows)


MARKS = ("<!-- layers.py --picture -->\n\n", "\n<!-- end of the picture -->\n")


def reasons_of_picture(text):
    """Yields what is wrong with the picture in the text of ARCHITECTURE.md."""
    if picture().join(MARKS) not in text:
        yield f"not the picture of the table: put the output of scripts/layers.py --picture between {' and '.join(map(str.strip, MARKS))}"


def reasons(path, text, exists):
    """Yields (line, reason) for a file by its path from the root; exists(name) tells which headers there are."""
    folder = os.path.dirname(path)
    if folder not in MAY:
        yield 1, f"{folder} is not in the table of scripts/layers.py: say there what it may include"
        return
    header = path.endswith((".h", ".hpp"))
    pure = path.startswith(PURE)
    for number, line in enumerate(text.splitlines(), 1):
        found = INCLUDE.match(line)
        if not found:
            continue
        kind, name = found.groups()
        if kind == '"':
            if name == "dtkv.h" and path == "kvstore/kvstore.h":
                continue  # installed side by side, below another folder
            if not exists(name):
                yield number, f'"{name}" is not a path from the top folder (system headers take <>)'
            elif not is_allowed(folder, name):
                yield number, f"{folder} may not include {name} (it may include: {MAY[folder] or 'nothing'})"
            elif name == ONLY_FOR_NVCC and not path.endswith(".cu"):
                yield number, f"{name} is for .cu files"
        elif folder == CUDA and not CUDA_HEADERS.match(name):
            yield number, f"{CUDA} has the standard library and CUDA, not <{name}>"
        elif folder == CUDA and header and name.startswith(("cuda", "nccl")) and path != ONLY_FOR_NVCC:
            yield number, f"keep <{name}> out of headers: they serve compilers without CUDA"
        elif pure and not PURE_HEADERS.match(name):
            yield number, f"{folder} is pure and may not include <{name}>"
        elif pure and name in IMPURE_HEADERS:
            yield number, f"{folder} is pure: <{name}> belongs in a shell"
        elif pure and header and name.startswith("nlohmann/"):
            yield number, f"keep <{name}> out of {folder}'s headers"
        elif path.endswith(".cu") and "asio" in name:
            yield number, f"nvcc can not compile Asio's coroutines: keep <{name}> out of .cu files"
        elif header and name.startswith("libssh/"):
            yield number, f"keep <{name}> out of headers: forward declare or use a struct Impl"
    if pure:
        blank = COMMENT_OR_TEXT.sub(lambda m: re.sub(r"[^\n]", " ", m.group(0)), text)
        for number, line in enumerate(blank.splitlines(), 1):
            for pattern, what in IMPURE_CODE:
                if pattern.search(line):
                    yield number, f"{folder} is pure: this {what}"


def sources(root):
    """{path from the root: text} of all sources."""
    found = {}
    for top in TOP:
        for where, folders, files in os.walk(os.path.join(root, top)):
            folders.sort()
            for name in sorted(files):
                if name.endswith((".h", ".hpp", ".cpp", ".cu")):
                    path = os.path.join(where, name)
                    with open(path, encoding="utf-8") as file:
                        found[os.path.relpath(path, root)] = file.read()
    return found


def includes_of(files):
    """{path: the project's headers that it includes} for {path: text}."""
    return {path: [m[2] for m in map(INCLUDE.match, text.splitlines()) if m and m[1] == '"' and m[2] in files]
            for path, text in files.items()}


def room_of(path):
    return os.path.splitext(path)[0]


def reasons_of_circles(files, listed):
    """Yields what is wrong with the circles of rooms beside those listed."""
    arrows = {}
    for path, names in includes_of(files).items():
        arrows.setdefault(room_of(path), set()).update({room_of(name) for name in names} - {room_of(path)})

    def paths_from(room):  # {a room that it reaches: the shortest path to it}
        paths, ends = {}, [[room]]
        for path in ends:
            for to in sorted(arrows.get(path[-1], ())):
                if to not in paths:
                    paths[to] = path + [to]
                    ends.append(paths[to])
        return paths

    reached = {room: paths_from(room) for room in arrows}
    circles = {frozenset(to for to in reached[room] if room in reached[to]) for room in arrows if room in reached[room]}
    known = [frozenset(rooms.split()) for rooms in listed]
    for circle in sorted(circles, key=sorted):
        if not any(circle <= rooms for rooms in known):
            new = min(circle.difference(*known) or circle)
            yield new + ": a circle of rooms: " + " -> ".join(reached[new][new])
    for rooms in known:
        left = {room for circle in circles if circle <= rooms for room in circle}
        if rooms not in circles and not any(rooms < circle for circle in circles):
            gone = " ".join(sorted(rooms - left))
            yield f"scripts/layers.py: {gone or 'what joins ' + ' '.join(sorted(rooms))}: in no such circle any more: take it out of CIRCLES"


def check(root):
    files = sources(root)
    if not files:
        sys.exit(f"layers: no sources under {root}")
    bad = 0
    with open(os.path.join(root, "ARCHITECTURE.md"), encoding="utf-8") as file:
        for reason in reasons_of_picture(file.read()):
            bad += 1
            print(f"ARCHITECTURE.md: {reason}")
    for path, text in files.items():
        for number, reason in reasons(path, text, lambda name: os.path.exists(os.path.join(root, name))):
            bad += 1
            print(f"{path}:{number}: {reason}")
    for reason in reasons_of_circles(files, CIRCLES):
        bad += 1
        print(reason)
    print(f"layers: {len(files)} files, {bad} against the rules")
    return bool(bad)


# Cases of each rule: a file, a line of it, a part of the reason ("" if the line is allowed).
CASES = [
    ("core/job/job.h", '#include "core/base/id.h"', ""),
    ("core/job/job.h", '#include "core/job/events.h"', ""),
    ("core/base/id.h", '#include "core/job/job.h"', "core/base may not include"),
    ("core/job/job.cpp", "#include <thread>", "belongs in a shell"),
    ("core/job/job.cpp", "#include <boost/asio.hpp>", "is pure and may not include"),
    ("core/files/safetensors.cpp", "#include <nlohmann/json.hpp>", ""),
    ("core/files/safetensors.h", "#include <nlohmann/json.hpp>", "out of core/files's headers"),
    ("core/job/job.cpp", "auto t = std::chrono::steady_clock::now();", "reads a clock"),
    ("core/job/job.cpp", "// steady_clock::now() is the caller's", ""),
    ("kvstore/protocol/layout.cpp", "#include <random>", "belongs in a shell"),
    ("kvstore/protocol/layout.cpp", '#include "kvstore/link/tcp.h"', "may not include"),
    ("kvstore/worker/client.cpp", '#include "kvstore/server/shard.h"', "may not include"),
    ("kvstore/server/shard.cpp", '#include "kvstore/worker/client.h"', "may not include"),
    ("kvstore/server/shard.cpp", '#include "kvstore/worker/links/request.h"', "may not include"),
    ("kvstore/link/tcp.cpp", '#include "kvstore/server/server.h"', "may not include"),
    ("kvstore/api/c_api.cpp", '#include "kvstore/worker/client.h"', ""),
    ("supervisor/supervisor.cpp", '#include "kvstore/store.h"', "may not include"),
    ("supervisor/volume/volume_client.cpp", '#include "supervisor/control/job_status.h"', "may not include"),
    ("launcher/agent/agent.cpp", '#include "launcher/backend/backend.h"', "may not include"),
    ("launcher/backend/ssh/ssh.h", "#include <libssh/libssh.h>", "out of headers"),
    ("trainer/module.cpp", '#include "kvstore/dtkv.h"', ""),
    ("trainer/module.cpp", '#include "kvstore/store.h"', "may not include"),
    ("trainer/module.cpp", '#include "io/fd.h"', "may not include"),
    ("trainer/checkpoint.cpp", '#include "core/files/safetensors.h"', ""),
    ("trainer/checkpoint.cpp", '#include "core/files/journal.h"', "may not include"),
    ("kvstore/compute/cuda/device.cpp", '#include "core/base/id.h"', "may not include"),
    ("kvstore/compute/cuda/device.cpp", "#include <fmt/format.h>", "has the standard library and CUDA"),
    ("kvstore/compute/cuda/device.h", "#include <cuda_runtime.h>", "out of headers"),
    ("kvstore/compute/cuda/device.cpp", '#include "kvstore/compute/cuda/launch_kernel.h"', "is for .cu files"),
    ("io/fd.h", '#include "fd.h"', "is not a path from the top folder"),
    ("io/new/thing.h", "", "is not in the table"),
]


# Includes, the circles listed, a part of the reason ("": nothing is wrong).
CIRCLE_CASES = [
    ("a.h>b.h b.h>c.h a.cpp>c.h", "", ""),
    ("a.h>b.h b.cpp>a.h", "", "a: a circle of rooms: a -> b -> a"),
    ("a.h>b.h b.cu>c.h c.h>a.h c.cpp>b.h", "", "a: a circle of rooms: a -> b -> c -> a"),
    ("a.h>b.h b.cpp>a.h", "a b", ""),
    ("a.h>b.h b.cpp>a.h c.h>d.h d.cpp>c.h", "a b", "c: a circle of rooms: c -> d -> c"),
    ("a.h>b.h b.cpp>a.h b.h>c.h c.cpp>b.h", "a b", "c: a circle of rooms: c -> b -> c"),
    ("a.h>b.h b.h>c.h", "a b", "a b: in no such circle"),
    ("a.h>b.h b.cpp>a.h c.h>a.h", "a b c", "c: in no such circle"),
    ("a.h>b.h b.cpp>a.h c.h>d.h d.cpp>c.h", "a b c d", "what joins a b c d: in no such circle"),
]


def self_test():
    bad = 0
    drawn = picture().join(MARKS)
    for text, count in (("# A\n" + drawn + "end", 0), (picture(), 1), (drawn.replace(" base", " basis"), 1), ("", 1),
                        (drawn.replace(MARKS[1], "    99\n" + MARKS[1]), 1), (drawn.replace(" 2 ", " 3 "), 1)):
        if len(list(reasons_of_picture(text))) != count:
            bad += 1
            print(f"layers: {count} reasons were wanted for the picture {text!r}")
    for path, line, part in CASES:
        found = [reason for _, reason in reasons(path, line, lambda name: "/" in name)]
        if (len(found) != 1 or part not in found[0]) if part else found:
            bad += 1
            print(f"layers: {path}: {line}: expected {part or 'nothing'!r}, found {found}")
    for arrows, listed, part in CIRCLE_CASES:
        files = dict.fromkeys(re.findall(r"[\w.]+", arrows), "")
        for source, name in (arrow.split(">") for arrow in arrows.split()):
            files[source] += f'#include "{name}"\n'
        found = list(reasons_of_circles(files, {listed: "why"} if listed else {}))
        if (len(found) != 1 or part not in found[0]) if part else found:
            bad += 1
            print(f"layers: {arrows} beside {listed!r}: expected {part or 'nothing'!r}, found {found}")
    path, done = [], set()

    def walk(folder):  # the table has no circle
        nonlocal bad
        if folder in path:
            bad += 1
            print("layers: a circle: " + " -> ".join(path[path.index(folder):] + [folder]))
        elif folder not in done:
            path.append(folder)
            for other in MAY:
                if other != folder and is_allowed(folder, other + "/any.h"):
                    walk(other)
            done.add(path.pop())

    for folder in MAY:
        walk(folder)
    print(f"layers: {len(CASES) + len(CIRCLE_CASES)} cases, {bad} wrong")
    return bool(bad)


def report(root):
    files = sources(root)
    includes = includes_of(files)
    chains, closures = {}, {}

    def chain(path):
        if path not in chains:
            chains[path] = 0
            chains[path] = 1 + max((chain(name) for name in includes[path]), default=0)
        return chains[path]

    def closure(path):
        if path not in closures:
            closures[path] = set()
            for name in includes[path]:
                closures[path] |= {name} | closure(name)
        return closures[path]

    folders = {}
    for path in files:
        folders.setdefault(os.path.dirname(path), []).append(path)
    row = "{:24} {:>6} {:>7} {:>7} {:>6} {:>7} {:>8}  {}"
    print(row.format("folder", "files", "lines", "median", "chain", "reached", "(median)", "includes"))
    for folder in sorted(folders):
        paths = folders[folder]
        lines = [files[p].count("\n") for p in paths]
        reached = [len(closure(p)) for p in paths]
        others = sorted({os.path.dirname(name) for p in paths for name in includes[p]} - {folder})
        print(row.format(folder, len(paths), sum(lines), int(statistics.median(lines)), max(map(chain, paths)),
                         max(reached), int(statistics.median(reached)), len(others)))
    print(row.format("all", len(files), sum(t.count("\n") for t in files.values()),
                     int(statistics.median(t.count("\n") for t in files.values())), max(map(chain, files)),
                     max(len(closure(p)) for p in files), int(statistics.median(len(closure(p)) for p in files)), ""))
    asio = sum("io/asio.h" in closure(p) or "boost/asio" in files[p] or
               any("boost/asio" in files[n] for n in closure(p)) for p in files if p.endswith(".h"))
    print(f"{asio} of {sum(p.endswith('.h') for p in files)} headers reach Boost.Asio")


def main():
    words = [w for w in sys.argv[1:] if not w.startswith("--")]
    root = os.path.normpath(words[0] if words else os.path.join(os.path.dirname(os.path.realpath(__file__)), ".."))
    if "--self-test" in sys.argv:
        return self_test()
    if "--report" in sys.argv:
        return report(root)
    if "--picture" in sys.argv:
        return print(picture(), end="")
    return check(root)


if __name__ == "__main__":
    sys.exit(main())
