"""Which tools are built, from what, and what is said when that fails; Go is a shell script of the test's."""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
from collections import namedtuple
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from local import toolchain
from local.errors import LocalError
from local.toolchain import TOOLS, Tool

if TYPE_CHECKING:
    from collections.abc import Callable

KUBE = Tool("kube", "./kube", variables={"v.gitVersion": "v1", "v.gitMajor": "1"})
DNS = Tool("dns", "example.com/dns")
SERVER = Tool(
    "server",
    "example.com/server/cmd",
    module="server",
    tags=("netgo", "nothing"),
    adds=(("example.com/server", "web/dist/index.html", "page.html"),),
    brings=(("example.com/server", "deploy/crds"), ("example.com/server", "chart")),
)
HOST = Tool("host", ".", module="host", copies=(("example.com/provider", "cmd/schema.json", "schema.json"),))
EVERY = (KUBE, DNS, SERVER, HOST)


class Workplace:
    """Module folders, a cache and a PATH of a test's own."""

    def __init__(self, folder: Path) -> None:
        self.modules = folder / "modules"
        self.cache = folder / "cache"
        self.bin = folder / "bin"
        self.log = folder / "go.log"
        self.said: list[str] = []
        for path in (*(self.modules / name for name in ("kube", "host", "server")), self.cache, self.bin):
            path.mkdir(parents=True)
        for name, text in (
            ("go.mod", "module tools"),
            ("go.sum", "sums"),
            ("kube/main.go", "package main"),
            ("host/go.mod", "module host"),
            ("host/go.sum", "sums"),
            ("host/main.go", "package main"),
            ("server/go.mod", "module server"),
            ("server/go.sum", "sums"),
            ("server/page.html", "a page"),
        ):
            (self.modules / name).write_text(text)
        self.log.touch()

    def program(self, name: str, script: str) -> None:
        (self.bin / name).write_text(f"#!/bin/sh\n{script}\n")
        (self.bin / name).chmod(0o755)

    def go(self, build: str) -> None:
        """A Go that records its words and its environment; `build` may write to "$out"."""
        self.program(
            "go",
            f"""[ "$1 $2" = "env GOVERSION" ] && {{ echo go1.26.6; exit 0; }}
echo "$(basename "$(dirname "$PWD")")/$(basename "$PWD"): go $*" >> '{self.log}'
echo "$GOFLAGS $GOMODCACHE $GOCACHE $GOWORK $CGO_ENABLED $GOTOOLCHAIN" > '{self.log}.environment'
[ "$1" = mod ] && {{ printf '{{"Dir": "{self.modules}/fetched"}}'; exit 0; }}
while [ "$1" != -o ]; do shift; done; out=$2
{build}""",
        )

    @property
    def ran(self) -> list[str]:
        return self.log.read_text().splitlines()

    @property
    def made(self) -> set[str]:
        """Programs in the cache, and anything half-written beside them."""
        return {str(p.relative_to(self.cache / "tools")) for p in self.cache.glob("tools/*/*")}


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workplace:
    made = Workplace(tmp_path)
    monkeypatch.setattr(toolchain, "MODULES", made.modules)
    monkeypatch.setattr(toolchain, "TOOLS", {tool.name: tool for tool in EVERY})
    monkeypatch.setattr(toolchain, "DISK_NEEDED_GIB", 0)
    monkeypatch.setenv("TRITON_FLEET_CACHE", str(made.cache))
    monkeypatch.setenv("PATH", f"{made.bin}:/usr/bin:/bin")
    return made


# Keys


def _append(name: str) -> Callable[[Path], None]:
    def change(modules: Path) -> None:
        with (modules / name).open("a") as file:
            file.write("\n")

    return change


def _new_source(modules: Path) -> None:
    (modules / "kube" / "more.go").write_text("package main")


def _later(modules: Path) -> None:
    os.utime(modules / "go.mod", (1, 1))


