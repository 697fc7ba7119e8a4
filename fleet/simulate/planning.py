"""From a stack's settings and a trace to what is simulated; all that is wrong with a trace at once."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from fleet import autoscaling, catalog, recording, scraping, workload
from fleet.faults import Fault, Refused, path_text, shown
from fleet.schema import EksCluster, gpus_per_replica
from fleet.schema_base import FAULT_TYPE
from fleet.simulate.plan import Plan, Pool, Served
from fleet.simulate.trace import Trace

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from fleet.schema import Settings, Sku

WHY = "a trace is replayed as it says, and nothing in it is guessed"
KINDS = {
    "model_type": "an object, as in local/traces",
    "tuple_type": "a list",
    "too_short": "a list of one or more",
}
"""What pydantic says in its own words, which are not those of whoever writes YAML."""
DIGEST = "0" * 12
"""Of the model's files; nothing that is simulated depends on it."""


def read(raw: object) -> Trace:
    """A trace from the content of its file. Raises `Refused` with every fault of it."""
    try:
        return Trace.model_validate(raw)
    except ValidationError as error:
        details = error.errors()
    spoilt = {detail["loc"] for detail in details}
    raise Refused([_fault(detail) for detail in details if not _emptied(detail, spoilt)])


def _emptied(detail: Any, spoilt: Collection[tuple[int | str, ...]]) -> bool:  # noqa: ANN401 - pydantic's own, as below
    """Whether a list only counts as too short because what is in it is wrong, which is told."""
    loc = detail["loc"]
    return detail["type"] == "too_short" and any(other[: len(loc)] == loc != other for other in spoilt)


def _fault(detail: Any) -> Fault:  # noqa: ANN401 - pydantic's own, a typed dictionary
    setting, got = path_text(detail["loc"]) or "the trace", shown(detail["input"])
    if detail["type"] == FAULT_TYPE:
        said: Mapping[str, str] = detail["ctx"]
        return Fault(setting, got, said["limit"], said["why"], said["fix"])
    if detail["type"] == "missing":
        return Fault(setting, "nothing", "a value", WHY, "add it; local/traces has examples")
    if detail["type"] == "extra_forbidden":
        return Fault(setting, got, "a name that a trace knows", WHY, "remove it, or correct its name")
    if detail["type"] in KINDS:
        return Fault(setting, got, KINDS[detail["type"]], WHY, "correct it; local/traces has examples")
    message = detail["msg"][:1].lower() + detail["msg"][1:]
    return Fault(setting, got, message, WHY, "correct it; local/traces has examples")


def plan(settings: Settings, trace: Trace) -> Plan:
    """What is simulated. Raises `Refused` where the trace does not fit the stack."""
    if faults := [*_unknown(settings, trace), *_twice(trace), *_unmeasured(settings, trace)]:
        raise Refused(faults)
    served = []
    for model in settings.models:
        for placement in model.placements:
            speed = trace.speed(model.name, placement.sku)
            assert speed is not None  # noqa: S101 - refused above
            scaled = autoscaling.owner(settings, placement) != "settings"
            served.append(
                Served(
                    model=model.name,
                    sku=placement.sku,
                    deployment=workload.deployment(settings, model, placement, DIGEST),
                    autoscaler=autoscaling.hpa(settings, model, placement) if scaled else None,
                    speed=speed,
                    takes=gpus_per_replica(model, settings.sku(placement.sku)),
                    fewest=placement.replicas.min,
                )
            )
    return Plan(
        environment=settings.environment,
        namespace=settings.serving.namespace,
        job=scraping.job(settings),
        served=tuple(served),
        pools=tuple(_pool(settings, sku) for sku in settings.skus),
        rules=recording.rules(settings),
        monitor=scraping.pod_monitor(settings),
        relist_s=settings.monitoring.relist_interval_s,
        trace=trace,
    )


def _pool(settings: Settings, sku: Sku) -> Pool:
    """Only nodes that the stack makes come and go; others are all there."""
    instance = sku.instance
    region = settings.cluster.region if isinstance(settings.cluster, EksCluster) else ""
    prices = [
        known.price(region) if (known := catalog.find(name)) is not None else None
        for name in (instance.instance_types if instance is not None else ())
    ]
    known_prices = [float(price) for price in prices if price is not None]
    return Pool(
        sku=sku.name,
        room=sku.gpus_per_node,
        least=sku.nodes.min if instance is not None else sku.nodes.max,
        most=sku.nodes.max,
        # Of several types nobody knows which it will be: the dearest, as in the stack's cost.
        usd_per_hour=max(known_prices) if prices and len(known_prices) == len(prices) else None,
    )


def _unknown(settings: Settings, trace: Trace) -> Iterator[Fault]:
    """Models and SKUs that the stack does not have."""
    models = {model.name: {placement.sku for placement in model.placements} for model in settings.models}
    named = [
        *((f"loads[{index}]", load.model, None) for index, load in enumerate(trace.loads)),
        *((f"speeds[{index}]", speed.model, speed.sku) for index, speed in enumerate(trace.speeds)),
        *((f"expect.reach[{index}]", reach.model, reach.sku) for index, reach in enumerate(trace.expect.reach)),
    ]
    for where, model, sku in named:
        if model not in models:
            yield _misnamed(
                f"{where}.model", model, list(models), f"stack {settings.environment} serves no other model"
            )
        elif sku is not None and sku not in models[model]:
            why = f"stack {settings.environment} places {model} on no other SKU"
            yield _misnamed(f"{where}.sku", sku, sorted(models[model]), why)


def _misnamed(where: str, got: str, known: list[str], why: str) -> Fault:
    close = difflib.get_close_matches(got, known, n=1)
    fix = f"did you mean '{close[0]}'?" if close else "name one of these, or simulate another stack"
    return Fault(where, shown(got), f"one of {', '.join(known)}", why, fix)


def _twice(trace: Trace) -> Iterator[Fault]:
    first: dict[tuple[str, str], int] = {}
    for index, speed in enumerate(trace.speeds):
        before = first.setdefault((speed.model, speed.sku), index)
        if before != index:
            yield Fault(
                f"speeds[{index}]",
                f"{speed.model} on {speed.sku}",
                "each model once on each SKU",
                f"speeds[{before}] says it already, and a replica has one speed",
                "remove one of the two",
            )


def _unmeasured(settings: Settings, trace: Trace) -> Iterator[Fault]:
    for model in settings.models:
        for placement in model.placements:
            if trace.speed(model.name, placement.sku) is None:
                yield Fault(
                    "speeds",
                    f"nothing for {model.name} on {placement.sku}",
                    "one for each model on each of its SKUs",
                    "how many replicas a load needs follows from how fast one is",
                    "add it, measured or assumed",
                )
