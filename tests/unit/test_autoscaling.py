"""Who decides how many replicas there are, by what, and what changes when that changes."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from fleet import autoscaling, capacity, preflight, settings
from fleet.faults import Fault, Refused
from fleet.preflight import Draft
from services.verification import handover
from services.verification.cluster import ClusterError
from tests.unit import graph

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.unit.graph import Graph, Registered

NAME = "minilm-a100-40gb"
TARGET = {"apiVersion": "apps/v1", "kind": "Deployment", "name": NAME}
BEHAVIOR = {
    "scaleUp": {
        "stabilizationWindowSeconds": 3,
        "selectPolicy": "Max",
        "policies": [{"type": "Pods", "value": 2, "periodSeconds": 30}],
    },
    "scaleDown": {
        "stabilizationWindowSeconds": 400,
        "selectPolicy": "Max",
        "policies": [{"type": "Pods", "value": 1, "periodSeconds": 90}],
    },
}
METADATA = {
    "name": NAME,
    "namespace": "triton-local",
    "labels": {
        "app.kubernetes.io/name": NAME,
        "app.kubernetes.io/instance": NAME,
        "app.kubernetes.io/component": "autoscaler",
        "app.kubernetes.io/part-of": "triton-fleet",
        "app.kubernetes.io/managed-by": "pulumi",
        "model": "minilm",
        "triton-fleet.io/sku": "a100-40gb",
    },
}
RULES = {
    "target_ratio": 1.25,
    "waiting_requests_target": 8,
    "scale_up": {"pods": 2, "period_s": 30, "window_s": 3},
    "scale_down": {"window_s": 400, "pods": 1, "period_s": 90},
}


def config_with(
    config: dict[str, Any], *, engine: str = "prometheus-adapter", autoscaled: bool = True
) -> dict[str, Any]:
    """Stack `local` with one SKU, of 2 to 5 replicas."""
    changed = copy.deepcopy(config)
    placement = {"sku": "a100-40gb", "replicas": {"min": 2, "max": 5}, "autoscaled": autoscaled}
    changed["models"][0] = {**changed["models"][0], "placements": [placement]}
    return {**changed, "autoscaling": {"engine": engine}}


def loaded(project: Path, rules: dict[str, Any], **more: Any) -> settings.Settings:  # noqa: ANN401 - settings
    raw = config_with(graph.local_config(project), **more)
    raw["models"][0]["autoscaling"] = rules
    # The waiting requests are TensorRT-LLM's, which local has not; what is rendered does not ask where.
    return settings.Settings.model_validate(raw)


def test_the_autoscaler_of_a_model_on_a_sku(project: Path) -> None:
    stack = loaded(project, RULES)
    (model,) = stack.models
    assert autoscaling.hpa(stack, model, model.placements[0]) == {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": METADATA,
        "spec": {
            "scaleTargetRef": TARGET,
            "minReplicas": 2,
            "maxReplicas": 5,
            "metrics": [
                {
                    "type": "Pods",
                    "pods": {
                        "metric": {"name": "triton:queue_compute:ratio"},
                        "target": {"type": "AverageValue", "averageValue": "1250m"},
                    },
                },
                {
                    "type": "Pods",
                    "pods": {
                        "metric": {"name": "triton:waiting_requests:sum"},
                        "target": {"type": "AverageValue", "averageValue": "8"},
                    },
                },
            ],
            "behavior": BEHAVIOR,
        },
    }


def test_kedas_object_for_the_same(project: Path) -> None:
    stack = loaded(project, RULES, engine="keda")
    (model,) = stack.models
    labels = 'namespace="triton-local",deployed_model="minilm",sku="a100-40gb"'
    address = "http://prometheus-kube-prometheus-prometheus.monitoring.svc:9090"

    def trigger(series: str, threshold: str) -> dict[str, Any]:
        return {
            "type": "prometheus",
            "metricType": "Value",
            "metadata": {
                "serverAddress": address,
                "query": f"avg({series}{{{labels}}})",
                "threshold": threshold,
                "ignoreNullValues": "false",
            },
        }

    assert autoscaling.scaled_object(stack, model, model.placements[0]) == {
        "apiVersion": "keda.sh/v1alpha1",
        "kind": "ScaledObject",
        "metadata": METADATA,
        "spec": {
            "scaleTargetRef": TARGET,
            "minReplicaCount": 2,
            "maxReplicaCount": 5,
            "pollingInterval": 15,
            "advanced": {
                "restoreToOriginalReplicaCount": False,
                "horizontalPodAutoscalerConfig": {"behavior": BEHAVIOR},
            },
            "triggers": [trigger("triton:queue_compute:ratio", "1.25"), trigger("triton:waiting_requests:sum", "8")],
        },
    }


TYPES: dict[str, tuple[type, ...]] = {"object": (dict,), "array": (list,), "string": (str,), "boolean": (bool,)}


def against(schema: dict[str, Any], value: object, at: str = "spec") -> Iterator[str]:
    """What a schema of a CustomResourceDefinition says against a value; a field that it does not know would be lost."""
    kind = schema.get("type", "string")
    if not isinstance(value, TYPES.get(kind, (int,))) or (kind == "integer" and isinstance(value, bool)):
        yield f"{at}: {value!r} is no {kind}"
    elif isinstance(value, dict):
        yield from (f"{at}.{name}: missing" for name in schema.get("required", ()) if name not in value)
        for name, inner in value.items():
            known = schema.get("properties", {}).get(name, schema.get("additionalProperties"))
            yield from [f"{at}.{name}: unknown"] if known is None else against(known, inner, f"{at}.{name}")
    elif isinstance(value, list):
        yield from (
            fault for index, one in enumerate(value) for fault in against(schema["items"], one, f"{at}[{index}]")
        )
    elif value not in schema.get("enum", [value]) or (kind == "integer" and value < schema.get("minimum", value)):  # type: ignore[operator]
        yield f"{at}: {value!r} is out of bounds"


def test_kedas_object_fits_its_definition(project: Path) -> None:
    schema = yaml.safe_load((project / "tests" / "data" / "keda-scaledobject.yaml").read_text())
    stack = loaded(project, RULES, engine="keda")
    (model,) = stack.models
    spec = autoscaling.scaled_object(stack, model, model.placements[0])["spec"]
    assert list(against(schema, spec)) == []
    spoilt = {**spec, "minReplicas": 1, "pollingInterval": "15", "scaleTargetRef": {"kind": "Deployment"}}
    spoilt["triggers"] = [{**spec["triggers"][0], "metadata": {"threshold": 1}}]
    assert list(against(schema, spoilt)) == [
        "spec.scaleTargetRef.name: missing",
        "spec.pollingInterval: '15' is no integer",
        "spec.triggers[0].metadata.threshold: 1 is no string",
        "spec.minReplicas: unknown",
    ]


def test_one_metric_unless_a_second_is_asked_for(project: Path) -> None:
    stack = loaded(project, {})
    (model,) = stack.models
    spec = autoscaling.hpa(stack, model, model.placements[0])["spec"]
    assert [metric["pods"]["target"]["averageValue"] for metric in spec["metrics"]] == ["1"]
    assert len(autoscaling.scaled_object(stack, model, model.placements[0])["spec"]["triggers"]) == 1


@pytest.mark.parametrize(("engine", "wanted"), [("prometheus-adapter", True), ("keda", False)])
@pytest.mark.parametrize("installed", [True, False])
def test_each_metrics_api_has_one_owner(project: Path, engine: str, wanted: bool, installed: bool) -> None:  # noqa: FBT001 - columns
    raw = {**config_with(graph.local_config(project), engine=engine), "monitoring": {"prometheus_adapter": installed}}
    assert autoscaling.adapter_wanted(settings.load(raw, project)) is (wanted and installed)


def scalers(run: Graph) -> dict[str, list[Registered]]:
    kinds = {"hpa": graph.AUTOSCALER, "keda": graph.SCALED_OBJECT, "handover": graph.HANDOVER}
    return {name: run.of(kind) for name, kind in kinds.items()}


@pytest.mark.parametrize(
    ("given", "registered", "replicas", "ignored", "annotations"),
    [
        pytest.param({}, ["hpa"], None, {"spec.replicas"}, {"triton-fleet.io/replicas": "autoscaler"}, id="autoscaler"),
        pytest.param(
            {"engine": "keda"},
            ["keda", "handover"],
            None,
            {"spec.replicas"},
            {"triton-fleet.io/replicas": "keda"},
            id="keda, which has no autoscaler of ours beside it",
        ),
        pytest.param(
            {"autoscaled": False},
            ["handover"],
            2,
            set(),
            {"triton-fleet.io/replicas": "settings", "pulumi.com/patchForce": "true"},
            id="settings, which take the number from an autoscaler",
        ),
        pytest.param(
            {"autoscaled": False, "engine": "keda"},
            ["handover"],
            2,
            set(),
            {"triton-fleet.io/replicas": "settings", "pulumi.com/patchForce": "true"},
            id="settings, whatever the engine",
        ),
    ],
)
def test_replicas_have_one_owner_b04(  # noqa: PLR0913, PLR0917 - columns of the table
    project: Path,
    config: dict[str, Any],
    given: dict[str, Any],
    registered: list[str],
    replicas: int | None,
    ignored: set[str],
    annotations: dict[str, str],
) -> None:
    run = graph.run(project, config_with(config, **given))
    found = scalers(run)
    assert [name for name, those in found.items() if those] == registered
    (deployment,) = run.of(graph.DEPLOYMENT)
    assert deployment.inputs["spec"].get("replicas") == replicas
    assert deployment.ignored == ignored
    skipped = {"pulumi.com/skipAwait": "true"}
    assert deployment.inputs["metadata"]["annotations"] == {**annotations, **skipped}
    assert run.one(graph.ROLLOUT, NAME).inputs["fewest"] == 2
    behind = run.behind(run.one(graph.ROLLOUT, NAME))
    assert {one.urn for those in found.values() for one in those} < behind, "the wait for replicas comes after all"
    for scaler in (*found["hpa"], *found["keda"]):
        assert deployment.urn in run.behind(scaler)
        assert scaler.inputs["spec"]["scaleTargetRef"]["name"] == deployment.inputs["metadata"]["name"]
    for taken in found["handover"]:
        assert taken.urn in run.behind(deployment), "an autoscaler goes before the Deployment is told its size"


def test_every_sku_of_every_stack_has_bounds_that_its_autoscaler_keeps(stacks: dict[str, Graph], project: Path) -> None:
    for name, run in stacks.items():
        stack = settings.load(graph.stack_config(project, name), project)
        wanted = {
            f"{model.name}-{placement.sku}": (placement.replicas.min, placement.replicas.max)
            for model in stack.models
            for placement in model.placements
        }
        found = {
            one.name: (one.inputs["spec"]["minReplicas"], one.inputs["spec"]["maxReplicas"])
            for one in run.of(graph.AUTOSCALER)
        }
        assert found == wanted
        assert {one.inputs["metadata"]["name"] for one in run.of(graph.DEPLOYMENT)} == found.keys()


def test_an_autoscaler_that_is_off_needs_room_for_the_replicas_that_are_set(project: Path) -> None:
    on, off = (
        settings.load(config_with(graph.local_config(project), autoscaled=autoscaled), project)
        for autoscaled in (True, False)
    )
    assert [demand.replicas for demand in capacity.demands(on.models, on.skus[0])] == [5]
    assert [demand.replicas for demand in capacity.demands(off.models, off.skus[0])] == [2]


class Cluster:
    """Has what is told, until it was asked often enough to delete it."""

    def __init__(self, autoscaler: int = 0, scaled_object: int = 0, failures: int = 0) -> None:
        self.left = {"autoscaler": autoscaler, "scaled object": scaled_object}
        self.failures = failures
        self.asked: list[str] = []

    def _delete(self, what: str, namespace: str, name: str) -> bool:
        assert (namespace, name) == ("triton-local", NAME)
        self.asked.append(what)
        if self.failures:
            self.failures -= 1
            raise ClusterError("no answer")
        there = self.left[what] > 0
        self.left[what] -= there
        return there

    def delete_autoscaler(self, namespace: str, name: str) -> bool:
        return self._delete("autoscaler", namespace, name)

    def delete_scaled_object(self, namespace: str, name: str) -> bool:
        return self._delete("scaled object", namespace, name)


@pytest.mark.parametrize(
    ("cluster", "owner", "asked", "failure"),
    [
        pytest.param(Cluster(), "settings", ["autoscaler", "scaled object"], "", id="nothing was there"),
        pytest.param(
            Cluster(1, 2), "settings", [*["autoscaler"] * 2, *["scaled object"] * 3], "", id="both go, one slowly"
        ),
        pytest.param(Cluster(1, 1), "keda", ["autoscaler"] * 2, "", id="keda's own object stays"),
        pytest.param(Cluster(1, failures=1), "keda", ["autoscaler"] * 3, "", id="no answer once"),
        pytest.param(
            Cluster(99),
            "keda",
            None,
            f"{NAME}: an autoscaler that is to go did not within 0.1 s: it is still there",
            id="it stays",
        ),
        pytest.param(
            Cluster(failures=99),
            "settings",
            None,
            f"{NAME}: an autoscaler that is to go did not within 0.1 s: no answer",
            id="no answer ever",
        ),
    ],
)
def test_an_autoscaler_that_would_overrule_goes_first(
    cluster: Cluster, owner: autoscaling.Owner, asked: list[str] | None, failure: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handover, "POLL_S", 0.01)
    assert handover.take(cluster, "triton-local", NAME, owner, deadline_s=0.1) == failure
    assert asked is None or cluster.asked == asked


WINDOW = "models[0].autoscaling.scale_down.window_s"


def drafted(project: Path, environment: str, **model: object) -> Draft:
    raw = config_with(graph.local_config(project))
    raw["models"][0] |= model
    return Draft.of(settings.Settings.model_validate({**raw, "environment": environment}))


@pytest.mark.parametrize(
    ("environment", "window_s", "faults"),
    [
        ("local", 0, []),
        ("dev", 300, []),
        *(
            (
                environment,
                299,
                [
                    Fault(
                        WINDOW,
                        "299",
                        f"at least 300 on environment {environment}",
                        "load comes in waves, and a replica that was taken away too soon loads its model again, on a "
                        "GPU that is paid for meanwhile",
                        "raise it to 300 or more, or leave it out",
                    )
                ],
            )
            for environment in ("dev", "prod")
        ),
    ],
)
def test_a_replica_is_kept_through_a_lull(project: Path, environment: str, window_s: int, faults: list[Fault]) -> None:
    draft = drafted(project, environment, autoscaling={"scale_down": {"window_s": window_s}})
    assert [fault for fault in preflight.refusals(draft, project) if fault.setting == WINDOW] == faults


@pytest.mark.parametrize(
    ("runtime", "target", "faults"),
    [
        ("tensorrt_llm", 8, []),
        ("python", None, []),
        (
            "python",
            8,
            [
                Fault(
                    "models[0].autoscaling.waiting_requests_target",
                    "8",
                    "nothing, with runtime 'python'",
                    "only tensorrt_llm says how many requests wait in it; by a metric that is never there an "
                    "autoscaler never takes a replica away",
                    "leave it out: target_ratio alone scales the model",
                )
            ],
        ),
    ],
)
def test_a_metric_that_is_never_there_is_refused(
    project: Path, runtime: str, target: int | None, faults: list[Fault]
) -> None:
    draft = drafted(project, "dev", runtime=runtime, autoscaling={"waiting_requests_target": target})
    assert [fault for fault in preflight.refusals(draft, project) if "waiting" in fault.setting] == faults


@pytest.mark.parametrize(
    ("runtime", "rules", "placement", "warned"),
    [
        ("tensorrt_llm", {}, {}, True),
        ("tensorrt_llm", {"waiting_requests_target": 4}, {}, False),
        ("tensorrt_llm", {}, {"autoscaled": False}, False),
        ("tensorrt_llm", {}, {"replicas": {"min": 2, "max": 2}}, False),
        ("vllm", {}, {}, False),
    ],
)
def test_a_queue_that_the_ratio_does_not_see_is_warned_of(
    project: Path, runtime: str, rules: dict[str, Any], placement: dict[str, Any], *, warned: bool
) -> None:
    raw = graph.stack_config(project, "prod")
    placed = {"sku": "a100-40gb", "replicas": {"min": 2, "max": 4}, **placement}
    raw["models"][0] |= {"runtime": runtime, "autoscaling": rules, "placements": [placed]}
    found = preflight.check(settings.load(raw, project), project).warnings
    assert ("models[0].autoscaling.waiting_requests_target" in [fault.setting for fault in found]) is warned


@pytest.mark.parametrize(
    ("pods", "period_s", "load_timeout_s", "replicas_max", "warned"),
    [
        # A usual start is a quarter of the longest: 450 s of 1800 s. In it, rates allow 1 + 450 // period steps.
        pytest.param(1, 60, 1800, 14, False, id="1 + 450 // 60 = 8 of 12"),
        pytest.param(2, 60, 1800, 14, True, id="2 x 8 = 16 of 12"),
        pytest.param(1, 41, 1800, 14, False, id="1 + 450 // 41 = 11 of 12"),
        pytest.param(1, 40, 1800, 14, True, id="1 + 450 // 40 = 12 of 12"),
        pytest.param(4, 15, 1800, 6, False, id="four too many at most"),
        pytest.param(4, 15, 1800, 7, True, id="five too many"),
    ],
)
def test_a_rate_that_limits_nothing_is_warned_of(  # noqa: PLR0913, PLR0917 - columns of the table
    project: Path,
    pods: int,
    period_s: int,
    load_timeout_s: int,
    replicas_max: int,
    warned: bool,  # noqa: FBT001
) -> None:
    raw = graph.stack_config(project, "prod")
    placement = {"sku": "a100-40gb", "replicas": {"min": 2, "max": replicas_max}}
    raw["models"][0] |= {
        "load_timeout_s": load_timeout_s,
        "autoscaling": {"scale_up": {"pods": pods, "period_s": period_s}},
        "placements": [placement],
    }
    found = [
        fault
        for fault in preflight.check(settings.load(raw, project), project).warnings
        if fault.setting == "models[0].autoscaling.scale_up"
    ]
    more, start_s = replicas_max - 2, load_timeout_s // 4
    expected = Fault(
        "models[0].autoscaling.scale_up",
        f"{pods} replicas every {period_s} s",
        f"fewer than {more} replicas in {start_s} s, a quarter of load_timeout_s",
        "a replica that still starts relieves no queue, so the autoscaler asks for one more each period: all "
        f"{more} that the bounds allow may be started, and paid for, where the first would have been enough",
        "raise period_s or lower pods",
    )
    assert found == [expected] * warned


def test_no_replica_at_all_is_refused_b45(project: Path) -> None:
    raw = config_with(graph.local_config(project))
    raw["models"][0]["placements"][0]["replicas"]["min"] = 0
    with pytest.raises(Refused) as refused:
        settings.load(raw, project)
    assert refused.value.faults == [
        Fault(
            "models[0].placements[0].replicas.min",
            "0",
            "a whole number from 1 to 1000",
            "a model without a replica answers nobody, and has no metric by which an autoscaler could start one",
            "correct it; docs/settings.md shows it under 'models'",
        )
    ]
