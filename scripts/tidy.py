#!/usr/bin/env python3
"""Small rules of the tree that a compiler does not check. Prints file:line: reason; exit 1 if any.

Each rule names what is wanted instead. A line that must break a rule says so, and why: // tidy: allow (WHY, IN WORDS)
"""
import os
import re
import subprocess
import sys

ROOT = os.path.normpath(os.path.join(os.path.dirname(os.path.realpath(__file__)), ".."))
TOP = {
    "CMakeLists.txt", "CMakePresets.json", "launcher", "supervisor", "kvstore", "trainer", "scripts", "test",
    "packaging", "README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "LICENSE", "core", "io", "cmake", ".ci", ".clang-format",
    ".clang-tidy", ".gitignore",
}
CPP = (".h", ".hpp", ".cpp", ".cu")
LIBRARIES = ("core/", "io/", "launcher/", "supervisor/", "kvstore/")
PRODUCTION = (*LIBRARIES, "trainer/")

# Those that pass a program's bytes on.
STREAMERS = ("launcher/backend/ssh/proxy_command.cpp", "launcher/backend/sync.cpp")
# The one file that knows which variables change what squeue prints.
SQUEUE = ("core/launch/allocation.cpp", re.compile(r"\bSQUEUE_|\bSLURM_TIME_FORMAT\b"))

# (files, pattern, reason). A pattern is looked for with comments and texts blanked, unless marked.
RULES = [
    (lambda p: p.endswith(CPP), r"\basio::detached\b|,\s*detached\s*\)",
     "a detached task loses its error: spawn it into an io::TaskGroup"),
    (lambda p: p.endswith(CPP) and not p.startswith("trainer/examples/"),
     r"\bthis_thread::sleep_|\busleep\s*\(|(?<![\w:.>])sleep\s*\(",
     "no sleeping: wait for an event, or for a condition with a deadline"),
    (lambda p: p.startswith(LIBRARIES) and p.endswith(CPP) and not p.endswith("main.cpp") and "dtctl" not in p,
     r"\bstd::(?:cout|cerr|clog)\b|(?<![\w:.])printf\s*\(", "a library does not print: take an io::Log or return the text"),
    (lambda p: p.startswith(LIBRARIES) and p.endswith(CPP), r"\bistreambuf_iterator\b",
     "a read that fails throws an error without the file's name: io/read_file.h"),
    (lambda p: p.endswith(CPP) and not p.startswith("test/"), r"(?<![\w:.])(?:system|popen)\s*\(", "no shell command lines: pass an argument vector"),
    (lambda p: p.endswith(CPP), r"\busing\s+namespace\s+std\s*;", "no using namespace std"),
    (lambda p: p.endswith(CPP), r"\b(?:strcpy|sprintf|gets|strtok|atoi|atol|atof)\s*\(",
     "unbounded or silent on errors: std::string, fmt, std::from_chars"),
    (lambda p: p.endswith(CPP) and not p.startswith(("io/", "test/")), r"\bSIGHUP\b",
     "nohup has it ignored: io/stop_signals.h"),
    (lambda p: p.endswith(CPP), r"<boost/asio\.hpp>", "include the Asio headers you use"),
    (lambda p: p.startswith(("launcher/", "supervisor/")) and p.endswith(CPP), r"\bdynamic_cast\s*<",
     "which class it is nobody asks: a virtual function of the interface"),
    (lambda p: p.startswith(PRODUCTION) and p.endswith(CPP) and p != "launcher/host_address.cpp", r"\bnode_address\(",
     "what a host's address is, is decided once: launcher/host_address.h"),
    (lambda p: p.startswith(PRODUCTION) and p.endswith(CPP) and not p.startswith("io/") and p not in STREAMERS, r"\bSubprocess::start\(",
     "a program is run for its output by io/program_output, which has its deadline and its words"),
    (lambda p: re.fullmatch(r"supervisor/dtctl/(?:status|why|metrics)_text\.(?:h|cpp)", p), r"\bnlohmann\b",
     "a key that is looked up may be misspelt: read the members of io/job/status.h"),
    (lambda p: p.startswith(("launcher/", "supervisor/")) and p.endswith(CPP), r"^(?=.*\bO_CREAT\b)(?!.*\bO_(?:EXCL|NOFOLLOW)\b)",
     "a file that is made: O_EXCL or O_NOFOLLOW on the same line, others may have put a link there"),
    # A text has been blanked: nothing follows the operator.
    (lambda p: p.startswith(PRODUCTION) and p.endswith(CPP) and not p.startswith("supervisor/control/"),
     r"\bop\s*[=!]=\s*(?:[);&|?]|$)", "an op is an enum: control/request.cpp reads its text"),
]
# Folders of development machines; no path of this tree begins with one of them.
FOREIGN = re.compile(r"(?<![\w.~$}])/(?:" + "|".join(("work", "farm", "root", "home/[a-z]+")) + r")/")
SHOWN = ("README.md", "packaging/", "kvstore/python/examples/", "kvstore/python/README.md")  # to be copied by people
UNFINISHED = re.compile(r"\b(?:" + "|".join(("TO" + "DO", "FIX" + "ME", "XX" + "X")) + r")\b")
# A version of ours. The wheel's name, which people copy, has it in documents.
VERSIONED = re.compile(r"dt(?:launch|kv)\w*(?:-[a-z]+)?[-_]v?(\d+\.\d+\.\d+)(-py3-none-)?|find_package\(dtlaunch \d"
                       r"|^\s*version\s*=\s*[\"']\d")
