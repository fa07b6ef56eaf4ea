#!/usr/bin/env python3
"""An instance of EC2 as far as dtlaunch-cloud-setup meets one: namespaces of its own for all but the time, Debian's sshd, the metadata
at 169.254.169.254, and the set-up as the end of its user data.

usage: instance.py SITE ROLE ID NAME        (as root; until it is killed)

SITE/efs is the volume, mounted at /srv/efs; SITE/names are lines ADDRESS NAME, the DNS of the VPC; SITE/cluster.conf is /etc/dtlaunch's;
SITE/profile is read at login. The bridge `vpc` is there. Afterwards SITE/ID has `init`, its first process here; `log`, what the set-up
printed; `done`, its exit code.
"""
import http.server
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading

TOP = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TOP / "test/chaos"))
import hosts  # noqa: E402

METADATA = "169.254.169.254"
TOKEN = "secret"


class Metadata(http.server.BaseHTTPRequestHandler):
    values: dict[str, str] = {}

    def log_message(self, *_):
        pass

    def answer(self, code, text=""):
        self.send_response(code)
        self.end_headers()
        self.wfile.write(text.encode())

    def do_PUT(self):
        self.answer(200 if self.headers.get("X-aws-ec2-metadata-token-ttl-seconds") else 400, TOKEN)

    def do_GET(self):
        value = self.values.get(self.path.removeprefix("/latest/meta-data/"))
        known = self.headers.get("X-aws-ec2-metadata-token") == TOKEN
        self.answer(401 if not known else 404 if value is None else 200, value or "")


def address_of(name):
    return name.partition(".")[0].removeprefix("ip-").replace("-", ".")


def bind(what, where):
    hosts.mount(str(what), where, "none", hosts.MS_BIND)


def own_files(site, folder, login):
    """What differs from the machine's: /etc, homes, /opt, /run, and /srv with the volume."""
    etc = folder / "etc"
    subprocess.run(["cp", "-a", "/etc", etc], check=True)
    for key in (etc / "ssh").glob("ssh_host_*"):
        key.unlink()
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", etc / "ssh/ssh_host_ed25519_key"], check=True)
    # As Debian has it, but for PAM, which would ask the machine's session manager.
    (etc / "ssh/sshd_config").write_text("Include /etc/ssh/sshd_config.d/*.conf\nUsePAM no\nPasswordAuthentication no\n")
    (etc / "hosts").write_text("127.0.0.1 localhost\n" + (site / "names").read_text())
    (etc / "resolv.conf").unlink(missing_ok=True)
    (etc / "resolv.conf").touch()  # no other names: a question ends at once
    shutil.copy(site / "profile", etc / "profile.d/zz-test.sh")
    (etc / "dtlaunch").mkdir(exist_ok=True)
    shutil.copy(site / "cluster.conf", etc / "dtlaunch/cluster.conf")
    accounts = (etc / "passwd").read_text()
    (etc / "passwd").write_text(re.sub(r"^(root:.*:)/root:", r"\1/home/root:", accounts))  # not the machine's
    bind(etc, "/etc")
    for where in ("/home", "/opt", "/run", "/srv"):
        hosts.mount("none", where, "tmpfs")
        os.chmod(where, 0o755)
    os.makedirs("/home/root", 0o700)
    os.makedirs("/run/sshd", 0o755)
    os.makedirs("/srv/efs")
    bind(site / "efs", "/srv/efs")
    if login != "root":
        subprocess.run(["useradd", "--uid", "7321", "--create-home", "--shell", "/bin/bash", "--password", "*", login], check=True)
        os.makedirs("/run/user/7321", 0o700)
        shutil.chown("/run/user/7321", 7321, 7321)


def be_instance(site, role, key, name, folder, parent):
    hosts.die_with_parent()
    hosts.unshare(hosts.NEW_NS | hosts.NEW_UTS | hosts.NEW_IPC | hosts.NEW_NET)
    hosts.private_mounts()
    parent.send(b"has its namespaces")
    parent.recv(1)  # its network is made meanwhile
    socket.sethostname(name.partition(".")[0])
    login = dict(line.split("=", 1) for line in (site / "cluster.conf").read_text().splitlines())["LOGIN"]
    own_files(site, folder, login)
    Metadata.values = {"instance-id": key, "local-ipv4": address_of(name), "local-hostname": name}
    server = http.server.ThreadingHTTPServer((METADATA, 80), Metadata)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    subprocess.run(["/usr/sbin/sshd", "-E", folder / "sshd.log"], check=True)
    programs = folder / "bin"
    programs.mkdir()
    (programs / "systemctl").write_text('#!/bin/sh\n[ "$*" = "try-reload-or-restart ssh" ] && kill -HUP "$(cat /run/sshd.pid)"\n')
    (programs / "systemctl").chmod(0o755)
    with open(folder / "log", "w") as log:
        setup = f". /etc/profile.d/zz-test.sh; PATH={programs}:$PATH exec {TOP}/packaging/aws/dtlaunch-cloud-setup {role}"
        done = subprocess.run(["sh", "-c", setup], env={"PATH": "/usr/bin:/bin:/usr/sbin:/sbin"}, cwd="/", stdin=subprocess.DEVNULL,
                              stdout=log, stderr=subprocess.STDOUT)
    (folder / "done").write_text(f"{done.returncode}\n")
    while True:
        try:
            os.wait()
        except ChildProcessError:
            signal.pause()


def main():
    site, role, key, name = pathlib.Path(sys.argv[1]), *sys.argv[2:]
    hosts.die_with_parent()
    folder = site / key
    folder.mkdir()
    address = address_of(name)
    port = f"i{address.rpartition('.')[2]}"
    here, there = socket.socketpair(type=socket.SOCK_SEQPACKET)
    if os.fork() == 0:
        here.close()
        hosts.die_with_parent()
        hosts.unshare(hosts.NEW_PID)
        child = os.fork()
        if child == 0:
            be_instance(site, role, key, name, folder, there)
        there.send(str(child).encode())
        os.waitpid(child, 0)
        os._exit(0)
    there.close()
    child = next(filter(bytes.isdigit, sorted([here.recv(99), here.recv(99)])), b"").decode()
    if not child:
        sys.exit("it did not begin")
    inside = ["nsenter", "-n", "-t", child]
    hosts.run("ip", "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", child)
    hosts.run("ip", "link", "set", port, "master", "vpc", "up")
    # As the address has it: others remember it from an instance that had the same one before.
    hardware = ":".join(f"{int(part):02x}" for part in ("2", "0", *address.split(".")))
    hosts.run(*inside, "ip", "link", "set", "eth0", "address", hardware)
    hosts.run(*inside, "ip", "address", "add", f"{address}/24", "dev", "eth0")
    hosts.run(*inside, "ip", "address", "add", f"{METADATA}/32", "dev", "lo")
    hosts.run(*inside, "ip", "link", "set", "lo", "up")
    hosts.run(*inside, "ip", "link", "set", "eth0", "up")
    hosts.run(*inside, "ip", "route", "add", "default", "via", f"{address.rpartition('.')[0]}.1")
    (folder / "init").write_text(f"{child}\n")
    here.send(b"1")
    os.wait()


if __name__ == "__main__":
    main()
