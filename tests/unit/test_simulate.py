"""A load is replayed as it would go: times that can be reckoned by hand, and what is said of what came of it."""

from __future__ import annotations

import json
import shutil
from html.parser import HTMLParser
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from fleet import arrivals, settings
from fleet.faults import Fault, Refused
from fleet.simulate import planning, report
from fleet.simulate.errors import SimulationError
from fleet.simulate.plan import Change, Phases, Run
from fleet.simulate.verdicts import Verdict, verdicts
from fleet.simulate.world import World, quantile
from local import simulate
from local.errors import LocalError
from tests.unit import graph

if TYPE_CHECKING:
    from pathlib import Path

A100, H100 = "llama-3-8b-a100-40gb", "llama-3-8b-h100-80gb"
QUIET = [[0, 0]]


def speed(sku: str = "a100-40gb", **changes: object) -> dict[str, Any]:
    return {"model": "llama-3-8b", "sku": sku, "service_s": 1, "load_s": 60, **changes}


def raw_trace(**changes: object) -> dict[str, Any]:
    return {
        "about": "a test",
        "duration_s": 600,
        "arrivals": "even",
        "loads": [{"model": "llama-3-8b", "rate": QUIET}],
        "speeds": [speed()],
        **changes,
    }


def stack(
    project: Path,
    low: int = 1,
    high: int = 14,
    skus: tuple[str, ...] = ("a100-40gb",),
    **more: Any,  # noqa: ANN401
) -> settings.Settings:
    """Stack `prod`, whose model is on these SKUs alone."""
    raw = graph.stack_config(project, "prod")
    placements = [{"sku": sku, "replicas": {"min": low, "max": high}, **more.pop("placement", {})} for sku in skus]
    raw["models"][0] |= {"placements": placements, **more.pop("model", {})}
    return settings.load({**raw, **more}, project)


def played(loaded: settings.Settings, **changes: object) -> Run:
    return World(planning.plan(loaded, planning.read(raw_trace(**changes)))).run()


def test_a_load_below_what_one_replica_does_waits_for_nothing(project: Path) -> None:
    # One request every 2 s, each answered in 1 s; the last, at 598 s, too.
    run = played(stack(project), loads=[{"model": "llama-3-8b", "rate": [[0, 0.5]]}])
    assert (run.offered, run.failed, run.changes) == (299, 0, ())
    assert run.latencies == pytest.approx([1.0] * 299)
    assert {sight.waiting for sight in run.sights} == {0}
    assert run.sights[-1].ratio == {A100: 0.0}


def test_what_waits_is_answered_in_turn(project: Path) -> None:
    # Two a second for 10 s, one answered a second: the n-th of 19 arrives at n / 2 s and is answered 1 s after the one
    # before, the last 19 s after the first began: 0.5 + 19 - 9.5 = 10 s.
    loaded = stack(project, placement={"autoscaled": False})
    run = played(loaded, loads=[{"model": "llama-3-8b", "rate": [[0, 2], [9.9, 2], [9.9, 0]]}])
    assert len(run.latencies) == 19
    assert run.latencies[0] == pytest.approx(1.0)
    assert run.latencies[-1] == pytest.approx(10.0)


@pytest.mark.parametrize(
    ("speeds", "last_s"),
    [
        # As above, but two at a time: nothing waits.
        pytest.param({"instances": 2}, 1.0, id="side by side"),
        # Each waits for the batch in work, at most 1 s, and is answered with all that came meanwhile.
        pytest.param({"batch": 8}, 2.0, id="batches whose size costs nothing"),
    ],
)
def test_instances_and_batches(project: Path, speeds: dict[str, Any], last_s: float) -> None:
    loaded = stack(project, placement={"autoscaled": False})
    run = played(
        loaded, loads=[{"model": "llama-3-8b", "rate": [[0, 2], [9.9, 2], [9.9, 0]]}], speeds=[speed(**speeds)]
    )
    assert max(run.latencies) == pytest.approx(last_s)


BUSY = {"model": "llama-3-8b", "rate": [[0, 0], [100, 0], [100, 4]]}
RATE = {"scale_up": {"pods": 1, "period_s": 15}}


