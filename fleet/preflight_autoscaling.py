"""Rules between what scales the models and the rest of the settings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fleet.faults import Fault
from fleet.schema_autoscaling import SCALE_DOWN_WINDOW_MIN_S

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fleet.preflight import Draft
    from fleet.schema import ModelSettings

RUNTIMES_WAITING: Final = frozenset({"tensorrt_llm"})
"""Runtimes that have the gauge behind `fleet.autoscaling.WAITING`."""
USUAL_START: Final = 4
"""`load_timeout_s` is the longest that a start may take; a usual one is taken to be this part of it."""
FEW: Final = 4
"""As many replicas too many are the price of answering a wave of load soon; of more its owner should know."""


def refusals(draft: Draft) -> Iterator[Fault]:
    for index, model in draft.models.items():
        window_s = model.autoscaling.scale_down.window_s
        if draft.environment in ("dev", "prod") and window_s < SCALE_DOWN_WINDOW_MIN_S and _autoscaled(model):
            yield Fault(
                f"models[{index}].autoscaling.scale_down.window_s",
                str(window_s),
                f"at least {SCALE_DOWN_WINDOW_MIN_S} on environment {draft.environment}",
                "load comes in waves, and a replica that was taken away too soon loads its model again, on a GPU that "
                "is paid for meanwhile",
                f"raise it to {SCALE_DOWN_WINDOW_MIN_S} or more, or leave it out",
            )
        if model.autoscaling.waiting_requests_target is not None and model.runtime not in RUNTIMES_WAITING:
            yield Fault(
                f"models[{index}].autoscaling.waiting_requests_target",
                str(model.autoscaling.waiting_requests_target),
                f"nothing, with runtime '{model.runtime}'",
                f"only {' and '.join(sorted(RUNTIMES_WAITING))} says how many requests wait in it; by a metric that is "
                "never there an autoscaler never takes a replica away",
                "leave it out: target_ratio alone scales the model",
            )


def warnings(draft: Draft) -> Iterator[Fault]:
    yield from _unseen(draft)
    yield from _unlimited(draft)


def _unseen(draft: Draft) -> Iterator[Fault]:
    """Where the one metric sees no queue: https://github.com/triton-inference-server/server/issues/6863."""
    for index, model in draft.models.items():
        scales = any(one.autoscaled and one.replicas.max > one.replicas.min for one in model.placements)
        if model.runtime in RUNTIMES_WAITING and model.autoscaling.waiting_requests_target is None and scales:
            yield Fault(
                f"models[{index}].autoscaling.waiting_requests_target",
                f"nothing, with runtime '{model.runtime}'",
                "a number of requests",
                "its requests wait inside of it, where Triton's queue ratio does not see them: under load the "
                "autoscaler may add no replica",
                "add it, about half of the requests that a replica works on at once",
            )


def _unlimited(draft: Draft) -> Iterator[Fault]:
    """Where the limit of the rate limits nothing: all replicas are asked for before the first can relieve any."""
    skus = {sku.name: sku for sku in draft.skus.values()}
    for index, model in draft.models.items():
        rate = model.autoscaling.scale_up
        start_s = model.load_timeout_s // USUAL_START
        blind = rate.pods * (1 + start_s // rate.period_s)
        more = max(
            (
                placement.replicas.max - placement.replicas.min
                for placement in model.placements
                if placement.autoscaled and placement.sku in skus and skus[placement.sku].gpus_per_node
            ),
            default=0,
        )
        if FEW < more <= blind:
            yield Fault(
                f"models[{index}].autoscaling.scale_up",
                f"{rate.pods} replicas every {rate.period_s} s",
                f"fewer than {more} replicas in {start_s} s, a quarter of load_timeout_s",
                "a replica that still starts relieves no queue, so the autoscaler asks for one more each period: all "
                f"{more} that the bounds allow may be started, and paid for, where the first would have been enough",
                "raise period_s or lower pods",
            )


def _autoscaled(model: ModelSettings) -> bool:
    return any(placement.autoscaled for placement in model.placements)
