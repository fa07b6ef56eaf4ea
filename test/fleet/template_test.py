#!/usr/bin/env python3
"""Whether packaging/aws/dtlaunch-cluster.yaml is what it is meant to be: properties that CloudFormation has, names that resolve, no
right too many, nothing open to the world, and what supervisor/fleet/providers/aws.py and dtlaunch-cloud-setup read.

Each fault begins with the name of its check. --self-test: each planted fault is found by the check that is named.
"""
import ast
import functools
import pathlib
import re
import subprocess
import sys

import yaml

TOP = pathlib.Path(__file__).resolve().parents[2]
TEMPLATE = TOP / "packaging/aws/dtlaunch-cluster.yaml"
SETUP = TOP / "packaging/aws/dtlaunch-cloud-setup"
PROVIDER = TOP / "supervisor/fleet/providers/aws.py"
sys.path.insert(0, str(PROVIDER.parent))
import aws  # noqa: E402
from cloudformation import Loader, function_of, wrong_properties, wrong_references  # noqa: E402

ALL_ADDRESSES = ("0.0.0.0/0", "0.0.0.0/1", "::/0")
AN_ADDRESS = "203.0.113.7/32"


def needed_rights():
    """What aws.py calls, without what `dtfleet aws down` does with the rights of its caller."""
    classes = [node for node in ast.parse(PROVIDER.read_text()).body if isinstance(node, ast.ClassDef) and node.name != "Down"]
    calls = [node.args for top in classes for node in ast.walk(top) if isinstance(node, ast.Call) and len(node.args) >= 2]
    words = [[word.value for word in args[:2] if isinstance(word, ast.Constant)] for args in calls]
    return {f"{two[0]}:{two[1].title().replace('_', '')}" for two in words if two[0:1] in (["ec2"], ["autoscaling"])}


def wrong_rights(of_type):
    roles = of_type("AWS::IAM::Role")
    statements = [s for role in roles.values() for p in role.get("Policies", []) for s in p["PolicyDocument"]["Statement"]]
    granted = {action for s in statements for action in s["Action"]}
    if granted != needed_rights():
        yield f"they differ from what aws.py calls: {sorted(granted ^ needed_rights())}"
    tagged = {"StringEquals": {f"aws:ResourceTag/{aws.CLUSTER_TAG}": {"Ref": "AWS::StackName"}}}
    for s in statements:
        writes = [action for action in s["Action"] if not re.fullmatch(r"\w+:Describe\w+", action)]
        resource = s["Resource"].get("Fn::Sub", "") if isinstance(s["Resource"], dict) else s["Resource"]
        if writes and not (resource.endswith(":instance/*") and s.get("Condition") == tagged
                           or resource.endswith(":autoScalingGroupName/${WorkerGroup}") and "Condition" not in s):
            yield f"{writes} on {resource}, and not only on what is the cluster's"
    if "Policies" in roles["WorkerRole"]:
        yield "workers have some"


def open_rules(template, of_type):
    rules = [rule for group in of_type("AWS::EC2::SecurityGroup").values() for rule in group.get("SecurityGroupIngress", [])]
    for rule in (*rules, *of_type("AWS::EC2::SecurityGroupIngress").values()):
        if "SourceSecurityGroupId" in rule:
            continue
        source = rule.get("CidrIp", rule.get("CidrIpv6", "::/0"))
        parameter = template["Parameters"][source["Ref"]] if isinstance(source, dict) else {"Default": source, "AllowedPattern": ""}
        accepted = [each for each in (*ALL_ADDRESSES, AN_ADDRESS) if re.fullmatch(parameter.get("AllowedPattern", ".*"), each)]
        if parameter.get("Default", "") in ALL_ADDRESSES or accepted not in ([AN_ADDRESS], []):
            yield f"{rule} lets the world in"


def user_data_of(data, values):
    """The script, with the values of parameters and resources."""
    text, own = data["UserData"]["Fn::Base64"]["Fn::Sub"]
    return re.sub(r"\$\{([^!}]+)\}", lambda found: values.get(found[1], found[1].lower().replace("::", "-")), text)


@functools.cache
def shell_faults(script):
    found = []
    for program in (["bash", "-n"], ["shellcheck", "-s", "bash", "-"]):
        try:
            done = subprocess.run(program, input=script, capture_output=True, text=True)
        except FileNotFoundError:
            print(f"SKIPPED: {program[0]} is not installed")
            continue
        if done.returncode:
            found.append(f"{program[0]}: {done.stdout}{done.stderr}".strip())
    return found


