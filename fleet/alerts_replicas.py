"""Alerts on a model's replicas: are there as many as are wanted, and is each seen by what measures it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from fleet import recording, workload
from fleet.alert_names import Alert
from fleet.alert_rule import DURATION, NODE, POD, SKU, VALUE, Of, Told, number
from fleet.schema import gpus_per_replica

if TYPE_CHECKING:
    from fleet.recording import Rule

QUEUE_WINDOW: Final = "5m"
QUEUE_SHRINKS: Final = 0.9
"""A queue below this part of what it was in the window before is being worked off."""
QUEUE_FOR_S: Final = 300

DOWN_FOR_S: Final = 120
READY_MIN_S: Final = 300
NODE_FOR_S: Final = 60
RESTART_KEEP_S: Final = 900
"""A container that hangs, crashes or is killed is Ready again before its pod was unready for long enough to be told;
that it was restarted stays readable this long."""
PLACEMENT_ALLOWANCE_S: Final = 600
"""From the wish for a replica to its start where a node must be made first."""
LOAD_SHARE: Final = 0.8
LOAD_KEEP_S: Final = 900
"""A restart for want of time clears the alert's cause; it stays readable this long."""

UNSEEN_FOR_S: Final = 300
UNOBSERVED_FOR_S: Final = 600


def replicas(of: Of) -> list[Rule]:
    model, load_s = of.model.name, of.model.load_timeout_s
    available = f"{recording.REPLICAS_AVAILABLE}{of.here}"
    created = f'min by (namespace) (kube_deployment_created{{{of.namespace}, deployment=~"{of.deployments}"}})'
    return [
        of.rule(
            Alert.QUEUE_GROWING,
            _queue_grows(of),
            Told(
                f"{model} has all its replicas on {SKU}, and its queue does not shrink",
                f"At least {VALUE} requests have been waiting all the time, and no replica may be added.",
            ),
            QUEUE_FOR_S,
        ),
        of.rule(
            Alert.MODEL_DOWN,
            f"sum by (namespace) ({available}) == 0"
            f" unless on (namespace) time() - {created} < {load_s + PLACEMENT_ALLOWANCE_S}",
            Told(f"No replica of {model} is available", "Nobody is answered: no SKU has a replica that is Ready."),
            DOWN_FOR_S,
        ),
        of.rule(
            Alert.REPLICAS_UNAVAILABLE,
            f"{available} < {recording.REPLICAS_WANTED}{of.here}",
            Told(
                f"{model} lacks replicas on {SKU}",
                f"{VALUE} are available, fewer than are wanted, for longer than a node and a load take.",
            ),
            load_s + PLACEMENT_ALLOWANCE_S,
        ),
        of.rule(
            Alert.POD_NOT_READY,
            of.containers("unready"),
            Told(f"{POD} is not Ready", f"For longer than {model} may take to load."),
            max(READY_MIN_S, load_s),
        ),
        of.rule(
            Alert.NODE_NOT_READY,
            _node_not_ready(of),
            Told(
                f"Node {NODE}, which serves {model} on {SKU}, is not Ready",
                f"Its pods ({VALUE}) get no requests. If it does not come back, Kubernetes makes them anew where there "
                "is room.",
            ),
            NODE_FOR_S,
        ),
        of.rule(
            Alert.RESTARTED,
            of.with_sku(_restarts(of)),
            Told(
                f"Triton was restarted in {POD}",
                f"Restarts in {RESTART_KEEP_S // 60} minutes: {VALUE}. It crashed, was killed, or did not answer its "
                "probe. What it was answering is lost.",
            ),
            0,
        ),
        {
            **of.rule(
                Alert.LOAD_SLOW,
                _load_slow(of),
                Told(
                    f"{POD} takes long to load {model}",
                    f"{DURATION} until it was loaded, or so far; after {load_s}s it is restarted.",
                ),
                0,
            ),
            "keep_firing_for": f"{LOAD_KEEP_S}s",
        },
    ]


