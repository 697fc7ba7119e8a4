"""Completes the chart mirror `local/charts` with files of upstream that git need not hold.

The custom resources' definitions are large (1 to 2 MiB each, as text) and made by a program; they come with the Go
module of the program that serves them, in the very version that is built from it.
"""

from __future__ import annotations

import filecmp
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from local import toolchain
from local.state import PROJECT

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

CHARTS = PROJECT / "local" / "charts"
LAID = (("prometheus-operator", "prometheus-operator-crd", "kube-prometheus-stack/crds"),)
"""(tool, folder that it brings, folder in the mirror); `.gitignore` names the last."""


def complete(
    progress: Callable[[str], None], charts: Path = CHARTS, laid: Sequence[tuple[str, str, str]] = LAID
) -> None:
    """Lay what the mirror lacks or has in another version; needs a Go only the first time."""
    for tool, brought, place in laid:
        source, target = toolchain.brought(tool, progress)[brought], charts / place
        if _same(source, target):
            continue
        progress(f"charts: laying {place} from the module of {tool}")
        with tempfile.TemporaryDirectory(dir=charts, prefix=".laying-") as scratch:
            shutil.copytree(source, Path(scratch, "new"))
            if target.exists():
                target.rename(Path(scratch, "old"))
            target.parent.mkdir(exist_ok=True)
            Path(scratch, "new").rename(target)


def _same(source: Path, target: Path) -> bool:
    """Whether two folders hold the same files, in themselves and in their folders."""
    names = [sorted(str(path.relative_to(folder)) for path in folder.rglob("*")) for folder in (source, target)]
    files = [name for name in names[0] if (source / name).is_file()]
    return names[0] == names[1] and filecmp.cmpfiles(source, target, files, shallow=False)[0] == files