def faults(template):
    def of_type(wanted):
        return {key: resource.get("Properties", {}) for key, resource in resources.items() if resource["Type"] == wanted}

    resources = template["Resources"]
    for key, resource in resources.items():
        yield from (f"property: {fault}" for fault in wrong_properties(resource, key))
        stays = [resource.get(policy) for policy in ("DeletionPolicy", "UpdateReplacePolicy")]
        if stays != (["Retain"] * 2 if resource["Type"] == "AWS::EFS::FileSystem" else [None] * 2):
            yield f"retain: the file system stays, and nothing else: {key} {stays}"
    yield from (f"reference: {fault}" for fault in wrong_references(template))
    yield from (f"right: {fault}" for fault in wrong_rights(of_type))
    yield from (f"ingress: {fault}" for fault in open_rules(template, of_type))
    launches = {key: launch["LaunchTemplateData"] for key, launch in of_type("AWS::EC2::LaunchTemplate").items()}
    known = set(re.findall(r"\[([A-Z_]+)\]=", SETUP.read_text()))
    for key, data in launches.items():
        if data.get("MetadataOptions") != {"HttpTokens": "required", "HttpPutResponseHopLimit": 1}:
            yield f"IMDSv2: {key}"
        if not all(disk["Ebs"].get("Encrypted") is True for disk in data["BlockDeviceMappings"]):
            yield f"encryption: {key}"
        script = user_data_of(data, {})
        yield from (f"user data: {key}: {fault}" for fault in shell_faults(script))
        unknown = set(re.findall(r"^([A-Z_]+)=", script, re.M)) - known
        if unknown or "sha256sum --check" not in script:
            yield f"user data: {key}: dtlaunch-cloud-setup knows no {unknown}, or the package is not checked"
    if not all(files.get("Encrypted") is True for files in of_type("AWS::EFS::FileSystem").values()):
        yield "encryption: the file system"
    groups = of_type("AWS::AutoScaling::AutoScalingGroup")
    wanted = {aws.CLUSTER_TAG, aws.Cluster("${AWS::StackName}", None).wanted_tag}  # type: ignore[arg-type]
    names = {key: {function_of(tag["Key"])[1] or tag["Key"] for tag in group["Tags"] if tag.get("PropagateAtLaunch") is True}
             for key, group in groups.items()}
    of_template = {function_of(tag["Key"])[1] or tag["Key"] for tag in launches["WorkerTemplate"]["TagSpecifications"][0]["Tags"]}
    if not wanted <= names["WorkerGroup"] or not wanted <= of_template or wanted & names["MasterGroup"]:
        yield f"cluster: workers, and no others, have the tags {wanted}"
    if groups["WorkerGroup"].get("LifecycleHookSpecificationList") != [
            {"LifecycleHookName": "leave", "LifecycleTransition": "autoscaling:EC2_INSTANCE_TERMINATING", "HeartbeatTimeout": 900,
             "DefaultResult": "CONTINUE"}]:
        yield "cluster: the hook"
    lacking = set(re.findall(r'outputs\.get\("(\w+)"', PROVIDER.read_text())) - template["Outputs"].keys()
    if lacking:
        yield f"output: aws.py reads {lacking}"


def lint_faults():
    try:
        version = subprocess.run(["cfn-lint", "--version"], capture_output=True, text=True, timeout=300).stdout
    except FileNotFoundError:
        version = ""
    if not version.startswith("cfn-lint "):
        print("SKIPPED: cfn-lint is not installed")
        return
    done = subprocess.run(["cfn-lint", TEMPLATE], capture_output=True, text=True)
    if done.returncode:
        yield f"cfn-lint: {done.stdout}{done.stderr}"


PLANTS = [  # what stands there, what instead, the check that finds it
    ("HeartbeatTimeout", "HeartbeatTimout", "property"), ("GroupDescription: ssh", "Description: ssh", "property"),
    ("VpcId: !Ref VPC", "VpcId: !Ref VCP", "reference"), ("!GetAtt WorkerProfile.Arn", "!GetAtt WorkerProfile.Id", "reference"),
    ("${WorkerTemplate}", "${WorkersTemplate}", "reference"), ("[IsSpot,", "[Spot,", "reference"),
    ("    Condition: HasNat", "    Condition: HasNet", "reference"), ("DependsOn: MasterGroup", "DependsOn: Master", "reference"),
    ("DependsOn: [MountTarget, Priv", "DependsOn: [MasterGroup, Priv", "reference"),
    ("DependsOn: [MountTarget, Priv", "DependsOn: [RouteByNat, Priv", "reference"),
    ("!GetAtt PublicSubnet.Av", "!GetAtt PrivateSubnet.Av", "reference"), ("ec2:TerminateInstances", "ec2:*", "right"),
    ("ec2:DeleteTags, ", "", "right"), ("instance/*", "*", "right"),
    ("                Condition: {StringEquals", "                Cond: {StringEquals", "right"),
    ("autoScalingGroupName/${WorkerGroup}", "autoScalingGroupName/*", "right"),
    ("CidrIp: !Ref SSHLocation", "CidrIp: 0.0.0.0/0", "ingress"), ("/([89]|", "/([0-9]|", "ingress"),
    ("SSHLocation: {Type: String,", "SSHLocation: {Type: String, Default: 0.0.0.0/0,", "ingress"),
    ("HttpTokens: required", "HttpTokens: optional", "IMDSv2"), ("HopLimit: 1", "HopLimit: 2", "IMDSv2"),
    ("Encrypted: true}", "Encrypted: false}", "encryption"), ("      Encrypted: true\n", "", "encryption"),
    ("    DeletionPolicy: Retain\n", "", "retain"), ("    UpdateReplacePolicy: Retain\n", "", "retain"),
    ("      FileSystemTags: [{Key: Name, Value: !Ref AWS::StackName}]\n", "", "property"),
    ("{Key: dtlaunch:cluster, Value: !Ref AWS::StackName, P", "{Key: cluster, Value: !Ref AWS::StackName, P", "cluster"),
    ("DefaultResult: CONTINUE", "DefaultResult: ABANDON", "cluster"), ("FileSystemIsOwn:", "IsOwn:", "output"),
    ("PREPARE=$", "PREPARES=$", "user data"), ("'${PackageUrl}' sum", "'${PackageUrl} sum", "user data"),
]


def self_test(text):
    for old, new, check in PLANTS:
        assert old in text, f"the template has no {old!r}"
        found = [fault.split(":")[0] for fault in faults(yaml.load(text.replace(old, new, 1), Loader))]
        if check not in found:
            yield f"planted, and not found by {check}, but by {found}: {new!r} for {old!r}"


def main():
    text = TEMPLATE.read_text()
    found = [*self_test(text)] if "--self-test" in sys.argv else [*faults(yaml.load(text, Loader)), *lint_faults()]
    print(*found, sep="\n", end="\n" if found else "")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
