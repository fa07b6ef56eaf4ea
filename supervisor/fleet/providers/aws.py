"""A provider for dtlaunch --fleet: the EC2 instances of a cluster, by boto3.

dtlaunch --fleet 'aws:CLUSTER [--region REGION] [--profile PROFILE] [--ready DIR] [--leave-within SECONDS]' ...
dtfleet aws status CLUSTER [--region REGION]
dtfleet aws down CLUSTER [--delete-filesystem] [--yes]

It speaks the protocol of packaging/doc/provider.md. An instance is the cluster's by its tag dtlaunch:cluster=CLUSTER, and wanted while
it has the tag CLUSTER-aws-dl-cfn-elastic-worker. Its mark is the tag elastic_worker_status. No instance ends here that was not let go.
"""
from __future__ import annotations

import argparse
import difflib
import importlib
import json
import os
import pathlib
import re
import sys
import time
from typing import Any, Callable, Iterator

from fleet_provider import Json, Output, Refused, serve

CLUSTER_TAG = "dtlaunch:cluster"
MARK_TAG = "elastic_worker_status"
JOB_TAG = "dtlaunch:job"  # whose mark it is: what an earlier job did with an instance is past
GROUP_TAG = "aws:autoscaling:groupName"  # set by AWS
EVERY_S = 15
SPOT_NOTICE_S = 120  # between EC2's mark and its interruption
TRIES = 4  # with READ_S they fit into the 60 s of an answer
CONNECT_S, READ_S = 4, 8
DENIED = ("UnauthorizedOperation", "AccessDenied", "AuthFailure", "Unauthenticated", "InvalidClientTokenId", "ExpiredToken",
          "RequestExpired", "SignatureDoesNotMatch", "UnrecognizedClient", "OptInRequired", "NoCredentials", "PartialCredentials",
          "ProfileNotFound", "NoRegion", "TokenRetrieval", "CredentialRetrieval")
BUSY = ("RequestLimitExceeded", "Throttling", "TooManyRequests")
WRONG = ("ValidationError", "Invalid", "ParamValidation")
GONE = ("InvalidInstanceID.NotFound", "InvalidInstanceID.Malformed")


def refusal_of(error: Exception) -> Refused:
    response = getattr(error, "response", None)
    code = str(response["Error"].get("Code", "")) if isinstance(response, dict) and "Error" in response else type(error).__name__
    kinds = (("denied", DENIED), ("busy", BUSY), ("wrong", WRONG))
    kind = next((kind for kind, codes in kinds if any(code.startswith(known) for known in codes)), "away")
    return Refused(kind, " ".join(str(error).split())[:1000] or code, code)


class Aws:
    """Requests to AWS, each an answer or Refused."""

    def __init__(self, region: str | None, profile: str | None) -> None:
        self.region = region
        self.profile = profile
        self.clients: dict[str, Any] = {}

    def client(self, service: str) -> Any:
        if service not in self.clients:
            self.clients[service] = self.new_client(service)
        return self.clients[service]

    def new_client(self, service: str) -> Any:
        try:
            boto3, config = importlib.import_module("boto3"), importlib.import_module("botocore.config")
            utils = importlib.import_module("botocore.utils")
        except ImportError as e:
            raise Refused("denied", f"{e}: install Debian's python3-boto3, or boto3 with pip, for {sys.executable}") from e
        try:
            session = boto3.Session(profile_name=self.profile)
            region = self.region or os.environ.get("AWS_REGION") or session.region_name
            region = region or utils.InstanceMetadataRegionFetcher(timeout=1, num_attempts=1).retrieve_region()
            # boto3 before 1.28 does not read these.
            endpoint = os.environ.get(f"AWS_ENDPOINT_URL_{service.upper()}") or os.environ.get("AWS_ENDPOINT_URL")
            retries = {"mode": "standard", "total_max_attempts": TRIES}
            return session.client(service, region_name=region, endpoint_url=endpoint, config=config.Config(
                retries=retries, connect_timeout=CONNECT_S, read_timeout=READ_S))
        except Exception as e:
            refused = refusal_of(e)
            if refused.code == "NoRegionError":
                refused = Refused("denied", "no region is known: --region, AWS_REGION, or `aws configure`", refused.code)
            raise refused from e

    def __call__(self, service: str, action: str, **words: Any) -> Json:
        client = self.client(service)
        try:
            answer: Json = getattr(client, action)(**words)
            return answer
        except Exception as e:  # a torn answer is botocore's ResponseParserError, of neither of its two families
            raise refusal_of(e) from e

    def every(self, service: str, action: str, key: str, **words: Any) -> Iterator[Any]:
        """The entries of all pages."""
        client = self.client(service)
        try:
            for page in client.get_paginator(action).paginate(**words):
                yield from page[key]
        except Exception as e:
            raise refusal_of(e) from e


