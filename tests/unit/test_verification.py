"""What is checked, and how what was observed is judged."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from fleet import names, pods, verification
from fleet.verification import Check, Kind, ModelPlan, Node, Plan, Pod, Result, SkuPlan
from services.verification import program as in_cluster
from tests.unit.graph import local_settings

if TYPE_CHECKING:
    from pathlib import Path

PRODUCT = "nvidia.com/gpu.product"
A100 = SkuPlan(name="a100", node_labels={PRODUCT: "A100"}, tolerations=(), gpus=2, replicas=2)
H100 = SkuPlan(name="h100", node_labels={PRODUCT: "H100"}, tolerations=(), gpus=1, replicas=1)
CPU = SkuPlan(name="cpu", node_labels={}, tolerations=(), gpus=0, replicas=1)
NODES = (
    Node("gpu-a", {PRODUCT: "A100"}, ready=True, gpus=8),
    Node("gpu-b", {PRODUCT: "H100"}, ready=True, gpus=8),
    Node("system", {}, ready=True, gpus=0),
)


def plan_of(project: Path, *skus: SkuPlan) -> Plan:
    settings = local_settings(project)
    return verification.plan(settings).model_copy(update={"models": (ModelPlan(name="minilm", version=3, skus=skus),)})


def pod(name: str, sku: str = "a100", **changes: object) -> Pod:
    given: dict[str, Any] = {
        "name": name,
        "model": "minilm",
        "sku": sku,
        "node": {"a100": "gpu-a", "h100": "gpu-b"}.get(sku, "system"),
        "address": f"198.18.0.{len(name)}",
        "ready": True,
        "gpus": {"a100": 2, "h100": 1}.get(sku, 0),
        "waiting": "",
        **changes,
    }
    return Pod(**given)


def test_the_plan_holds_what_the_settings_say(project: Path) -> None:
    plan = verification.plan(local_settings(project))
    assert [model.model_dump() for model in plan.models] == [
        {
            "name": "minilm",
            "version": 1,
            "skus": tuple(
                {
                    "name": name,
                    "node_labels": {
                        "nvidia.com/gpu": "present",
                        "nvidia.com/gpu.present": "true",
                        PRODUCT: product,
                    },
                    "tolerations": (
                        {"key": "nvidia.com/gpu", "operator": "Equal", "value": "present", "effect": "NoSchedule"},
                    ),
                    "gpus": 1,
                    "replicas": 1,
                }
                for name, product in (
                    ("a100-40gb", "NVIDIA-A100-SXM4-40GB"),
                    ("h100-80gb", "NVIDIA-H100-80GB-HBM3"),
                )
            ),
        }
    ]


def test_an_order_survives_its_way_through_the_config_map(project: Path) -> None:
    settings = local_settings(project)
    manifest = verification.config_map(settings, "program", {"minilm": [{"output": "EMBEDDING"}]})
    order = verification.order(json.loads(json.dumps(manifest)))
    assert order == verification.Order(verification.plan(settings), manifest["metadata"]["name"])


def test_a_model_without_known_answers_is_asked_whether_it_is_ready_and_no_more(project: Path) -> None:
    settings = local_settings(project)
    plan = verification.order(verification.config_map(settings, "program", {"minilm": []})).plan
    assert plan.unproved == ("minilm",)
    proved = plan.model_copy(update={"unproved": ()})
    found = [Pod("minilm-a", "minilm", "a100-40gb", "node", "10.0.0.1", ready=True, gpus=1, waiting="")]
    left_out = {one.name for one in verification.client_checks(proved, found)} - {
        one.name for one in verification.client_checks(plan, found)
    }
    assert left_out == {
        "replica/minilm-a/answer",
        "service/minilm/answer/http",
        "service/minilm/answer/grpc",
        "service/minilm/spread",
    }


def test_what_is_not_verified_makes_no_other_plan(project: Path) -> None:
    """A setting of images that verification does not run in, or that is not set, is not in the plan at all."""
    planned = verification.plan(local_settings(project)).dump()
    assert set(json.loads(planned)) == {
        "serving",
        "images",
        "deadline_s",
        "check_deadline_s",
        "models",
        "gpus",
        "monitoring",
    }
    assert set(json.loads(planned)["images"]) == {"triton", "tools", "pull_policy", "pull_secrets"}
    assert verification.Plan.model_validate_json(planned) == verification.plan(local_settings(project))


@pytest.mark.parametrize(
    ("products", "results"),
    [
        ({}, []),
        ({"n1": "A100", "n2": "A100"}, [("nodes/a100", True, "2 with A100")]),
        ({"n1": "A100", "n2": "A10G"}, [("nodes/a100", False, "n2 has A10G, not A100")]),
        ({"n1": None}, [("nodes/a100", False, "n1 has no GPU product, not A100")]),
    ],
)
def test_the_product_that_a_node_found_is_the_one_that_its_sku_was_planned_for(
    project: Path, products: dict[str, str | None], results: list[tuple[str, bool, str]]
) -> None:
    nodes = [
        Node(name, {names.LABEL_SKU: "a100", **({} if product is None else {PRODUCT: product})}, ready=True, gpus=8)
        for name, product in products.items()
    ]
    found = verification.placement(plan_of(project, A100), [], nodes, 0.5)
    assert [(one.name, one.ok, one.reason) for one in found if one.name.startswith("nodes/")] == results


@pytest.mark.parametrize(("status", "ok"), [("ACTIVE", True), ("DEGRADED", False), ("no answer within 5 s", False)])
def test_an_add_on_works_when_eks_says_so(project: Path, status: str, *, ok: bool) -> None:
    result = verification.addon_result("vpc-cni", status, 0.1)
    assert (result.name, result.ok, result.reason) == ("addon/vpc-cni", ok, status)
    assert verification.first_look(plan_of(project), [] if ok else [result]) == (
        "" if ok else "kubectl -n kube-system get pods -o wide"
    )


@pytest.mark.parametrize(
    ("pods", "nodes", "expected"),
    [
        pytest.param(
            [pod("p1"), pod("p2")], NODES, (True, "p1 on gpu-a, p2 on gpu-a; 2 GPUs each"), id="as it should be"
        ),
        pytest.param([pod("p1")], NODES, (False, "1 replicas, not 2"), id="a replica is missing"),
        pytest.param(
            [pod("p1"), pod("p2"), pod("p3")],
            NODES,
            (True, "p1 on gpu-a, p2 on gpu-a, p3 on gpu-a; 2 GPUs each"),
            id="scaled out",
        ),
        pytest.param(
            [pod("p1"), pod("p2", node="gpu-b")],
            NODES,
            (False, f"p2 is on gpu-b, which is no node of a100: {PRODUCT} is 'H100', not 'A100'"),
            id="on a node of another SKU",
        ),
        pytest.param(
            [pod("p1"), pod("p2", node=None, ready=False, waiting="Insufficient nvidia.com/gpu")],
            NODES,
            (False, "p2 is on no node: Insufficient nvidia.com/gpu"),
            id="pending",
        ),
        pytest.param(
            [pod("p1"), pod("p2", ready=False, waiting="CrashLoopBackOff")],
            NODES,
            (False, "p2 on gpu-a is not ready: CrashLoopBackOff"),
            id="B39: an error names pod and condition",
        ),
        pytest.param([pod("p1"), pod("p2", gpus=1)], NODES, (False, "p2 holds 1 GPUs, not 2"), id="too few GPUs"),
        pytest.param(
            [pod("p1"), pod("p2")],
            (Node("gpu-a", {PRODUCT: "A100"}, ready=True, gpus=3), *NODES[1:]),
            (False, "gpu-a has 3 GPUs and its pods hold 4"),
            id="more GPUs held than there are",
        ),
    ],
)
def test_placement(project: Path, pods: list[Pod], nodes: tuple[Node, ...], expected: tuple[bool, str]) -> None:
    ok, reason = expected
    assert verification.placement(plan_of(project, A100), pods, nodes, 0.5) == [
        Result(name="placement/minilm/a100", ok=ok, seconds=0.5, reason=reason)
    ]


def test_all_faults_of_a_placement_are_told_together(project: Path) -> None:
    pods = [pod("p1", gpus=0, node="gpu-b"), pod("other", sku="h100", model="another")]
    (result,) = verification.placement(plan_of(project, A100), pods, NODES, 0.0)
    assert (
        result.reason == f"1 replicas, not 2; p1 is on gpu-b, which is no node of a100: {PRODUCT} is 'H100', not 'A100'"
    )


@pytest.mark.parametrize(
    ("skus", "pods", "expected"),
    [
        pytest.param((A100, H100), [], ["gpu-a", "gpu-b"], id="each node of a SKU, whether it has a replica or not"),
        pytest.param((CPU,), [pod("p1", sku="cpu")], ["system"], id="a SKU without labels: where its replicas are"),
        pytest.param((CPU,), [pod("p1", sku="cpu", node=None)], [], id="nowhere yet"),
    ],
)
def test_nodes_that_must_read_the_store(
    project: Path, skus: tuple[SkuPlan, ...], pods: list[Pod], expected: list[str]
) -> None:
    assert [node.name for node in verification.reader_nodes(plan_of(project, *skus), pods, NODES)] == expected


def test_what_a_client_checks(project: Path) -> None:
    plan = plan_of(project, A100, H100)
    pods = [pod("a"), pod("bb", sku="h100"), pod("ccc", address=None)]
    shared, headless = "minilm.triton-local.svc", "minilm-pods.triton-local.svc"
    served = {"model": "minilm", "version": 3}

    def both(what: str, kind: Kind, **arguments: object) -> list[Check]:
        return [
            Check(
                name=f"service/minilm/{what}/{protocol}",
                kind=kind,
                arguments={"host": shared, "protocol": protocol, **arguments},
            )
            for protocol in ("http", "grpc")
        ]

    def replica(name: str, address: str) -> list[Check]:
        version = {"host": address, "protocol": "http", **served}
        answer = {"host": address, "protocol": "grpc", **served}
        return [
            Check(name=f"replica/{name}/version", kind="version", arguments=version),
            Check(name=f"replica/{name}/answer", kind="answer", arguments=answer),
        ]

    live, ready, index = both("live", "live"), both("ready", "ready"), both("index", "index", **served)
    assert verification.client_checks(plan, pods) == [
        Check(name="service/minilm/dns", kind="resolve", arguments={"host": shared, "addresses": None}),
        Check(
            name="replicas/minilm/dns",
            kind="resolve",
            arguments={"host": headless, "addresses": ["198.18.0.1", "198.18.0.2"]},
        ),
        *(check for pair in zip(live, ready, index, strict=True) for check in pair),
        *replica("a", "198.18.0.1"),
        *replica("bb", "198.18.0.2"),
        *both("answer", "answer", **served),
        Check(
            name="service/minilm/spread",
            kind="spread",
            arguments={
                "host": shared,
                "replicas": {"198.18.0.1": "a100", "198.18.0.2": "h100"},
                "skus": ["a100", "h100"],
                **served,
            },
        ),
    ]


def test_each_kind_of_check_is_one_that_the_program_knows_with_these_arguments(project: Path) -> None:
    import inspect  # noqa: PLC0415

    for check in verification.client_checks(plan_of(project, A100, H100), [pod("a"), pod("bb", sku="h100")]):
        inspect.signature(getattr(in_cluster.Checks, check.kind)).bind(None, **check.arguments)


def test_the_program_and_the_runner_agree_on_what_marks_a_result() -> None:
    assert in_cluster.RECORD_PREFIX == verification.RECORD_PREFIX


def test_a_check_that_nobody_reported_has_failed() -> None:
    got = [Result(name="b", ok=True, seconds=1.0, reason="good"), Result(name="x", ok=True, seconds=1.0, reason="?")]
    assert verification.complete(["a", "b"], got, "the pod was evicted") == [
        Result(name="a", ok=False, seconds=0.0, reason="did not run: the pod was evicted"),
        got[0],
    ]


def test_the_report_as_people_read_it() -> None:
    results = [
        Result(name="placement/minilm/a100", ok=True, seconds=0.0312, reason="p1 on gpu-a"),
        Result(name="store/write", ok=False, seconds=12.0, reason="read-only file system"),
    ]
    assert verification.table(results) == (
        "ok    placement/minilm/a100    0.03 s  p1 on gpu-a\n"
        "FAIL  store/write             12.00 s  read-only file system\n"
        "2 checks, 1 FAILED"
    )
    assert verification.table(results[:1]).endswith("1 checks, all ok")


@pytest.mark.parametrize(
    ("failed", "look"),
    [
        ("placement/minilm/a100", "describe pods -l model=minilm,triton-fleet.io/sku=a100"),
        ("store/read/gpu-a", "describe pvc model-store"),
        ("replica/minilm-a100-xyz/answer", "logs minilm-a100-xyz"),
        ("replicas/minilm/dns", "get endpointslices -o wide -l kubernetes.io/service-name=minilm-pods"),
        ("service/minilm/live/http", "get endpointslices -o wide -l kubernetes.io/service-name=minilm"),
        ("service/minilm/answer/grpc", "logs -l model=minilm --prefix"),
    ],
)
def test_where_to_look_first(project: Path, failed: str, look: str) -> None:
    results = [
        Result(name="placement/other/b", ok=True, seconds=0.0, reason=""),
        Result(name=failed, ok=False, seconds=0.0, reason=""),
        Result(name="store/write", ok=False, seconds=0.0, reason=""),
    ]
    assert verification.first_look(plan_of(project), results) == f"kubectl -n triton-local {look}"


def test_there_is_nothing_to_look_at_when_all_is_well(project: Path) -> None:
    good = Result(name="store/write", ok=True, seconds=0.0, reason="")
    assert verification.first_look(plan_of(project), [good]) == ""


def test_a_job_of_verification(project: Path) -> None:
    settings = local_settings(project)
    order = verification.order(verification.config_map(settings, "program", {}))
    job = verification.job(order, "cafe", "read-1", ["read"], "gpu-a", writable=False)
    spec = job["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    assert (job["metadata"]["name"], job["metadata"]["namespace"]) == ("verify-cafe-read-1", "triton-local")
    assert (job["spec"]["backoffLimit"], job["spec"]["activeDeadlineSeconds"]) == (0, 630)
    assert (spec["nodeName"], spec["restartPolicy"]) == ("gpu-a", "Never")
    assert spec["tolerations"] == [
        {"key": "nvidia.com/gpu", "operator": "Equal", "value": "present", "effect": "NoSchedule"}
    ]
    assert container["command"] == ["python3", "-u", "/verification/program.py", "read"]
    assert container["volumeMounts"] == [
        {"name": "verification", "mountPath": "/verification", "readOnly": True},
        {"name": "store", "mountPath": "/store", "readOnly": True},
        {"name": "tmp", "mountPath": pods.TMP_MOUNT},
    ]
    anywhere = verification.job(order, "cafe", "write", ["write"], None, writable=True)["spec"]["template"]["spec"]
    assert "nodeName" not in anywhere
    assert "tolerations" not in anywhere
    assert anywhere["containers"][0]["volumeMounts"][1] == {"name": "store", "mountPath": "/store", "readOnly": False}
