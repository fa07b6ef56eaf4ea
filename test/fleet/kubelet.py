#!/usr/bin/env python3
"""Plays the kubelet of one node for the pods of a real API server: each pod has namespaces of its own for processes and network; its
first process is the command of its container, here or where PATH has it. No two pods have one address, whatever their names.

usage: kubelet.py KUBECONFIG DIR        (as root; the bridge `pods` is there, with 10.79.0.1)

DIR/NAME.pid has the first process of pod NAME, DIR/NAME is its own folder (XDG_RUNTIME_DIR). DIR/slow: pods are not started while
it is there.
"""
import json
import os
import pathlib
import signal
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request

NODE = "n1"
MASTER = "10.79.0.1"
LOOK_S = 0.2


class Api:
    def __init__(self, kubeconfig):
        text = pathlib.Path(kubeconfig).read_text()
        self.server = text.split('server: "')[1].split('"')[0]
        self.token = text.split("token: ")[1].split("}")[0]
        self.trust = ssl._create_unverified_context()

    def __call__(self, method, path, body=None, kind="application/json"):
        request = urllib.request.Request(
            self.server + "/api/v1/namespaces/default/" + path, method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": "Bearer " + self.token, "Content-Type": kind})
        with urllib.request.urlopen(request, context=self.trust, timeout=10) as answer:
            return json.load(answer)


def ip(*words, inside=None):
    enter = ["nsenter", "-n", "-t", str(inside)] if inside else []
    subprocess.run([*enter, "ip", *words], check=True)


class Kubelet:
    def __init__(self, api, folder):
        self.api, self.folder = api, folder
        self.pods = {}  # by uid: name, process, when it is killed
        self.links = 1

    def start(self, pod):
        name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
        if not pod["spec"].get("nodeName"):
            target = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": {"kind": "Node", "name": NODE}}
            self.api("POST", f"pods/{name}/binding", target)
        own = self.folder / name
        own.mkdir(mode=0o700, exist_ok=True)
        command = pod["spec"]["containers"][0]["command"]
        first = subprocess.Popen(["unshare", "--net", "--pid", "--fork", "--mount-proc", "--kill-child", *command], stdin=subprocess.DEVNULL,
                                 env=os.environ | {"XDG_RUNTIME_DIR": str(own)})
        children = pathlib.Path(f"/proc/{first.pid}/task/{first.pid}/children")
        while not (inside := children.read_text().split()) and first.poll() is None:
            time.sleep(0.01)  # how long a look lasts, not a wait
        address = self.link(inside[0])
        (self.folder / f"{name}.pid").write_text(inside[0])
        self.pods[uid] = {"name": name, "process": first, "inside": int(inside[0]), "until": None}
        began = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        status = {"phase": "Running", "podIP": address, "startTime": began, "conditions": [{"type": "Ready", "status": "True"}]}
        self.api("PATCH", f"pods/{name}/status", {"status": status}, "application/strategic-merge-patch+json")

    def link(self, inside):
        """Gives the pod a link to the node's bridge; its address."""
        self.links += 1
        address, link = f"10.79.0.{self.links}", f"pod{self.links}"
        ip("link", "add", link, "master", "pods", "type", "veth", "peer", "name", "eth0", "netns", inside)
        ip("link", "set", link, "up")
        ip("link", "set", "lo", "up", inside=inside)
        ip("address", "add", f"{address}/24", "dev", "eth0", inside=inside)
        ip("link", "set", "eth0", "up", inside=inside)
        ip("route", "add", "default", "via", MASTER, inside=inside)
        return address

    def end(self, uid, mine, pod):
        if mine["until"] is None:
            grace = pod["metadata"].get("deletionGracePeriodSeconds", 30)
            mine["until"] = time.monotonic() + grace
            os.kill(mine["inside"], signal.SIGTERM)
        if mine["process"].poll() is None and time.monotonic() > mine["until"]:
            os.kill(mine["inside"], signal.SIGKILL)
        if mine["process"].poll() is not None:
            del self.pods[uid]
            (self.folder / f"{mine['name']}.pid").unlink(missing_ok=True)
            self.remove(mine["name"], uid)

    def remove(self, name, uid):
        self.api("DELETE", f"pods/{name}", {"gracePeriodSeconds": 0, "preconditions": {"uid": uid}})

    def look(self):
        for pod in self.api("GET", "pods?labelSelector=app%3Ddt-workers")["items"]:
            uid, mine = pod["metadata"]["uid"], self.pods.get(pod["metadata"]["uid"])
            is_going = "deletionTimestamp" in pod["metadata"]
            if mine and is_going:
                self.end(uid, mine, pod)
            elif is_going:
                self.remove(pod["metadata"]["name"], uid)
            elif not mine and not (self.folder / "slow").exists():
                self.start(pod)

    def run(self):
        while True:
            try:
                self.look()
            except (urllib.error.URLError, OSError, json.JSONDecodeError) as e:
                print("kubelet:", e, file=sys.stderr)
            time.sleep(LOOK_S)  # how long a look lasts, not a wait


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    kubelet = Kubelet(Api(sys.argv[1]), pathlib.Path(sys.argv[2]))
    try:
        kubelet.run()
    finally:
        for pod in kubelet.pods.values():
            pod["process"].kill()
