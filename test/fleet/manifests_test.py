#!/usr/bin/env python3
"""Whether packaging/kubernetes is what it is meant to be: fields that Kubernetes has, names that agree, no right too many.

The API server's own judgement is t3207's, where one is built. --self-test: each planted fault is found.
"""
import copy
import pathlib
import sys

import yaml

TOP = pathlib.Path(__file__).resolve().parents[2]
FOLDER = TOP / "packaging/kubernetes"
ANY = None  # a value, or a map of the user's own keys

META = {"name": ANY, "labels": ANY}
SELECTOR = {"matchLabels": ANY}
CONTAINER = {"name": ANY, "image": ANY, "command": ANY, "args": ANY, "workingDir": ANY, "resources": {"requests": ANY, "limits": ANY},
             "volumeMounts": [{"name": ANY, "mountPath": ANY}]}
POD = {"terminationGracePeriodSeconds": ANY, "automountServiceAccountToken": ANY, "enableServiceLinks": ANY, "serviceAccountName": ANY,
       "restartPolicy": ANY, "containers": [CONTAINER],
       "volumes": [{"name": ANY, "persistentVolumeClaim": {"claimName": ANY}, "emptyDir": {"medium": ANY}}]}
TEMPLATE = {"metadata": META, "spec": POD}
KINDS = {
    ("v1", "ServiceAccount"): {},
    ("v1", "Service"): {"spec": {"clusterIP": ANY, "publishNotReadyAddresses": ANY, "selector": ANY}},
    ("v1", "PersistentVolumeClaim"): {
        "spec": {"accessModes": ANY, "storageClassName": ANY, "resources": {"requests": ANY}}},
    ("apps/v1", "StatefulSet"): {
        "spec": {"replicas": ANY, "serviceName": ANY, "podManagementPolicy": ANY, "selector": SELECTOR, "template": TEMPLATE}},
    ("batch/v1", "Job"): {"spec": {"backoffLimit": ANY, "template": TEMPLATE}},
    ("policy/v1", "PodDisruptionBudget"): {"spec": {"maxUnavailable": ANY, "selector": SELECTOR}},
    ("storage.k8s.io/v1", "StorageClass"): {"provisioner": ANY, "parameters": ANY, "mountOptions": ANY},
    ("eksctl.io/v1alpha5", "ClusterConfig"): {
        "metadata": {"name": ANY, "region": ANY}, "availabilityZones": ANY, "iam": {"withOIDC": ANY}, "addons": [{"name": ANY}],
        "managedNodeGroups": [{"name": ANY, "instanceType": ANY, "availabilityZones": ANY, "privateNetworking": ANY,
                               "minSize": ANY, "maxSize": ANY, "desiredCapacity": ANY}]},
    ("rbac.authorization.k8s.io/v1", "Role"): {"rules": [{"apiGroups": ANY, "resources": ANY, "resourceNames": ANY, "verbs": ANY}]},
    ("rbac.authorization.k8s.io/v1", "RoleBinding"): {
        "roleRef": {"apiGroup": ANY, "kind": ANY, "name": ANY}, "subjects": [{"kind": ANY, "name": ANY}]},
}
# What dtlaunch, the provider and master.yaml do with kubectl.
RIGHTS = {("pods", "", "get"), ("pods", "", "list"), ("pods", "", "watch"), ("pods/exec", "", "create"),
          ("statefulsets", "dt-workers", "get"), ("statefulsets/scale", "dt-workers", "get"), ("statefulsets/scale", "dt-workers", "update")}


def unknown(value, schema, place):
    if schema is ANY:
        return
    if isinstance(schema, list):
        for i, entry in enumerate(value):
            yield from unknown(entry, schema[0], f"{place}[{i}]")
        return
    for key, below in value.items():
        if key not in schema:
            yield f"{place}: unknown field {key!r}"
        else:
            yield from unknown(below, schema[key], f"{place}.{key}")