def _queue_grows(of: Of) -> str:
    """The queue is never empty and not being worked off, and the Deployment has as many replicas as it may have."""
    pending = f"{recording.PENDING}{of.here}"
    placed = "on (namespace, deployed_model, sku)"
    return (
        f"min_over_time({pending}[{QUEUE_WINDOW}]) > 0"
        f" and avg_over_time({pending}[{QUEUE_WINDOW}])"
        f" >= {number(QUEUE_SHRINKS)} * avg_over_time({pending}[{QUEUE_WINDOW}] offset {QUEUE_WINDOW})"
        f" and {placed} {recording.REPLICAS_WANTED}{of.here} >= {placed} {recording.REPLICAS_MAX}{of.here}"
    )


def _node_not_ready(of: Of) -> str:
    """Pods by node and SKU, of nodes that are there and not Ready: of one that answers nothing that is not known."""
    placed = of.with_sku(f'max by (node, namespace, pod) (kube_pod_info{{{of.namespace}, pod=~"{of.pods()}"}})')
    lost = 'max by (node) (kube_node_status_condition{condition="Ready", status="true"}) == 0'
    return f"count by (namespace, node, sku) ({placed} and on (node) ({lost}))"


def _restarts(of: Of) -> str:
    """Whole numbers, which `increase` does not give."""
    selector = f'{of.namespace}, container="{workload.CONTAINER}", pod=~"{of.pods()}"'
    seen = f"(kube_pod_container_status_restarts_total{{{selector}}}[{RESTART_KEEP_S}s])"
    return f"max by (namespace, pod) (max_over_time{seen} - min_over_time{seen}) > 0"


def _load_slow(of: Of) -> str:
    """A container that has not been Ready since its start, near its restart; or one that is, and Triton says how long
    it took, as those newer than 24.10 do: https://github.com/triton-inference-server/core/pull/397.
    """
    load_s = of.model.load_timeout_s
    limit_s = math.floor(LOAD_SHARE * load_s)
    selector = f'{of.namespace}, container="{workload.CONTAINER}"'
    loading = f"{of.containers('unready')} + on (namespace, pod) group_left () {of.running_s()} > {limit_s}"
    was_ready = (
        f"max by (namespace, pod) (max_over_time(kube_pod_container_status_ready{{{selector}}}[{limit_s}s])) == 1"
    )
    loaded = (
        f"max by (namespace, pod, sku) (nv_model_load_duration_secs{{{of.job}}}) > {limit_s}"
        f" and on (namespace, pod) {of.running_s()} < {load_s + LOAD_KEEP_S}"
    )
    return f"({loading} unless on (namespace, pod) {was_ready}) or ({loaded})"


def sight(of: Of) -> list[Rule]:
    """Whether a replica that serves is seen by what measures it."""
    model = of.model
    rules = [
        of.rule(
            Alert.TARGET_DOWN,
            f"{of.containers('ready')} unless on (namespace, pod) up{{{of.job}}} == 1",
            Told(
                f"{POD} is Ready and not scraped",
                "Prometheus gets no answer from its metrics port, or does not know it as a target.",
            ),
            UNSEEN_FOR_S,
        ),
        of.rule(
            Alert.SERIES_ABSENT,
            f"{of.containers('ready')} unless on (namespace, pod) {recording.QUEUE_COMPUTE_RATIO}{of.here}",
            Told(
                f"{POD} is Ready and has no queue ratio",
                f"Autoscaling of {model.name} on {SKU} does not see this replica.",
            ),
            UNSEEN_FOR_S,
        ),
    ]
    with_gpus = [one.sku for one in model.placements if gpus_per_replica(model, of.settings.sku(one.sku))]
    if with_gpus and of.settings.gpu_stack.dcgm_exporter:
        held = f'DCGM_FI_DEV_FB_USED{{exported_namespace="{of.settings.serving.namespace}"}}'
        rules.append(
            of.rule(
                Alert.GPU_UNOBSERVED,
                f"{of.containers('ready', with_gpus)}"
                f' unless on (pod) label_replace({held}, "pod", "$1", "exported_pod", "(.*)")',
                Told(
                    f"The GPUs of {POD} are not observed",
                    "The exporter of GPU metrics on its node is down, or does not know the pod.",
                ),
                UNOBSERVED_FOR_S,
            )
        )
    return rules
