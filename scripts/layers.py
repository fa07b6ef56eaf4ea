#!/usr/bin/env python3
"""Who may include whom. Prints each offending line as file:line: reason; exit 1 if there is one.

      core  <---  io  <---  launcher      kvstore      (these two do not know each other)
                               ^           ^    ^
                               supervisor--+    trainer   (of kvstore the C ABI only; no io)

core is pure (core/base/result.cpp's abort with a message aside): the standard library without clocks, files, threads and randomness, fmt and
tl::expected. kvstore/compute/cuda is carried alone to machines with a GPU: the standard library, CUDA and kernels.h of kvstore. test/ may include
everything.
"""
import os
import re
import sys

ALLOWED = {
    "core": {"core"},
    "io": {"core", "io"},
    "launcher": {"core", "io", "launcher"},
    "kvstore": {"core", "io", "kvstore"},
    "supervisor": {"core", "io", "launcher", "kvstore", "supervisor"},
    "trainer": {"core", "trainer"},
}
# The C ABI and its C++ face: what any user's program has.
TRAINER_MAY = {"kvstore/dtkv.h", "kvstore/kvstore.h"}

# kvstore/compute/cuda, of which headers without CUDA in them (all but one) serve every compiler.
CUDA_FOLDER = "kvstore/compute/cuda/"
CUDA_MAY = {"kvstore/compute/kernels/kernels.h"}
CUDA_HEADERS = re.compile(r"^(cuda\w*\.h|nccl\.h|dlfcn\.h|[a-z_]+)$")
ONLY_FOR_NVCC = CUDA_FOLDER + "launch_kernel.h"

CORE_HEADERS = re.compile(r"^(fmt/[a-z]+\.h|tl/expected\.hpp|[a-z_]+)$")
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


def sources(folder):
    for where, folders, files in os.walk(folder):
        folders.sort()
        for name in sorted(files):
            if name.endswith((".h", ".hpp", ".cpp", ".cu")):
                yield os.path.join(where, name)


def reasons(root, layer, path, text):
    """Yields (line, reason)."""
    header = path.endswith((".h", ".hpp"))
    in_cuda = os.path.relpath(path, root).startswith(CUDA_FOLDER)
    for number, line in enumerate(text.splitlines(), 1):
        found = INCLUDE.match(line)
        if not found:
            continue
        kind, name = found.groups()
        if kind == '"':
            if name == "dtkv.h" and path.endswith("kvstore/kvstore.h"):
                continue  # installed side by side, below another folder
            if not os.path.exists(os.path.join(root, name)):
                yield number, f'"{name}" is not a path from the top folder (system headers take <>)'
                continue
            target = name.split("/")[0]
            if layer == "trainer" and name in TRAINER_MAY:
                continue
            if target not in ALLOWED[layer]:
                may = " ".join(sorted(ALLOWED[layer]))
                if layer == "trainer":
                    may += " " + " ".join(sorted(TRAINER_MAY))
                yield number, f"{layer} may not include {name} (it may include: {may})"
            elif in_cuda and not name.startswith(CUDA_FOLDER) and name not in CUDA_MAY:
                yield number, f"kvstore/compute/cuda is carried alone: it may not include {name}"
            elif name == ONLY_FOR_NVCC and not path.endswith(".cu"):
                yield number, f"{name} is for .cu files"
        elif in_cuda and not CUDA_HEADERS.match(name):
            yield number, f"kvstore/compute/cuda has the standard library and CUDA, not <{name}>"
        elif in_cuda and header and name.startswith(("cuda", "nccl")) and not path.endswith(ONLY_FOR_NVCC):
            yield number, f"keep <{name}> out of headers: they serve compilers without CUDA"
        elif layer == "core":
            if not CORE_HEADERS.match(name):
                yield number, f"core is pure and may not include <{name}>"
            elif name in IMPURE_HEADERS:
                yield number, f"core is pure: <{name}> belongs in a shell"
        elif path.endswith(".cu") and "asio" in name:
            yield number, "nvcc can not compile Asio's coroutines: keep <%s> out of .cu files" % name
        elif header and name.startswith("libssh/"):
            yield number, f"keep <{name}> out of headers: forward declare or use a struct Impl"
    if layer == "core":
        blank = COMMENT_OR_TEXT.sub(lambda m: re.sub(r"[^\n]", " ", m.group(0)), text)
        for number, line in enumerate(blank.splitlines(), 1):
            for pattern, what in IMPURE_CODE:
                if pattern.search(line):
                    yield number, f"core is pure: this {what}"


def main():
    root = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(os.path.realpath(__file__)), "..")
    root = os.path.normpath(root)
    bad = files = 0
    for layer in ALLOWED:
        for path in sources(os.path.join(root, layer)):
            files += 1
            with open(path, encoding="utf-8") as file:
                text = file.read()
            for number, reason in reasons(root, layer, path, text):
                bad += 1
                print(f"{os.path.relpath(path, root)}:{number}: {reason}")
    if not files:
        sys.exit(f"layers: no sources under {root}")
    print(f"layers: {files} files, {bad} against the rules")
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())
