"""Renders charts with Helm, and finds the values that a chart takes and does nothing with."""

from __future__ import annotations

import copy
import re
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import yaml

from local import toolchain

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

KUBERNETES = "1.34.4"
RENDER_TIMEOUT_S = 60
Steps = tuple[str | int, ...]
"""Where a value stands among the values."""


class RefusedByChart(Exception):  # noqa: N818 - what a chart did
    """The chart did not take the values."""


@dataclass(frozen=True)
class Chart:
    """A chart, and the release that it is rendered as."""

    folder: Path
    release: str
    namespace: str

    def text(self, values: Mapping[str, Any]) -> str:
        """All manifests but definitions of custom resources."""
        done = subprocess.run(
            [
                str(toolchain.ensure(["helm"], print)["helm"]), "template", self.release, str(self.folder),
                f"--namespace={self.namespace}", f"--kube-version={KUBERNETES}", "--values=-",
            ],
            input=yaml.safe_dump(dict(values)), capture_output=True, text=True, check=False, timeout=RENDER_TIMEOUT_S,
        )  # fmt: skip
        if done.returncode != 0:
            raise RefusedByChart(done.stderr.strip())
        return done.stdout

    def objects(self, values: Mapping[str, Any]) -> dict[tuple[str, str], dict[str, Any]]:
        """By kind and name."""
        found: dict[tuple[str, str], dict[str, Any]] = {}
        for one in yaml.safe_load_all(self.text(values)):
            if one is not None:
                name = (one["kind"], one["metadata"]["name"])
                assert name not in found, f"{name} is rendered twice"
                found[name] = one
        return found

    def ignored(self, values: Mapping[str, Any]) -> list[str]:
        """The values, by path, that change nothing in what is rendered. To refuse a value is not to ignore it."""
        as_given = self.text(values)
        found = []
        for path in leaves(values):
            changed = copy.deepcopy(dict(values))
            _put(changed, path, _other(_at(changed, path)))
            try:
                is_ignored = self.text(changed) == as_given
            except RefusedByChart:
                is_ignored = False
            if is_ignored:
                found.append(".".join(map(str, path)))
        return found


def leaves(value: Any, at: Steps = ()) -> Iterator[Steps]:  # noqa: ANN401 - values of a chart
    """Where the values end: text, numbers, switches, and what is empty."""
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from leaves(inner, (*at, key))
    elif isinstance(value, list) and value:
        for index, inner in enumerate(value):
            yield from leaves(inner, (*at, index))
    else:
        yield at


def _other(value: Any) -> Any:  # noqa: ANN401 - values of a chart
    """Another value of the same kind and form."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return value + 1
    if isinstance(value, dict):
        return {"other": "value"}
    if isinstance(value, list):
        return ["other"]
    number = re.search(r"\d+", value or "")
    if number is None:
        return f"{value or ''}other"
    return f"{value[: number.start()]}{int(number[0]) + 1}{value[number.end() :]}"


def _at(values: Any, path: Steps) -> Any:  # noqa: ANN401 - values of a chart
    for step in path:
        values = values[step]
    return values


def _put(values: Any, path: Steps, value: object) -> None:  # noqa: ANN401 - values of a chart
    _at(values, path[:-1])[path[-1]] = value