@pytest.mark.parametrize(
    ("change", "changed"),
    [
        pytest.param(_append("go.mod"), {"kube", "dns"}, id="versions"),
        pytest.param(_append("go.sum"), {"kube", "dns"}, id="checksums"),
        pytest.param(_append("kube/main.go"), {"kube"}, id="source"),
        pytest.param(_new_source, {"kube"}, id="another source"),
        pytest.param(_append("host/go.mod"), {"host"}, id="versions of another module"),
        pytest.param(_append("host/main.go"), {"host"}, id="source of another module"),
        pytest.param(_append("server/page.html"), {"server"}, id="a file that a dependency lacks"),
        pytest.param(_append("README.md"), set(), id="no source"),
        pytest.param(_append("kube/notes.txt"), set(), id="no source, beside one"),
        pytest.param(_later, set(), id="the time of a file"),
    ],
)
def test_a_key_changes_with_what_the_tool_is_made_from(
    workplace: Workplace, change: Callable[[Path], None], changed: set[str]
) -> None:
    before = {tool.name: toolchain.key(tool) for tool in EVERY}
    change(workplace.modules)
    assert {tool.name for tool in EVERY if toolchain.key(tool) != before[tool.name]} == changed


@pytest.mark.parametrize(
    ("tool", "changed"),
    [
        pytest.param(replace(KUBE, variables={"v.gitVersion": "v2", "v.gitMajor": "1"}), True, id="linker variable"),
        pytest.param(replace(KUBE, variables=None), True, id="no linker variable"),
        pytest.param(replace(KUBE, package="./host"), True, id="package"),
        pytest.param(replace(KUBE, copies=HOST.copies), True, id="copied files"),
        pytest.param(replace(KUBE, tags=("netgo",)), True, id="build tag"),
        pytest.param(replace(KUBE, brings=SERVER.brings), False, id="what is laid beside it"),
        pytest.param(replace(KUBE, on_path=(("version",), "v1")), False, id="what is accepted on PATH"),
    ],
)
def test_a_key_changes_with_how_the_tool_is_made(workplace: Workplace, tool: Tool, *, changed: bool) -> None:
    assert workplace.modules.exists()
    assert (toolchain.key(tool) != toolchain.key(KUBE)) is changed


def test_every_tool_of_the_project_can_be_keyed_and_has_a_place_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_FLEET_CACHE", "/cache")
    groups = (
        *toolchain.PULUMI_TOOLS,
        *toolchain.CLUSTER_TOOLS,
        *toolchain.GPU_TOOLS,
        *toolchain.MONITORING_TOOLS,
        *toolchain.RULE_TOOLS,
        *toolchain.CHART_TOOLS,
        *toolchain.TEST_TOOLS,
    )
    assert sorted(TOOLS) == sorted(groups)
    places = {name: toolchain.built(tool) for name, tool in TOOLS.items()}
    assert len({place.parent for place in places.values()}) == len(TOOLS)
    assert {place.name: str(place.parent.parent) for place in places.values()} == dict.fromkeys(TOOLS, "/cache/tools")


@pytest.mark.parametrize(
    ("name", "module", "version", "said"),
    [
        (
            "prometheus-operator",
            toolchain._OPERATOR,
            f"v{toolchain.PROMETHEUS_OPERATOR}",
            toolchain.PROMETHEUS_OPERATOR,
        ),
        # Its module counts 3.14.0 as v0.314.0: a major version of 2 or more would change the module's path.
        ("prometheus", "github.com/prometheus/prometheus", "v0.314.0", toolchain.PROMETHEUS),
        ("promtool", "github.com/prometheus/prometheus", "v0.314.0", "3.14.0"),
        ("amtool", "github.com/prometheus/alertmanager", f"v{toolchain.ALERTMANAGER}", toolchain.ALERTMANAGER),
        ("kube-state-metrics", "k8s.io/kube-state-metrics/v2", toolchain.KUBE_STATE_METRICS, "v2.20.0"),
        ("metrics-server", "sigs.k8s.io/metrics-server", toolchain.METRICS_SERVER, "v0.9.0"),
        ("nfd-worker", toolchain._NFD, toolchain.NODE_FEATURE_DISCOVERY, "v0.19.0"),
        ("helm", "helm.sh/helm/v3", toolchain.HELM, "v3.18.6"),
    ],
)
def test_a_tool_says_the_version_that_its_module_pins(name: str, module: str, version: str, said: str) -> None:
    tool = TOOLS[name]
    assert f"\t{module} {version} // indirect\n" in (tool.folder / "go.mod").read_text()
    assert said in (tool.variables or {}).values()


def test_helm_shares_the_providers_pins() -> None:
    """So charts are rendered by tests as the provider renders them, and common packages are compiled once."""
    pins = {
        name: dict(re.findall(r"^\t(\S+) (v\S+)", (TOOLS[name].folder / "go.mod").read_text(), re.MULTILINE))
        for name in ("helm", "pulumi-resource-kubernetes")
    }
    common = pins["helm"].keys() & pins["pulumi-resource-kubernetes"].keys()
    assert len(common) > len(pins["helm"]) - 10
    assert {pin: pins["helm"][pin] for pin in common} == {
        pin: pins["pulumi-resource-kubernetes"][pin] for pin in common
    }


