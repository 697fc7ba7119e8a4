"""Settings: what loads, what it becomes, and what is said of what does not load."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import astuple
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from fleet import preflight, settings
from fleet.faults import Fault, Refused, path_text, shown
from fleet.schema import Images, KubeconfigCluster, Sku

if TYPE_CHECKING:
    from pathlib import Path

Raw = dict[str, Any]

MINIMAL: Raw = {
    "environment": "dev",
    "cluster": {"source": "kubeconfig", "kubeconfig": "kubeconfig"},
    "skus": [
        {"name": "h100", "gpu_product": "NVIDIA-H100-80GB-HBM3", "gpus_per_node": 8, "nodes": {"min": 1, "max": 2}},
        {"name": "cpu", "nodes": {"min": 0, "max": 3}},
    ],
    "models": [
        {
            "name": "minilm",
            "version": 1,
            "runtime": "python",
            "placements": [{"sku": "h100", "replicas": {"min": 1, "max": 4}}],
        }
    ],
    "images": {"triton": "example.com/triton:1", "tools": "example.com/tools:1"},
}

COMPLETE: Raw = {
    "environment": "dev",
    "cluster": {"source": "kubeconfig", "kubeconfig": "kubeconfig"},
    "serving": {"namespace": "triton-dev", "run_as_user": 1000, "run_as_group": 1000, "client_cidrs": ()},
    "store": {"kind": "host_path", "path": "/var/lib/triton-fleet/store", "size_gib": 10},
    "skus": (
        {
            "name": "h100",
            "instance": None,
            "gpu_product": "NVIDIA-H100-80GB-HBM3",
            "gpus_per_node": 8,
            "nodes": {"min": 1, "max": 2},
            "labels": {
                "nvidia.com/gpu": "present",
                "nvidia.com/gpu.present": "true",
                "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3",
            },
            "taints": ({"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"},),
        },
        {
            "name": "cpu",
            "instance": None,
            "gpu_product": None,
            "gpus_per_node": 0,
            "nodes": {"min": 0, "max": 3},
            "labels": {},
            "taints": (),
        },
    ),
    "models": (
        {
            "name": "minilm",
            "version": 1,
            "runtime": "python",
            "repository": "model_repo/minilm",
            "tensor_parallel": 1,
            "pipeline_parallel": 1,
            "load_timeout_s": 600,
            "drain_timeout_s": 30,
            "shm_mib": 256,
            "resources": {"cpu": 1.0, "memory_mib": 2048},
            "weights": None,
            "slo": {"latency_ms": 2000, "availability": 0.999},
            "autoscaling": {
                "target_ratio": 1.0,
                "waiting_requests_target": None,
                "scale_up": {"pods": 1, "period_s": 60, "window_s": 0},
                "scale_down": {"window_s": 300, "pods": 1, "period_s": 300},
            },
            "placements": ({"sku": "h100", "replicas": {"min": 1, "max": 4}, "autoscaled": True},),
        },
    ),
    "images": {
        "triton": "example.com/triton:1",
        "tools": "example.com/tools:1",
        "model_store": None,
        "verification": None,
        "load": None,
        "ecr": False,
        "pull_policy": "IfNotPresent",
        "pull_secrets": (),
    },
    "gpu_stack": {"node_feature_discovery": True, "device_plugin": True, "dcgm_exporter": True},
    "monitoring": {
        "kube_prometheus_stack": True,
        "prometheus_adapter": True,
        "metrics_server": True,
        "release": "prometheus",
        "namespace": "monitoring",
        "scrape_interval_s": 10,
        "evaluation_interval_s": 10,
        "rate_window_s": 60,
        "relist_interval_s": 30,
        "retention_days": 15,
        "storage": None,
        "prometheus_memory_mib": 2048,
        "node_selector": {},
        "tolerations": (),
        "grafana": True,
        "grafana_password": None,
    },
    "alerts": {
        "receivers": (),
        "routes": (),
        "dead_mans_switch": None,
        "group_wait_s": 30,
        "repeat_interval_minutes": 240,
    },
    "autoscaling": {"engine": "prometheus-adapter"},
    "charts": {"compat": "current", "mirror": None, "overrides": {}},
    "verification": {"deadline_s": 600, "check_deadline_s": 60, "max_age_days": 30},
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A project with the one model of `MINIMAL`."""
    model = tmp_path / "model_repo" / "minilm"
    (model / "1").mkdir(parents=True)
    (model / "1" / "model.py").write_text("")
    (model / "config.pbtxt").write_text('backend: "python"')
    (model / "verification.json").write_text("{}")
    return tmp_path


