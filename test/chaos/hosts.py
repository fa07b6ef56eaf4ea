"""The hosts and masters of a chaos run, and the faults that can be injected from outside.

Namespaces: as root, every host has its own processes, network, mounts and sshd, on a bridge that can
be cut. A master has its own network, mounts, name, boot id, wall clock and disk. They have no names: when the processes
in them end, nothing is left of them.
Loopback: without root, the sshds of scripts/sshd-hosts; nothing can be cut or switched off there.
"""
from __future__ import annotations

import ctypes
import os
import shutil
import signal
import struct
import subprocess
import sys
import time
import uuid
from collections.abc import Callable

from volume import Control

HERE = os.path.dirname(os.path.realpath(__file__))
ROOT = os.path.normpath(os.path.join(HERE, "..", ".."))
NEW_NS, NEW_UTS, NEW_IPC, NEW_PID, NEW_NET = 0x20000, 0x4000000, 0x8000000, 0x20000000, 0x40000000
MS_BIND, MS_REC, MS_PRIVATE = 0x1000, 0x4000, 0x40000
MASTER = 0   # the number of the master; hosts count from 1
FORMER = -1  # of a master whose job another one has taken over
libc = ctypes.CDLL(None, use_errno=True)


def unshare(flags: int) -> None:
    if libc.unshare(flags):
        raise OSError(ctypes.get_errno(), "unshare")


def mount(what: str, where: str, kind: str, flags: int = 0) -> None:
    if libc.mount(what.encode(), where.encode(), kind.encode(), flags, None):
        raise OSError(ctypes.get_errno(), f"mount {where}")


def die_with_parent() -> None:
    PR_SET_PDEATHSIG = 1
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def be_private() -> None:
    """Mounts made from here on are private."""
    mount("none", "/", "none", MS_REC | MS_PRIVATE)


def private_mounts() -> None:
    """And /proc shows this namespace's processes."""
    be_private()
    mount("proc", "/proc", "proc")


def run(*words: str, check: bool = True) -> str:
    done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=30)
    if check and done.returncode:
        raise RuntimeError(f"{' '.join(words)}: {done.stderr.strip() or done.returncode}")
    return done.stdout


def mount_volume(disk: str, where: str, control: str) -> int:
    """A client of the volume at `where`; the pid of its server, which stalls it when it is stopped."""
    Control(control)
    server = subprocess.Popen([sys.executable, f"{HERE}/volume.py", disk, where, control], stdin=subprocess.DEVNULL,
                              stdout=subprocess.DEVNULL)
    until = time.monotonic() + 10
    while f" {where} " not in open("/proc/self/mounts").read():  # it may be stalled: it is not asked
        if time.monotonic() > until or server.poll() is not None:
            raise RuntimeError(f"{where} is not mounted")
        time.sleep(0.02)  # between two looks, not a wait
    return server.pid


def sshd_config(folder: str, host: str, address: str, port: int, environment: dict[str, str]) -> str:
    # A separate home: the start files of the user's shell must not be killed half done.
    for name in ("run", "home"):
        os.makedirs(f"{host}/{name}", mode=0o700, exist_ok=True)
    values = {"XDG_CACHE_HOME": f"{host}/cache", "XDG_RUNTIME_DIR": f"{host}/run", "HOME": f"{host}/home"} | environment
    return f"""ListenAddress {address}:{port}
HostKey {folder}/host_key
PidFile {host}/sshd.pid
AuthorizedKeysFile {folder}/user_key.pub
AuthenticationMethods publickey
UsePAM no
UseDNS no
StrictModes no
PermitRootLogin prohibit-password
PrintMotd no
MaxStartups 100
SetEnv {" ".join(f"{name}={value}" for name, value in values.items())}
"""


class Clock:
    """The wall clock of a machine, by a library that its processes load; "": they do not."""

    def __init__(self, folder: str, library: str) -> None:
        self.path, self.library = f"{folder}/clock", library
        self.shift_s = 0.0

    @property
    def shift_s(self) -> float:
        return self._shift_s

    @shift_s.setter
    def shift_s(self, seconds: float) -> None:
        self._shift_s = seconds
        # In place: processes have it mapped.
        with open(os.open(self.path, os.O_WRONLY | os.O_CREAT, 0o600), "wb") as file:
            file.write(struct.pack("<q", round(seconds * 1e9)))

    def environment(self) -> dict[str, str]:
        return {"LD_PRELOAD": self.library, "DT_CLOCK_SHIFT": self.path} if self.library else {}


