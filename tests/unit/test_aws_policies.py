"""IAM documents, whole: who may do what on which resource."""

from __future__ import annotations

import json

import pytest

from fleet import aws_access, aws_names, aws_policies

FILES = "arn:aws:elasticfilesystem:eu-west-1:123456789012:file-system/fs-1"
POINT = "arn:aws:elasticfilesystem:eu-west-1:123456789012:access-point/fsap-1"
ROLE = "arn:aws:iam::123456789012:role/driver"


def test_the_autoscaler_resizes_the_groups_of_its_cluster_and_no_others() -> None:
    document = json.loads(aws_policies.autoscaler("eu-west-1", "123456789012", "fleet", ["eks-b", "eks-a"]))
    assert document == {
        "Version": "2012-10-17",
        "Statement": [
            {
                "Sid": "Read",
                "Effect": "Allow",
                "Action": [
                    "autoscaling:DescribeAutoScalingGroups",
                    "autoscaling:DescribeAutoScalingInstances",
                    "autoscaling:DescribeLaunchConfigurations",
                    "autoscaling:DescribeScalingActivities",
                    "autoscaling:DescribeTags",
                    "ec2:DescribeImages",
                    "ec2:DescribeInstanceTypes",
                    "ec2:DescribeLaunchTemplateVersions",
                    "ec2:GetInstanceTypesFromInstanceRequirements",
                ],
                "Resource": "*",
            },
            {
                "Sid": "ReadNodeGroups",
                "Effect": "Allow",
                "Action": ["eks:DescribeNodegroup"],
                "Resource": "arn:aws:eks:eu-west-1:123456789012:nodegroup/fleet/*/*",
            },
            {
                "Sid": "Resize",
                "Effect": "Allow",
                "Action": ["autoscaling:SetDesiredCapacity", "autoscaling:TerminateInstanceInAutoScalingGroup"],
                "Resource": [
                    "arn:aws:autoscaling:eu-west-1:123456789012:autoScalingGroup:*:autoScalingGroupName/eks-a",
                    "arn:aws:autoscaling:eu-west-1:123456789012:autoScalingGroup:*:autoScalingGroupName/eks-b",
                ],
            },
        ],
    }


def test_a_mount_is_of_this_file_system_through_this_access_point_b32() -> None:
    mount = {
        "Sid": "Mount",
        "Effect": "Allow",
        "Action": ["elasticfilesystem:ClientMount", "elasticfilesystem:ClientWrite"],
        "Resource": FILES,
        "Condition": {"StringEquals": {"elasticfilesystem:AccessPointArn": POINT}},
    }
    assert json.loads(aws_policies.store_client(FILES, POINT))["Statement"] == [mount]
    assert json.loads(aws_policies.file_system(FILES, POINT, ROLE))["Statement"] == [
        {
            "Sid": "TlsOnly",
            "Effect": "Deny",
            "Principal": {"AWS": "*"},
            "Action": [
                "elasticfilesystem:ClientMount",
                "elasticfilesystem:ClientRootAccess",
                "elasticfilesystem:ClientWrite",
            ],
            "Resource": FILES,
            "Condition": {"Bool": {"aws:SecureTransport": "false"}},
        },
        {**mount, "Principal": {"AWS": ROLE}},
    ]


def test_the_drivers_controller_reads_and_makes_nothing() -> None:
    statements = json.loads(aws_policies.store_controller(FILES, POINT))["Statement"]
    assert [action for one in statements for action in one["Action"] if ":Describe" not in action] == []
    assert [one["Resource"] for one in statements] == ["*", [FILES, POINT]]


@pytest.mark.parametrize(
    ("document", "principal", "actions"),
    [
        (aws_policies.trust_service("eks"), "eks.amazonaws.com", "sts:AssumeRole"),
        (aws_policies.trust_service("ec2"), "ec2.amazonaws.com", "sts:AssumeRole"),
        (aws_policies.trust_pods(), "pods.eks.amazonaws.com", ["sts:AssumeRole", "sts:TagSession"]),
    ],
)
def test_a_role_is_taken_by_one_service(document: str, principal: str, actions: object) -> None:
    (statement,) = json.loads(document)["Statement"]
    assert (statement["Principal"], statement["Action"]) == ({"Service": principal}, actions)


@pytest.mark.parametrize(
    ("region", "arn"),
    [
        ("eu-central-1", "arn:aws:iam::aws:policy/P"),
        ("cn-north-1", "arn:aws-cn:iam::aws:policy/P"),
        ("us-gov-west-1", "arn:aws-us-gov:iam::aws:policy/P"),
    ],
)
def test_arns_are_of_the_regions_partition(region: str, arn: str) -> None:
    assert aws_names.managed_policy_arn(region, "P") == arn
    assert aws_names.access_policy_arn(region, "P").split(":")[1] == arn.split(":")[1]


def test_an_entry_is_named_after_its_principal_and_holds_where_it_is_told_to() -> None:
    assert aws_access.label("arn:aws:iam::123456789012:role/teams/ops") == "123456789012-role/teams/ops"
    assert aws_access.scope(()) == {"type": "cluster"}
    assert aws_access.scope(("triton-dev",)) == {"type": "namespace", "namespaces": ["triton-dev"]}


def test_the_kubeconfig_of_an_existing_cluster_asks_the_cli_for_a_token() -> None:
    config = json.loads(aws_access.kubeconfig("fleet", "eu-west-1", "https://example.invalid", "Y2E="))
    assert config["clusters"][0]["cluster"] == {
        "server": "https://example.invalid",
        "certificate-authority-data": "Y2E=",
    }
    assert config["users"][0]["user"]["exec"]["args"] == [
        *("--region", "eu-west-1", "eks", "get-token", "--cluster-name", "fleet", "--output", "json")
    ]
