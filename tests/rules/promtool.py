"""Runs cases of rules through promtool, and plays what Triton would count.

A case is what was scraped, and what is then true. promtool evaluates the rules as Prometheus does. All cases of a file
go through one run; each case is then a test of its own.
"""

from __future__ import annotations

import json
import re
import subprocess
import xml.etree.ElementTree as ET
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import yaml

from fleet import alerts, recording
from fleet.alert_names import Alert
from tests.unit.graph import local_settings

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from fleet.settings import Settings

SCRAPE_S = 10
WINDOW_S = 60
A100 = "a100-40gb"
H100 = "h100-80gb"

Samples = list[float | str | None]
"""One for each scrape: a value, None for a scrape without it, `stale` where the series ends."""
Series = dict[str, Samples]


def settings_of(project: Path, **changes: Any) -> Settings:  # noqa: ANN401 - settings as a stack file has them
    """Stack `local` with the times that the cases are made for."""
    times = {"scrape_interval_s": SCRAPE_S, "evaluation_interval_s": SCRAPE_S, "rate_window_s": WINDOW_S}
    return local_settings(project, **{"monitoring": times, **changes})


def named(metric: str, labels: Mapping[str, str]) -> str:
    return f"{metric}{{{', '.join(f'{key}={json.dumps(value)}' for key, value in sorted(labels.items()))}}}"


_OURS = '{__name__=~"triton(_fleet)?:.*"}'
SANE = [
    (second, f"(count({_OURS}) or vector(0)) - (count({_OURS} >= 0 < 1e12) or vector(0))")
    for second in (110, 220, 310, 330, 360)
]
"""Field report B06, in every case: no recorded sample is negative, infinite or NaN."""


@dataclass
class Triton:
    """A pod of Triton and what a scrape of it says, one call for each stretch of time.

    Times are seconds; Triton counts microseconds.
    """

    pod: str = "minilm-a100-40gb-78cbc5696f-2ktf7"
    sku: str = A100
    deployed_model: str = "minilm"
    model: str = "minilm"
    version: str = "1"
    environment: str = "local"
    namespace: str = "triton-local"
    series: Series = field(default_factory=dict)
    _counts: dict[str, float] = field(default_factory=dict)

    @property
    def target(self) -> dict[str, str]:
        """The labels that the PodMonitor and the operator give."""
        return {
            "job": f"{self.namespace}/triton",
            "namespace": self.namespace,
            "pod": self.pod,
            "container": "triton",
            "endpoint": "metrics",
            "instance": f"{self.pod}:8002",
            "sku": self.sku,
            "deployed_model": self.deployed_model,
            "environment": self.environment,
        }

    def part(self, model: str, version: str = "1") -> Triton:
        """Another model in the same pod."""
        return Triton(
            self.pod, self.sku, self.deployed_model, model, version, self.environment, self.namespace, self.series
        )

    def serves(  # noqa: PLR0913 - what a stretch of time is made of
        self,
        scrapes: int,
        requests: float = 0,
        *,
        queue_s: float = 0,
        compute_s: float = 0,
        other_s: float = 0,
        pending: float = 0,
        failed: float = 0,
        cancelled: float = 0,
        batch: float = 1,
    ) -> Triton:
        """Before each of so many scrapes that number of requests finished, each after those times."""
        each = queue_s + compute_s + other_s
        for _ in range(scrapes):
            self._count("nv_inference_request_success", requests)
            self._count("nv_inference_request_failure", failed, reason="BACKEND")
            self._count("nv_inference_request_failure", cancelled, reason="CANCELED")
            self._count("nv_inference_count", requests)
            self._count("nv_inference_exec_count", requests / batch)
            self._count("nv_inference_queue_duration_us", requests * queue_s * 1e6)
            self._count("nv_inference_compute_infer_duration_us", requests * compute_s * 1e6)
            self._count("nv_inference_request_duration_us", requests * each * 1e6)
            self._say(self._name("nv_inference_pending_request_count"), pending)
            self._up(1)
        return self

    def restarts(self) -> Triton:
        """The container's counters begin anew."""
        self._counts.clear()
        return self

    def unanswered(self, scrapes: int) -> Triton:
        """Scrapes fail: the target is known, and every other series ends."""
        for _ in range(scrapes):
            self._up(0)
            self._end(keep="up{")
        return self

    def vanishes(self, scrapes: int) -> Triton:
        """The pod is gone, and its target with it."""
        for _ in range(scrapes):
            self._end(keep="")
        return self

    def awaits(self, scrapes: int) -> Triton:
        """The pod is not there yet."""
        for samples in self.series.values():
            samples.extend([None] * scrapes)
        if not self.series:
            self.serves(1)
            for samples in self.series.values():
                samples[:] = [None] * scrapes
        return self

    def _name(self, metric: str, **more: str) -> str:
        return named(metric, {**self.target, "model": self.model, "version": self.version, **more})

    def _count(self, metric: str, more: float, **labels: str) -> None:
        name = self._name(metric, **labels)
        self._counts[name] = self._counts.get(name, 0.0) + more
        self._say(name, self._counts[name])

    def _say(self, name: str, value: float) -> None:
        self.series.setdefault(name, []).append(round(value, 6))

    def _up(self, value: float) -> None:
        """Once for all models of the pod."""
        name = named("up", self.target)
        samples = self.series.setdefault(name, [])
        longest = max(len(one) for one in self.series.values()) + (0 if value else 1)
        if len(samples) < longest:
            samples.append(value)

    def _end(self, *, keep: str) -> None:
        for name, samples in self.series.items():
            if keep and name.startswith(keep):
                continue
            ended = not samples or samples[-1] in {"stale", None}
            samples.append(None if ended else "stale")


