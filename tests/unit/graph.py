"""Runs the program under Pulumi mocks and tells what it registered. What the engine does with it is tests/engine's."""

from __future__ import annotations

import json
import runpy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pulumi
import yaml
from pulumi.runtime import mocks, rpc
from pulumi.runtime.proto import engine_pb2

from fleet import settings

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

NAMESPACE = "kubernetes:core/v1:Namespace"
DEPLOYMENT = "kubernetes:apps/v1:Deployment"
AUTOSCALER = "kubernetes:autoscaling/v2:HorizontalPodAutoscaler"
SCALED_OBJECT = "kubernetes:keda.sh/v1alpha1:ScaledObject"
JOB = "kubernetes:batch/v1:Job"
SERVICE = "kubernetes:core/v1:Service"
VOLUME = "kubernetes:core/v1:PersistentVolume"
CLAIM = "kubernetes:core/v1:PersistentVolumeClaim"
CONFIG_MAP = "kubernetes:core/v1:ConfigMap"
POLICY = "kubernetes:networking.k8s.io/v1:NetworkPolicy"
BUDGET = "kubernetes:policy/v1:PodDisruptionBudget"
PROVIDER = "pulumi:providers:kubernetes"
ROLLOUT = "pulumi-python:dynamic/triton-fleet:Rollout"
HANDOVER = "pulumi-python:dynamic/triton-fleet:Handover"
VERIFICATION = "pulumi-python:dynamic/triton-fleet:Verification"
RELEASE = "kubernetes:helm.sh/v3:Release"
STORAGE_CLASS = "kubernetes:storage.k8s.io/v1:StorageClass"
CLUSTER_COMPONENT = "eks:index:Cluster"
AWS_PROVIDER = "pulumi:providers:aws"

SECRET = "4dabf18193072939515e22adb298388d"
"""The key that marks a secret on the wire."""


def stack_config(project: Path, stack: str) -> dict[str, Any]:
    """The settings of a stack, as its file has them, to be changed by a test."""
    config = yaml.safe_load((project / f"Pulumi.{stack}.yaml").read_text())["config"]
    prefix = "triton-fleet:"
    return {key.removeprefix(prefix): value for key, value in config.items() if key.startswith(prefix)}


def local_config(project: Path) -> dict[str, Any]:
    return stack_config(project, "local")


def local_settings(project: Path, **changes: object) -> settings.Settings:
    return settings.load({**local_config(project), **changes}, project)


@dataclass(frozen=True)
class Registered:
    """One registered resource."""

    type: str
    name: str
    urn: str
    parent: str
    provider: str
    depends_on: frozenset[str]
    timeouts: Mapping[str, str]
    protect: bool
    retained: bool
    ignored: frozenset[str]
    inputs: dict[str, Any]

    @property
    def is_kubernetes(self) -> bool:
        return self.type.startswith("kubernetes:")

    @property
    def is_aws(self) -> bool:
        return self.type.startswith("aws:")

    @property
    def is_custom(self) -> bool:
        """Whether something is made for it, and not for its children alone."""
        return not self.type.startswith("triton-fleet:")


@dataclass(frozen=True)
class Graph:
    """All that one run registered, and what it exported."""

    resources: tuple[Registered, ...]
    warnings: tuple[str, ...]

    def of(self, kind: str) -> list[Registered]:
        return sorted((one for one in self.resources if one.type == kind), key=lambda one: one.name)

    def one(self, kind: str, name: str) -> Registered:
        (found,) = [one for one in self.of(kind) if one.name == name]
        return found

    def behind(self, resource: Registered) -> set[str]:
        """The names, with types, of all that must be there before the resource is, and when it is deleted."""
        by_urn = {one.urn: one for one in self.resources}
        reached: set[str] = set()
        pending = [resource.urn]
        while pending:
            one = by_urn[pending.pop()]
            for urn in (one.depends_on | ({one.provider} & by_urn.keys())) - reached:
                reached.add(urn)
                pending.append(urn)
        return reached

    def pods(self) -> Iterator[tuple[Registered, dict[str, Any]]]:
        """Each workload with the template of its pods."""
        for kind in (DEPLOYMENT, JOB):
            for one in self.of(kind):
                yield one, one.inputs["spec"]["template"]


ACCOUNT = "123456789012"
NODE_SECURITY_GROUP = "sg-0123456789abcdef0"
KUBECONFIG = '{"kind": "Config", "users": [{"user": {"token": "canary-token"}}]}'
EXISTING_VPC = f"vpc-{1:017x}"
ZONES = ("eu-central-1a", "eu-central-1b", "eu-central-1c")


def _cloud(args: mocks.MockResourceArgs) -> tuple[str, dict[str, Any]]:
    """The id that AWS gives, and what else it adds to a resource."""
    kind = args.typ.rpartition(":")[2]
    prefix = {"LaunchTemplate": "lt-", "FileSystem": "fs-", "AccessPoint": "fsap-"}.get(kind)
    made = f"{args.name}-id" if prefix is None else prefix + args.name.encode().hex().ljust(17, "0")[:17]
    files = f"arn:aws:elasticfilesystem:eu-central-1:{ACCOUNT}"
    added = {
        "Cluster": lambda: {"kubeconfigJson": KUBECONFIG, "clusterSecurityGroupId": NODE_SECURITY_GROUP},
        "Role": lambda: {"arn": f"arn:aws:iam::{ACCOUNT}:role/{args.inputs['name']}"},
        "Key": lambda: {"arn": f"arn:aws:kms:eu-central-1:{ACCOUNT}:key/{args.name}"},
        "NodeGroup": lambda: {
            "resources": [{"autoscalingGroups": [{"name": f"eks-{args.inputs['nodeGroupNamePrefix']}0123"}]}]
        },
        "LaunchTemplate": lambda: {"latestVersion": 1},
        "FileSystem": lambda: {"arn": f"{files}:file-system/{made}"},
        "AccessPoint": lambda: {"arn": f"{files}:access-point/{made}"},
        "Repository": lambda: {"repositoryUrl": f"{ACCOUNT}.dkr.ecr.invalid/{args.inputs['name']}"},
    }.get(kind, dict)()
    return made, added


