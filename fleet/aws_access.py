"""Who may enter the cluster: access entries, and the kubeconfig of a cluster that exists."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

POLICIES: Final[Mapping[str, str]] = {
    "cluster_admin": "AmazonEKSClusterAdminPolicy",
    "admin": "AmazonEKSAdminPolicy",
    "edit": "AmazonEKSEditPolicy",
    "view": "AmazonEKSViewPolicy",
}
"""https://docs.aws.amazon.com/eks/latest/userguide/access-policy-permissions.html"""


def label(principal_arn: str) -> str:
    """A principal's name in the stack: `arn:aws:iam::123456789012:role/ops` is `123456789012-role/ops`."""
    parts = principal_arn.split(":", maxsplit=5)
    return f"{parts[4]}-{parts[5]}"


def scope(namespaces: Sequence[str]) -> dict[str, Any]:
    """Where a policy holds: in these namespaces, or everywhere."""
    return {"type": "namespace", "namespaces": list(namespaces)} if namespaces else {"type": "cluster"}


def kubeconfig(name: str, region: str, endpoint: str, certificate_authority: str) -> str:
    """The kubeconfig of a cluster of EKS, as JSON. It holds no secret: the AWS CLI is asked for a token each time."""
    arguments = ["--region", region, "eks", "get-token", "--cluster-name", name, "--output", "json"]
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": name,
            "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
            "clusters": [
                {
                    "name": name,
                    "cluster": {"server": endpoint, "certificate-authority-data": certificate_authority},
                }
            ],
            "users": [
                {
                    "name": name,
                    "user": {
                        "exec": {
                            "apiVersion": "client.authentication.k8s.io/v1beta1",
                            "command": "aws",
                            "args": arguments,
                            "interactiveMode": "Never",
                        }
                    },
                }
            ],
        },
        sort_keys=True,
    )
