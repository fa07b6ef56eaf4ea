"""A template of CloudFormation as template_test.py reads it: its short forms, its properties by Amazon's reference, what it refers to."""
import graphlib
import re

import yaml

ANY = None  # a value, or a map that is another language's
TAGS = [{"Key!": ANY, "Value!": ANY}]
SPECIFICATIONS = [{"ResourceType!": ANY, "Tags!": TAGS}]
INGRESS = {"IpProtocol!": ANY, "FromPort": ANY, "ToPort": ANY, "CidrIp": ANY, "CidrIpv6": ANY, "SourceSecurityGroupId": ANY}
# The properties in use, as Amazon's reference has them; `!`: required.
PROPERTIES = {
    "AWS::EC2::VPC": {"CidrBlock!": ANY, "EnableDnsHostnames": ANY, "Tags!": TAGS},
    "AWS::EC2::InternetGateway": {"Tags!": TAGS},
    "AWS::EC2::VPCGatewayAttachment": {"VpcId!": ANY, "InternetGatewayId": ANY},
    "AWS::EC2::Subnet": {"VpcId!": ANY, "CidrBlock!": ANY, "AvailabilityZone": ANY, "MapPublicIpOnLaunch": ANY, "Tags!": TAGS},
    "AWS::EC2::RouteTable": {"VpcId!": ANY, "Tags!": TAGS},
    "AWS::EC2::SubnetRouteTableAssociation": {"SubnetId!": ANY, "RouteTableId!": ANY},
    "AWS::EC2::Route": {"RouteTableId!": ANY, "DestinationCidrBlock": ANY, "GatewayId": ANY, "NatGatewayId": ANY},
    "AWS::EC2::EIP": {"Domain": ANY, "Tags!": TAGS},
    "AWS::EC2::NatGateway": {"AllocationId": ANY, "SubnetId!": ANY, "Tags!": TAGS},
    "AWS::EC2::VPCEndpoint": {"VpcId!": ANY, "ServiceName!": ANY, "RouteTableIds": [ANY]},
    "AWS::EC2::SecurityGroup": {"GroupDescription!": ANY, "VpcId": ANY, "SecurityGroupIngress": [INGRESS], "Tags!": TAGS},
    "AWS::EC2::SecurityGroupIngress": {"GroupId": ANY, **INGRESS},
    "AWS::EFS::FileSystem": {"Encrypted": ANY, "ThroughputMode": ANY, "FileSystemTags!": TAGS},
    "AWS::EFS::MountTarget": {"FileSystemId!": ANY, "SubnetId!": ANY, "SecurityGroups!": [ANY]},
    "AWS::IAM::Role": {"AssumeRolePolicyDocument!": ANY, "Policies": [{"PolicyName!": ANY, "PolicyDocument!": ANY}], "Tags!": TAGS},
    "AWS::IAM::InstanceProfile": {"Roles!": [ANY]},
    "AWS::EC2::LaunchTemplate": {"LaunchTemplateName": ANY, "TagSpecifications!": SPECIFICATIONS, "LaunchTemplateData!": {
        "ImageId": ANY, "InstanceType": ANY, "KeyName": ANY, "SecurityGroupIds": [ANY], "IamInstanceProfile": {"Arn": ANY},
        "MetadataOptions": {"HttpTokens": ANY, "HttpPutResponseHopLimit": ANY}, "InstanceMarketOptions": {"MarketType": ANY},
        "BlockDeviceMappings": [{"DeviceName": ANY, "Ebs": {"VolumeType": ANY, "VolumeSize": ANY, "Encrypted": ANY}}],
        "TagSpecifications": SPECIFICATIONS, "UserData": ANY}},
    "AWS::AutoScaling::AutoScalingGroup": {
        "AutoScalingGroupName": ANY, "MinSize!": ANY, "MaxSize!": ANY, "DesiredCapacity": ANY, "VPCZoneIdentifier": [ANY],
        "LaunchTemplate": {"LaunchTemplateId": ANY, "Version!": ANY}, "Tags!": [{**TAGS[0], "PropagateAtLaunch!": ANY}],
        "LifecycleHookSpecificationList": [{"LifecycleHookName!": ANY, "LifecycleTransition!": ANY, "HeartbeatTimeout": ANY,
                                            "DefaultResult": ANY}]},
    "AWS::CloudFormation::WaitConditionHandle": {},
    "AWS::CloudFormation::WaitCondition": {"Handle": ANY, "Timeout": ANY, "Count": ANY},
}
ATTRIBUTES = {("AWS::EC2::Subnet", "AvailabilityZone"), ("AWS::EC2::EIP", "AllocationId"), ("AWS::IAM::InstanceProfile", "Arn"),
              ("AWS::EC2::LaunchTemplate", "LatestVersionNumber")}
