"""Load on the embedded cluster: the report adds up, and a load that is too much for the fewest replicas gets more.

That they go again, and a load from inside the cluster, take longer: `make soak`.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import pytest

from tests.e2e.cluster import eventually, get, prometheus

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.e2e.checkout import Checkout

pytestmark = pytest.mark.e2e

SKUS = ("a100-40gb", "h100-80gb")
FEWEST = dict.fromkeys(SKUS, 1)
USERS = 480
"""They think for half a second. Two replicas answer 100 to 500 requests a second, so 430 to 230 wait or are in work:
more than twice the 32 that a replica executes at once, and then more wait than are in work."""
SMOKE_S = 10
BACK_S = 420
"""The window of the rates, that of scaling down, and a quarter of a minute for each replica."""


def reported(checkout: Checkout) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((checkout.folder / "reports" / "load.json").read_text())
    return document


def replicas(checkout: Checkout) -> dict[str, int]:
    return {
        item["metadata"]["labels"]["triton-fleet.io/sku"]: item["spec"]["replicas"]
        for item in checkout.objects("deployments")
        if item["metadata"]["labels"].get("model") == "minilm"
    }


def most(checkout: Checkout, count: int) -> None:
    """Bounds the autoscalers; more replicas than that go at once."""
    for sku in SKUS:
        patch = json.dumps({"spec": {"maxReplicas": count}})
        checkout.kubectl("patch", "hpa", f"minilm-{sku}", "--namespace=triton-local", f"--patch={patch}")


def ratio(checkout: Checkout) -> float:
    query = urlencode({"query": "max(triton:queue_compute:ratio)"})
    answer = get(checkout, prometheus(f"/api/v1/query?{query}"))
    return float(answer["data"]["result"][0]["value"][1])


@pytest.fixture(scope="module", autouse=True)
def back(checkout: Checkout) -> Iterator[None]:
    """Afterwards each SKU has its fewest replicas again, without the minutes that the windows of scaling down take."""
    yield
    most(checkout, 1)
    try:
        eventually(lambda: replicas(checkout) == FEWEST, "the fewest replicas")
        eventually(lambda: len(checkout.triton_pods()) == len(SKUS), "no pod that still drains")
        # Until the load has left the window of the rates, the ratio would bring them back.
        eventually(lambda: ratio(checkout) < 0.5, "a ratio without load")
    finally:
        most(checkout, 4)


def test_more_load_than_the_fewest_replicas_take_brings_more_and_no_request_fails(checkout: Checkout) -> None:
    done = checkout.make("load", "PROFILE=soak", "ARRIVALS=closed", f"USERS={USERS}", "DURATION=50", "P95_MS=60000")
    most(checkout, 1)
    assert done.status == 0, done.text[-3000:]
    found = reported(checkout)
    assert (found["failed"], found["served"]) == (0, found["offered"])
    assert [max(one["ratio"] or 0 for one in found["metric"][sku]) > 1 for sku in SKUS] == [True, True]
    assert {sku: found["replicas"][sku][0]["wanted"] for sku in SKUS} == FEWEST
    grown = {sku: max(one["wanted"] for one in found["replicas"][sku]) for sku in SKUS}
    assert all(count > 1 for count in grown.values()), grown


def test_a_smoke_load_is_answered_and_its_report_adds_up(checkout: Checkout) -> None:
    eventually(lambda: len(checkout.triton_pods()) == len(SKUS), "no pod that still drains")
    done = checkout.make("load", "PROFILE=smoke", f"DURATION={SMOKE_S}")
    assert done.status == 0, done.text[-3000:]
    found = reported(checkout)
    assert found["offered"] == found["served"] > 20
    assert found["failed"] == 0
    assert found["rps"] == pytest.approx(found["served"] / SMOKE_S, rel=0.01)
    assert found["p50_ms"] <= found["p95_ms"] <= found["p99_ms"]
    # Each replica counted what it answered, and together they answered what clients got.
    share = found["share"]
    # Prometheus knows a replica that has just gone for a while: it answered none.
    assert {sku: sum(count > 0 for count in share[sku]["replicas"].values()) for sku in share} == FEWEST
    assert sum(one["answered"] for one in share.values()) == found["served"]
    assert all(one["part"] > 0.2 for one in share.values()), "each request has its own connection: a coin each"
    assert "<svg" in (checkout.folder / "reports" / "load.html").read_text()


@pytest.mark.soak
def test_a_step_makes_both_skus_grow_and_shrink_and_no_request_fails(checkout: Checkout) -> None:
    most(checkout, 4)
    done = checkout.make("load", "PROFILE=step")
    assert done.status == 0, done.text[-3000:]
    found = reported(checkout)
    assert (found["failed"], found["served"]) == (0, found["offered"])
    for sku in SKUS:
        wanted = [one["wanted"] for one in found["replicas"][sku]]
        assert wanted[0] == 1
        assert max(wanted) > 1
    eventually(lambda: replicas(checkout) == FEWEST, "the fewest replicas", BACK_S)


@pytest.mark.soak
def test_a_load_from_inside_the_cluster_is_the_same_and_leaves_nothing(checkout: Checkout) -> None:
    done = checkout.make("load", "PROFILE=smoke", "PODS=2")
    assert done.status == 0, done.text[-3000:]
    found = reported(checkout)
    assert found["offered"] == found["served"] > 20
    assert sum(one["answered"] for one in found["share"].values()) == found["served"]
    assert max(one["users"] for one in found["intervals"]) == 4
    eventually(lambda: left(checkout) == [], "nothing of the load")


def left(checkout: Checkout) -> list[str]:
    """What a load makes in the namespace, and takes away again."""
    kinds = "jobs,configmaps,networkpolicies,pods"
    return [
        f"{item['kind']} {item['metadata']['name']}"
        for item in checkout.objects(kinds)
        if item["metadata"]["name"].startswith("load-")
    ]
