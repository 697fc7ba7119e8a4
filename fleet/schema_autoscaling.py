"""Settings of how many replicas there are: who decides it, by what, and how fast."""

from __future__ import annotations

from typing import Final, Literal

from fleet.schema_base import REPLICAS_MAX, Model, setting, whole

SYNC_S: Final = 15
"""Kubernetes' autoscaler decides that often: kube-controller-manager, --horizontal-pod-autoscaler-sync-period."""
PERIOD_MAX_S: Final = 1800
"""HorizontalPodAutoscaler v2, HPAScalingPolicy.periodSeconds: https://kubernetes.io/docs/reference/kubernetes-api/"""
WINDOW_MAX_S: Final = 3600
"""HorizontalPodAutoscaler v2, HPAScalingRules.stabilizationWindowSeconds, as above."""
SCALE_DOWN_WINDOW_MIN_S: Final = 300
"""On dev and prod. A replica that goes costs its start-up when it comes back: Kubernetes' own default."""

SCALE_DOWN_PERIOD_S: Final = 300
"""The ratio is near 0 until a replica is full, so it asks for the fewest replicas until there are too few. Simulated
with local/traces/prod-step.yaml: one every 60 s went from 14 replicas to 7 under a steady load before the ratio said
so, with a p95 of 28 s instead of 2.5 s; one every 300 s went to 10, with at most 6 s."""

Engine = Literal["prometheus-adapter", "keda"]


class Autoscaling(Model):
    """Who changes the number of replicas."""

    engine: Engine = setting(
        "each metrics API of a cluster has one owner, and each Deployment one autoscaler",
        "What scales: HorizontalPodAutoscalers on metrics of `prometheus-adapter`, or ScaledObjects of `keda`.",
        default="prometheus-adapter",
    )


class ScaleUp(Model):
    """How fast replicas are added."""

    pods: int = whole(
        1, REPLICAS_MAX, "an autoscaler that may add none is none", "Most replicas added in a period.", default=1
    )
    period_s: int = whole(
        SYNC_S,
        PERIOD_MAX_S,
        "Kubernetes decides every 15 seconds, and looks back at most half an hour",
        "Length of the period, seconds.",
        default=60,
    )
    window_s: int = whole(
        0,
        SYNC_S - 1,
        "the lowest size asked for in the window is taken; from 15 s on it holds more than one decision, and each "
        "delays the new replicas by 15 s more",
        "Stabilization window, seconds.",
        default=0,
    )


class ScaleDown(Model):
    """How fast replicas are taken away."""

    window_s: int = whole(
        0,
        WINDOW_MAX_S,
        "the highest size asked for in the window is taken; on dev and prod it is at least 300 s, since a replica that "
        "comes back loads its model again",
        "Stabilization window, seconds.",
        default=SCALE_DOWN_WINDOW_MIN_S,
    )
    pods: int = whole(
        1, REPLICAS_MAX, "an autoscaler that may take none is none", "Most replicas taken in a period.", default=1
    )
    period_s: int = whole(
        SYNC_S,
        PERIOD_MAX_S,
        "Kubernetes decides every 15 seconds, and looks back at most half an hour",
        "Length of the period, seconds.",
        default=SCALE_DOWN_PERIOD_S,
    )


class ModelAutoscaling(Model):
    """By what the replicas of a model are scaled, and how fast."""

    target_ratio: float = setting(
        "the replicas of a SKU are scaled so that their mean is the target; the API counts in thousandths",
        "Time that requests wait in the queue over the time that they are computed, mean of a SKU's replicas.",
        ge=0.01,
        le=100,
        strict=True,
        default=1.0,
    )
    waiting_requests_target: int | None = setting(
        "of the two metrics the one that asks for more replicas wins",
        "Requests that wait on one replica, mean of a SKU's replicas, as a second metric. Left out: none.",
        default=None,
        ge=1,
        le=100_000,
        strict=True,
    )
    scale_up: ScaleUp = setting("replicas take time to start", "How fast replicas are added.", default=ScaleUp())
    scale_down: ScaleDown = setting("load comes back", "How fast replicas are taken away.", default=ScaleDown())
