"""The stand-in `eks` provider: the component eks.Cluster, as far as the program asks for it.

It registers what pulumi-eks 4 registers for a control plane alone (nodejs/eks/cluster/cluster.ts): one
aws:eks/cluster:Cluster, named `<name>-eksCluster`, in the `aws` provider that the program hands on. It refuses every
option that would make it register more. The cluster answers with the kubeconfig that lies in the file that
TRITON_FLEET_REHEARSAL_KUBECONFIG names, read when the cluster is there: unknown at preview, as against AWS.
"""

from __future__ import annotations

import json
import os
import sys
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pulumi
import pulumi_aws as aws
import yaml
from pulumi.provider import ConstructResult, server
from pulumi.provider import Provider as SdkProvider

from rehearsal import process, shapes

if TYPE_CHECKING:
    from collections.abc import Mapping

KUBECONFIG_VARIABLE = "TRITON_FLEET_REHEARSAL_KUBECONFIG"
CLUSTER = "eks:index:Cluster"

DECIDED: Mapping[str, object] = {
    "skipDefaultNodeGroup": True,
    "skipDefaultSecurityGroups": True,
    "useDefaultVpcCni": True,
    "createOidcProvider": False,
    "authenticationMode": "API",
    "corednsAddonOptions": {"enabled": False},
    "kubeProxyAddonOptions": {"enabled": False},
}
"""Options with one value that the stand-in holds: with any other, pulumi-eks registers resources of its own."""
HELD = frozenset(
    {
        "name",
        "version",
        "vpcId",
        "subnetIds",
        "privateSubnetIds",
        "publicSubnetIds",
        "serviceRole",
        "endpointPrivateAccess",
        "endpointPublicAccess",
        "publicAccessCidrs",
        "encryptionConfigKeyArn",
        "enabledClusterLogTypes",
        "deletionProtection",
        "bootstrapSelfManagedAddons",
        "nodeAssociatePublicIpAddress",
        "upgradePolicy",
        "tags",
        "clusterTags",
    }
)


def faults(inputs: Mapping[str, Any]) -> list[str]:
    """Why the stand-in does not take these options. Values that are outputs are judged when AWS gets them."""
    known = {name: value for name, value in inputs.items() if not isinstance(value, pulumi.Output | pulumi.Resource)}
    shape = shapes.read(CLUSTER).inputs
    found = [f"{path}: {reason}" for path, reason in shapes.faults(shape, known) if not path.startswith("serviceRole")]
    found += [
        f"{name}: the stand-in eks holds {json.dumps(value)} only, got {json.dumps(inputs.get(name))}"
        for name, value in DECIDED.items()
        if inputs.get(name) != value
    ]
    found += [
        f"{name}: an option that the stand-in eks does not hold; add it to rehearsal/eks_plugin.py"
        for name in sorted(set(inputs) - HELD - set(DECIDED))
        if inputs[name] is not None
    ]
    if inputs.get("subnetIds") and (inputs.get("privateSubnetIds") or inputs.get("publicSubnetIds")):
        found.append("subnetIds: mutually exclusive with privateSubnetIds and publicSubnetIds")
    if not inputs.get("serviceRole"):
        found.append("serviceRole: the stand-in eks makes no role of its own")
    return found


def kubeconfig() -> dict[str, Any]:
    """What the cluster answers with. Raises RunError when the file is not there."""
    path = os.environ.get(KUBECONFIG_VARIABLE, "")
    if not path or not Path(path).exists():
        raise pulumi.RunError(
            f"the cluster's kubeconfig is the file that {KUBECONFIG_VARIABLE} names: {path!r} is not there"
        )
    document: dict[str, Any] = yaml.safe_load(Path(path).read_text())
    return document


class Cluster(pulumi.ComponentResource):
    """The control plane."""

    def __init__(self, name: str, inputs: Mapping[str, Any], opts: pulumi.ResourceOptions) -> None:
        super().__init__(CLUSTER, name, {}, opts)
        self.control_plane = self._control_plane(name, inputs)
        # Not known before the cluster is there, whatever lies in the file.
        document = pulumi.Output.secret(self.control_plane.endpoint).apply(lambda _: kubeconfig())
        group = self.control_plane.vpc_config.cluster_security_group_id
        self.state = {
            "awsProvider": None,
            "eksCluster": self.control_plane,
            "core": {
                "cluster": self.control_plane,
                "endpoint": self.control_plane.endpoint,
                "vpcId": self.control_plane.vpc_config.vpc_id,
                "subnetIds": self.control_plane.vpc_config.subnet_ids,
            },
            "clusterSecurityGroupId": group,
            "nodeSecurityGroupId": group,
            "instanceRoles": [],
            "kubeconfig": document,
            "kubeconfigJson": document.apply(json.dumps),
            "oidcIssuer": self.control_plane.identities.apply(
                lambda known: known[0].oidcs[0].issuer.removeprefix("https://")
            ),
        }
        self.register_outputs(self.state)

    def _control_plane(self, name: str, inputs: Mapping[str, Any]) -> aws.eks.Cluster:
        subnets = inputs.get("subnetIds") or pulumi.Output.all(
            inputs.get("publicSubnetIds") or [], inputs.get("privateSubnetIds") or []
        ).apply(lambda kinds: [*kinds[0], *kinds[1]])
        key = inputs.get("encryptionConfigKeyArn")
        tags = pulumi.Output.all(inputs.get("clusterTags"), inputs.get("tags")).apply(
            lambda kinds: {"Name": f"{name}-eksCluster", **(kinds[0] or {}), **(kinds[1] or {})}
        )
        return aws.eks.Cluster(
            f"{name}-eksCluster",
            name=inputs.get("name"),
            role_arn=pulumi.Output.from_input(inputs["serviceRole"]).arn,
            version=inputs.get("version"),
            bootstrap_self_managed_addons=inputs.get("bootstrapSelfManagedAddons", True),
            vpc_config={
                "subnet_ids": subnets,
                "endpoint_private_access": inputs.get("endpointPrivateAccess"),
                "endpoint_public_access": inputs.get("endpointPublicAccess"),
                "public_access_cidrs": inputs.get("publicAccessCidrs"),
            },
            enabled_cluster_log_types=inputs.get("enabledClusterLogTypes"),
            encryption_config={"provider": {"key_arn": key}, "resources": ["secrets"]} if key else None,
            access_config={
                "authentication_mode": inputs["authenticationMode"],
                "bootstrap_cluster_creator_admin_permissions": True,
            },
            upgrade_policy=inputs.get("upgradePolicy"),
            deletion_protection=inputs.get("deletionProtection"),
            tags=tags,
            opts=pulumi.ResourceOptions(
                parent=self,
                ignore_changes=["accessConfig.bootstrapClusterCreatorAdminPermissions", "bootstrapSelfManagedAddons"],
            ),
        )


class Eks(SdkProvider):
    """The provider's one component."""

    def __init__(self) -> None:
        super().__init__(metadata.version("pulumi_eks"))

    def construct(
        self, name: str, resource_type: str, inputs: pulumi.Inputs, options: pulumi.ResourceOptions | None = None
    ) -> ConstructResult:
        if resource_type != CLUSTER:
            raise pulumi.RunError(f"the stand-in eks has no {resource_type}; it holds {CLUSTER} alone")
        found = faults(inputs)
        if found:
            raise pulumi.RunError(f"{CLUSTER} {name}: {'; '.join(found)}")
        made = Cluster(name, inputs, options or pulumi.ResourceOptions())
        return ConstructResult(made.urn, made.state)


def main() -> None:
    process.die_with_the_engine()
    server.main(Eks(), sys.argv[1:])
