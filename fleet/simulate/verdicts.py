"""Whether what came of a trace is what was expected of it."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from fleet import names
from fleet.simulate.world import quantile

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fleet.simulate.plan import Change, Run
    from fleet.simulate.trace import Reach


@dataclass(frozen=True, slots=True)
class Verdict:
    """One expectation, and what was seen of it."""

    name: str
    ok: bool
    text: str


def verdicts(run: Run) -> list[Verdict]:
    """One for each expectation of the trace, in its order."""
    expect = run.plan.trace.expect
    found = [_reached(run, reach) for reach in expect.reach]
    if expect.flap_s is not None:
        found.append(_flapping(run, expect.flap_s))
    if expect.minimum_by_s is not None:
        found.append(_minimum(run, expect.minimum_by_s))
    if expect.failed_most is not None:
        ok = run.failed <= expect.failed_most
        found.append(Verdict("failed", ok, f"{run.failed} of {run.offered} requests failed, {expect.failed_most} may"))
    if expect.p95_s is not None:
        p95_s = quantile(run.latencies, 0.95)
        seen = "no request was answered" if p95_s is None else f"p95 {p95_s:.2f} s"
        found.append(Verdict("p95", p95_s is not None and p95_s <= expect.p95_s, f"{seen}, at most {expect.p95_s:g} s"))
    return found


def _reached(run: Run, reach: Reach) -> Verdict:
    name = names.deployment_name(reach.model, reach.sku)
    wanted = f"{reach.replicas} ready within {reach.within_s:g} s of {reach.after_s:g} s"
    later = [sight for sight in run.sights if sight.time >= reach.after_s]
    there = next((sight for sight in later if sight.ready[name] >= reach.replicas), None)
    if there is None:
        most = max((sight.ready[name] for sight in later), default=0)
        return Verdict(f"reach/{name}", ok=False, text=f"{wanted}: {most} at most")
    took = there.time - reach.after_s
    return Verdict(f"reach/{name}", took <= reach.within_s, f"{wanted}: after {took:.0f} s")


def _flapping(run: Run, flap_s: float) -> Verdict:
    flaps = list(_flaps(run, flap_s))
    if not flaps:
        return Verdict("flapping", ok=True, text=f"no turn within {flap_s:g} s in {len(run.changes)} changes")
    first, second = flaps[0]
    return Verdict(
        "flapping",
        ok=False,
        text=f"{len(flaps)} turns within {flap_s:g} s; the first: {first.deployment} {first.before} to {first.after} "
        f"at {first.time:.0f} s, {second.before} to {second.after} at {second.time:.0f} s",
    )


def _flaps(run: Run, flap_s: float) -> Iterator[tuple[Change, Change]]:
    for served in run.plan.served:
        those = [change for change in run.changes if change.deployment == served.name]
        for first, second in pairwise(those):
            turned = (first.after > first.before) is not (second.after > second.before)
            if turned and second.time - first.time < flap_s:
                yield first, second


def _minimum(run: Run, by_s: float) -> Verdict:
    fewest = {served.name: served.fewest for served in run.plan.served}
    above = [sight.time for sight in run.sights if sight.wanted != fewest]
    since = max(above, default=0.0)
    return Verdict("minimum", since < by_s, f"at the fewest replicas since {since:.0f} s, by {by_s:g} s")
