"""Which nodes of a cluster become GPU nodes and how, on an API that holds what a test says; and why pods fail."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import warnings
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from kubernetes import client
from kubernetes.client import ApiException

from local import diagnosis
from local.cluster import prepare
from local.cluster.topology import NODES
from local.errors import LocalError

if TYPE_CHECKING:
    from collections.abc import Iterator

PRODUCT = "nvidia.com/gpu.product"
A100, H100 = "NVIDIA-A100-SXM4-40GB", "NVIDIA-H100-80GB-HBM3"
SIMULATED = "triton-fleet.io/simulated-gpus"
KUBECONFIG = Path("/kubeconfig")


def node(
    name: str,
    product: str | None = None,
    gpus: int = 0,
    *,
    simulated: bool = False,
    role: str = "",
) -> client.V1Node:
    """`role`: `control-plane`, or nothing for a worker node. Nothing has published yet what is simulated."""
    labels = {PRODUCT: product} if product and not simulated else {}
    if role:
        labels[f"node-role.kubernetes.io/{role}"] = ""
    return client.V1Node(
        metadata=client.V1ObjectMeta(
            name=name,
            labels=labels or None,
            annotations={
                "ttl": "0",
                **({SIMULATED: json.dumps({"count": gpus, "product": product})} if simulated else {}),
            },
        ),
        spec=client.V1NodeSpec(),
        status=client.V1NodeStatus(capacity={"cpu": "4", "nvidia.com/gpu": str(gpus)} if gpus else {"cpu": "4"}),
    )


def cordoned(name: str) -> client.V1Node:
    found = node(name)
    found.spec.unschedulable = True
    return found


def tainted(name: str, *taints: client.V1Taint) -> client.V1Node:
    found = node(name)
    found.spec.taints = list(taints)
    return found


class Api:
    """Nodes, and the patches that they are given."""

    def __init__(self, nodes: list[client.V1Node]) -> None:
        self.nodes = nodes
        self.patches: list[tuple[str, Any]] = []
        self.denied = ""

    def __call__(self, api_client: object) -> Api:
        assert api_client == f"client of {KUBECONFIG}"
        return self

    def list_node(self, **_: object) -> client.V1NodeList:
        return client.V1NodeList(items=self.nodes)

    def read_node(self, name: str) -> client.V1Node:
        return next(found for found in self.nodes if found.metadata.name == name)

    def patch_node(self, name: str, body: object) -> None:
        if name == self.denied:
            raise ApiException(403, "Forbidden")
        self.patches.append((name, body))


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Api:
    made = Api([])

    @contextmanager
    def connected(config_file: str) -> Iterator[str]:
        yield f"client of {config_file}"

    monkeypatch.setattr(prepare, "new_client_from_config", connected)
    monkeypatch.setattr(prepare.client, "CoreV1Api", made)
    return made


# The plan


@pytest.mark.parametrize(
    ("nodes", "a100", "h100"),
    [
        pytest.param([node("a"), node("b"), node("c")], "c", "b", id="from the last, one stays"),
        pytest.param([node("c"), node("a"), node("d"), node("b")], "d", "c", id="by name, not by the API's order"),
        pytest.param(
            [node("a", product=H100, gpus=8, simulated=True), node("b"), node("c")], "c", "a", id="one is prepared"
        ),
        pytest.param(
            [
                node("a", product=H100, gpus=8, simulated=True),
                node("b", product=A100, gpus=8, simulated=True),
                node("c"),
            ],
            "b",
            "a",
            id="both are prepared",
        ),
        pytest.param([node("a"), node("b"), node("c"), cordoned("d")], "c", "b", id="not a cordoned one"),
        pytest.param(
            [node("a"), node("b"), node("c"), node("z", role="control-plane")], "c", "b", id="no control plane"
        ),
        pytest.param([node("a"), node("b"), node("c", product="Tesla-T4")], "b", "a", id="not one of another product"),
    ],
)
def test_nodes_are_chosen(api: Api, nodes: list[client.V1Node], a100: str, h100: str) -> None:
    api.nodes = nodes
    assert [(name, planned.gpu_product, planned.gpus) for name, planned in prepare.plan_nodes(KUBECONFIG, NODES)] == [
        (a100, A100, 8),
        (h100, H100, 8),
    ]
    assert api.patches == []


@pytest.mark.parametrize(
    ("named", "text"),
    [
        pytest.param(("b", "a"), "", id="in the order of the GPUs"),
        pytest.param(("b", "x"), "NODES=b,x: no worker node is x", id="unknown"),
        pytest.param(("b", "b"), "NODES=b,b: 2 different nodes are needed", id="the same twice"),
        pytest.param(("b",), "NODES=b: 2 different nodes are needed", id="too few"),
    ],
)
def test_nodes_can_be_named(api: Api, named: tuple[str, ...], text: str) -> None:
    api.nodes = [node("a"), node("b"), node("c")]
    if not text:
        plan = prepare.plan_nodes(KUBECONFIG, NODES, named)
        assert [(name, planned.gpu_product) for name, planned in plan] == [("b", A100), ("a", H100)]
        return
    with pytest.raises(LocalError) as refused:
        prepare.plan_nodes(KUBECONFIG, NODES, named)
    assert str(refused.value) == (
        f"prepare: {text}\nfix: name 2 of a, b, c: the one for {A100}, then the one for {H100}"
    )


TOO_FEW = (
    "{} worker nodes; 2 become GPU nodes and one must stay without GPUs\n"
    "fix: use a cluster with at least 3 worker nodes"
)
REAL = (
    "these nodes have GPUs of their own: {}\nfix: leave SIMULATE_GPUS out: real GPUs are announced by the device plugin"
)


@pytest.mark.parametrize(
    ("nodes", "text"),
    [
        pytest.param([], TOO_FEW.format(0), id="no node"),
        pytest.param([node("a"), node("b"), node("z", role="control-plane")], TOO_FEW.format(2), id="too few"),
        pytest.param([node("a"), node("b"), node("c"), node("d", gpus=1)], REAL.format("d"), id="GPUs without a label"),
        pytest.param(
            [node("a", product=A100, gpus=8), node("b", product=H100, gpus=8), node("c")],
            REAL.format("a, b"),
            id="GPUs of the products that are simulated",
        ),
        pytest.param(
            [node(name, product="Tesla-T4") for name in "ab"] + [node("c")],
            f"no worker node is left for {H100}: every other one has a label {PRODUCT} of another GPU\n"
            "fix: remove that label from one of a, b, or add a worker node",
            id="labels of other products",
        ),
    ],
)
def test_a_cluster_that_cannot_be_prepared_is_refused(api: Api, nodes: list[client.V1Node], text: str) -> None:
    api.nodes = nodes
    with pytest.raises(LocalError) as refused:
        prepare.plan_nodes(KUBECONFIG, NODES)
    assert str(refused.value) == f"prepare: {text}"


# The change


def metadata(product: str, memory_mib: int) -> dict[str, object]:
    """The product is no label: GPU feature discovery publishes it."""
    return {
        "labels": {"nvidia.com/gpu": "present", "nvidia.com/gpu.present": "true"},
        "annotations": {SIMULATED: json.dumps({"count": 8, "product": product, "memory_mib": memory_mib})},
    }


TAINT = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}
A100_METADATA, H100_METADATA = metadata(A100, 40960), metadata(H100, 81920)


def test_planned_nodes_get_labels_the_taint_and_gpus_and_keep_other_taints(api: Api) -> None:
    kept = client.V1Taint(key="spot", value="true", effect="NoExecute", time_added="2026-01-01T00:00:00Z")
    bare = client.V1Taint(key="maintenance", effect="PreferNoSchedule")
    stale = client.V1Taint(key="nvidia.com/gpu", value="old", effect="NoExecute")
    api.nodes = [node("a"), tainted("b", kept, stale, bare), node("c")]
    prepare.label_nodes(KUBECONFIG, prepare.plan_nodes(KUBECONFIG, NODES))
    assert api.patches == [
        ("c", {"metadata": A100_METADATA, "spec": {"taints": [TAINT]}}),
        (
            "b",
            {
                "metadata": H100_METADATA,
                "spec": {
                    "taints": [
                        {"key": "spot", "value": "true", "effect": "NoExecute"},
                        {"key": "maintenance", "effect": "PreferNoSchedule"},
                        TAINT,
                    ]
                },
            },
        ),
    ]


def test_a_node_that_may_not_be_changed_is_named(api: Api) -> None:
    api.nodes = [node("a"), node("b"), node("c")]
    api.denied = "c"
    with pytest.raises(LocalError) as failed:
        prepare.label_nodes(KUBECONFIG, prepare.plan_nodes(KUBECONFIG, NODES))
    assert str(failed.value) == (
        "prepare: node c could not be changed: HTTP 403 Forbidden\n"
        "fix: use a kubeconfig whose user may patch nodes, then run make prepare again"
    )


def test_only_gpu_nodes_get_gpus(api: Api) -> None:
    prepare.pretend_gpus(KUBECONFIG, NODES)
    assert api.patches == [
        (name, {"metadata": {"annotations": said["annotations"]}})
        for name, said in (("gpu-a100-40gb", A100_METADATA), ("gpu-h100-80gb", H100_METADATA))
    ]


# Reaching a cluster


def cluster(path: Path, **changes: object) -> Path:
    document: dict[str, object] = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:9"}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
    }
    path.write_text(yaml.safe_dump({**document, **changes}))
    return path


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({}, "Failed to establish a new connection: [Errno 111] Connection refused"),
        (
            {"contexts": []},
            "the file is not usable: Invalid kube-config file. Expected object with name c in {}/contexts list",
        ),
        (
            {"clusters": [{"name": "c", "cluster": {"server": 5}}]},
            "the file is not usable: 'int' object has no attribute 'rstrip'",
        ),
        (
            {
                "clusters": [
                    {"name": "c", "cluster": {"server": "https://127.0.0.1:9", "certificate-authority": "/nowhere"}}
                ]
            },
            "the file is not usable: File does not exist: /nowhere",
        ),
    ],
    ids=["no answer", "no context", "no address", "no certificate"],
)
def test_why_a_cluster_cannot_be_used(tmp_path: Path, changes: dict[str, object], error: str) -> None:
    path = cluster(tmp_path / "kubeconfig", **changes)
    assert prepare.api_error(path) == error.format(path)


def test_a_cluster_that_refuses_says_how(cluster_file: Path) -> None:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "HTTPResponse.getheaders", DeprecationWarning)  # the client's own
        assert prepare.api_error(cluster_file) == "HTTP 401 Unauthorized"
    assert prepare.server_of(cluster_file).startswith("http://127.0.0.1:")


def test_a_cluster_that_does_not_answer_is_asked_once(tmp_path: Path) -> None:
    """Each time costs the user the whole deadline."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        asked: list[object] = []

        def hang_up() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, address = listener.accept()
                    asked.append(address)
                    connection.close()

        thread = threading.Thread(target=hang_up, daemon=True)
        thread.start()
        address = f"http://127.0.0.1:{listener.getsockname()[1]}"
        path = cluster(tmp_path / "kubeconfig", clusters=[{"name": "c", "cluster": {"server": address}}])
        assert prepare.api_error(path) is not None
        assert len(asked) == 1
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()