# Versions on PATH


@pytest.mark.parametrize(
    ("script", "accepted"),
    [
        ("echo v3.270.0", True),
        ("echo v3.274.1", True),
        ("echo v3.301.2", True),
        ("echo v3.269.9", False),
        ("echo v3.27.0", False),
        ("echo v4.0.0", False),
        ("echo 'pulumi v3.274.1'", False),
        ("echo v3.274.1; exit 1", False),
        ("exec /nowhere", False),
    ],
)
def test_a_pulumi_on_path_is_used_if_its_version_fits(workplace: Workplace, script: str, *, accepted: bool) -> None:
    workplace.program("pulumi", f'[ "$*" = version ] || exit 9\n{script}')
    found = toolchain._on_path(TOOLS["pulumi"])
    assert found == (workplace.bin / "pulumi" if accepted else None)


def test_a_tool_without_a_known_version_is_never_taken_from_path(workplace: Workplace) -> None:
    workplace.program("kube", "echo v3.274.1")
    assert toolchain._on_path(TOOLS["kube"]) is None


def test_a_tool_on_path_that_fits_is_not_built(workplace: Workplace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toolchain, "TOOLS", {"dns": replace(DNS, on_path=(("version",), "v2"))})
    workplace.go("exit 9")
    workplace.program("dns", "echo v2.1")
    assert toolchain.ensure(["dns"], workplace.said.append) == {"dns": workplace.bin / "dns"}
    assert (workplace.said, workplace.ran) == ([], [])


@pytest.mark.parametrize(
    ("version", "accepted"), [("go1.26.6", True), ("go1.21rc2", True), ("go1.20.14", False), ("devel", False)]
)
def test_a_go_on_path_is_used_if_it_can_fetch_toolchains(
    workplace: Workplace, version: str, *, accepted: bool, project: Path
) -> None:
    workplace.program("go", f"echo {version}")
    lock = toolchain.hashlib.sha256((project / "requirements" / "go.txt").read_bytes()).hexdigest()[:12]
    packaged = workplace.cache / "go" / lock / "go" / "bin" / "go"
    packaged.parent.mkdir(parents=True)
    packaged.touch()
    assert toolchain.go_program(workplace.said.append) == str(workplace.bin / "go" if accepted else packaged)
    assert workplace.said == []


# Building

WRITES = 'printf "%s" "built" > "$out"; chmod +x "$out"'


def test_what_is_missing_is_built_once_and_what_is_there_is_not(workplace: Workplace) -> None:
    workplace.go(WRITES)
    kube, dns = toolchain.built(KUBE), toolchain.built(DNS)
    dns.parent.mkdir(parents=True)
    dns.write_text("there")
    assert toolchain.ensure(["kube", "dns"], workplace.said.append) == {"kube": kube, "dns": dns}
    key = toolchain.key(KUBE)
    expected = [
        (
            f"kube-{key}/sources: go build -trimpath -ldflags -s -w -X v.gitVersion=v1 -X v.gitMajor=1 "
            f"-o {workplace.cache}/build/kube-{key}/out ./kube"
        )
    ]
    assert workplace.ran == expected
    assert (kube.read_text(), os.access(kube, os.X_OK), dns.read_text()) == ("built", True, "there")
    assert [re.sub(r"\d+ s$", "N s", line) for line in workplace.said] == [
        "tools: building kube from Go modules, once; 1 to 6 min each on 2 cores",
        "tools: 1/1 kube: building",
        "tools: 1/1 kube: built in N s",
    ]
    assert toolchain.ensure(["kube", "dns"], workplace.said.append) == {"kube": kube, "dns": dns}
    assert workplace.ran == expected
    assert list((workplace.cache / "build").iterdir()) == []


