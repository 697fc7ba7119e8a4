"""Replicas stop under load, and no client loses a request. On the cluster of the other tests; everything is put back.

The clients are those that docs/drain.md promises it to. The model is one that sleeps as long as a request says, so that
requests are in flight whenever Triton is told to stop.
"""

from __future__ import annotations

import json
import re
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from tests.e2e.callers import EACH
from tests.e2e.drain import (
    INSTANCES,
    MODEL,
    SKUS,
    Clients,
    Fleet,
    Promise,
    Request,
    Watch,
    counts,
    failures,
    kill_triton,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from tests.e2e.checkout import Checkout

pytestmark = pytest.mark.e2e

FIRST, SECOND = SKUS
NODE = "gpu-a100-40gb"
WELL_BEHAVED = ("http", "http-aged", "grpc")
"""Of docs/drain.md."""
RETRYING = ("http-retried", "grpc-retried")
ENOUGH = 100
"""Requests of a kind of client while a replica stops, which takes half a minute."""
GONE_WITHIN_S = 5.0
"""Until no node sends connections to a replica that was killed: the kubelet's look at its containers each second, the
pod's status, the Service's endpoints, each node's rules."""


@dataclass(frozen=True, slots=True)
class Case:
    """A way for replicas to stop in good order. `stops` of them do; `ready` are there in the end."""

    act: Callable[[Fleet], None]
    stops: int
    ready: int = len(SKUS)
    after: Callable[[Fleet], None] | None = None


def scale_down(fleet: Fleet) -> None:
    fleet.least(FIRST, 1)
    fleet.kubectl("scale", f"deployment/{FIRST}", "--replicas=1")


def one_each(fleet: Fleet) -> None:
    """Also where the test of scale-down was not run before."""
    if len(fleet.pods(FIRST)) > 1:
        scale_down(fleet)
    fleet.settle()


def delete_one(fleet: Fleet) -> None:
    fleet.kubectl("delete", "pod", fleet.pods(SECOND)[0]["metadata"]["name"], "--wait=false")


def drain_node(fleet: Fleet) -> None:
    """The model's other replica must not go meanwhile, whoever asks."""
    fleet.kubectl("drain", NODE, "--ignore-daemonsets", "--delete-emptydir-data", "--timeout=110s")
    other = fleet.pods(SECOND)[0]["metadata"]["name"]
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": other, "namespace": "triton-local"}}
    path = f"/api/v1/namespaces/triton-local/pods/{other}/eviction"
    with pytest.raises(AssertionError, match="disruption budget"):
        fleet.kubectl("create", f"--raw={path}", "--filename=-", stdin=json.dumps(eviction))


def uncordon(fleet: Fleet) -> None:
    fleet.kubectl("uncordon", NODE)
    fleet.settle()


def rolling_update(fleet: Fleet) -> None:
    """Of both SKUs at once, back to what was there before the tests."""
    for file, text in fleet.own.items():
        file.write_text(text)
    fleet.restart(None)
    fleet.rolled_out()


IN_GOOD_ORDER = [
    pytest.param(Case(scale_down, stops=1), id="scale-down"),
    pytest.param(Case(drain_node, stops=1, ready=1, after=uncordon), id="drain of a node"),
    pytest.param(Case(delete_one, stops=1), id="deletion of a pod", marks=pytest.mark.soak),
]


def sleeping(folder: Path) -> dict[Path, str]:
    """The files of a served model that make it one that sleeps."""
    config, found = re.subn(r"count: \d+\n", f"count: {INSTANCES}\n", (folder / "config.pbtxt").read_text())
    assert found == 1
    return {
        folder / "config.pbtxt": config,
        folder / "1" / "model.py": MODEL,
    }


@pytest.fixture(scope="module")
def fleet(checkout: Checkout) -> Iterator[Fleet]:
    """It serves the sleeping model, and has a replica more on the first SKU."""
    fleet = Fleet(checkout)
    (command,) = [one["command"] for one in fleet.deployment(FIRST)["spec"]["template"]["spec"]["containers"]]
    (path,) = [one.partition("=")[2] for one in command if one.startswith("--model-repository=")]
    made = sleeping(checkout.folder / ".fleet" / path.lstrip("/") / "minilm")
    fleet.own = {file: file.read_text() for file in made}
    for file, text in made.items():
        file.write_text(text)
    try:
        fleet.least(FIRST, 2)
        # Not left to the autoscaler's next look: the replica that an update has more could be taken for it.
        fleet.kubectl("scale", f"deployment/{FIRST}", "--replicas=2")
        fleet.restart("sleeping")
        fleet.rolled_out()
        fleet.settle(len(SKUS) + 1)
        yield fleet
    finally:
        fleet.least(FIRST, 1)
        rolling_update(fleet)
        for kind in ("hpa", "deployment"):
            for name in SKUS:
                fleet.forget(kind, name)
        fleet.settle()


@pytest.fixture(scope="module")
def promise(fleet: Fleet) -> Promise:
    return Promise.of(fleet.deployment(FIRST))


@pytest.fixture(scope="module")
def clients(fleet: Fleet) -> Iterator[Clients]:
    with Clients(fleet, (*WELL_BEHAVED, *RETRYING)) as clients:
        yield clients


def tell(name: str, requests: Sequence[Request]) -> str:
    """A line for each kind of client, also where the test passes: they are what docs/drain.md says."""
    lines = [
        f"  {name}: {kind}: sent {one.sent}, answered {one.sent - len(one.failed)}, failed {len(one.failed)}, "
        f"slowest {one.slowest_s:.2f} s" + (f", first {one.failed[0]}" if one.failed else "")
        for kind, one in sorted(counts(requests).items())
    ]
    text = "\n".join(lines)
    sys.stderr.write(f"\n{text}\n")
    return text


def happened(case: Case, clients: Clients, promise: Promise) -> tuple[list[Request], dict[str, list[Request]]]:
    """Does it, and asks every client how each of its requests ended; the long ones by replica."""
    fleet = clients.fleet
    began = time.time()
    with Watch(clients, promise) as watch:
        case.act(fleet)
        fleet.settle(case.ready)
        stopped = watch.stopped()
    if case.after:
        case.after(fleet)
    long = [request for requests in stopped.values() for request in requests]
    return [*clients.requests(since=began), *long], stopped


def check(name: str, case: Case, clients: Clients, promise: Promise) -> None:
    requests, stopped = happened(case, clients, promise)
    text = tell(name, requests)
    assert {replica: len(asked) for replica, asked in stopped.items()} == dict.fromkeys(stopped, 2), text
    assert len(stopped) == case.stops, f"{sorted(stopped)} stopped\n{text}"
    found = counts(requests)
    # A kind that hung all the while has ended no request, and is not among them.
    assert {kind for kind in WELL_BEHAVED if kind not in found or found[kind].sent <= ENOUGH} == set(), text
    assert failures(requests) == [], text
    assert max(request.took_s for request in requests) <= promise.drain_s, text


@pytest.mark.parametrize("case", IN_GOOD_ORDER)
def test_replicas_stop_in_good_order_and_no_request_is_lost(
    fleet: Fleet, clients: Clients, promise: Promise, case: Case, request: pytest.FixtureRequest
) -> None:
    if case.act is not scale_down:
        one_each(fleet)
    check(request.node.callspec.id, case, clients, promise)


@pytest.mark.parametrize("how", ["its process", pytest.param("its pod", marks=pytest.mark.soak)])
def test_a_replica_that_is_killed_costs_what_was_in_flight_and_nothing_to_clients_that_retry(
    fleet: Fleet, clients: Clients, promise: Promise, how: str
) -> None:
    """Until the nodes know, a Service sends connections to the dead replica too; they are refused at once."""
    one_each(fleet)
    victim = fleet.pods(SECOND)[0]
    began = time.time()
    time.sleep(3)
    killed = time.time()
    if how == "its process":
        kill_triton(victim)
    else:
        fleet.kubectl("delete", "pod", victim["metadata"]["name"], "--grace-period=0", "--force", "--wait=false")
    time.sleep(GONE_WITHIN_S)
    fleet.settle()
    requests = clients.requests(since=began)
    text = tell(f"kill -9 of {how}", requests)
    lost = failures(requests)
    assert [one for one in lost if one.kind in RETRYING] == [], text
    assert [one for one in lost if not killed - 1 <= one.began + one.took_s <= killed + GONE_WITHIN_S] == [], text
    assert max(request.took_s for request in requests) <= promise.drain_s, text


def without_pause(triton: dict[str, Any]) -> None:
    del triton["lifecycle"]


def without_age(triton: dict[str, Any]) -> None:
    triton["command"] = [one for one in triton["command"] if "connection-age" not in one]


def without_drain(triton: dict[str, Any]) -> None:
    triton["command"] = [
        "--exit-timeout-secs=1" if one.startswith("--exit-timeout") else one for one in triton["command"]
    ]


@pytest.mark.soak
@pytest.mark.parametrize(
    ("change", "kind"),
    [
        pytest.param(without_pause, "grpc", id="pause"),
        pytest.param(without_age, "grpc", id="age of gRPC connections"),
        pytest.param(without_drain, "http-long", id="drain"),
    ],
)
def test_without_what_drains_it_a_replica_loses_requests(
    fleet: Fleet, change: Callable[[dict[str, Any]], None], kind: str
) -> None:
    """That the tests above can fail, and that nothing is there for nothing."""
    one_each(fleet)
    before = fleet.change(SECOND, change)
    try:
        with Clients(fleet, ("grpc",) * 4) as clients:
            requests, _ = happened(Case(delete_one, stops=1), clients, Promise.of(fleet.deployment(SECOND)))
    finally:
        fleet.put(SECOND, before)
    text = tell(change.__name__, requests)
    assert [one for one in failures(requests) if one.kind == kind], text


@pytest.mark.soak
def test_a_client_that_never_closes_its_connection_loses_one_request_at_most(fleet: Fleet, promise: Promise) -> None:
    """What docs/drain.md says of it: it is answered until the drain ends, and what is then on its way is lost."""
    one_each(fleet)
    with Clients(fleet, ("http-kept",) * 4) as clients:
        stopped = time.time()
        delete_one(fleet)
        fleet.settle()
        requests = clients.requests(since=stopped)
    text = tell("connections that are kept", requests)
    lost = failures(requests)
    assert len(lost) <= len(clients.kinds) * EACH, text
    assert [one for one in lost if one.began + one.took_s < stopped + promise.pause_s + promise.drain_s - 1] == [], text


def test_an_update_rolls_over_the_fleet_and_no_request_is_lost(
    fleet: Fleet, clients: Clients, promise: Promise
) -> None:
    """The last one, since it ends what the others need."""
    one_each(fleet)
    check("rolling update", Case(rolling_update, stops=2), clients, promise)
