"""`make load`: a load on the fleet with a live view, and a report of what came of it."""

from __future__ import annotations

import json
import shutil
import sys
import threading
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from fleet import known_answers, model_repository, names
from fleet.faults import Refused, table
from fleet.load import outcome, profiles, report, seen
from fleet.load.plan import NotOursError, require_ours
from local import commands, preflight_table
from local.cluster.handle import Handle
from local.errors import LocalError
from local.load_inside import Inside
from local.state import PROJECT, switched_on
from services.load import run
from services.verification.cluster import ClusterError, KubernetesCluster

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from fleet.known_answers import KnownAnswers
    from fleet.load.outcome import Verdict
    from fleet.load.plan import Scenario
    from fleet.load.profiles import Wish
    from fleet.load.report import Load
    from fleet.model_repository import ModelFolder
    from fleet.schema import ModelSettings
    from fleet.settings import Settings
    from local.state import State

    Progress = Callable[[str], None]

JSON: Final = "load.json"
PAGE: Final = "load.html"
LOOK_S: Final = 2.0
"""The fleet is looked at that often."""
LINE_S: Final = 5.0
"""A log gets a line that often; a terminal is drawn anew each second."""
SCENARIOS: Final[Mapping[str, tuple[Scenario, ...]]] = {
    "python": ("infer",),
    "native": ("infer",),
    "tensorrt_llm": ("generate", "generate_stream"),
    "llmapi": ("generate", "generate_stream"),
    "vllm": ("generate", "generate_stream"),
}
"""By runtime, how a model is asked; the first is what is done if nobody says another."""


@dataclass(frozen=True, slots=True)
class Given:
    """What a person gave: variables of make, as text; empty where nothing was said."""

    stack: str
    variables: Mapping[str, str]
    model: str = ""
    scenario: str = ""
    cluster: Path | None = None
    pods: str = ""
    """How many pods make the load inside the cluster; empty: this machine makes it."""


def load(given: Given, state: State, progress: Progress, project: Path = PROJECT) -> None:
    """Makes the load, shows it, reports it; LocalError where it cannot be made, or a threshold is not held."""
    wish = _wish(given)
    settings = preflight_table.accepted(given.stack, project)
    model = _model(settings, given)
    scenario = _scenario(model, given.scenario)
    pods = _pods(given)
    cluster = _cluster(given, state)
    address = service_address(cluster, settings, model, given)
    plan = profiles.plan(wish, address, model.name, scenario, known_case(model, scenario, project))
    load = report.Load(
        stack=given.stack,
        profile=wish.profile,
        plan=plan,
        started=datetime.now(UTC).isoformat(timespec="seconds"),
        bounds={one.sku: (one.replicas.min, one.replicas.max) for one in model.placements},
    )
    watching = Watching(cluster, seen.watched(settings, model.name, list(load.bounds)), load)
    watching.must_serve(settings)
    progress(report.what(load))
    try:
        with _making(pods, cluster, settings, load) as running:
            _watch(running, watching, load, progress)
            running.made()
    except run.LoadError as error:
        raise LocalError("the load was not made", details=str(error), fix="see what it says") from error
    watching.last(settings.monitoring.scrape_interval_s)
    found = outcome.verdicts(load.figures(), wish.thresholds)
    _write(load, found, project)
    progress(f"\n{report.summary(load, found)}\n\nreports/{PAGE} has the plots, reports/{JSON} the data")
    if load.interrupted:
        raise LocalError(
            f"the load was ended after {load.seconds:.0f} of {plan.duration_s:.0f} s; the report has what came of it",
            fix="run it to its end",
        )
    if broken := [one for one in found if not one.ok]:
        raise LocalError(
            f"{len(broken)} of {len(found)} thresholds were not held: {'; '.join(one.text for one in broken)}",
            fix=f"see reports/{PAGE}: did replicas come, were they asked, what failed",
        )


def _making(pods: int, cluster: KubernetesCluster, settings: Settings, load: Load) -> run.Running | Inside:
    """The load, begun here or inside the cluster; what it tells is the load's."""
    if pods:
        inside = Inside(cluster, settings, load.plan, pods)
        load.intervals = inside.intervals
        return inside
    return run.Running(load.plan, load.intervals.append, requests=False)


