"""Cgroups of the nodes, on folders that look as the kernel's two layouts do."""

from __future__ import annotations

from pathlib import Path

import pytest

from local.cluster import cgroups


@pytest.fixture
def version_1(tmp_path: Path) -> Path:
    mount = tmp_path / "v1"
    for controller in ("cpu,cpuacct", "cpuset", "memory"):
        (mount / controller).mkdir(parents=True)
        (mount / controller / "cgroup.procs").write_text("1\n")
    (mount / "cpu").symlink_to("cpu,cpuacct")
    (mount / "no-hierarchy").mkdir()
    (mount / "a-file").write_text("")
    (mount / "cpuset" / "cpuset.cpus").write_text("0-1\n")
    (mount / "cpuset" / "cpuset.mems").write_text("0\n")
    return mount


@pytest.fixture
def version_2(tmp_path: Path) -> Path:
    mount = tmp_path / "v2"
    mount.mkdir()
    (mount / "cgroup.controllers").write_text("cpuset cpu io memory hugetlb pids rdma misc\n")
    (mount / "cgroup.subtree_control").write_text("memory\n")
    (mount / "cgroup.procs").write_text("1\n")
    return mount


def test_version_1_has_a_hierarchy_for_each_controller(version_1: Path) -> None:
    assert not cgroups.is_version_2(version_1)
    assert cgroups.hierarchies(version_1) == [version_1 / name for name in ("cpu,cpuacct", "cpuset", "memory")]


def test_version_2_has_one(version_2: Path) -> None:
    assert cgroups.is_version_2(version_2)
    assert cgroups.hierarchies(version_2) == [version_2]


def test_version_1_makes_the_cgroup_in_every_hierarchy(version_1: Path) -> None:
    cgroups.make("/fleet/node", version_1)
    cgroups.make("/fleet/node", version_1)
    assert sorted(str(p.relative_to(version_1)) for p in version_1.glob("*/fleet/node")) == [
        "cpu,cpuacct/fleet/node",
        "cpu/fleet/node",
        "cpuset/fleet/node",
        "memory/fleet/node",
    ]


def test_version_1_fills_empty_cpusets_from_their_parents_and_keeps_others(version_1: Path) -> None:
    top = version_1 / "cpuset" / "fleet"
    for folder, cpus, mems in ((top, "\n", "\n"), (top / "node", "1\n", "\n")):
        folder.mkdir()  # the kernel makes these files with the folder
        (folder / "cpuset.cpus").write_text(cpus)
        (folder / "cpuset.mems").write_text(mems)
    cgroups.make("/fleet/node", version_1)
    assert {str(p.relative_to(top)): p.read_text() for p in top.rglob("cpuset.*")} == {
        "cpuset.cpus": "0-1\n",
        "cpuset.mems": "0\n",
        "node/cpuset.cpus": "1\n",
        "node/cpuset.mems": "0\n",
    }


def test_version_2_passes_down_every_controller_that_a_kubelet_asks_for(
    version_2: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    middle = version_2 / "fleet"
    middle.mkdir()
    (middle / "cgroup.controllers").write_text("cpu memory pids\n")
    (middle / "cgroup.subtree_control").write_text("\n")
    written: list[tuple[Path, str]] = []
    monkeypatch.setattr(Path, "write_text", lambda path, text: written.append((path, text)))
    cgroups.make("/fleet/node", version_2)
    assert written == [
        *((version_2 / "cgroup.subtree_control", f"+{name}") for name in ("cpuset", "cpu", "io", "hugetlb", "pids")),
        *((middle / "cgroup.subtree_control", f"+{name}") for name in ("cpu", "memory", "pids")),
    ]
    assert (middle / "node").is_dir()


@pytest.mark.parametrize("layout", ["version_1", "version_2"])
def test_what_remains_is_listed_deepest_first_and_removed_whole(layout: str, request: pytest.FixtureRequest) -> None:
    mount: Path = request.getfixturevalue(layout)
    roots = cgroups.hierarchies(mount)
    for root in roots:
        (root / "fleet" / "node" / "pod").mkdir(parents=True)
        (root / "fleet" / "other").mkdir()
        (root / "fleet-of-another").mkdir()
    found = cgroups.remaining("/fleet", mount)
    assert len(found) == 4 * len(roots)
    for root in roots:
        mine = [folder for folder in found if folder.is_relative_to(root)]
        assert mine[0] == root / "fleet" / "node" / "pod"
        assert set(mine[1:3]) == {root / "fleet" / "node", root / "fleet" / "other"}
        assert mine[3] == root / "fleet"

    assert cgroups.remove("/fleet", mount) == []
    assert cgroups.remaining("/fleet", mount) == []
    assert all((root / "fleet-of-another").is_dir() for root in roots)
    assert cgroups.remove("/fleet", mount) == []


def test_what_cannot_be_removed_is_named(version_2: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cgroups, "REMOVE_DEADLINE_S", 0.0)
    busy = version_2 / "fleet" / "node"
    busy.mkdir(parents=True)
    (busy / "held").write_text("")
    (version_2 / "fleet" / "other").mkdir()
    assert cgroups.remove("/fleet", version_2) == [busy, version_2 / "fleet"]


def test_processes_are_collected_from_all_below_without_those_of_other_namespaces(version_1: Path) -> None:
    for place, pids in (
        ("memory/fleet", "10\n0\n"),
        ("memory/fleet/node", "11\n12\n"),
        ("cpuset/fleet/node", "12\n13\n"),
        ("cpuset/other", "99\n"),
    ):
        (version_1 / place).mkdir(parents=True, exist_ok=True)
        (version_1 / place / "cgroup.procs").write_text(pids)
    (version_1 / "cpu,cpuacct" / "fleet").mkdir()
    assert cgroups.processes("/fleet", version_1) == {10, 11, 12, 13}
    assert cgroups.processes("/nothing", version_1) == set()
