#!/usr/bin/env python3
"""packaging/aws/dtlaunch-cloud-setup: a master and two workers, each below a folder, with a stand-in for their metadata."""
import getpass
import http.server
import json
import os
import pathlib
import shutil
import stat
import subprocess
import sys
import tempfile
import threading
import unittest

TOP = pathlib.Path(__file__).resolve().parents[2]
SETUP = TOP / "packaging/aws/dtlaunch-cloud-setup"
sys.path.insert(0, str(TOP / "supervisor/fleet/providers"))
import aws  # noqa: E402

STACK_ID = "arn:aws:cloudformation:eu-west-1:123456789012:stack/train/51af3dc0-da77-11e4-872e-1234567db123"
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI"


class Metadata(http.server.BaseHTTPRequestHandler):
    """IMDSv2 of /ID/...: without a token there is no answer. /signal is the stack's wait condition."""

    signals: list[dict[str, str]] = []

    def log_message(self, *_):
        pass

    def answer(self, code, text=""):
        self.send_response(code)
        self.end_headers()
        self.wfile.write(text.encode())

    def do_PUT(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.path == "/signal":
            # S3 refuses a type that was not signed.
            self.signals.append(json.loads(body) if not self.headers.get("Content-Type") else {"Status": "a Content-Type"})
        self.answer(200 if self.path == "/signal" or self.headers.get("X-aws-ec2-metadata-token-ttl-seconds") else 400, "secret")

    def do_GET(self):
        _, instance, _, _, name = self.path.split("/")
        number = int(instance.removeprefix("i-"), 16)
        values = {"instance-id": instance, "local-ipv4": f"10.0.16.{number}", "local-hostname": f"ip-10-0-16-{number}.internal"}
        self.answer(200 if self.headers.get("X-aws-ec2-metadata-token") == "secret" else 401, values[name])


def tree(folder):
    """All files: what is in them, when it was written, who may read it."""
    return {path: (path.read_bytes(), path.stat().st_mtime_ns, path.stat().st_mode) for path in folder.rglob("*") if path.is_file()}


class Case(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.server = self.enterContext(http.server.ThreadingHTTPServer(("127.0.0.1", 0), Metadata))
        self.addCleanup(self.server.shutdown)
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        Metadata.signals.clear()
        self.bin = self.folder / "bin"
        self.volume = self.folder / "volume"
        for folder in (self.bin, self.volume):
            folder.mkdir()

    def machine(self, instance, **conf):
        """The root of a new instance. WORDS=None: without that line."""
        root = self.folder / instance
        (root / "etc/ssh").mkdir(parents=True)
        (root / "etc/ssh/ssh_host_ed25519_key.pub").write_text(f"{KEY}{instance[2:]} root@image\n")
        (root / "etc/hosts").write_text("127.0.0.1 localhost\n")
        (root / "etc/dtlaunch").mkdir()
        (root / "efs").symlink_to(self.volume)
        lines = {"STACK": "train", "STACK_ID": STACK_ID, "REGION": "eu-west-1", "MOUNT": "efs", "LOGIN": getpass.getuser(), "WORKERS": "2",
                 "WORKER_TEMPLATE": "lt-0a", "SIGNAL": f"{self.url}/signal", **conf}
        text = "".join(f"{name}={value}\n" for name, value in lines.items() if value is not None)
        (root / "etc/dtlaunch/cluster.conf").write_text(text)
        return root

    def program(self, name, text):
        (self.bin / name).write_text(f"#!/bin/sh\n{text}\n")
        (self.bin / name).chmod(0o755)

    def run_setup(self, root, role, patience=20, imds=None):
        env = {"PATH": f"{self.bin}:{os.environ['PATH']}", "DT_PATIENCE": str(patience), "DT_IMDS": imds or f"{self.url}/{root.name}"}
        return subprocess.run([SETUP, "--root", root, role], env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True)

    def does(self, root, role):
        done = self.run_setup(root, role)
        self.assertEqual((done.returncode, done.stderr), (0, ""), done.stdout)
        return done.stdout

    def refuses(self, said, root, role="worker", **words):
        done = self.run_setup(root, role, patience=1, **words)
        self.assertEqual(done.returncode, 1, done)
        self.assertRegex(done.stderr, said)


class Cluster(Case):
    def test_they_meet_and_a_second_run_changes_nothing(self):
        plain, with_gpus, master = self.machine("i-0a"), self.machine("i-0b"), self.machine("i-0c")
        self.does(plain, "worker")
        self.program("nvidia-smi", "echo 'GPU 0: a'; echo 'GPU 1: a'")
        self.does(with_gpus, "worker")
        self.assertIn("2 of 2 workers are set up", self.does(master, "master"))
        self.assertEqual((master / "opt/deeplearning/workers").read_text(),
                         "ip-10-0-16-10.internal slots=1\nip-10-0-16-11.internal slots=2\n")
        self.assertEqual((master / "etc/hosts").read_text(), "127.0.0.1 localhost\n# dtlaunch: begin\n10.0.16.12 deeplearning-master\n"
                         "10.0.16.10 deeplearning-worker1\n10.0.16.11 deeplearning-worker2\n# dtlaunch: end\n")
        self.assertIn(f"ip-10-0-16-11.internal,10.0.16.11,deeplearning-worker2 {KEY}0b\n", (master / "etc/ssh/ssh_known_hosts").read_text())
        script = ". ./etc/profile.d/deeplearning.sh; env"
        found = subprocess.run(["sh", "-c", script], cwd=master, env={}, capture_output=True, text=True, check=True).stdout.splitlines()
        for line in ("DEEPLEARNING_WORKERS_COUNT=3", "DEEPLEARNING_WORKERS_PATH=/opt/deeplearning/workers", "EFS_MOUNT=/efs",
                     "DEEPLEARNING_WORKER_GPU_COUNT=0", "AWS_REGION=eu-west-1", "WORKER_LAUNCH_TEMPLATE_ID=lt-0a",
                     "ELASTIC_WORKER_TAG=train-aws-dl-cfn-elastic-worker"):
            self.assertIn(line, found)
        self.assertEqual([signal["Status"] for signal in Metadata.signals], ["SUCCESS"])
        folders = (plain, with_gpus, master, self.volume)
        before = [tree(folder) for folder in folders]
        self.does(with_gpus, "worker")
        (self.bin / "nvidia-smi").unlink()
        self.does(plain, "worker")
        self.does(master, "master")
        self.assertEqual([tree(folder) for folder in folders], before)

    def test_what_stands_on_the_volume_and_a_master_that_replaces_another(self):
        for instance in ("i-0b", "i-0a"):
            self.does(self.machine(instance), "worker")
        self.program("dtlaunch", f'echo "$AWS_REGION $EFS_MOUNT $@" >>{self.folder}/resumed')
        self.does(self.machine("i-0c", AUTO_RESUME="/efs/job"), "master")
        self.assertFalse((self.folder / "resumed").exists())
        root = self.machine("i-0d", AUTO_RESUME="/efs/job")
        self.does(root, "master")
        self.assertEqual((self.folder / "resumed").read_text(), "eu-west-1 /efs --resume /efs/job --detach --take-over\n")
        self.does(self.machine("i-0e"), "worker")
        self.does(root, "master")
        self.assertNotIn("10-0-16-14", (root / "opt/deeplearning/workers").read_text(), "one that came later is none of the beginning")
        ready = aws.Ready(str(self.volume / ".cluster/ready"))
        said = ready.of("i-0a")
        self.assertEqual(said, {"ip": "10.0.16.10", "gpus": 0, "host_key": f"{KEY}0a"})
        ready.write_known_hosts({"ip-10-0-16-10.internal,10.0.16.10": said})
        self.assertEqual((self.volume / ".cluster/known_hosts").read_text(), f"ip-10-0-16-10.internal,10.0.16.10 {KEY}0a\n")
        key, = root.rglob("dtlaunch_cluster")
        self.assertEqual(stat.S_IMODE(key.stat().st_mode), 0o600)
        public = key.with_suffix(".pub").read_text()
        self.assertEqual((self.volume / f".cluster/authorized_keys.{getpass.getuser()}").read_text(), public)
        self.assertFalse([path for path in tree(self.volume) if "PRIVATE" in path.read_text()])
        config = root / "etc/ssh/ssh_config.d/dtlaunch.conf"
        used = subprocess.run(["ssh", "-G", "-F", config, "ip-10-0-16-10.internal"], capture_output=True, text=True, check=True).stdout
        self.assertRegex(used, "identityfile .*/.ssh/dtlaunch_cluster\n(.*\n)*userknownhostsfile .* /efs/.cluster/known_hosts\n")
        accepted = (self.folder / "i-0a/etc/ssh/sshd_config.d/dtlaunch.conf").read_text()
        self.assertEqual(accepted, "AuthorizedKeysFile .ssh/authorized_keys /efs/.cluster/authorized_keys.%u\n")

    def test_data_are_prepared_once_and_before_it_is_ready(self):
        script = self.folder / "i-0a/data/prepare.sh"
        root = self.machine("i-0a", PREPARE="/data/prepare.sh")
        script.parent.mkdir()
        script.write_text("exit 3")
        self.refuses("prepare.sh ended with exit code 3", root)
        self.assertFalse((self.volume / ".cluster/ready/i-0a").exists())
        script.write_text(f"echo once >>{self.folder}/prepared")
        for _ in range(2):
            self.does(root, "worker")
        self.assertEqual((self.folder / "prepared").read_text(), "once\n")
        self.assertIn("is not there: no data", self.does(self.machine("i-0b", PREPARE="/data/prepare.py"), "worker"))


class Refusals(Case):
    def test_the_metadata_is_away(self):
        away = "http://127.0.0.1:9"
        self.refuses(f"waited 1 s for the metadata at {away}: is this an instance", self.machine("i-0a"), imds=away)

    def test_a_volume_is_mounted_and_one_that_cannot_be(self):
        server = "fs-01234567.efs.eu-west-1.amazonaws.com"
        root = self.machine("i-0a", FILE_SERVER=server)
        self.program("mountpoint", "exit 1")
        self.program("mount", "exit 32")
        self.refuses(f"waited 1 s for the volume of {server}: has it a mount target", root)
        self.program("mount", f'echo "$@" >{self.folder}/mounted')
        self.does(root, "worker")
        self.assertEqual((self.folder / "mounted").read_text(), f"{root}/efs\n")
        self.assertRegex((root / "etc/fstab").read_text(), f"\n{server}:/ /efs nfs4 nfsvers=4.1,.*,noresvport,_netdev,nofail 0 0\n")

    def test_lines_that_are_wrong(self):
        for i, (said, conf) in enumerate((
                ("MOUNT cannot be '/efs;reboot'", {"MOUNT": "/efs;reboot"}), ("'HOSTS=2' is no line", {"HOSTS": "2"}),
                ("FILE_SERVER cannot be '-o x'", {"FILE_SERVER": "-o x"}), ("lacks STACK_ID", {"STACK_ID": None}),
                ("lacks WORKERS", {"WORKERS": None}), ("there is no user nobody-here", {"LOGIN": "nobody-here"}),
                ("/fsx is no folder: mount it", {"MOUNT": "/fsx"}))):
            self.refuses(said, self.machine(f"i-{i:02x}", SIGNAL=None, **conf), "master")

    def test_workers_that_never_come(self):
        self.does(self.machine("i-0a"), "worker")
        ready = self.volume / ".cluster/ready"
        good = (ready / "i-0a").read_text()
        (ready / "i-0b").write_text(good.replace("stack/train", "stack/another"))
        (ready / "i-0c").write_text(good.replace("ip-10-0-16-10", "a\\nb;c"))
        (ready / "i-0d").write_text(good[:40])
        Metadata.signals.clear()
        self.refuses("waited 1 s for 2 workers: see their cloud-init-output.log", self.machine("i-0e"), "master")
        self.assertEqual([signal["Status"] for signal in Metadata.signals], ["FAILURE"])
        self.assertIn("2 workers", Metadata.signals[0]["Reason"])


class Script(unittest.TestCase):
    def test_it_is_a_good_script(self):
        self.assertIn("Examples:", subprocess.run([SETUP, "--help"], capture_output=True, text=True, check=True).stdout)
        self.assertEqual(subprocess.run([SETUP, "both"], capture_output=True).returncode, 2)
        if not shutil.which("shellcheck"):
            self.skipTest("shellcheck is not installed")
        done = subprocess.run(["shellcheck", SETUP], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stdout)


if __name__ == "__main__":
    for needed in ("curl", "ssh-keygen"):
        if not shutil.which(needed):
            print(f"SKIPPED: {needed} is not installed")
            sys.exit(77)
    unittest.main()