def first(run: Run) -> float:
    return run.changes[0].time


def test_a_decision_comes_within_what_measures_it(project: Path) -> None:
    """A scrape, a rule and a look, and one more scrape for a rate to have two samples with answers in them."""
    found = [first(played(stack(project, model={"autoscaling": RATE}), seed=seed, loads=[BUSY])) for seed in range(4)]
    assert max(found) <= 100 + 1 + 2 * 10 + 10 + 15
    assert min(found) > 100
    assert len(set(found)) > 1, "clocks begin at other moments with another seed"


@pytest.mark.parametrize(
    ("scrape", "rule", "look", "decided"),
    [
        # Looks come every 15 s: at 111 s, for one. By the scrape at 109 s eight are answered, and have waited 2.6 s.
        pytest.param(9, 0, 6, 111, id="the rule comes 1 s after the scrape, and the look 1 s after the rule"),
        pytest.param(9, 8, 6, 126, id="the rule comes after the look, which waits for the next"),
        # By the scrape at 101 s none is answered yet.
        pytest.param(1, 2, 4, 124, id="a scrape that comes too soon is none"),
    ],
)
def test_known_phases_say_when_it_is_decided(
    project: Path, scrape: float, rule: float, look: float, decided: float
) -> None:
    known = Phases(looks={A100: look}, rules={"triton-load": rule}, scrapes={f"{A100}-1": scrape})
    plan = planning.plan(stack(project), planning.read(raw_trace(loads=[BUSY])))
    assert first(World(plan, known).run()) == decided


def test_the_series_are_known_before_the_trace_begins(project: Path) -> None:
    """A real fleet was there before; the adapter's next listing may be five minutes off."""
    loaded = stack(project, monitoring={"relist_interval_s": 300})
    soon = {"model": "llama-3-8b", "rate": [[0, 0], [5, 0], [5, 4]]}
    # As above, and the load begins at 5 s.
    assert first(played(loaded, loads=[soon])) <= 5 + 1 + 2 * 10 + 10 + 15


def test_a_slower_scrape_decides_later(project: Path) -> None:
    slow = {"monitoring": {"scrape_interval_s": 30, "rate_window_s": 120}}
    pairs = [
        (
            first(played(stack(project, model={"autoscaling": RATE}), seed=seed, loads=[BUSY])),
            first(played(stack(project, model={"autoscaling": RATE}, **slow), seed=seed, loads=[BUSY])),
        )
        for seed in range(4)
    ]
    # The load begins at 100 s.
    assert sum(late - 100 for _, late in pairs) > 1.2 * sum(soon - 100 for soon, _ in pairs)


def test_replicas_are_added_at_the_rate_of_the_manifest(project: Path) -> None:
    rules = {"scale_up": {"pods": 2, "period_s": 60}}
    run = played(stack(project, model={"autoscaling": rules}), loads=[BUSY], duration_s=900)
    ups = [change for change in run.changes if change.after > change.before]
    assert {change.after - change.before for change in ups[:4]} == {2}
    assert all(60 <= after.time - before.time <= 75 for before, after in pairwise(ups[:4]))


def test_a_replica_is_ready_when_its_node_its_image_and_its_model_are(project: Path) -> None:
    # 8 replicas of one GPU fill the first node. The ninth waits 300 s for a node, 100 s for the image, 60 s for the
    # model; the others only for the model.
    speeds = [speed(node_s=300, pull_s=100)]
    loaded = stack(project, low=8, high=9, model={"autoscaling": RATE})
    run = played(loaded, loads=[{"model": "llama-3-8b", "rate": [[0, 40]]}], speeds=speeds, duration_s=900)
    (decided,) = [change.time for change in run.changes if change.after == 9]
    ready = next(sight.time for sight in run.sights if sight.ready[A100] == 9)
    # Clients know 1 s later, and it is seen every 2.5 s.
    assert 460 + 1 <= ready - decided <= 460 + 1 + 2.5
    assert next(sight.nodes["a100-40gb"] for sight in run.sights if sight.time > decided + 1) == 2


