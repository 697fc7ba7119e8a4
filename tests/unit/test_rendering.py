"""A plan as files: what the engine said goes in, what a person reads comes out."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from local import rendering
from local.rendering import SECRET, UNKNOWN, Plan, Resource, marked

PROJECT = "/home/somebody/fleet"
ROOT = "urn:pulumi:s::p::"
STACK = f"{ROOT}pulumi:pulumi:Stack::p-s"
PROVIDER = f"{ROOT}pulumi:providers:kubernetes::cluster"
TEXT_UNKNOWN = "04da6b54-80e4-46f7-96ec-b56ff0331ba9"
LIST_UNKNOWN = "6a19a0b0-7e62-4c92-b797-7f8e31da9cc2"
KEY = "4dabf18193072939515e22adb298388d"
OUTPUT = {KEY: "d0e6a833031e9bbcd3f4e8bde6ca49a4"}
HIDDEN = {KEY: "1b47061264138c4ac30d75fd1eb44270", "value": "hunter2"}


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        pytest.param(TEXT_UNKNOWN, UNKNOWN, id="unknown text"),
        pytest.param({"a": [LIST_UNKNOWN, "b"]}, {"a": [UNKNOWN, "b"]}, id="unknown inside"),
        pytest.param({"a": HIDDEN}, {"a": SECRET}, id="secret"),
        pytest.param({KEY: HIDDEN[KEY], "value": TEXT_UNKNOWN}, SECRET, id="a secret that is not known is a secret"),
        pytest.param({**OUTPUT, "value": {"b": 1.0}}, {"b": 1}, id="output"),
        pytest.param(OUTPUT, UNKNOWN, id="output without a value"),
        pytest.param({**OUTPUT, "value": "x", "secret": True}, SECRET, id="secret output"),
        pytest.param({KEY: "5cf8f73096256a8f31e491e813e4eb8e", "urn": "u", "id": "i"}, "u", id="resource"),
        pytest.param({"b": 1, "a": {"__defaults": [], "__internal": {}, "d": 2, "c": None}},
                     {"a": {"c": None, "d": 2}, "b": 1}, id="in the order of keys, without notes"),
        pytest.param([1.5, 2.0, True], [1.5, 2, True], id="numbers"),
        pytest.param(f"{PROJECT}/local/charts/x and {PROJECT}", "local/charts/x and .", id="no path of this machine"),
    ],
)  # fmt: skip
def test_values_are_marked(value: object, shown: object) -> None:
    assert json.dumps(marked(value, PROJECT)) == json.dumps(shown)


def registered(kind: str, name: str, **given: Any) -> str:  # noqa: ANN401 - any JSON
    request = {"type": kind, "name": name, "object": given.pop("object", {}), **given}
    response = {"urn": f"{ROOT}{kind}::{name}"}
    return json.dumps({"method": rendering.REGISTER, "request": request, "response": response})


def step(kind: str, name: str, **state: Any) -> dict[str, Any]:  # noqa: ANN401 - any JSON
    urn = f"{ROOT}{kind}::{name}"
    return {"op": "create", "urn": urn, "newState": {"urn": urn, "type": kind, "custom": True, **state}}


def test_inputs_are_the_programs_and_all_else_is_the_engines() -> None:
    """A provider's check adds defaults and random names, which are no part of what the program says."""
    vpc = step(
        "aws:ec2/vpc:Vpc", "net", inputs={"cidrBlock": "x", "tagsAll": {}}, parent=STACK,
        provider=f"{PROVIDER}::{TEXT_UNKNOWN}", dependencies=["b", "a", "a"], protect=True, retainOnDelete=True,
        ignoreChanges=["tags"],
    )  # fmt: skip
    read = step("aws:ec2/vpc:Vpc", "adopted", inputs={"id": "vpc-1", "__defaults": []})
    calls = [
        registered("aws:ec2/vpc:Vpc", "net", object={"cidrBlock": "10.0.0.0/16"}),
        json.dumps({"method": "/pulumirpc.ResourceProvider/Check", "request": {}}),
        json.dumps(
            {"method": rendering.REGISTER_OUTPUTS, "request": {"urn": STACK, "outputs": {"cost": 1.5, "token": HIDDEN}}}
        ),
    ]
    plan = rendering.plan({"steps": [vpc, read, {"op": "delete", "urn": "gone"}]}, calls, PROJECT)
    assert plan.outputs == {"cost": 1.5, "token": SECRET}
    assert [resource.row() for resource in plan.resources] == [
        {
            "type": "aws:ec2/vpc:Vpc", "name": "adopted", "urn": read["urn"], "parent": None, "provider": None,
            "inputs": {"id": "vpc-1"}, "dependencies": [], "protect": False, "retainOnDelete": False,
            "ignoreChanges": [],
        },
        {
            "type": "aws:ec2/vpc:Vpc", "name": "net", "urn": vpc["urn"], "parent": STACK, "provider": PROVIDER,
            "inputs": {"cidrBlock": "10.0.0.0/16"}, "dependencies": ["a", "b"], "protect": True,
            "retainOnDelete": True, "ignoreChanges": ["tags"],
        },
    ]  # fmt: skip


