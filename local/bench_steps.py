"""How soon a step in load makes a Deployment larger, by what the guide's defaults need on the same cluster.

Two arms, each in a namespace of its own: ours as the product renders it, and the guide's with its rules, a scrape every
30 s and an autoscaler without `behavior`. Their pods are the same. Both get the same step at the same moment, one
request at a time of a known length, and begin anew before the next one: new pods, new autoscalers.

The steps are spread evenly over the guide's scrape period, and over the period of the autoscalers' looks, which both
arms have in the same phase. Several pairs of workloads take turns, so that the steps need no hour.
"""

from __future__ import annotations

import json
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Final

from fleet import autoscaling, names, scraping
from fleet.schema_autoscaling import SYNC_S
from local import paced
from local.errors import LocalError
from local.state import PROJECT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from fleet.pods import Manifest
    from local.state import State

STEPS: Final = 20
PAIRS: Final = 5
APART_S: Final = 20
"""Between the first starts of two pairs: each starts pods of its own, on few cores."""
SKU: Final = "a100-40gb"
OURS: Final = "scale-ours"
GUIDES: Final = "scale-guide"
ARMS: Final = (OURS, GUIDES)

GUIDE_SCRAPE_S: Final = 30
"""The guide's monitor says nothing, so it is the operator's own default; stated here, since it is what is measured."""
GUIDE_RULES_S: Final = 6
GUIDE_TARGET: Final = "1000m"
GUIDE_MOST: Final = 4
"""All three, and the rules below: ASLB's PrometheusRule `triton-metrics`, chart and values."""
GUIDE_DURATIONS: Final[Mapping[str, str]] = {
    "triton:compute_duration:average": "compute_infer_duration_us",
    "triton:queue_duration:average": "queue_duration_us",
    "triton:request_duration:average": "request_duration_us",
}

SERVICE_S: Final = 0.2
USERS: Final = 3
"""On one replica one is served and two wait: a ratio of 2, twice the target."""
EMPTY_DEADLINE_S: Final = 240.0
"""New pods, two scrapes of the guide's, and a rule."""
DECISION_DEADLINE_S: Final = 180.0
READY_DEADLINE_S: Final = 120.0
MINIMUM_DEADLINE_S: Final = 900.0
"""300 s of stabilization, the minute of the rates, and ours takes one replica every 300 s."""
POLL_S: Final = 1.0
GOLDEN: Final = 0.618034
"""Multiples of it, without their whole part, are spread as evenly as may be: the looks' phases."""

REPORT: Final = PROJECT / "reports" / "scale_out.json"


@dataclass(frozen=True, slots=True)
class Parts:
    """Where the time of one decision went, s: until a scrape had it, until a rule had it, until a look saw it."""

    scrape_s: float
    rule_s: float
    look_s: float


@dataclass(frozen=True, slots=True)
class Scaled:
    """What one arm made of a step, seconds after it; of the pod, seconds after the decision."""

    decided_s: float
    parts: Parts
    pod_ready_s: float
    to_minimum_s: float | None
    """From the end of the load; of the last step of a pair alone, since the others do not wait for it."""


@dataclass(frozen=True, slots=True)
class Step:
    """One step in load, so long after a scrape of the guide's."""

    number: int
    after_scrape_s: float
    before_look_s: float
    ours: Scaled
    guides: Scaled


def scrape_phase_s(number: int) -> float:
    """How long after a scrape of the guide's the step comes."""
    return number * GUIDE_SCRAPE_S / STEPS


def look_phase_s(number: int) -> float:
    """How long before the step the autoscalers look."""
    return SYNC_S * ((0.5 + number * GOLDEN) % 1.0)


