"""The simulated HorizontalPodAutoscaler decides as Kubernetes': the documented algorithm, the arithmetic shown.

https://kubernetes.io/docs/concepts/workloads/autoscaling/horizontal-pod-autoscale/#algorithm-details:
desired = ceil(current x metric / target), with a tolerance of a tenth.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import pytest

from fleet.simulate.autoscaler import Autoscaler, Decision, ScaledPod, quantity
from fleet.simulate.errors import SimulationError

if TYPE_CHECKING:
    from collections.abc import Mapping

METRIC, SECOND = "triton:queue_compute:ratio", "triton:waiting_requests:sum"
ANY = 10_000
"""A rate that limits nothing."""


def metric(name: str = METRIC, target: str = "1") -> dict[str, Any]:
    return {
        "type": "Pods",
        "pods": {"metric": {"name": name}, "target": {"type": "AverageValue", "averageValue": target}},
    }


def rules(window_s: int = 0, value: int = ANY, period_s: int = 15, kind: str = "Pods") -> dict[str, Any]:
    return {
        "stabilizationWindowSeconds": window_s,
        "selectPolicy": "Max",
        "policies": [{"type": kind, "value": value, "periodSeconds": period_s}],
    }


def manifest(**changes: object) -> dict[str, Any]:
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "m"},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "m"},
            "minReplicas": 1,
            "maxReplicas": 20,
            "metrics": [metric()],
            "behavior": {"scaleUp": rules(), "scaleDown": rules()},
            **changes,
        },
    }


def pods(running: int = 0, pending: int = 0, deleting: int = 0, failed: int = 0) -> list[ScaledPod]:
    """`r0`, `r1` … run, `p0` … have not begun, `d0` … go, `f0` … have failed."""
    return [
        *(ScaledPod(f"r{index}", "Running") for index in range(running)),
        *(ScaledPod(f"p{index}", "Pending") for index in range(pending)),
        *(ScaledPod(f"d{index}", "Running", deleting=True) for index in range(deleting)),
        *(ScaledPod(f"f{index}", "Failed") for index in range(failed)),
    ]


def values(*thousandths: int, of: str = "r") -> dict[str, int]:
    return {f"{of}{index}": value for index, value in enumerate(thousandths)}


@pytest.mark.parametrize(
    ("there", "thousandths", "replicas"),
    [
        pytest.param(pods(2), values(2000, 2000), 4, id="ceil(2 x 2)"),
        pytest.param(pods(2), values(1500, 3000), 5, id="mean 2.25: ceil(2 x 2.25)"),
        pytest.param(pods(3), values(500, 0, 400), 1, id="mean 0.3: ceil(3 x 0.3)"),
        pytest.param(pods(2), values(0, 0), 1, id="idle: the minimum"),
        pytest.param(pods(10), values(*[1100] * 10), 10, id="1.1 is within the tolerance"),
        pytest.param(pods(10), values(*[1101] * 10), 12, id="1.101 is not: ceil(10 x 1.101)"),
        pytest.param(pods(10), values(*[900] * 10), 10, id="0.9 is within the tolerance"),
        pytest.param(pods(10), values(*[899] * 10), 9, id="0.899 is not: ceil(10 x 0.899)"),
        pytest.param(pods(2), values(1099, 1102), 2, id="the mean is cut to a thousandth: 1100.5 is 1100"),
        pytest.param(pods(2), values(30_000, 30_000), 20, id="60 by the metric, 20 by the maximum"),
    ],
)
def test_the_number_of_replicas(there: list[ScaledPod], thousandths: dict[str, int], replicas: int) -> None:
    assert Autoscaler.of(manifest()).look(0, len(there), there, {METRIC: thousandths}).replicas == replicas


@pytest.mark.parametrize(
    ("there", "thousandths", "replicas"),
    [
        # Adding: what has not begun, or says nothing, counts as idle.
        pytest.param(pods(2, pending=2), values(3000, 3000), 6, id="(3 + 3 + 0 + 0) / 4 = 1.5: ceil(1.5 x 4)"),
        pytest.param(pods(2, pending=4), values(3000, 3000), 6, id="6 / 6 = 1: within the tolerance"),
        pytest.param(pods(2, pending=6), values(3000, 3000), 8, id="6 / 8 would turn the direction"),
        pytest.param(pods(4), values(3000, 3000), 6, id="two say nothing: 6 / 4 = 1.5: ceil(1.5 x 4)"),
        pytest.param(pods(3, pending=1), values(3000, 3000), 6, id="one of each: 6 / 4 = 1.5"),
        # Taking: what says nothing counts as at the target; what has not begun is not counted.
        pytest.param(pods(4), values(0, 0), 2, id="(0 + 0 + 1 + 1) / 4 = 0.5: ceil(0.5 x 4)"),
        pytest.param(pods(4), values(0), 3, id="(0 + 1 + 1 + 1) / 4 = 0.75: ceil(0.75 x 4)"),
        pytest.param(pods(20), values(0), 20, id="19 / 20 = 0.95: within the tolerance"),
        pytest.param(pods(2, pending=2), values(500, 500), 1, id="pending ones have no say: ceil(0.5 x 2)"),
        pytest.param(pods(3), values(1000, 1000), 3, id="at the target, one says nothing"),
        # Not there at all.
        pytest.param(pods(2, deleting=2), {**values(2000, 2000), **values(9000, 9000, of="d")}, 4, id="those that go"),
        pytest.param(pods(2, failed=1), {**values(2000, 2000), "f0": 9000}, 4, id="one that failed"),
        pytest.param(pods(2, pending=1), {**values(3000, 3000), "p0": 9000}, 6, id="a value of one that has not begun"),
    ],
)
def test_pods_that_say_nothing(there: list[ScaledPod], thousandths: dict[str, int], replicas: int) -> None:
    current = len([pod for pod in there if not pod.deleting])
    assert Autoscaler.of(manifest()).look(0, current, there, {METRIC: thousandths}).replicas == replicas


@pytest.mark.parametrize(
    ("there", "metrics"),
    [
        pytest.param(pods(3), {METRIC: None}, id="the metrics API does not answer"),
        pytest.param(pods(3), {METRIC: {}}, id="no pod has a value"),
        pytest.param(pods(3), {}, id="there is no such metric"),
        pytest.param(pods(0, pending=3), {METRIC: values(0, of="p")}, id="values of pods that have not begun alone"),
        pytest.param([], {METRIC: values(0)}, id="no pod"),
    ],
)
def test_missing_data_never_scales(there: list[ScaledPod], metrics: Mapping[str, dict[str, int] | None]) -> None:
    decision = Autoscaler.of(manifest()).look(0, 3, there, metrics)
    assert (decision.replicas, decision.proposed) == (3, None)


@pytest.mark.parametrize(
    ("first", "second", "replicas"),
    [
        pytest.param(values(2000, 2000), values(3000, 3000), 6, id="the higher wins"),
        pytest.param(values(2000, 2000), values(0, 0), 4, id="whichever it is"),
        pytest.param(values(2000, 2000), None, 4, id="one without an answer holds nobody up"),
        pytest.param(values(0, 0), None, 2, id="but then none is taken"),
        pytest.param(None, values(0, 0), 2, id="whichever it is that has none"),
    ],
)
def test_two_metrics(first: dict[str, int] | None, second: dict[str, int] | None, replicas: int) -> None:
    scaler = Autoscaler.of(manifest(metrics=[metric(), metric(SECOND)]))
    assert scaler.look(0, 2, pods(2), {METRIC: first, SECOND: second}).replicas == replicas


@pytest.mark.parametrize(("current", "replicas"), [(25, 20), (1, 2), (2, 2)])
def test_bounds_need_no_metric(current: int, replicas: int) -> None:
    assert Autoscaler.of(manifest(minReplicas=2)).look(0, current, pods(current), {}).replicas == replicas


def replay(scaler: Autoscaler, current: int, proposals: list[int], every_s: float = 15) -> list[int]:
    """The number of replicas after each look, where the metric asks for the proposals one after the other."""
    sizes = []
    for index, wanted in enumerate(proposals):
        # The mean that asks for exactly `wanted`: cut to thousandths, ceil(current x mean) is wanted.
        mean = 1000 * wanted // current if wanted != current else 1000
        current = scaler.look(index * every_s, current, pods(current), {METRIC: values(*[mean] * current)}).replicas
        sizes.append(current)
    return sizes


@pytest.mark.parametrize(
    ("behavior", "current", "proposals", "sizes"),
    [
        pytest.param(
            {"scaleUp": rules(value=1, period_s=60), "scaleDown": rules()},
            2,
            [10] * 9,
            # One a minute: an event of exactly 60 s ago is no longer of the period.
            [3, 3, 3, 3, 4, 4, 4, 4, 5],
            id="up: one every 60 s",
        ),
        pytest.param(
            {"scaleUp": rules(value=2, period_s=30), "scaleDown": rules()},
            2,
            [10] * 5,
            [4, 4, 6, 6, 8],
            id="up: two every 30 s",
        ),
        pytest.param(
            {"scaleUp": rules(value=50, kind="Percent"), "scaleDown": rules()},
            2,
            [20] * 4,
            # ceil(2 x 1.5) = 3, ceil(3 x 1.5) = 5, ceil(5 x 1.5) = 8, 12
            [3, 5, 8, 12],
            id="up: by half, rounded up",
        ),
        pytest.param(
            {"scaleUp": rules(), "scaleDown": rules(value=50, kind="Percent")},
            9,
            [1] * 4,
            # int(9 x 0.5) = 4, 2, 1
            [4, 2, 1, 1],
            id="down: by half, cut",
        ),
        pytest.param(
            {"scaleUp": rules(), "scaleDown": rules(value=1, period_s=30)},
            5,
            [1] * 5,
            [4, 4, 3, 3, 2],
            id="down: one every 30 s",
        ),
        pytest.param(
            {"scaleUp": rules(), "scaleDown": rules(window_s=60)},
            6,
            [6, 2, 2, 2, 2, 2, 2],
            # The first look, at 0 s, is out of the window of 60 s when it is 60 s old.
            [6, 6, 6, 6, 2, 2, 2],
            id="down: the highest of 60 s",
        ),
        pytest.param(
            {"scaleUp": rules(window_s=30), "scaleDown": rules()},
            2,
            [2, 6, 6, 6, 6],
            # 2 was asked for at 0 s; at 30 s it is out of the window, in which 6 was asked for once and again.
            [2, 2, 6, 6, 6],
            id="up: the lowest of 30 s",
        ),
        pytest.param(
            {"scaleUp": {**rules(), "selectPolicy": "Disabled"}, "scaleDown": rules()}, 2, [9, 9], [2, 2], id="never up"
        ),
        pytest.param(
            {"scaleUp": rules(), "scaleDown": {**rules(), "selectPolicy": "Disabled"}},
            9,
            [2, 2],
            [9, 9],
            id="never down",
        ),
        pytest.param(
            {
                "scaleUp": {
                    "selectPolicy": "Min",
                    "policies": [
                        {"type": "Pods", "value": 4, "periodSeconds": 15},
                        {"type": "Percent", "value": 100, "periodSeconds": 15},
                    ],
                }
            },
            1,
            [20] * 4,
            # The smaller of +4 and doubling: 2, 4, 8, 12
            [2, 4, 8, 12],
            id="the policy that changes least",
        ),
        pytest.param(
            {"scaleUp": {}, "scaleDown": {}},
            1,
            [20] * 4,
            # Defaults: the larger of +4 and doubling: 5, 10, 20
            [5, 10, 20, 20],
            id="what the API server fills in",
        ),
        pytest.param(
            {"scaleUp": rules(value=1, period_s=60), "scaleDown": rules(value=1, period_s=15)},
            3,
            [9, 1, 9, 9, 9, 9],
            # At 30 s: added 1 at 0 s, taken 1 at 15 s, so the minute began with 3 - 1 + 1 = 3, and 4 may be reached.
            # At 60 s what was added at 0 s is out of the minute: it began with 4 - 1 + 1 = 4, and 5 may be reached.
            [4, 3, 4, 4, 5, 5],
            id="what was taken may be added again",
        ),
    ],
)
def test_behavior(behavior: dict[str, Any], current: int, proposals: list[int], sizes: list[int]) -> None:
    assert replay(Autoscaler.of(manifest(behavior=behavior)), current, proposals) == sizes


@pytest.mark.parametrize(
    ("current", "proposals", "sizes"),
    [
        # At most twice as many, or four.
        pytest.param(1, [20] * 4, [4, 8, 16, 20], id="up"),
        # The highest of 300 s, whose end counts: asked for at 0 s, taken at 315 s.
        pytest.param(6, [6, *[2] * 21], [6, *[6] * 20, 2], id="down"),
    ],
)
def test_without_behavior(current: int, proposals: list[int], sizes: list[int]) -> None:
    given = manifest()
    del given["spec"]["behavior"]
    assert replay(Autoscaler.of(given), current, proposals) == sizes


def test_what_a_look_tells() -> None:
    scaler = Autoscaler.of(manifest(metrics=[metric(target="1250m")]))
    assert scaler.look(0, 2, pods(2), {METRIC: values(2500, 3000)}) == Decision(
        # 2.75 / 1.25 = 2.2: ceil(2 x 2.2)
        replicas=5,
        proposed=5,
        mean=2.75,
        reason=f"by {METRIC}",
    )


def test_a_look_tells_of_the_metric_that_asked_for_most() -> None:
    scaler = Autoscaler.of(manifest(metrics=[metric(), metric(SECOND, target="4")]))
    assert scaler.look(0, 2, pods(2), {METRIC: values(0, 0), SECOND: values(9000, 11000)}) == Decision(
        # 10 / 4 = 2.5: ceil(2 x 2.5)
        replicas=5,
        proposed=5,
        mean=10.0,
        reason=f"by {SECOND}",
    )


@pytest.mark.parametrize(
    ("text", "thousandths"), [("1", 1000), ("1250m", 1250), ("0.5", 500), (2, 2000), ("3k", 3_000_000)]
)
def test_quantities(text: str | int, thousandths: int) -> None:
    assert quantity(text) == thousandths


def changed(path: str, value: object) -> dict[str, Any]:
    given = copy.deepcopy(manifest())
    *parents, last = path.split("/")
    holder: Any = given
    for part in parents:
        holder = holder[int(part) if part.isdigit() else part]
    holder[last] = value
    return given


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (changed("apiVersion", "autoscaling/v1"), "m: only a HorizontalPodAutoscaler of autoscaling/v2 is simulated"),
        (changed("spec/idle", 1), "m: spec.idle is not simulated"),
        (changed("spec/behavior/scaleUp/tolerance", "0.2"), "m: spec.behavior.tolerance is not simulated"),
        (
            changed("spec/metrics/0/type", "Resource"),
            "m: only metrics of type Pods with a target of type AverageValue are simulated",
        ),
        (
            changed("spec/metrics/0/pods/target/averageValue", "1Gi"),
            "'1Gi' is no quantity that is simulated: a number, alone or with m, k or M",
        ),
    ],
)
def test_what_is_not_simulated_is_said(given: dict[str, Any], said: str) -> None:
    with pytest.raises(SimulationError) as error:
        Autoscaler.of(given)
    assert str(error.value) == said
