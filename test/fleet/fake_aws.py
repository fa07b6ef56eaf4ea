#!/usr/bin/env python3
"""A stand-in for the parts of AWS that supervisor/fleet/providers/aws.py uses: EC2, Auto Scaling, CloudFormation, EFS, on one port.

usage: fake_aws.py DIR [--names FILE] [--hook-timeout S] [--up COMMAND] [--down COMMAND] [--address A]

DIR/port has its port, DIR/calls a line of JSON for each request. --names: private names of instances, a line each, used again once
free. --up, --down: run with the instance's id and name when it runs, and when it has ended. botocore checks each request against
Amazon's own model before it sends it, and parses each answer by that model.

    fake_aws.py DIR do launch [TAG=VALUE...]   by hand, from the template: in no group
    fake_aws.py DIR do interrupt INSTANCE SECONDS  EC2 marks it, and takes it so many seconds later; all are Spot instances
    fake_aws.py DIR do untag INSTANCE TAG      as in the console
    fake_aws.py DIR do group KEY=VALUE...      DesiredCapacity, MaxSize, ...
    fake_aws.py DIR do lie LIE...              from now on, instead of the former ones: away, busy, torn, old, empty, denied:ACTION, full
    fake_aws.py DIR do show                    the instances
"""
import argparse
import http.server
import json
import pathlib
import subprocess
import sys
import threading
import time
import urllib.parse
import urllib.request
from xml.sax.saxutils import escape

CLUSTER, GROUP, HOOK = "c", "c-workers", "leave"
WANTED = f"{CLUSTER}-aws-dl-cfn-elastic-worker"
PAGE = 2
EC2_STATES = {"pending": 0, "running": 16, "shutting-down": 32, "terminated": 48}
BOOT_S, END_S, SHOWN_S, OLD_S = 0.3, 0.3, 3.0, 1.0


class Fault(Exception):
    def __init__(self, code, message, status=400):
        super().__init__(message)
        self.code, self.message, self.status = code, message, status


def xml(value, item):
    """Of dictionaries and lists; `item`: how an entry of a list is called."""
    if isinstance(value, dict):
        return "".join(f"<{key}>{xml(below, item)}</{key}>" for key, below in value.items() if below is not None)
    if isinstance(value, list):
        return "".join(f"<{item}>{xml(below, item)}</{item}>" for below in value)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(value))
    return escape(str(value))


def listed(query, name):
    """name.1, name.2 (EC2) or name.member.1 ... with what is below each."""
    found = {}
    for key, value in query.items():
        if key.startswith(name + "."):
            index, _, below = key[len(name) + 1:].removeprefix("member.").partition(".")
            if below:
                found.setdefault(int(index), {})[below] = value
            else:
                found[int(index)] = value
    return [found[index] for index in sorted(found)]


def page(entries, query, token, size=PAGE):
    start = int(query.get(token) or 0)
    return entries[start:start + size], str(start + size) if start + size < len(entries) else None


class Instance:
    def __init__(self, key, name, tags, group):
        self.key, self.name, self.tags = key, name, tags
        of_name = name.partition(".")[0].removeprefix("ip-").replace("-", ".")  # as EC2 calls them
        self.address = of_name if of_name.count(".") == 3 else "10.0.0.9"
        self.group = group  # its Auto Scaling group, or none
        self.state, self.lifecycle = "pending", "Pending" if group else None
        self.protected = False
        self.born = time.time()
        self.since = time.monotonic()
        self.hook_until = 0.0
        self.marked_at, self.taken_at = None, float("inf")

    def enter(self, state, lifecycle=None):
        self.state, self.since = state, time.monotonic()
        if self.group:
            self.lifecycle = lifecycle or self.lifecycle

    def for_ec2(self):
        tags = [{"key": key, "value": value} for key, value in self.tags.items()]
        return {"instanceId": self.key, "instanceState": {"code": EC2_STATES[self.state], "name": self.state},
                "spotInstanceRequestId": "sir-" + self.key, "privateDnsName": self.name, "privateIpAddress": self.address, "launchTime": self.born,
                "tagSet": tags}

    def for_group(self):
        return {"InstanceId": self.key, "AvailabilityZone": "eu-west-1a", "LifecycleState": self.lifecycle, "HealthStatus": "Healthy",
                "ProtectedFromScaleIn": self.protected}