def tags_of(instance: Json) -> dict[str, str]:
    return {tag["Key"]: tag["Value"] for tag in instance.get("Tags", [])}


def host_of(instance: Json) -> str:
    return str(instance.get("PrivateDnsName") or instance.get("PrivateIpAddress") or "")


def states_of(group: Json | None) -> dict[str, str]:
    """Of the group's instances, by id."""
    return {member["InstanceId"]: member["LifecycleState"] for member in group["Instances"]} if group else {}


def must_be_whole(instances: list[Json], states: dict[str, str]) -> None:
    """Two sources of the same thing: a list that lacks what the other one has in service is not complete."""
    known = {instance["InstanceId"] for instance in instances}
    lacking = [key for key, state in states.items() if state == "InService" and key not in known]
    if lacking:
        raise Refused("away", f"DescribeInstances lacks {', '.join(lacking[:3])}, which the Auto Scaling group has in service")


class Cluster:
    """The instances of a cluster and its Auto Scaling group, where it has one."""

    def __init__(self, name: str, aws: Aws) -> None:
        self.name = name
        self.aws = aws
        self.filters = [{"Name": f"tag:{CLUSTER_TAG}", "Values": [name]}]
        self.wanted_tag = f"{name}-aws-dl-cfn-elastic-worker"

    def instances(self) -> list[Json]:
        """Those that have not ended."""
        found = [instance for reservation in self.aws.every("ec2", "describe_instances", "Reservations", Filters=self.filters)
                 for instance in reservation["Instances"]]
        return [instance for instance in found if instance["State"]["Name"] != "terminated"]

    def group(self) -> Json | None:
        found = list(self.aws.every("autoscaling", "describe_auto_scaling_groups", "AutoScalingGroups", Filters=self.filters))
        if len(found) > 1:
            names = ", ".join(group["AutoScalingGroupName"] for group in found)
            raise Refused("wrong", f"{len(found)} Auto Scaling groups have the tag {CLUSTER_TAG}={self.name}, one was expected: {names}")
        return found[0] if found else None

    def must_exist(self, group: Json | None, instances: list[Json]) -> None:
        if group is not None or instances:
            return
        tags = self.aws.every("autoscaling", "describe_tags", "Tags", Filters=[{"Name": "key", "Values": [CLUSTER_TAG]}])
        near = difflib.get_close_matches(self.name, {tag["Value"] for tag in tags})
        raise Refused("wrong", f"nothing has the tag {CLUSTER_TAG}={self.name} in {self.aws.client('ec2').meta.region_name}"
                      + (f"; did you mean {' or '.join(near)}?" if near else ""))

    def interruptions(self, instances: list[Json]) -> dict[str, float]:
        """When EC2 takes which Spot instance, of those that it has marked."""
        if not any(instance.get("SpotInstanceRequestId") for instance in instances):
            return {}
        marked = [{"Name": "status-code", "Values": [f"marked-for-{end}" for end in ("termination", "stop", "hibernation")]}]
        found = self.aws.every("ec2", "describe_spot_instance_requests", "SpotInstanceRequests", Filters=marked)
        return {request["InstanceId"]: request["Status"]["UpdateTime"].timestamp() + SPOT_NOTICE_S for request in found}

    def leave_hooks(self, group: str) -> list[Json]:
        found = self.aws("autoscaling", "describe_lifecycle_hooks", AutoScalingGroupName=group)["LifecycleHooks"]
        return [hook for hook in found if hook["LifecycleTransition"] == "autoscaling:EC2_INSTANCE_TERMINATING"]

    def complete(self, group: str, instance: str) -> None:
        for hook in self.leave_hooks(group):
            try:
                self.aws("autoscaling", "complete_lifecycle_action", AutoScalingGroupName=group, InstanceId=instance,
                         LifecycleHookName=hook["LifecycleHookName"], LifecycleActionResult="CONTINUE")
            except Refused as refused:
                if "No active Lifecycle Action" not in str(refused):  # it was completed before
                    raise

    def terminate(self, instance: Json) -> None:
        key = instance["InstanceId"]
        try:
            if GROUP_TAG in tags_of(instance):
                return self.terminate_member(key)
            self.aws("ec2", "terminate_instances", InstanceIds=[key])
        except Refused as refused:
            if refused.code not in GONE:
                raise

    def terminate_member(self, instance: str) -> None:
        """So that its group does not launch another one in its place."""
        try:
            self.aws("autoscaling", "terminate_instance_in_auto_scaling_group", InstanceId=instance, ShouldDecrementDesiredCapacity=True)
        except Refused as refused:
            if "No managed instance found" not in str(refused):
                raise
            self.aws("ec2", "terminate_instances", InstanceIds=[instance])  # it was detached meanwhile