def asked_pods(in_cluster: str, count: str) -> str:
    """How many pods were asked for: with IN_CLUSTER=1 alone it is one."""
    one = "1" if switched_on("IN_CLUSTER", in_cluster) else ""
    return count or one


def _pods(given: Given) -> int:
    text = given.pods
    fits = text.isascii() and text.isdigit() and len(text) <= len(str(profiles.PODS_MAX))
    count = int(text) if fits else 0
    if text and not 1 <= count <= profiles.PODS_MAX:
        raise LocalError(
            f"PODS={given.pods}: the load is shared by 1 to {profiles.PODS_MAX} pods",
            fix="name a number of pods, or leave PODS out with IN_CLUSTER=1",
        )
    return count


def _wish(given: Given) -> Wish:
    try:
        return profiles.read(given.variables)
    except Refused as refused:
        raise LocalError(
            "this load cannot be made",
            details=table(refused.faults),
            fix="correct it, for example: make load PROFILE=smoke",
        ) from None


def _model(settings: Settings, given: Given) -> ModelSettings:
    known = {model.name: model for model in settings.models}
    if not given.model and len(known) == 1:
        return next(iter(known.values()))
    if given.model not in known:
        raise LocalError(
            f"MODEL={given.model!r} is no model of stack {given.stack}" if given.model else "which model is not said",
            fix=f"name one with MODEL=: {', '.join(known)}",
        )
    return known[given.model]


def _scenario(model: ModelSettings, asked: str) -> Scenario:
    possible = SCENARIOS[model.runtime]
    found = next((one for one in possible if one == asked), None if asked else possible[0])
    if found is None:
        raise LocalError(
            f"SCENARIO={asked!r}: {model.name}, whose runtime is {model.runtime}, is not asked like that",
            fix=f"use one of: {', '.join(possible)}",
        )
    return found


def known_case(model: ModelSettings, scenario: Scenario, project: Path = PROJECT) -> dict[str, Any]:
    """A known request of the model's: what an input looks like, and how much an answer holds."""
    if scenario != "infer":
        return {}
    return answers_of(model_repository.read(project, model.repository)).cases[0].request()


def answers_of(folder: ModelFolder) -> KnownAnswers:
    """What the model is known to answer. LocalError where nobody knows."""
    answers, faults = known_answers.read(folder)
    if answers is None:
        raise LocalError(
            f"how {folder.name} is asked is not known",
            details=table(faults) if faults else "",
            fix="put known inputs and answers into its verification.json (CONTRIBUTING.md, Add a model)",
        )
    return answers


def _cluster(given: Given, state: State) -> KubernetesCluster:
    kubeconfig = given.cluster
    if kubeconfig is not None:
        commands.require_cluster(kubeconfig)
    elif given.stack != commands.LOCAL_STACK:
        raise LocalError(
            f"the embedded cluster runs stack {commands.LOCAL_STACK}, not {given.stack}",
            fix=f"name the cluster of stack {given.stack}: CLUSTER=<kubeconfig file>",
        )
    else:
        running = Handle.read(state)
        if not (running and running.alive and state.kubeconfig.exists()):
            raise LocalError("the embedded cluster is not running: there is nothing to ask", fix="run make up first")
        kubeconfig = state.kubeconfig
    return KubernetesCluster(kubeconfig.read_text())


def service_address(cluster: KubernetesCluster, settings: Settings, model: ModelSettings, given: Given) -> str:
    """The Service's name inside the cluster, or its address: this machine must be able to reach it, and nobody else's
    server may have it.
    """
    namespace, service = settings.serving.namespace, names.service_name(model.name)
    try:
        found = cluster.get(f"/api/v1/namespaces/{namespace}/services/{service}")
    except ClusterError as error:
        raise LocalError(
            f"model {model.name} is not served there", details=str(error), fix="deploy the stack: make up"
        ) from error
    if given.pods:
        return names.service_host(service, namespace)
    address = str(found["spec"]["clusterIP"])
    try:
        require_ours(address)
    except NotOursError as error:
        raise LocalError(
            f"{error}: Services of {given.cluster or 'that cluster'} are reached from inside only",
            fix="make the load inside: add IN_CLUSTER=1",
        ) from error
    return address