# Why pods fail


def pod(
    name: str,
    *,
    phase: str = "Running",
    unscheduled: str = "",
    statuses: list[client.V1ContainerStatus] | None = None,
) -> client.V1Pod:
    condition = client.V1PodCondition(type="PodScheduled", status="False", message=unscheduled)
    return client.V1Pod(
        metadata=client.V1ObjectMeta(name=name),
        status=client.V1PodStatus(
            phase=phase, conditions=[condition] if unscheduled else None, container_statuses=statuses
        ),
    )


def container(
    *,
    ready: bool = False,
    waiting: client.V1ContainerStateWaiting | None = None,
    ended: client.V1ContainerStateTerminated | None = None,
    ended_before: client.V1ContainerStateTerminated | None = None,
) -> client.V1ContainerStatus:
    return client.V1ContainerStatus(
        name="triton",
        image="triton",
        image_id="",
        ready=ready,
        restart_count=2,
        state=client.V1ContainerState(waiting=waiting, terminated=ended),
        last_state=client.V1ContainerState(terminated=ended_before),
    )


def ended(message: str | None) -> client.V1ContainerStateTerminated:
    return client.V1ContainerStateTerminated(exit_code=1, reason="Error", message=message)


BACK_OFF = client.V1ContainerStateWaiting(reason="CrashLoopBackOff", message="back-off 40s")


