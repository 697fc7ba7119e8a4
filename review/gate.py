"""What a pull request may not do to prod by accident: lose what holds data, capacity or trust.

It guards against mistakes, not against malice: a plan is made by the code under review.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from fleet import names
from review.plan import Change, Kind

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from review.plan import Plan

GUARDED_ENVIRONMENTS: Final = frozenset({"prod"})
_LOST: Final = (Kind.DELETE, Kind.REPLACE)


@dataclass(frozen=True, slots=True)
class Guard:
    """One kind of thing that is guarded, and the label by which a pull request says that it means to lose it."""

    what: str
    label: str
    why: str
    applies: Callable[[Change], bool]


@dataclass(frozen=True, slots=True)
class Finding:
    """A guarded change. `allowed` if the pull request carries the guard's label."""

    change: Change
    guard: Guard
    allowed: bool

    def __str__(self) -> str:
        said = f"{_doing(self.change)} {self.guard.what} {self.change.name} ({self.change.type}): {self.guard.why}"
        label = f"label {self.guard.label!r}"
        return f"{said}; allowed by {label}" if self.allowed else f"{said}; to allow it, add the {label}"


def judge(plan: Plan, environments: Collection[str], labels: Collection[str]) -> tuple[Finding, ...]:
    """Each guarded change, if one of the environments that the stack has or had is guarded."""
    if not GUARDED_ENVIRONMENTS & set(environments):
        return ()
    return tuple(
        Finding(change, guard, guard.label in labels)
        for change in plan.changes
        for guard in GUARDS
        if guard.applies(change)
    )


def _doing(change: Change) -> str:
    return {Kind.DELETE: "deletes", Kind.REPLACE: "replaces"}.get(change.kind, "changes")


def _lost(*types: str) -> Callable[[Change], bool]:
    return lambda change: change.kind in _LOST and change.type in types


def _gpu_group_lost(change: Change) -> bool:
    return change.kind in _LOST and change.type in NODE_GROUPS and is_gpu_group(change.before)


def is_gpu_group(inputs: Mapping[str, object]) -> bool:
    """Whether a node group has GPUs: told by its labels, its taints or its AMI; a group that tells nothing has."""
    labels, taints, ami = inputs.get("labels"), inputs.get("taints"), inputs.get("amiType")
    if isinstance(labels, dict) and names.NODE_GPU_LABEL in labels:
        return True
    if isinstance(taints, list) and any(
        isinstance(one, dict) and one.get("key") == names.GPU_TAINT_KEY for one in taints
    ):
        return True
    if isinstance(ami, str) and ami in _CPU_AMIS:
        return False
    return not (isinstance(labels, dict) and labels)


def _trust_lost(change: Change) -> bool:
    """A role's trust policy is one of its inputs: an update that changes it replaces the policy, not the role."""
    if change.kind in _LOST:
        return change.type in TRUST
    return (
        change.type == ROLE
        and change.kind is Kind.UPDATE
        and _document(change.before.get(TRUST_POLICY)) != _document(change.after.get(TRUST_POLICY))
    )


def _document(policy: object) -> object:
    """A policy as what it says: neither spaces nor the order of keys change it."""
    try:
        return json.loads(policy) if isinstance(policy, str) else policy
    except ValueError:
        return policy


NODE_GROUPS: Final = ("aws:eks/nodeGroup:NodeGroup", "eks:index:ManagedNodeGroup")
ROLE: Final = "aws:iam/role:Role"
TRUST_POLICY: Final = "assumeRolePolicy"
TRUST: Final = (
    ROLE,
    "aws:eks/podIdentityAssociation:PodIdentityAssociation",
    "aws:iam/openIdConnectProvider:OpenIdConnectProvider",
)
_CPU_AMIS: Final = frozenset(
    f"{system}_{suffix}"
    for system, suffix in (
        ("AL2", "x86_64"),
        ("AL2", "ARM_64"),
        ("AL2023", "x86_64_STANDARD"),
        ("AL2023", "ARM_64_STANDARD"),
        ("BOTTLEROCKET", "x86_64"),
        ("BOTTLEROCKET", "ARM_64"),
    )
)
"""AMI types of EKS without a driver: values of `AMITypes` in aws-sdk-go-v2 service/eks/types/enums.go."""

GUARDS: Final = (
    Guard(
        "the cluster",
        "allow-prod-cluster",
        "everything in it goes with it",
        _lost("aws:eks/cluster:Cluster", "eks:index:Cluster"),
    ),
    Guard(
        "the file system",
        "allow-prod-file-system",
        "it holds weights and engines",
        _lost("aws:efs/fileSystem:FileSystem"),
    ),
    Guard(
        "the GPU node group",
        "allow-prod-gpu-node-group",
        "its replicas stop, and its GPUs may not be had again",
        _gpu_group_lost,
    ),
    Guard(
        "the trust policy of",
        "allow-prod-trust-policy",
        "it says who may act as a role",
        _trust_lost,
    ),
)
