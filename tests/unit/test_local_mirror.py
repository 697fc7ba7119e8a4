"""Upstream's files in the chart mirror: laid once, and again when they are others."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from local import mirror, toolchain
from local.errors import LocalError
from local.mirror import Laid

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

LAID = (Laid("operator", "crds", "stack/crds", edits=(("a.yaml", "image: theirs", "image: ours"),)),)


@pytest.fixture
def brought(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that the operator brings."""
    folder = tmp_path / "brought" / "crds"
    (folder / "more").mkdir(parents=True)
    (folder / "a.yaml").write_text("image: theirs\n")
    (folder / "more" / "b.yaml").write_text("b: 2")
    monkeypatch.setattr(toolchain, "brought", lambda name, _: {"operator": {"crds": folder}}[name])
    (tmp_path / "charts" / "stack").mkdir(parents=True)
    return folder


def _held(charts: Path) -> dict[str, str]:
    return {str(path.relative_to(charts)): path.read_text() for path in sorted(charts.rglob("*")) if path.is_file()}


EXPECTED = {"stack/crds/a.yaml": "image: ours\n", "stack/crds/more/b.yaml": "b: 2"}
LAYING = "charts: laying stack/crds from the module of operator"


def test_what_upstream_brings_is_laid_once(brought: Path, tmp_path: Path) -> None:
    charts, said = tmp_path / "charts", list[str]()
    mirror.complete(said.append, charts, LAID)
    written_ns = (charts / "stack/crds/a.yaml").stat().st_ctime_ns
    mirror.complete(said.append, charts, LAID)
    assert brought.exists()
    assert (_held(charts), said) == (EXPECTED, [LAYING])
    assert (charts / "stack/crds/a.yaml").stat().st_ctime_ns == written_ns


def _other_text(laid: Path) -> None:
    (laid / "more" / "b.yaml").write_text("b: 3")


def _one_missing(laid: Path) -> None:
    (laid / "a.yaml").unlink()


def _one_too_many(laid: Path) -> None:
    (laid / "old.yaml").write_text("c: 3")


@pytest.mark.parametrize("change", [_other_text, _one_missing, _one_too_many])
def test_what_is_laid_otherwise_is_laid_again(brought: Path, tmp_path: Path, change: Callable[[Path], None]) -> None:
    charts, said = tmp_path / "charts", list[str]()
    mirror.complete(said.append, charts, LAID)
    change(charts / "stack" / "crds")
    mirror.complete(said.append, charts, LAID)
    assert brought.exists()
    assert (_held(charts), said) == (EXPECTED, [LAYING, LAYING])
    assert [path.name for path in charts.iterdir()] == ["stack"]


@pytest.mark.parametrize(("text", "times"), [("image: theirs\nimage: theirs\n", 2), ("image: mine\n", 0)])
def test_an_edit_that_does_not_fit_is_refused_and_nothing_is_laid(
    brought: Path, tmp_path: Path, text: str, times: int
) -> None:
    (brought / "a.yaml").write_text(text)
    with pytest.raises(LocalError) as refused:
        mirror.complete(print, tmp_path / "charts", LAID)
    assert str(refused.value) == (
        f"charts: stack/crds/a.yaml of the module of operator holds 'image: theirs' {times} times, not 1\n"
        "fix: correct the edit in local/mirror.py, which was written for another version"
    )
    assert _held(tmp_path / "charts") == {}


def test_what_is_laid_is_brought_by_a_tool_and_kept_out_of_git(project: Path) -> None:
    ignored = (project / ".gitignore").read_text().splitlines()
    for one in mirror.LAID:
        assert one.folder in [path.rpartition("/")[2] for _, path in toolchain.TOOLS[one.tool].brings]
        assert f"/local/charts/{one.place}/" in ignored
