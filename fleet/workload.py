"""What serves a model: its Services, its disruption budget, and per SKU a Deployment of Triton."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from fleet import autoscaling, capacity, names, pods, store
from fleet.schema import gpus_per_replica

if TYPE_CHECKING:
    from fleet.pods import Manifest
    from fleet.schema import Images, ModelSettings, Placement, Settings, Sku

CONTAINER: Final = "triton"
SCRATCH_MIB: Final = 256
MILLISECONDS: Final = 1000

ENDPOINTS_S: Final = 5
"""A pod that stops gets new connections until each node has taken its address out of the Service."""
GRPC_CONNECTION_AGE_S: Final = 10
"""After this Triton has a gRPC client open a new connection, which costs no request; calls in flight end on the old.
Without it a client keeps the one that it has, and Triton fails each call on it from the moment it is told to stop."""
GRPC_AGE_JITTER: Final = 1.1
"""gRPC lengthens an age by up to a tenth: https://github.com/grpc/proposal/blob/master/A9-server-side-conn-mgt.md"""
PRE_STOP_S: Final = ENDPOINTS_S + math.ceil(GRPC_CONNECTION_AGE_S * GRPC_AGE_JITTER)
"""From the order to stop until Triton hears of it: nobody opens a connection any more, and gRPC's have all ended."""
GRACE_MARGIN_S: Final = 15
"""Between Triton's own exit timeout and the kill: unloading the backends, which Triton does after the last request."""

STARTUP_PERIOD_S: Final = 2
READINESS_PERIOD_S: Final = 2
READINESS_FAILURES: Final = 3
LIVENESS_PERIOD_S: Final = 10
LIVENESS_FAILURES: Final = 6
PROBE_TIMEOUT_S: Final = 5
HUNG_GRACE_S: Final = 10
"""From the order to stop until the kill of a server that did not answer for a minute: it drains nothing any more, and
what waits before it is told, and is cut short, would wait for nobody."""

SCHEDULING_ALLOWANCE_S: Final = 60
"""From a pod's creation to its container's start where the image is on the node: scheduling, mounts, the sandbox."""
PULL_ALLOWANCE_S: Final = {"IfNotPresent": 1200, "Never": 0}
"""By pull policy: images of Triton with TensorRT-LLM hold 15 to 20 GB, which a node pulls in 10 to 20 minutes."""

HISTORY: Final = 3
"""Old ReplicaSets kept. Their models stay in the store, so an undo by hand works."""


@dataclass(frozen=True, slots=True)
class Rollout:
    """How a Deployment replaces its pods. Both zero would stand still and is never made."""

    surge: int
    unavailable: int


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds that a Deployment is given, each derived from the model's settings so that none contradicts another."""

    startup_failures: int
    """Failures of the start-up probe, one each `STARTUP_PERIOD_S`, before a pod is restarted."""
    progress_deadline_s: int
    """From one pod's progress to the next."""
    rollout_s: int
    """Until all replicas are replaced, one after the other."""
    drain_s: int
    """Triton's own exit timeout."""
    grace_s: int
    """From the order to stop until the kill."""


def rollout(settings: Settings, model: ModelSettings, sku: Sku) -> Rollout:
    """Surge 1 where a GPU is spare, else one pod less: never a wait for a GPU that no pod gives up."""
    if capacity.surge_fits(settings.models, sku, model.name):
        return Rollout(surge=1, unavailable=0)
    return Rollout(surge=0, unavailable=1)


def grace_s(model: ModelSettings) -> int:
    """Seconds from the order to stop until the kill: the wait for endpoints, the drain, and the rest."""
    return PRE_STOP_S + model.drain_timeout_s + GRACE_MARGIN_S


def longest_grace_s(settings: Settings) -> int:
    """Seconds in which every replica has stopped, whatever model it serves."""
    return max(grace_s(model) for model in settings.models)