def changed(*changes: tuple[str, object]) -> Raw:
    """`MINIMAL` with values put at paths; a value of `...` removes what is there."""
    raw = copy.deepcopy(MINIMAL)
    for path, value in changes:
        *parents, last = [int(part) if part.isdigit() else part for part in path.split("/")]
        holder: Any = raw
        for part in parents:
            holder = holder.setdefault(part, {}) if isinstance(holder, dict) else holder[part]
        if value is ...:
            del holder[last]
        elif isinstance(holder, list) and last == len(holder):
            holder.append(value)
        else:
            holder[last] = value
    return raw


def faults(raw: object, folder: Path) -> list[Fault]:
    with pytest.raises(Refused) as refused:
        settings.load(raw, folder)  # type: ignore[arg-type]
    return refused.value.faults


def test_defaults_complete_the_least_that_a_stack_file_may_say(folder: Path) -> None:
    assert settings.load(MINIMAL, folder).model_dump() == COMPLETE


def test_values_arrive_as_json_text_from_the_engine(folder: Path) -> None:
    config = {
        f"triton-fleet:{key}": json.dumps(value) if key != "environment" else value for key, value in MINIMAL.items()
    }
    config |= {f"triton-fleet:{key}": empty for key, empty in [("store", "{}"), ("charts", "{}"), ("serving", "{}")]}
    config["kubernetes:kubeconfig"] = "of another namespace"
    assert settings.load(settings.from_config(config), folder).model_dump() == COMPLETE


def test_settings_are_frozen(folder: Path) -> None:
    loaded = settings.load(MINIMAL, folder)
    with pytest.raises(ValueError, match="frozen"):
        loaded.environment = "prod"  # type: ignore[misc]


@pytest.mark.parametrize(
    ("sku", "labels", "taints"),
    [
        pytest.param(
            {"gpu_product": "X", "gpus_per_node": 1, "labels": {"pool": "a", "nvidia.com/gpu": "yes"}},
            {"nvidia.com/gpu": "yes", "nvidia.com/gpu.present": "true", "nvidia.com/gpu.product": "X", "pool": "a"},
            [("nvidia.com/gpu", "present", "NoSchedule")],
            id="labels are added, and win",
        ),
        pytest.param(
            {"gpu_product": "X", "gpus_per_node": 1, "taints": []},
            {"nvidia.com/gpu": "present", "nvidia.com/gpu.present": "true", "nvidia.com/gpu.product": "X"},
            [],
            id="no taints",
        ),
        pytest.param(
            {
                "taints": [
                    {"key": "a", "effect": "NO_SCHEDULE"},
                    {"key": "b", "value": "c", "effect": "NoExecute"},
                    {"key": "d", "effect": "PREFER_NO_SCHEDULE"},
                ]
            },
            {},
            [("a", "", "NoSchedule"), ("b", "c", "NoExecute"), ("d", "", "PreferNoSchedule")],
            id="AWS's spelling becomes Kubernetes'",
        ),
    ],
)
def test_labels_and_taints_of_a_sku(sku: Raw, labels: Raw, taints: list[tuple[str, str, str]]) -> None:
    made = Sku.model_validate({"name": "s", "nodes": {"min": 1, "max": 1}, **sku})
    assert (dict(made.labels), [(taint.key, taint.value, taint.effect) for taint in made.taints]) == (labels, taints)