def test_a_node_that_nobody_needs_goes_after_ten_minutes(project: Path) -> None:
    load = {"model": "llama-3-8b", "rate": [[0, 40], [200, 40], [200, 0]]}
    loaded = stack(project, low=8, high=9, model={"autoscaling": RATE})
    run = played(loaded, loads=[load], speeds=[speed()], duration_s=3600)
    (down,) = [change.time for change in run.changes if change.after == 8]
    gone = next(sight.time for sight in run.sights if sight.time > down and sight.nodes["a100-40gb"] == 1)
    # Of both nodes less than half is in use only when one is empty, or nearly: the last of its replicas moves first,
    # which takes a start of 60 s. It is seen every 10 s, and the node autoscaler looks every 10 s.
    assert down + 600 <= gone <= down + 600 + 60 + 5 + 10 + 10


def test_what_a_replica_has_it_answers_before_it_goes(project: Path) -> None:
    load = {"model": "llama-3-8b", "rate": [[0, 0.9], [200, 0.9], [200, 6], [300, 6], [300, 0.3]]}
    rules = {**RATE, "scale_down": {"pods": 1, "period_s": 15}}
    run = played(stack(project, model={"autoscaling": rules}), loads=[load], duration_s=3600, arrivals="random")
    downs = [change for change in run.changes if change.after < change.before]
    assert downs
    assert (run.failed, len(run.latencies)) == (0, run.offered)
    assert run.sights[-1].wanted == {A100: 1}


def test_users_have_one_request_each_and_think_between(project: Path) -> None:
    # 2 users until 100 s: one request each in 1 + 3 s. Then 4: two more. Then none.
    users = [[0, 2], [100, 4], [200, 0]]
    loaded = stack(project, placement={"autoscaled": False})
    load = {"model": "llama-3-8b", "users": users, "think_s": 3}
    run = played(loaded, loads=[load], speeds=[speed(instances=4)])
    # 200 / 4 rounds of two users, 100 / 4 of two more.
    assert run.offered == pytest.approx(2 * 50 + 2 * 25, abs=4)
    assert set(run.latencies) == {1.0}
    assert run.sights[-1].offered == 0


def test_requests_inside_a_backend_are_not_seen_by_the_ratio(project: Path) -> None:
    load = {"model": "llama-3-8b", "rate": [[0, 4]]}
    seen, blind = (
        played(stack(project, model={"autoscaling": RATE}), loads=[load], speeds=[speed(queue=queue)])
        for queue in ("triton", "backend")
    )
    assert seen.changes
    assert blind.changes == ()
    told = stack(project, model={"autoscaling": {**RATE, "waiting_requests_target": 4}})
    assert played(told, loads=[load], speeds=[speed(queue="backend")]).changes, "but by the second metric"


def test_requests_spread_over_all_replicas_of_all_skus(project: Path) -> None:
    loaded = stack(project, low=3, skus=("a100-40gb", "h100-80gb"), placement={"autoscaled": False})
    speeds = [speed(instances=8), speed("h100-80gb", instances=8)]
    run = played(loaded, loads=[{"model": "llama-3-8b", "rate": [[0, 10]]}], speeds=speeds)
    assert sum(run.served_by.values()) == len(run.latencies)
    assert run.served_by[A100] / len(run.latencies) == pytest.approx(0.5, abs=0.03)


def test_nobody_answers_while_nobody_is_there(project: Path) -> None:
    """A fleet whose nodes are not there has no replica to begin with."""
    raw = graph.stack_config(project, "prod")
    raw["skus"][0]["nodes"] = {"min": 0, "max": 1}
    raw["models"][0]["placements"] = [{"sku": "a100-40gb", "replicas": {"min": 1, "max": 2}}]
    loaded = settings.load(raw, project)
    run = played(loaded, loads=[{"model": "llama-3-8b", "rate": [[0, 1]]}])
    assert run.sights[0].nodes["a100-40gb"] == 1, "the fewest replicas have brought their node"
    assert run.failed == 0


