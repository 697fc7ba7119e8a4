"""The number of replicas changes hands on a SKU that runs: docs/autoscaling.md, "Who owns the number".

After the main job, on its cluster. One update turns autoscaling off, the next on again.
"""

from __future__ import annotations

import subprocess
import threading
import time
from typing import TYPE_CHECKING

import pytest

from fleet.schema_autoscaling import SYNC_S
from local import paced
from local.cluster import lifecycle
from local.state import State
from tests.e2e.checkout import Client
from tests.e2e.cluster import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.e2e.checkout import Checkout

pytestmark = pytest.mark.e2e

NAMESPACE, DEPLOYMENT = "triton-local", "minilm-a100-40gb"
SCALED = "{sku: a100-40gb, replicas: {min: 1, max: 4}}"
SET = "{sku: a100-40gb, autoscaled: false, replicas: {min: 2, max: 4}}"


class Autoscalers:
    """When the Deployment's autoscaler came and went."""

    def __init__(self, bed: paced.Bed) -> None:
        path = '{.type} {.object.metadata.name}{"\\n"}'
        argv = ("get", "horizontalpodautoscalers", f"--namespace={NAMESPACE}", "--watch", "--output-watch-events")
        self._process = subprocess.Popen(
            lifecycle.kubectl_argv(bed.state, *argv, f"--output=jsonpath={path}"), stdout=subprocess.PIPE, text=True
        )
        self.events: list[tuple[float, str]] = []
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    def _follow(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            kind, name = line.split()
            if name == DEPLOYMENT and kind != "MODIFIED":
                self.events.append((time.time(), kind))

    def end(self) -> None:
        self._process.terminate()
        self._thread.join()
        # It ends with its output, which this closes.
        with self._process:
            pass


@pytest.fixture(scope="module")
def bed(checkout: Checkout) -> paced.Bed:
    return paced.Bed(State(checkout.folder / ".fleet"))


@pytest.fixture(scope="module")
def watched(bed: paced.Bed) -> Iterator[tuple[paced.Sizes, Autoscalers]]:
    autoscalers = Autoscalers(bed)
    with paced.Sizes(bed, NAMESPACE) as sizes:
        # Until both watches have told what is there: the first events are no changes.
        sizes.wait(DEPLOYMENT, 1, 1, since=0, within_s=60)
        eventually(lambda: bool(autoscalers.events), "the watch of autoscalers tells what is there")
        yield sizes, autoscalers
    autoscalers.end()


def owner(checkout: Checkout) -> str:
    path = r"{.metadata.annotations.triton-fleet\.io/replicas}"
    return checkout.kubectl("get", "deployment", DEPLOYMENT, f"--namespace={NAMESPACE}", f"--output=jsonpath={path}")


def test_turned_off_the_settings_number_is_set_and_stays(
    checkout: Checkout, watched: tuple[paced.Sizes, Autoscalers]
) -> None:
    """The autoscaler, which wants one replica of an idle model, is gone before there are two."""
    sizes, autoscalers = watched
    began = time.time()
    checkout.replace("Pulumi.local.yaml", SCALED, SET)
    up = checkout.make("up")
    assert up.status == 0, up.text[-6000:]
    time.sleep(SYNC_S + 2)
    assert owner(checkout) == "settings"
    ((gone, kind),) = [event for event in autoscalers.events if event[0] > began]
    assert kind == "DELETED"
    ((set_at, size),) = sizes.changes(DEPLOYMENT, began)
    assert size == 2
    assert gone < set_at


def test_turned_on_no_replica_goes_but_by_the_autoscaler(
    checkout: Checkout, bed: paced.Bed, watched: tuple[paced.Sizes, Autoscalers]
) -> None:
    """An update that no longer applies `spec.replicas` would have set one."""
    sizes, autoscalers = watched
    began = time.time()
    checkout.restore("Pulumi.local.yaml")
    try:
        with Client(checkout.service_address()) as client:
            up = checkout.make("up")
        assert up.status == 0, up.text[-6000:]
        assert owner(checkout) == "autoscaler"
        ((made, kind),) = [event for event in autoscalers.events if event[0] > began]
        assert kind == "ADDED"
        # It may take one when it has looked for `scale_down.window_s`, which stack `local` sets to 60.
        assert [change for change in sizes.changes(DEPLOYMENT, began) if change[0] < made + 60] == []
        assert client.failures == []
        assert client.answered > 0
    finally:
        bed.kubectl("scale", f"deployment/{DEPLOYMENT}", f"--namespace={NAMESPACE}", "--replicas=1")
