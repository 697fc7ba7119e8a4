"""What makes GPUs visible to Kubernetes: which releases, and with which values.

Node feature discovery (NFD) labels nodes, NVIDIA's device plugin offers GPUs, GPU feature discovery (GFD, part of the
plugin's chart) tells their product, DCGM exporter measures them. Tolerations and affinities follow the SKUs' taints and
labels, so that each runs on all GPU nodes and none on others. A fleet without a GPU has none of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from fleet import monitoring, names, pods

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fleet.pods import Manifest
    from fleet.schema import Settings, Sku

NFD: Final = "node-feature-discovery"
DEVICE_PLUGIN: Final = "nvidia-device-plugin"
DCGM_EXPORTER: Final = "dcgm-exporter"
"""Charts, and releases of the same names: the names of their objects then begin with these alone."""

NFD_WORKER_DAEMON_SET: Final = f"{NFD}-worker"
DEVICE_PLUGIN_DAEMON_SET: Final = DEVICE_PLUGIN
GFD_DAEMON_SET: Final = f"{DEVICE_PLUGIN}-gpu-feature-discovery"
DCGM_DAEMON_SET: Final = DCGM_EXPORTER

SCRAPE_INTERVAL_S: Final = 15
SCRAPE_TIMEOUT_S: Final = 10
"""The operator refuses a monitor whose time-out is longer than its interval."""
COLLECT_INTERVAL_MS: Final = 10_000
"""A scrape then finds a measurement of its own; the exporter's default is 30 s."""

Resources = tuple[str, str, str]
"""CPU and memory that a container asks for, and the memory that ends it."""
RESOURCES: Final[Mapping[str, Resources]] = {
    "master": ("20m", "64Mi", "512Mi"),
    "worker": ("10m", "48Mi", "256Mi"),
    "gc": ("10m", "32Mi", "256Mi"),
    DEVICE_PLUGIN: ("10m", "48Mi", "256Mi"),
    # Profiling eight GPUs takes more than the chart's 512 MiB; the guide gives 1 GiB.
    DCGM_EXPORTER: ("20m", "128Mi", "1Gi"),
}

DCGM_FIELDS: Final[Mapping[str, tuple[str, str]]] = {
    "DCGM_FI_DEV_SM_CLOCK": ("gauge", "clock of the multiprocessors in MHz"),
    "DCGM_FI_DEV_MEM_CLOCK": ("gauge", "clock of the memory in MHz"),
    "DCGM_FI_DEV_MEMORY_TEMP": ("gauge", "temperature of the memory in degrees Celsius"),
    "DCGM_FI_DEV_GPU_TEMP": ("gauge", "temperature of the GPU in degrees Celsius"),
    "DCGM_FI_DEV_POWER_USAGE": ("gauge", "power drawn in W"),
    "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": ("counter", "energy used since boot in mJ"),
    "DCGM_FI_DEV_PCIE_REPLAY_COUNTER": ("counter", "retries on the PCIe bus"),
    "DCGM_FI_DEV_GPU_UTIL": ("gauge", "time in which a kernel ran in percent"),
    "DCGM_FI_DEV_MEM_COPY_UTIL": ("gauge", "time in which memory was read or written in percent"),
    "DCGM_FI_DEV_XID_ERRORS": ("gauge", "number of the last XID error"),
    "DCGM_FI_DEV_FB_FREE": ("gauge", "memory that is free in MiB"),
    "DCGM_FI_DEV_FB_USED": ("gauge", "memory that is used in MiB"),
    "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL": ("counter", "single-bit errors since the driver was loaded"),
    "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL": ("counter", "double-bit errors since the driver was loaded"),
    "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS": ("counter", "rows remapped after uncorrectable errors"),
    "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS": ("counter", "rows remapped after correctable errors"),
    "DCGM_FI_DEV_ROW_REMAP_FAILURE": ("gauge", "whether a row could not be remapped"),
    "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL": ("counter", "traffic of all NVLinks"),
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE": ("gauge", "time in which the engine was active as a ratio"),
    "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": ("gauge", "cycles in which the tensor cores were active as a ratio"),
    "DCGM_FI_PROF_DRAM_ACTIVE": ("gauge", "cycles in which the memory was active as a ratio"),
    "DCGM_FI_PROF_PCIE_TX_BYTES": ("gauge", "sent over PCIe in bytes per second"),
    "DCGM_FI_PROF_PCIE_RX_BYTES": ("gauge", "received over PCIe in bytes per second"),
}
"""What is exported, by https://docs.nvidia.com/datacenter/dcgm/latest/dcgm-api/dcgm-api-field-ids.html: the chart's own
list, without what serving has no use for, with the ECC errors that it leaves out. Help texts have no comma, which ends
a column in the exporter's file."""