class Master:
    """A machine that dtlaunch runs on: its folder, and its first process while it is on."""

    def __init__(self, site: str, number: int, library: str) -> None:
        self.number, self.folder = number, f"{site}/master-{number}"
        self.address = f"10.99.0.{1 if number == 0 else 200 + number}"
        self.port = f"master{number}"
        self.init = 0
        self.mounts = ""  # its namespace
        self.boots = 0
        for name in ("run", "state", "cache", "disk"):
            os.makedirs(f"{self.folder}/{name}", mode=0o700)
        self.clock = Clock(self.folder, library)

    def boot_id(self) -> str:
        return str(uuid.uuid5(uuid.NAMESPACE_URL, f"{self.folder}/{self.boots}"))

    def environment(self) -> dict[str, str]:
        return {**os.environ, "XDG_RUNTIME_DIR": f"{self.folder}/run", "XDG_STATE_HOME": f"{self.folder}/state",
                "XDG_CACHE_HOME": f"{self.folder}/cache", **self.clock.environment()}

    def processes(self) -> list[int]:
        return [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if self.mounts and namespace(pid, "mnt") == self.mounts]


def namespace(pid: int, kind: str) -> str:
    try:
        return os.readlink(f"/proc/{pid}/ns/{kind}")
    except OSError:
        return ""