def test_a_run_is_the_same_each_time_and_another_with_another_seed(project: Path) -> None:
    loaded = stack(project, model={"autoscaling": RATE})
    given: dict[str, Any] = {"loads": [BUSY], "arrivals": "random"}
    one, same, other = (played(loaded, seed=seed, **given) for seed in (5, 5, 6))
    assert one == same
    assert one.latencies != other.latencies


def test_the_load_is_the_same_whatever_the_fleet_does(project: Path) -> None:
    slow, quick = (
        played(stack(project, model={"autoscaling": rules}), loads=[BUSY], arrivals="random")
        for rules in ({}, {"scale_up": {"pods": 4, "period_s": 15}})
    )
    assert slow.changes != quick.changes
    assert slow.offered == quick.offered


@pytest.mark.parametrize(
    ("points", "time", "level"),
    [([(0, 2), (10, 4)], 5, 3), ([(0, 2), (10, 4)], 99, 4), ([(5, 2)], 0, 2), ([(0, 1), (5, 1), (5, 9), (9, 9)], 5, 9)],
)
def test_a_load_is_a_line_through_points(points: list[tuple[float, float]], time: float, level: float) -> None:
    assert arrivals.value(points, time) == level


def test_even_arrivals_come_as_evenly_as_their_rate() -> None:
    assert list(arrivals.arrivals([(0, 2)], 2.1, None)) == [0.5, 1.0, 1.5, 2.0]
    assert list(arrivals.arrivals([(0, 0)], 2.1, None)) == []
    assert len(list(arrivals.arrivals([(0, 0), (100, 10)], 100, None))) == pytest.approx(500, abs=2)


@pytest.mark.parametrize(
    ("values", "part", "found"), [([], 0.5, None), ([3, 1, 2], 0.5, 2), ([1, 2, 3, 4], 0.95, 4), ([7], 0.99, 7)]
)
def test_quantiles(values: list[float], part: float, found: float | None) -> None:
    assert quantile(values, part) == found


def test_what_came_of_it_against_what_was_expected(project: Path) -> None:
    load = {"model": "llama-3-8b", "rate": [[0, 0], [100, 0], [100, 4], [700, 4], [700, 0]]}
    reach = {"model": "llama-3-8b", "sku": "a100-40gb", "after_s": 100}
    expect = {
        "reach": [
            {**reach, "replicas": 2, "within_s": 130},
            {**reach, "replicas": 2, "within_s": 60},
            {**reach, "replicas": 9, "within_s": 900},
        ],
        "flap_s": 60,
        "minimum_by_s": 3000,
        "failed_most": 0,
        "p95_s": 0.5,
    }
    rules = {"scale_up": {"pods": 1, "period_s": 60}, "scale_down": {"window_s": 300, "pods": 4, "period_s": 15}}
    run = played(stack(project, high=8, model={"autoscaling": rules}), loads=[load], expect=expect, duration_s=3600)
    found = verdicts(run)
    assert [(one.name, one.ok) for one in found] == [
        (f"reach/{A100}", True),
        (f"reach/{A100}", False),
        (f"reach/{A100}", False),
        ("flapping", True),
        ("minimum", True),
        ("failed", True),
        ("p95", False),
    ]
    assert found[2].text == "9 ready within 900 s of 100 s: 8 at most"
    assert found[3].text == f"no turn within 60 s in {len(run.changes)} changes"
    assert found[5].text == f"0 of {run.offered} requests failed, 0 may"


def test_a_turn_is_seen(project: Path) -> None:
    run = played(stack(project), expect={"flap_s": 100, "minimum_by_s": 600})
    turned = [
        Change(time, A100, before, after, None, "")
        for time, before, after in ((0, 1, 2), (50, 2, 3), (140, 3, 2), (250, 2, 3))
    ]
    changed = Run(**{**{name: getattr(run, name) for name in Run.__dataclass_fields__}, "changes": tuple(turned)})
    assert verdicts(changed)[0] == Verdict(
        "flapping",
        ok=False,
        text=f"1 turns within 100 s; the first: {A100} 2 to 3 at 50 s, 3 to 2 at 140 s",
    )