def guide_rules() -> Manifest:
    """The guide's recorded series. A selector keeps them off the pods of the other arm, which are under the same
    Prometheus.
    """
    here = f'{{namespace="{GUIDES}"}}'

    def rate(metric: str) -> str:
        return f"rate(nv_inference_{metric}{here}[1m])"

    series = {name: f"{rate(part)}/clamp_min({rate('request_success')},1)" for name, part in GUIDE_DURATIONS.items()}
    series[autoscaling.RATIO] = f"{rate('queue_duration_us')}/clamp_min({rate('compute_infer_duration_us')},1)"
    rules = [{"record": name, "expr": text} for name, text in series.items()]
    return {
        "apiVersion": scraping.API_VERSION,
        "kind": "PrometheusRule",
        "metadata": {"name": "triton-metrics", "namespace": GUIDES, "labels": {"release": "prometheus"}},
        "spec": {"groups": [{"name": "autoscaling", "interval": f"{GUIDE_RULES_S}s", "rules": rules}]},
    }


def guide_monitor() -> Manifest:
    """For all pairs in one, where the guide has one for each."""
    return {
        "apiVersion": scraping.API_VERSION,
        "kind": "PodMonitor",
        "metadata": {"name": "guide", "namespace": GUIDES, "labels": {"release": "prometheus"}},
        "spec": {
            "selector": {"matchLabels": {names.LABEL_COMPONENT: "server"}},
            "podMetricsEndpoints": [
                {"port": names.PORT_METRICS_NAME, "path": "/metrics", "interval": f"{GUIDE_SCRAPE_S}s"}
            ],
        },
    }


def guide_autoscaler(name: str) -> Manifest:
    metric = {"name": autoscaling.RATIO}
    target = {"type": "AverageValue", "averageValue": GUIDE_TARGET}
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": name, "namespace": GUIDES},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
            "minReplicas": 1,
            "maxReplicas": GUIDE_MOST,
            "metrics": [{"type": "Pods", "pods": {"metric": metric, "target": target}}],
        },
    }


def guides(ours: Sequence[Manifest]) -> Iterator[Manifest]:
    """Our Services, Deployments and files as the guide's arm has them: its labels, all else the same."""
    for manifest in ours:
        other = json.loads(json.dumps(manifest))
        other["metadata"]["namespace"] = GUIDES
        if other["kind"] == "Deployment":
            labels = {"app": other["metadata"]["name"], names.LABEL_COMPONENT: "server"}
            other["metadata"]["labels"] = labels
            other["spec"]["selector"]["matchLabels"] = {"app": labels["app"]}
            pod = other["spec"]["template"]
            pod["metadata"]["labels"] = labels
            del pod["spec"]["topologySpreadConstraints"]
        if other["kind"] == "Service":
            other["spec"]["selector"] = {"app": names.deployment_name(other["metadata"]["name"], SKU)}
        yield other


def measure(state: State, progress: Callable[[str], None]) -> float:
    """Our median by the guide's. All that was seen is in reports/scale_out.json."""
    bed = paced.Bed(state)
    models = [paced.Paced(f"pair-{number}", {SKU: SERVICE_S}, {}) for number in range(PAIRS)]
    loaded = paced.fleet(OURS, models)
    served = paced.served(loaded, models)
    bed.remove(*ARMS)
    bed.create([paced.namespace(name) for name in ARMS])
    try:
        for one in served:
            if one["kind"] == "Deployment":
                one["spec"]["replicas"] = 0
        bed.create([*served, *paced.observed(loaded), *guides(served), guide_monitor(), guide_rules()])
        scalers = {one["metadata"]["name"]: one for one in paced.autoscalers(loaded)}
        with paced.Sizes(bed, OURS) as ours, paced.Sizes(bed, GUIDES) as others:
            pairs = [_Pair(bed, model.name, scalers, {OURS: ours, GUIDES: others}, progress) for model in models]
            with ThreadPoolExecutor(PAIRS) as pool:
                plans = [range(index, STEPS, PAIRS) for index in range(PAIRS)]
                found = [step for steps in pool.map(_Pair.play, pairs, plans, range(PAIRS)) for step in steps]
    finally:
        bed.remove(*ARMS)
    found.sort(key=lambda step: step.number)
    sums = {arm: summed([getattr(step, arm) for step in found]) for arm in ("ours", "guides")}
    REPORT.parent.mkdir(exist_ok=True)
    REPORT.write_text(json.dumps({"medians": sums, "steps": [asdict(step) for step in found]}, indent=1) + "\n")
    for arm, sum_ in sums.items():
        progress(f"bench: scale_out: {arm}: " + ", ".join(f"{name} {value:.1f} s" for name, value in sum_.items()))
    return sums["ours"]["decided"] / sums["guides"]["decided"]