class Namespaces:
    can_cut = can_switch_off = True

    def __init__(self, folder: str, count: int, library: str) -> None:
        """`folder` has disk/ (the volume's files) and job/ (where hosts and masters see the volume)."""
        self.folder, self.library = folder, library
        self.port = 2222
        self.masters = [Master(folder, 0, library)]
        self.names = [f"10.99.0.{n + 1}" for n in range(count + 1)]  # the first master's is the first
        self.inits: list[int | None] = [None] * (count + 1)
        self.spaces: dict[int, str] = {}
        os.makedirs("/run/sshd", mode=0o755, exist_ok=True)
        for key in ("host_key", "user_key"):
            run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", f"{folder}/{key}")
        host_key = " ".join(open(f"{folder}/host_key.pub").read().split()[:2])
        with open(f"{folder}/known_hosts", "w") as file:
            file.writelines(f"[{name}]:{self.port} {host_key}\n" for name in self.names[1:])
        with open(f"{folder}/ssh_config", "w") as file:
            file.write(f"Host *\n  User root\n  IdentityFile {folder}/user_key\n  IdentitiesOnly yes\n"
                       f"  UserKnownHostsFile {folder}/known_hosts\n  GlobalKnownHostsFile /dev/null\n")
        run("ip", "link", "set", "lo", "up")
        run("ip", "link", "add", "switch", "type", "bridge", "forward_delay", "0")
        run("ip", "link", "set", "switch", "up")
        run("nft", "add table netdev cut")
        self.clocks = {n: Clock(self.host_folder(n), library) for n in range(1, count + 1)}
        for number in range(count + 1):
            self.switch_on(number)

    def host_folder(self, number: int) -> str:
        folder = f"{self.folder}/host-{number}"
        os.makedirs(folder, exist_ok=True)
        return folder

    @property
    def master(self) -> Master:
        return self.masters[-1]

    def line(self, number: int) -> str:
        """The host as a line of a hosts file."""
        return f"{self.names[number]}:{self.port}"

    def options(self) -> list[str]:
        return ["--ssh-config", f"{self.folder}/ssh_config", "--ssh-known-hosts", "strict"]

    def on_master(self, *words: str, where: str = "/") -> list[str]:
        return [*self._inside(self.master.init, "mnt", "uts", "net"), "sh", "-c", 'cd "$0" && exec "$@"', where, *words]

    @staticmethod
    def _inside(pid: int | None, *kinds: str) -> list[str]:
        options = {"mnt": "--mount", "uts": "--uts", "net": "--net"}
        return ["nsenter", *(f"{options[kind]}=/proc/{pid}/ns/{kind}" for kind in kinds), "--"]

    def host_of(self, pid: int) -> int | None:
        """Its number; None when it is no host's and no master's."""
        space, mounts = namespace(pid, "pid"), namespace(pid, "mnt")
        for master in self.masters:
            if master.mounts and master.mounts == mounts:
                return MASTER if master is self.master else FORMER
        return next((n for n, s in list(self.spaces.items()) if s == space), None)

    def clock(self, number: int) -> Clock:
        return self.clocks[number] if number else self.master.clock

    def volumes(self, number: int | None) -> list[Control]:
        """Of a host or the master; None: of all of them."""
        if number is None:
            return [control for n in range(len(self.names)) for control in self.volumes(n)]
        return [Control(f"{self.host_folder(number) if number else self.master.folder}/volume")]

    def journal(self) -> Control:
        return Control(f"{self.master.folder}/journal")

    # ---- switching on and off

    def switch_on(self, number: int) -> None:
        if number == MASTER:
            return self.switch_on_master()
        folder = self.host_folder(number)
        with open(f"{folder}/sshd.conf", "w") as file:
            file.write(sshd_config(self.folder, folder, self.names[number], self.port, self.clocks[number].environment()))
        pid = self._start(["host", folder, f"{self.folder}/disk", f"{self.folder}/job"], folder, f"port{number}",
                          self.names[number], number + 1)
        self.inits[number] = pid
        self.spaces[number] = namespace(pid, "pid")

    def switch_on_master(self) -> None:
        master = self.master
        master.boots += 1
        with open(f"{master.folder}/boot_id", "w") as file:
            file.write(master.boot_id() + "\n")
        hidden = [other.folder for other in self.masters if other is not master]
        master.init = self._start(["master", master.folder, f"{self.folder}/disk", f"{self.folder}/job", *hidden], master.folder,
                                  master.port, master.address, 200 + master.number)
        master.mounts = namespace(master.init, "mnt")
        self.inits[MASTER] = master.init

    def _start(self, words: list[str], folder: str, port: str, address: str, mac: int) -> int:
        with open(f"{folder}/init.log", "ab") as log:
            outer = subprocess.Popen([sys.executable, f"{HERE}/host_init.py", *words], stdin=subprocess.PIPE,
                                     stdout=subprocess.PIPE, stderr=log, text=True)
        assert outer.stdin and outer.stdout
        pid = int(outer.stdout.readline())
        run("ip", "link", "add", port, "type", "veth", "peer", "name", "eth0", "address", f"02:00:00:00:00:{mac:02x}",
            "netns", str(pid))
        run("ip", "link", "set", port, "master", "switch", "up")
        inside = self._inside(pid, "net")
        run(*inside, "ip", "link", "set", "lo", "up")
        run(*inside, "ip", "addr", "add", f"{address}/24", "dev", "eth0")
        run(*inside, "ip", "link", "set", "eth0", "up")
        run(*inside, "nft", "add table netdev cut")
        outer.stdin.write("go\n")
        outer.stdin.flush()
        if outer.stdout.readline() != "ready\n":
            raise RuntimeError(f"{folder} does not start: " + open(f"{folder}/init.log").read()[-500:])
        return pid

    def switch_off(self, number: int) -> None:
        """Like a power cut: every process ends at once, and no connection is closed."""
        if number == MASTER:
            return self.switch_off_master(self.master)
        pid, self.inits[number] = self.inits[number], None
        self.spaces.pop(number)
        run("ip", "link", "del", f"port{number}")
        if pid:
            os.kill(pid, signal.SIGKILL)

    def switch_off_master(self, master: Master) -> None:
        """And what is in its memory is gone: all of /run."""
        if not master.init:
            return
        if master is self.master:
            self.inits[MASTER] = None
        run("ip", "link", "del", master.port)
        until = time.monotonic() + 10
        while pids := master.processes():
            assert time.monotonic() < until, f"{master.folder} cannot be switched off: {pids}"
            for number in (signal.SIGSTOP, signal.SIGKILL):  # stopped first, none sees another one die
                for pid in pids:
                    try:
                        os.kill(pid, number)
                    except ProcessLookupError:
                        pass
            time.sleep(0.02)  # between two looks, not a wait
        master.init, master.mounts = 0, ""
        shutil.rmtree(f"{master.folder}/run")
        os.mkdir(f"{master.folder}/run", 0o700)

    def add_master(self) -> None:
        """From here on it is the master."""
        self.masters.append(Master(self.folder, len(self.masters), self.library))
        self.switch_on_master()

    def is_on(self, number: int) -> bool:
        return self.inits[number] is not None

    # ---- cuts

    def cut(self, number: int, way: str, other: int | None = None) -> Callable[[], None]:
        """Drops what reaches the machine (in), what it sends (out), or all; only what `other` is party to, if given. What
        this gives ends it."""
        pid, port = self.inits[number], f"port{number}" if number else self.master.port
        inside = self._inside(pid, "net")
        match = ("", "") if other is None else (f"ip saddr {self.names[other]} ", f"ip daddr {self.names[other]} ")
        if way in ("in", "all"):  # dropped on entry to the host
            self._drop(inside, "eth0", match[0])
        if way in ("out", "all"):  # and on entry to the switch: the sender notices nothing
            self._drop([], port, match[1])

        def mend() -> None:
            if os.path.exists(f"/proc/{pid}"):
                run(*inside, "nft", "delete chain netdev cut eth0", check=False)
                run("nft", f"delete chain netdev cut {port}", check=False)
        return mend

    @staticmethod
    def _drop(inside: list[str], device: str, match: str) -> None:
        chain = f"netdev cut {device}"
        run(*inside, "nft", f"add chain {chain} {{ type filter hook ingress device {device} priority 0; }}")
        run(*inside, "nft", f"add rule {chain} {match}drop")

    def close(self) -> None:
        """Nothing to do: what ran here ends with the process namespace that all of it lives in."""