MISSPELT = "no setting has that name, and a misspelt one would silently do nothing"
REFERENCE = "docs/settings.md shows it under"
FAULTS = [
    pytest.param(
        changed(
            ("alerts", {"receivers": [{"name": "a", "kind": "webhook", "url": "hooks.example.com/key-1"}, "key-2"]}),
            ("monitoring", {"grafana_password": ["key-3"]}),
        ),
        [
            Fault(
                "monitoring.grafana_password",
                "a list of 1",
                "a secret text, from `pulumi config set --secret --path`, or nothing",
                "whoever knows it may change dashboards",
                f"correct it; {REFERENCE} 'monitoring'",
            ),
            Fault(
                "alerts.receivers[0].url",
                "a text, not shown",
                "a URL that begins with http:// or https://",
                "alerts are sent there",
                "write the URL in full",
            ),
            Fault(
                "alerts.receivers[1]",
                "a text, not shown",
                "an object of kind slack with name, api_url, channel | of kind pagerduty with name, routing_key | of "
                "kind email with name, to, sender, smarthost; optional username, password | of kind webhook with "
                "name, url",
                "alerts go to them",
                f"correct it; {REFERENCE} 'alerts'",
            ),
        ],
        id="what may hold a secret is not shown",
    ),
    pytest.param(
        changed(("modles", []), ("models/0/placments", 1), ("store/sise_gib", 1), ("zzz", 1)),
        [
            Fault(
                "store.sise_gib",
                "a setting named 'sise_gib'",
                "a setting that exists: kind, path, size_gib",
                MISSPELT,
                "did you mean 'size_gib'?",
            ),
            Fault(
                "models[0].placments",
                "a setting named 'placments'",
                "a setting that exists: name, version, runtime, repository, tensor_parallel, pipeline_parallel, "
                "load_timeout_s, drain_timeout_s, shm_mib, resources, weights, slo, autoscaling, placements",
                MISSPELT,
                "did you mean 'placements'?",
            ),
            Fault(
                "modles",
                "a setting named 'modles'",
                "a setting that exists: environment, cluster, serving, store, skus, models, images, gpu_stack, "
                "monitoring, alerts, autoscaling, charts, verification",
                MISSPELT,
                "did you mean 'models'?",
            ),
            Fault(
                "zzz",
                "a setting named 'zzz'",
                "a setting that exists: environment, cluster, serving, store, skus, models, images, gpu_stack, "
                "monitoring, alerts, autoscaling, charts, verification",
                MISSPELT,
                "remove it",
            ),
        ],
        id="misspelt at every depth",
    ),
    pytest.param(
        changed(("skus/0/gpus_per_node", 17), ("skus/0/nodes/min", "1"), ("models/0/load_timeout_s", True)),
        [
            Fault(
                "skus[0].gpus_per_node",
                "17",
                "a whole number from 0 to 16",
                "no machine that this program knows has more",
                f"correct it; {REFERENCE} 'skus'",
            ),
            Fault(
                "skus[0].nodes.min",
                "'1'",
                "a whole number from 0 to 450",
                "a node group of EKS has at most that many nodes",
                f"correct it; {REFERENCE} 'skus'",
            ),
            Fault(
                "models[0].load_timeout_s",
                "True",
                "a whole number from 10 to 7200",
                "the start-up probe's budget follows it; a pod slower than that is restarted",
                f"correct it; {REFERENCE} 'models'",
            ),
        ],
        id="numbers out of bounds and of other types",
    ),
    pytest.param(
        changed(("environment", ""), ("models", []), ("images", ...), ("cluster", {})),
        [
            Fault(
                "environment",
                "nothing",
                "one of local, dev, prod",
                "names and defaults follow it",
                f"add it; {REFERENCE} 'environment'",
            ),
            Fault(
                "cluster",
                "nothing",
                "an object of source kubeconfig with kubeconfig | of source eks with region, access, network; optional "
                "name, kubernetes_version, public_cidrs, admins, log_types, log_retention_days, system_nodes, protect, "
                "key_deletion_days, addons | of source eks_existing with name, region",
                "the fleet runs on a cluster",
                f"add it; {REFERENCE} 'cluster'",
            ),
            Fault(
                "models",
                "nothing",
                "a list of 1 to 64, each an object with name, version, runtime, placements; optional repository, "
                "tensor_parallel, pipeline_parallel, load_timeout_s, drain_timeout_s, shm_mib, resources, weights, "
                "slo, autoscaling",
                "a fleet without models serves nothing",
                f"add it; {REFERENCE} 'models'",
            ),
            Fault(
                "images",
                "nothing",
                "an object with triton, tools; "
                "optional model_store, verification, load, ecr, pull_policy, pull_secrets",
                "pods run images",
                f"add it; {REFERENCE} 'images'",
            ),
        ],
        id="left out, by themselves or by the engine's empty defaults",
    ),
    pytest.param(
        changed(("skus", {"name": "x"}), ("models/0/placements/0", ["h100"]), ("store", "[1")),
        [
            Fault(
                "store",
                "'[1'",
                "an object of kind host_path with optional path, size_gib | of kind efs with optional size_gib, "
                "throughput, backup, protect",
                "models' files are kept somewhere",
                f"correct it; {REFERENCE} 'store'",
            ),
            Fault(
                "skus",
                "{'name': 'x'}",
                "a list of 1 to 64, each an object with name, nodes; optional instance, gpu_product, gpus_per_node, "
                "labels, taints",
                "a fleet without nodes serves nothing",
                f"correct it; {REFERENCE} 'skus'",
            ),
            Fault(
                "models[0].placements[0]",
                "['h100']",
                "an object with sku, replicas; optional autoscaled",
                "a model without a placement is not served",
                f"correct it; {REFERENCE} 'models'",
            ),
        ],
        id="maps, lists and text in each other's place",
    ),
    pytest.param(
        changed(("models/0/name", "9minilm"), ("skus/0/name", "n" * 70), ("serving", {"namespace": "kube-system"})),
        [
            Fault(
                "serving.namespace",
                "'kube-system'",
                "a namespace of its own, not default, kube-system, monitoring or kube-…",
                "the serving namespace denies all traffic that it does not name and admits restricted pods only; what "
                "else lives there would stop working",
                "leave it out for triton-<environment>, or name a namespace that nothing else uses",
            ),
            Fault(
                "skus[0].name",
                f"'{'n' * 70}'",
                "a DNS label: lower-case letters, digits and hyphens inside, 1 to 63 characters",
                "it becomes part of the names of Kubernetes objects, which RFC 1123 limits",
                "choose a name of lower-case letters, digits and hyphens",
            ),
            Fault(
                "models[0].name",
                "'9minilm'",
                "a DNS label that begins with a letter",
                "it becomes the name of a Service, which RFC 1035 limits further: a letter comes first",
                "put a letter before it, for example 'm9minilm'",
            ),
        ],
        id="names",
    ),
    pytest.param(
        changed(
            ("skus/0/taints", [{"key": "a", "effect": "no_schedule"}]),
            ("serving", {"client_cidrs": ["10.0.0.0/8", "0.0.0.0/0", "::/0", "10.0.0.1/8"]}),
            ("images/triton", "example.com:5000/triton:latest"),
            ("images/tools", "example.com:5000/tools"),
            ("store", {"path": "/var/lib/../../etc/x"}),
        ),
        [
            *(
                Fault(
                    f"serving.client_cidrs[{index}]",
                    got,
                    "an address range in CIDR form, host bits zero, no wider than /8 (IPv6: /32)",
                    "whoever is in the range may call the models; a wide-open range is never meant",
                    "name the range that the clients are in, for example 10.20.0.0/16",
                )
                for index, got in [(1, "'0.0.0.0/0'"), (2, "'::/0'"), (3, "'10.0.0.1/8'")]
            ),
            Fault(
                "store.path",
                "'/var/lib/../../etc/x'",
                "an absolute path at least two folders deep, without '..'",
                "it is a folder on the node that the program fills and owns; a shallow one would be the system's",
                "name a folder such as /var/lib/triton-fleet/store",
            ),
            Fault(
                "skus[0].taints[0].effect",
                "'no_schedule'",
                "one of NoSchedule, PreferNoSchedule, NoExecute",
                "Kubernetes knows these effects; AWS's spelling (NO_SCHEDULE …) is accepted too",
                f"correct it; {REFERENCE} 'skus'",
            ),
            *(
                Fault(
                    f"images.{name}",
                    got,
                    "a pinned image: name:tag with a tag other than 'latest', or name@sha256:…",
                    "without a pin two replicas can run different programs, and an update cannot be undone",
                    "name the tag or the digest",
                )
                for name, got in [("triton", "'example.com:5000/triton:latest'"), ("tools", "'example.com:5000/tools'")]
            ),
        ],
        id="effects, ranges, pins, paths",
    ),
    pytest.param(
        changed(("skus/0/nodes/max", 0), ("skus/1/name", "h100"), ("models/0/placements/0/sku", "h10")),
        [
            Fault(
                "skus[0].nodes.max",
                "0",
                "a whole number from 1 to 450",
                "a node group of EKS has at most that many nodes",
                f"correct it; {REFERENCE} 'skus'",
            ),
            Fault(
                "skus[1].name",
                "'h100'",
                "a name of its own",
                "skus[0] has that name, and Kubernetes objects are found by it",
                "rename one of the two",
            ),
            Fault(
                "models[0].placements[0].sku",
                "'h10'",
                "one of h100",
                "a model runs on nodes of a SKU that is configured",
                "did you mean 'h100'?",
            ),
        ],
        id="what preflight finds in the rest is said too",
    ),
    pytest.param(
        [1],
        [
            Fault(
                "triton-fleet",
                "[1]",
                "an object with environment, cluster, skus, models, images; optional serving, store, gpu_stack, "
                "monitoring, alerts, autoscaling, charts, verification",
                "settings are found by their names",
                "correct it; see docs/settings.md",
            )
        ],
        id="no settings at all",
    ),
    pytest.param(
        changed(("cluster/kubeconfig", "apiVersion: v1\nusers: [{token: s3cret}]")),
        [
            Fault(
                "cluster.kubeconfig",
                "text of 2 lines",
                "text on one line",
                "it names one thing",
                "write the name alone, not the content of what it names",
            )
        ],
        id="a pasted kubeconfig is not shown",
    ),
]


