"""The model store's file system, as EFS is told of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from fleet.schema import EfsStore, Serving

NFS_PORT: Final = 2049
ROOT: Final = "/model-store"
"""The folder that the access point makes a root of, and that it makes if it is not there."""
ROOT_PERMISSIONS: Final = "0750"
MOUNT_OPTIONS: Final = ("tls", "iam")
"""Without `iam` the mount has no identity, and the file system's policy refuses it (field report B32)."""
DRIVER: Final = "efs.csi.aws.com"


def handle(file_system: str, access_point: str) -> str:
    """A file system with its access point, as the driver reads it."""
    return f"{file_system}::{access_point}"


def file_system(store: EfsStore) -> dict[str, Any]:
    """Arguments of the file system: encrypted with the key that AWS keeps for EFS, which outlives a destroyed stack."""
    throughput = store.throughput
    return {
        "encrypted": True,
        "performance_mode": "generalPurpose",
        "throughput_mode": throughput.mode,
        **({"provisioned_throughput_in_mibps": throughput.mibps} if throughput.mode == "provisioned" else {}),
    }


def access_point(serving: Serving) -> dict[str, Any]:
    """Arguments of the access point: whoever mounts through it is the pods' user, and owns what it makes (B33)."""
    return {
        "posix_user": {"uid": serving.run_as_user, "gid": serving.run_as_group},
        "root_directory": {
            "path": ROOT,
            "creation_info": {
                "owner_uid": serving.run_as_user,
                "owner_gid": serving.run_as_group,
                "permissions": ROOT_PERMISSIONS,
            },
        },
    }
