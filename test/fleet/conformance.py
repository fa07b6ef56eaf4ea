#!/usr/bin/env python3
"""Whether a provider's program speaks the protocol of packaging/doc/provider.md.

usage: conformance.py [--machines N] PROGRAM [ARGUMENT...]

--machines: so many it has at least. Exit code 0: it does; 1: the first line that is wrong is printed.
"""
import argparse
import json
import subprocess
import sys
import time

SECONDS = 60
KEYS = {"id", "host", "state", "slots", "mark", "wanted", "asked", "deadline", "held_back", "order", "since", "why"}


class Wrong(Exception):
    pass


def check(is_right, *what):
    if not is_right:
        raise Wrong(" ".join(map(str, what)))


class Provider:
    def __init__(self, argv):
        self.process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.n = 0

    def ask(self, do, **more):
        """The answer to a request; events before it are passed over."""
        self.n += 1
        request = {"n": self.n, "do": do, "a field of a later version": [{"x": 1}], **more}
        self.process.stdin.write(json.dumps(request).encode() + b"\n")
        self.process.stdin.flush()
        until = time.monotonic() + SECONDS
        while time.monotonic() < until:
            line = self.process.stdout.readline()
            check(line.endswith(b"\n"), f"{do}: it ends in the middle of an answer, or without one:", line)
            check(len(line) <= 4 << 20, f"{do}: a line of {len(line)} bytes")
            answer = json.loads(line)
            check(isinstance(answer, dict), f"{do}: no object:", line)
            if "event" in answer:
                check(answer["event"] == "changed", "unknown event:", line)
                continue
            check(answer.get("n") == self.n, f"{do}: asked {self.n}, answered", line)
            if answer.get("ok") is not True:
                check(answer.get("ok") is False, f"{do}: \"ok\" is neither true nor false:", line)
                check(answer.get("kind") in ("away", "busy", "denied", "wrong"), f"{do}: no kind of error:", line)
                check(isinstance(answer.get("error"), str) and answer["error"], f"{do}: no sentence:", line)
            return answer
        raise Wrong(f"{do}: no answer within {SECONDS} s")

    def done(self, do, **more):
        answer = self.ask(do, **more)
        check(answer["ok"], f"{do} is refused:", answer)
        return answer


def machines_of(answer):
    ids = set()
    check(isinstance(answer.get("machines"), list), "\"machines\" is no list")
    for machine in answer["machines"]:
        check(isinstance(machine.get("id"), str) and machine["id"], "no id:", machine)
        check(machine["id"] not in ids, "an id twice:", machine)
        ids.add(machine["id"])
        check(machine.get("state") in ("pending", "ready", "ending"), "no state:", machine)
        check(machine.get("host") or machine["state"] == "pending", "no host:", machine)
        check(set(machine) <= KEYS, "unknown keys:", set(machine) - KEYS)
    return answer["machines"]


def conforms(argv, least):
    provider = Provider(argv)
    hello = provider.done("hello", version=1, job="conformance")
    check(hello.get("version") == 1 and hello.get("name"), "hello has no version 1 or no name:", hello)
    machines = machines_of(provider.done("list"))
    check(len(machines) >= least, f"{len(machines)} machines, not {least}")
    check([m["id"] for m in machines_of(provider.done("list"))] == [m["id"] for m in machines], "two lists differ")
    for machine in machines[:1]:
        for _ in range(2):  # every request may come twice
            provider.done("mark", id=machine["id"], mark="ADD_QUEUED", asked=False)
        if hello.get("marks"):
            again = [m for m in machines_of(provider.done("list")) if m["id"] == machine["id"]]
            check(again and again[0].get("mark") == "ADD_QUEUED", "a mark is not kept:", again)
    check(not provider.ask("fly to the moon")["ok"], "an unknown request is taken")
    if "let_go" in hello.get("can", []):
        last = max(machines, key=lambda m: m.get("order", 0))["id"] if machines else "x"
        for _ in range(2):
            provider.done("let_go", id=last, why="the test lets it go")
        provider.done("let_go", id="no-such-machine", why="it is gone")
    if "grow" in hello.get("can", []):
        wished = provider.done("list").get("wished")
        check(isinstance(wished, int), "it can grow, and its list has no \"wished\":", wished)
        for _ in range(2):
            provider.done("grow", **{"from": wished, "to": wished + 1})
        check(provider.done("list").get("wished") == wished + 1, "grow done twice is not one more than", wished)
        check(not provider.ask("grow", **{"from": wished + 7, "to": wished + 9})["ok"], "grow from another number is taken")
    if "confirm" in hello.get("can", []):
        provider.done("confirm", id="no-such-machine")
    provider.process.stdin.close()
    try:
        provider.process.wait(timeout=5)
    except subprocess.TimeoutExpired:
        provider.process.kill()
        raise Wrong("it does not end within 5 s after the end of its input") from None
    other = Provider(argv)
    version = other.ask("hello", version=99, job="conformance")
    check(version.get("version") == 1 or not version["ok"], "version 99 is taken:", version)
    other.process.kill()
    other.process.wait()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--machines", type=int, default=0)
    parser.add_argument("argv", nargs=argparse.REMAINDER)
    words = parser.parse_args()
    try:
        conforms(words.argv, words.machines)
    except (Wrong, ValueError, OSError) as wrong:
        print(f"conformance: {wrong}")
        return 1
    print("conformance: it speaks version 1")
    return 0


if __name__ == "__main__":
    sys.exit(main())
