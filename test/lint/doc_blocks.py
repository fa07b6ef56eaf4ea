#!/usr/bin/env python3
"""Whether each code block of the pages about fleets is run by a test, or says that it is not.

usage: doc_blocks.py | --self-test       prints page:line: fault; exit 1 if any

The line above a block is one of these; what stands behind the last comma of the first form is for people:
    <!-- run by t3205 t3208, WORDS -->           each command is in one of these tests, whatever its arguments' values are
    <!-- run by t3208; not run: aws ec2 -->      but those that begin so
    <!-- not run: WHY -->                        none is; at most MOST_NOT_RUN blocks of both kinds
A command is in a test if there are its program, its sub-command and its options, and arguments where it has some. Where it is
started from (WHERE, `kubectl exec POD --`) does not count.
"""
import itertools
import pathlib
import re
import shlex
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGES = ("aws", "kubernetes", "provider", "yarn")
MOST_NOT_RUN = 12
MARK = re.compile(r"<!-- (?:run by (?P<tests>t\d{4}(?: t\d{4})*)(?:, [^;]+?)?)?(?P<join>; )?(?:not run: (?P<not_run>\S.*?))? -->$")
WORDS = {"dtctl": 1, "dtfleet": 2, "kubectl": 1, "aws": 2, "yarn": 2}  # so many of them say what is done
WHERE = ("--job-dir", "--context", "--namespace", "-n")  # with a value, of the programs in WORDS
# Functions of the tests, and what they run.
ALIASES = {"train": "dtlaunch --elastic-training-enabled", "as_admin": "kubectl", "awaits": "dtctl wait"}
TALK = re.compile(r"\s*(?:#|say |expect_output |fail )")  # what such a line has is not run


