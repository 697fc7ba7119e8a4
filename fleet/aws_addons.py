"""EKS add-ons: which ones, in which version, with which configuration."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fleet.schema_base import AddonName

VPC_CNI: Final[AddonName] = "vpc-cni"
COREDNS: Final[AddonName] = "coredns"
KUBE_PROXY: Final[AddonName] = "kube-proxy"
POD_IDENTITY: Final[AddonName] = "eks-pod-identity-agent"
EFS_DRIVER: Final[AddonName] = "aws-efs-csi-driver"
EBS_DRIVER: Final[AddonName] = "aws-ebs-csi-driver"

BEFORE_NODES: Final[tuple[AddonName, ...]] = (VPC_CNI, KUBE_PROXY, POD_IDENTITY)
"""DaemonSets without which a node does not become Ready, or its pods have no identity."""
AFTER_NODES: Final[tuple[AddonName, ...]] = (COREDNS,)
"""A Deployment, which is not ACTIVE before nodes run it."""

EFS_CONTROLLER_ACCOUNT: Final = "efs-csi-controller-sa"
EFS_NODE_ACCOUNT: Final = "efs-csi-node-sa"
EBS_CONTROLLER_ACCOUNT: Final = "ebs-csi-controller-sa"

VERSIONS: Final[Mapping[str, Mapping[AddonName, str]]] = {
    "1.34": {
        VPC_CNI: "v1.20.4-eksbuild.2",
        COREDNS: "v1.12.3-eksbuild.1",
        KUBE_PROXY: "v1.34.0-eksbuild.2",
        POD_IDENTITY: "v1.3.10-eksbuild.2",
        EFS_DRIVER: "v2.1.15-eksbuild.1",
        EBS_DRIVER: "v1.54.0-eksbuild.1",
    },
}
"""By the cluster's Kubernetes version. They stand together in published configurations of EKS 1.34 clusters (Terraform
variables in public repositories, found 2026); `aws eks describe-addon-versions --kubernetes-version 1.34` is the
authority, and `cluster.addons` replaces any of them."""


def version(kubernetes_version: str, addon: AddonName, overrides: Mapping[AddonName, str]) -> str:
    """The version to install. Raises KeyError for a cluster version without pins and an add-on without override."""
    return overrides.get(addon) or VERSIONS[kubernetes_version][addon]


def missing(kubernetes_version: str, overrides: Mapping[AddonName, str]) -> list[AddonName]:
    """Add-ons of every cluster that have no version for this Kubernetes."""
    known = {**VERSIONS.get(kubernetes_version, {}), **overrides}
    return [addon for addon in (*BEFORE_NODES, *AFTER_NODES, EFS_DRIVER) if addon not in known]


def configuration(addon: AddonName) -> str | None:
    """Configuration of an add-on, as JSON; none where its defaults do."""
    values: dict[AddonName, Any] = {
        # The serving namespace's network policies hold only where something enforces them.
        VPC_CNI: {"enableNetworkPolicy": "true"},
        # GPU nodes are tainted, and every one of them mounts the store.
        EFS_DRIVER: {"node": {"tolerations": [{"operator": "Exists"}]}},
    }
    return json.dumps(values[addon], sort_keys=True) if addon in values else None
