"""What a load is, what came of it, and what is said: all that needs neither Locust nor a fleet."""

from __future__ import annotations

import json
import random
import re
from dataclasses import replace
from html.parser import HTMLParser
from typing import TYPE_CHECKING, Any

import pytest

from fleet.faults import Refused
from fleet.load import job, latency, outcome, profiles, report, seen
from fleet.load.plan import Interval, NotOursError, Plan, together
from fleet.load.profiles import PROFILES, Thresholds, Wish
from fleet.load.seen import Answers, Sight
from local import load as command
from local.errors import LocalError
from local.load_inside import Inside
from local.preflight_table import accepted
from local.state import PROJECT, State

if TYPE_CHECKING:
    from pathlib import Path

    from fleet import settings

CASE: dict[str, Any] = {}


# Profiles


@pytest.mark.parametrize("profile", PROFILES.values(), ids=PROFILES)
def test_a_profile_reaches_its_peak_and_ends(profile: profiles.Profile) -> None:
    assert max(part for _, part in profile.shape) == 1
    assert profile.shape[0][0] == 0


@pytest.mark.parametrize(
    ("variables", "arrivals", "points", "duration_s"),
    [
        ({"PROFILE": "smoke"}, "closed", ((0, 4),), 20),
        ({"PROFILE": "smoke", "USERS": "7", "DURATION": "60"}, "closed", ((0, 7),), 60),
        ({"PROFILE": "smoke", "ARRIVALS": "open", "RATE": "2.5"}, "open", ((0, 2.5),), 20),
        (
            {"PROFILE": "spike", "RATE": "100", "DURATION": "18"},
            "open",
            ((0, 5), (3, 5), (3, 100), (6, 100), (6, 5), (18, 5)),
            18,
        ),
    ],
    ids=["as it is", "more users, longer", "open", "squeezed into a tenth"],
)
def test_a_wish_becomes_a_plan(
    variables: dict[str, str], arrivals: str, points: tuple[tuple[float, float], ...], duration_s: float
) -> None:
    plan = profiles.plan(profiles.read(variables), "127.0.0.1", "m", "infer", CASE)
    assert (plan.arrivals, plan.duration_s) == (arrivals, duration_s)
    assert [number for point in plan.points for number in point] == pytest.approx(
        [number for point in points for number in point]
    )


@pytest.mark.parametrize(
    ("variables", "faults"),
    [
        ({}, ["PROFILE"]),
        ({"PROFILE": "smok"}, ["PROFILE"]),
        ({"PROFILE": "smoke", "USERS": "0"}, ["USERS"]),
        ({"PROFILE": "smoke", "USERS": "2001"}, ["USERS"]),
        ({"PROFILE": "smoke", "USERS": "many"}, ["USERS"]),
        ({"PROFILE": "ramp", "RATE": "1001"}, ["RATE"]),
        ({"PROFILE": "ramp", "RATE": "0"}, ["RATE"]),
        ({"PROFILE": "ramp", "RATE": "nan"}, ["RATE"]),
        ({"PROFILE": "smoke", "RATE": "5"}, ["the load"]),
        ({"PROFILE": "smoke", "ARRIVALS": "open", "USERS": "5"}, ["the load"]),
        ({"PROFILE": "smoke", "ARRIVALS": "half"}, ["ARRIVALS"]),
        ({"PROFILE": "smoke", "KEEP_ALIVE": "often"}, ["KEEP_ALIVE"]),
        ({"PROFILE": "smoke", "KEEP_ALIVE": "2"}, ["KEEP_ALIVE"]),
        ({"PROFILE": "smoke", "RETRIES": "11", "DURATION": "1", "P95_MS": "-1"}, ["DURATION", "P95_MS", "RETRIES"]),
    ],
)
def test_what_is_no_load_is_refused_all_at_once(variables: dict[str, str], faults: list[str]) -> None:
    with pytest.raises(Refused) as refused:
        profiles.read(variables)
    assert sorted(fault.setting for fault in refused.value.faults) == faults


@pytest.mark.parametrize(
    ("text", "kept"), [("1", True), ("yes", True), ("0", False), ("no", False), ("false", False), ("", False)]
)
def test_whether_connections_are_kept(text: str, kept: bool) -> None:  # noqa: FBT001
    assert profiles.read({"PROFILE": "smoke", "KEEP_ALIVE": text}).keep_alive is kept


def test_a_plan_travels_whole() -> None:
    plan = profiles.plan(Wish(profile="step"), "127.0.0.1", "m", "infer", {"inputs": [], "output": "O", "values": 3})
    assert Plan.of(plan.text()) == plan