class Ready:
    """What dtlaunch-cloud-setup has written about the instances that are set up; without a folder every instance that runs is."""

    def __init__(self, folder: str | None) -> None:
        self.folder = pathlib.Path(folder) if folder else None

    def of(self, instance: str) -> Json | None:
        if self.folder is None:
            return {}
        try:
            said = json.loads((self.folder / instance).read_text())
            return {"ip": str(said.get("ip", "")), "gpus": int(said.get("gpus", 1)), "host_key": str(said.get("host_key", ""))}
        except (OSError, ValueError, TypeError, AttributeError):
            return None  # not yet there, or not yet whole

    def forget(self, instance: str) -> None:
        """It ends: a master that is set up from now on does not count it among its workers."""
        if self.folder:
            (self.folder / instance).unlink(missing_ok=True)

    def write_known_hosts(self, hosts: dict[str, Json]) -> None:
        """`known_hosts` beside the folder: the key of each host is known before the first connection."""
        if self.folder is None:
            return
        lines = [f"{host} {said['host_key']}\n" for host, said in sorted(hosts.items())
                 if re.fullmatch(r"[A-Za-z0-9.:,-]+ [a-z0-9@.-]+ [A-Za-z0-9+/=]+", f"{host} {said['host_key']}")]
        path = self.folder.parent / "known_hosts"
        if not lines or (path.exists() and path.read_text() == "".join(lines)):
            return
        new = path.with_suffix(".new")
        new.write_text("".join(lines))
        new.replace(path)


