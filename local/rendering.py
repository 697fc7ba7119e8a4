"""A stack's plan as files that a person reads in a diff. Pure: what the engine said goes in, the files' texts come out.

Two sources, both of one `pulumi preview --json` on the real engine:

- its steps, which say what the engine made of each registration: URN, provider, and what is inherited from a parent;
- its record of calls (PULUMI_DEBUG_GRPC), which holds the inputs as the program registered them. What providers make of
  inputs in their checks (defaults, generated names) differs from run to run and belongs to the update, not to the plan.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final

import yaml

UNKNOWN: Final = "<unknown>"
SECRET: Final = "[secret]"  # noqa: S105 - what stands in a secret's place, as in the engine's own output

# The engine's marks in serialized values: github.com/pulumi/pulumi/sdk/v3, go/common/resource/plugin/rpc.go and ../sig.
UNKNOWN_IDS: Final = frozenset(
    (
        "1c4a061d-8072-4f0a-a4cb-0ff528b18fe7",
        "3eeb2bf0-c639-47a8-9e75-3b44932eb421",
        "04da6b54-80e4-46f7-96ec-b56ff0331ba9",
        "6a19a0b0-7e62-4c92-b797-7f8e31da9cc2",
        "030794c1-ac77-496b-92df-f27374a8bd58",
        "e48ece36-62e2-4504-bad9-02848725956a",
        "dd056dcd-154b-4c76-9bd3-c8f88648b5ff",
    )
)
"""A boolean, number, text, list, asset, archive and object that are not known yet."""
SIGNATURE_KEY: Final = "4dabf18193072939515e22adb298388d"
INTERNAL_KEYS: Final = frozenset({"__internal", "__defaults"})
"""What the engine and providers note for themselves beside inputs."""

REGISTER: Final = "/pulumirpc.ResourceMonitor/RegisterResource"
REGISTER_OUTPUTS: Final = "/pulumirpc.ResourceMonitor/RegisterResourceOutputs"
STACK_TYPE: Final = "pulumi:pulumi:Stack"
RELEASE_TYPE: Final = "kubernetes:helm.sh/v3:Release"
KUBERNETES: Final = "kubernetes:"

DIGEST: Final = re.compile(r"(?<![0-9a-z])(?=[0-9]*[a-f])[0-9a-f]{12}(?![0-9a-z])")
"""What fleet/ names content by. Twelve decimal digits alone are an AWS account."""


class Signature(StrEnum):
    """What a marked value is."""

    SECRET = "1b47061264138c4ac30d75fd1eb44270"  # noqa: S105 - marks any secret
    OUTPUT = "d0e6a833031e9bbcd3f4e8bde6ca49a4"
    RESOURCE = "5cf8f73096256a8f31e491e813e4eb8e"


@dataclass(frozen=True, slots=True)
class Resource:
    """One registered resource, its unknown values and secrets replaced by marks."""

    type: str
    name: str
    urn: str
    parent: str | None
    provider: str | None
    inputs: Mapping[str, Any]
    dependencies: tuple[str, ...]
    protect: bool
    retain_on_delete: bool
    ignore_changes: tuple[str, ...]

    def row(self) -> dict[str, Any]:
        return {
            "type": self.type,
            "name": self.name,
            "urn": self.urn,
            "parent": self.parent,
            "provider": self.provider,
            "inputs": self.inputs,
            "dependencies": list(self.dependencies),
            "protect": self.protect,
            "retainOnDelete": self.retain_on_delete,
            "ignoreChanges": list(self.ignore_changes),
        }


@dataclass(frozen=True, slots=True)
class Plan:
    """All that a stack registers, by URN, and what it exports."""

    resources: tuple[Resource, ...]
    outputs: Mapping[str, Any]


def plan(preview: Mapping[str, Any], calls: Iterable[str], project: str) -> Plan:
    """The plan from a preview's JSON document and the lines of its record of calls.

    `project` is the checkout's folder, which the plan does not name: two checkouts render the same.
    """
    registered, outputs = _calls(calls)
    resources = []
    for step in preview.get("steps", ()):
        state = step.get("newState")
        if state is None:
            continue
        request = registered.get(state["urn"])
        resources.append(_resource(state, request, project))
    return Plan(tuple(sorted(resources, key=lambda resource: resource.urn)), marked(outputs, project))


def _calls(lines: Iterable[str]) -> tuple[dict[str, Mapping[str, Any]], Mapping[str, Any]]:
    """Requests of registration by URN, and the stack's outputs.

    A remote component is registered twice under one URN, by the program and by the plugin that constructs it; the
    program's own request, which has its inputs, holds.
    """
    requests: dict[str, Mapping[str, Any]] = {}
    outputs: Mapping[str, Any] = {}
    for line in lines:
        # The record is large, and most of it are calls to providers.
        if "/pulumirpc.ResourceMonitor/Register" not in line:
            continue
        call = json.loads(line)
        request = call.get("request") or {}
        if call["method"] == REGISTER:
            urn = (call.get("response") or {}).get("urn")
            if urn and (request.get("remote") or urn not in requests):
                requests[urn] = request
        elif call["method"] == REGISTER_OUTPUTS and f"::{STACK_TYPE}::" in request.get("urn", ""):
            outputs = request.get("outputs") or {}
    return requests, outputs


def _resource(state: Mapping[str, Any], request: Mapping[str, Any] | None, project: str) -> Resource:
    inputs = state.get("inputs") if request is None else request.get("object")
    provider = state.get("provider")
    return Resource(
        type=state["type"],
        name=state["urn"].rpartition("::")[2],
        urn=state["urn"],
        parent=state.get("parent"),
        # An id is appended to a provider's URN.
        provider=provider.rpartition("::")[0] if provider else None,
        inputs=marked(inputs or {}, project),
        dependencies=tuple(sorted(set(state.get("dependencies") or ()))),
        protect=bool(state.get("protect")),
        retain_on_delete=bool(state.get("retainOnDelete")),
        ignore_changes=tuple(sorted(state.get("ignoreChanges") or (request or {}).get("ignoreChanges") or ())),
    )


def marked(value: Any, project: str) -> Any:  # noqa: ANN401 - any JSON
    """A serialized value as the plan shows it: secrets and unknown values as marks, no path of this machine."""
    if isinstance(value, Mapping):
        if SIGNATURE_KEY in value:
            return _signed(value, project)
        return {key: marked(value[key], project) for key in sorted(value) if key not in INTERNAL_KEYS}
    if isinstance(value, list):
        return [marked(one, project) for one in value]
    if isinstance(value, str):
        return UNKNOWN if value in UNKNOWN_IDS else value.replace(f"{project}/", "").replace(project, ".")
    # Numbers travel as floating point.
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _signed(value: Mapping[str, Any], project: str) -> Any:  # noqa: ANN401 - any JSON
    """What the engine marks by a signature: a secret, an output, a resource, an asset."""
    match value[SIGNATURE_KEY]:
        case Signature.SECRET:
            return SECRET
        case Signature.OUTPUT if value.get("secret"):
            return SECRET
        case Signature.OUTPUT:
            return marked(value["value"], project) if "value" in value else UNKNOWN
        case Signature.RESOURCE:
            return value.get("urn", UNKNOWN)
        case _:
            return {key: marked(value[key], project) for key in sorted(value) if key != SIGNATURE_KEY}


def files(shown: Plan) -> dict[str, str]:
    """The rendered folder: text by path."""
    made = {
        "resources.json": _json([resource.row() for resource in shown.resources]),
        "outputs.json": _json(shown.outputs),
    }
    for resource in shown.resources:
        path = _path(resource)
        if path is None:
            continue
        if path in made:
            raise ValueError(f"{resource.urn} and another resource are both the object {path}")
        made[path] = _yaml(_document(resource))
    return dict(sorted(made.items()))


def _path(resource: Resource) -> str | None:
    """The file of a Helm release or a Kubernetes object; None for everything else."""
    inputs = resource.inputs
    if resource.type == RELEASE_TYPE:
        return f"helm/{_part(inputs.get('namespace', 'default'))}/{_part(inputs.get('name', resource.name))}.yaml"
    if resource.type.startswith(KUBERNETES) and "kind" in inputs:
        metadata = inputs.get("metadata") or {}
        name = _part(metadata.get("name", resource.name))
        return f"manifests/{_part(metadata.get('namespace', '_cluster'))}/{inputs['kind'].lower()}-{name}.yaml"
    return None


def _document(resource: Resource) -> dict[str, Any]:
    inputs = resource.inputs
    if resource.type != RELEASE_TYPE:
        first = {key: inputs[key] for key in ("apiVersion", "kind", "metadata") if key in inputs}
        return {**first, **inputs}
    return {
        "release": inputs.get("name", resource.name),
        "namespace": inputs.get("namespace", "default"),
        "chart": inputs.get("chart"),
        "repo": (inputs.get("repositoryOpts") or {}).get("repo"),
        "version": inputs.get("version"),
        "values": inputs.get("values") or {},
    }


def _part(name: str) -> str:
    """A name as a part of a path: those of some objects hold colons and slashes."""
    return "unknown" if name == UNKNOWN else name.replace("/", "_").replace(":", "_")


def reviewed(shown: Plan) -> dict[str, str]:
    """The plan as a reviewer reads it in a diff, text by path: everything once, and nothing that says nothing.

    Resources name each other by type and name. What has a file of its own is not repeated. Of a ConfigMap's texts,
    which are files of this repository, the length stands, and for digests of them a word.
    """
    short = {resource.urn: f"{resource.type} {resource.name}" for resource in shown.resources}
    whole = files(shown)
    rows = []
    for resource in shown.resources:
        path = _path(resource)
        row = {
            "resource": short[resource.urn],
            "parent": short.get(resource.parent or "", resource.parent),
            "provider": short.get(resource.provider or "", resource.provider),
            "inputs": path or resource.inputs,
            "after": sorted(short.get(urn, urn) for urn in resource.dependencies),
            "protect": resource.protect,
            "retain_on_delete": resource.retain_on_delete,
            "ignore_changes": list(resource.ignore_changes),
        }
        rows.append({key: value for key, value in row.items() if value not in (None, False, [], {})})
    made = {"resources.yaml": _yaml(rows), "outputs.json": whole["outputs.json"]}
    for resource in shown.resources:
        path = _path(resource)
        if path:
            inputs = resource.inputs
            if inputs.get("kind") == "ConfigMap":
                inputs = {**inputs, "data": {key: _length(text) for key, text in (inputs.get("data") or {}).items()}}
            made[path] = _yaml(_document(replace(resource, inputs=inputs)))
    return {DIGEST.sub("DIGEST", path): DIGEST.sub("DIGEST", text) for path, text in sorted(made.items())}


def _length(text: str) -> str:
    lines = len(text.splitlines())
    return text if lines <= 1 else f"<{lines} lines>"


def _json(value: Any) -> str:  # noqa: ANN401 - any JSON
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


class _Dumper(yaml.SafeDumper):
    """YAML for readers: text of several lines as a block, nothing by reference."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ANN401, ARG002 - the base's signature
        return True

    def text(self, data: str) -> yaml.ScalarNode:
        return self.represent_scalar("tag:yaml.org,2002:str", data, style="|" if "\n" in data else None)


_Dumper.add_representer(str, _Dumper.text)


def _yaml(value: Any) -> str:  # noqa: ANN401 - any JSON
    text: str = yaml.dump(value, Dumper=_Dumper, sort_keys=False, width=120, allow_unicode=True)
    return text