def test_go_works_in_the_cache_only(workplace: Workplace, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GOFLAGS", "GOMODCACHE", "GOCACHE", "GOWORK", "CGO_ENABLED", "GOTOOLCHAIN"):
        monkeypatch.setenv(name, "the-users-own")
    workplace.go(WRITES)
    toolchain.ensure(["dns"], workplace.said.append)
    caches = workplace.cache / "go"
    assert Path(f"{workplace.log}.environment").read_text() == (
        f"-mod=readonly -modcacherw -buildvcs=false {caches}/mod {caches}/build off 0 auto\n"
    )


def test_files_of_dependencies_are_laid_beside_the_sources(workplace: Workplace) -> None:
    schema = workplace.modules / "fetched" / "cmd" / "schema.json"
    schema.parent.mkdir(parents=True)
    schema.write_text("a schema")
    workplace.go('cp schema.json "$out"')
    toolchain.ensure(["host"], workplace.said.append)
    assert toolchain.built(HOST).read_text() == "a schema"
    assert workplace.ran[0] == f"host-{toolchain.key(HOST)}/sources: go mod download -json example.com/provider"
    assert not (workplace.modules / "host" / "schema.json").exists()


def test_a_dependency_gets_the_file_that_it_lacks_and_tags_are_told(workplace: Workplace) -> None:
    theirs = workplace.modules / "fetched" / "web" / "ui.go"
    theirs.parent.mkdir(parents=True)
    theirs.write_text("package web")
    key = toolchain.key(SERVER)
    workspace = workplace.cache / "build" / f"server-{key}"
    copy = workspace / "modules" / "example.com" / "server"
    workplace.go(f'cd {copy}; cat web/ui.go web/dist/index.html > "$out"')
    toolchain.ensure(["server"], workplace.said.append)
    where = f"server-{key}/sources: go"
    assert workplace.ran == [
        f"{where} mod download -json example.com/server",
        f"{where} mod edit -replace=example.com/server={copy}",
        f"{where} build -trimpath -ldflags -s -w -tags=netgo,nothing -o {workspace}/out example.com/server/cmd",
    ]
    assert toolchain.built(SERVER).read_text() == "package weba page"
    assert list(theirs.parent.iterdir()) == [theirs]
    assert (workplace.modules / "server" / "go.mod").read_text() == "module server"


def test_what_a_tool_brings_is_fetched_once_without_building_it(workplace: Workplace) -> None:
    for name, text in (("deploy/crds/a.yaml", "a: 1"), ("deploy/crds/more/b.yaml", "b: 2"), ("chart/Chart.yaml", "c")):
        path = workplace.modules / "fetched" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    workplace.go("exit 9")
    beside = toolchain.built(SERVER).parent
    expected = {"crds": beside / "crds", "chart": beside / "chart"}
    assert toolchain.brought("server", workplace.said.append) == expected
    assert {str(path.relative_to(beside)): path.read_text() for path in beside.rglob("*") if path.is_file()} == {
        "crds/a.yaml": "a: 1",
        "crds/more/b.yaml": "b: 2",
        "chart/Chart.yaml": "c",
    }
    ran = workplace.ran
    assert ran == ["modules/server: go mod download -json example.com/server"] * 2
    assert toolchain.brought("server", workplace.said.append) == expected
    assert (workplace.ran, workplace.said) == (ran, [])


def test_a_failing_build_is_told_with_its_last_lines_and_leaves_nothing(workplace: Workplace) -> None:
    workplace.go(
        'echo half > "$out"; for n in $(seq 1000); do echo "line $n"; done; echo "no such package" >&2; exit 2'
    )
    with pytest.raises(LocalError) as failed:
        toolchain.ensure(["dns", "kube"], workplace.said.append)
    assert failed.value.what == "tools: 1/2 dns: the build failed with status 2"
    lines = failed.value.details.splitlines()
    assert lines[-3:] == ["line 999", "line 1000", "no such package"]
    assert len(failed.value.details) == 2000
    assert failed.value.fix == (
        "check that the Go module proxy is reached (`go env GOPROXY`), then run the same command again"
    )
    assert len(workplace.ran) == 1
    assert workplace.made == set()
    assert list((workplace.cache / "build").iterdir()) == []


def test_a_build_that_hangs_is_given_up(workplace: Workplace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toolchain, "BUILD_TIMEOUT_S", 0.25)
    monkeypatch.setattr(toolchain, "PROGRESS_EVERY_S", 0.02)
    workplace.go("exec sleep 60")
    with pytest.raises(LocalError, match="dns: the build failed with status -1"):
        toolchain.ensure(["dns"], workplace.said.append)
    assert workplace.said.count("tools: 1/1 dns: building, 0 s") >= 2
    assert workplace.made == set()


def test_a_module_that_cannot_be_fetched_is_named(workplace: Workplace) -> None:
    workplace.go("exit 9")
    workplace.program("go", 'case "$1" in env) echo go1.26.6 ;; mod) echo "proxy: no route" >&2; exit 1 ;; esac')
    with pytest.raises(LocalError) as failed:
        toolchain.ensure(["host"], workplace.said.append)
    assert str(failed.value) == (
        "the Go module example.com/provider could not be fetched: proxy: no route\n"
        "fix: check that the Go module proxy is reached (`go env GOPROXY`)"
    )
    assert workplace.made == set()


@pytest.mark.parametrize(
    ("all_tools_gib", "one_tool_gib", "needed_gib"), [(12, 7, 12), (30, 6, 12), (30, 7, 14), (13, 20, 13)]
)
def test_too_little_disk_is_refused_before_anything_is_built(
    workplace: Workplace, monkeypatch: pytest.MonkeyPatch, all_tools_gib: int, one_tool_gib: int, needed_gib: int
) -> None:
    workplace.go(WRITES)
    usage = namedtuple("usage", "total used free")  # noqa: PYI024 - as shutil's own
    monkeypatch.setattr(toolchain, "DISK_NEEDED_GIB", all_tools_gib)
    monkeypatch.setattr(toolchain, "DISK_NEEDED_PER_TOOL_GIB", one_tool_gib)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(2**40, 2**39, int(11.96 * 2**30)))
    with pytest.raises(LocalError) as refused:
        toolchain.ensure(["kube", "dns"], workplace.said.append)
    assert str(refused.value) == (
        f"disk: 12.0 GiB free at {workplace.cache}; building kube, dns needs {needed_gib} GiB for Go's modules "
        "and build cache\n"
        "fix: free some room, or name a folder on a larger disk with TRITON_FLEET_CACHE="
    )
    assert workplace.ran == []
    toolchain.built(KUBE).parent.mkdir(parents=True)
    toolchain.built(KUBE).touch()
    toolchain.ensure(["kube"], workplace.said.append)


