"""The model store: where a model's files lie, and what brings them there.

Each content has a folder of its own, `repository/<model>/<digest>/<model>/…`: replicas of the version before keep
theirs through an update, and a second fill of the same content finds its work done.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Final

from fleet import aws_store, names, own_images, pods
from fleet.schema import HostPathStore

if TYPE_CHECKING:
    from fleet.model_repository import ModelFolder
    from fleet.pods import Manifest
    from fleet.schema import Settings

NOMINAL: Final = {"PersistentVolume": "spec.capacity", "PersistentVolumeClaim": "spec.resources"}
"""By kind, where the size stands. Kubernetes resizes no claim of a volume that was made by hand, and neither a folder
nor EFS is bounded by it: it stays what it was when the claim was made."""
REPOSITORY: Final = "repository"
PROGRAM: Final = "fill.py"
PROGRAM_MOUNT: Final = "/program"
SOURCE_MOUNT: Final = "/source"
SCRATCH_MIB: Final = 16
FILL_DEADLINE_S: Final = 300
FILL_RETRIES: Final = 2


def repository_path(model: str, digest: str) -> str:
    """Triton's model repository of one content, as its pods see it."""
    return f"{names.STORE_MOUNT}/{REPOSITORY}/{model}/{digest}"


def claim_name(settings: Settings) -> str:
    """The claim of the serving namespace. Another folder has another claim and volume, since neither can be changed:
    the new ones are there before the pods that use them, and the old ones go after the last pod of theirs, files kept.
    """
    folder = settings.store.path if settings.store.kind == "host_path" else None
    moved = folder is not None and folder != HostPathStore.model_fields["path"].default
    return f"{names.STORE_NAME}-{pods.digest(folder)}" if moved else names.STORE_NAME


def volume_name(settings: Settings) -> str:
    """The PersistentVolume is the cluster's, so its name carries the namespace that it belongs to."""
    return f"{settings.serving.namespace}-{claim_name(settings)}"


def class_name(settings: Settings) -> str:
    """The storage class; none for a folder, whose volume and claim find each other by name alone."""
    return volume_name(settings) if settings.store.kind == "efs" else ""


def storage_class(settings: Settings) -> Manifest:
    """The class of the one volume on EFS. Nothing is made by it: the stack makes the access point itself."""
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": pods.metadata(class_name(settings), None, pods.labels("model-store", names.STORE_NAME)),
        "provisioner": aws_store.DRIVER,
        "reclaimPolicy": "Retain",
        "volumeBindingMode": "Immediate",
    }


def volume(settings: Settings, handle: object = None) -> Manifest:
    """What all nodes share: retained, and for the one claim of the serving namespace.

    A folder on the machine, or a file system of EFS under its `handle`, which may be a value that is not known yet.
    """
    if settings.store.kind == "efs":
        source: dict[str, object] = {
            "mountOptions": list(aws_store.MOUNT_OPTIONS),
            "csi": {"driver": aws_store.DRIVER, "volumeHandle": handle},
        }
    else:
        source = {"hostPath": {"path": settings.store.path, "type": "Directory"}}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": pods.metadata(volume_name(settings), None, pods.labels("model-store", names.STORE_NAME)),
        "spec": {
            "capacity": {"storage": f"{settings.store.size_gib}Gi"},
            "accessModes": ["ReadWriteMany"],
            "persistentVolumeReclaimPolicy": "Retain",
            "storageClassName": class_name(settings),
            "volumeMode": "Filesystem",
            "claimRef": {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "namespace": settings.serving.namespace,
                "name": claim_name(settings),
            },
            **source,
        },
    }


def claim(settings: Settings) -> Manifest:
    """The one claim of the serving namespace, bound to its volume by name."""
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": pods.metadata(
            claim_name(settings), settings.serving.namespace, pods.labels("model-store", names.STORE_NAME)
        ),
        "spec": {
            "accessModes": ["ReadWriteMany"],
            "storageClassName": class_name(settings),
            "volumeMode": "Filesystem",
            "volumeName": volume_name(settings),
            "resources": {"requests": {"storage": f"{settings.store.size_gib}Gi"}},
        },
    }


def _config_map(settings: Settings, name: str, contents: Manifest) -> Manifest:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": pods.metadata(name, settings.serving.namespace, pods.labels("model-store", names.STORE_NAME)),
        "immutable": True,
        **contents,
    }


def program(settings: Settings, text: str) -> Manifest:
    """The program that fills the store, under a name that follows its text."""
    return _config_map(settings, f"{names.STORE_NAME}-program-{pods.digest(text)}", {"data": {PROGRAM: text}})


def _keys(folder: ModelFolder) -> dict[str, str]:
    """A ConfigMap's keys hold no slash: files are numbered, and the pod's volume gives them their paths again."""
    return {f"file-{number}": path for number, path in enumerate(sorted(folder.files))}


def source(settings: Settings, folder: ModelFolder) -> Manifest:
    """A model's files, under a name that follows their content."""
    encoded = {key: base64.b64encode(folder.files[path]).decode() for key, path in _keys(folder).items()}
    return _config_map(settings, f"{names.STORE_NAME}-{folder.name}-{folder.digest12}", {"binaryData": encoded})


def fill_job(settings: Settings, folder: ModelFolder, program_name: str) -> Manifest:
    """Copies one content of a model into the store. Its name follows all it does, since a Job cannot be changed."""
    labels = {
        **names.common_labels(names.Component.MODEL_STORE, "fill", f"fill-{folder.name}"),
        names.LABEL_MODEL: folder.name,
    }
    program_volume, program_mount = pods.config_volume("program", program_name, PROGRAM_MOUNT)
    source_name = source(settings, folder)["metadata"]["name"]
    source_volume, source_mount = pods.config_volume("source", source_name, SOURCE_MOUNT, _keys(folder))
    store_volume, store_mount = pods.store_volume(claim_name(settings), writable=True)
    tmp_volume, tmp_mount = pods.scratch(SCRATCH_MIB)
    container = {
        "name": "fill",
        "image": own_images.image(settings.images, own_images.MODEL_STORE),
        "imagePullPolicy": settings.images.pull_policy,
        "command": [
            "python3",
            f"{PROGRAM_MOUNT}/{PROGRAM}",
            f"--source={SOURCE_MOUNT}",
            f"--target={repository_path(folder.name, folder.digest12)}",
            f"--model={folder.name}",
            f"--digest={folder.digest}",
        ],
        "env": [{"name": "PYTHONDONTWRITEBYTECODE", "value": "1"}],
        "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}, "limits": {"memory": "256Mi"}},
        "securityContext": pods.container_security(),
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [program_mount, source_mount, store_mount, tmp_mount],
    }
    spec = {
        "backoffLimit": FILL_RETRIES,
        "activeDeadlineSeconds": FILL_DEADLINE_S,
        "template": {
            "metadata": {"labels": labels},
            "spec": {
                **pods.pod_defaults(settings.serving, settings.images),
                "restartPolicy": "Never",
                "containers": [container],
                "volumes": [program_volume, source_volume, store_volume, tmp_volume],
            },
        },
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": pods.metadata(f"fill-{folder.name}-{pods.digest(spec)}", settings.serving.namespace, labels),
        "spec": spec,
    }