def summed(found: Sequence[Scaled]) -> dict[str, float]:
    """Medians of an arm, s."""
    took = [one.to_minimum_s for one in found if one.to_minimum_s is not None]
    return {
        "decided": statistics.median(one.decided_s for one in found),
        "until scraped": statistics.median(one.parts.scrape_s for one in found),
        "until recorded": statistics.median(one.parts.rule_s for one in found),
        "until looked at": statistics.median(one.parts.look_s for one in found),
        "pod ready": statistics.median(one.pod_ready_s for one in found),
        "to minimum": statistics.median(took),
    }


class _Pair:
    """A workload of each arm, alike but for what scales it."""

    def __init__(
        self,
        bed: paced.Bed,
        model: str,
        scalers: Mapping[str, Manifest],
        sizes: Mapping[str, paced.Sizes],
        progress: Callable[[str], None],
    ) -> None:
        self._bed = bed
        self._model = model
        self._name = names.deployment_name(model, SKU)
        self._autoscalers = {OURS: scalers[self._name], GUIDES: guide_autoscaler(self._name)}
        self._sizes = sizes
        self._progress = progress
        self._addresses = {arm: bed.address(model, arm) for arm in ARMS}

    def play(self, numbers: Sequence[int], turn: int) -> list[Step]:
        time.sleep(turn * APART_S)
        try:
            return [self._step(number, last=number == numbers[-1]) for number in numbers]
        except LocalError as error:
            # Other pairs go on for minutes before anybody hears of it.
            self._progress(f"bench: scale_out: {self._name}: {error}")
            raise

    def _step(self, number: int, *, last: bool) -> Step:
        pods = self._reset()
        began = self._moment(pods[GUIDES], scrape_phase_s(number))
        paced.sleep_until(began - look_phase_s(number) - SYNC_S)
        self._scale(number)
        paced.sleep_until(began)
        users = {arm: paced.Users(address, self._model) for arm, address in self._addresses.items()}
        began = time.time()
        for one in users.values():
            one.be(USERS)
        try:
            decided = {arm: self._wait(arm, 2, 1, began, DECISION_DEADLINE_S) for arm in ARMS}
            ready = {arm: self._wait(arm, 2, 2, decided[arm], READY_DEADLINE_S) for arm in ARMS}
            parts = {arm: self._parts(arm, pods[arm], began, decided[arm]) for arm in ARMS}
        finally:
            for one in users.values():
                one.be(0)
        ended = time.time()
        failures = [failure for one in users.values() for failure in one.failures]
        if failures:
            raise LocalError(f"{len(failures)} requests failed in step {number}", details=failures[0], fix="see above")
        least = {arm: self._wait(arm, 1, 1, ended, MINIMUM_DEADLINE_S) - ended if last else None for arm in ARMS}
        arms = {
            arm: Scaled(
                decided_s=round(decided[arm] - began, 2),
                parts=parts[arm],
                pod_ready_s=round(ready[arm] - decided[arm], 2),
                to_minimum_s=None if (took := least[arm]) is None else round(took, 1),
            )
            for arm in ARMS
        }
        step = Step(number, scrape_phase_s(number), round(look_phase_s(number), 2), arms[OURS], arms[GUIDES])
        self._progress(
            f"bench: scale_out: step {number}, {step.after_scrape_s:.1f} s after a scrape: {_told(step.ours)}; "
            f"the guide's {_told(step.guides)}"
        )
        return step

    def _wait(self, arm: str, replicas: int, ready: int, since: float, within_s: float) -> float:
        return self._sizes[arm].wait(self._name, replicas, ready, since=since, within_s=within_s)

    def _selector(self, arm: str) -> str:
        return f"app={self._name}" if arm == GUIDES else f"{names.LABEL_MODEL}={self._model}"

    def _reset(self) -> dict[str, str]:
        """A new pod for each arm, of which the series that its autoscaler will read says that it is idle."""
        for arm in ARMS:
            here = f"--namespace={arm}"
            self._bed.kubectl("delete", "horizontalpodautoscalers", here, f"--selector=pair={self._model}")
            self._bed.kubectl("scale", f"deployment/{self._name}", here, "--replicas=0")
        for arm in ARMS:
            _until(partial(self._gone, arm), READY_DEADLINE_S, f"pods of {self._name} to go")
            self._bed.kubectl("scale", f"deployment/{self._name}", f"--namespace={arm}", "--replicas=1")
        since = time.time()
        for arm in ARMS:
            self._wait(arm, 1, 1, since - 1, READY_DEADLINE_S)
        found = {arm: self._pods(arm)[0] for arm in ARMS}
        idle = f"the series of {found} to say that they are idle"
        _until(lambda: all(self._idle(arm, pod) for arm, pod in found.items()), EMPTY_DEADLINE_S, idle)
        return found

    def _pods(self, arm: str) -> list[str]:
        said = self._bed.kubectl(
            "get", "pods", f"--namespace={arm}", f"--selector={self._selector(arm)}", "--output=name"
        )
        return [line.removeprefix("pod/") for line in said.split()]

    def _gone(self, arm: str) -> bool:
        return not self._pods(arm)

    def _idle(self, arm: str, pod: str) -> bool:
        found = self._bed.samples(f'{autoscaling.RATIO}{{namespace="{arm}",pod="{pod}"}}', 20)
        return [values[-1][1] for _, values in found] == [0.0]

    def _moment(self, pod: str, phase_s: float) -> float:
        """The next time that is so long after a scrape of the guide's and leaves its autoscaler time for a look."""
        (target,) = [
            one
            for one in self._bed.ask_prometheus("/api/v1/targets?state=active")["activeTargets"]
            if (one["labels"].get("namespace"), one["labels"].get("pod")) == (GUIDES, pod)
        ]
        moment = datetime.fromisoformat(target["lastScrape"]).timestamp() + phase_s
        while moment < time.time() + 2 * SYNC_S + 2:
            moment += GUIDE_SCRAPE_S
        return moment

    def _scale(self, number: int) -> None:
        """Autoscalers of new names, since the controller remembers what it thought of an old one. Each looks first a
        period after it was made.
        """
        made = []
        for manifest in self._autoscalers.values():
            more = {"name": f"{self._name}-{number}", "labels": {"pair": self._model}}
            made.append({**manifest, "metadata": {**manifest["metadata"], **more}})
        self._bed.create(made)

    def _parts(self, arm: str, pod: str, began: float, decided: float) -> Parts:
        here = f'{{namespace="{arm}",pod="{pod}"}}'
        since_s = time.time() - began + 5
        ((_, waited),) = self._bed.samples(f"nv_inference_queue_duration_us{here}", since_s)
        ((_, ratio),) = self._bed.samples(f"{autoscaling.RATIO}{here}", since_s)
        scraped = next(when for when, value in waited if when > began and value > 0)
        recorded = next(when for when, value in ratio if when > began and value > 1.1)  # noqa: PLR2004 - and tolerance
        return Parts(round(scraped - began, 2), round(recorded - scraped, 2), round(decided - recorded, 2))


def _told(arm: Scaled) -> str:
    parts = arm.parts
    return f"{arm.decided_s:.1f} s ({parts.scrape_s:.1f} + {parts.rule_s:.1f} + {parts.look_s:.1f})"


def _until(what: Callable[[], bool], within_s: float, said: str) -> None:
    until = time.monotonic() + within_s
    while not what():
        if time.monotonic() > until:
            raise LocalError(f"waited {within_s:g} s for {said}", fix="see the pods' events, and Prometheus' targets")
        time.sleep(POLL_S)
