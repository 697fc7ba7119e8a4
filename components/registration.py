"""How a manifest that fleet/ decided becomes a registered resource."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import pulumi
from pulumi_kubernetes.apiextensions import CustomResource

from fleet import pods

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fleet.pods import Manifest

ResourceT = TypeVar("ResourceT", bound=pulumi.CustomResource)

# https://www.pulumi.com/registry/packages/kubernetes/installation-configuration/ lists the provider's annotations.
SKIP_AWAIT = {"pulumi.com/skipAwait": "true"}
"""Keeps the provider from waiting for an object."""
REPLACE_UNREADY = {"pulumi.com/replaceUnready": "true"}
"""Makes a Job that failed anew in the next update; without it the provider would find it failed for ever."""
FORCE = {"pulumi.com/patchForce": "true"}
"""Takes fields from others who have set them."""
MESSAGE_MARGIN_S = 60
"""Pulumi waits this much longer than Kubernetes does, so that the reason that shows is Kubernetes'."""


def register(
    kind: type[ResourceT],
    manifest: Manifest,
    opts: pulumi.ResourceOptions,
    *,
    name: str | None = None,
    annotations: Mapping[str, str] | None = None,
) -> ResourceT:
    """Registers a manifest as a resource of its kind.

    `name` is the resource's name in the stack where the object's own changes with its content; such an object is made
    anew before the old one goes. `annotations` speak to the provider.
    """
    if manifest["kind"] != kind.__name__:
        raise TypeError(f"a {manifest['kind']} cannot be registered as {kind.__name__}")
    body: dict[str, Any] = {key: value for key, value in manifest.items() if key not in ("apiVersion", "kind")}
    if annotations:
        metadata = body["metadata"]
        body["metadata"] = {**metadata, "annotations": {**metadata.get("annotations", {}), **annotations}}
    # ConfigMaps, Services and the rest have their manifest's top-level keys in snake case as their arguments.
    arguments = {_snake(key): value for key, value in body.items()}
    return kind(name or manifest["metadata"]["name"], opts=opts, **arguments)


def register_custom(manifest: Manifest, opts: pulumi.ResourceOptions, *, name: str | None = None) -> CustomResource:
    """Registers an object of a kind that a CustomResourceDefinition brings; `opts` depend on what brings it (B08)."""
    return CustomResource(
        name or manifest["metadata"]["name"],
        api_version=manifest["apiVersion"],
        kind=manifest["kind"],
        metadata=manifest["metadata"],
        spec=manifest["spec"],
        opts=opts,
    )


def _snake(key: str) -> str:
    return "".join(f"_{char.lower()}" if char.isupper() else char for char in key)


def identity(resource: Any, manifest: Manifest) -> pulumi.Output[str]:  # noqa: ANN401 - any Kubernetes resource
    """What tells that an object changed: its manifest, and the cluster's own count of its changes.

    The count matters when an update failed half-way and is taken back: its manifest is the old one, the object not.
    """
    said = pulumi.Output.from_input(manifest).apply(
        # A manifest may hold what is known only later: the file system behind a volume.
        lambda known: f"{known['kind']}/{known['metadata']['name']}/{pods.digest(known)}"
    )
    count = resource.metadata.apply(lambda known: f"{known.get('uid')}/{known.get('generation')}")
    counted: pulumi.Output[str] = pulumi.Output.concat(said, "/", count)
    return counted


def all_identities(identities: Sequence[pulumi.Output[str]]) -> pulumi.Output[str]:
    """One digest of many objects."""
    together: pulumi.Output[str] = pulumi.Output.all(*identities).apply(lambda each: pods.digest(sorted(each)))
    return together


def seconds(count: int) -> str:
    """A time-out as Pulumi writes it."""
    return f"{count}s"
