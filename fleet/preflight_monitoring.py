"""Rules between the settings of monitoring: intervals that fit each other, names, and what would do nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fleet import aws_addons, gpu_stack, names
from fleet import monitoring as decided
from fleet.faults import Fault, shown
from fleet.schema_observe import WINDOW_MIN_SCRAPES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fleet.preflight import Draft
    from fleet.schema import Charts, Settings
    from fleet.schema_observe import Monitoring

RELEASE_MAX_CHARS: Final = 53
"""Of a release's name, in Helm's `chartutil.ValidateReleaseName`."""
RELEASES: Final = frozenset({decided.ADAPTER, decided.METRICS_SERVER, "dcgm-exporter"})
"""Other releases, which may be in the same namespace."""


def refusals(draft: Draft) -> Iterator[Fault]:
    """What could not be installed, or would not do as it is meant."""
    monitoring = draft.monitoring
    if monitoring is None:
        return
    yield from _intervals(monitoring)
    yield from _release(monitoring)
    yield from _namespace(monitoring, draft.namespace)
    yield from _grafana(monitoring, draft.charts)
    yield from _storage(draft, monitoring)


def left_out(settings: Settings) -> Iterator[Fault]:
    """What nobody brings to a cluster that the stack makes: the first update finds nothing there but its own."""
    if settings.cluster.source != "eks":
        return
    monitoring, gpus = settings.monitoring, settings.gpu_stack
    scaled = any(placement.autoscaled for model in settings.models for placement in model.placements)
    keda, with_gpus = settings.autoscaling.engine == "keda", bool(gpu_stack.gpu_skus(settings))
    parts = (
        (not monitoring.kube_prometheus_stack, "monitoring.kube_prometheus_stack", "the kinds PodMonitor and the like"),
        (scaled and keda, "autoscaling.engine", "KEDA and its kind ScaledObject"),
        (
            scaled and not keda and not monitoring.prometheus_adapter,
            "monitoring.prometheus_adapter",
            "the API of custom metrics that autoscalers read",
        ),
        (
            with_gpus and gpus.device_plugin and not gpus.node_feature_discovery,
            "gpu_stack.node_feature_discovery",
            "the kind NodeFeature, in which the products of GPUs are told",
        ),
        (with_gpus and not gpus.device_plugin, "gpu_stack.device_plugin", "what offers GPUs and tells their products"),
    )
    for missing, setting, what in parts:
        if missing:
            got = "keda" if setting == "autoscaling.engine" else "false"
            yield Fault(
                setting,
                f"{got}, on a cluster that the stack makes",
                "what the stack installs, or a cluster that has it",
                f"the first update finds nothing else there: it lacks {what}, and fails or waits in vain",
                "leave it out, or install it as soon as the cluster is there, and run the update again",
            )


def _intervals(monitoring: Monitoring) -> Iterator[Fault]:
    """Field report B23: a series that comes and goes makes autoscaling flip between a value and none."""
    scrape, window = monitoring.scrape_interval_s, monitoring.rate_window_s
    if window < WINDOW_MIN_SCRAPES * scrape:
        yield Fault(
            "monitoring.rate_window_s",
            str(window),
            f"at least {WINDOW_MIN_SCRAPES * scrape}: {WINDOW_MIN_SCRAPES} times monitoring.scrape_interval_s",
            "a rate needs two samples in its window, also when a scrape or two were missed",
            "widen rate_window_s or lower scrape_interval_s",
        )
    for setting, seconds, done in (
        ("scrape_interval_s", scrape, "scraped"),
        ("evaluation_interval_s", monitoring.evaluation_interval_s, "made"),
    ):
        if monitoring.relist_interval_s < seconds:
            yield Fault(
                "monitoring.relist_interval_s",
                str(monitoring.relist_interval_s),
                f"at least monitoring.{setting}, which is {seconds}",
                f"prometheus-adapter drops a series that was not {done} since it last listed series, and autoscaling "
                "is blind until the next time",
                f"raise relist_interval_s or lower {setting}",
            )


def _release(monitoring: Monitoring) -> Iterator[Fault]:
    if len(monitoring.release) > RELEASE_MAX_CHARS:
        yield Fault(
            "monitoring.release",
            shown(monitoring.release),
            f"at most {RELEASE_MAX_CHARS} characters",
            "Helm accepts no longer name of a release",
            "choose a shorter name",
        )
    if monitoring.release in RELEASES:
        yield Fault(
            "monitoring.release",
            shown(monitoring.release),
            f"a name other than {', '.join(sorted(RELEASES))}",
            "the stack has a release of that name",
            "choose another name",
        )


def _namespace(monitoring: Monitoring, serving: str | None) -> Iterator[Fault]:
    if not monitoring.kube_prometheus_stack:
        return
    if monitoring.namespace == "default" or monitoring.namespace.startswith("kube-"):
        yield Fault(
            "monitoring.namespace",
            shown(monitoring.namespace),
            "a namespace of its own, not default or kube-…",
            "the stack makes it, and takes it away when it goes",
            f"leave it out for {names.NAMESPACE_MONITORING}, or name a namespace that nothing else uses",
        )
    if monitoring.namespace == serving:
        yield Fault(
            "monitoring.namespace",
            shown(monitoring.namespace),
            "another namespace than serving.namespace",
            "the serving namespace admits restricted pods only and denies all traffic that it does not name; exporters "
            "of nodes and GPUs could not run there",
            "name another namespace",
        )


def _grafana(monitoring: Monitoring, charts: Charts | None) -> Iterator[Fault]:
    there = decided.has_grafana(monitoring)
    if monitoring.grafana_password is not None and not there:
        yield Fault(
            "monitoring.grafana_password",
            "a text, not shown",
            "nothing, where the stack installs no Grafana",
            "nobody would use it",
            "remove it, or set monitoring.kube_prometheus_stack and monitoring.grafana",
        )
    if charts is not None and charts.compat == "guide" and there and monitoring.grafana_password is None:
        yield Fault(
            "monitoring.grafana_password",
            "nothing",
            "a password, where charts.compat is guide",
            "that version of the chart has a password that everybody knows",
            f"run `pulumi config set --secret --path '{names.CONFIG_NAMESPACE}:monitoring.grafana_password'`",
        )


def _storage(draft: Draft, monitoring: Monitoring) -> Iterator[Fault]:
    if monitoring.storage is None:
        return
    if not monitoring.kube_prometheus_stack:
        yield Fault(
            "monitoring.storage",
            f"{monitoring.storage.size_gib} GiB",
            "nothing, where monitoring.kube_prometheus_stack is false",
            "the Prometheus of this cluster is another's, and keeps its own disk",
            "remove it",
        )
    cluster = draft.cluster
    if cluster is None or cluster.source != "eks" or not decided.needs_ebs(cluster, monitoring):
        return
    if aws_addons.EBS_DRIVER not in {**aws_addons.VERSIONS.get(cluster.kubernetes_version, {}), **cluster.addons}:
        yield Fault(
            "monitoring.storage",
            f"{monitoring.storage.size_gib} GiB, with cluster.kubernetes_version {cluster.kubernetes_version}",
            f"a version of {aws_addons.EBS_DRIVER} in cluster.addons, or a storage_class",
            "that add-on makes the disk, and no version of it is pinned for this Kubernetes",
            f"name one: `aws eks describe-addon-versions --addon-name {aws_addons.EBS_DRIVER} --kubernetes-version "
            f"{cluster.kubernetes_version}` lists them",
        )
