"""Monitoring: which charts, how their objects are named, and with which values they are installed.

Names are those that the upstream charts give. They follow the release's name and nothing else, so other parts can name
an object of monitoring before it exists, and where the cluster has its own. Values are those of the upstream charts in
both sets of versions; keys were read in their `values.yaml` and templates (fleet/catalog/charts.yaml says where).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from fleet import alert_routing, aws_names, names, pods

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fleet.pods import Manifest
    from fleet.schema import Cluster, Settings
    from fleet.schema_observe import Monitoring

STACK: Final = "kube-prometheus-stack"
ADAPTER: Final = "prometheus-adapter"
METRICS_SERVER: Final = "metrics-server"
"""Charts, and the last two also releases."""
STACK_NAME_MAX_CHARS: Final = 26
"""The chart cuts the names of its objects there (its helper `kube-prometheus-stack.fullname`), since the operator adds
to them."""
PORT_PROMETHEUS: Final = 9090
PORT_ALERTMANAGER: Final = 9093
PORT_GRAFANA: Final = 80

GRAFANA_SECRET: Final = "triton-fleet-grafana"  # noqa: S105 - the name of a Secret
GRAFANA_USER: Final = "admin"
GRAFANA_USER_KEY: Final = "admin-user"
GRAFANA_PASSWORD_KEY: Final = "admin-password"  # noqa: S105 - a key in the Secret
STORAGE_CLASS: Final = "triton-fleet-gp3"

CLUSTER_SCRAPE_INTERVAL_S: Final = 30
"""Of all that is not Triton's. Not below Grafana's scrape time-out, which the chart sets to 30 s: the operator refuses
a monitor whose time-out is longer than its interval."""
RETENTION_SHARE: Final = 0.85
"""Part of the disk that series may fill; the rest is for the write-ahead log and compaction:
https://prometheus.io/docs/prometheus/latest/storage/#right-sizing-retention-size"""
ALERTMANAGER_STORAGE_GIB: Final = 1
"""The smallest volume of EBS; silences and what was told are a few KiB."""
METRICS_MAX_AGE_RELISTS: Final = 2
"""A series that one listing missed stays until the next."""
BUSYBOX: Final = "1.37.0"
"""Unpacks the definitions for the chart's upgrade Job, whose default is `latest`."""
UNSEEN_PARTS: Final = ("kubeControllerManager", "kubeScheduler", "kubeEtcd", "kubeProxy")
"""What no pod of the cluster can scrape where somebody else runs the control plane (EKS among them), and kube-proxy,
which serves its metrics to its own node alone. Monitored, each raises an alert for ever."""

RESOURCES: Final[Mapping[str, tuple[str, str, str]]] = {
    "prometheus-operator": ("50m", "64Mi", "256Mi"),
    "alertmanager": ("20m", "64Mi", "256Mi"),
    "grafana": ("50m", "128Mi", "512Mi"),
    "kube-state-metrics": ("20m", "64Mi", "512Mi"),
    "node-exporter": ("10m", "32Mi", "128Mi"),
    "prometheus-adapter": ("50m", "96Mi", "512Mi"),
    "metrics-server": ("50m", "96Mi", "512Mi"),
}
"""CPU and memory that each asks for, and the memory that ends it. No limit of CPU: what is slow is not monitored."""
PROMETHEUS_CPU: Final = "250m"


def stack_name(monitoring: Monitoring) -> str:
    """What the names of the release's objects begin with, as the chart makes it of the release's name."""
    release = monitoring.release
    full = release if STACK in release else f"{release}-{STACK}"
    return full[:STACK_NAME_MAX_CHARS].removesuffix("-")


def prometheus_service(monitoring: Monitoring) -> str:
    return f"{stack_name(monitoring)}-prometheus"


def alertmanager_service(monitoring: Monitoring) -> str:
    return f"{stack_name(monitoring)}-alertmanager"


def grafana_service(monitoring: Monitoring) -> str:
    """Service and Deployment; without a password from the settings also the Secret that holds the chart's own."""
    return f"{monitoring.release}-grafana"


def prometheus_url(monitoring: Monitoring) -> str:
    """Where Prometheus answers inside the cluster; without a path (field report B25)."""
    return f"{_host_url(prometheus_service(monitoring), monitoring)}:{PORT_PROMETHEUS}"


def alertmanager_url(monitoring: Monitoring) -> str:
    """Where Alertmanager answers inside the cluster."""
    return f"{_host_url(alertmanager_service(monitoring), monitoring)}:{PORT_ALERTMANAGER}"


def _host_url(service: str, monitoring: Monitoring) -> str:
    return f"http://{names.service_host(service, monitoring.namespace)}"


def monitor_labels(monitoring: Monitoring) -> dict[str, str]:
    """What each ServiceMonitor, PodMonitor and PrometheusRule carries, or Prometheus does not take it (B02)."""
    return {"release": monitoring.release}