class Loopback:
    can_cut = can_switch_off = False

    def __init__(self, folder: str, count: int, library: str) -> None:
        self.folder = folder
        self.masters = [Master(folder, 0, library)]
        self.master = self.masters[0]
        out = run(f"{ROOT}/scripts/sshd-hosts", "start", f"{folder}/ssh", "-n", str(count),
                  "--first", str(30000 + os.getpid() % 200 * 100 + 2))
        said = dict(line.split("=", 1) for line in out.splitlines())
        self.port, self.words = said["port"], said["options"].split()
        self.names = ["127.0.0.1"] + said["addresses"].split()

    def line(self, number: int) -> str:
        return f"{self.names[number]}:{self.port}"

    def options(self) -> list[str]:
        return self.words

    @staticmethod
    def on_master(*words: str, where: str = "/") -> list[str]:
        return ["sh", "-c", 'cd "$0" && exec "$@"', where, *words]

    def host_of(self, pid: int) -> int | None:
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                words = file.read()
            with open(f"/proc/{pid}/environ", "rb") as file:
                words += b"\0" + file.read() + b"\0"
        except OSError:
            return None
        for number, name in enumerate(self.names[1:], 1):
            line = self.line(number).encode()
            if (b"DT_HOST=" + line + b"\0" in words or b"--host\0" + line + b"\0" in words
                    or f"{self.folder}/ssh/{name}.conf".encode() in words):
                return number
        try:  # an sshd's session: by its listener
            return self.host_of(int(open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()[1])) \
                if b"sshd" in words[:40] else None
        except (OSError, ValueError):
            return None

    def clock(self, number: int) -> Clock:
        return self.master.clock

    @staticmethod
    def is_on(_: int) -> bool:
        return True

    def close(self) -> None:
        run(f"{ROOT}/scripts/sshd-hosts", "stop", f"{self.folder}/ssh")


Site = Namespaces | Loopback


def missing_for_namespaces() -> str:
    """What keeps hosts from being namespaces; empty: nothing."""
    if os.geteuid() != 0:
        return "not root"
    for program, package in (("ip", "iproute2"), ("nft", "nftables"), ("nsenter", "util-linux")):
        if not shutil.which(program):
            return f"no {program} (package {package})"
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        return "no /dev/fuse"
    child = os.fork()
    if child == 0:
        try:
            unshare(NEW_NS | NEW_NET | NEW_PID)
            os._exit(0)
        except OSError:
            os._exit(1)
    return "namespaces cannot be made here" if os.waitpid(child, 0)[1] else ""