PSEUDO = {f"AWS::{name}" for name in ("AccountId", "NoValue", "Partition", "Region", "StackId", "StackName", "URLSuffix")}
OF_RESOURCE = {"Type", "Condition", "DependsOn", "DeletionPolicy", "UpdateReplacePolicy", "Metadata", "Properties"}
OF_PARAMETER = {"Type", "Default", "Description", "AllowedPattern", "AllowedValues", "ConstraintDescription", "MinValue"}


class Loader(yaml.SafeLoader):
    pass


def short_form(loader, tag, node):
    """!Ref x: {"Ref": x}, !Sub x: {"Fn::Sub": x}, !GetAtt a.b: {"Fn::GetAtt": ["a", "b"]}."""
    value = loader.construct_scalar(node) if isinstance(node, yaml.ScalarNode) else loader.construct_sequence(node, deep=True)
    name = tag if tag in ("Ref", "Condition") else f"Fn::{tag}"
    return {name: value.split(".", 1) if tag == "GetAtt" else value}


Loader.add_multi_constructor("!", short_form)


def function_of(value):
    """The name and the argument of an intrinsic function."""
    name, argument = next(iter(value.items())) if isinstance(value, dict) and len(value) == 1 else ("", None)
    return (name, argument) if name == "Ref" or name.startswith("Fn::") else ("", None)


def functions(value):
    """All that are in a value."""
    name, argument = function_of(value)
    if name:
        yield name, argument
    for below in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from functions(below)


def names_in(name, argument):
    """The resources and parameters that a function refers to, each with its attribute or ''."""
    if name == "Ref":
        yield argument, ""
    elif name == "Fn::GetAtt":
        yield tuple(argument)
    elif name == "Fn::Sub":
        text, own = argument if isinstance(argument, list) else (argument, {})
        for word in re.findall(r"\$\{([^!}]+)\}", text):
            if word not in own:
                yield (*word.split(".", 1), "")[:2]


def wrong_values(value, schema, place):
    name, argument = function_of(value)
    if schema is ANY or (name and name != "Fn::If"):
        return
    if name:
        for below in argument[1:]:
            yield from wrong_values(below, schema, place)
    elif isinstance(schema, list):
        for i, entry in enumerate(value):
            yield from wrong_values(entry, schema[0], f"{place}[{i}]")
    else:
        known = {key.rstrip("!"): below for key, below in schema.items()}
        yield from (f"{place} lacks {key[:-1]}" for key in schema if key.endswith("!") and key[:-1] not in value)
        for key, below in value.items():
            if key in known:
                yield from wrong_values(below, known[key], f"{place}.{key}")
            else:
                yield f"{place}: unknown property {key!r}"


def wrong_references(template):
    resources, parameters = template["Resources"], template["Parameters"]
    known = resources.keys() | parameters.keys() | PSEUDO
    for name, argument in functions(template):
        for of, attribute in names_in(name, argument):
            is_there = of in resources and (resources[of]["Type"], attribute) in ATTRIBUTES if attribute else of in known
            if not is_there:
                yield f"{of}{attribute and '.'}{attribute} is nothing"
        if name == "Fn::If" and argument[0] not in template["Conditions"]:
            yield f"there is no condition {argument[0]}"
    edges = {}
    for key, resource in resources.items():
        yield from (f"{key}: unknown attribute {word!r}" for word in resource.keys() - OF_RESOURCE)
        if resource.get("Condition", "HasNat") not in template["Conditions"]:
            yield f"{key}: there is no condition {resource['Condition']}"
        waited = resource.get("DependsOn", [])
        waited = [waited] if isinstance(waited, str) else waited
        for other in waited:
            if resources.get(other, {"Condition": "?"}).get("Condition") not in (None, resource.get("Condition")):
                yield f"{key} depends on {other}, which may not be there"
        edges[key] = {*waited, *(of for function in functions(resource) for of, _ in names_in(*function))} & resources.keys()
    for key, parameter in parameters.items():
        yield from (f"parameter {key}: unknown attribute {word!r}" for word in parameter.keys() - OF_PARAMETER)
    try:
        graphlib.TopologicalSorter(edges).prepare()
    except graphlib.CycleError as e:
        yield f"a circle: {e.args[1]}"


def wrong_properties(resource, place):
    if resource["Type"] in PROPERTIES:
        yield from wrong_values(resource.get("Properties", {}), PROPERTIES[resource["Type"]], place)
    else:
        yield f"{place}: unknown type {resource['Type']}"