class Cloud:
    """Every method of AWS's name answers that request; with the lock held."""

    def __init__(self, names, hook_timeout, up, down):
        self.lock = threading.RLock()
        self.names, self.hook_timeout, self.up, self.down = names, hook_timeout, up, down
        self.instances = []
        self.group = {"MinSize": 0, "MaxSize": 8, "DesiredCapacity": 0}
        self.stack = "CREATE_COMPLETE"
        self.has_files = True
        self.lies = set()
        self.activity = None
        self.shown = []  # what DescribeInstances said before: (when, instances)
        self.asked = 0

    # What happens by itself.
    def pass_time(self):
        for instance in self.instances:
            self.step(instance, time.monotonic())
        mine = self.members()
        for _ in range(self.group["DesiredCapacity"] - len(mine)):
            if "full" in self.lies:
                self.activity = ("Failed", "We currently do not have sufficient p3.2xlarge capacity (InsufficientInstanceCapacity)")
                break
            self.launch({}, GROUP)
        staying = [instance for instance in mine if not instance.lifecycle.startswith("Terminat") and not instance.protected]
        surplus = len([instance for instance in mine if not instance.lifecycle.startswith("Terminat")]) - self.group["DesiredCapacity"]
        for instance in staying[:max(0, surplus)]:  # the oldest first, as the default policy may
            self.leave(instance)
        self.shown.append((time.monotonic(), [instance.for_ec2() for instance in self.instances]))
        self.shown = self.shown[-200:]

    def step(self, instance, now):
        if instance.state == "pending" and now > instance.since + BOOT_S:
            instance.enter("running", "InService")
            self.tell(self.up, instance)
        elif instance.state == "running" and now > instance.taken_at:
            self.end(instance)
        elif instance.lifecycle == "Terminating:Wait" and now > instance.hook_until:
            self.end(instance)
        elif instance.state == "shutting-down" and now > instance.since + END_S:
            instance.enter("terminated")
            self.tell(self.down, instance)
        elif instance.state == "terminated" and now > instance.since + SHOWN_S:
            self.instances = [other for other in self.instances if other is not instance]

    def tell(self, command, instance):
        if command:
            subprocess.Popen([*command.split(), instance.key, instance.name], stdin=subprocess.DEVNULL)

    def members(self):
        return [instance for instance in self.instances if instance.group and instance.state in ("pending", "running")]

    def launch(self, tags, group=None):
        used = {instance.name for instance in self.instances if instance.state != "terminated"}
        free = [name for name in self.names if name not in used]
        if not free:
            raise Fault("InsufficientInstanceCapacity", "no name is free", 500)
        self.asked += 1
        own = {"dtlaunch:cluster": CLUSTER, WANTED: ""} | ({"aws:autoscaling:groupName": GROUP} if group else {}) | tags
        self.instances.append(Instance(f"i-{self.asked:017x}", free[0], own, group))
        return self.instances[-1]

    def leave(self, instance):
        if self.hook_timeout:
            instance.hook_until = time.monotonic() + self.hook_timeout
            instance.lifecycle = "Terminating:Wait"
        else:
            self.end(instance)

    def end(self, instance):
        instance.enter("shutting-down", "Terminating:Proceed")

    def find(self, key):
        for instance in self.instances:
            if instance.key == key:
                return instance
        raise Fault("InvalidInstanceID.NotFound", f"The instance ID '{key}' does not exist")

    def member(self, key):
        for instance in self.members():
            if instance.key == key:
                return instance
        raise Fault("ValidationError", f"Instance Id not found - No managed instance found for instance ID: {key}")

    # EC2
    def DescribeInstances(self, query):
        shown = [instance.for_ec2() for instance in self.instances]
        if "old" in self.lies:
            before = [entry for when, entry in self.shown if when < time.monotonic() - OLD_S]
            shown = before[-1] if before else shown
        for wanted in listed(query, "Filter"):
            name, values = wanted["Name"].removeprefix("tag:"), [value for key, value in wanted.items() if key.startswith("Value.")]
            shown = [one for one in shown if any(tag["key"] == name and tag["value"] in values for tag in one["tagSet"])]
        shown = [] if "empty" in self.lies else shown
        entries, token = page(shown, query, "NextToken")
        return {"reservationSet": [{"reservationId": "r-" + one["instanceId"], "instancesSet": [one]} for one in entries],
                "nextToken": token}

    def DescribeSpotInstanceRequests(self, query):
        shown = []
        filters = {one["Name"]: [value for key, value in one.items() if key.startswith("Value.")] for one in listed(query, "Filter")}
        for instance in self.instances:
            code, since = ("marked-for-termination", instance.marked_at) if instance.marked_at else ("fulfilled", instance.born)
            if code in filters.get("status-code", [code]):
                shown.append({"spotInstanceRequestId": "sir-" + instance.key, "instanceId": instance.key, "state": "active",
                              "status": {"code": code, "updateTime": since, "message": code}})
        entries, token = page(shown, query, "NextToken")
        return {"spotInstanceRequestSet": entries, "nextToken": token}

    def CreateTags(self, query):
        for key in listed(query, "ResourceId"):
            self.find(key).tags.update({tag["Key"]: tag.get("Value", "") for tag in listed(query, "Tag")})
        return {"return": True}

    def DeleteTags(self, query):
        for key in listed(query, "ResourceId"):
            for tag in listed(query, "Tag"):
                self.find(key).tags.pop(tag["Key"], None)
        return {"return": True}

    def TerminateInstances(self, query):
        for key in listed(query, "InstanceId"):
            instance = self.find(key)
            if instance.state in ("pending", "running"):
                self.end(instance)
        return {"instancesSet": [{"instanceId": key, "currentState": {"code": 32, "name": "shutting-down"}}
                                 for key in listed(query, "InstanceId")]}

    # Auto Scaling
    def DescribeAutoScalingGroups(self, query):
        filters = listed(query, "Filters")
        if any(f["Name"] == "tag:dtlaunch:cluster" and f["Values.member.1"] != CLUSTER for f in filters) or self.stack is None:
            return {"AutoScalingGroups": []}
        members = [instance.for_group() for instance in self.members()]
        return {"AutoScalingGroups": [self.group | {
            "AutoScalingGroupName": GROUP, "DefaultCooldown": 300, "AvailabilityZones": ["eu-west-1a"], "HealthCheckType": "EC2",
            "CreatedTime": 1764000000.0, "Instances": members}]}

    def DescribeTags(self, query):
        return {"Tags": [{"ResourceId": GROUP, "ResourceType": "auto-scaling-group", "Key": "dtlaunch:cluster", "Value": CLUSTER,
                          "PropagateAtLaunch": True}]}

    def DescribeLifecycleHooks(self, query):
        self.must_be_group(query)
        if not self.hook_timeout:
            return {"LifecycleHooks": []}
        return {"LifecycleHooks": [{
            "LifecycleHookName": HOOK, "AutoScalingGroupName": GROUP, "LifecycleTransition": "autoscaling:EC2_INSTANCE_TERMINATING",
            "HeartbeatTimeout": int(self.hook_timeout), "GlobalTimeout": int(self.hook_timeout) * 100, "DefaultResult": "CONTINUE"}]}

    def DescribeScalingActivities(self, query):
        status, message = self.activity or ("Successful", "")
        return {"Activities": [{"ActivityId": "a", "AutoScalingGroupName": GROUP, "Cause": "c", "StartTime": time.time(),
                                "StatusCode": status, "StatusMessage": message}]}

    def SetDesiredCapacity(self, query):
        self.must_be_group(query)
        self.resize({"DesiredCapacity": int(query["DesiredCapacity"])})

    def UpdateAutoScalingGroup(self, query):
        self.must_be_group(query)
        self.resize({key: int(query[key]) for key in ("MinSize", "MaxSize", "DesiredCapacity") if key in query})

    def resize(self, sizes):
        group = self.group | sizes
        if group["DesiredCapacity"] > group["MaxSize"]:
            raise Fault("ValidationError", f"New SetDesiredCapacity value {group['DesiredCapacity']} is above max value {group['MaxSize']} "
                        "for the AutoScalingGroup.")
        self.group = group

    def TerminateInstanceInAutoScalingGroup(self, query):
        instance = self.member(query["InstanceId"])
        if instance.lifecycle.startswith("Terminat"):
            raise Fault("ScalingActivityInProgress", "it is being terminated")
        if query["ShouldDecrementDesiredCapacity"] == "true":
            if self.group["DesiredCapacity"] <= self.group["MinSize"]:
                raise Fault("ValidationError", "Currently, desiredSize equals minSize. Terminating instance without replacement will "
                            "violate group's min size constraint.")
            self.group["DesiredCapacity"] -= 1
        self.leave(instance)
        return {"Activity": {"ActivityId": "a", "AutoScalingGroupName": GROUP, "Cause": "c", "StartTime": time.time(),
                             "StatusCode": "InProgress"}}

    def CompleteLifecycleAction(self, query):
        self.end(self.held(query))

    def RecordLifecycleActionHeartbeat(self, query):
        self.held(query).hook_until = time.monotonic() + self.hook_timeout

    def held(self, query):
        self.must_be_group(query)
        instance = self.member(query["InstanceId"])
        if instance.lifecycle != "Terminating:Wait" or query["LifecycleHookName"] != HOOK:
            raise Fault("ValidationError", f"No active Lifecycle Action found with instance ID {query['InstanceId']}")
        return instance

    def SetInstanceProtection(self, query):
        self.must_be_group(query)
        for key in listed(query, "InstanceIds"):
            self.member(key).protected = query["ProtectedFromScaleIn"] == "true"

    def must_be_group(self, query):
        if query["AutoScalingGroupName"] != GROUP or self.stack is None:
            raise Fault("ValidationError", "AutoScalingGroup name not found - null")

    # CloudFormation
    def DescribeStacks(self, query):
        if query["StackName"] != CLUSTER or self.stack is None:
            raise Fault("ValidationError", f"Stack with id {query['StackName']} does not exist")
        outputs = {"FileSystemId": "fs-0123456789abcdef0", "FileSystemIsOwn": "true"}
        return {"Stacks": [{"StackName": CLUSTER, "CreationTime": 1764000000.0, "StackStatus": self.stack,
                            "Outputs": [{"OutputKey": key, "OutputValue": value} for key, value in outputs.items()]}]}

    def DeleteStack(self, query):
        if any(instance.state != "terminated" for instance in self.instances):
            raise Fault("DependencyViolation", "resource sg-1 has a dependent object")
        self.stack = None

    # EFS
    def DeleteFileSystem(self, key):
        if not self.has_files:
            raise Fault("FileSystemNotFound", key, 404)
        if self.stack:
            raise Fault("FileSystemInUse", "mount targets exist", 409)
        self.has_files = False


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    cloud = None
    calls = None

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
        if self.path == "/do":
            return self.say(200, json.dumps(self.control(json.loads(body))), "application/json")
        query = dict(urllib.parse.parse_qsl(body, keep_blank_values=True))
        service = self.headers.get("Authorization", "").split("/aws4_request")[0].rsplit("/", 1)[-1]
        action = query["Action"]
        with self.cloud.lock:
            lies = self.cloud.lies
            self.note(action, query)
            if "away" in lies:
                self.close_connection = True  # without an answer
                return None
            try:
                self.must_answer(service, action, lies)
                text = self.answer(service, action, getattr(self.cloud, action)(query))
            except Fault as fault:
                return self.refuse(service, fault)
            return self.say(200, text[:len(text) // 2] if "torn" in lies else text)

    def do_DELETE(self):
        with self.cloud.lock:
            self.note("DeleteFileSystem", {})
            try:
                self.cloud.DeleteFileSystem(self.path.rsplit("/", 1)[-1])
            except Fault as fault:
                return self.say(fault.status, json.dumps({"ErrorCode": fault.code, "Message": fault.message}), "application/json")
            return self.say(204, "")

    def note(self, action, query):
        words = {key: value for key, value in query.items() if key not in ("Action", "Version")}
        self.calls.write(json.dumps({"t": round(time.time(), 2), "do": action} | words) + "\n")
        self.calls.flush()

    def must_answer(self, service, action, lies):
        if not self.headers.get("Authorization", "").startswith("AWS4-HMAC-SHA256 Credential=AKTEST/"):
            raise Fault("AuthFailure", "AWS was not able to validate the provided access credentials", 401)
        if f"denied:{action}" in lies:
            code = "UnauthorizedOperation" if service == "ec2" else "AccessDenied"
            raise Fault(code, "You are not authorized to perform this operation.", 403)
        if "busy" in lies:
            raise Fault("RequestLimitExceeded" if service == "ec2" else "Throttling", "Request limit exceeded.", 503)

    @staticmethod
    def answer(service, action, result):
        if service == "ec2":
            return (f'<?xml version="1.0"?><{action}Response xmlns="http://ec2.amazonaws.com/doc/2016-11-15/"><requestId>r</requestId>'
                    f'{xml(result or {"return": True}, "item")}</{action}Response>')
        version = {"autoscaling": "2011-01-01", "cloudformation": "2010-05-15"}[service]
        return (f'<{action}Response xmlns="http://{service}.amazonaws.com/doc/{version}/"><{action}Result>{xml(result or {}, "member")}'
                f'</{action}Result><ResponseMetadata><RequestId>r</RequestId></ResponseMetadata></{action}Response>')

    def refuse(self, service, fault):
        error = f"<Code>{fault.code}</Code><Message>{escape(fault.message)}</Message>"
        if service == "ec2":
            return self.say(fault.status, f"<Response><Errors><Error>{error}</Error></Errors><RequestID>r</RequestID></Response>")
        return self.say(fault.status, f"<ErrorResponse><Error><Type>Sender</Type>{error}</Error><RequestId>r</RequestId></ErrorResponse>")

    def say(self, status, text, kind="text/xml"):
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def control(self, words):
        cloud, what = self.cloud, words[0]
        with cloud.lock:
            pairs = dict(word.split("=", 1) for word in words[1:] if "=" in word)
            if what == "launch":
                return cloud.launch(pairs).key
            if what == "interrupt":
                instance = cloud.find(words[1])
                instance.marked_at, instance.taken_at = time.time(), time.monotonic() + float(words[2])
                return instance.key
            if what == "untag":
                return cloud.find(words[1]).tags.pop(words[2], "none")
            if what == "group":
                cloud.resize({key: int(value) for key, value in pairs.items()})
            if what == "lie":
                cloud.lies = set(words[1:])
                cloud.activity = None
            return [{"id": instance.key, "name": instance.name, "state": instance.state, "lifecycle": instance.lifecycle,
                     "protected": instance.protected, "tags": instance.tags} for instance in cloud.instances]

    def log_message(self, *_):
        pass


def main():
    folder = pathlib.Path(sys.argv[1])
    if sys.argv[2:3] == ["do"]:
        request = urllib.request.Request(f"http://127.0.0.1:{(folder / 'port').read_text()}/do", json.dumps(sys.argv[3:]).encode())
        with urllib.request.urlopen(request, timeout=10) as answer:
            found = json.load(answer)
            print(found if isinstance(found, str) else json.dumps(found, indent=1))
        return
    parser = argparse.ArgumentParser()
    parser.add_argument("dir")
    parser.add_argument("--names")
    parser.add_argument("--hook-timeout", type=float, default=0)
    parser.add_argument("--up", default="")
    parser.add_argument("--down", default="")
    parser.add_argument("--address", default="127.0.0.1")
    words = parser.parse_args()
    names = pathlib.Path(words.names).read_text().split() if words.names else [f"ip-10-0-0-{i}" for i in range(10, 40)]
    Handler.cloud = cloud = Cloud(names, words.hook_timeout, words.up, words.down)
    Handler.calls = open(folder / "calls", "a")
    server = http.server.ThreadingHTTPServer((words.address, 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    (folder / "port.new").write_text(str(server.server_address[1]))
    (folder / "port.new").rename(folder / "port")
    while True:
        with cloud.lock:
            cloud.pass_time()
        time.sleep(0.1)  # how long a tick lasts, not a wait


if __name__ == "__main__":
    main()