def has_grafana(monitoring: Monitoring) -> bool:
    return monitoring.kube_prometheus_stack and monitoring.grafana


def namespace(settings: Settings) -> Manifest:
    """Namespace of monitoring. It restricts nothing: exporters of nodes and GPUs look at the node itself."""
    levels = {"pod-security.kubernetes.io/enforce": "privileged"}
    name = settings.monitoring.namespace
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": pods.metadata(name, None, {**pods.labels("monitoring", name), **levels}),
    }


def grafana_secret(settings: Settings) -> Manifest | None:
    """The Secret with Grafana's user and password; None where the chart makes its own."""
    monitoring = settings.monitoring
    if not has_grafana(monitoring) or monitoring.grafana_password is None:
        return None
    return secret(
        settings,
        GRAFANA_SECRET,
        {
            GRAFANA_USER_KEY: GRAFANA_USER,
            GRAFANA_PASSWORD_KEY: monitoring.grafana_password.get_secret_value(),
        },
    )


def receivers_secret(settings: Settings) -> Manifest | None:
    """The Secret with what Alertmanager's receivers are reached by; None where nobody is told."""
    files = alert_routing.secrets(settings)
    if not settings.monitoring.kube_prometheus_stack or not files:
        return None
    texts = {name: text.get_secret_value() for name, text in files.items()}
    return secret(settings, alert_routing.SECRET, texts)