def test_a_plan_for_somebody_elses_server_is_not_taken() -> None:
    plan = profiles.plan(Wish(profile="smoke"), "203.0.113.1", "m", "infer", CASE)
    with pytest.raises(NotOursError, match=r"got 203\.0\.113\.1"):
        Plan.of(plan.text())


# Latencies


@pytest.mark.parametrize("part", [0.0, 0.5, 0.95, 0.99, 1.0])
@pytest.mark.parametrize("mean_s", [0.0003, 0.02, 5.0])
def test_a_quantile_is_that_of_the_values_within_one_percent(part: float, mean_s: float) -> None:
    chance = random.Random(3)  # noqa: S311
    values = sorted(chance.expovariate(1 / mean_s) + 2e-5 for _ in range(4001))
    counts: dict[int, int] = {}
    for value in values:
        counts[latency.bucket(value)] = counts.get(latency.bucket(value), 0) + 1
    exact = values[max(-(-int(part * 10000) * len(values) // 10000) - 1, 0)]
    assert latency.quantile(counts, part) == pytest.approx(exact, rel=0.0101)


def test_of_nothing_there_is_no_quantile() -> None:
    assert latency.quantile({}, 0.5) is None


def test_counts_of_two_programs_are_those_of_one() -> None:
    assert latency.merged([{1: 2, 5: 1}, {}, {5: 3}]) == {1: 2, 5: 4}


# What came of it


def interval(time_s: float, **changes: Any) -> Interval:  # noqa: ANN401 - an interval's own
    return Interval(time_s, **changes)


def figures(**changes: Any) -> outcome.Figures:  # noqa: ANN401 - the figures' own
    plain: dict[str, Any] = {
        "seconds": 10,
        "offered": 100,
        "served": 100,
        "failed": 0,
        "retried": 0,
        "tokens": 0,
        "p50_ms": 10,
        "p95_ms": 100,
        "p99_ms": 200,
        "first_token_p95_ms": None,
        "errors": {},
    }
    return outcome.Figures(**{**plain, **changes})


def test_figures_are_sums() -> None:
    slow, fast = latency.bucket(1.0), latency.bucket(0.1)
    got = outcome.figures(
        [
            interval(1, offered=4, served=2, failed=1, latency={fast: 2}, errors={"a": 1}),
            interval(2, offered=1, served=2, retried=3, latency={fast: 1, slow: 1}, tokens=7, first_token={fast: 2}),
        ],
        2,
    )
    assert (got.offered, got.served, got.failed, got.retried, got.tokens, got.errors) == (5, 4, 1, 3, 7, {"a": 1})
    assert (got.rps, got.offered_per_s, got.error_ratio) == (2.0, 2.5, 0.2)
    assert got.p50_ms == pytest.approx(100, rel=0.011)
    assert got.p99_ms == pytest.approx(1000, rel=0.011)
    assert got.first_token_p95_ms == pytest.approx(100, rel=0.011)


@pytest.mark.parametrize(
    ("changes", "broken"),
    [
        ({}, []),
        ({"p95_ms": 500}, []),
        ({"p95_ms": 501}, ["p95_ms"]),
        ({"p95_ms": None, "served": 0}, ["p95_ms", "served_per_s"]),
        ({"failed": 1, "served": 99}, []),
        ({"failed": 2, "served": 98}, ["error_ratio"]),
        ({"served": 49}, ["served_per_s"]),
    ],
)
def test_thresholds(changes: dict[str, Any], broken: list[str]) -> None:
    limits = Thresholds(p95_ms=500, error_ratio=0.01, served_per_s=5)
    assert [one.name for one in outcome.verdicts(figures(**changes), limits) if not one.ok] == broken


def test_a_verdict_says_what_was_got_and_the_limit() -> None:
    limits = Thresholds(p95_ms=50, error_ratio=0.001, served_per_s=20)
    assert [one.text for one in outcome.verdicts(figures(failed=25, served=75), limits)] == [
        "p95 100 ms, at most 50 ms",
        "25 of 100 requests failed (25.00%), at most 0.10%",
        "7.5 requests/s answered, at least 20",
    ]


# What is seen of the fleet


def counters(**pods: int) -> dict[str, Any]:
    return {
        "data": {
            "result": [
                {"metric": {"sku": name[0], "pod": name}, "value": [0, str(count)]} for name, count in pods.items()
            ]
        }
    }


@pytest.mark.parametrize(
    ("looks", "total"),
    [
        ([{"a1": 5}], {}),
        ([{"a1": 5}, {"a1": 9}], {"a": {"a1": 4}}),
        ([{"a1": 5}, {"a1": 6, "a2": 3, "b1": 2}], {"a": {"a1": 1, "a2": 3}, "b": {"b1": 2}}),
        ([{"a1": 5}, {"a1": 6}, {}, {"a2": 1}], {"a": {"a1": 1, "a2": 1}}),
        ([{"a1": 5}, {"a1": 6}, {}, {"a1": 8}], {"a": {"a1": 3}}),
        ([{"a1": 5}, {"a1": 2}], {"a": {"a1": 2}}),
    ],
    ids=["what was before", "what rose", "new replicas", "one that went", "a scrape that is missing", "one began anew"],
)
def test_who_answered(looks: list[dict[str, int]], total: dict[str, dict[str, int]]) -> None:
    answers = Answers()
    for look in looks:
        answers.add(counters(**look))
    assert answers.copy() == total


def local_watched() -> seen.Watched:
    return seen.watched(accepted("local"), "minilm", ["a100-40gb", "h100-80gb"])


def test_replicas_and_ratios_are_those_of_the_stacks_skus() -> None:
    def deployment(sku: str, wanted: int, status: dict[str, int]) -> dict[str, Any]:
        labels = {"triton-fleet.io/sku": sku}
        return {"spec": {"replicas": wanted, "template": {"metadata": {"labels": labels}}}, "status": status}

    deployments = {
        "items": [
            deployment("a100-40gb", 3, {"readyReplicas": 2}),
            deployment("h100-80gb", 1, {}),
            deployment("old", 5, {"readyReplicas": 5}),
        ]
    }
    assert seen.replicas(local_watched(), deployments) == (
        {"a100-40gb": 3, "h100-80gb": 1},
        {"a100-40gb": 2, "h100-80gb": 0},
    )
    ratios = {
        "data": {
            "result": [
                {"metric": {"sku": "a100-40gb"}, "value": [0, "1.5"]},
                {"metric": {"sku": "h100-80gb"}, "value": [0, "NaN"]},
            ]
        }
    }
    assert seen.ratios(local_watched(), ratios) == {"a100-40gb": 1.5, "h100-80gb": None}


# What is shown


def a_load(**changes: Any) -> report.Load:  # noqa: ANN401 - a load's own
    plan = profiles.plan(Wish(profile="smoke"), "127.0.0.1", "minilm", "infer", {"inputs": ["secret"]})
    fast = latency.bucket(0.05)
    sights = [
        Sight(
            float(time),
            {"a": 1 + time // 2, "b": 1},
            {"a": 1, "b": 1},
            {"a": float(time), "b": None},
            {"a": {"a1": 10 * time, "a2": 1}},
        )
        for time in range(4)
    ]
    made = report.Load("local", "smoke", plan, "2026-12-01T00:00:00+00:00", {"a": (1, 4), "b": (1, 2)}, sights=sights)
    made.intervals = [
        interval(float(time), offered=10, served=9, failed=1, latency={fast: 9}, errors={"<HTTP 503>": 1}, users=4)
        for time in range(1, 21)
    ]
    for name, value in changes.items():
        setattr(made, name, value)
    return made


class Page(HTMLParser):
    """What a page is made of, and whether it asks for anything beside itself."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.asks: list[str] = []
        self.texts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.asks += [name for name, _ in attrs if name in ("src", "href")]

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def test_the_data_have_what_design_promises() -> None:
    made = a_load()
    found = json.loads(json.dumps(report.data(made, outcome.verdicts(made.figures(), PROFILES["smoke"].thresholds))))
    assert {
        "offered",
        "served",
        "failed",
        "rps",
        "p50_ms",
        "p95_ms",
        "p99_ms",
        "replicas",
        "metric",
        "share",
    } <= found.keys()
    assert (found["offered"], found["served"], found["failed"], found["rps"]) == (200, 180, 20, 9.0)
    assert found["replicas"]["a"][-1] == {"time_s": 3.0, "ready": 1, "wanted": 2}
    assert [one["ratio"] for one in found["metric"]["a"]] == [0, 1, 2, 3]
    assert found["share"] == {
        "a": {"answered": 31, "part": 1.0, "replicas": {"a1": 30, "a2": 1}},
        "b": {"answered": 0, "part": 0.0, "replicas": {}},
    }
    assert [one["ok"] for one in found["thresholds"]] == [True, False, True]


def test_the_page_stands_alone() -> None:
    made = a_load(interrupted=True)
    page = Page(report.page(made, outcome.verdicts(made.figures(), PROFILES["smoke"].thresholds)))
    assert page.tags.count("svg") == len(report.plots(made)) == 6
    assert (page.asks, page.tags.count("script"), page.tags.count("link")) == ([], 0, 0)
    assert "<HTTP 503>" in page.texts
    assert "It was interrupted." in page.texts


def test_a_load_that_had_no_time_is_reported_too() -> None:
    made = a_load(intervals=[], sights=a_load().sights[:1])
    found = outcome.verdicts(made.figures(), PROFILES["smoke"].thresholds)
    assert Page(report.page(made, found)).tags.count("svg") == 2 + 1
    assert report.summary(made, found).count("FAILED") == 2
    assert report.screen(made)
    assert report.line(made).startswith("0:00:00")


def test_the_live_view_tells_replicas_ratio_rates_and_latencies() -> None:
    shown = "\n".join(report.screen(a_load()))
    for part in ("users 4", "10.0", "9.0", "50 ms", "bounds", "1-4", "3.00", "20 x <HTTP 503>"):
        assert part in shown
    assert report.line(a_load()).endswith("failed 20  a 1/2 ratio 3.00, b 1/1 ratio -")


# What is refused before anything is asked


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"variables": {"PROFILE": "none"}}, "this load cannot be made"),
        ({"model": "bert"}, "MODEL='bert' is no model of stack local"),
        ({"scenario": "generate"}, "SCENARIO='generate': minilm, whose runtime is python, is not asked like that"),
        ({"stack": "prod"}, "the embedded cluster runs stack local, not prod"),
        ({"stack": "nowhere"}, "there is no stack 'nowhere'"),
        ({}, "the embedded cluster is not running"),
    ],
)
def test_what_cannot_be_loaded(tmp_path: Path, given: dict[str, Any], said: str) -> None:
    wanted = command.Given(**{"stack": "local", "variables": {"PROFILE": "smoke"}, **given})
    with pytest.raises(LocalError) as error:
        command.load(wanted, State(tmp_path / "state"), lambda _: None)
    assert str(error.value).startswith(said)


class Cluster:
    """Answers with what a Service would be."""

    def __init__(self, address: str) -> None:
        self.address = address

    def get(self, _: str) -> dict[str, Any]:
        return {"spec": {"clusterIP": self.address}}


@pytest.mark.parametrize(("address", "fine"), [("198.18.8.17", True), ("10.96.0.17", False)])
def test_only_a_service_of_ours_is_asked_from_this_machine(address: str, fine: bool) -> None:  # noqa: FBT001
    loaded: settings.Settings = accepted("local")
    given = command.Given("local", {})
    if fine:
        assert command.service_address(Cluster(address), loaded, loaded.models[0], given) == address  # type: ignore[arg-type]
        return
    with pytest.raises(LocalError, match=r"got 10\.96\.0\.17.*\n.*IN_CLUSTER=1"):
        command.service_address(Cluster(address), loaded, loaded.models[0], given)  # type: ignore[arg-type]


def test_a_model_is_asked_as_its_known_answers_say() -> None:
    model = accepted("local").models[0]
    case = command.known_case(model, "infer", PROJECT)
    assert case["inputs"][0]["name"] == "TEXT"
    assert (case["output"], case["values"]) == ("EMBEDDING", 384)


# A load from inside the cluster


def test_the_job_of_a_load(project: Path) -> None:
    """It shares the load, and is let out to Triton alone."""
    loaded = accepted("local")
    plan = profiles.plan(Wish(profile="smoke"), "minilm.triton-local.svc", "minilm", "infer", {"inputs": []})
    files, policy, made = job.manifests(loaded, plan, "ab12cd", 3, dict.fromkeys(job.FILES, "text"))
    assert {one["metadata"]["name"] for one in (files, policy, made)} == {"load-ab12cd"}
    assert {one["metadata"]["namespace"] for one in (files, policy, made)} == {"triton-local"}
    assert replace(Plan.of(files["data"]["plan.json"]), parts=1) == plan
    assert Plan.of(files["data"]["plan.json"]).parts == made["spec"]["completions"] == made["spec"]["parallelism"] == 3
    labels = made["spec"]["template"]["metadata"]["labels"]
    assert policy["spec"]["podSelector"]["matchLabels"] == labels
    assert labels["app.kubernetes.io/component"] == "load"
    (rule,) = policy["spec"]["egress"]
    assert rule["to"] == [{"podSelector": {"matchLabels": {"app.kubernetes.io/component": "triton"}}}]
    paths = {item["path"] for item in made["spec"]["template"]["spec"]["volumes"][0]["configMap"]["items"]}
    assert paths == {"plan.json", *job.FILES}
    assert all((project / path).is_file() for path in job.FILES)


def test_no_stack_makes_a_load() -> None:
    texts = {path: path.read_text() for path in (PROJECT / "tests" / "golden").rglob("*.yaml")}
    assert any("app.kubernetes.io/component: verification" in text for text in texts.values())
    assert [path for path, text in texts.items() if "app.kubernetes.io/component: load" in text] == []


def test_the_programs_files_need_no_others_of_ours() -> None:
    """They are all that the pod has."""
    for path in job.FILES:
        for name in re.findall(
            r"^(?:from|import) ((?:fleet|services)[\w.]*)(?: import (.*))?$", (PROJECT / path).read_text(), re.MULTILINE
        ):
            module = name[0].replace(".", "/")
            found = {
                f"{module}.py",
                f"{module}/__init__.py",
                *(f"{module}/{one.strip()}.py" for one in name[1].split(",")),
            }
            assert found & set(job.FILES), (path, name)


def test_pods_of_a_load_are_told_as_one() -> None:
    first = [interval(1.0, offered=2, users=1, latency={3: 1}), interval(2.0, offered=1, users=1, errors={"a": 1})]
    second = [
        interval(1.1, offered=3, users=2, latency={3: 1, 4: 1}),
        interval(2.05, served=1, errors={"a": 2, "b": 1}),
    ]
    assert together([first, second]) == [
        interval(1.1, offered=5, users=3, latency={3: 2, 4: 1}),
        interval(2.05, offered=1, served=1, users=1, errors={"a": 3, "b": 1}),
    ]
    assert together([first]) == first


def test_users_that_are_told_twice_within_a_second_are_counted_once() -> None:
    late = [interval(4.9, served=1, users=5, in_flight=3), interval(5.0, served=2, users=4, in_flight=2)]
    other = [interval(5.0, served=4, users=7, in_flight=1)]
    assert together([late, other]) == [interval(5.0, served=7, users=11, in_flight=3)]


@pytest.mark.parametrize("parts", [1, 2, 3, 50])
@pytest.mark.parametrize("peak", [1, 4, 5, 240])
def test_pods_of_a_load_have_together_the_users_that_it_says(peak: int, parts: int) -> None:
    plan = profiles.plan(Wish(profile="step", users=peak), "127.0.0.1", "m", "infer", CASE)
    for time_s, users in ((0, round(0.02 * peak)), (100, peak)):
        found = [replace(plan, part=part, parts=parts).users(time_s) for part in range(parts)]
        assert sum(found) == users
        assert max(found) - min(found) <= 1


@pytest.mark.parametrize(
    ("in_cluster", "count", "made"), [("", "", ""), ("1", "", "1"), ("1", "3", "3"), ("", "2", "2")]
)
def test_where_a_load_is_made(in_cluster: str, count: str, made: str) -> None:
    assert command.asked_pods(in_cluster, count) == made


@pytest.mark.parametrize("said", ["0", "no", "2"])
def test_where_a_load_is_made_is_said_by_1_or_nothing(said: str) -> None:
    with pytest.raises(LocalError, match=f"IN_CLUSTER={said}: it is 1, or nothing is said"):
        command.asked_pods(said, "3")


class Making:
    """A cluster in which a load is begun, until somebody interrupts it."""

    def __init__(self) -> None:
        self.jobs: list[str] = []

    def create_job(self, manifest: dict[str, Any]) -> str:
        self.jobs.append(manifest["metadata"]["name"])
        return "uid"

    def create_beside(self, *_: object) -> None:
        raise KeyboardInterrupt

    def delete_job(self, _: str, job: str) -> None:
        self.jobs.remove(job)


def test_a_load_inside_that_is_interrupted_while_it_is_begun_is_removed() -> None:
    cluster = Making()
    plan = profiles.plan(Wish(profile="smoke"), "minilm.triton-local.svc", "minilm", "infer", CASE)
    with pytest.raises(KeyboardInterrupt):
        Inside(cluster, accepted("local"), plan, 2)  # type: ignore[arg-type]
    assert cluster.jobs == []


@pytest.mark.parametrize("pods", ["0", "51", "many", "-1", "1.5", "²", "٣", "1" * 5000])
def test_how_many_pods(pods: str) -> None:
    with pytest.raises(LocalError, match=f"PODS={pods}: the load is shared by 1 to 50 pods"):
        command._pods(command.Given("local", {}, pods=pods))