def timing(model: ModelSettings, placement: Placement, images: Images) -> Timing:
    """The time-outs of a Deployment, each at least what happens inside it can take."""
    startup_failures = math.ceil(model.load_timeout_s / STARTUP_PERIOD_S)
    grace = grace_s(model)
    progress_s = (
        startup_failures * STARTUP_PERIOD_S + grace + SCHEDULING_ALLOWANCE_S + PULL_ALLOWANCE_S[images.pull_policy]
    )
    return Timing(
        startup_failures=startup_failures,
        progress_deadline_s=progress_s,
        rollout_s=placement.replicas.max * progress_s,
        drain_s=model.drain_timeout_s,
        grace_s=grace,
    )


def triton_command(model: ModelSettings, digest: str) -> list[str]:
    """Triton's command line: the one model of the one digest, loaded before the ports open; without it Triton exits."""
    return [
        "tritonserver",
        f"--model-repository={store.repository_path(model.name, digest)}",
        "--model-control-mode=explicit",
        f"--load-model={model.name}",
        "--exit-on-error=true",
        "--strict-readiness=true",
        f"--exit-timeout-secs={model.drain_timeout_s}",
        f"--http-port={names.PORT_HTTP}",
        f"--grpc-port={names.PORT_GRPC}",
        f"--grpc-max-connection-age={GRPC_CONNECTION_AGE_S * MILLISECONDS}",
        f"--metrics-port={names.PORT_METRICS}",
    ]


def node_labels(sku: Sku) -> dict[str, str]:
    """Labels that a node of the SKU has."""
    product = {} if sku.gpu_product is None else {names.NODE_GPU_PRODUCT_LABEL: sku.gpu_product}
    return {**sku.labels, **product}