def secret(settings: Settings, name: str, texts: Mapping[str, str]) -> Manifest:
    """A Secret in the namespace of monitoring."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": pods.metadata(name, settings.monitoring.namespace, pods.labels("monitoring", name)),
        "type": "Opaque",
        "stringData": dict(texts),
    }


def storage_class(settings: Settings) -> Manifest | None:
    """The class that Prometheus' disk is made by, where the stack makes the cluster and the settings name no class.

    Zones: a disk is made where its pod is. https://github.com/kubernetes-sigs/aws-ebs-csi-driver/blob/master/docs/parameters.md
    """
    if not needs_ebs(settings.cluster, settings.monitoring):
        return None
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": pods.metadata(STORAGE_CLASS, None, pods.labels("monitoring", STORAGE_CLASS)),
        "provisioner": "ebs.csi.aws.com",
        "parameters": {"type": "gp3", "encrypted": "true"},
        "volumeBindingMode": "WaitForFirstConsumer",
        "reclaimPolicy": "Delete",
        "allowVolumeExpansion": True,
    }


def needs_ebs(cluster: Cluster, monitoring: Monitoring) -> bool:
    """Whether the stack brings what makes disks of EBS: on a cluster of its own, for a disk of no other class."""
    storage = monitoring.storage
    return (
        cluster.source == "eks"
        and monitoring.kube_prometheus_stack
        and storage is not None
        and storage.storage_class is None
    )


def stack_values(settings: Settings) -> dict[str, Any]:
    """Values of kube-prometheus-stack."""
    monitoring = settings.monitoring
    values: dict[str, Any] = {
        # Without a label `environment`: they are about the cluster, and nobody is told (docs/alerts.md).
        "defaultRules": {"create": True},
        "prometheusOperator": {
            **_pods("prometheus-operator", settings),
            "admissionWebhooks": {"patch": where(settings)},
        },
        "prometheus": {"prometheusSpec": _prometheus(settings)},
        "alertmanager": _alertmanager(settings),
        "grafana": _grafana(settings),
        "kube-state-metrics": _pods("kube-state-metrics", settings),
        "prometheus-node-exporter": {
            # Every node, whatever it is tainted with.
            "tolerations": [{"operator": "Exists"}],
            "resources": _resources("node-exporter"),
        },
        **{part: {"enabled": False} for part in UNSEEN_PARTS},
    }
    if settings.charts.compat == "current":
        values["crds"] = {"upgradeJob": _definitions_upgrade(settings)}
    if monitoring.storage is not None:
        values["prometheus"]["prometheusSpec"] |= {
            "retentionSize": f"{round(monitoring.storage.size_gib * 1024 * RETENTION_SHARE)}MiB",
            "storageSpec": _claim(settings, monitoring.storage.size_gib),
        }
        values["alertmanager"]["alertmanagerSpec"]["storage"] = _claim(settings, ALERTMANAGER_STORAGE_GIB)
    return values


def _definitions_upgrade(settings: Settings) -> dict[str, Any]:
    """Helm never changes a custom resource definition that is there; this Job of the chart does, before each upgrade.

    The definitions were made by Helm, so the Job, which applies them on the server, takes their fields over by force.
    The guide's version of the chart has no such Job.
    """
    return {
        "enabled": True,
        "forceConflicts": True,
        "image": {"busybox": {"tag": BUSYBOX}},
        **where(settings),
    }


def _prometheus(settings: Settings) -> dict[str, Any]:
    monitoring = settings.monitoring
    memory = f"{monitoring.prometheus_memory_mib}Mi"
    ours = {"matchLabels": monitor_labels(monitoring)}
    return {
        **where(settings),
        "resources": {"requests": {"cpu": PROMETHEUS_CPU, "memory": memory}, "limits": {"memory": memory}},
        "scrapeInterval": f"{CLUSTER_SCRAPE_INTERVAL_S}s",
        "evaluationInterval": f"{monitoring.evaluation_interval_s}s",
        "retention": f"{monitoring.retention_days}d",
        # From every namespace, which is the chart's default.
        "serviceMonitorSelector": ours,
        "podMonitorSelector": ours,
        "probeSelector": ours,
        "scrapeConfigSelector": ours,
        "ruleSelector": ours,
    }


def _alertmanager(settings: Settings) -> dict[str, Any]:
    """Its configuration is ours alone: no AlertmanagerConfig of another namespace adds a receiver."""
    spec: dict[str, Any] = {
        **_pods("alertmanager", settings),
        "retention": alert_routing.RETENTION,
        "alertmanagerConfigSelector": {"matchLabels": monitor_labels(settings.monitoring)},
    }
    if receivers_secret(settings) is not None:
        spec["secrets"] = [alert_routing.SECRET]
    if settings.charts.compat == "guide":
        spec["image"] = {"tag": alert_routing.ALERTMANAGER_MIN}
    return {"config": alert_routing.config(settings), "alertmanagerSpec": spec}


def _grafana(settings: Settings) -> dict[str, Any]:
    monitoring = settings.monitoring
    if not monitoring.grafana:
        return {"enabled": False}
    values: dict[str, Any] = {
        "enabled": True,
        **_pods("grafana", settings),
        "serviceMonitor": {"labels": monitor_labels(monitoring)},
    }
    if monitoring.grafana_password is not None:
        values["admin"] = {
            "existingSecret": GRAFANA_SECRET,
            "userKey": GRAFANA_USER_KEY,
            "passwordKey": GRAFANA_PASSWORD_KEY,
        }
    return values


def adapter_values(settings: Settings) -> dict[str, Any]:
    """Values of prometheus-adapter.

    One rule, and none of the chart's, which would expose every series with a namespace: a series of ours has one sample
    per pod, under its own name (field report B24). Where two Prometheus replicas each have one, the higher counts.
    """
    monitoring = settings.monitoring
    relist = monitoring.relist_interval_s
    return {
        **_pods("prometheus-adapter", settings),
        "prometheus": {
            "url": _host_url(prometheus_service(monitoring), monitoring),
            "port": PORT_PROMETHEUS,
            "path": "",
        },
        "metricsRelistInterval": f"{relist}s",
        "extraArguments": [f"--metrics-max-age={relist * METRICS_MAX_AGE_RELISTS}s"],
        "customLabels": {names.LABEL_PART_OF: names.PART_OF},
        "rules": {
            "default": False,
            "custom": [
                {
                    "seriesQuery": '{__name__=~"^triton:.*",namespace!="",pod!=""}',
                    "resources": {
                        "overrides": {"namespace": {"resource": "namespace"}, "pod": {"resource": "pod"}},
                    },
                    "metricsQuery": "max(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)",
                }
            ],
        },
    }


def metrics_server_values(settings: Settings) -> dict[str, Any]:
    """Values of metrics-server."""
    return _pods("metrics-server", settings)


def _pods(program: str, settings: Settings) -> dict[str, Any]:
    return {**where(settings), "resources": _resources(program)}


def _resources(program: str) -> dict[str, Any]:
    cpu, memory, limit = RESOURCES[program]
    return {"requests": {"cpu": cpu, "memory": memory}, "limits": {"memory": limit}}


def where(settings: Settings) -> dict[str, Any]:
    """The nodes that monitoring's pods belong on. What nobody tolerates keeps them off the GPUs' nodes."""
    monitoring = settings.monitoring
    selector = dict(monitoring.node_selector)
    if not selector and settings.cluster.source == "eks":
        selector = {aws_names.NODE_ROLE_LABEL: aws_names.NODE_ROLE_SYSTEM}
    found: dict[str, Any] = {"nodeSelector": selector} if selector else {}
    if monitoring.tolerations:
        found["tolerations"] = [pods.toleration(taint) for taint in monitoring.tolerations]
    return found


def _claim(settings: Settings, size_gib: int) -> dict[str, Any]:
    storage = settings.monitoring.storage
    named = storage.storage_class if storage is not None else None
    chosen = named or (STORAGE_CLASS if needs_ebs(settings.cluster, settings.monitoring) else None)
    return {
        "volumeClaimTemplate": {
            "spec": {
                **({"storageClassName": chosen} if chosen else {}),
                "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": f"{size_gib}Gi"}},
            }
        }
    }
