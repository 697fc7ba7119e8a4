"""The GPU stack: values in full, and that its pods run on all GPU nodes and on none beside."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

from fleet import aws_names, aws_nodes, gpu_stack, settings
from tests.unit import graph

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from fleet.settings import Settings
    from tests.unit.graph import Graph, Registered

STACKS = ("local", "dev", "prod")
GPU_TAINT = {"key": "nvidia.com/gpu", "operator": "Equal", "value": "present", "effect": "NoSchedule"}
GPU_PRESENT = {
    "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [
                {"matchExpressions": [{"key": "nvidia.com/gpu.present", "operator": "In", "values": ["true"]}]}
            ]
        }
    }
}
SYSTEM = {"nodeSelector": {"triton-fleet.io/node-role": "system"}}
RECORD = "local/charts/dcgm-exporter/files/recorded-scrape.txt"


def loaded(project: Path, stack: str, **changes: object) -> Settings:
    return settings.load({**graph.stack_config(project, stack), **changes}, project)


def limited(cpu: str, memory: str, limit: str) -> dict[str, Any]:
    return {"requests": {"cpu": cpu, "memory": memory}, "limits": {"memory": limit}}


def sku(name: str, **changes: object) -> dict[str, object]:
    return {"name": name, "gpu_product": name.upper(), "gpus_per_node": 8, "nodes": {"min": 0, "max": 1}, **changes}


# Values


@pytest.mark.parametrize(("stack", "where"), [("local", {}), ("prod", SYSTEM)])
def test_values_of_node_feature_discovery(project: Path, stack: str, where: dict[str, Any]) -> None:
    assert gpu_stack.nfd_values(loaded(project, stack)) == {
        "master": {**where, "resources": limited("20m", "64Mi", "512Mi")},
        "gc": {**where, "resources": limited("10m", "32Mi", "256Mi")},
        "worker": {
            "config": {"sources": {"pci": {"deviceLabelFields": ["vendor"]}}},
            "tolerations": [GPU_TAINT],
            "resources": limited("10m", "48Mi", "256Mi"),
        },
    }


def test_values_of_the_device_plugin(project: Path) -> None:
    assert gpu_stack.device_plugin_values(loaded(project, "prod")) == {
        "gfd": {"enabled": True},
        "nfd": {"enabled": False},
        "tolerations": [GPU_TAINT],
        "affinity": GPU_PRESENT,
        "resources": limited("10m", "48Mi", "256Mi"),
    }


@pytest.mark.parametrize(
    ("compat", "fields", "only"),
    [
        pytest.param(
            "current",
            "default-counters.csv",
            {"customMetrics": gpu_stack.counters(), "scrapeTimeout": "10s"},
            id="current",
        ),
        pytest.param("guide", "dcp-metrics-included.csv", {}, id="guide"),
    ],
)
def test_values_of_dcgm_exporter(project: Path, compat: str, fields: str, only: dict[str, str]) -> None:
    changed = loaded(
        project, "prod", charts={"compat": compat}, monitoring={"release": "mon2", "grafana_password": "a"}
    )
    monitor = {key: value for key, value in only.items() if key == "scrapeTimeout"}
    assert gpu_stack.dcgm_values(changed) == {
        "arguments": ["-f", f"/etc/dcgm-exporter/{fields}", "--collect-interval=10000"],
        **{key: value for key, value in only.items() if key != "scrapeTimeout"},
        "tolerations": [GPU_TAINT],
        "affinity": GPU_PRESENT,
        "serviceMonitor": {
            "enabled": True,
            "interval": "15s",
            **monitor,
            "honorLabels": False,
            "additionalLabels": {"release": "mon2"},
            "relabelings": [
                {"action": "replace", "sourceLabels": ["__meta_kubernetes_pod_node_name"], "targetLabel": "node"},
                {"action": "replace", "targetLabel": "environment", "replacement": "prod"},
            ],
        },
        "resources": limited("20m", "128Mi", "1Gi"),
    }


def test_a_scrape_ends_before_the_next_one() -> None:
    assert gpu_stack.SCRAPE_TIMEOUT_S <= gpu_stack.SCRAPE_INTERVAL_S
    assert gpu_stack.COLLECT_INTERVAL_MS < gpu_stack.SCRAPE_INTERVAL_S * 1000


def test_the_exporters_file_has_three_columns_a_line() -> None:
    lines = gpu_stack.counters().splitlines()
    assert len(lines) == len(gpu_stack.DCGM_FIELDS)
    assert [
        line for line in lines if not re.fullmatch(r"DCGM_FI_(DEV|PROF)_[A-Z_]+, (gauge|counter), [^,]+", line)
    ] == []


def test_the_record_has_what_is_exported_and_nothing_else(project: Path) -> None:
    text = (project / RECORD).read_text()
    types = dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE))
    assert types == {field: kind for field, (kind, _) in gpu_stack.DCGM_FIELDS.items()}
    samples = re.findall(r'^(\S+)\{gpu="([01])",.*\} [0-9.]+$', text, re.MULTILINE)
    assert samples == [(field, gpu) for field in gpu_stack.DCGM_FIELDS for gpu in "01"]


# Which nodes


def test_each_taint_of_gpu_nodes_is_tolerated_once_and_no_other_b27(project: Path) -> None:
    own = {"key": "team", "value": "a", "effect": "NoExecute"}
    present = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}
    changed = loaded(
        project,
        "local",
        skus=[
            sku("a"),
            sku("b", taints=[own, present]),
            sku("c", taints=[]),
            {"name": "cpu", "nodes": {"min": 1, "max": 1}, "taints": [{"key": "cpu", "effect": "NoSchedule"}]},
        ],
    )
    assert gpu_stack.tolerations(changed) == [
        GPU_TAINT,
        {"key": "team", "operator": "Equal", "value": "a", "effect": "NoExecute"},
    ]


def test_the_affinity_follows_the_labels_that_skus_have(project: Path) -> None:
    changed = loaded(project, "local", skus=[sku("a"), sku("b", labels={"nvidia.com/gpu.present": "yes"})])
    assert gpu_stack.affinity(changed) == {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [
                    {
                        "matchExpressions": [
                            {"key": "nvidia.com/gpu.present", "operator": "In", "values": ["true", "yes"]}
                        ]
                    }
                ]
            }
        }
    }


def matches(affinity: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    """As the scheduler reads required node affinity: any term, of which all expressions."""
    terms = affinity["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    return any(
        all(one["operator"] == "In" and labels.get(one["key"]) in one["values"] for one in term["matchExpressions"])
        for term in terms
    )


@pytest.mark.parametrize("stack", ["dev", "prod"])
def test_it_runs_on_every_gpu_group_and_on_no_other_before_anything_labelled_them_b28(
    project: Path, stack: str
) -> None:
    told = loaded(project, stack)
    cluster = told.cluster
    assert cluster.source == "eks"
    for values in (gpu_stack.device_plugin_values(told), gpu_stack.dcgm_values(told)):
        for one in told.skus:
            for group in aws_nodes.sku_groups(one, "x86_64", 0):
                assert matches(values["affinity"], group.labels)
                assert {(t.key, t.value, t.effect) for t in group.taints} <= {
                    (t["key"], t["value"], t["effect"]) for t in values["tolerations"]
                }
        system = aws_nodes.system_group(cluster.system_nodes, "x86_64")
        assert not matches(values["affinity"], system.labels)
        selector = gpu_stack.nfd_values(told)["master"]["nodeSelector"]
        assert selector.items() <= system.labels.items()
        assert selector[aws_names.NODE_ROLE_LABEL] == aws_names.NODE_ROLE_SYSTEM


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        pytest.param(
            {},
            [
                ("kube-system", "node-feature-discovery-worker"),
                ("kube-system", "nvidia-device-plugin"),
                ("kube-system", "nvidia-device-plugin-gpu-feature-discovery"),
                ("monitoring", "dcgm-exporter"),
            ],
            id="all",
        ),
        pytest.param(
            {"gpu_stack": {"node_feature_discovery": False, "device_plugin": False}, "monitoring": {"namespace": "o"}},
            [("o", "dcgm-exporter")],
            id="one, in a namespace of its own",
        ),
        pytest.param({"skus": [{"name": "cpu", "nodes": {"min": 1, "max": 1}}]}, [], id="no GPU"),
    ],
)
def test_daemon_sets_on_gpu_nodes(project: Path, changes: dict[str, Any], found: list[tuple[str, str]]) -> None:
    assert gpu_stack.daemon_sets(loaded(project, "local", **changes)) == found


# What is registered

RELEASES = {
    "node-feature-discovery": ("kube-system", "0.19.0"),
    "nvidia-device-plugin": ("kube-system", "0.20.0"),
    "dcgm-exporter": ("monitoring", "4.8.2"),
}


def of_the_gpu_stack(run: Graph) -> dict[str, Registered]:
    return {one.name: one for one in run.of(graph.RELEASE) if one.name in RELEASES}


def test_releases_have_fixed_names_pinned_charts_and_do_not_wait_for_nodes_b39_b40(stacks: dict[str, Graph]) -> None:
    for name in ("dev", "prod"):
        made = of_the_gpu_stack(stacks[name])
        assert {
            one.name: (one.inputs["namespace"], one.inputs["version"], one.inputs["name"], one.inputs["chart"])
            for one in made.values()
        } == {name: (namespace, version, name, name) for name, (namespace, version) in RELEASES.items()}
        for one in made.values():
            assert (one.inputs["skipAwait"], one.inputs["atomic"], one.inputs["cleanupOnFail"]) == (True, False, True)


def test_the_order(stacks: dict[str, Graph]) -> None:
    for name in STACKS:
        run = stacks[name]
        made = of_the_gpu_stack(run)
        assert set(made) == set(RELEASES)
        assert made["node-feature-discovery"].urn in run.behind(made["nvidia-device-plugin"])
        for one in run.of(graph.DEPLOYMENT):
            behind = run.behind(one)
            assert made["nvidia-device-plugin"].urn in behind, "a pod that asks for a GPU comes after who offers it"
            assert made["dcgm-exporter"].urn not in behind, "no pod waits for being measured"
        (verification,) = run.of(graph.VERIFICATION)
        assert {one.urn for one in made.values()} <= run.behind(verification)


@pytest.mark.parametrize(
    ("changes", "left"),
    [
        pytest.param(
            {"gpu_stack": {"node_feature_discovery": False}}, {"nvidia-device-plugin", "dcgm-exporter"}, id="nfd"
        ),
        pytest.param({"gpu_stack": {"device_plugin": False}}, {"node-feature-discovery", "dcgm-exporter"}, id="plugin"),
        pytest.param(
            {"gpu_stack": {"dcgm_exporter": False}}, {"node-feature-discovery", "nvidia-device-plugin"}, id="dcgm"
        ),
    ],
)
def test_each_part_can_be_left_out(project: Path, changes: dict[str, Any], left: set[str]) -> None:
    run = graph.run(project, {**graph.local_config(project), **changes})
    assert set(of_the_gpu_stack(run)) == left


def test_a_fleet_without_a_gpu_has_none_of_it(project: Path) -> None:
    config = graph.local_config(project)
    for one in config["skus"]:
        del one["gpu_product"], one["gpus_per_node"]
        one["labels"] = {"pool": one["name"]}
    assert of_the_gpu_stack(graph.run(project, config)) == {}