@pytest.mark.parametrize(("raw", "expected"), FAULTS)
def test_all_faults_at_once(raw: object, expected: list[Fault], folder: Path) -> None:
    assert faults(raw, folder) == expected


def test_the_text_of_a_refusal(folder: Path) -> None:
    with pytest.raises(Refused) as refused:
        settings.load(changed(("environment", "tset"), ("store/size_gib", 0)), folder)
    assert str(refused.value) == (
        "the configuration has 2 faults:\n"
        "1. environment\n"
        "   got:   'tset'\n"
        "   limit: one of local, dev, prod\n"
        "   why:   names and defaults follow it\n"
        "   fix:   correct it; docs/settings.md shows it under 'environment'\n"
        "2. store.size_gib\n"
        "   got:   0\n"
        "   limit: a whole number from 1 to 65536\n"
        "   why:   it is the size of the volume that the claim asks for\n"
        "   fix:   correct it; docs/settings.md shows it under 'store'"
    )


def _paths(value: object, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    yield path
    items = value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, tuple) else ()
    for key, inner in items:
        yield from _paths(inner, (*path, key))


def _with(value: Any, path: tuple[str | int, ...], new: object) -> Any:  # noqa: ANN401 - any value of a stack file
    if not path:
        return new
    if isinstance(value, tuple):
        return [_with(item, path[1:], new) if index == path[0] else item for index, item in enumerate(value)]
    return {**value, path[0]: _with(value[path[0]], path[1:], new)}


