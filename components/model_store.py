"""The store that the models' files are kept in, and what fills it.

Registers:
- PersistentVolume and PersistentVolumeClaim; a StorageClass for one on EFS
- ConfigMap of the program that fills the store
- per model: ConfigMap of its files, Job that copies them into the store
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pulumi
from pulumi_kubernetes.batch.v1 import Job
from pulumi_kubernetes.core.v1 import ConfigMap, PersistentVolume, PersistentVolumeClaim
from pulumi_kubernetes.storage.v1 import StorageClass

from components.registration import MESSAGE_MARGIN_S, REPLACE_UNREADY, identity, register, seconds
from fleet import store, workload

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pulumi_kubernetes as kubernetes

    from fleet.model_repository import ModelFolder
    from fleet.pods import Manifest
    from fleet.settings import Settings


@dataclass(frozen=True, slots=True)
class ModelStoreArgs:
    """What is kept, and for whom."""

    settings: Settings
    folders: Mapping[str, ModelFolder]
    """By model."""
    program: str
    """Text of the program that fills the store."""
    provider: kubernetes.Provider
    namespace: pulumi.Resource
    handle: pulumi.Input[str] | None = None
    """Of the file system, where the store is on one."""
    mountable: Sequence[pulumi.Resource] = ()
    """What a mount of the file system needs; it goes after the last pod that mounts it."""


class ModelStore(pulumi.ComponentResource):
    """The model store, filled."""

    filled: dict[str, Job]
    """By model; Triton starts when its model is there."""
    identities: list[pulumi.Output[str]]

    def __init__(self, name: str, args: ModelStoreArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("triton-fleet:store:ModelStore", name, None, opts)
        self._args = args
        self.identities = []
        claim = self._claim_volume()
        program = self._ship_program()
        self.filled = {model: self._fill(folder, program, claim) for model, folder in args.folders.items()}
        self.register_outputs({})

    def _child(self, *depends_on: pulumi.Resource) -> pulumi.ResourceOptions:
        return pulumi.ResourceOptions(parent=self, provider=self._args.provider, depends_on=list(depends_on))

    def _claim_volume(self) -> PersistentVolumeClaim:
        settings, namespace = self._args.settings, self._args.namespace
        volume_manifest, claim_manifest = store.volume(settings, self._args.handle), store.claim(settings)
        drained = workload.longest_grace_s(settings) + MESSAGE_MARGIN_S
        volume = register(
            PersistentVolume,
            volume_manifest,
            pulumi.ResourceOptions.merge(
                self._child(namespace, *self._args.mountable, *self._storage_class()), _keeps_its_size(volume_manifest)
            ),
        )
        claim = register(
            PersistentVolumeClaim,
            claim_manifest,
            pulumi.ResourceOptions.merge(
                pulumi.ResourceOptions.merge(self._child(namespace, volume), _keeps_its_size(claim_manifest)),
                # Kubernetes keeps the claim until the last pod that uses it has drained.
                pulumi.ResourceOptions(custom_timeouts=pulumi.CustomTimeouts(delete=seconds(drained))),
            ),
        )
        self.identities += [identity(volume, volume_manifest), identity(claim, claim_manifest)]
        return claim

    def _storage_class(self) -> list[pulumi.Resource]:
        if self._args.handle is None:
            return []
        return [register(StorageClass, store.storage_class(self._args.settings), self._child(self._args.namespace))]

    def _ship_program(self) -> ConfigMap:
        manifest = store.program(self._args.settings, self._args.program)
        return register(ConfigMap, manifest, self._child(self._args.namespace), name="model-store-program")

    def _fill(self, folder: ModelFolder, program: ConfigMap, claim: PersistentVolumeClaim) -> Job:
        settings, namespace = self._args.settings, self._args.namespace
        program_name = store.program(settings, self._args.program)["metadata"]["name"]
        source = register(
            ConfigMap, store.source(settings, folder), self._child(namespace), name=f"model-store-{folder.name}"
        )
        deadline = seconds(store.FILL_DEADLINE_S + MESSAGE_MARGIN_S)
        return register(
            Job,
            store.fill_job(settings, folder, program_name),
            pulumi.ResourceOptions.merge(
                self._child(namespace, claim, program, source),
                pulumi.ResourceOptions(custom_timeouts=pulumi.CustomTimeouts(create=deadline, update=deadline)),
            ),
            name=f"fill-{folder.name}",
            annotations=REPLACE_UNREADY,
        )


def _keeps_its_size(manifest: Manifest) -> pulumi.ResourceOptions:
    return pulumi.ResourceOptions(ignore_changes=[store.NOMINAL[manifest["kind"]]])
