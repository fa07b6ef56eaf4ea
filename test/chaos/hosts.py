"""The hosts of a chaos run, and the faults that can be injected from outside.

Namespaces: as root, every host has its own processes, network, mounts and sshd, on a bridge that can
be cut; the job's master has its own network. They have no names: when the processes in them end,
nothing is left of them.
Loopback: without root, the sshds of scripts/sshd-hosts; nothing can be cut or switched off there.
"""
import ctypes
import os
import shutil
import signal
import socket
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.realpath(__file__))
ROOT = os.path.normpath(os.path.join(HERE, "..", ".."))
SFTP_SERVER = "/usr/lib/openssh/sftp-server"
NEW_NS, NEW_UTS, NEW_IPC, NEW_PID, NEW_NET = 0x20000, 0x4000000, 0x8000000, 0x20000000, 0x40000000
MASTER = 0  # the number of the master; hosts count from 1
libc = ctypes.CDLL(None, use_errno=True)


def unshare(flags):
    if libc.unshare(flags):
        raise OSError(ctypes.get_errno(), "unshare")


def mount(what, where, kind, flags=0):
    if libc.mount(what.encode(), where.encode(), kind.encode(), flags, None):
        raise OSError(ctypes.get_errno(), f"mount {where}")


def die_with_parent():
    PR_SET_PDEATHSIG = 1
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def private_mounts():
    """Mounts made from here on are private; /proc shows this namespace's processes."""
    MS_REC, MS_PRIVATE = 0x4000, 0x40000
    mount("none", "/", "none", MS_REC | MS_PRIVATE)
    mount("proc", "/proc", "proc")


def forget_mount(where):
    """Detaches a mount inherited from the parent namespace; its server may not answer."""
    MNT_DETACH = 2
    libc.umount2(where.encode(), MNT_DETACH)


def run(*words, check=True):
    done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=30)
    if check and done.returncode:
        raise RuntimeError(f"{' '.join(words)}: {done.stderr.strip() or done.returncode}")
    return done.stdout


def mount_volume(disk, where):
    """A client of the volume at `where`: sshfs without ssh. Stopping its sftp-server, whose pid this gives, stalls it."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        server = subprocess.Popen([SFTP_SERVER], stdin=theirs, stdout=theirs)
        # Nothing is remembered from one call to the next: others write there too.
        subprocess.Popen(["sshfs", "-f", "-o", "passive,dir_cache=no,attr_timeout=0,entry_timeout=0,negative_timeout=0",
                          f":{disk}", where], stdin=ours, stdout=ours)
    until = time.monotonic() + 10
    while not os.path.ismount(where):
        if time.monotonic() > until:
            raise RuntimeError(f"sshfs has not mounted {where}")
        time.sleep(0.02)
    return server.pid


def sshd_config(folder, host, address, port):
    # A separate home: the start files of the user's shell must not be killed half done.
    for name in ("run", "home"):
        os.makedirs(f"{host}/{name}", mode=0o700, exist_ok=True)
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
SetEnv XDG_CACHE_HOME={host}/cache XDG_RUNTIME_DIR={host}/run HOME={host}/home
"""


