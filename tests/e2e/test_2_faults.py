"""What the fleet does when something around it fails: docs/faults.md. The longer ones are test_2_faults_soak.py's.

Each makes its fault by real means and ends it, while callers ask. First of the tests on the cluster, which they leave
as they found it.
"""

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING

import pytest

from fleet import workload
from tests.e2e.cluster import eventually, process_of
from tests.e2e.held import CALLERS, TIMEOUT_S, Held, held, looks, tritonserver

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.e2e.checkout import Checkout

pytestmark = pytest.mark.e2e

SCRAPED_WITHIN_S = 60
"""kube-state-metrics is scraped every 30 s and rules are evaluated every 10 s, on a busy machine."""
UNREADY_S = workload.READINESS_FAILURES * max(workload.PROBE_TIMEOUT_S, workload.READINESS_PERIOD_S)
"""A probe that is never answered takes its time-out, and the next begins at once, as its period is over."""
LATE_S = workload.READINESS_PERIOD_S + 5
"""Until the first of them, and from the last until each node sends nothing there."""


@pytest.fixture(scope="module")
def fleet(checkout: Checkout) -> Iterator[Held]:
    with held(checkout) as found:
        yield found


def test_without_the_adapter_replicas_stay_and_an_alert_says_why(fleet: Held) -> None:
    adapter = ("deployment/prometheus-adapter", "--namespace=monitoring")
    with fleet.fault() as began:
        fleet.checkout.kubectl("scale", *adapter, "--replicas=0")
        try:
            eventually(lambda: fleet.are_seeing(are=False), "autoscalers without a value")
            time.sleep(looks(2))
            eventually(lambda: fleet.alert_states("MetricsApiDown") == {"pending"}, "MetricsApiDown", SCRAPED_WITHIN_S)
        finally:
            fleet.checkout.kubectl("scale", *adapter, "--replicas=1")
    assert fleet.callers.failed(began) == []


def test_a_killed_api_server_comes_back_and_nobody_notices(fleet: Held) -> None:
    pods = {pod["metadata"]["uid"] for pod in fleet.checkout.triton_pods()}
    first = process_of(fleet.checkout, "kube-apiserver")
    with fleet.fault() as began:
        os.kill(first, signal.SIGKILL)
        eventually(lambda: process_of(fleet.checkout, "kube-apiserver") != first, "another API server")
        time.sleep(looks(1))
    assert fleet.callers.failed(began) == []
    assert {pod["metadata"]["uid"] for pod in fleet.checkout.triton_pods()} == pods


def test_a_hung_triton_gets_nothing_more_when_its_probes_have_failed(fleet: Held) -> None:
    """It takes connections and answers none. Only what was sent to it until then is lost."""
    pod = fleet.checkout.triton_pods()[0]["metadata"]
    server = tritonserver(pod["uid"])
    with fleet.fault() as began:
        os.kill(server, signal.SIGSTOP)
        try:
            eventually(lambda: not fleet.ready()[pod["name"]], f"{pod['name']} is not Ready", UNREADY_S + LATE_S)
            time.sleep(TIMEOUT_S + LATE_S)
        finally:
            os.kill(server, signal.SIGCONT)
    lost = fleet.callers.failed(began)
    assert lost, "nothing was sent to it, so nothing was shown"
    assert [call for call in lost if call.began >= UNREADY_S + LATE_S] == []
    # Each caller waits for its answer, so none can have lost more.
    assert len(lost) <= CALLERS * (1 + (UNREADY_S + LATE_S) / TIMEOUT_S)
    assert fleet.callers.silence_s(began) <= 2 * TIMEOUT_S