class Provider:
    def __init__(self, cluster: Cluster, ready: Ready, leave_within: float, gives_back_at_end: bool) -> None:
        self.cluster = cluster
        self.aws = cluster.aws
        self.ready = ready
        self.leave_within = leave_within
        self.gives_back_at_end = gives_back_at_end
        self.leaving: dict[str, tuple[float, float]] = {}  # by instance: since when it is held back, its last heartbeat
        self.said: list[str] = []
        self.job = ""

    def hello(self, request: Json) -> Json:
        self.job = request.get("job", "")
        return {"version": 1, "name": f"AWS ({self.cluster.name})", "marks": True, "can": ["grow", "let_go", "confirm"],
                "every_s": EVERY_S, "gives_back_at_end": self.gives_back_at_end}

    def list(self, _: Json) -> Json:
        self.said = []
        instances, group = self.cluster.instances(), self.cluster.group()
        self.cluster.must_exist(group, instances)
        states = states_of(group)
        must_be_whole(instances, states)
        interruptions = self.cluster.interruptions(instances)
        hosts: dict[str, Json] = {}
        machines = []
        for instance in instances:
            key = instance["InstanceId"]
            machine = self.machine_of(instance, states.get(key, "InService"), group, hosts)
            if key in interruptions:
                machine |= {"state": "ending", "deadline": min(machine.get("deadline", interruptions[key]), interruptions[key])}
            machines.append(machine)
        self.leaving = {key: value for key, value in self.leaving.items() if key in {machine["id"] for machine in machines}}
        self.ready.write_known_hosts(hosts)
        answer: Json = {"machines": machines}
        if group:
            answer["wished"] = group["DesiredCapacity"]
            self.say_what_is_missing(group)
        return answer | {"said": "; ".join(self.said)}

    def mark_of(self, tags: dict[str, str]) -> str:
        return tags.get(MARK_TAG, "") if tags.get(JOB_TAG, "") == self.job else ""

    def machine_of(self, instance: Json, lifecycle: str, group: Json | None, hosts: dict[str, Json]) -> Json:
        tags, key, host = tags_of(instance), instance["InstanceId"], host_of(instance)
        mark, state = self.mark_of(tags), instance["State"]["Name"]
        since = int(instance["LaunchTime"].timestamp())
        machine: Json = {"id": key, "host": host, "mark": mark, "order": since, "since": since}
        if lifecycle == "Terminating:Wait" and group:
            return machine | {"state": "ending", "held_back": True,
                              "deadline": self.deadline_of(key, group["AutoScalingGroupName"], mark)}
        if lifecycle.startswith(("Terminat", "Detach")) or state == "shutting-down":
            return machine | {"state": "ending"}
        if state != "running" or lifecycle != "InService":
            return machine | {"state": "pending", "why": state if state != "running" else lifecycle}
        said = self.ready.of(key)
        if said is None:
            return machine | {"state": "pending", "why": f"{key} is being set up"}
        hosts[f"{host},{said['ip']}" if said.get("ip") else host] = said
        machine |= {"state": "ready", "slots": max(1, int(said.get("gpus", 1)))}
        if self.cluster.wanted_tag in tags:
            return machine
        if mark == "BASE":
            self.said.append(f"{host} ({key}) is a host of the launch: it stays without its tag {self.cluster.wanted_tag}")
            return machine
        if not mark:
            return machine | {"state": "pending", "why": f"{key} has no tag {self.cluster.wanted_tag}"}
        return machine | {"wanted": False}

    def deadline_of(self, instance: str, group: str, mark: str) -> float:
        """When the instance ends, which a hook holds back. A heartbeat of ours begins the hook's time anew: so it is known."""
        now = time.time()
        hooks = self.cluster.leave_hooks(group)
        timeout = min((float(hook["HeartbeatTimeout"]) for hook in hooks), default=0.0)
        since, beat = self.leaving.get(instance, (now, 0.0))
        refused_by = ""
        if mark != "REMOVED" and (not beat or (now < since + self.leave_within and now - beat > timeout / 3)):
            try:
                for hook in hooks:
                    self.aws("autoscaling", "record_lifecycle_action_heartbeat", AutoScalingGroupName=group, InstanceId=instance,
                             LifecycleHookName=hook["LifecycleHookName"])
                beat = now
            except Refused as refused:
                self.said.append(refused_by := str(refused))
        self.leaving[instance] = (since, beat)
        known = (beat or since) + timeout
        return known if refused_by else max(known, since + self.leave_within)

    def say_what_is_missing(self, group: Json) -> None:
        missing = group["DesiredCapacity"] - len(group["Instances"])
        if missing <= 0:
            return
        latest = self.aws("autoscaling", "describe_scaling_activities", AutoScalingGroupName=group["AutoScalingGroupName"],
                          MaxRecords=1)["Activities"]
        if latest and latest[0]["StatusCode"] == "Failed":
            self.said.append(f"{missing} not begun: {latest[0].get('StatusMessage', '')[:300]}")

    def mark(self, request: Json) -> Json:
        key, mark = request["id"], request["mark"]
        try:
            self.aws("ec2", "create_tags", Resources=[key], Tags=[{"Key": MARK_TAG, "Value": mark}, {"Key": JOB_TAG, "Value": self.job}])
            if request.get("asked"):
                self.aws("ec2", "delete_tags", Resources=[key], Tags=[{"Key": self.cluster.wanted_tag}])
        except Refused as refused:
            if refused.code in GONE:
                return {}
            raise
        group = self.cluster.group()
        member = next((member for member in group["Instances"] if member["InstanceId"] == key), None) if group else None
        # Those of an earlier job's launch are protected, too.
        if group and member and member["ProtectedFromScaleIn"] != (mark == "BASE"):
            self.aws("autoscaling", "set_instance_protection", AutoScalingGroupName=group["AutoScalingGroupName"], InstanceIds=[key],
                     ProtectedFromScaleIn=mark == "BASE")
        return {}

    def let_go(self, request: Json) -> Json:
        key = request["id"]
        instance = next((found for found in self.cluster.instances() if found["InstanceId"] == key), None)
        if instance is None or instance["State"]["Name"] == "shutting-down":
            return {}
        if self.mark_of(tags_of(instance)) == "BASE":
            raise Refused("wrong", f"{key} is a host of the launch")
        if not states_of(self.cluster.group()).get(key, "").startswith("Terminat"):
            self.cluster.terminate(instance)
        self.ready.forget(key)
        return {}

    def confirm(self, request: Json) -> Json:
        group = self.cluster.group()
        if group and states_of(group).get(request["id"]) == "Terminating:Wait":
            self.cluster.complete(group["AutoScalingGroupName"], request["id"])
            self.ready.forget(request["id"])
        return {}

    def grow(self, request: Json) -> Json:
        group, to = self.cluster.group(), request["to"]
        if group is None:
            raise Refused("wrong", f"no Auto Scaling group has the tag {CLUSTER_TAG}={self.cluster.name}: launch an instance of its template")
        name, present = group["AutoScalingGroupName"], group["DesiredCapacity"]
        if present != to:
            if present != request["from"]:
                raise Refused("wrong", f"{name} has {present} instances by now, not {request['from']}: ask again")
            try:
                self.aws("autoscaling", "set_desired_capacity", AutoScalingGroupName=name, DesiredCapacity=to, HonorCooldown=False)
            except Refused as refused:
                hint = " (the stack's parameter WorkerMax)" if "max value" in str(refused) else ""
                raise Refused(refused.kind, f"{refused}{hint}") from refused
        return {"said": f"{name}: {request['from']} -> {to} instances"}


