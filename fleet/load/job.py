"""A load from inside a cluster: a Job whose pods each make an equal part of it, and what it needs beside it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from fleet import names, network, own_images, pods

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fleet.load.plan import Plan
    from fleet.pods import Manifest
    from fleet.settings import Settings

FILES: Final = (
    "fleet/__init__.py",
    "fleet/arrivals.py",
    "fleet/load/__init__.py",
    "fleet/load/latency.py",
    "fleet/load/plan.py",
    "services/__init__.py",
    "services/load/__init__.py",
    "services/load/caller.py",
    "services/load/program.py",
    "services/load/scenarios.py",
)
"""The program, as it lies in the project: it needs no other file of ours, and Locust."""
MOUNT: Final = "/opt/triton-fleet-load"
PLAN_KEY: Final = "plan.json"
SCRATCH_MIB: Final = 64
MARGIN_S: Final = 300
"""A Job ends by itself this long after its load should have, and its pods may take so long to start."""
KEPT_S: Final = 600
"""A Job of a command that died is removed after this long."""


def key(path: str) -> str:
    """A path as a key of a ConfigMap, which knows no folders."""
    return path.replace("/", "__")


def manifests(settings: Settings, plan: Plan, run: str, count: int, program: Mapping[str, str]) -> list[Manifest]:
    """What is made in this order, and is removed when the load is over: files, the way out, the Job.

    `run` tells one load from another, `program` is the text of each of `FILES`. None of it is part of a stack.
    """
    name = f"load-{run}"
    labels = names.common_labels(names.Component.LOAD, "load", name)
    namespace = settings.serving.namespace
    inside = replace(plan, parts=count, requests_file="")
    return [
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": pods.metadata(name, namespace, labels),
            "data": {PLAN_KEY: inside.text(), **{key(path): text for path, text in program.items()}},
        },
        network.to_triton(settings.serving, name, labels),
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": pods.metadata(name, namespace, labels),
            "spec": _job(settings, inside, name, labels, count),
        },
    ]


def _job(settings: Settings, plan: Plan, name: str, labels: dict[str, str], count: int) -> Manifest:
    items = {PLAN_KEY: PLAN_KEY, **{key(path): path for path in FILES}}
    program_volume, program_mount = pods.config_volume("program", name, MOUNT, items)
    tmp_volume, tmp_mount = pods.scratch(SCRATCH_MIB)
    container = {
        "name": "load",
        "image": own_images.image(settings.images, own_images.LOAD),
        "imagePullPolicy": settings.images.pull_policy,
        "command": ["python3", "-u", "-m", "services.load.program", f"{MOUNT}/{PLAN_KEY}"],
        "workingDir": MOUNT,
        "env": [
            {"name": "HOME", "value": pods.TMP_MOUNT},
            {"name": "PYTHONDONTWRITEBYTECODE", "value": "1"},
            {"name": "PYTHONPATH", "value": MOUNT},
        ],
        # Locust has one thread: more than a core is of no use to it.
        "resources": {"requests": {"cpu": "250m", "memory": "128Mi"}, "limits": {"memory": "1Gi"}},
        "securityContext": pods.container_security(),
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [program_mount, tmp_mount],
    }
    return {
        "completionMode": "Indexed",
        "completions": count,
        "parallelism": count,
        "backoffLimit": 0,
        "activeDeadlineSeconds": round(plan.duration_s + plan.timeout_s) + MARGIN_S,
        "ttlSecondsAfterFinished": KEPT_S,
        "template": {
            "metadata": {"labels": labels},
            "spec": {
                **pods.pod_defaults(settings.serving, settings.images),
                "restartPolicy": "Never",
                # What was asked when it is told to end is still answered.
                "terminationGracePeriodSeconds": round(plan.timeout_s) + 10,
                "containers": [container],
                "volumes": [program_volume, tmp_volume],
            },
        },
    }
