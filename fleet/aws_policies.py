"""IAM policies: who may do what on which resource, least first.

Each function returns a document as JSON. A wildcard resource stands only where AWS knows no narrower one for the
action: https://docs.aws.amazon.com/service-authorization/latest/reference/reference.html
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from fleet import aws_names

if TYPE_CHECKING:
    from collections.abc import Sequence

VERSION: Final = "2012-10-17"

CLUSTER_POLICIES: Final = ("AmazonEKSClusterPolicy",)
"""https://docs.aws.amazon.com/eks/latest/userguide/cluster-iam-role.html"""
NODE_POLICIES: Final = ("AmazonEKSWorkerNodePolicy", "AmazonEKS_CNI_Policy", "AmazonEC2ContainerRegistryPullOnly")
"""https://docs.aws.amazon.com/eks/latest/userguide/create-node-role.html. Field report B35: attached before the first
node of the role, or it never joins."""

DISK_POLICIES: Final = ("service-role/AmazonEBSCSIDriverPolicy",)
"""AWS' own for the EBS driver, which makes and deletes volumes that carry its tags, and no others:
https://docs.aws.amazon.com/aws-managed-policy/latest/reference/AmazonEBSCSIDriverPolicy.html"""

UNSCOPED_ACTIONS: Final = frozenset(
    {
        "autoscaling:DescribeAutoScalingGroups",
        "autoscaling:DescribeAutoScalingInstances",
        "autoscaling:DescribeLaunchConfigurations",
        "autoscaling:DescribeScalingActivities",
        "autoscaling:DescribeTags",
        "ec2:DescribeAvailabilityZones",
        "ec2:DescribeImages",
        "ec2:DescribeInstanceTypes",
        "ec2:DescribeLaunchTemplateVersions",
        "ec2:GetInstanceTypesFromInstanceRequirements",
    }
)
"""Actions that AWS knows no resource for; they read."""


def _document(*statements: dict[str, Any]) -> str:
    return json.dumps({"Version": VERSION, "Statement": list(statements)}, sort_keys=True)


def _allow(sid: str, actions: Sequence[str], resources: str | Sequence[str], **more: object) -> dict[str, Any]:
    return {
        "Sid": sid,
        "Effect": "Allow",
        "Action": sorted(actions),
        "Resource": resources if isinstance(resources, str) else list(resources),
        **more,
    }


def trust_service(service: str) -> str:
    """A role that a service of AWS takes: `eks` for the control plane, `ec2` for nodes."""
    return _document(
        {
            "Sid": "Service",
            "Effect": "Allow",
            "Principal": {"Service": f"{service}.amazonaws.com"},
            "Action": "sts:AssumeRole",
        }
    )


def trust_pods() -> str:
    """A role that pods take through an association: https://docs.aws.amazon.com/eks/latest/userguide/pod-id-role.html"""
    return _document(
        {
            "Sid": "PodIdentity",
            "Effect": "Allow",
            "Principal": {"Service": "pods.eks.amazonaws.com"},
            "Action": ["sts:AssumeRole", "sts:TagSession"],
        }
    )


def secrets_encryption(key_arn: str) -> str:
    """What the control plane does with the key that encrypts Secrets:
    https://docs.aws.amazon.com/eks/latest/userguide/enable-kms.html
    """
    return _document(
        _allow("Secrets", ["kms:DescribeKey", "kms:Decrypt", "kms:Encrypt", "kms:ListGrants"], key_arn),
    )


def autoscaler(region: str, account: str, cluster: str, groups: Sequence[str]) -> str:
    """What the node autoscaler does: it reads, and changes the size of these Auto Scaling groups and no others.

    https://github.com/kubernetes/autoscaler/blob/master/cluster-autoscaler/cloudprovider/aws/README.md
    """
    partition = aws_names.partition(region)
    arns = [
        f"arn:{partition}:autoscaling:{region}:{account}:autoScalingGroup:*:autoScalingGroupName/{group}"
        for group in sorted(groups)
    ]
    return _document(
        _allow("Read", [action for action in UNSCOPED_ACTIONS if action != "ec2:DescribeAvailabilityZones"], "*"),
        _allow(
            "ReadNodeGroups",
            ["eks:DescribeNodegroup"],
            f"arn:{partition}:eks:{region}:{account}:nodegroup/{cluster}/*/*",
        ),
        _allow("Resize", ["autoscaling:SetDesiredCapacity", "autoscaling:TerminateInstanceInAutoScalingGroup"], arns),
    )


def store_controller(file_system_arn: str, access_point_arn: str) -> str:
    """What the controller of the EFS driver does for a volume that exists: it reads, and makes no access points."""
    return _document(
        _allow("Zones", ["ec2:DescribeAvailabilityZones"], "*"),
        _allow(
            "Read",
            [
                "elasticfilesystem:DescribeAccessPoints",
                "elasticfilesystem:DescribeFileSystems",
                "elasticfilesystem:DescribeMountTargets",
            ],
            [file_system_arn, access_point_arn],
        ),
    )


_CLIENT: Final = ("elasticfilesystem:ClientMount", "elasticfilesystem:ClientWrite")


def _through(access_point_arn: str) -> dict[str, Any]:
    return {"StringEquals": {"elasticfilesystem:AccessPointArn": access_point_arn}}


def store_client(file_system_arn: str, access_point_arn: str) -> str:
    """What mounts may do: this file system, through this access point. The driver's pod on the node makes them."""
    return _document(_allow("Mount", _CLIENT, file_system_arn, Condition=_through(access_point_arn)))


def file_system(file_system_arn: str, access_point_arn: str, client_role_arn: str) -> str:
    """The file system's own policy: TLS only, and the driver's role only, through the access point.

    https://docs.aws.amazon.com/efs/latest/ug/iam-access-control-nfs-efs.html
    """
    return _document(
        {
            "Sid": "TlsOnly",
            "Effect": "Deny",
            "Principal": {"AWS": "*"},
            "Action": sorted([*_CLIENT, "elasticfilesystem:ClientRootAccess"]),
            "Resource": file_system_arn,
            "Condition": {"Bool": {"aws:SecureTransport": "false"}},
        },
        {
            **_allow("Mount", _CLIENT, file_system_arn, Condition=_through(access_point_arn)),
            "Principal": {"AWS": client_role_arn},
        },
    )
