"""A provider for dtlaunch --fleet: the pods of a StatefulSet, by kubectl alone.

dtlaunch --fleet 'kubernetes:STATEFULSET [--namespace NAMESPACE] [--context CONTEXT]' ...

It speaks the protocol of packaging/doc/provider.md. KUBECTL has the words of another kubectl. It asks for less or more pods by
`kubectl scale` and deletes none: a StatefulSet gives back its pod with the highest number.
"""
from __future__ import annotations

import argparse
import ctypes
import datetime
import json
import os
import shlex
import signal
import subprocess
import sys
import threading
import time

from fleet_provider import Json, Output, Refused, serve

CALL_S = 10  # a request to the API server
EVERY_S = 30  # a watch says meanwhile that something has changed
SLOWEST_WATCH_S = 60


def die_with_parent() -> None:
    pr_set_pdeathsig = 1
    ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)


def last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else ""


def kind_of(error: str) -> str:
    if "Forbidden" in error or "Unauthorized" in error or "must be logged in" in error:
        return "denied"
    if "TooManyRequests" in error:
        return "busy"
    if "NotFound" in error or "Expected replicas" in error:
        return "wrong"
    return "away"


class Kubectl:
    def __init__(self, words: list[str]) -> None:
        self.words = words

    def __call__(self, *words: str) -> str:
        """Its output. Its exit code comes first: without a right it prints a well-formed empty list, and ends with 1."""
        try:
            done = subprocess.run([*self.words, f"--request-timeout={CALL_S}s", *words], stdin=subprocess.DEVNULL,
                                  capture_output=True, text=True, timeout=CALL_S + 5, preexec_fn=die_with_parent)
        except FileNotFoundError as e:
            raise Refused("wrong", f"{self.words[0]} is not in PATH: install kubectl, or say in KUBECTL where it is") from e
        except subprocess.TimeoutExpired as e:
            raise Refused("away", f"kubectl {words[0]}: no answer within {CALL_S} s") from e
        if done.returncode != 0:
            error = last_line(done.stderr) or f"kubectl {words[0]} ended with {done.returncode}"
            raise Refused(kind_of(error), error)
        return done.stdout


def seconds_of(timestamp: str) -> float:
    """Of 2026-11-28T17:00:00Z, since 1970."""
    return datetime.datetime.fromisoformat(timestamp.replace("Z", "+00:00")).timestamp()


def machine_of(pod: Json) -> Json:
    meta, status = pod["metadata"], pod.get("status", {})
    conditions = status.get("conditions", [])
    machine: Json = {"id": meta["uid"], "host": meta["name"], "order": int(meta["name"].rsplit("-", 1)[1])}
    if "startTime" in status:
        machine["since"] = seconds_of(status["startTime"])
    if "deletionTimestamp" in meta:
        # It is the time at which the pod is killed: the grace is in it.
        return machine | {"state": "ending", "deadline": seconds_of(meta["deletionTimestamp"])}
    if any(c["type"] == "Ready" and c["status"] == "True" for c in conditions):
        return machine | {"state": "ready"}
    why = next((c.get("message") or c.get("reason") or "" for c in conditions if c["status"] == "False"), "")
    return machine | {"state": "pending", "why": (why or status.get("phase", ""))[:500]}


class Provider:
    def __init__(self, name: str, kubectl: Kubectl) -> None:
        self.name = name
        self.kubectl = kubectl
        self.selector = ""

    def stateful_set(self) -> Json:
        found: Json = json.loads(self.kubectl("get", "statefulset", self.name, "-o", "json"))
        labels = found["spec"]["selector"].get("matchLabels", {})
        self.selector = ",".join(f"{key}={value}" for key, value in sorted(labels.items()))
        return found

    def pods(self) -> list[Json]:
        """Those of the StatefulSet that exist, whatever else has its labels."""
        if not self.selector:
            self.stateful_set()
        found: Json = json.loads(self.kubectl("get", "pods", "-l", self.selector, "-o", "json"))
        return [pod for pod in found["items"] if self.is_owner(pod["metadata"])]

    def is_owner(self, meta: Json) -> bool:
        owners = meta.get("ownerReferences", [])
        return any(owner["kind"] == "StatefulSet" and owner["name"] == self.name for owner in owners)

    def hello(self, _: Json) -> Json:
        return {"version": 1, "name": f"Kubernetes ({self.name})", "marks": False, "can": ["grow", "let_go"], "every_s": EVERY_S}

    def list(self, _: Json) -> Json:
        wished = self.stateful_set()["spec"]["replicas"]
        return {"machines": [machine_of(pod) for pod in self.pods()], "wished": wished}

    def mark(self, _: Json) -> Json:
        return {}

    confirm = mark

    def grow(self, request: Json) -> Json:
        present, to = self.stateful_set()["spec"]["replicas"], request["to"]
        if present != to:
            if present != request["from"]:
                raise Refused("wrong", f"statefulset {self.name} has {present} replicas by now, not {request['from']}: ask again")
            self.scale(present, to)
        return {"said": f"statefulset {self.name}: {present} -> {to} replicas"}

    def let_go(self, request: Json) -> Json:
        pods = {pod["metadata"]["uid"]: pod["metadata"] for pod in self.pods()}
        pod = pods.get(request["id"])
        if pod is None or "deletionTimestamp" in pod:
            return {}
        replicas = self.stateful_set()["spec"]["replicas"]
        number = int(pod["name"].rsplit("-", 1)[1])
        if number >= replicas:
            return {}  # the StatefulSet takes it by itself
        if number != replicas - 1:
            highest = f"{self.name}-{replicas - 1}"
            return {"later": f"{pod['name']} goes back when it is the highest: a StatefulSet gives back {highest} first"}
        self.scale(replicas, replicas - 1)
        return {}

    def scale(self, present: int, to: int) -> None:
        """Of two that do this at once the second one is refused, and reads again."""
        self.kubectl("scale", "statefulset", self.name, f"--current-replicas={present}", f"--replicas={to}")


def watch(provider: Provider, output: Output) -> None:
    """A hint only: an end of the watch, whatever its reason, is one as well."""
    pause = 1.0
    while True:
        begun = time.monotonic()
        if provider.selector:
            words = ["get", "pods", "-l", provider.selector, "--watch-only", "-o", "name"]
            with subprocess.Popen([*provider.kubectl.words, *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                  stderr=subprocess.DEVNULL, preexec_fn=die_with_parent) as process:
                assert process.stdout is not None
                for _ in process.stdout:
                    output.say({"event": "changed"})
            output.say({"event": "changed"})
        pause = 1.0 if time.monotonic() - begun > SLOWEST_WATCH_S else min(2 * pause, SLOWEST_WATCH_S)
        time.sleep(pause)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("statefulset")
    parser.add_argument("--namespace")
    parser.add_argument("--context")
    options = parser.parse_args()
    words = shlex.split(os.environ.get("KUBECTL", "kubectl"))
    for option in ("namespace", "context"):
        if getattr(options, option):
            words.append(f"--{option}={getattr(options, option)}")
    provider, output = Provider(options.statefulset, Kubectl(words)), Output()
    threading.Thread(target=watch, args=(provider, output), daemon=True).start()
    return serve(output, {"hello": provider.hello, "list": provider.list, "mark": provider.mark, "confirm": provider.confirm,
                          "grow": provider.grow, "let_go": provider.let_go}, "kubectl")


if __name__ == "__main__":
    sys.exit(main())