def affinity(sku: Sku) -> Manifest:
    """Binds a pod to the nodes of its SKU."""
    expressions = [{"key": key, "operator": "In", "values": [value]} for key, value in sorted(node_labels(sku).items())]
    if not expressions:
        return {}
    required = {"nodeSelectorTerms": [{"matchExpressions": expressions}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}


def tolerations(sku: Sku) -> list[Manifest]:
    """Tolerates each taint of the SKU's nodes, and no other."""
    return [pods.toleration(taint) for taint in sku.taints]


def resources(model: ModelSettings, sku: Sku) -> Manifest:
    """What a replica asks for. No limit on CPU: a throttled server answers late while its node idles."""
    gpus = gpus_per_replica(model, sku)
    fixed = {"memory": model.resources.memory_quantity, **({names.GPU_RESOURCE: str(gpus)} if gpus else {})}
    return {"requests": {"cpu": model.resources.cpu_quantity, **fixed}, "limits": fixed}


def _probe(path: str, period_s: int, failures: int) -> Manifest:
    return {
        "httpGet": {"path": path, "port": names.PORT_HTTP_NAME},
        "periodSeconds": period_s,
        "failureThreshold": failures,
        "timeoutSeconds": PROBE_TIMEOUT_S,
    }


def probes(model: ModelSettings, times: Timing) -> Manifest:
    """Start-up and readiness ask for the model itself, liveness only for the server.

    The server's own readiness turns false while any model loads and stays true after the model was unloaded, so neither
    traffic nor a restart may hang on it.
    """
    model_ready = f"/v2/models/{model.name}/ready"
    return {
        "startupProbe": _probe(model_ready, STARTUP_PERIOD_S, times.startup_failures),
        "readinessProbe": _probe(model_ready, READINESS_PERIOD_S, READINESS_FAILURES),
        "livenessProbe": {
            **_probe("/v2/health/live", LIVENESS_PERIOD_S, LIVENESS_FAILURES),
            "terminationGracePeriodSeconds": HUNG_GRACE_S,
        },
    }


def _ports() -> list[tuple[str, int]]:
    return [
        (names.PORT_HTTP_NAME, names.PORT_HTTP),
        (names.PORT_GRPC_NAME, names.PORT_GRPC),
        (names.PORT_METRICS_NAME, names.PORT_METRICS),
    ]


def deployment(settings: Settings, model: ModelSettings, placement: Placement, digest: str) -> Manifest:
    """Triton on one SKU; `digest` names the folder in the store that holds the model's files.

    It says how many replicas there are only where nobody else does (field report B04).
    """
    owner = autoscaling.owner(settings, placement)
    sku = settings.sku(placement.sku)
    times = timing(model, placement, settings.images)
    strategy = rollout(settings, model, sku)
    labels = names.pod_labels(model.name, sku.name)
    tmp_volume, tmp_mount = pods.scratch(SCRATCH_MIB)
    shm_volume, shm_mount = pods.shared_memory(model.shm_mib)
    store_volume, store_mount = pods.store_volume(store.claim_name(settings), writable=False)
    container = {
        "name": CONTAINER,
        "image": settings.images.triton,
        "imagePullPolicy": settings.images.pull_policy,
        "command": triton_command(model, digest),
        "env": [{"name": "HOME", "value": pods.TMP_MOUNT}],
        "ports": [{"name": name, "containerPort": port, "protocol": "TCP"} for name, port in _ports()],
        "resources": resources(model, sku),
        **probes(model, times),
        "lifecycle": {"preStop": {"sleep": {"seconds": PRE_STOP_S}}},
        "securityContext": pods.container_security(),
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [store_mount, shm_mount, tmp_mount],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": pods.metadata(
            names.deployment_name(model.name, sku.name),
            settings.serving.namespace,
            labels,
            annotations={names.ANNOTATION_REPLICAS: owner},
        ),
        "spec": {
            **({"replicas": placement.replicas.min} if owner == "settings" else {}),
            "revisionHistoryLimit": HISTORY,
            "progressDeadlineSeconds": times.progress_deadline_s,
            "strategy": {
                "type": "RollingUpdate",
                "rollingUpdate": {"maxSurge": strategy.surge, "maxUnavailable": strategy.unavailable},
            },
            "selector": {"matchLabels": names.selector(model.name, sku.name)},
            "template": {
                "metadata": {
                    "labels": labels,
                    "annotations": {
                        names.ANNOTATION_MODEL_VERSION: str(model.version),
                        names.ANNOTATION_MODEL_DIGEST: digest,
                    },
                },
                "spec": {
                    **pods.pod_defaults(settings.serving, settings.images),
                    "affinity": affinity(sku),
                    "tolerations": tolerations(sku),
                    "topologySpreadConstraints": [
                        {
                            "maxSkew": 1,
                            "topologyKey": "kubernetes.io/hostname",
                            "whenUnsatisfiable": "ScheduleAnyway",
                            "labelSelector": {"matchLabels": names.selector(model.name, sku.name)},
                        }
                    ],
                    "terminationGracePeriodSeconds": times.grace_s,
                    "containers": [container],
                    "volumes": [store_volume, shm_volume, tmp_volume],
                },
            },
        },
    }


def _service_labels(model: ModelSettings, name: str) -> dict[str, str]:
    return {**pods.labels("service", name), names.LABEL_MODEL: model.name}


def service(settings: Settings, model: ModelSettings) -> Manifest:
    """The one address of a model, whatever SKU answers."""
    name = names.service_name(model.name)
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": pods.metadata(name, settings.serving.namespace, _service_labels(model, name)),
        "spec": {
            "type": "ClusterIP",
            "selector": names.model_selector(model.name),
            "ports": [
                {"name": port, "port": number, "targetPort": port, "protocol": "TCP"} for port, number in _ports()
            ],
        },
    }


def headless_service(settings: Settings, model: ModelSettings) -> Manifest:
    """A name that resolves to each ready replica, for clients that balance by themselves and for verification."""
    name = names.headless_name(model.name)
    shared = service(settings, model)
    return {
        **shared,
        "metadata": pods.metadata(name, settings.serving.namespace, _service_labels(model, name)),
        "spec": {**shared["spec"], "clusterIP": "None"},
    }


def disruption_budget(settings: Settings, model: ModelSettings) -> Manifest:
    """Maintenance takes one replica of the model at a time, on whatever SKU; a broken one may always go."""
    name = names.service_name(model.name)
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": pods.metadata(name, settings.serving.namespace, _service_labels(model, name)),
        "spec": {
            "maxUnavailable": 1,
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
            "selector": {"matchLabels": names.model_selector(model.name)},
        },
    }