def notation(samples: Samples) -> str:
    """As promtool reads a series: runs of one value are shortened."""
    words: list[str] = []
    count = 0
    for index, sample in enumerate(samples):
        count += 1
        if index + 1 < len(samples) and samples[index + 1] == sample and sample != "stale":
            continue
        value = "_" if sample is None else str(sample)
        if count == 1:
            words.append(value)
        else:
            words.append(f"_x{count}" if sample is None else f"{value}+0x{count - 1}")
        count = 0
    return " ".join(words)


@dataclass(frozen=True)
class Case:
    """What was scraped, each `step_s`, and what is true at which second.

    `values` are samples of an expression, `alerts` what fires, by (second, name).
    """

    name: str
    series: Mapping[str, Samples]
    values: dict[tuple[int, str], Mapping[str, float]] = field(default_factory=dict)
    alerts: Mapping[tuple[int, str], Sequence[Mapping[str, Any]]] = field(default_factory=dict)
    step_s: int = SCRAPE_S
    whole: bool = False
    """Whether all rules are evaluated, alerts too, whatever the case names."""

    def block(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "interval": f"{self.step_s}s",
            "input_series": [
                {"series": name, "values": notation(samples)} for name, samples in sorted(self.series.items())
            ],
            "promql_expr_test": [
                {
                    "expr": expr,
                    "eval_time": f"{second}s",
                    "exp_samples": [{"labels": labels, "value": value} for labels, value in samples.items()],
                }
                for (second, expr), samples in (self.values | {key: {"{}": 0} for key in SANE}).items()
            ],
            "alert_rule_test": [
                {"eval_time": f"{second}s", "alertname": name, "exp_alerts": list(expected)}
                for (second, name), expected in self.alerts.items()
            ],
        }


def together(*sources: Triton | Mapping[str, Samples]) -> Series:
    """The series of several pods, and of whatever else is scraped."""
    found: Series = {}
    for source in sources:
        series = source.series if isinstance(source, Triton) else source
        for name, samples in series.items():
            found[name] = list(samples)
    return found


def run(promtool: str, folder: Path, settings: Settings, cases: Sequence[Case]) -> dict[str, str]:
    """Runs all cases; what went wrong, by case, is empty where nothing did.

    A case is evaluated with the alerts that it names and the series that those read; one that names none with all
    recording rules. What is among its own series is not recorded.
    """
    sets: dict[frozenset[str], list[Case]] = {}
    for case in cases:
        named_alerts = [alert.value for alert in Alert] if case.whole else [name for _, name in case.alerts]
        sets.setdefault(frozenset(named_alerts), []).append(case)
    files = []
    for number, (names, chosen) in enumerate(sets.items()):
        given = {series.split("{")[0] for case in chosen for series in case.series}
        groups = _rules(settings, names, given)
        (folder / f"rules-{number}.yml").write_text(yaml.safe_dump({"groups": groups}))
        tests = {
            "rule_files": [f"rules-{number}.yml"],
            "group_eval_order": [group["name"] for group in groups],
            "evaluation_interval": f"{settings.monitoring.evaluation_interval_s}s",
            "fuzzy_compare": True,
            "tests": [case.block() for case in chosen],
        }
        files.append(f"tests-{number}.yml")
        (folder / files[-1]).write_text(yaml.safe_dump(tests, sort_keys=False))
    done = subprocess.run(
        [promtool, "test", "rules", "--junit=junit.xml", *files],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    said = done.stdout + done.stderr
    if not (folder / "junit.xml").exists():
        return {case.name: said for case in cases}
    found = {}
    for element in ET.parse(folder / "junit.xml").iter("testcase"):  # noqa: S314 - promtool's own file
        failures = [one.get("message") or one.text or "failed" for one in element if one.tag in {"failure", "error"}]
        found[element.get("name", "")] = "\n".join(failures)
    return {case.name: found.get(case.name, f"promtool did not run it:\n{said}") for case in cases}


def _rules(settings: Settings, names: frozenset[str], given: set[str]) -> list[dict[str, Any]]:
    """The groups of our rules, with those alerts and what they read, or with all that is recorded."""
    groups = [*recording.rules(settings)["spec"]["groups"], *alerts.rules(settings)["spec"]["groups"]]
    every = [rule for group in groups for rule in group["rules"]]
    wanted = [rule for rule in every if (rule.get("alert") in names if names else "record" in rule)]
    for rule in wanted:
        read = set(re.findall(r"triton(?:_fleet)?:[a-z0-9_:]+", rule["expr"])) - given
        wanted += [one for one in every if one.get("record") in read and one not in wanted]
    kept = [{**group, "rules": [rule for rule in group["rules"] if rule in wanted]} for group in groups]
    return [group for group in kept if group["rules"]]
