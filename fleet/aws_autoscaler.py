"""The node autoscaler: which chart, and with which values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from fleet import aws_names

if TYPE_CHECKING:
    from collections.abc import Mapping

CHART: Final = "cluster-autoscaler"
RELEASE: Final = "cluster-autoscaler"
SERVICE_ACCOUNT: Final = "cluster-autoscaler"

IMAGE_TAGS: Final[Mapping[str, str]] = {"1.34": "v1.34.3"}
"""By the cluster's Kubernetes version, whose minor the autoscaler's must be: it decides as that scheduler would.
https://github.com/kubernetes/autoscaler/blob/master/cluster-autoscaler/README.md#releases"""
UNNEEDED_MINUTES: Final = 10
"""A node that has been empty this long goes. Long enough that the next rise of load finds the model still loaded."""
DRAIN_LEAST_S: Final = 600
"""How long the autoscaler waits for pods of a node that goes, if nothing is said: what else runs there is used to it.
https://github.com/kubernetes/autoscaler/blob/master/cluster-autoscaler/FAQ.md"""


def values(cluster: str, region: str, kubernetes_version: str, drain_s: int) -> dict[str, Any]:
    """Values of the chart: every group of the cluster, found by the tags that EKS puts on managed groups.

    `drain_s` is the longest that a pod may take to stop: a node that goes sooner ends the requests on it.
    """
    return {
        "cloudProvider": "aws",
        "awsRegion": region,
        "autoDiscovery": {"clusterName": cluster},
        "fullnameOverride": RELEASE,
        "image": {"tag": IMAGE_TAGS[kubernetes_version]},
        "rbac": {"serviceAccount": {"create": True, "name": SERVICE_ACCOUNT}},
        "nodeSelector": {aws_names.NODE_ROLE_LABEL: aws_names.NODE_ROLE_SYSTEM},
        "priorityClassName": "system-cluster-critical",
        "resources": {"requests": {"cpu": "100m", "memory": "300Mi"}, "limits": {"memory": "600Mi"}},
        "extraArgs": {
            "balance-similar-node-groups": True,
            "emit-per-nodegroup-metrics": True,
            "expander": "least-waste",
            "max-graceful-termination-sec": max(drain_s, DRAIN_LEAST_S),
            "scale-down-unneeded-time": f"{UNNEEDED_MINUTES}m",
            "skip-nodes-with-system-pods": False,
        },
    }
