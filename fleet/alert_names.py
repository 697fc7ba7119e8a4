"""The names of the alerts, which rules, routes, dashboards and runbooks share."""

from __future__ import annotations

from enum import StrEnum


class Alert(StrEnum):
    """The names of the alerts, each with a page in docs/runbooks."""

    LATENCY_HIGH = "TritonLatencyHigh"
    BURN_FAST = "TritonErrorBudgetBurnFast"
    BURN_SLOW = "TritonErrorBudgetBurnSlow"
    ERRORS_HIGH = "TritonErrorsHigh"
    HUNG = "TritonHung"
    QUEUE_GROWING = "TritonQueueGrowingAtMaximum"
    MODEL_DOWN = "TritonModelDown"
    REPLICAS_UNAVAILABLE = "TritonReplicasUnavailable"
    POD_NOT_READY = "TritonPodNotReady"
    NODE_NOT_READY = "TritonNodeNotReady"
    RESTARTED = "TritonRestarted"
    LOAD_SLOW = "TritonModelLoadSlow"
    TARGET_DOWN = "TritonTargetDown"
    SERIES_ABSENT = "TritonSeriesAbsent"
    METRICS_API_DOWN = "MetricsApiDown"
    STATE_UNKNOWN = "FleetStateUnknown"
    RULES_FAILING = "FleetRulesFailing"
    VERIFICATION_OLD = "FleetVerificationOld"
    GPU_XID_ERRORS = "GpuXidErrors"
    GPU_ECC_ERRORS = "GpuEccErrors"
    GPU_UNOBSERVED = "GpuUnobserved"
    NODE_GROUP_AT_MAXIMUM = "NodeGroupAtMaximum"
