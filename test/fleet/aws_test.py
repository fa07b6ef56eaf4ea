#!/usr/bin/env python3
"""The provider for AWS (supervisor/fleet/providers/aws.py) beside fake_aws.py: what it lists, does, and refuses."""
import contextlib
import importlib.util
import io
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import unittest

TOP = pathlib.Path(__file__).resolve().parents[2]
PROVIDERS = TOP / "supervisor/fleet/providers"
FAKE = TOP / "test/fleet/fake_aws.py"
if importlib.util.find_spec("boto3") is None:
    print("python3-boto3 is not installed (scripts/install-deps --tests)")
    sys.exit(77)
sys.path.insert(0, str(PROVIDERS))
import aws  # noqa: E402


class Case(unittest.TestCase):
    hook_s = 0.0

    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.fake = subprocess.Popen([sys.executable, FAKE, self.folder, "--hook-timeout", str(self.hook_s)], stdin=subprocess.DEVNULL)
        self.addCleanup(self.fake.wait)
        self.addCleanup(self.fake.kill)
        self.until(lambda: (self.folder / "port").exists())
        for key in [key for key in os.environ if key.startswith("AWS_")]:
            del os.environ[key]
        os.environ.update({
            "AWS_ENDPOINT_URL": "http://127.0.0.1:" + (self.folder / "port").read_text(), "AWS_ACCESS_KEY_ID": "AKTEST",
            "AWS_SECRET_ACCESS_KEY": "s", "AWS_DEFAULT_REGION": "eu-west-1", "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_CONFIG_FILE": "/nonexistent", "AWS_SHARED_CREDENTIALS_FILE": "/nonexistent"})

    def until(self, is_so, seconds=20):
        end = time.monotonic() + seconds
        while not is_so():
            self.assertLess(time.monotonic(), end, "it did not come")
            time.sleep(0.05)  # how long a look lasts, not a wait

    def do(self, *words):
        said = subprocess.run([sys.executable, FAKE, self.folder, "do", *words], check=True, capture_output=True, text=True).stdout
        return json.loads(said) if said[:1] in "[{" else said.strip()

    def provider(self, name="c", ready=None, leave_within=0.0):
        return aws.Provider(aws.Cluster(name, aws.Aws(None, None)), aws.Ready(ready), leave_within, False)

    def with_instances(self, count, **words):
        """A provider with so many that are ready."""
        self.do("group", f"DesiredCapacity={count}")
        provider = self.provider(**words)
        self.until(lambda: self.states(provider) == ["ready"] * count)
        return provider

    @staticmethod
    def states(provider):
        return [machine["state"] for machine in provider.list({})["machines"]]

    def calls(self):
        return [json.loads(line)["do"] for line in (self.folder / "calls").read_text().splitlines()]

    def refused(self, kind, pattern, act, *words, **more):
        with self.assertRaisesRegex(aws.Refused, pattern) as caught:
            act(*words, **more)
        self.assertEqual(caught.exception.kind, kind)