ODD: list[object] = [
    *(None, True, -1, 0, 10**30, 1.5, float("nan"), float("inf"), "", " ", "\0", "\n", "../x", "/etc/passwd", "ünï"),
    *("x" * 70, "x" * 5000, "{", "[" * 5000, [], {}, [None], [[]], [{}], {"": ""}, {1: 2}, {None: None}, {"a": [1]}),
    *(b"x", object(), {1, 2}, ("a",), "\ud800", "1e999", "null", '{"a": NaN}'),
]


@pytest.mark.parametrize("path", list(_paths(COMPLETE)), ids=path_text)
def test_odd_values_anywhere_load_or_give_faults(path: tuple[str | int, ...], folder: Path) -> None:
    said = [_said(_with(COMPLETE, path, odd), folder) for odd in ODD]
    wrong = [(shown(odd), faults) for odd, faults in zip(ODD, said, strict=True) if not _sound(faults)]
    assert wrong == []


def _said(raw: object, folder: Path) -> list[Fault] | None:
    """The faults of a refusal; nothing of what passes."""
    try:
        return list(preflight.check(settings.load(raw, folder), folder).refusals) or None  # type: ignore[arg-type]
    except Refused as refused:
        return refused.faults


def _sound(faults: list[Fault] | None) -> bool:
    """Whether each fault says all its parts in text that can be printed."""
    return faults is None or (len(faults) > 0 and all(part.encode() for fault in faults for part in astuple(fault)))


