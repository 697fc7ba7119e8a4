"""What is asked of an API server, by a server that keeps what it was asked and says what it is told."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import pytest

from fleet.verification_observe import DaemonPod
from services.verification.cluster import ClusterError, KubernetesCluster

if TYPE_CHECKING:
    from collections.abc import Iterator

# The Kubernetes client's own, of urllib3, whenever an API server refuses.
pytestmark = pytest.mark.filterwarnings("ignore:HTTPResponse.getheaders:DeprecationWarning")

TOKEN = "canary-token"


class ApiServer(ThreadingHTTPServer):
    """An API server that knows nothing but a table."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.says: dict[str, tuple[int, bytes]] = {}
        """By method and path."""
        self.asked: list[str] = []

    def tell(self, asked: str, answer: object, status: int = 200) -> None:
        self.says[asked] = (status, answer if isinstance(answer, bytes) else json.dumps(answer).encode())


class Handler(BaseHTTPRequestHandler):
    server: ApiServer

    def _answer(self) -> None:
        asked = f"{self.command} {self.path}"
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length).decode()
        allowed = self.headers.get("Authorization") == f"Bearer {TOKEN}"
        self.server.asked.append(asked + (f" {json.loads(body)['metadata']['name']}" if '"metadata"' in body else ""))
        missing = {"kind": "Status", "message": f"no {self.path} here"}
        status, answer = self.server.says.get(asked, (404, json.dumps(missing).encode()))
        self.send_response(status if allowed else 401)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(answer)

    do_GET = do_POST = do_DELETE = _answer  # noqa: N815 - as http.server names them

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with ApiServer() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def cluster(server: ApiServer) -> KubernetesCluster:
    kubeconfig = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "it",
        "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
        "clusters": [{"name": "it", "cluster": {"server": f"http://127.0.0.1:{server.server_port}"}}],
        "users": [{"name": "it", "user": {"token": TOKEN}}],
    }
    return KubernetesCluster(json.dumps(kubeconfig))


def test_a_path_is_asked_as_it_is_written(server: ApiServer, cluster: KubernetesCluster) -> None:
    path = (
        "/api/v1/namespaces/m/services/p:9090/proxy/api/v1/query?query=a%3Ab%7Bn%3D%22x%22%7D%5B30s%5D&scrapePool=a%2Fb"
    )
    server.tell(f"GET {path}", {"data": {}})
    assert cluster.get(path) == {"data": {}}
    metrics = (
        "/apis/custom.metrics.k8s.io/v1beta1/namespaces/n/pods/*/triton:queue_compute:ratio?labelSelector=a%2Fb%3Dc"
    )
    server.tell(f"GET {metrics}", {"items": []})
    assert cluster.get(metrics) == {"items": []}


@pytest.mark.parametrize(
    ("status", "answer", "told"),
    [
        (503, {"kind": "Status", "message": "no endpoints available"}, "answered 503: no endpoints available"),
        (400, {"status": "error", "error": "parse error"}, "answered 400: parse error"),
        (502, b"bad gateway", "answered 502: bad gateway"),
        (200, b"<html>", "the answer is no JSON"),
    ],
)
def test_what_is_no_answer_is_told(
    server: ApiServer, cluster: KubernetesCluster, status: int, answer: object, told: str
) -> None:
    server.tell("GET /apis/metrics.k8s.io/v1beta1/nodes?limit=1", answer, status)
    with pytest.raises(ClusterError) as error:
        cluster.get("/apis/metrics.k8s.io/v1beta1/nodes?limit=1")
    assert str(error.value).startswith("asking /apis/metrics.k8s.io/v1beta1/nodes: ")
    assert str(error.value).endswith(told)


def pod(name: str, node: str, *, ready: bool, **metadata: str) -> dict[str, Any]:
    conditions = [{"type": "Ready", "status": str(ready), **({} if ready else {"message": "m", "reason": "NotYet"})}]
    return {
        "metadata": {"name": name, **metadata},
        "spec": {"nodeName": node, "containers": [{"name": "c"}]},
        "status": {"phase": "Running", "conditions": conditions},
    }


def test_the_pods_of_a_daemon_set(server: ApiServer, cluster: KubernetesCluster) -> None:
    selector = {"matchLabels": {"a": "b", "c": "d"}}
    template = {"metadata": {}, "spec": {"containers": [{"name": "c"}]}}
    server.tell(
        "GET /apis/apps/v1/namespaces/kube-system/daemonsets/plugin",
        {"metadata": {"name": "plugin"}, "spec": {"selector": selector, "template": template}},
    )
    gone = pod("p-2", "n-2", ready=True, deletionTimestamp="2026-12-01T00:00:00Z")
    server.tell(
        "GET /api/v1/namespaces/kube-system/pods?labelSelector=a%3Db%2Cc%3Dd",
        {"items": [pod("p-0", "n-0", ready=True), pod("p-1", "n-1", ready=False), gone]},
    )
    assert cluster.daemon_pods("kube-system", "plugin") == [
        DaemonPod("p-0", "n-0", ready=True, waiting=""),
        DaemonPod("p-1", "n-1", ready=False, waiting="NotYet: m"),
    ]
    assert cluster.daemon_pods("kube-system", "other") is None


@pytest.mark.parametrize("there", [True, False], ids=["there is an older one", "it is the first"])
def test_an_object_is_made_anew(server: ApiServer, cluster: KubernetesCluster, *, there: bool) -> None:
    manifest = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "stamp", "namespace": "n"}}
    if there:
        server.tell("DELETE /api/v1/namespaces/n/configmaps/stamp", {"kind": "Status", "status": "Success"})
    server.tell("POST /api/v1/namespaces/n/configmaps", manifest, 201)
    cluster.renew(manifest)
    assert server.asked == [
        "DELETE /api/v1/namespaces/n/configmaps/stamp",
        "POST /api/v1/namespaces/n/configmaps stamp",
    ]