def commands(line):
    """The words of each command of a line of shell."""
    lexer = shlex.shlex(re.sub(r"\s\d?>+&?\s?\S+", "", line), posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    parts = itertools.groupby(lexer, key=lambda word: bool(word) and set(word) <= set("();<>|&"))
    return [list(words) for is_separator, words in parts if not is_separator]


def shape(words):
    """Program, sub-command, options, whether it has arguments."""
    if words[:2] == ["kubectl", "exec"] and "--" in words:
        return shape(words[words.index("--") + 1:])
    program, *words = ALIASES.get(words[0], words[0]).split() + words[1:]
    count = WORDS.get(program, 0)
    pairs = list(zip(["", *words], words))
    rest = [word for before, word in pairs if not (count and {before, word} & set(WHERE))]
    plain = [word for word in rest if not word.startswith("-")]
    options = {word.partition("=")[0] for word in rest if word.startswith("-") and word != "--"}
    kinds = {"--fleet " + word.partition(":")[0] for before, word in pairs if before == "--fleet"}
    return program, plain[:count], options | kinds, len(plain) > count


def shapes_of(test, program):
    """Of all commands with that program in the text of a test."""
    names = [program] + [alias for alias, words in ALIASES.items() if words.split()[0] == program]
    for line in test.replace("\\\n", " ").splitlines():
        for found in re.finditer(rf"(?<![\w./-])(?:{'|'.join(names)})(?= |$)", "" if TALK.match(line) else line.partition("|| fail")[0]):
            rest = line[found.start():]
            try:
                yield shape(commands(rest)[0])
            except ValueError:  # it stands in quotes, which end behind it
                yield shape(re.split(r"['\"|;&>)]", rest)[0].split())


def is_in(command, tests):
    program, words, options, has_arguments = shape(command)
    return any(words == other[1] and options <= other[2] and has_arguments == other[3]
               for test in tests for other in shapes_of(test, program))


def blocks(text):
    """Line number, line above, text of each block: fenced, or indented after a blank line or a comment."""
    end = 0
    for found in re.finditer(r"^```.*\n(?P<fenced>(?:.*\n)*?)```$|(?:(?<=\n\n)|(?<=-->\n)|\A)(?P<indented>(?: {4}.*\n|\n(?= {4}))+)", text, re.M):
        above = text[end:found.start()].rstrip().rpartition("\n")[2]
        yield text.count("\n", 0, found.start()) + 1, above, found["fenced"] or found["indented"]
        end = found.end()


def faults_of_commands(block, tests, spared):
    used = set()
    try:
        found = [words for row in block.replace("\\\n", " ").splitlines() for words in commands(row)]
    except ValueError as error:
        yield f"it is no shell: {error}"
        return
    for command in found:
        begins = {prefix for prefix in spared if (shlex.join(command) + " ").startswith(prefix + " ")}
        used |= begins
        if not begins and not is_in(command, tests):
            yield f"its test has no such command: {shlex.join(command)}"
    yield from (f"no command begins with {prefix}" for prefix in spared if prefix not in used)


def faults(pages, tests):
    """Of texts by name; a test's name is its number."""
    not_run = []
    for page, text in pages.items():
        for line, above, block in blocks(text):
            mark = MARK.match(above)
            named, why = (mark["tests"] or "").split() if mark else [], mark and mark["not_run"]
            if not mark or bool(mark["join"]) != bool(named and why) or not (named or why):
                yield f"{page}:{line}: above a block stands <!-- run by tNNNN --> or <!-- not run: WHY -->"
                continue
            if why:
                not_run.append(f"{page}:{line}")
            unknown = [f"{name} is no test" for name in named if name not in tests]
            if named and not unknown:
                unknown = faults_of_commands(block, [tests[name] for name in named], why.split(", ") if why else [])
            yield from (f"{page}:{line}: {fault}" for fault in unknown)
    if len(not_run) > MOST_NOT_RUN:
        yield f"{not_run[-1]}: {len(not_run)} blocks have `not run`, {MOST_NOT_RUN} at most"


TESTS = {"t1000": "run grow dtctl grow 2\n# dtctl why n1\nX=$(dtctl status) || fail \"$(dtctl leave n1)\"\nsay 'dtctl remove n1'\n",
         "t1001": 'train -n 2 -H base \\\n  "${OPTIONS[@]}" --fleet "aws:c --ready \'$PWD\'" --\nas_admin scale set w --replicas=2 >/dev/null\n'}
RUN, LAUNCH = "text\n\n<!-- run by t1000 t1001 -->\n\n    ", "dtlaunch -n 4 -H hosts \\\n      --elastic-training-enabled --fleet "
CASES = [  # a page's text; what is said of it
    (RUN + "dtctl grow 7   # three more\n    dtctl --job-dir /job status | cat x && kubectl scale set dt -n a --replicas=4\n", "cat x"),
    (RUN + "kubectl exec pod/m -- dtctl --job-dir /job grow 1\n\n    dtctl status\n", ""),
    (RUN + LAUNCH + "'aws:train --region x' python3 train.py\n", ""), (RUN + LAUNCH + "kubernetes:w python3 train.py\n", "no such command"),
    (RUN + "dtctl grow --keep 2\n", "no such command"), (RUN + "dtctl grow\n", "no such command"), (RUN + "dtctl why n1\n", "no such command"),
    (RUN + "dtctl leave n1\n", "no such command"), (RUN + "dtctl remove n1\n", "no such command"), (RUN + "dtfleet x y\n", "no such command"),
    ("<!-- run by t1000, there by hand; not run: aws ec2, ssh -->\n\n    dtctl grow 1\n    aws ec2 run\n    ssh n1\n", ""),
    ("<!-- run by t1000; not run: aws ec2 -->\n\n    dtctl grow 1\n", "no command begins with aws ec2"),
    ("<!-- run by t1000; not run: aws ec2 -->\n\n    aws autoscaling x\n    aws ec2 x\n", "no such command"),
    (RUN + "dtctl grow '1\n", "it is no shell"), ("<!-- run by t1002 -->\n\n    dtctl grow 1\n", "t1002 is no test"), ("text\n\n    dtctl grow 2\n", "above a block stands"),
    ("<!-- not run: no such cluster -->\n```sh\nssh n1\n\nssh n2\n```\ntext\n", ""), ("```\nssh n1\n```\n", "above a block stands"),
    ("<!-- not run: x -->\n\ntext\n\n    ssh n1\n", "above a block stands"), ("<!-- not run: -->\n\n    ssh n1\n", "above a block stands"),
    ("<!-- not run: x -->\n\n    ssh n1\n\n```\nssh n2\n```\n", ":5: above a block stands"), ("- item\n  and\n    more\n", ""),
    ("<!-- not run: x -->\n\n    a\n\n" * MOST_NOT_RUN, ""), ("<!-- not run: x -->\n\n    a\n\ntext\n\n" * (MOST_NOT_RUN + 1), "13 blocks"),
]


def main():
    if sys.argv[1:] == ["--self-test"]:
        found = [(text, wanted, list(faults({"page": text}, TESTS))) for text, wanted in CASES]
        bad = [case for case in found if (len(case[2]) != 1 or case[1] not in case[2][0] if case[1] else case[2])]
        bad += [alias for alias in ALIASES if f"\n{alias}() {{" not in "".join(path.read_text() for path in ROOT.glob("test/e2e/*.sh"))]
    else:
        pages = {f"packaging/doc/{page}.md": (ROOT / f"packaging/doc/{page}.md").read_text(encoding="utf-8") for page in PAGES}
        tests = {path.name[:5]: path.read_text(encoding="utf-8") for path in ROOT.glob("test/e2e/t[0-9]*.sh")}
        bad = list(faults(pages, tests))
    print(*bad, f"doc_blocks: {len(bad)} against the rules", sep="\n")
    return int(bool(bad))


if __name__ == "__main__":
    sys.exit(main())