@pytest.mark.parametrize(
    ("changes", "faults"),
    [
        pytest.param(
            {"loads": [{"model": "lama-3-8b", "rate": QUIET}], "speeds": [speed(), speed("h100-80gb")]},
            [
                Fault(
                    "loads[0].model",
                    "'lama-3-8b'",
                    "one of llama-3-8b",
                    "stack prod serves no other model",
                    "did you mean 'llama-3-8b'?",
                ),
                Fault(
                    "speeds[1].sku",
                    "'h100-80gb'",
                    "one of a100-40gb",
                    "stack prod places llama-3-8b on no other SKU",
                    "did you mean 'a100-40gb'?",
                ),
            ],
            id="another stack's",
        ),
        pytest.param(
            {"speeds": [speed("h100-80gb")]},
            [
                Fault(
                    "speeds[0].sku",
                    "'h100-80gb'",
                    "one of a100-40gb",
                    "stack prod places llama-3-8b on no other SKU",
                    "did you mean 'a100-40gb'?",
                ),
                Fault(
                    "speeds",
                    "nothing for llama-3-8b on a100-40gb",
                    "one for each model on each of its SKUs",
                    "how many replicas a load needs follows from how fast one is",
                    "add it, measured or assumed",
                ),
            ],
            id="no speed",
        ),
        pytest.param(
            {"speeds": [speed(), speed()]},
            [
                Fault(
                    "speeds[1]",
                    "llama-3-8b on a100-40gb",
                    "each model once on each SKU",
                    "speeds[0] says it already, and a replica has one speed",
                    "remove one of the two",
                ),
            ],
            id="two speeds",
        ),
    ],
)
def test_a_trace_of_another_stack(project: Path, changes: dict[str, Any], faults: list[Fault]) -> None:
    with pytest.raises(Refused) as refused:
        planning.plan(stack(project), planning.read(raw_trace(**changes)))
    assert refused.value.faults == faults


@pytest.mark.parametrize(
    ("changes", "at", "said"),
    [
        ({"duration_s": 0}, "duration_s", "limit: input should be greater than or equal to 60"),
        ({"speed": []}, "speed", "limit: a name that a trace knows"),
        ({"speeds": []}, "speeds", "limit: a list of one or more"),
        ({"speeds": [1]}, "speeds[0]", "limit: an object, as in local/traces"),
        ({"about": ...}, "about", "got:   nothing"),
        ({"loads": [{"model": "m"}]}, "loads[0]", "limit: one of rate and users"),
        (
            {"loads": [{"model": "m", "rate": [[9, 1], [3, 1]]}]},
            "loads[0]",
            "limit: points in the order of their times",
        ),
        ({"loads": [{"model": "m", "rate": [[0, -1]]}]}, "loads[0].rate[0][1]", "limit: input should be greater"),
    ],
)
def test_what_is_wrong_with_a_trace(changes: dict[str, Any], at: str, said: str) -> None:
    raw = {key: value for key, value in raw_trace(**changes).items() if value is not ...}
    with pytest.raises(Refused) as refused:
        planning.read(raw)
    assert [fault.setting for fault in refused.value.faults] == [at]
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("record", "expr", "said"),
    [
        ("triton:queue_compute:ratio", "nv_gpu_power_usage", "nv_gpu_power_usage is not simulated"),
        ("other", "up", "an autoscaler reads it, and no rule records it"),
    ],
)
def test_rules_that_cannot_be_simulated(project: Path, record: str, expr: str, said: str) -> None:
    plan = planning.plan(stack(project), planning.read(raw_trace()))
    rules = {"spec": {"groups": [{"name": "g", "interval": "10s", "rules": [{"record": record, "expr": expr}]}]}}
    changed = type(plan)(**{**{name: getattr(plan, name) for name in plan.__dataclass_fields__}, "rules": rules})
    with pytest.raises(SimulationError) as error:
        World(changed).run()
    assert str(error.value) == f"triton:queue_compute:ratio: {said}"


