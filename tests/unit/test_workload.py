"""The manifests that serve a model, compared whole, and the numbers in them."""

# ruff: noqa: S108 - the folders are the pods'

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import pytest

from fleet import network, workload
from fleet.workload import Rollout, Timing
from tests.unit.graph import local_config, local_settings

if TYPE_CHECKING:
    from pathlib import Path

    from fleet.settings import Settings

DIGEST = "0123456789ab"
LABELS = {
    "app.kubernetes.io/name": "triton",
    "app.kubernetes.io/instance": "minilm-a100-40gb",
    "app.kubernetes.io/component": "triton",
    "app.kubernetes.io/part-of": "triton-fleet",
    "app.kubernetes.io/managed-by": "pulumi",
    "model": "minilm",
    "triton-fleet.io/sku": "a100-40gb",
}
SELECTOR = {"app.kubernetes.io/component": "triton", "model": "minilm", "triton-fleet.io/sku": "a100-40gb"}


def settings_of(
    project: Path, model: dict[str, Any] | None = None, sku: dict[str, Any] | None = None, **more: object
) -> Settings:
    """Stack `local` with one SKU and one model that is placed there, both changed by a test."""
    config = copy.deepcopy(local_config(project))
    config["skus"] = [{**config["skus"][0], **(sku or {})}]
    config["models"][0]["placements"] = [{"sku": config["skus"][0]["name"], "replicas": {"min": 1, "max": 4}}]
    config["models"] = [{**config["models"][0], **(model or {})}]
    return local_settings(project, **{**config, **more})


def manifest(settings: Settings) -> dict[str, Any]:
    (model,) = settings.models
    return workload.deployment(settings, model, model.placements[0], DIGEST)


def container(settings: Settings) -> dict[str, Any]:
    (found,) = manifest(settings)["spec"]["template"]["spec"]["containers"]
    return dict(found)


