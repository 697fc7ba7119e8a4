"""Completes the chart mirror `local/charts` with upstream's own files, which come with the Go modules that are built.

Definitions of custom resources are large (up to 0.8 MiB each), and made by a program; a chart that stands in its
program's module need not be written again. Both come in the very version that is built. `.gitignore` names them.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from local import toolchain
from local.errors import LocalError
from local.images.recipes import NODE_FEATURE_DISCOVERY
from local.state import PROJECT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

CHARTS = PROJECT / "local" / "charts"


@dataclass(frozen=True)
class Laid:
    """A folder that a tool brings, and where in the mirror it lies.

    `edits` are (file, text, other text); each text stands there exactly once.
    """

    tool: str
    folder: str
    place: str
    edits: tuple[tuple[str, str, str], ...] = ()


LAID = (
    Laid("prometheus-operator", "prometheus-operator-crd", "kube-prometheus-stack/charts/crds/crds"),
    Laid(
        "nfd-master",
        "node-feature-discovery",
        "node-feature-discovery",
        edits=(
            # What a release's own build writes into the chart.
            ("Chart.yaml", "\nversion: 0.2.1\n", f"\nversion: {toolchain.NODE_FEATURE_DISCOVERY.removeprefix('v')}\n"),
            # A mirror names images that the cluster has.
            (
                "values.yaml",
                "\n  repository: registry.k8s.io/nfd/node-feature-discovery\n",
                f"\n  repository: {NODE_FEATURE_DISCOVERY.partition(':')[0]}\n",
            ),
            ("values.yaml", "\n  pullPolicy: IfNotPresent\n", "\n  pullPolicy: Never\n"),
        ),
    ),
)


def complete(progress: Callable[[str], None], charts: Path = CHARTS, laid: Sequence[Laid] = LAID) -> None:
    """Lay what the mirror lacks or has otherwise; a Go is needed only where the cache lacks it."""
    with _alone(charts):
        for one in laid:
            wanted = _edited(_read(toolchain.brought(one.tool, progress)[one.folder]), one)
            target = charts / one.place
            if wanted != _read(target):
                progress(f"charts: laying {one.place} from the module of {one.tool}")
                _replace(target, wanted)


def _read(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def _edited(files: dict[str, bytes], one: Laid) -> dict[str, bytes]:
    for name, text, other in one.edits:
        found = files[name].count(text.encode())
        if found != 1:
            raise LocalError(
                f"charts: {one.place}/{name} of the module of {one.tool} holds {text.strip()!r} {found} times, not 1",
                fix="correct the edit in local/mirror.py, which was written for another version",
            )
        files = {**files, name: files[name].replace(text.encode(), other.encode())}
    return files


def _replace(target: Path, files: dict[str, bytes]) -> None:
    """Put a folder in the place of another; who looks meanwhile sees a whole one or none."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".laying-") as scratch:
        for name, content in files.items():
            path = Path(scratch, "new", name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        if target.exists():
            target.rename(Path(scratch, "old"))
        Path(scratch, "new").rename(target)


@contextmanager
def _alone(charts: Path) -> Iterator[None]:
    descriptor = os.open(charts, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