@pytest.mark.parametrize(
    ("found", "lines"),
    [
        pytest.param(pod("p", phase="Succeeded", statuses=[container(ended=ended("done"))]), [], id="done"),
        pytest.param(pod("p", statuses=[container(ready=True, ended_before=ended("then"))]), [], id="ready"),
        pytest.param(
            pod("p", phase="Pending", unscheduled="0/3 nodes: 3 Insufficient nvidia.com/gpu"),
            ["pod p: not scheduled: 0/3 nodes: 3 Insufficient nvidia.com/gpu"],
            id="not scheduled",
        ),
        pytest.param(
            pod("p", statuses=[container()]),
            ["pod p, container triton: not ready, restarted 2 times"],
            id="not ready",
        ),
        pytest.param(
            pod(
                "p",
                statuses=[
                    container(waiting=BACK_OFF, ended_before=ended("\n".join(f"line {n}" for n in range(20)) + "\n"))
                ],
            ),
            [
                "pod p, container triton: CrashLoopBackOff, restarted 2 times",
                "  back-off 40s",
                "  exit status 1; its last lines:",
                *(f"    | line {n}" for n in range(8, 20)),
            ],
            id="ends again and again",
        ),
        pytest.param(
            pod("p", phase="Failed", statuses=[container(ended=ended(None))]),
            [
                "pod p, container triton: Error, restarted 2 times",
                "  exit status 1; its last lines:",
                "    | (none)",
            ],
            id="ended without a word",
        ),
    ],
)
def test_a_pod_that_is_not_ready_is_explained(found: client.V1Pod, lines: list[str]) -> None:
    assert list(diagnosis._of_pod(found)) == lines


def test_pods_that_cannot_be_read_are_no_error(tmp_path: Path) -> None:
    assert diagnosis.of(cluster(tmp_path / "kubeconfig"), "ns") == "(the pods could not be read: MaxRetryError)"


def test_every_pod_of_the_namespace_is_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Pods:
        def __init__(self, _: object) -> None:
            pass

        def list_namespaced_pod(self, namespace: str, **_: object) -> client.V1PodList:
            assert namespace == "triton-local"
            return client.V1PodList(
                items=[pod("a", statuses=[container()]), pod("b", unscheduled="no"), pod("c", phase="Succeeded")]
            )

    monkeypatch.setattr(diagnosis.client, "CoreV1Api", Pods)
    assert diagnosis.of(cluster(tmp_path / "kubeconfig"), "triton-local") == (
        "pod a, container triton: not ready, restarted 2 times\npod b: not scheduled: no"
    )
