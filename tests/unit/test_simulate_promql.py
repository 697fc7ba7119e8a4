"""The simulator's PromQL: what an expression is over given samples, with the arithmetic shown.

tests/rules/test_simulate_promql.py holds the same against the real promtool.
"""

from __future__ import annotations

import math

import pytest

from fleet.simulate import promql
from fleet.simulate.errors import SimulationError

A, B = {"pod": "a", "model": "m"}, {"pod": "b", "model": "m"}


def labels(given: dict[str, str]) -> promql.Labels:
    return frozenset(given.items())


def storage() -> promql.Storage:
    """Samples at 0, 10 … 60 s. `a` grows by 20 each time and begins anew at 40 s; `b` stands still at 7."""
    found = promql.Storage()
    for index, value in enumerate((100, 120, 140, 160, 5, 25, 45)):
        found.add("total", labels(A), index * 10, value)
        found.add("total", labels(B), index * 10, 7)
        found.add("gauge", labels(A), index * 10, index % 3)
    return found


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("total", {"a": 45, "b": 7}, id="the newest"),
        pytest.param('total{pod="a"}', {"a": 45}, id="equal"),
        pytest.param('total{pod!="a"}', {"b": 7}, id="unequal"),
        pytest.param('total{pod=~"[ab]"}', {"a": 45, "b": 7}, id="matches"),
        pytest.param('total{pod!~"a|c"}', {"b": 7}, id="does not match"),
        pytest.param('total{zone=""}', {"a": 45, "b": 7}, id="a label that is not there is empty"),
        pytest.param("absent_one", {}, id="nothing"),
        # In (0, 60]: 120 … 45, increase 45 - 120 + 160 = 85 in 50 s; 10 s more to the start: x 60 / 50 / 60 s.
        pytest.param('rate(total{pod="a"}[60s])', {"a": 85 / 50}, id="rate over a counter that began anew"),
        # In (30, 60]: 5, 25, 45, increase 40 in 20 s; it was 0 at 5 / 40 x 20 = 2.5 s before: x 22.5 / 20 / 30 s.
        pytest.param('rate(total{pod="a"}[30s])', {"a": 40 * 22.5 / 20 / 30}, id="rate not before the counter was 0"),
        pytest.param('rate(total{pod="b"}[1m])', {"b": 0}, id="rate of what stands still"),
        pytest.param("rate(total[10s])", {}, id="rate of one sample"),
        pytest.param("min_over_time(gauge[20s])", {"a": 0}, id="fewest of 2 at 50 s and 0 at 60 s"),
        pytest.param("max_over_time(gauge[20s])", {"a": 2}, id="most of them"),
        pytest.param("count_over_time(gauge[1m])", {"a": 6}, id="samples of a minute, without that at its start"),
        pytest.param("sum by (model) (total)", {"": 52}, id="sum"),
        pytest.param("max by (model) (total)", {"": 45}, id="max"),
        pytest.param("avg by (model) (total)", {"": 26}, id="avg"),
        pytest.param("count(total) by (model)", {"": 2}, id="by, written behind"),
        pytest.param("2 + 3 * total", {"a": 137, "b": 23}, id="products first"),
        pytest.param("(2 + 3) * total", {"a": 225, "b": 35}, id="parentheses first"),
        pytest.param("total - 5 - 2", {"a": 38, "b": 0}, id="from the left"),
        pytest.param("total > 10", {"a": 45}, id="a comparison leaves out"),
        pytest.param("total > bool 10", {"a": 1, "b": 0}, id="or says"),
        pytest.param("total / gauge", {"a": math.inf}, id="one to one; 45 / 0"),
        pytest.param("gauge / gauge", {"a": math.nan}, id="0 / 0"),
        pytest.param("total / (gauge > 0) or total / 5", {"a": 9, "b": 1.4}, id="or"),
        pytest.param("total and gauge", {"a": 45}, id="and"),
        pytest.param("total and on (pod) (gauge == 0)", {"a": 45}, id="on a label"),
        pytest.param("total + on (model, pod) gauge", {"a": 45}, id="on labels"),
        pytest.param("1e3 * total", {"a": 45_000, "b": 7000}, id="an exponent"),
        pytest.param("total / 1000000", {"a": 45e-6, "b": 7e-6}, id="a long number"),
    ],
)
def test_expressions(text: str, expected: dict[str, float]) -> None:
    found = promql.query(text).at(storage(), 60)
    assert {dict(those).get("pod", ""): value for those, value in found.items()} == pytest.approx(expected, nan_ok=True)


def test_a_sample_stands_for_five_minutes() -> None:
    query = promql.query("total")
    assert [len(query.at(storage(), now)) for now in (-1, 0, 359.9, 360)] == [0, 2, 2, 0]


def test_a_series_that_ended_is_gone_but_its_samples_count() -> None:
    found = storage()
    found.end("total", labels(A), 61)
    assert promql.query("total").at(found, 61).keys() == {labels(B) | {("__name__", "total")}}
    assert len(promql.query("rate(total[1m])").at(found, 65)) == 2
    found.forget(100)
    assert len(promql.query("rate(total[1m])").at(found, 65)) == 1


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("histogram_quantile(0.9, x)", "'histogram_quantile(0.9, x)': histogram_quantile is not simulated"),
        ("a * on (pod) group_left (sku) b", "'a * on (pod) group_left (sku) b': group_left is not simulated"),
        ("a ^ 2", "'a ^ 2': ' ^ 2' is not simulated"),
        ("a offset 5m", "'a offset 5m': 'offset' is not simulated there"),
        ("rate(a)", "'rate(a)': rate is of a range"),
        ("a[5m]", "'a[5m]': a range stands only in a function"),
        ("(a", "'(a': ) expected, not 'its end'"),
        ("", "'': 'its end' is not simulated there"),
        ("rate(a[5y])", "'5' is no duration that is simulated: a number with ms, s, m, h or d"),
    ],
)
def test_what_is_not_simulated_is_said(text: str, said: str) -> None:
    with pytest.raises(SimulationError) as error:
        promql.query(text)
    assert str(error.value) == said


def test_a_number_is_no_series() -> None:
    with pytest.raises(SimulationError):
        promql.query("1 + 1").at(storage(), 0)


def test_what_a_query_reads() -> None:
    assert promql.query('sum by (a) (rate(x{b="c"}[1m])) / (y > 0) or z').names == {"x", "y", "z"}
