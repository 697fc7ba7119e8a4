"""Runs the program under Pulumi mocks and tells what it registered. What the engine does with it is tests/engine's."""

from __future__ import annotations

import copy
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
JOB = "kubernetes:batch/v1:Job"
SERVICE = "kubernetes:core/v1:Service"
VOLUME = "kubernetes:core/v1:PersistentVolume"
CLAIM = "kubernetes:core/v1:PersistentVolumeClaim"
CONFIG_MAP = "kubernetes:core/v1:ConfigMap"
POLICY = "kubernetes:networking.k8s.io/v1:NetworkPolicy"
BUDGET = "kubernetes:policy/v1:PodDisruptionBudget"
PROVIDER = "pulumi:providers:kubernetes"
ROLLOUT = "pulumi-python:dynamic/triton-fleet:Rollout"
VERIFICATION = "pulumi-python:dynamic/triton-fleet:Verification"

SECRET = "4dabf18193072939515e22adb298388d"
"""The key that marks a secret on the wire."""


def local_config(project: Path) -> dict[str, Any]:
    """The settings of stack `local`, as its file has them, to be changed by a test."""
    config = yaml.safe_load((project / "Pulumi.local.yaml").read_text())["config"]
    return copy.deepcopy({key.removeprefix("triton-fleet:"): value for key, value in config.items()})


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
    inputs: dict[str, Any]

    @property
    def is_kubernetes(self) -> bool:
        return self.type.startswith("kubernetes:")


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
        """The names, with types, of all that must be there before the resource is."""
        by_urn = {one.urn: one for one in self.resources}
        reached: set[str] = set()
        pending = [resource.urn]
        while pending:
            for urn in by_urn[pending.pop()].depends_on - reached:
                reached.add(urn)
                pending.append(urn)
        return reached

    def pods(self) -> Iterator[tuple[Registered, dict[str, Any]]]:
        """Each workload with the template of its pods."""
        for kind in (DEPLOYMENT, JOB):
            for one in self.of(kind):
                yield one, one.inputs["spec"]["template"]


class _Mocks(pulumi.runtime.Mocks):
    """Gives each object what the API server adds to it."""

    def __init__(self, generation: int) -> None:
        self.generation = generation

    def new_resource(self, args: mocks.MockResourceArgs) -> tuple[str, dict[str, Any]]:
        state = dict(args.inputs)
        if "metadata" in state:
            state["metadata"] = {**state["metadata"], "uid": f"uid-of-{args.name}", "generation": self.generation}
        if args.typ == SERVICE:
            state["spec"] = {"clusterIP": "198.19.0.7", **state["spec"]}
        return f"{args.name}-id", state

    def call(self, args: mocks.MockCallArgs) -> dict[str, Any]:
        raise AssertionError(f"the program asks for {args.token}, which no cluster of a preview could answer")


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


def run(project: Path, config: Mapping[str, object], *, preview: bool = True, generation: int = 1) -> Graph:
    """Runs the program. Whatever it raises comes out, with nothing registered if it ended before."""
    text = {key: value if isinstance(value, str) else json.dumps(value) for key, value in config.items()}
    given = _Mocks(generation)
    monitor, engine = _Monitor(given), _Engine()
    pulumi.runtime.set_mocks(given, project="triton-fleet", stack="local", preview=preview, monitor=monitor)
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
