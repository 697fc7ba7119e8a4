"""What every pod of this program has in common: the restricted security context, and the volumes it writes to.

Manifests are Kubernetes' own: plain mappings with its field names, so that what a test reads is what the API server
gets.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from fleet import names

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fleet.schema import Images, Serving
    from fleet.schema_base import Taint

Manifest: TypeAlias = dict[str, Any]

DIGEST_CHARS: Final = 12
"""Hexadecimal digits of a digest in a name: 48 bits, so that two of a fleet's few hundred contents never share one."""

TMP_MOUNT: Final = "/tmp"  # noqa: S108 - a volume of the pod's own
SHM_MOUNT: Final = "/dev/shm"  # noqa: S108 - a volume of the pod's own


def canonical(value: object) -> str:
    """A value as JSON, the same text for equal values whatever the order of their keys."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def digest(value: object) -> str:
    """The digest of a value that JSON can say."""
    return hashlib.sha256(canonical(value).encode()).hexdigest()[:DIGEST_CHARS]


def metadata(name: str, namespace: str | None, labels: Mapping[str, str], **more: Mapping[str, str]) -> Manifest:
    """An object's metadata; `namespace` is None for an object of the cluster."""
    scope = {} if namespace is None else {"namespace": namespace}
    return {"name": name, **scope, "labels": dict(labels), **{key: dict(value) for key, value in more.items() if value}}


def labels(part: str, name: str) -> dict[str, str]:
    """Labels of an object that is no pod; `part` is what it is for. `triton` stands on Triton's pods alone."""
    return {**names.common_labels(names.Component.TRITON, name, name), names.LABEL_COMPONENT: part}


def toleration(taint: Taint) -> Manifest:
    """Tolerates that taint and no other."""
    return {"key": taint.key, "operator": "Equal", "value": taint.value, "effect": taint.effect}


def pod_security(serving: Serving) -> Manifest:
    """The pod's part of the restricted profile: https://kubernetes.io/docs/concepts/security/pod-security-standards/."""
    return {
        "runAsNonRoot": True,
        "runAsUser": serving.run_as_user,
        "runAsGroup": serving.run_as_group,
        "fsGroup": serving.run_as_group,
        "fsGroupChangePolicy": "OnRootMismatch",
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def container_security() -> Manifest:
    """The container's part of the restricted profile, and a root file system that nobody writes to."""
    return {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def pod_defaults(serving: Serving, images: Images) -> Manifest:
    """What all pods share: no token, no environment made of Services, the restricted profile."""
    return {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": pod_security(serving),
        **({"imagePullSecrets": [{"name": name} for name in images.pull_secrets]} if images.pull_secrets else {}),
    }


def scratch(size_mib: int) -> tuple[Manifest, Manifest]:
    """A volume and its mount: `/tmp`, the only folder of a container's root that it may write to."""
    return (
        {"name": "tmp", "emptyDir": {"sizeLimit": f"{size_mib}Mi"}},
        {"name": "tmp", "mountPath": TMP_MOUNT},
    )


def shared_memory(size_mib: int) -> tuple[Manifest, Manifest]:
    """A volume and its mount: `/dev/shm` of the size asked for; the container runtime's own has 64 MiB."""
    return (
        {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": f"{size_mib}Mi"}},
        {"name": "shm", "mountPath": SHM_MOUNT},
    )


def store_volume(claim: str, *, writable: bool) -> tuple[Manifest, Manifest]:
    """A volume and its mount: the model store, through this claim of the serving namespace."""
    return (
        {"name": "store", "persistentVolumeClaim": {"claimName": claim, "readOnly": not writable}},
        {"name": "store", "mountPath": names.STORE_MOUNT, "readOnly": not writable},
    )


def config_volume(
    name: str, config_map: str, mount: str, items: Mapping[str, str] | None = None
) -> tuple[Manifest, Manifest]:
    """A volume and its mount: a ConfigMap as files; `items` maps its keys to paths, for files in folders."""
    chosen = {} if items is None else {"items": [{"key": key, "path": path} for key, path in sorted(items.items())]}
    return (
        {"name": name, "configMap": {"name": config_map, "defaultMode": 0o444, **chosen}},
        {"name": name, "mountPath": mount, "readOnly": True},
    )
