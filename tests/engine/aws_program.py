"""A small program on the stand-ins: a network, a cluster with node groups, a file system. Run by the engine alone.

What differs between the runs of a test comes by PLAN, as JSON; its defaults stand in `Plan`.
"""

from __future__ import annotations

import json
import os
from typing import Any

import pulumi
import pulumi_aws as aws
import pulumi_eks as eks

PLAN: dict[str, Any] = {
    "region": "eu-central-1",
    "groups": {"system": {}, "a100": {"taint": "present"}},
    "max": 3,
    "zones": 2,
    "protect": False,
    **json.loads(os.environ.get("PLAN", "{}")),
}


def trust(service: str, *actions: str) -> str:
    statement = {"Effect": "Allow", "Principal": {"Service": service}, "Action": ["sts:AssumeRole", *actions]}
    return json.dumps({"Version": "2012-10-17", "Statement": [statement]})


def role(name: str, service: str, *policies: str, session: bool = False) -> tuple[aws.iam.Role, list[pulumi.Resource]]:
    made = aws.iam.Role(name, assume_role_policy=trust(service, *(["sts:TagSession"] if session else [])), opts=where)
    attached = [
        aws.iam.RolePolicyAttachment(
            f"{name}-{policy}", role=made.name, policy_arn=f"arn:aws:iam::aws:policy/{policy}", opts=where
        )
        for policy in policies
    ]
    return made, [*attached]


provider = aws.Provider("aws", region=PLAN["region"], default_tags={"tags": {"environment": "test"}})
where = pulumi.ResourceOptions(provider=provider)
zones = aws.get_availability_zones(state="available", opts=pulumi.InvokeOptions(provider=provider)).names

vpc = aws.ec2.Vpc("vpc", cidr_block="10.0.0.0/16", tags={"Name": "fleet"}, opts=where)
gateway = aws.ec2.InternetGateway("gateway", vpc_id=vpc.id, opts=where)
subnets = [
    aws.ec2.Subnet(
        f"private-{zone}", vpc_id=vpc.id, cidr_block=f"10.0.{number}.0/24", availability_zone=zone, opts=where
    )
    for number, zone in enumerate(zones[: PLAN["zones"]])
]
public = aws.ec2.Subnet("public", vpc_id=vpc.id, cidr_block="10.0.99.0/24", availability_zone=zones[0], opts=where)
after_gateway = pulumi.ResourceOptions(provider=provider, depends_on=[gateway])
address = aws.ec2.Eip("nat", domain="vpc", opts=after_gateway)
nat = aws.ec2.NatGateway("nat", allocation_id=address.id, subnet_id=public.id, opts=after_gateway)
table = aws.ec2.RouteTable("private", vpc_id=vpc.id, opts=where)
aws.ec2.Route("private", route_table_id=table.id, destination_cidr_block="0.0.0.0/0", nat_gateway_id=nat.id, opts=where)
for subnet, zone in zip(subnets, zones, strict=False):
    aws.ec2.RouteTableAssociation(f"private-{zone}", subnet_id=subnet.id, route_table_id=table.id, opts=where)

control, control_ready = role("control", "eks.amazonaws.com", "AmazonEKSClusterPolicy")
nodes, nodes_ready = role(
    "nodes",
    "ec2.amazonaws.com",
    "AmazonEKSWorkerNodePolicy",
    "AmazonEKS_CNI_Policy",
    "AmazonEC2ContainerRegistryReadOnly",
)
cluster = eks.Cluster(
    "cluster",
    name="fleet",
    version="1.34",
    vpc_id=vpc.id,
    private_subnet_ids=[subnet.id for subnet in subnets],
    service_role=control,
    endpoint_private_access=True,
    endpoint_public_access=False,
    authentication_mode=eks.AuthenticationMode.API,
    create_oidc_provider=False,
    skip_default_node_group=True,
    skip_default_security_groups=True,
    use_default_vpc_cni=True,
    coredns_addon_options={"enabled": False},
    kube_proxy_addon_options={"enabled": False},
    opts=pulumi.ResourceOptions(providers={"aws": provider}, depends_on=control_ready, protect=PLAN["protect"]),
)
template = aws.ec2.LaunchTemplate(
    "nodes",
    metadata_options={"http_tokens": "required"},
    block_device_mappings=[
        {"device_name": "/dev/xvda", "ebs": {"volume_size": 200, "volume_type": "gp3", "encrypted": "true"}}
    ],
    opts=where,
)
groups = []
for name, group in PLAN["groups"].items():
    made = aws.eks.NodeGroup(
        name,
        cluster_name="fleet",
        node_group_name=name,
        node_role_arn=nodes.arn,
        subnet_ids=[subnet.id for subnet in subnets],
        instance_types=["m7i.large"],
        scaling_config={"min_size": 1, "desired_size": 1, "max_size": PLAN["max"]},
        taints=[{"key": "nvidia.com/gpu", "value": group["taint"], "effect": "NO_SCHEDULE"}] if group else None,
        launch_template={"id": template.id, "version": template.latest_version.apply(str)},
        opts=pulumi.ResourceOptions(provider=provider, depends_on=[cluster, *nodes_ready]),
    )
    groups.append(made)
    aws.autoscaling.Tag(
        name,
        autoscaling_group_name=made.resources[0].autoscaling_groups[0].name,
        tag={"key": "k8s.io/cluster-autoscaler/node-template/label/sku", "value": name, "propagate_at_launch": False},
        opts=where,
    )
aws.eks.Addon(
    "coredns",
    cluster_name="fleet",
    addon_name="coredns",
    addon_version="v1.12.1-eksbuild.2",
    opts=pulumi.ResourceOptions(provider=provider, depends_on=groups),
)
files = aws.efs.FileSystem("files", encrypted=True, throughput_mode="elastic", opts=where)
door = aws.ec2.SecurityGroup("files", vpc_id=vpc.id, description="NFS from nodes", opts=where)
aws.vpc.SecurityGroupIngressRule(
    "files",
    security_group_id=door.id,
    referenced_security_group_id=cluster.cluster_security_group_id,
    ip_protocol="tcp",
    from_port=2049,
    to_port=2049,
    opts=where,
)
for subnet, zone in zip(subnets, zones, strict=False):
    aws.efs.MountTarget(
        f"files-{zone}", file_system_id=files.id, subnet_id=subnet.id, security_groups=[door.id], opts=where
    )
pulumi.export("vpc", vpc.id)
pulumi.export("kubeconfig", cluster.kubeconfig_json)
pulumi.export("file_system", files.arn)