_EXISTING: dict[str, Any] = {
    "vpcConfig": {
        "clusterSecurityGroupId": NODE_SECURITY_GROUP,
        "endpointPrivateAccess": True,
        "endpointPublicAccess": False,
        "publicAccessCidrs": [],
        "securityGroupIds": [],
        "subnetIds": [f"subnet-{number}" for number in range(4)],
        "vpcId": "vpc-0123",
    },
    "endpoint": "https://example.invalid",
    "certificateAuthorities": [{"data": "Y2VydGlmaWNhdGU="}],
}


def _asked(args: mocks.MockCallArgs) -> dict[str, Any]:
    """What AWS answers."""
    if args.token == "aws:index/getAvailabilityZones:getAvailabilityZones":
        return {"names": list(reversed(ZONES))}
    if args.token == "aws:ec2/getSubnet:getSubnet":
        return {"availabilityZone": ZONES[int(args.args["id"][-1]) % len(ZONES)], "vpcId": EXISTING_VPC}
    if args.token == "aws:eks/getCluster:getCluster":
        return _EXISTING
    raise AssertionError(f"the program asks for {args.token}, which no preview could answer")


class _Mocks(pulumi.runtime.Mocks):
    """Gives each object what the API server adds to it, and each resource of AWS what AWS adds if it is `known`."""

    def __init__(self, generation: int, *, known: bool) -> None:
        self.generation = generation
        self.known = known

    def new_resource(self, args: mocks.MockResourceArgs) -> tuple[str, dict[str, Any]]:
        state = dict(args.inputs)
        if args.typ.startswith(("aws:", "eks:")):
            made, added = _cloud(args)
            if not self.known:
                made, added = "", dict.fromkeys(added, rpc.UNKNOWN)
            return made, {**state, **added}
        if "metadata" in state:
            state["metadata"] = {**state["metadata"], "uid": f"uid-of-{args.name}", "generation": self.generation}
        if args.typ == SERVICE:
            state["spec"] = {"clusterIP": "198.19.0.7", **state["spec"]}
        return f"{args.name}-id", state

    def call(self, args: mocks.MockCallArgs) -> dict[str, Any]:
        return _asked(args)


class _Monitor(mocks.MockMonitor):
    """Keeps the requests, which hold what the mocks are not told."""

    def __init__(self, given: _Mocks) -> None:
        super().__init__(given)
        self.registered: list[Registered] = []

    def RegisterResource(self, request: Any) -> Any:  # noqa: N802, ANN401 - as in the base
        if request.type != "pulumi:pulumi:Stack":
            self.registered.append(
                Registered(
                    type=request.type,
                    name=request.name,
                    urn=self.make_urn(request.parent, request.type, request.name),
                    parent=request.parent,
                    provider=request.provider.rpartition("::")[0],
                    depends_on=frozenset(request.dependencies),
                    timeouts={
                        key: getattr(request.customTimeouts, key)
                        for key in ("create", "update", "delete")
                        if getattr(request.customTimeouts, key)
                    },
                    protect=request.protect,
                    retained=request.retainOnDelete,
                    ignored=frozenset(request.ignoreChanges),
                    inputs=rpc.deserialize_properties(request.object, keep_unknowns=True),
                )
            )
        return super().RegisterResource(request)


class _Engine(mocks.MockEngine):
    def __init__(self) -> None:
        super().__init__(None)
        self.warnings: list[str] = []

    def Log(self, request: Any) -> None:  # noqa: N802, ANN401 - as in the base
        if request.severity == engine_pb2.WARNING:
            self.warnings.append(request.message)


def run(  # noqa: PLR0913 - what a run is
    project: Path,
    config: Mapping[str, object],
    *,
    stack: str = "local",
    preview: bool = True,
    generation: int = 1,
    known: bool = True,
) -> Graph:
    """Runs the program. Whatever it raises comes out, with nothing registered if it ended before.

    Unless `known`, what AWS would add is not known, as at the preview of a first update.
    """
    text = {key: value if isinstance(value, str) else json.dumps(value) for key, value in config.items()}
    given = _Mocks(generation, known=known)
    monitor, engine = _Monitor(given), _Engine()
    pulumi.runtime.set_mocks(given, project="triton-fleet", stack=stack, preview=preview, monitor=monitor)
    pulumi.runtime.settings.SETTINGS.engine = engine
    pulumi.runtime.config.CONFIG.set({f"triton-fleet:{key}": value for key, value in text.items()})

    @pulumi.runtime.test
    def program() -> None:
        runpy.run_path(str(project / "__main__.py"), run_name="__main__")

    try:
        program()
    except pulumi.RunError as error:
        raise Refusal(str(error), len(monitor.registered)) from None
    return Graph(tuple(monitor.registered), tuple(engine.warnings))


class Refusal(Exception):  # noqa: N818 - what a test expects
    """The program refused its configuration."""

    def __init__(self, text: str, registered: int) -> None:
        super().__init__(text)
        self.registered = registered
        """How many resources were registered before; none may be."""