def test_the_deployment_of_a_gpu_sku(project: Path) -> None:
    settings = settings_of(project, {"load_timeout_s": 61, "drain_timeout_s": 20, "tensor_parallel": 2})
    probe = {"port": "http"}
    assert manifest(settings) == {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {
            "name": "minilm-a100-40gb",
            "namespace": "triton-local",
            "labels": LABELS,
            "annotations": {"triton-fleet.io/replicas": "autoscaler"},
        },
        "spec": {
            "revisionHistoryLimit": 3,
            "progressDeadlineSeconds": 62 + 51 + 60,
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}},
            "selector": {"matchLabels": SELECTOR},
            "template": {
                "metadata": {
                    "labels": LABELS,
                    "annotations": {"triton-fleet.io/model-version": "1", "triton-fleet.io/model-digest": DIGEST},
                },
                "spec": {
                    "automountServiceAccountToken": False,
                    "enableServiceLinks": False,
                    "securityContext": {
                        "runAsNonRoot": True,
                        "runAsUser": 1000,
                        "runAsGroup": 1000,
                        "fsGroup": 1000,
                        "fsGroupChangePolicy": "OnRootMismatch",
                        "seccompProfile": {"type": "RuntimeDefault"},
                    },
                    "affinity": {
                        "nodeAffinity": {
                            "requiredDuringSchedulingIgnoredDuringExecution": {
                                "nodeSelectorTerms": [
                                    {
                                        "matchExpressions": [
                                            {"key": "nvidia.com/gpu", "operator": "In", "values": ["present"]},
                                            {"key": "nvidia.com/gpu.present", "operator": "In", "values": ["true"]},
                                            {
                                                "key": "nvidia.com/gpu.product",
                                                "operator": "In",
                                                "values": ["NVIDIA-A100-SXM4-40GB"],
                                            },
                                        ]
                                    }
                                ]
                            }
                        }
                    },
                    "tolerations": [
                        {"key": "nvidia.com/gpu", "operator": "Equal", "value": "present", "effect": "NoSchedule"}
                    ],
                    "topologySpreadConstraints": [
                        {
                            "maxSkew": 1,
                            "topologyKey": "kubernetes.io/hostname",
                            "whenUnsatisfiable": "ScheduleAnyway",
                            "labelSelector": {"matchLabels": SELECTOR},
                        }
                    ],
                    "terminationGracePeriodSeconds": 51,
                    "containers": [
                        {
                            "name": "triton",
                            "image": "triton-fleet.local/triton:2.51.0-cpu",
                            "imagePullPolicy": "Never",
                            "command": [
                                "tritonserver",
                                "--model-repository=/store/repository/minilm/0123456789ab",
                                "--model-control-mode=explicit",
                                "--load-model=minilm",
                                "--exit-on-error=true",
                                "--strict-readiness=true",
                                "--exit-timeout-secs=20",
                                "--http-port=8000",
                                "--grpc-port=8001",
                                "--grpc-max-connection-age=10000",
                                "--metrics-port=8002",
                            ],
                            "env": [{"name": "HOME", "value": "/tmp"}],
                            "ports": [
                                {"name": "http", "containerPort": 8000, "protocol": "TCP"},
                                {"name": "grpc", "containerPort": 8001, "protocol": "TCP"},
                                {"name": "metrics", "containerPort": 8002, "protocol": "TCP"},
                            ],
                            "resources": {
                                "requests": {"cpu": "100m", "memory": "700Mi", "nvidia.com/gpu": "2"},
                                "limits": {"memory": "700Mi", "nvidia.com/gpu": "2"},
                            },
                            "startupProbe": {
                                "httpGet": {"path": "/v2/models/minilm/ready", **probe},
                                "periodSeconds": 2,
                                "failureThreshold": 31,
                                "timeoutSeconds": 5,
                            },
                            "readinessProbe": {
                                "httpGet": {"path": "/v2/models/minilm/ready", **probe},
                                "periodSeconds": 2,
                                "failureThreshold": 3,
                                "timeoutSeconds": 5,
                            },
                            "livenessProbe": {
                                "httpGet": {"path": "/v2/health/live", **probe},
                                "periodSeconds": 10,
                                "failureThreshold": 6,
                                "timeoutSeconds": 5,
                                "terminationGracePeriodSeconds": 10,
                            },
                            "lifecycle": {"preStop": {"sleep": {"seconds": 16}}},
                            "securityContext": {
                                "allowPrivilegeEscalation": False,
                                "readOnlyRootFilesystem": True,
                                "capabilities": {"drop": ["ALL"]},
                            },
                            "terminationMessagePolicy": "FallbackToLogsOnError",
                            "volumeMounts": [
                                {"name": "store", "mountPath": "/store", "readOnly": True},
                                {"name": "shm", "mountPath": "/dev/shm"},
                                {"name": "tmp", "mountPath": "/tmp"},
                            ],
                        }
                    ],
                    "volumes": [
                        {"name": "store", "persistentVolumeClaim": {"claimName": "model-store", "readOnly": True}},
                        {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "64Mi"}},
                        {"name": "tmp", "emptyDir": {"sizeLimit": "256Mi"}},
                    ],
                },
            },
        },
    }