class Namespaces:
    can_cut = can_switch_off = True

    def __init__(self, folder, count, volume):
        """`folder` gets disk/ (the volume's files) and job/ (the volume as the master sees it)."""
        self.folder, self.volume = folder, volume
        self.port = 2222
        self.names = [f"10.99.0.{n + 1}" for n in range(count + 1)]  # the master's is the first
        self.inits = [None] * (count + 1)
        self.cuts = []
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
        for number in range(count + 1):
            self.switch_on(number)

    def line(self, number):
        """The host as a line of a hosts file."""
        return f"{self.names[number]}:{self.port}"

    def options(self):
        return ["--ssh-config", f"{self.folder}/ssh_config", "--ssh-known-hosts", "strict"]

    def on_master(self, *words):
        return ["nsenter", f"--net=/proc/{self.inits[MASTER]}/ns/net", "--", *words]

    def host_of(self, pid):
        """Its number; None when it is no host's."""
        try:
            space = os.readlink(f"/proc/{pid}/ns/pid")
        except OSError:
            return None
        return next((n for n, s in self.spaces.items() if s == space), None)

    def switch_on(self, number):
        host = f"{self.folder}/host-{number}"
        os.makedirs(host, exist_ok=True)
        words = [sys.executable, f"{HERE}/host_init.py"]
        if number != MASTER:
            with open(f"{host}/sshd.conf", "w") as file:
                file.write(sshd_config(self.folder, host, self.names[number], self.port))
            words += [host] + ([f"{self.folder}/disk", f"{self.folder}/job"] if self.volume else [])
        log = open(f"{host}/init.log", "ab")
        outer = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True)
        log.close()
        pid = int(outer.stdout.readline())
        self.inits[number] = pid
        port = f"port{number}"
        run("ip", "link", "add", port, "type", "veth", "peer", "name", "eth0", "address",
            f"02:00:00:00:00:{number + 1:02x}", "netns", str(pid))
        run("ip", "link", "set", port, "master", "switch", "up")
        inside = ["nsenter", f"--net=/proc/{pid}/ns/net", "--"]
        run(*inside, "ip", "link", "set", "lo", "up")
        run(*inside, "ip", "addr", "add", f"{self.names[number]}/24", "dev", "eth0")
        run(*inside, "ip", "link", "set", "eth0", "up")
        run(*inside, "nft", "add table netdev cut")
        outer.stdin.write("go\n")
        outer.stdin.flush()
        if outer.stdout.readline() != "ready\n":
            raise RuntimeError(f"host {number} does not start: " + open(f"{host}/init.log").read()[-500:])
        self.spaces = {n: os.readlink(f"/proc/{p}/ns/pid") for n, p in enumerate(self.inits) if n != MASTER and p}

    def switch_off(self, number):
        """Like a power cut: every process ends at once, and no connection is closed."""
        pid, self.inits[number] = self.inits[number], None
        self.spaces.pop(number)
        run("ip", "link", "del", f"port{number}")
        os.kill(pid, signal.SIGKILL)

    def is_on(self, number):
        return self.inits[number] is not None

    def cut(self, number, way, other=None):
        """Drops what reaches the host (in), what it sends (out), or all; only what `other` is party to, if given."""
        if not self.is_on(number):
            return
        match = ("", "") if other is None else (f"ip saddr {self.names[other]} ", f"ip daddr {self.names[other]} ")
        if way in ("in", "all"):  # dropped on entry to the host
            inside = ["nsenter", f"--net=/proc/{self.inits[number]}/ns/net", "--"]
            self._drop(inside, "eth0", match[0])
        if way in ("out", "all"):  # and on entry to the switch: the sender notices nothing
            self._drop([], f"port{number}", match[1])

    @staticmethod
    def _drop(inside, device, match):
        chain = f"netdev cut {device}"
        run(*inside, "nft", f"add chain {chain} {{ type filter hook ingress device {device} priority 0; }}")
        run(*inside, "nft", f"add rule {chain} {match}drop")

    def mend(self, number):
        """Ends every cut of the host."""
        if not self.is_on(number):
            return
        inside = ["nsenter", f"--net=/proc/{self.inits[number]}/ns/net", "--"]
        for where, device in ((inside, "eth0"), ([], f"port{number}")):
            run(*where, "nft", f"delete chain netdev cut {device}", check=False)

    def close(self):
        """Nothing to do: what ran here ends with the process namespace that all of it lives in."""


class Loopback:
    can_cut = can_switch_off = False

    def __init__(self, folder, count):
        self.folder = folder
        out = run(f"{ROOT}/scripts/sshd-hosts", "start", f"{folder}/ssh", "-n", str(count),
                  "--first", str(30000 + os.getpid() % 200 * 100 + 2))
        said = dict(line.split("=", 1) for line in out.splitlines())
        self.port, self.words = said["port"], said["options"].split()
        self.names = ["127.0.0.1"] + said["addresses"].split()

    def line(self, number):
        return f"{self.names[number]}:{self.port}"

    def options(self):
        return self.words

    @staticmethod
    def on_master(*words):
        return list(words)

    def host_of(self, pid):
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

    @staticmethod
    def is_on(_):
        return True

    def mend(self, number):
        pass

    def close(self):
        run(f"{ROOT}/scripts/sshd-hosts", "stop", f"{self.folder}/ssh")


def missing_for_namespaces():
    """What keeps hosts from being namespaces; empty: nothing."""
    if os.geteuid() != 0:
        return "not root"
    for program, package in (("ip", "iproute2"), ("nft", "nftables"), ("nsenter", "util-linux")):
        if not shutil.which(program):
            return f"no {program} (package {package})"
    child = os.fork()
    if child == 0:
        try:
            unshare(NEW_NS | NEW_NET | NEW_PID)
            os._exit(0)
        except OSError:
            os._exit(1)
    return "namespaces cannot be made here" if os.waitpid(child, 0)[1] else ""


def missing_for_volume():
    if not shutil.which("sshfs") or not os.path.exists(SFTP_SERVER):
        return "no sshfs (package sshfs) or no sftp-server"
    return "" if os.access("/dev/fuse", os.R_OK | os.W_OK) else "no /dev/fuse"