@pytest.mark.parametrize("constructed_first", [True, False])
def test_a_remote_component_has_the_inputs_that_the_program_gave_it(constructed_first: bool) -> None:  # noqa: FBT001
    calls = [
        registered("eks:index:Cluster", "cluster", object={"version": "1.34"}, remote=True),
        registered("eks:index:Cluster", "cluster", object={}),
    ]
    plan = rendering.plan(
        {"steps": [step("eks:index:Cluster", "cluster")]}, calls[::-1] if constructed_first else calls, PROJECT
    )
    assert plan.resources[0].inputs == {"version": "1.34"}


def resource(kind: str, name: str, /, **inputs: Any) -> Resource:  # noqa: ANN401 - any JSON
    return Resource(kind, name, f"{ROOT}{kind}::{name}", STACK, PROVIDER, inputs, (), False, False, ())  # noqa: FBT003


RELEASE = resource(
    rendering.RELEASE_TYPE, "autoscaler", name="cluster-autoscaler", namespace="kube-system",
    chart="cluster-autoscaler", repositoryOpts={"repo": "https://charts.invalid"}, version="9.1.0",
    values={"rbac": {"create": True}},
)  # fmt: skip
CONFIG_MAP = resource(
    "kubernetes:core/v1:ConfigMap", "program", data={"a.py": "one\ntwo\n", "mode": "quick"}, kind="ConfigMap",
    apiVersion="v1", metadata={"namespace": "serving", "name": "program-0a548262194d"},
)  # fmt: skip
ROLE = resource(
    "kubernetes:rbac.authorization.k8s.io/v1:ClusterRole", "role", kind="ClusterRole",
    apiVersion="rbac.authorization.k8s.io/v1", metadata={"name": "system:reader"},
)  # fmt: skip
PLAN = Plan((RELEASE, CONFIG_MAP, ROLE), {"cost": None})


def test_each_object_and_each_release_has_a_file_of_its_own() -> None:
    made = rendering.files(PLAN)
    assert list(made) == [
        "helm/kube-system/cluster-autoscaler.yaml",
        "manifests/_cluster/clusterrole-system_reader.yaml",
        "manifests/serving/configmap-program-0a548262194d.yaml",
        "outputs.json",
        "resources.json",
    ]
    assert yaml.safe_load(made["helm/kube-system/cluster-autoscaler.yaml"]) == {
        "release": "cluster-autoscaler",
        "namespace": "kube-system",
        "chart": "cluster-autoscaler",
        "repo": "https://charts.invalid",
        "version": "9.1.0",
        "values": {"rbac": {"create": True}},
    }
    assert made["manifests/serving/configmap-program-0a548262194d.yaml"] == (
        "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  namespace: serving\n  name: program-0a548262194d\n"
        "data:\n  a.py: |\n    one\n    two\n  mode: quick\n"
    )
    assert json.loads(made["resources.json"]) == [one.row() for one in PLAN.resources]


def test_two_resources_that_are_one_object_are_an_error() -> None:
    with pytest.raises(ValueError, match=r"manifests/_cluster/clusterrole-system_reader\.yaml"):
        rendering.files(Plan((ROLE, ROLE), {}))


def test_a_reviewer_reads_everything_once() -> None:
    made = rendering.reviewed(PLAN)
    assert yaml.safe_load(made["resources.yaml"]) == [
        {
            "resource": f"{one.type} {one.name}",
            "parent": STACK,
            "provider": PROVIDER,
            "inputs": path,
        }
        for one, path in (
            (RELEASE, "helm/kube-system/cluster-autoscaler.yaml"),
            (CONFIG_MAP, "manifests/serving/configmap-program-DIGEST.yaml"),
            (ROLE, "manifests/_cluster/clusterrole-system_reader.yaml"),
        )
    ]
    assert yaml.safe_load(made["manifests/serving/configmap-program-DIGEST.yaml"])["data"] == {
        "a.py": "<2 lines>",
        "mode": "quick",
    }


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("program-0a548262194d", "program-DIGEST"),
        ("arn:aws:iam::123456789012:role/x", "arn:aws:iam::123456789012:role/x"),
        ("vpc-0a548262194d0a5482", "vpc-0a548262194d0a5482"),
        ("sha256:0a548262194d0a548262194d", "sha256:0a548262194d0a548262194d"),
    ],
)
def test_digests_of_content_are_a_word_and_other_names_stay(text: str, shown: str) -> None:
    assert rendering.DIGEST.sub("DIGEST", text) == shown