# A file of the sources, which no package has; a header that is included from an installation is none.
SOURCE = re.compile(r"(?<![\w/])(?:core|io|launcher|supervisor|kvstore|trainer|test)/[\w/]+\.(?:h|hpp|cpp|cu|py)\b")
CUT_NAME = re.compile(r'\bTEST_CASE\w*\(.*"[^"]*;[^"]*"')
PLURAL = re.compile(r'"[^"]*[a-z]\(e?s\)')
NOISE = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"', re.S)
# Of a test: its macro, and its code up to its end. Functions of several tests that assert: by CHECK, or by an exception.
TEST = re.compile(r"^(?:TEST_CASE|TEMPLATE_\w*TEST_CASE|SCENARIO)\w*\((?:(?!\n\}|\n(?:TE|SC)\w+\().)*", re.M | re.S)
HELPERS = ("must", "check_only", "follow_reference", "good_json", "sums_and_gathers")
ASSERTION = re.compile(r"\b(?:(?:STATIC_)?(?:CHECK|REQUIRE)\w*|RC_(?:ASSERT|FAIL)\w*|FAIL(?:_CHECK)?|" + "|".join(HELPERS) + r")\s*[(<]")
ALLOWED = re.compile(r"tidy: allow \(\S+ \S")
# Polling costs wake-ups and delays what it waits for.
SHORT_MS = 100
UNITS = {"h": 3.6e6, "hours": 3.6e6, "min": 6e4, "minutes": 6e4, "s": 1e3, "seconds": 1e3, "ms": 1, "milliseconds": 1,
         "us": 1e-3, "microseconds": 1e-3, "ns": 1e-6, "nanoseconds": 1e-6}
DURATION = re.compile(r"\b([\d'.]+)(h|min|s|ms|us|ns)\b|\b(hours|minutes|(?:milli|micro|nano)?seconds)(?:\s+k\w+)?[({]([\d'.]+)[)}]")
# A sleep of a test, whose remark says what lasts. A program of so many seconds is one that stays until it is ended.
SLEEP = re.compile(r"\bsleep (?P<shell>\d[\d.]*)|(?:^|[;&|({'\"]|\b(?:do|then|exec)\b)\s*sleep [$\"']|(?<!def )\bsleep\((?P<python>[\d.]+\))?"
                   r"|(?<![\w(])nap\b(?!\()", re.M)
STAYS_S = 30
LASTS = re.compile(r"#.*, not a wait(?:$|: )")
TEXT = (".py", ".sh", ".md", ".txt", ".cmake", ".json", ".in", ".service", ".1", ".yml") + CPP