def show_status(cluster: Cluster) -> int:
    instances, group = cluster.instances(), cluster.group()
    cluster.must_exist(group, instances)
    members = states_of(group)
    total = 0.0
    for instance in sorted(instances, key=lambda found: str(found["LaunchTime"])):
        hours = (time.time() - instance["LaunchTime"].timestamp()) / 3600
        total += hours
        tags = tags_of(instance)
        state = members.get(instance["InstanceId"], "not in the group")
        print(f"{instance['InstanceId']:20} {host_of(instance):44} {instance['State']['Name']:13} {state:17}"
              f" {tags.get(MARK_TAG, '-'):14} {'wanted' if cluster.wanted_tag in tags else 'not wanted':10} {hours:7.1f} h")
    if group:
        print(f"{group['AutoScalingGroupName']}: {group['DesiredCapacity']} asked for, {group['MinSize']} to {group['MaxSize']}")
    print(f"{len(instances)} instances, {total:.1f} instance-hours since they were launched")
    return 0


class Down:
    """Ends a cluster: its instances first, since the stack cannot be deleted under one that it did not launch."""

    WAIT_S = 900.0

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.aws = cluster.aws

    def stack(self) -> Json | None:
        try:
            found: list[Json] = self.aws("cloudformation", "describe_stacks", StackName=self.cluster.name)["Stacks"]
        except Refused as refused:
            if "does not exist" in str(refused):
                return None
            raise
        return next((stack for stack in found if stack["StackStatus"] != "DELETE_COMPLETE"), None)

    def run(self, deletes_files: bool, is_sure: bool) -> int:
        instances, group, stack = self.cluster.instances(), self.cluster.group(), self.stack()
        if stack is None:
            self.cluster.must_exist(group, instances)
        outputs = {output["OutputKey"]: output["OutputValue"] for output in (stack or {}).get("Outputs", [])}
        files, is_own = outputs.get("FileSystemId", ""), outputs.get("FileSystemIsOwn") == "true"
        for instance in instances:
            print(f"instance {instance['InstanceId']} ({host_of(instance)}) ends")
        print(f"stack {self.cluster.name} is deleted" if stack else f"there is no stack {self.cluster.name}")
        if files:
            goes = deletes_files and is_own
            why = "" if goes else ": it goes on to cost (--delete-filesystem)" if is_own else ": it is not the stack's"
            print(f"file system {files} {'and all in it is deleted' if goes else 'stays' + why}")
        if not is_sure:
            print("nothing has been done: --yes does it")
            return 1
        self.end_instances(group)
        if stack:
            self.aws("cloudformation", "delete_stack", StackName=self.cluster.name)
            self.wait("the stack's end", self.is_stack_gone)
        if files and is_own and deletes_files:
            self.aws("efs", "delete_file_system", FileSystemId=files)
        print("done")
        return 0

    def end_instances(self, group: Json | None) -> None:
        if group:
            name, members = group["AutoScalingGroupName"], group["Instances"]
            kept = [member["InstanceId"] for member in members if member["ProtectedFromScaleIn"]]
            if kept:
                self.aws("autoscaling", "set_instance_protection", AutoScalingGroupName=name, InstanceIds=kept, ProtectedFromScaleIn=False)
            self.aws("autoscaling", "update_auto_scaling_group", AutoScalingGroupName=name, MinSize=0, DesiredCapacity=0)
        self.wait("the instances' end", self.are_instances_gone)

    def are_instances_gone(self) -> bool:
        group = self.cluster.group()
        states = states_of(group)
        instances = self.cluster.instances()
        for instance in instances:
            key = instance["InstanceId"]
            if group and states.get(key) == "Terminating:Wait":
                self.cluster.complete(group["AutoScalingGroupName"], key)
            elif key not in states and instance["State"]["Name"] != "shutting-down":
                self.cluster.terminate(instance)
        return not instances

    def is_stack_gone(self) -> bool:
        stack = self.stack()
        if stack and stack["StackStatus"] == "DELETE_FAILED":
            raise Refused("wrong", f"stack {self.cluster.name}: {stack.get('StackStatusReason', 'DELETE_FAILED')}")
        return stack is None

    def wait(self, what: str, is_there: Callable[[], bool]) -> None:
        until, pause = time.monotonic() + self.WAIT_S, 0.5
        while not is_there():
            if time.monotonic() > until:
                raise Refused("away", f"{what} did not come within {self.WAIT_S / 60:.0f} min: run the same command again")
            time.sleep(pause)
            pause = min(2 * pause, 15.0)