def test_most_odd_values_are_refused(folder: Path) -> None:
    refused = {
        path_text(path): sum(_said(_with(COMPLETE, path, odd), folder) is not None for odd in ODD)
        for path in [("skus",), ("models", 0, "version"), ("models", 0, "repository"), ("environment",)]
    }
    assert refused == {
        "skus": len(ODD),
        "models[0].version": len(ODD),
        "models[0].repository": len(ODD),
        "environment": len(ODD),
    }


@pytest.mark.parametrize(
    ("make", "accepted"),
    [
        pytest.param(lambda text: Images(triton=text, tools="t:1").triton, True, id="tag"),
        pytest.param(lambda text: Images(triton=f"{text}@sha256:{'0' * 64}", tools="t:1").triton, True, id="both"),
        pytest.param(lambda text: Images(triton=f"{text}@sha256:0", tools="t:1").triton, False, id="short digest"),
        pytest.param(lambda text: Images(triton=f" {text}", tools="t:1").triton, False, id="space"),
        pytest.param(lambda text: KubeconfigCluster(source="kubeconfig", kubeconfig=text).kubeconfig, True, id="path"),
    ],
)
def test_references(make: Callable[[str], str], accepted: bool) -> None:  # noqa: FBT001 - a column of the table
    text = "nvcr.io/nvidia/tritonserver:24.10-py3"
    if accepted:
        assert make(text).startswith(text)
    else:
        with pytest.raises(ValueError, match="refused"):
            make(text)


@pytest.mark.parametrize(
    ("cores", "quantity"), [(0.1, "100m"), (1, "1000m"), (0.25, "250m"), (1.0005, "1000m"), (448, "448000m")]
)
def test_cores_as_kubernetes_writes_them(cores: float, quantity: str) -> None:
    assert settings.Resources(cpu=cores).cpu_quantity == quantity


def test_the_local_stack_loads_and_passes_preflight(project: Path) -> None:
    config = yaml.safe_load((project / "Pulumi.local.yaml").read_text(encoding="utf-8"))["config"]
    loaded = settings.load(settings.from_config(config), project)
    assert preflight.check(loaded, project) == preflight.Preflight(refusals=(), warnings=())
    assert {(sku.name, sku.gpu_product, sku.gpus_per_node, sku.nodes.max) for sku in loaded.skus} == {
        ("a100-40gb", "NVIDIA-A100-SXM4-40GB", 8, 1),
        ("h100-80gb", "NVIDIA-H100-80GB-HBM3", 8, 1),
    }