class Page(HTMLParser):
    """Which elements a page has, and whether each that opens closes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.seen: list[str] = []
        self.open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, _: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        if tag not in ("meta", "polyline", "path"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert tag in ("polyline", "path") or self.open.pop() == tag


def test_the_reports_hold_what_came_of_it(project: Path) -> None:
    about = "a <test> & more"
    run = played(stack(project, model={"autoscaling": RATE}), loads=[BUSY], about=about, expect={"failed_most": 0})
    found = verdicts(run)
    shown = report.text(run, found)
    assert f"{len(run.latencies)} of {run.offered} requests answered, 0 failed" in shown
    assert f"{A100}" in shown
    assert "ok      failed" in shown
    text = report.page(run, found)
    page = Page(text)
    assert page.open == []
    assert page.seen.count("svg") == len(report.plots(run)) == 7
    assert "<test>" not in text
    assert "http://" not in text.replace("http://www.w3.org", "")
    data = json.loads(json.dumps(report.data(run, found)))
    assert data["totals"] == report.totals(run)
    assert [change["after"] for change in data["changes"]] == [change.after for change in run.changes]
    assert len(data["sights"]) == len(run.sights)


def test_the_command(project: Path, tmp_path: Path) -> None:
    shutil.copy(project / "Pulumi.prod.yaml", tmp_path)
    shutil.copytree(project / "model_repo", tmp_path / "model_repo")
    path = tmp_path / "trace.yaml"
    speeds = [speed(), speed("h100-80gb")]
    said: list[str] = []
    path.write_text(yaml.safe_dump(raw_trace(speeds=speeds, expect={"failed_most": 0})))
    simulate.simulate("prod", str(path), said.append, tmp_path)
    assert {one.name for one in (tmp_path / "reports").iterdir()} == {"simulation.html", "simulation.json"}
    assert "reports/simulation.html has the plots" in said[-1]
    path.write_text(
        yaml.safe_dump(
            raw_trace(
                speeds=speeds,
                expect={
                    "reach": [{"model": "llama-3-8b", "sku": "a100-40gb", "replicas": 9, "after_s": 0, "within_s": 9}]
                },
            )
        )
    )
    with pytest.raises(LocalError) as error:
        simulate.simulate("prod", str(path), said.append, tmp_path)
    assert str(error.value).startswith(f"1 of 1 expectations of trace.yaml do not hold: reach/{A100}\nfix: ")


@pytest.mark.parametrize(
    ("name", "given", "content", "said"),
    [
        ("prod", "", "", "make simulate needs TRACE=<file>\nfix: name a file, or one of ours: "),
        ("prod", "nowhere.yaml", "", "TRACE='nowhere.yaml' is no file\nfix: name a file, or one of ours: "),
        ("prod", "trace.yaml", "a: [", "{folder}/trace.yaml cannot be read as YAML"),
        ("prod", "trace.yaml", "a: 2026-13-45", "{folder}/trace.yaml cannot be read as YAML: month must be in 1..12"),
        ("prod", "trace.yaml", 5000 * "[", "{folder}/trace.yaml cannot be read as YAML"),
        ("prod", "trace.yaml", "about: x", "{folder}/trace.yaml cannot be replayed on stack prod"),
        ("prodd", "trace.yaml", "about: x", "there is no stack 'prodd'"),
    ],
)
def test_what_the_command_cannot_replay(  # noqa: PLR0913, PLR0917 - columns of the table
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, given: str, content: str, said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "trace.yaml").write_text(content)
    with pytest.raises(LocalError) as error:
        simulate.simulate(name, given, print, project)
    assert str(error.value).startswith(said.format(folder=tmp_path))


def test_the_traces_that_we_ship_hold_what_they_expect(project: Path) -> None:
    for path in sorted(simulate.TRACES.glob("*.yaml")):
        name = path.stem.split("-")[0]
        loaded = settings.load(graph.stack_config(project, name), project)
        run = World(planning.plan(loaded, planning.read(yaml.safe_load(path.read_text())))).run()
        found = verdicts(run)
        assert found
        assert [one for one in found if not one.ok] == [], path.name
