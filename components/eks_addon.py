"""An add-on of EKS, in a version and a configuration of ours."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pulumi_aws as aws

from fleet import aws_addons

if TYPE_CHECKING:
    import pulumi

    from fleet.schema_base import AddonName


def register_addon(
    addon: AddonName, cluster: pulumi.Input[str], version: str, opts: pulumi.ResourceOptions
) -> aws.eks.Addon:
    """What the cluster has already of it, by hand or from EKS, is taken over."""
    return aws.eks.Addon(
        addon,
        cluster_name=cluster,
        addon_name=addon,
        addon_version=version,
        configuration_values=aws_addons.configuration(addon),
        resolve_conflicts_on_create="OVERWRITE",
        resolve_conflicts_on_update="OVERWRITE",
        opts=opts,
    )