def test_the_local_stack_holds_differences_only(project: Path) -> None:
    config = settings.from_config(yaml.safe_load((project / "Pulumi.local.yaml").read_text(encoding="utf-8"))["config"])
    loaded = settings.load(config, project).model_dump()
    same = []
    for path in _paths(_tuples(config)):
        if not path:
            continue
        shorter = _without(_tuples(config), path)
        try:
            if settings.load(shorter, project).model_dump() == loaded:
                same.append(path_text(path))
        except Refused:
            continue
    assert same == []


def _tuples(value: object) -> Any:  # noqa: ANN401 - any value of a stack file
    if isinstance(value, Mapping):
        return {key: _tuples(inner) for key, inner in value.items()}
    return tuple(_tuples(inner) for inner in value) if isinstance(value, list) else value


def _without(value: Any, path: tuple[str | int, ...]) -> Any:  # noqa: ANN401 - any value of a stack file
    if isinstance(value, tuple):
        kept = [(index, item) for index, item in enumerate(value) if len(path) > 1 or index != path[0]]
        return [_without(item, path[1:]) if index == path[0] else item for index, item in kept]
    if len(path) == 1:
        return {key: inner for key, inner in value.items() if key != path[0]}
    return {key: _without(inner, path[1:]) if key == path[0] else inner for key, inner in value.items()}


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"triton-fleet:store": 1, "aws:region": 2, "pulumi:tags": 3, "other:store": 4}, {"store": 1}),
        ({"store": 1}, {"store": 1}),
        ({"triton-flet:store": 1}, {"triton-flet:store": 1}),
        ({"Triton_Fleet:store": 1, "triton:x": 2}, {"Triton_Fleet:store": 1, "triton:x": 2}),
    ],
)
def test_settings_are_told_from_other_configuration_by_their_namespace(
    config: dict[str, Any], expected: dict[str, object]
) -> None:
    assert settings.from_config(config) == expected


def test_a_misspelt_namespace_is_refused() -> None:
    fault = settings._fault(("triton-flet:store",), "extra_forbidden", {"password": "secret"})
    assert fault == Fault(
        "triton-flet:store",
        "the namespace 'triton-flet'",
        "the namespace triton-fleet",
        "settings of another namespace are not this program's, and a misspelt one would silently do nothing",
        "write triton-fleet:store",
    )


def test_a_misspelt_namespace_is_refused_with_all_other_faults(folder: Path) -> None:
    raw = settings.from_config({"triton-flet:store": "{}", "triton-fleet:environment": "prd"})
    with pytest.raises(Refused) as refused:
        settings.load(raw, folder)
    assert [fault.setting for fault in refused.value.faults] == [
        "environment",
        "cluster",
        "skus",
        "models",
        "images",
        "triton-flet:store",
    ]


def test_configuration_of_plugins_is_not_read_and_its_values_are_not_shown() -> None:
    unread = settings.unread({"aws:secretKey": "canary", "triton-fleet:store": {}, "awsome:x": 1})
    assert [fault.setting for fault in unread] == ["aws:secretKey"]
    assert "canary" not in str(unread[0])


@pytest.mark.parametrize(
    ("stack", "environment", "refused"),
    [
        ("dev", "dev", False),
        ("prod", "dev", True),
        ("dev", "local", True),
        ("prod-eu", "prod", False),
        ("mine", "dev", False),
    ],
)
def test_a_stack_named_after_an_environment_is_that_one(stack: str, environment: str, refused: bool) -> None:  # noqa: FBT001 - a row's verdict
    faults = settings.of_another_stack(stack, environment)
    assert [fault.setting for fault in faults] == (["environment"] if refused else [])


def test_a_name_that_an_enumeration_has_not_is_refused_with_those_that_it_has() -> None:
    loc = ("cluster", "eks", "addons", "kube-prox", "[key]")
    assert settings._fault(loc, "literal_error", "kube-prox") == Fault(
        "cluster.addons.kube-prox",
        "a setting named 'kube-prox'",
        "a setting that exists: vpc-cni, coredns, kube-proxy, eks-pod-identity-agent, aws-efs-csi-driver, "
        "aws-ebs-csi-driver",
        "no setting has that name, and a misspelt one would silently do nothing",
        "did you mean 'kube-proxy'?",
    )