def files():
    try:
        out = subprocess.run(["git", "-C", ROOT, "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
                             check=True, capture_output=True).stdout
        names = [n for n in out.decode().split("\0") if n]
    except (OSError, subprocess.CalledProcessError):
        names = []
        for where, folders, found in os.walk(ROOT):
            folders[:] = [f for f in folders if f not in (".git", "build")]
            names += [os.path.relpath(os.path.join(where, f), ROOT) for f in found]
    return sorted(n for n in names if os.path.isfile(os.path.join(ROOT, n)))


def read(name):
    with open(os.path.join(ROOT, name), encoding="utf-8") as file:
        return file.read()


def project_version():
    return re.search(r"^project\(.* VERSION ([\d.]+)", read("CMakeLists.txt"), re.M)[1]


def reasons_of_sleeps(code, raw):
    """Yields (line, reason) for short sleeps in a loop or in a coroutine whose reason neither they nor the line above say."""
    text = "\n".join(code)
    line_of = lambda found: text.count("\n", 0, found.start())
    for call in re.finditer(r"\bsleep_for\s*\(([^;]*)\)\s*;", text):
        if re.search(r" [-+*/] ", call[1]):
            continue
        sources = [(call[1], line_of(call))]
        for constant in re.findall(r"\bk[A-Z]\w*", call[1]):
            sources += [(found[0], line_of(found)) for found in re.finditer(rf"[^\n;]*\b{constant}(?:\s*=|\{{)[^;]*;", text)]
        is_short = any(float((found[1] or found[4]).replace("'", "")) * UNITS[found[2] or found[3]] < SHORT_MS
                       for source, _ in sources for found in DURATION.finditer(source))
        if is_short and not any(ALLOWED.search(line) for _, at in sources for line in raw[max(at - 1, 0):at + 1]):
            yield line_of(call) + 1, f"a sleep below {SHORT_MS} ms: wait for an event, or // tidy: allow (WHY THERE IS NONE)"


def reasons(name, text, version):
    """Yields (line, reason), without the lines that say why they break a rule."""
    raw = text.splitlines()
    for number, reason in all_reasons(name, text, raw, version):
        if not ALLOWED.search(raw[number - 1] if raw else ""):
            yield number, reason


def all_reasons(name, text, raw, version):
    if name.endswith(CPP):
        code = NOISE.sub(lambda m: re.sub(r"[^\n]", " ", m.group(0)), text).splitlines()
        for wanted, pattern, reason in RULES:
            if wanted(name):
                for number, line in enumerate(code, 1):
                    # An include's <name> is part of the code; a "name" has been blanked.
                    if re.search(pattern, line):
                        yield number, reason
        if name.startswith(PRODUCTION):
            yield from reasons_of_sleeps(code, raw)
        if name.startswith("test/"):
            blanked = "\n".join(code)
            for found in TEST.finditer(blanked):
                if not ASSERTION.search(found[0]):
                    yield blanked.count("\n", 0, found.start()) + 1, "a test that asserts nothing: no CHECK, REQUIRE, RC_ASSERT or one of HELPERS"
        if name.endswith((".h", ".hpp")) and not re.search(r"^#\s*pragma once|^#\s*ifndef", text, re.M):
            yield 1, "a header has #pragma once"
        if name.endswith((".h", ".hpp")) and not text.startswith(("//", "/*")):
            yield 1, "a header begins with a comment: what is in it, for whom"
    for number, line in enumerate(raw, 1):
        if FOREIGN.search(line):
            yield number, "a path of one machine: take it as an argument"
        if UNFINISHED.search(line):
            yield number, "unfinished: do it, or open an issue"
        if line != line.rstrip() and not name.endswith(".md"):
            yield number, "trailing blanks"
        if name.startswith(PRODUCTION) and name != SQUEUE[0] and SQUEUE[1].search(line):
            yield number, f"variables that squeue reads: changes_squeue() of {SQUEUE[0]}"
        if CUT_NAME.search(line):
            yield number, "a semicolon in a test's name: CMake cuts the name there, and ctest runs nothing"
        if PLURAL.search(line) and name.endswith(CPP + (".py",)) and not name.startswith("test/"):
            yield number, "a number and its noun agree: count_text()"
        if name.startswith("packaging/man/") and SOURCE.search(line):
            yield number, "a manual page names no file of the sources: no package has them"
        if "flush=True" in line and name.startswith(SHOWN):
            yield number, "flush=True: dtlaunch sets PYTHONUNBUFFERED, and people copy what stands here"
        for found in VERSIONED.finditer(line):
            if not (name.endswith(".md") and found[2]):
                yield number, "the version stands in CMakeLists.txt alone: take it from there"
            elif found[1] != version:
                yield number, f"the wheel's name has the version {found[1]}, CMakeLists.txt {version}"
        if name.startswith("test/e2e/") and name.endswith(".sh") or name.startswith("test/") and name.endswith(".py"):
            for found in SLEEP.finditer(line if name != "test/e2e/lib.sh" else ""):
                if float((found["shell"] or found["python"] or "0").rstrip(")")) < STAYS_S and not LASTS.search(line):
                    yield number, "a test waits for an event (awaits, wait_for), or says: # how long WHAT lasts, not a wait"
                    break
        if "\t" in line and name.endswith(CPP + (".py",)):
            yield number, "a tab"
    if text and not text.endswith("\n"):
        yield len(raw), "no newline at the end"


MOST_ROOMS = 9


def reasons_of_rooms(names, read):
    """Yields (file, line, reason): rooms (x.h with x.cpp is one) that no README between their folder and the top names; names
    at the beginning of a README's row or item that are nothing there; rows and items with more than MOST_ROOMS rooms.

    A name is in backquotes: a path from the README's folder, or from the folder that its row, item or section is about. A
    row, an item and a paragraph, with all up to the next such one, are about the folder that they begin with; so is what
    follows a heading. "Here" begins a paragraph about the README's own folder.
    """
    names = {name for name in names if name.startswith((*LIBRARIES, "trainer/"))}
    rooms = {os.path.splitext(name)[0]: name for name in sorted(names)
             if name.endswith((*CPP, ".py")) and not name.endswith("/__init__.py")}
    folders = {name[:slash.start()] for name in names for slash in re.finditer("/", name)}
    named = set()
    for readme in sorted(name for name in names if name.endswith("/README.md")):
        top = section = place = os.path.dirname(readme)
        text = re.sub(r"^```.*?^```", lambda code: "\n" * code[0].count("\n"), read(readme), flags=re.M | re.S)
        here, before = set(), ""

        def find(word):
            for folder in (place, section, top):
                path = os.path.normpath(os.path.join(folder, word))
                if path in folders or path in rooms or path in names:
                    return path
            return None

        for number, line in enumerate(text.splitlines(), 1):
            heading = re.match(r"#+ `?(.*?)/?`?$", line)
            head = re.match(r"\|([^|]*)\||- ((?:\[?`[^`]*`(?:\]\([^)]*\))?(?:, | and )?)*)", line)
            if heading or line.startswith("Here") and not before:
                section = os.path.join(top, heading[1]) if heading and os.path.join(top, heading[1]) in folders else top
            if heading or head or not before:
                place, here = section, set()
            first = re.findall(r"`([\w./]+)`", (head[1] or head[2] or "") if head else "" if before else line.split(" ")[0])
            if first and find(first[0]) in folders:
                place = find(first[0])
                section = section if head else place
            for word in first if head else ():
                if not find(word):
                    yield readme, number, f"{word} is no room, folder or file of {place}"
            found = {os.path.splitext(path)[0] for path in map(find, re.findall(r"`([\w./]+)`", line)) if path in rooms or path in names}
            named |= {room for room in found if room.startswith(top + "/")}
            here |= found
            if line.startswith(("|", "- ", "  ")) and len(here) > MOST_ROOMS >= len(here - found):
                yield readme, number, f"{len(here)} rooms in one row or item: a line for each, or for a few that belong together"
            before = line
    for room in sorted(set(rooms) - named):
        yield rooms[room], 1, "no README from here to the top names this room: say in a line what it owns"


# Files, each with its text; what is wrong in them, in their order.
ROOM_CASES = [
    ({"io/README.md": "- `fd` descriptors\n- [`job/`](x) a job: `spec`", "io/fd.h": "", "io/fd.cpp": "", "io/job/spec.h": ""}, []),
    ({"io/README.md": "fd, spec\n```\n`fd`\n```", "io/fd.h": ""}, ["io/fd.h:1: no README"]),
    ({"io/README.md": "see `job/spec` and `core/a`", "io/job/spec.py": "", "core/a.cu": ""}, ["core/a.cu:1: no README"]),
    ({"io/README.md": "- `job/spec.h`", "io/job/README.md": "none", "io/job/spec.h": "", "io/spec.h": ""}, ["io/spec.h:1: no README"]),
    ({"io/README.md": "# io\n\n## job\n\n`spec`\n\n## Else\n\n`fd`", "io/fd.h": "", "io/job/spec.h": "", "io/job/fd.h": ""},
     ["io/job/fd.h:1: no README"]),
    ({"io/README.md": "`job/`: a job\n\n| room | owns |\n|---|---|\n| `fd` | x |\n\nHere: `spec`", "io/spec.h": "", "io/job/fd.h": "",
      "io/job/spec.h": ""}, ["io/job/spec.h:1: no README"]),
    ({"io/README.md": "| `fd`, `pipe` | `no_name` |\n| `job/` | `fd` |\n| `job/fd`, `io/fd` | |", "io/fd.h": "", "io/job/fd.h": ""},
     ["io/README.md:1: pipe is no", "io/README.md:3: io/fd is no"]),
    ({"io/README.md": "- `fd`, `gone.h` descriptors, `Fd`\n- a `Thing`", "io/fd.h": ""}, ["io/README.md:1: gone.h is no"]),
    ({"io/README.md": "- `a`: " + ", ".join(f"`r{n}`" for n in range(5)) + "\n  " + ", ".join(f"`r{n}`" for n in range(5, 9)),
      "io/a.h": "", **{f"io/r{n}.h": "" for n in range(9)}}, ["io/README.md:2: 10 rooms"]),
    ({"test/a.h": "", "kvstore/x/__init__.py": "", "kvstore/x/README.md": ""}, []),
]


# A person reads the first screen in a minute, and sees there whether it is for him.
FIRST_SCREEN = ("pip install", "GPU", "Python", "PyTorch", "Debian", "Apache-2.0", "![")
MOST_README = {"lines": 100, "rows of figures": 5}


def reasons_of_readme(text):
    lines = text.splitlines()
    for word in FIRST_SCREEN:
        if not any(word in line for line in lines[:45]):
            yield 45, f"the first 45 lines of README.md do not have: {word}"
    rows = [number for number, line in enumerate(lines) if line.startswith("|---")]
    figures = sum(line.startswith("| ") for line in lines) - 1 if rows else 0
    for what, found in zip(MOST_README, (len(lines), figures)):
        if found > MOST_README[what]:
            yield len(lines), f"{found} {what} in README.md; it has at most {MOST_README[what]}"


# Words that the next release of another may make untrue: where they stand. A peer in a cell: NAME VERSION (old), how: FIGURE.
CLAIMING, PEER_PAGES = ("README.md", "packaging/doc/comparison.md"), ("packaging/doc/figures.md", "packaging/doc/changes.md")
CLAIM = re.compile(r"\bnobody\b|\bno\s+other\s+system\b|\bthe\s+only\b", re.I)
PEER = re.compile(r"(?:^|, )([A-Za-z][\w -]*?)(?: ([\d.]+|[0-9a-f]{7}))?( \(old\))?(?:, [a-z ]+)?: ")


def reasons_of_claims(text):
    begin = 0
    for end in re.finditer(r"[.?!]\s|\n\s*\n|\n(?=[-#])|\||\Z", text):
        found = CLAIM.search(text, begin, end.start())
        if found and not re.search(r"\bas\s+of\s+\d{4}-\d\d\b", text[begin:end.start()]):
            yield text.count("\n", 0, found.start()) + 1, f"{found[0]}: when you looked, as of YYYY-MM, stands in the same sentence"
        begin = end.end()


def reasons_of_peers(text, figures, changes):
    """Yields (line, reason): the peers of README's figures are in the table of figures.md; (old): of 3 years before our release."""
    year, month = re.search(r"^## .*\((\d{4})-(\d\d)-\d\d\)", changes, re.M).groups()
    for number, line in enumerate(text.splitlines(), 1):
        cell = line.strip("| ").split(" | ")[-1] if re.match(r"\| [^|]*\w", line) else ""
        for name, version, old in PEER.findall(cell) or ([("NAME", "VERSION: FIGURE", "")] if cell else ()):
            row = re.search(rf"^\| {re.escape(name)} \| {re.escape(version)} \| (\d{{4}}(?:-\d\d)?)\b", figures, re.M)
            if not row or (row[1] < f"{int(year) - 3}-{month}") != bool(old):
                yield number, f"{name} {version}: figures.md has its version and date, and (old) marks what is older than 3 years"


PEER_TABLES = "| torchrun | 1.13 | 2022-12 |\n| a b | 15b8adf | 2023-11 |\n| c | 2.0 | 2023-10 |\n", "## 0.1.0 (2026-11-27)\n"
PEER_CASES = [("| | x | others |\n|---|---|---|\n| y | 1 ms | torchrun 1.13 (old), tuned: 4 s, 7 steps, a b 15b8adf: 2 ms |\n", 0),
              ("| y | 1 ms | torchrun 1.13: 4 s |", 1), ("| y | 1 ms | torchrun, tuned: 4 s |", 1), ("| y | 1 ms | torchrun 2.6: 4 s |", 1),
              ("| y | 1 ms | a b 15b8adf (old): 4 s, c 2.0: 1 s |", 2), ("| y | 1 ms | d 1.0: 4 s |", 1), ("| y | 1 ms | 4 s |", 1)]
CLAIM_CASES = [("Nobody as of 2026-11 has it. It is as\nof 2026-11 the\nonly one", 0), ("As of 2026-11 it is so. Nobody else is", 1),
               ("| the only one | as of 2026-11 |", 1), ("- no other\n  system\n- as of 2026-11", 1), ("It is the only one, as of now.", 1)]


def reasons_of_phases(script, page):
    """Yields where a page's lists of phases are not those of scripts/test: without a phase, and --ci."""
    lists = re.findall(r"^(?:usual|ci)=\((.*)\)$", script, re.M)
    found = re.findall(r"\blint(?: (?:release|schedulers|asan|tsan)\b)+", page)
    if len(lists) != 2 or sorted(lists) != sorted(found):
        yield f"of the phases stands here {found}, in scripts/test {lists}: both lists, each once"


PHASES = "usual=(lint release)\nci=(lint release asan)\n"
PHASE_CASES = [
    (PHASES, "scripts/test: lint release asan, `lint release`; lint alone, release", 0),
    (PHASES, "scripts/test: lint release asan, or lint release tsan", 1),
    (PHASES, "scripts/test: lint release asan", 1),
    (PHASES, "lint release, lint release asan, lint release asan", 1),
    ("ci=(lint release)\n", "lint release", 1),
]


def reasons_of_names(names):
    """Yields (file, reason) for headers of production that have the same name in several folders."""
    places = {}
    for name in names:
        if name.startswith(PRODUCTION) and name.endswith((".h", ".hpp")):
            places.setdefault(os.path.basename(name), []).append(name)
    for found in places.values():
        if len(found) > 1:
            yield found[-1], "a header's name stands once: say in it what it is, beside " + ", ".join(found[:-1])


# Functions of the same name in headers of one namespace: one thing done to several types.
OVERLOADS = {"to_string", "to_json", "count_nonfinite", "load", "scale", "launch"}
FUNCTION = re.compile(r"^(?!using|namespace|class|struct|enum|template|#|return|friend|static_assert)[\w\[][^\n;{}()=]*?\b(\w+)\(", re.M)


def reasons_of_functions(texts):
    """Yields (file, line, reason) for free functions whose name another header has declared in the same namespace."""
    places = {}
    for name, text in sorted(texts.items()):
        if name.startswith(PRODUCTION) and name.endswith((".h", ".hpp")):
            code = NOISE.sub(lambda m: re.sub(r"[^\n]", " ", m[0]), text)
            space = "::".join(re.findall(r"^(?:inline )?namespace ([\w:]+) \{", code, re.M))
            for found in FUNCTION.finditer(code):
                first = places.setdefault((space, found[1]), name)
                if first != name and found[1] not in OVERLOADS:
                    yield name, code.count("\n", 0, found.start()) + 1, f"{found[1]}() is declared in {first}: a name of its own says what this one does"


# Headers, each with its text; what is wrong in them.
FUNCTION_CASES = [
    ({"io/a.h": "namespace dt {\nint f(int);\nint f(long);\n}", "io/b.h": "namespace dt {\n[[nodiscard]] int g(int);\n}"}, []),
    ({"io/a.h": "namespace dt {\nint f(int);\n}", "io/b.h": "namespace dt {\n[[nodiscard]] T<int> f(\n    long);\n}"},
     ["io/b.h:2: f() is declared in io/a.h"]),
    ({"io/a.h": "namespace dt {\nint f(int);\n}", "io/b.h": "namespace dt::kv {\nint f(int);\n}", "test/c.h": "namespace dt {\nint f(int);\n}"}, []),
    ({"io/a.h": "namespace dt {\nT to_string(int);\n}", "io/b.h": "namespace dt {\nT to_string(long);\nclass A {\n  int f(int);\n};\n}"}, []),
]

NAME_CASES = [
    ("core/a.h io/b.h io/b.cpp test/a.h", None),
    ("core/a.h io/a.h", "io/a.h: a header's name stands once: say in it what it is, beside core/a.h"),
]

# (file, line, the beginning of the reason; None where the line is right); the version is 1.2.3.
CASES = [
    ("README.md", "pip install dtlaunch-" "1.2.3-py3-none-manylinux_2_34_x86_64.whl", None),
    ("README.md", "pip install dtlaunch-" "1.2.2-py3-none-manylinux_2_34_x86_64.whl", "the wheel's name has the version 1.2.2"),
    ("packaging/doc/packages.md", "apt-get install ./dtlaunch_" "1.2.3_amd64.deb", "the version stands in CMakeLists.txt"),
    ("packaging/doc/packages.md", "dtlaunch-VERSION-py3-none-any.whl; (dtlaunch 0.030)", None),
    ("scripts/x", "cp dtlaunch-" "1.2.3-py3-none-any.whl /tmp", "the version stands in CMakeLists.txt"),
    ("test/e2e/x.sh", "find_package(dtlaunch " "1.2 REQUIRED)", "the version stands in CMakeLists.txt"),
    ("packaging/wheel/setup.py", '    version=' '"1.2.3",', "the version stands in CMakeLists.txt"),
    ("packaging/doc/changes.md", "## 1.2.3 (2026-11-27)", None),
    ("supervisor/x.cpp", "open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);", "a file that is made"),
    ("supervisor/x.cpp", "open(path, O_WRONLY | O_CREAT | O_EXCL, 0600);", None),
    ("supervisor/x.cpp", 'if (ask.op == "stop") stop();', "an op is an enum"),
    ("supervisor/x.cpp", 'auto edited = op != "remove" ? add() : remove();', "an op is an enum"),
    ("supervisor/x.cpp", 'if (ask.op == Op::kStop) stop("op");', None),
    ("supervisor/control/x.cpp", 'if (ask.op == "stop") stop();', None),
    ("test/e2e/x.sh", "sleep 1" ".2", "a test waits for an event"),
    ("test/e2e/x.sh", "sleep 1" ".2  # how long it is empty, not a wait", None),
    ("test/e2e/x.sh", "sleep 1" ".2  # not a wait, says who is in a hurry", "a test waits for an event"),
    ("test/e2e/x.sh", "launch sh -c 'echo up; exec sleep 1000'; left_over | grep \"^[0-9]+ sleep $1\"", None),
    ("test/e2e/x.sh", "while :; do sleep 1000; sleep 0" ".1; done", "a test waits for an event"),
    ("test/e2e/x.sh", "for i in 1 2; do sleep \"$i\"; done", "a test waits for an event"),
    ("test/e2e/x.sh", "STEP=0.3 nap", "a test waits for an event"),
    ("test/e2e/lib.sh", "nap() { read -t 1; }; nap", None),
    ("test/x/x.py", "    time.sleep" "(options.step_ms / 1000)", "a test waits for an event"),
    ("test/x/x.py", "    time.sleep" "(0.02)  # between two looks, not a wait", None),
    ("test/x/x.py", "    time.sleep" "(60)", None),
    ("test/x/x.py", "def sleeps(kv):  # it sleeps", None),
    ("scripts/x", "sleep 5", None),
    ("io/x.cpp", "co_await io::sleep_for(20ms);", "a sleep below 100 ms"),
    ("io/x.cpp", "co_await io::sleep_for(100ms);", None),
    ("io/x.cpp", "co_await io::sleep_for(20ms);  // tidy: allow (the lock is another process's)", None),
    ("io/x.cpp", "co_await io::sleep_for(20ms);  // tidy: allow", "a sleep below 100 ms"),
    ("io/x.cpp", "// tidy: allow (the lock is another process's)\ndo_it(), co_await sleep_for(std::chrono::milliseconds(5));", None),
    ("io/x.cpp", "constexpr auto kRetry = std::chrono::milliseconds(10);\nvoid f() {\n  io::sleep_for(kRetry);\n}", "a sleep below"),
    ("io/x.cpp", "constexpr std::chrono::microseconds kRetry{99'999};\n\nio::sleep_for(a ? b : Duration(\n    kRetry));", "a sleep below"),
    ("io/x.cpp", "constexpr auto kPace = 10ms;  // tidy: allow (a pace, no poll)\nio::sleep_for(kPace);", None),
    ("io/x.cpp", "constexpr auto kPace = 1s;\nio::sleep_for(kPace);\nio::sleep_for(pause);", None),
    ("test/x.cpp", "co_await io::sleep_for(20ms);", None),
    ("test/x.cpp", 'TEST_CASE("x: y") { CHECK(f()) }', None),
    ("test/x.cpp", 'TEST_CASE("x: CHECK(y)") {\n  f()  // CHECK(f())\n}\n\nvoid g() { CHECK(f()) }', "a test that asserts nothing"),
    ("test/x.cpp", 'TEST_CASE("x: y",\n          "[x]") {\n  f()\n}\nTEST_CASE("x: z") {\n  REQUIRE_THAT(f(), g())\n}', "a test that"),
    ("test/x.cpp", 'TEST_CASE("x: y") { f() }\nTEST_CASE("x: z") { REQUIRE_FALSE(f()) }', "a test that asserts nothing"),
    ("test/x.cpp", 'TEMPLATE_TEST_CASE("x: y", "", A, B) {\n  f<TestType>()\n}', "a test that asserts nothing"),
    ("test/x.cpp", 'SCENARIO("x: y") {\n  rc::check([] {\n    RC_ASSERT(f())\n  })\n}', None),
    ("test/x.cpp", 'TEST_CASE("x: y") {\n  check_only(f())\n  must(g())\n}', None),
    ("supervisor/x.cpp", "auto* ssh = dynamic_cast<launcher::SshBackend*>(&all->of(host));", "which class it is"),
    ("launcher/x.cpp", "// no dynamic_cast<T*>", None),
    ("kvstore/x.cpp", "auto* x = dynamic_cast<X*>(y);", None),
    ("supervisor/hosts/x.cpp", "h.address = launcher::node_address(*node, state);", "what a host's address is"),
    ("launcher/host_address.cpp", "return node_address(*node, state);", None),
    ("launcher/check/x.cpp", "auto p = io::Subprocess::start(argv, files);", "a program is run for its output"),
    ("launcher/backend/sync.cpp", "auto p = io::Subprocess::start(argv, files);", None),
    ("io/x.cpp", "Result<Subprocess> Subprocess::start(", None),
    ("launcher/x.cpp", 'unset("SQUEUE_SORT");', "variables that squeue reads"),
    ("supervisor/x.cpp", 'unset("SLURM_TIME_FORMAT");', "variables that squeue reads"),
    ("core/launch/allocation.cpp", 'name.starts_with("SQUEUE_")', None),
    ("supervisor/dtctl/why_text.cpp", "using nlohmann::json;", "a key that is looked up"),
    ("supervisor/dtctl/metrics_text.h", "/// JSON.\n#pragma once\n#include <nlohmann/json.hpp>", "a key that is looked up"),
    ("supervisor/dtctl/status_text.cpp", "// Without nlohmann's\nconst auto at = text.find(name);", None),
    ("supervisor/dtctl/condition.cpp", "using nlohmann::json;", None),
    ("packaging/man/x.1", "prints what supervisor/control/status.h describes", "a manual page names no file"),
    ("packaging/man/x.3", "#include <dtlaunch/kvstore/dtkv.h> ~/.config/io/x", None),
    ("core/x.h", "#pragma once", "a header begins with a comment"),
    ("test/x.hpp", "\n/// What it is.\n#pragma once", "a header begins with a comment"),
    ("core/x.h", "/// What it is.\n#pragma once", None),
    ("core/x.cpp", "#include <vector>", None),
    ("core/x.h", "#pragma once  // see /ro" "ot/x", "a path of one machine"),
]


def self_test():
    for texts, wanted in ROOM_CASES:
        found = [f"{name}:{number}: {reason}" for name, number, reason in reasons_of_rooms(texts, texts.get)]
        if len(found) != len(wanted) or not all(map(str.startswith, found, wanted)):
            print(f"{texts}: {wanted} was wanted, not {found}")
            return True
    for texts, wanted in FUNCTION_CASES:
        found = [f"{name}:{number}: {reason}" for name, number, reason in reasons_of_functions(texts)]
        if len(found) != len(wanted) or not all(map(str.startswith, found, wanted)):
            print(f"{texts}: {wanted} was wanted, not {found}")
            return True
    readme = " ".join(FIRST_SCREEN) + "\n"
    for text, count in ((readme, 0), ("\n" * 45 + readme, len(FIRST_SCREEN)), (readme + "\n" * 100, 1),
                        (readme + "| | x |\n|---|---|\n" + "| a | 1 |\n" * 5, 0), (readme + "|---|---|\n" + "| a | 1 |\n" * 7, 1)):
        if len(list(reasons_of_readme(text))) != count:
            print(f"README.md: {count} reasons were wanted for {text!r}")
            return True
    for script, page, count in PHASE_CASES:
        if len(list(reasons_of_phases(script, page))) != count:
            print(f"{count} reasons were wanted for {page!r} beside {script!r}")
            return True
    bad = [f"{name}: {line}: {wanted} was wanted, not {found}" for name, line, wanted in CASES
           for found in [[reason for _, reason in reasons(name, line + "\n", "1.2.3")]]
           if (found != [] if wanted is None else not any(reason.startswith(wanted) for reason in found))]
    for rule, cases in ((lambda text: reasons_of_peers(text, *PEER_TABLES), PEER_CASES), (reasons_of_claims, CLAIM_CASES)):
        bad += [f"{count} reasons were wanted for {text!r}" for text, count in cases if len(list(rule(text))) != count]
    for names, wanted in NAME_CASES:
        found = [f"{name}: {reason}" for name, reason in reasons_of_names(names.split())]
        if found != [] if wanted is None else len(found) != 1 or not found[0].startswith(wanted):
            bad.append(f"{names}: {wanted} was wanted, not {found}")
    print("\n".join(bad) or f"tidy: {len(CASES) + len(NAME_CASES)} cases")
    return bool(bad)


def main():
    if sys.argv[1:] == ["--self-test"]:
        return self_test()
    version = project_version()
    bad = count = 0
    names = files()
    for name in names:
        top = name.split("/")[0]
        if top not in TOP:
            bad += 1
            print(f"{name}:1: {top} does not belong at the top of the tree")
        if "/corpus/" in name or (not name.endswith(TEXT) and not name.startswith(("scripts/", ".ci/"))):
            continue
        count += 1
        with open(os.path.join(ROOT, name), encoding="utf-8") as file:
            text = file.read()
        for number, reason in [*reasons(name, text, version), *(reasons_of_readme(text) if name == "README.md" else ()),
                               *(reasons_of_peers(text, *map(read, PEER_PAGES)) if name == "README.md" else ()),
                               *(reasons_of_claims(text) if name in CLAIMING else ())]:
            bad += 1
            print(f"{name}:{number}: {reason}")
    for name, reason in reasons_of_names(names):
        bad += 1
        print(f"{name}:1: {reason}")
    for name in ("README.md", "CONTRIBUTING.md"):
        for reason in reasons_of_phases(read("scripts/test"), read(name)):
            bad += 1
            print(f"{name}:1: {reason}")
    headers = {name: read(name) for name in names if name.endswith((".h", ".hpp"))}
    for name, number, reason in [*reasons_of_functions(headers), *reasons_of_rooms(files(), read)]:
        bad += 1
        print(f"{name}:{number}: {reason}")
    print(f"tidy: {count} files, {bad} against the rules")
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())
