"""A trace played on the embedded cluster, with the same manifests as in a simulation of it."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from fleet import autoscaling, names, scraping
from fleet.schema_autoscaling import SYNC_S
from fleet.simulate import planning
from fleet.simulate.plan import Phases
from fleet.simulate.world import World
from local import paced

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fleet.schema import Settings

LEAD_S = 2.0
"""From the last preparation to the beginning of the trace."""

Sizes = list[tuple[float, int]]
"""When a Deployment's number of replicas became another, seconds of the trace, and which."""


@dataclass(frozen=True)
class Played:
    """What a cluster made of a trace, and what a simulation must know of that cluster."""

    sizes: Mapping[str, Sizes]
    start_s: Mapping[str, float]
    """From a replica's creation to its readiness, seconds, of the one that was there first."""
    phases: Phases
    failures: Sequence[str]
    answered: int


def play(
    bed: paced.Bed, loaded: Settings, models: Sequence[paced.Paced], raw: Mapping[str, Any], before_look_s: float
) -> Played:
    """Serves the models in a namespace of its own, and has users come and go as the trace says. The autoscalers look
    so long after the trace begins, and every 15 s from then on.
    """
    namespace = loaded.serving.namespace
    deployments = [
        names.deployment_name(model.name, placement.sku) for model in loaded.models for placement in model.placements
    ]
    bed.remove(namespace)
    bed.create([paced.namespace(namespace)])
    try:
        bed.create([*paced.served(loaded, models), *paced.observed(loaded)])
        with paced.Sizes(bed, namespace) as sizes:
            for name in deployments:
                sizes.wait(name, 1, 1, since=0, within_s=paced.READY_DEADLINE_S)
            start_s = {name: _start_s(bed, namespace, name) for name in deployments}
            _wait_for_series(bed, loaded, len(deployments))
            made = bed.create(paced.autoscalers(loaded))
            began = max(made + SYNC_S - before_look_s, time.time() + LEAD_S)
            answered, failures = _load(bed, namespace, raw, began)
            changes = {
                name: [(when - began, size) for when, size in sizes.changes(name, began)] for name in deployments
            }
        phases = Phases(
            looks=dict.fromkeys(deployments, made + SYNC_S - began),
            rules=_rules(bed, loaded, began),
            scrapes=_scrapes(bed, loaded, deployments, began),
        )
        return Played(changes, start_s, phases, failures, answered)
    finally:
        bed.remove(namespace)


def simulated(loaded: Settings, raw: Mapping[str, Any], phases: Phases) -> dict[str, Sizes]:
    """What the simulator says that would come of it."""
    run = World(planning.plan(loaded, planning.read(raw)), phases).run()
    found: dict[str, Sizes] = {served.name: [] for served in run.plan.served}
    for change in run.changes:
        found[change.deployment].append((change.time, change.after))
    return found


def _start_s(bed: paced.Bed, namespace: str, deployment: str) -> float:
    """By the API server's clock, whole seconds."""
    said = bed.kubectl(
        "get", "pods", f"--namespace={namespace}", f"--selector=app.kubernetes.io/instance={deployment}",
        '--output=jsonpath={.items[0].metadata.creationTimestamp} '
        '{.items[0].status.conditions[?(@.type=="Ready")].lastTransitionTime}',
    )  # fmt: skip
    created, ready = (datetime.fromisoformat(text) for text in said.split())
    return (ready - created).total_seconds()


def _wait_for_series(bed: paced.Bed, loaded: Settings, count: int) -> None:
    """Until each replica is known to be idle, as the first of a simulation are."""
    until = time.monotonic() + paced.READY_DEADLINE_S
    here = f'{autoscaling.RATIO}{{namespace="{loaded.serving.namespace}"}}'
    while True:
        found = bed.samples(here, 2 * loaded.monitoring.evaluation_interval_s)
        if len(found) == count and all(values[-1][1] == 0 for _, values in found):
            return
        assert time.monotonic() < until, f"{here}: {found}"
        time.sleep(0.5)


def _load(bed: paced.Bed, namespace: str, raw: Mapping[str, Any], began: float) -> tuple[int, list[str]]:
    """Users of every load, until the trace is over."""
    callers = [paced.Users(bed.address(load["model"], namespace), load["model"]) for load in raw["loads"]]
    points = sorted((when, number, count) for number, load in enumerate(raw["loads"]) for when, count in load["users"])
    try:
        for when, number, count in points:
            paced.sleep_until(began + when)
            # Whoever comes to none waits for the last answers; nobody else shall.
            callers[number].be(count)
        paced.sleep_until(began + raw["duration_s"])
    finally:
        for one in callers:
            one.be(0)
    return sum(one.answered for one in callers), [failure for one in callers for failure in one.failures]


def _rules(bed: paced.Bed, loaded: Settings, began: float) -> dict[str, float]:
    """A sample of a rule is as old as its group's evaluation."""
    groups = paced.observed(loaded)[1]["spec"]["groups"]
    by_series = {rule["record"]: group["name"] for group in groups for rule in group["rules"]}
    found: dict[str, float] = {}
    for series, group in by_series.items():
        if series.startswith("triton:"):
            for _, values in bed.samples(f'{series}{{namespace="{loaded.serving.namespace}"}}', time.time() - began):
                found[group] = values[-1][0] - began
    return found


def _scrapes(bed: paced.Bed, loaded: Settings, deployments: Sequence[str], began: float) -> dict[str, float]:
    """Replicas by the order in which Prometheus found them."""
    since_s = time.time() - began + paced.READY_DEADLINE_S
    seen = [
        (values[0][0], labels[scraping.LABEL_POD], values[-1][0] - began)
        for labels, values in bed.samples(f'up{{job="{scraping.job(loaded)}"}}', since_s)
    ]
    found: dict[str, float] = {}
    for name in deployments:
        own = sorted(one for one in seen if one[1].startswith(f"{name}-"))
        found |= {f"{name}-{number}": scraped for number, (_, _, scraped) in enumerate(own, start=1)}
    return found