class Lists(Case):
    def test_every_page_counts_and_marks_stay(self):
        provider = self.with_instances(5)
        machines = provider.list({})["machines"]
        for _ in range(2):
            provider.mark({"id": machines[2]["id"], "mark": "ADDED", "asked": False})
        provider.mark({"id": "i-00000000000000099", "mark": "REMOVED"})  # it has gone
        again = provider.list({})
        self.assertEqual([machine["mark"] for machine in again["machines"]], ["", "", "ADDED", "", ""])
        self.assertEqual(again["wished"], 5)
        self.assertEqual(len({machine["host"] for machine in machines}), 5)

    def test_the_wanted_tag(self):
        provider = self.with_instances(3)
        new, used, base = (machine["id"] for machine in provider.list({})["machines"])
        provider.mark({"id": used, "mark": "ADDED"})
        provider.mark({"id": base, "mark": "BASE"})
        for key in (new, used, base):
            self.do("untag", key, "c-aws-dl-cfn-elastic-worker")
        listed = provider.list({})
        by_id = {machine["id"]: machine for machine in listed["machines"]}
        self.assertEqual(by_id[new]["state"], "pending")  # never used: it is not ended either
        self.assertIs(by_id[used]["wanted"], False)
        self.assertNotIn("wanted", by_id[base])
        self.assertRegex(listed["said"], f"{base}.* is a host of the launch: it stays")
        self.assertTrue(next(one for one in self.do("show") if one["id"] == base)["protected"])
        self.refused("wrong", "is a host of the launch", provider.let_go, {"id": base})
        self.assertNotIn("Terminate", " ".join(self.calls()))

    def test_what_an_earlier_job_did_is_past(self):
        before = self.with_instances(2)
        before.hello({"job": "1"})
        base, used = (machine["id"] for machine in before.list({})["machines"])
        before.mark({"id": base, "mark": "BASE"})
        before.mark({"id": used, "mark": "REMOVED"})
        self.assertEqual([machine["mark"] for machine in before.list({})["machines"]], ["BASE", "REMOVED"])
        after = self.provider()
        after.hello({"job": "2"})
        self.assertEqual([machine["mark"] for machine in after.list({})["machines"]], ["", ""])
        after.mark({"id": base, "mark": "ADD_QUEUED"})
        self.assertFalse(self.do("show")[0]["protected"])
        after.let_go({"id": base})
        self.until(lambda: len(after.list({})["machines"]) == 1)

    def test_an_asked_mark_takes_the_tag(self):
        provider = self.with_instances(1)
        key = provider.list({})["machines"][0]["id"]
        provider.mark({"id": key, "mark": "REMOVAL_QUEUED", "asked": True})
        self.assertIs(provider.list({})["machines"][0]["wanted"], False)

    def test_what_cannot_be_believed_is_an_error(self):
        provider = self.with_instances(3)
        for lie, kind, pattern in (
                ("denied:DescribeInstances", "denied", "UnauthorizedOperation.*DescribeInstances"),
                ("denied:DescribeAutoScalingGroups", "denied", "AccessDenied.*DescribeAutoScalingGroups"),
                ("busy", "busy", "Request limit exceeded"), ("torn", "away", "."), ("empty", "away", "DescribeInstances lacks i-"),
                ("away", "away", "onnection")):
            with self.subTest(lie):
                self.do("lie", lie)
                self.refused(kind, pattern, provider.list, {})
        self.do("lie")
        self.assertEqual(len(provider.list({})["machines"]), 3)

    def test_no_capacity_is_said(self):
        provider = self.with_instances(1)
        self.do("lie", "full")
        provider.grow({"from": 1, "to": 3})
        self.until(lambda: "2 not begun: We currently do not have sufficient" in provider.list({})["said"])

    def test_ready_is_who_is_set_up(self):
        ready = self.folder / "cluster" / "ready"
        ready.mkdir(parents=True)
        self.do("group", "DesiredCapacity=2")
        provider = self.provider(ready=str(ready))
        self.until(lambda: [m.get("why", "")[20:] for m in provider.list({})["machines"]] == ["is being set up"] * 2)
        first, second = provider.list({})["machines"]
        key = "ssh-ed25519 AAAAC3Nza"
        (ready / first["id"]).write_text(json.dumps({"ip": "10.0.0.5", "gpus": 4, "host_key": key}))
        (ready / second["id"]).write_text('{"ip": "10.0')  # half of it
        machines = provider.list({})["machines"]
        self.assertEqual([machine["state"] for machine in machines], ["ready", "pending"])
        self.assertEqual(machines[0]["slots"], 4)
        self.assertEqual((ready.parent / "known_hosts").read_text(), f"{first['host']},10.0.0.5 {key}\n")
        (ready / second["id"]).write_text(json.dumps({"host_key": "ssh-ed25519 A\nevil ssh-rsa B"}))
        self.assertEqual(self.states(provider), ["ready", "ready"])
        self.assertNotIn("evil", (ready.parent / "known_hosts").read_text())
        for text in ('{"gpus": "many"}', '[]', '7', '{"gpus": null}'):
            (ready / second["id"]).write_text(text)
            self.assertEqual(self.states(provider), ["ready", "pending"], text)
        (ready / second["id"]).write_text(json.dumps({"ip": "1.2.3.4\nevil", "host_key": key}))
        self.assertEqual(self.states(provider), ["ready", "ready"])
        self.assertNotIn("evil", (ready.parent / "known_hosts").read_text())
        provider.let_go({"id": second["id"]})
        self.assertEqual([path.name for path in ready.iterdir()], [first["id"]])


    def test_a_spot_instance_that_ec2_takes(self):
        provider = self.with_instances(3)
        key = provider.list({})["machines"][1]["id"]
        self.do("interrupt", key, "1000")
        taken = provider.list({})["machines"][1]
        self.assertEqual((taken["id"], taken["state"]), (key, "ending"))
        self.assertAlmostEqual(taken["deadline"], time.time() + 120, delta=10)
        self.assertNotIn("held_back", taken)
        self.do("lie", "denied:DescribeSpotInstanceRequests")
        self.refused("denied", "UnauthorizedOperation.*DescribeSpotInstanceRequests", provider.list, {})