def test_a_sku_without_gpus_asks_for_none_and_tolerates_nothing(project: Path) -> None:
    sku = {"name": "cpu", "gpu_product": None, "gpus_per_node": 0}
    settings = settings_of(project, {"placements": [{"sku": "cpu", "replicas": {"min": 2, "max": 3}}]}, sku)
    spec = manifest(settings)["spec"]
    pod = spec["template"]["spec"]
    assert (pod["affinity"], pod["tolerations"]) == ({}, [])
    assert pod["containers"][0]["resources"] == {
        "requests": {"cpu": "100m", "memory": "700Mi"},
        "limits": {"memory": "700Mi"},
    }
    assert spec["strategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}


@pytest.mark.parametrize("effect", ["NoExecute", "NO_EXECUTE"])
def test_each_taint_of_a_sku_is_tolerated_however_its_effect_is_spelt_b34(project: Path, effect: str) -> None:
    taints = [
        {"key": "nvidia.com/gpu", "value": "present", "effect": "NO_SCHEDULE"},
        {"key": "team", "effect": effect},
    ]
    assert manifest(settings_of(project, sku={"taints": taints}))["spec"]["template"]["spec"]["tolerations"] == [
        {"key": "nvidia.com/gpu", "operator": "Equal", "value": "present", "effect": "NoSchedule"},
        {"key": "team", "operator": "Equal", "value": "", "effect": "NoExecute"},
    ]


@pytest.mark.parametrize(
    ("nodes", "gpus_per_node", "tensor_parallel", "replicas_max", "expected"),
    [
        pytest.param(1, 1, 1, 1, Rollout(surge=0, unavailable=1), id="one node, one GPU, taken"),
        pytest.param(2, 1, 1, 1, Rollout(surge=1, unavailable=0), id="a second node to spare"),
        pytest.param(1, 8, 1, 8, Rollout(surge=0, unavailable=1), id="all eight GPUs may be taken"),
        pytest.param(1, 8, 1, 7, Rollout(surge=1, unavailable=0), id="the eighth GPU is spare"),
        pytest.param(2, 8, 4, 3, Rollout(surge=1, unavailable=0), id="four spare on the second node"),
        pytest.param(2, 8, 5, 2, Rollout(surge=0, unavailable=1), id="three spare on each node, five needed"),
    ],
)
def test_an_update_never_waits_for_a_gpu_that_no_pod_gives_up_b17(  # noqa: PLR0913, PLR0917 - a table of cases
    project: Path, nodes: int, gpus_per_node: int, tensor_parallel: int, replicas_max: int, expected: Rollout
) -> None:
    settings = settings_of(
        project,
        {
            "tensor_parallel": tensor_parallel,
            "placements": [{"sku": "a100-40gb", "replicas": {"min": 1, "max": replicas_max}}],
        },
        {"nodes": {"min": 1, "max": nodes}, "gpus_per_node": gpus_per_node},
    )
    (model,), (sku,) = settings.models, settings.skus
    assert workload.rollout(settings, model, sku) == expected


@pytest.mark.parametrize(
    ("load_timeout_s", "drain_timeout_s", "pull_policy", "replicas_max", "expected"),
    [
        pytest.param(60, 30, "Never", 1, Timing(30, 181, 181, 30, 61), id="image on the node"),
        pytest.param(61, 1, "Never", 4, Timing(31, 154, 616, 1, 32), id="an odd budget is rounded up"),
        pytest.param(1800, 600, "IfNotPresent", 2, Timing(900, 3691, 7382, 600, 631), id="image to be pulled"),
    ],
)
def test_each_timeout_is_longer_than_what_happens_in_it(  # noqa: PLR0913, PLR0917 - a table of cases
    project: Path,
    load_timeout_s: int,
    drain_timeout_s: int,
    pull_policy: str,
    replicas_max: int,
    expected: Timing,
) -> None:
    settings = settings_of(
        project,
        {
            "load_timeout_s": load_timeout_s,
            "drain_timeout_s": drain_timeout_s,
            "placements": [{"sku": "a100-40gb", "replicas": {"min": 1, "max": replicas_max}}],
        },
        images={**local_config(project)["images"], "pull_policy": pull_policy},
    )
    (model,) = settings.models
    assert workload.timing(model, model.placements[0], settings.images) == expected


@pytest.mark.parametrize("drain_timeout_s", [1, 30, 3600])
def test_a_replica_ends_its_requests_before_it_is_killed(project: Path, drain_timeout_s: int) -> None:
    """It is out of the Service, and every gRPC connection has ended, before Triton is told; then it has its drain.

    gRPC ends a connection at its age and up to a tenth later (gRFC A9).
    """
    pod = manifest(settings_of(project, {"drain_timeout_s": drain_timeout_s}))["spec"]["template"]["spec"]
    (triton,) = pod["containers"]
    given = dict(argument.removeprefix("--").split("=") for argument in triton["command"] if "=" in argument)
    pause_s = triton["lifecycle"]["preStop"]["sleep"]["seconds"]
    assert pause_s >= workload.ENDPOINTS_S + 1.1 * int(given["grpc-max-connection-age"]) / 1000
    assert int(given["exit-timeout-secs"]) == drain_timeout_s
    assert pod["terminationGracePeriodSeconds"] > pause_s + drain_timeout_s


def test_no_probe_of_a_running_pod_asks_whether_the_whole_server_is_ready_b18_b19(project: Path) -> None:
    found = container(settings_of(project))
    paths = {kind: found[kind]["httpGet"]["path"] for kind in ("startupProbe", "readinessProbe", "livenessProbe")}
    assert paths == {
        "startupProbe": "/v2/models/minilm/ready",
        "readinessProbe": "/v2/models/minilm/ready",
        "livenessProbe": "/v2/health/live",
    }


@pytest.mark.parametrize("tensor_parallel", [1, 4])
def test_shared_memory_is_mounted_where_triton_runs_and_fits_its_memory_b44(
    project: Path, tensor_parallel: int
) -> None:
    settings = settings_of(
        project,
        {
            "tensor_parallel": tensor_parallel,
            "shm_mib": 16 * 1024,
            "resources": {"memory_mib": 64 * 1024},
        },
    )
    spec = manifest(settings)["spec"]["template"]["spec"]
    (volume,) = [volume for volume in spec["volumes"] if volume.get("emptyDir", {}).get("medium") == "Memory"]
    mounts = {mount["name"]: mount["mountPath"] for mount in spec["containers"][0]["volumeMounts"]}
    assert mounts[volume["name"]] == "/dev/shm"
    shared_mib = int(volume["emptyDir"]["sizeLimit"].removesuffix("Mi"))
    assert shared_mib < int(spec["containers"][0]["resources"]["limits"]["memory"].removesuffix("Mi"))


def test_the_shared_service_and_its_headless_twin(project: Path) -> None:
    settings = settings_of(project)
    (model,) = settings.models
    ports = [
        {"name": name, "port": port, "targetPort": name, "protocol": "TCP"}
        for name, port in (("http", 8000), ("grpc", 8001), ("metrics", 8002))
    ]
    selector = {"app.kubernetes.io/component": "triton", "model": "minilm"}
    shared, headless = workload.service(settings, model), workload.headless_service(settings, model)
    assert (shared["metadata"]["name"], headless["metadata"]["name"]) == ("minilm", "minilm-pods")
    assert shared["spec"] == {"type": "ClusterIP", "selector": selector, "ports": ports}
    assert headless["spec"] == {"type": "ClusterIP", "selector": selector, "ports": ports, "clusterIP": "None"}


def test_maintenance_takes_one_replica_of_a_model_at_a_time(project: Path) -> None:
    settings = settings_of(project)
    assert workload.disruption_budget(settings, settings.models[0])["spec"] == {
        "maxUnavailable": 1,
        "unhealthyPodEvictionPolicy": "AlwaysAllow",
        "selector": {"matchLabels": {"app.kubernetes.io/component": "triton", "model": "minilm"}},
    }


def test_nobody_talks_to_anybody_but_who_is_named(project: Path) -> None:
    triton = {"matchLabels": {"app.kubernetes.io/component": "triton"}}
    serving = [{"protocol": "TCP", "port": 8000}, {"protocol": "TCP", "port": 8001}]
    settings = settings_of(project, serving={"client_cidrs": ["198.18.0.0/15"]}, monitoring={"namespace": "observers"})
    specs = {one["metadata"]["name"]: one["spec"] for one in network.policies(settings)}
    assert specs == {
        "deny-all": {"podSelector": {}, "policyTypes": ["Ingress", "Egress"], "ingress": [], "egress": []},
        "dns": {
            "podSelector": {},
            "policyTypes": ["Egress"],
            "egress": [
                {
                    "to": [
                        {
                            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}},
                            "podSelector": {"matchLabels": {"k8s-app": "kube-dns"}},
                        }
                    ]
                }
            ],
        },
        "triton": {
            "podSelector": triton,
            "policyTypes": ["Ingress"],
            "ingress": [
                {
                    "from": [
                        {"podSelector": {}},
                        {"namespaceSelector": {"matchLabels": {"triton-fleet.io/client": "true"}}},
                        {"ipBlock": {"cidr": "198.18.0.0/15"}},
                    ],
                    "ports": serving,
                },
                {
                    "from": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "observers"}}}],
                    "ports": [{"protocol": "TCP", "port": 8002}],
                },
            ],
        },
        "verification": {
            "podSelector": {"matchLabels": {"app.kubernetes.io/component": "verification"}},
            "policyTypes": ["Egress"],
            "egress": [{"to": [{"podSelector": triton}], "ports": serving}],
        },
    }