class Watching:
    """Looks at the fleet while it is under load, and writes down what it sees."""

    def __init__(self, cluster: KubernetesCluster, watched: seen.Watched, load: Load) -> None:
        self._cluster = cluster
        self._watched = watched
        self._load = load
        self._answers = seen.Answers()

    def must_serve(self, settings: Settings) -> None:
        """LocalError unless a replica is ready; the counters begin here."""
        sight = self.look(0.0)
        if not any(sight.ready.values()):
            raise LocalError(
                f"no replica of {self._watched.model} is ready"
                + (f": {sight.missing}" if sight.missing else f" in {settings.serving.namespace}"),
                fix="see why with make verify",
            )
        self._load.sights.append(sight)

    def look(self, time_s: float) -> seen.Sight:
        """The fleet now; what cannot be asked is as it was seen last, and told."""
        last = self._load.sights[-1] if self._load.sights else None
        wanted = dict(last.wanted) if last else dict.fromkeys(self._watched.skus, 0)
        ready = dict(last.ready) if last else dict.fromkeys(self._watched.skus, 0)
        ratio: dict[str, float | None] = dict.fromkeys(self._watched.skus)
        missing = []
        for what, ask in self._asked():
            try:
                answer = ask()
                if what == "Deployments":
                    wanted, ready = seen.replicas(self._watched, answer)
                elif what == "the ratio":
                    ratio = seen.ratios(self._watched, answer)
                else:
                    self._answers.add(answer)
            except (ClusterError, KeyError, TypeError, ValueError) as error:
                missing.append(f"{what}: {error}")
        return seen.Sight(time_s, wanted, ready, ratio, self._answers.copy(), "; ".join(missing))

    def _asked(self) -> Iterator[tuple[str, Callable[[], Any]]]:
        for what, path in zip(("Deployments", "the ratio", "counters"), self._watched.paths, strict=True):
            yield what, partial(self._cluster.get, path)

    def note(self, time_s: float) -> None:
        self._load.sights.append(self.look(time_s))

    def last(self, scrape_interval_s: int) -> None:
        """A last look, when Prometheus has seen the last answers."""
        time.sleep(scrape_interval_s + LOOK_S)
        end_s = self._load.intervals[-1].time_s if self._load.intervals else 0.0
        self.note(end_s)


def _watch(running: run.Running | Inside, watching: Watching, load: Load, progress: Progress) -> None:
    """Shows the load until it is over; an interrupt ends it, a second one at once."""
    began_s = running.started()
    screen = Screen(progress)
    over = threading.Event()

    def look() -> None:
        while not over.wait(LOOK_S):
            watching.note(time.monotonic() - began_s)

    looking = threading.Thread(target=look, daemon=True)
    looking.start()
    try:
        while not running.over:
            try:
                screen.show(load)
                time.sleep(1)
            except KeyboardInterrupt:
                if load.interrupted:
                    raise
                load.interrupted = True
                progress("\nload: nothing more is asked; waiting for the last answers (Ctrl-C again does not wait)")
                running.stop()
    finally:
        over.set()
        looking.join(timeout=60)
    screen.show(load, last=True)


class Screen:
    """A terminal that is drawn anew, or a log that gets a line now and then."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._live = sys.stdout.isatty()
        self._lines = 0
        self._due_s = 0.0

    def show(self, load: Load, *, last: bool = False) -> None:
        if self._live:
            lines, columns = report.screen(load), shutil.get_terminal_size().columns
            above = f"\x1b[{self._lines}A" if self._lines else ""
            # Each line is cleared to its end, and what is left of a longer picture below.
            sys.stdout.write(above + "".join(f"\x1b[2K{line[:columns]}\n" for line in lines) + "\x1b[J")
            sys.stdout.flush()
            self._lines = len(lines)
        elif load.intervals and (last or load.intervals[-1].time_s >= self._due_s):
            self._due_s = load.intervals[-1].time_s + LINE_S
            self._progress(report.line(load))


def _write(load: Load, found: Sequence[Verdict], project: Path) -> None:
    reports = project / "reports"
    reports.mkdir(exist_ok=True)
    (reports / JSON).write_text(json.dumps(report.data(load, found), indent=1) + "\n")
    (reports / PAGE).write_text(report.page(load, found), encoding="utf-8")