class Sizes(Case):
    def test_grow_is_once(self):
        provider = self.with_instances(2)
        for _ in range(2):
            self.assertEqual(provider.grow({"from": 2, "to": 4})["said"], "c-workers: 2 -> 4 instances")
        self.assertEqual(provider.list({})["wished"], 4)
        self.refused("wrong", "has 4 instances by now, not 2", provider.grow, {"from": 2, "to": 3})
        self.refused("wrong", "above max value 8.*WorkerMax", provider.grow, {"from": 4, "to": 9})
        self.do("lie", "denied:SetDesiredCapacity")
        self.refused("denied", "AccessDenied.*SetDesiredCapacity", provider.grow, {"from": 4, "to": 5})

    def test_a_let_go_of_the_group_shrinks_it(self):
        provider = self.with_instances(2)
        key = provider.list({})["machines"][0]["id"]
        for _ in range(2):
            provider.let_go({"id": key})
        self.until(lambda: len(provider.list({})["machines"]) == 1)
        self.assertEqual(provider.list({})["wished"], 1)
        self.assertEqual(self.calls().count("TerminateInstanceInAutoScalingGroup"), 1)
        self.assertNotIn("TerminateInstances", self.calls())

    def test_an_instance_that_was_launched_by_hand(self):
        provider = self.with_instances(1)
        key = self.do("launch")
        self.until(lambda: self.states(provider) == ["ready", "ready"])
        self.assertEqual(provider.list({})["wished"], 1)
        provider.let_go({"id": key})
        self.until(lambda: len(provider.list({})["machines"]) == 1)
        self.assertEqual(self.calls().count("TerminateInstances"), 1)


class Hooks(Case):
    hook_s = 8.0

    def test_the_group_takes_one_and_waits(self):
        provider = self.with_instances(2, leave_within=20.0)
        self.do("group", "DesiredCapacity=1")
        self.until(lambda: "ending" in self.states(provider))
        began = time.time()
        taken = next(machine for machine in provider.list({})["machines"] if machine["state"] == "ending")
        self.assertIs(taken["held_back"], True)
        self.assertAlmostEqual(taken["deadline"], began + 20.0, delta=4.0)

        def is_held():
            provider.list({})
            return self.calls().count("RecordLifecycleActionHeartbeat") >= 2
        self.until(is_held)  # each begins the hook's time anew
        self.assertEqual(next(one for one in self.do("show") if one["id"] == taken["id"])["lifecycle"], "Terminating:Wait")
        for _ in range(2):
            provider.confirm({"id": taken["id"]})
        self.until(lambda: self.states(provider) == ["ready"])

    def test_a_heartbeat_that_is_refused(self):
        provider = self.with_instances(1, leave_within=60.0)
        self.do("lie", "denied:RecordLifecycleActionHeartbeat")
        self.do("group", "DesiredCapacity=0")
        self.until(lambda: self.states(provider) == ["ending"])
        listed = provider.list({})
        self.assertLess(listed["machines"][0]["deadline"], time.time() + self.hook_s + 1)
        self.assertRegex(listed["said"], "AccessDenied.*RecordLifecycleActionHeartbeat")

    def test_down(self):
        self.with_instances(2)
        self.do("launch")
        cluster = aws.Cluster("c", aws.Aws(None, None))
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            self.assertEqual(aws.Down(cluster).run(True, False), 1)
        self.assertRegex(out.getvalue(), "fs-0123456789abcdef0 and all in it is deleted\nnothing has been done")
        self.assertNotRegex(" ".join(self.calls()), "Terminate|Delete|Update")
        with contextlib.redirect_stdout(out):
            self.assertEqual(aws.Down(cluster).run(True, True), 0)
        order = [call for call in self.calls() if call in ("UpdateAutoScalingGroup", "TerminateInstances", "CompleteLifecycleAction",
                                                           "DeleteStack", "DeleteFileSystem")]
        self.assertEqual(order[0], "UpdateAutoScalingGroup")
        self.assertEqual(order[-2:], ["DeleteStack", "DeleteFileSystem"])
        self.assertIn("TerminateInstances", order)
        with contextlib.redirect_stdout(out):  # again: there is nothing
            self.refused("wrong", "nothing has the tag dtlaunch:cluster=c", aws.Down(cluster).run, True, True)


class Surroundings(Case):
    def test_names_and_credentials(self):
        self.refused("wrong", "nothing has the tag dtlaunch:cluster=cc in eu-west-1; did you mean c", self.provider("cc").list, {})
        os.environ["AWS_ACCESS_KEY_ID"] = "AKOTHER"
        self.refused("denied", "AuthFailure.*DescribeInstances", self.provider().list, {})
        del os.environ["AWS_ACCESS_KEY_ID"], os.environ["AWS_SECRET_ACCESS_KEY"]
        self.refused("denied", "redentials", self.provider().list, {})
        del os.environ["AWS_DEFAULT_REGION"]
        self.refused("denied", "no region is known: --region", self.provider().list, {})

    def test_it_speaks_the_protocol(self):
        self.with_instances(3)
        subprocess.run([sys.executable, TOP / "test/fleet/conformance.py", "--machines", "3", sys.executable, PROVIDERS / "aws.py", "c",
                        "--ready", ""], check=True, timeout=60)

    def test_no_boto3(self):
        done = subprocess.run([sys.executable, "-S", PROVIDERS / "aws.py", "c"], input='{"n":1,"do":"hello"}\n{"n":2,"do":"list"}\n',
                              capture_output=True, text=True, timeout=20)
        hello, listed = map(json.loads, done.stdout.splitlines())
        self.assertTrue(hello["ok"])
        self.assertEqual(listed["kind"], "denied")
        self.assertIn("python3-boto3", listed["error"])


if __name__ == "__main__":
    unittest.main(warnings="ignore")
