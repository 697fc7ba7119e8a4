"""How the stack's cluster is reached: by a kubeconfig file that is named, never by an ambient one."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import yaml

from fleet.faults import Fault, Refused
from services.verification.cluster import ClusterError, KubernetesCluster

if TYPE_CHECKING:
    from pathlib import Path

CLUSTER_VARIABLE: Final = "TRITON_FLEET_CLUSTER"
SETTING: Final = "cluster.kubeconfig"
ANSWER_TIMEOUT_S: Final = 5.0
FILES: Final = {
    "cluster": ("certificate-authority",),
    "user": ("client-certificate", "client-key"),
}
"""The keys of a kubeconfig that name files, by the part that they stand in; each has a twin `<key>-data`."""


@dataclass(frozen=True, slots=True)
class Access:
    """A kubeconfig file that was asked for, and by which setting."""

    setting: str
    path: Path
    chosen: bool
    """Whether a person named the file for this run."""


def access(project: Path, configured: str, override: str | None) -> Access:
    """The kubeconfig file: the one named for this run, else the configured one."""
    if override:
        return Access(CLUSTER_VARIABLE, project / override, chosen=True)
    return Access(SETTING, project / configured, chosen=False)


def read(asked: Access, *, preview: bool) -> str | None:
    """The kubeconfig's text, reduced to its current context and complete in itself. Raises `Refused`.

    None at a preview before the cluster is there: the plan is then that of a first update.
    """
    if not asked.path.is_file():
        if preview and not asked.chosen:
            return None
        raise Refused([_missing(asked)])
    try:
        text = minified(yaml.safe_load(asked.path.read_text()), asked.path.parent)
    except (yaml.YAMLError, ValueError, RecursionError, OSError) as error:
        raise Refused([_unusable(asked, str(error))]) from error
    try:
        KubernetesCluster(text).must_answer(ANSWER_TIMEOUT_S)
    except ClusterError as error:
        raise Refused([_silent(asked, str(error))]) from error
    return text


def minified(config: Any, folder: Path) -> str:  # noqa: ANN401 - whatever the file holds
    """The current context of a kubeconfig alone, with the files that it names put into it. Raises ValueError."""
    if not isinstance(config, dict):
        raise ValueError("it is no kubeconfig")  # noqa: TRY004 - the content of a file, not an argument's type
    current = config.get("current-context")
    context = _named(config, "contexts", current, "context")
    parts = {part: _inlined(_named(config, f"{part}s", context.get(part), part), part, folder) for part in FILES}
    return yaml.safe_dump(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": current,
            "contexts": [{"name": current, "context": context}],
            **{f"{part}s": [{"name": context[part], part: value}] for part, value in parts.items()},
        }
    )


def _named(config: dict[str, Any], plural: str, name: object, part: str) -> dict[str, Any]:
    for entry in config.get(plural) or ():
        if isinstance(entry, dict) and entry.get("name") == name and isinstance(entry.get(part), dict):
            return dict(entry[part])
    raise ValueError(f"it has no {part} named {name!r}" if name else f"it names no {part}")


def _inlined(values: dict[str, Any], part: str, folder: Path) -> dict[str, Any]:
    for key in FILES[part]:
        if key in values:
            content = (folder / str(values.pop(key))).read_bytes()
            values.setdefault(f"{key}-data", base64.b64encode(content).decode())
    return values


def unused(override: str) -> Fault:
    """A file that was named for a stack whose cluster is not reached by one."""
    return Fault(
        CLUSTER_VARIABLE,
        override,
        "nothing, unless cluster.source is kubeconfig",
        "the stack's settings say how its cluster is had; this file would be ignored in silence",
        "unset it, or take a stack whose cluster.source is kubeconfig",
    )


def _missing(asked: Access) -> Fault:
    return Fault(
        asked.setting,
        f"{asked.path}, which is not there",
        "a kubeconfig file that exists",
        "the program reaches the cluster by this file and by no other",
        "name a file that exists" if asked.chosen else "start the embedded cluster (make up), or name another file",
    )


def _unusable(asked: Access, reason: str) -> Fault:
    return Fault(
        asked.setting,
        f"{asked.path}: {reason}",
        "a kubeconfig whose current context names a cluster and a user of the file",
        "the program reaches the cluster by this file and by no other",
        "correct the file, or write it anew: kubectl config view --raw --minify",
    )


def _silent(asked: Access, reason: str) -> Fault:
    return Fault(
        asked.setting,
        f"{asked.path}: {reason}",
        f"an API server that answers within {ANSWER_TIMEOUT_S:g} s",
        "an update needs the cluster from its first step to its last",
        "start the cluster (make up starts the embedded one), or correct the server and the credentials in the file",
    )