def faults(documents):
    by_kind = {}
    for document in documents:
        kind, name = document["kind"], document["metadata"]["name"]
        by_kind[kind] = by_kind.get(kind, []) + [document]
        schema = KINDS.get((document["apiVersion"], kind))
        if schema is None:
            yield f"{kind} {name}: no such kind in {document['apiVersion']}"
        else:
            yield from unknown(document, {"apiVersion": ANY, "kind": ANY, "metadata": META, **schema}, f"{kind} {name}")
    workers, job = by_kind["StatefulSet"][0], next(j for j in by_kind["Job"] if j["metadata"]["name"] == "dt-master")
    labels = workers["spec"]["template"]["metadata"]["labels"]
    for what, selector in (("StatefulSet", workers["spec"]["selector"]["matchLabels"]), ("Service", by_kind["Service"][0]["spec"]["selector"]),
                           ("PodDisruptionBudget", by_kind["PodDisruptionBudget"][0]["spec"]["selector"]["matchLabels"])):
        if selector != labels:
            yield f"{what} selects {selector}, and the pods have {labels}"
    if workers["spec"]["serviceName"] != by_kind["Service"][0]["metadata"]["name"]:
        yield "serviceName is no Service"
    if workers["spec"]["template"]["spec"]["containers"][0]["command"] != ["dtagent", "--pod"]:
        yield "the pods' command is not dtagent --pod"
    account, role = by_kind["ServiceAccount"][0]["metadata"]["name"], by_kind["Role"][0]["metadata"]["name"]
    binding = by_kind["RoleBinding"][0]
    pod = job["spec"]["template"]["spec"]
    if pod["serviceAccountName"] != account or [s["name"] for s in binding["subjects"]] != [account] or binding["roleRef"]["name"] != role:
        yield f"account {account} and role {role} are not the Job's and the binding's"
    rights = {(resource, name, verb) for rule in by_kind["Role"][0]["rules"] for resource in rule["resources"]
              for name in rule.get("resourceNames", [""]) for verb in rule["verbs"]}
    if rights != RIGHTS:
        yield f"rights that differ: {sorted(rights ^ RIGHTS)}"
    claims = {v["persistentVolumeClaim"]["claimName"] for p in (pod, workers["spec"]["template"]["spec"]) for v in p["volumes"]
              if "persistentVolumeClaim" in v}
    if claims != {c["metadata"]["name"] for c in by_kind["PersistentVolumeClaim"]}:
        yield f"the claims of the pods are {claims}"
    for claim in by_kind["PersistentVolumeClaim"]:
        if claim["spec"]["storageClassName"] not in [c["metadata"]["name"] for c in by_kind["StorageClass"]]:
            yield f"the claim's class {claim['spec']['storageClassName']} is none of ours"
    words = pod["containers"][0]["args"][0]
    for name in (f"kubernetes:{workers['metadata']['name']}", *(f"pod/{workers['metadata']['name']}-{i}" for i in range(2))):
        if name not in words:
            yield f"the Job's words lack {name}"


def documents_of(folder):
    return [d for p in sorted(folder.glob("*.yaml")) if p.name != "kustomization.yaml" for d in yaml.safe_load_all(p.read_text())]


def self_test(documents):
    def of(kind, all_of):
        return next(d for d in all_of if d["kind"] == kind)

    def misspelt(a):
        of("StatefulSet", a)["spec"]["replcas"] = 2

    def another_label(a):
        of("Service", a)["spec"]["selector"] = {"app": "other"}

    def all_verbs(a):
        of("Role", a)["rules"][0]["verbs"] = ["*"]

    def other_account(a):
        of("RoleBinding", a)["subjects"][0]["name"] = "default"

    def old_version(a):
        of("PodDisruptionBudget", a)["apiVersion"] = "policy/v1beta1"

    def other_class(a):
        of("PersistentVolumeClaim", a)["spec"]["storageClassName"] = "dt-other"

    for plant in (misspelt, another_label, all_verbs, other_account, old_version, other_class):
        changed = copy.deepcopy(documents)
        plant(changed)
        if not list(faults(changed)):
            yield f"planted and not found: {plant.__name__}"


def main():
    documents = documents_of(FOLDER)
    found = [*faults(documents), *self_test(documents)]
    print(*found, sep="\n", end="\n" if found else "")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