def gpu_skus(settings: Settings) -> list[Sku]:
    """The SKUs whose nodes have GPUs."""
    return [sku for sku in settings.skus if sku.gpus_per_node]


def daemon_sets(settings: Settings) -> list[tuple[str, str]]:
    """Namespace and name of each DaemonSet that has a pod on every GPU node; those of parts that are installed."""
    stack = settings.gpu_stack
    if not gpu_skus(settings):
        return []
    found = []
    if stack.node_feature_discovery:
        found.append((names.NAMESPACE_SYSTEM, NFD_WORKER_DAEMON_SET))
    if stack.device_plugin:
        found += [(names.NAMESPACE_SYSTEM, DEVICE_PLUGIN_DAEMON_SET), (names.NAMESPACE_SYSTEM, GFD_DAEMON_SET)]
    if stack.dcgm_exporter:
        found.append((settings.monitoring.namespace, DCGM_DAEMON_SET))
    return found


def tolerations(settings: Settings) -> list[Manifest]:
    """One for each taint that some GPU SKU's nodes have, and no others."""
    found: list[Manifest] = []
    for sku in gpu_skus(settings):
        for taint in sku.taints:
            one = pods.toleration(taint)
            if one not in found:
                found.append(one)
    return found


def affinity(settings: Settings) -> Manifest:
    """Binds a pod to GPU nodes, by a label that all GPU SKUs' nodes have from the start (B27, B28)."""
    values = sorted({sku.labels[names.NODE_GPU_PRESENT_LABEL] for sku in gpu_skus(settings)})
    expression = {"key": names.NODE_GPU_PRESENT_LABEL, "operator": "In", "values": values}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}


def nfd_values(settings: Settings) -> dict[str, Any]:
    """Values of node feature discovery.

    PCI devices are labelled by vendor alone, which gives `feature.node.kubernetes.io/pci-10de.present`: the form that
    NVIDIA's charts select, and not NFD's own default (B28). Workers run on all nodes without a taint and on all GPU
    nodes; master and garbage collector need no GPU node and run where monitoring does.
    """
    return {
        "master": {**monitoring.where(settings), **_limited("master")},
        "gc": {**monitoring.where(settings), **_limited("gc")},
        "worker": {
            "config": {"sources": {"pci": {"deviceLabelFields": ["vendor"]}}},
            "tolerations": tolerations(settings),
            **_limited("worker"),
        },
    }


def device_plugin_values(settings: Settings) -> dict[str, Any]:
    """Values of NVIDIA's device plugin, with GPU feature discovery and without the NFD that its chart would bring."""
    return {
        "gfd": {"enabled": True},
        # GFD alone would turn it on.
        "nfd": {"enabled": False},
        "tolerations": tolerations(settings),
        "affinity": affinity(settings),
        **_limited(DEVICE_PLUGIN),
    }


def dcgm_values(settings: Settings) -> dict[str, Any]:
    """Values of DCGM exporter.

    Its series name the pod that holds the GPU in `exported_namespace`, `exported_pod` and `exported_container`, since
    Prometheus keeps the names without `exported_` for the exporter's own pod. They also get the labels `node` and
    `environment`.
    """
    # The guide's version reads its fields from a file in its image; a newer one from the chart's ConfigMap.
    is_guide = settings.charts.compat == "guide"
    fields = "dcp-metrics-included.csv" if is_guide else "default-counters.csv"
    return {
        "arguments": ["-f", f"/etc/dcgm-exporter/{fields}", f"--collect-interval={COLLECT_INTERVAL_MS}"],
        **({} if is_guide else {"customMetrics": counters()}),
        "tolerations": tolerations(settings),
        "affinity": affinity(settings),
        "serviceMonitor": {
            "enabled": True,
            "interval": f"{SCRAPE_INTERVAL_S}s",
            **({} if is_guide else {"scrapeTimeout": f"{SCRAPE_TIMEOUT_S}s"}),
            "honorLabels": False,
            "additionalLabels": monitoring.monitor_labels(settings.monitoring),
            "relabelings": _relabelings(settings.environment),
        },
        **_limited(DCGM_EXPORTER),
    }


def counters() -> str:
    """The fields as DCGM exporter reads them: field, type, help."""
    return "".join(f"{field}, {kind}, {text}\n" for field, (kind, text) in DCGM_FIELDS.items())


def _relabelings(environment: str) -> Sequence[Manifest]:
    return [
        {"action": "replace", "sourceLabels": ["__meta_kubernetes_pod_node_name"], "targetLabel": "node"},
        {"action": "replace", "targetLabel": "environment", "replacement": environment},
    ]


def _limited(part: str) -> dict[str, Any]:
    cpu, memory, limit = RESOURCES[part]
    return {"resources": {"requests": {"cpu": cpu, "memory": memory}, "limits": {"memory": limit}}}
