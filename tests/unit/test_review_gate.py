"""What the gate refuses, and by which label a pull request says that it means it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import yaml

from review import gate
from review.plan import Change, Kind, Origin, Plan
from review.replacement import RULES
from tests.unit import graph

if TYPE_CHECKING:
    from pathlib import Path

CLUSTER = "aws:eks/cluster:Cluster"
COMPONENT = "eks:index:Cluster"
GROUP = "aws:eks/nodeGroup:NodeGroup"
FILES = "aws:efs/fileSystem:FileSystem"
ROLE = "aws:iam/role:Role"
ASSOCIATION = "aws:eks/podIdentityAssociation:PodIdentityAssociation"
LABELS = {guard.label for guard in gate.GUARDS}


def change(kind: Kind, type_: str, before: dict[str, Any] | None = None, after: dict[str, Any] | None = None) -> Change:
    return Change(kind, f"urn:pulumi:prod::triton-fleet::{type_}::x", before or {}, after or {})


def judged(
    *changes: Change, environments: tuple[str, ...] = ("prod",), labels: frozenset[str] = frozenset()
) -> list[tuple[str, bool]]:
    findings = gate.judge(Plan(Origin.PREVIEW, changes, 0), environments, labels)
    return [(finding.guard.label, finding.allowed) for finding in findings]


GPU = {"labels": {"nvidia.com/gpu": "present"}}
TRUSTS_NODES = '{"Statement": [{"Effect": "Allow", "Principal": "nodes"}], "Version": "1"}'
THE_SAME = '{"Version":"1","Statement":[{"Principal":"nodes","Effect":"Allow"}]}'
TRUSTS_ALL = '{"Version":"1","Statement":[{"Principal":"*","Effect":"Allow"}]}'


@pytest.mark.parametrize("kind", [Kind.DELETE, Kind.REPLACE])
@pytest.mark.parametrize(
    ("type_", "before", "label"),
    [
        (CLUSTER, {}, "allow-prod-cluster"),
        (COMPONENT, {}, "allow-prod-cluster"),
        (FILES, {}, "allow-prod-file-system"),
        (GROUP, GPU, "allow-prod-gpu-node-group"),
        (GROUP, {"labels": {}, "taints": [{"key": "nvidia.com/gpu"}]}, "allow-prod-gpu-node-group"),
        (GROUP, {"amiType": "AL2023_x86_64_NVIDIA"}, "allow-prod-gpu-node-group"),
        (GROUP, {}, "allow-prod-gpu-node-group"),
        (GROUP, {"labels": "<unknown>", "taints": "<unknown>"}, "allow-prod-gpu-node-group"),
        ("eks:index:ManagedNodeGroup", GPU, "allow-prod-gpu-node-group"),
        (ROLE, {}, "allow-prod-trust-policy"),
        (ASSOCIATION, {}, "allow-prod-trust-policy"),
        ("aws:iam/openIdConnectProvider:OpenIdConnectProvider", {}, "allow-prod-trust-policy"),
    ],
)
def test_what_is_guarded_is_refused_unless_its_own_label_allows_it(
    kind: Kind, type_: str, before: dict[str, Any], label: str
) -> None:
    lost = change(kind, type_, before)
    assert judged(lost) == [(label, False)]
    assert judged(lost, labels=frozenset(LABELS - {label})) == [(label, False)]
    assert judged(lost, labels=frozenset({label})) == [(label, True)]


@pytest.mark.parametrize(
    "harmless",
    [
        change(Kind.DELETE, "kubernetes:core/v1:ConfigMap"),
        change(Kind.REPLACE, "aws:ec2/launchTemplate:LaunchTemplate"),
        change(Kind.DELETE, "aws:eks/addon:Addon"),
        change(Kind.DELETE, GROUP, {"labels": {"triton-fleet.io/role": "system"}}),
        change(Kind.DELETE, GROUP, {"amiType": "AL2023_x86_64_STANDARD"}),
        change(Kind.CREATE, CLUSTER),
        change(Kind.UPDATE, CLUSTER, {"version": "1.33"}, {"version": "1.34"}),
        change(Kind.UPDATE, FILES),
        change(Kind.UPDATE, GROUP, GPU),
        change(Kind.IMPORT, CLUSTER),
        change(Kind.CREATE, ROLE, {}, {"assumeRolePolicy": TRUSTS_ALL}),
        change(Kind.UPDATE, ROLE, {"assumeRolePolicy": TRUSTS_NODES}, {"assumeRolePolicy": THE_SAME}),
        change(Kind.UPDATE, ROLE, {"description": "a"}, {"description": "b"}),
    ],
    ids=lambda one: f"{one.kind} {one.type}",
)
def test_what_loses_nothing_passes(harmless: Change) -> None:
    assert judged(harmless) == []


@pytest.mark.parametrize("after", [TRUSTS_ALL, "<unknown>", None])
def test_another_trust_policy_is_a_replaced_one(after: str | None) -> None:
    changed = change(Kind.UPDATE, ROLE, {"assumeRolePolicy": TRUSTS_NODES}, {"assumeRolePolicy": after})
    assert judged(changed) == [("allow-prod-trust-policy", False)]


@pytest.mark.parametrize(
    ("environments", "guarded"),
    [
        (("prod",), True),
        (("dev",), False),
        (("local",), False),
        (("prod", "dev"), True),
        (("dev", "prod"), True),
        ((), False),
    ],
)
def test_only_prod_is_guarded_and_a_stack_that_was_or_becomes_prod_is(
    environments: tuple[str, ...], *, guarded: bool
) -> None:
    assert judged(change(Kind.DELETE, CLUSTER), environments=environments) == [("allow-prod-cluster", False)] * guarded


def test_a_finding_says_which_resource_why_and_what_label() -> None:
    refused, allowed = gate.judge(
        Plan(
            Origin.RENDERS,
            (
                change(Kind.REPLACE, FILES),
                change(Kind.UPDATE, ROLE, {"assumeRolePolicy": TRUSTS_NODES}, {"assumeRolePolicy": TRUSTS_ALL}),
            ),
            0,
        ),
        {"prod"},
        {"allow-prod-trust-policy"},
    )
    assert str(refused) == (
        "replaces the file system x (aws:efs/fileSystem:FileSystem): it holds weights and engines; "
        "to allow it, add the label 'allow-prod-file-system'"
    )
    assert str(allowed) == (
        "changes the trust policy of x (aws:iam/role:Role): it says who may act as a role; "
        "allowed by label 'allow-prod-trust-policy'"
    )


def test_what_replaces_each_guarded_type_is_listed() -> None:
    """Components are not replaced themselves; the resources in them are, and are guarded."""
    types = {CLUSTER, FILES, *gate.NODE_GROUPS, *gate.TRUST}
    assert {type_ for type_ in types if type_.startswith("aws:")} <= set(RULES)
    assert {type_ for type_ in types if judged(change(Kind.DELETE, type_))} == types


def test_what_prod_registers_is_guarded(project: Path) -> None:
    """Of all that the program registers for prod, exactly these; the nodes that serve the cluster have no GPU."""
    config = yaml.safe_load((project / "Pulumi.prod.yaml").read_text())["config"]
    settings = {key.removeprefix("triton-fleet:"): value for key, value in config.items()}
    registered = graph.run(project, settings, stack="prod")
    lost = tuple(Change(Kind.DELETE, one.urn, one.inputs, {}) for one in registered.resources)
    guarded: dict[str, set[str]] = {}
    for finding in gate.judge(Plan(Origin.RENDERS, lost, 0), {"prod"}, set()):
        guarded.setdefault(finding.guard.label, set()).add(finding.change.name)
    roles = {one.name for type_ in gate.TRUST for one in registered.of(type_)}
    assert guarded == {
        "allow-prod-cluster": {one.name for type_ in (CLUSTER, COMPONENT) for one in registered.of(type_)},
        "allow-prod-file-system": {one.name for one in registered.of(FILES)},
        "allow-prod-gpu-node-group": {"a100-40gb", "h100-80gb"},
        "allow-prod-trust-policy": roles,
    }
    assert {one.name for one in registered.of(GROUP)} == {"a100-40gb", "h100-80gb", "system"}
    assert all(guarded.values())