def parser_of(command: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=f"dtfleet aws {command}" if command else None, description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cluster", metavar="CLUSTER", help="the stack's name")
    parser.add_argument("--region")
    parser.add_argument("--profile", help="of ~/.aws/config")
    if command == "down":
        parser.add_argument("--delete-filesystem", action="store_true", help="also the file system that the stack has made")
        parser.add_argument("--yes", action="store_true", help="do it; without it only what would be done is printed")
    elif not command:
        files = os.environ.get("EFS_MOUNT")
        parser.add_argument("--ready", metavar="DIR", default=files and f"{files}/.cluster/ready",
                            help="where instances say that they are set up ($EFS_MOUNT/.cluster/ready); '': every one that runs is")
        parser.add_argument("--leave-within", metavar="SECONDS", type=float, default=0.0,
                            help="how long the group waits for a worker that it takes (its hook's time)")
        parser.add_argument("--scale-in-at-end", action="store_true", help="all instances but those of the launch end with the job")
    return parser


def main(argv: list[str]) -> int:
    command = argv[0] if argv and argv[0] in ("status", "down") else ""
    options = parser_of(command).parse_args(argv[1:] if command else argv)
    cluster = Cluster(options.cluster, Aws(options.region, options.profile))
    if not command:
        provider = Provider(cluster, Ready(options.ready), options.leave_within, options.scale_in_at_end)
        return serve(Output(), {"hello": provider.hello, "list": provider.list, "mark": provider.mark, "confirm": provider.confirm,
                                "grow": provider.grow, "let_go": provider.let_go}, "AWS")
    try:
        return show_status(cluster) if command == "status" else Down(cluster).run(options.delete_filesystem, options.yes)
    except Refused as refused:
        print(f"dtfleet aws {command}: {refused}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
