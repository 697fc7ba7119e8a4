"""What the AWS side is called: names, tags and ARNs. Each carries the environment or the cluster's name, so stacks
share nothing.
"""

from __future__ import annotations

from typing import Final

from fleet import names

NODE_GROUP_PREFIX_MAX_CHARS: Final = 37
"""Of a managed node group's name, which gets 26 more: names have at most 63 characters,
https://docs.aws.amazon.com/eks/latest/APIReference/API_CreateNodegroup.html"""

NODE_SKU_LABEL: Final = names.LABEL_SKU
NODE_ROLE_LABEL: Final = f"{names.DOMAIN}/node-role"
NODE_ROLE_SYSTEM: Final = "system"
NODE_ROLE_GPU: Final = "serving"


def tags(environment: str) -> dict[str, str]:
    """Tags of everything that the stack makes, set once at its provider."""
    return {
        f"{names.DOMAIN}:environment": environment,
        f"{names.DOMAIN}:part-of": names.PART_OF,
        f"{names.DOMAIN}:managed-by": names.MANAGED_BY,
    }


def named(name: str) -> dict[str, str]:
    """The tag that consoles show as a name."""
    return {"Name": name}


def partition(region: str) -> str:
    """The partition that a region is in, the second part of every ARN.

    https://docs.aws.amazon.com/IAM/latest/UserGuide/reference-arns.html
    """
    if region.startswith("cn-"):
        return "aws-cn"
    return "aws-us-gov" if region.startswith("us-gov-") else "aws"


def managed_policy_arn(region: str, name: str) -> str:
    """An IAM policy that AWS keeps."""
    return f"arn:{partition(region)}:iam::aws:policy/{name}"


def access_policy_arn(region: str, name: str) -> str:
    """A policy of EKS access entries: https://docs.aws.amazon.com/eks/latest/userguide/access-policy-permissions.html"""
    return f"arn:{partition(region)}:eks::aws:cluster-access-policy/{name}"


def account_of(arn: str) -> str:
    """The account in an ARN: `arn:aws:iam::123456789012:role/a` is of account 123456789012."""
    return arn.split(":")[4]


def log_group(cluster: str) -> str:
    """Where EKS logs: made beforehand, since EKS would make it to be kept for ever.

    https://docs.aws.amazon.com/eks/latest/userguide/control-plane-logs.html
    """
    return f"/aws/eks/{cluster}/cluster"


def node_group_prefix(environment: str, group: str) -> str:
    """EKS makes the name unique, so that a group is made anew before the one before it goes."""
    return f"{environment}-{group}"[: NODE_GROUP_PREFIX_MAX_CHARS - 1] + "-"