def test_a_second_checkout_waits_for_the_first_ones_build(workplace: Workplace) -> None:
    workplace.go("exit 9")
    other = (workplace.cache / "tools.lock").open("a")
    fcntl.flock(other, fcntl.LOCK_EX)

    def other_is_done(line: str) -> None:
        workplace.said.append(line)
        toolchain.built(DNS).parent.mkdir(parents=True)
        toolchain.built(DNS).write_text("the other's")
        other.close()

    assert toolchain.ensure(["dns"], other_is_done) == {"dns": toolchain.built(DNS)}
    assert workplace.said == ["tools: waiting for another checkout that builds them"]
    assert workplace.ran == []


def test_pulumi_finds_its_tools_and_their_scripts_on_path(
    workplace: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    tools = {name: Tool(name, f"example.com/{name}") for name in toolchain.PULUMI_TOOLS}
    monkeypatch.setattr(toolchain, "TOOLS", tools)
    for script in toolchain.PULUMI_SCRIPTS:
        source = workplace.modules / "fetched" / script
        source.parent.mkdir(parents=True)
        source.write_text(f"#!/bin/sh\n# {source.name}\n")
    workplace.go(WRITES)
    folders = [toolchain.built(tool).parent for tool in tools.values()]
    assert toolchain.pulumi_path(workplace.said.append) == [str(folder) for folder in folders]
    beside = folders[1]
    for name in ("pulumi-language-python-exec", "pulumi-resource-pulumi-python"):
        assert (beside / name).read_text() == f"#!/bin/sh\n# {name}\n"
        assert os.access(beside / name, os.X_OK)
    ran = workplace.ran
    assert toolchain.pulumi_path(workplace.said.append) == [str(folder) for folder in folders]
    assert workplace.ran == ran


def test_the_cache_is_named_or_the_users(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name, value, expected in (
        ("TRITON_FLEET_CACHE", f"{tmp_path}/a/../b", tmp_path / "b"),
        ("TRITON_FLEET_CACHE", "~/c", tmp_path / "c"),
        ("XDG_CACHE_HOME", f"{tmp_path}/xdg", tmp_path / "xdg" / "triton-fleet"),
        ("XDG_CACHE_HOME", "", tmp_path / ".cache" / "triton-fleet"),
    ):
        for variable in ("TRITON_FLEET_CACHE", "XDG_CACHE_HOME"):
            monkeypatch.delenv(variable, raising=False)
        monkeypatch.setenv(name, value)
        assert toolchain.cache_folder() == expected, json.dumps([name, value])
