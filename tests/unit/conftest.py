"""What unit tests share: the graph that stack `local` registers, and a cluster that answers."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

import pytest
import yaml

from tests.unit import graph

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class _ApiServer(BaseHTTPRequestHandler):
    """Answers the one question that the program asks before it registers anything."""

    def do_GET(self) -> None:
        known = self.path == "/api/v1/" and self.headers["Authorization"] == "Bearer canary-token"
        body = json.dumps({"kind": "APIResourceList", "resources": []}).encode()
        self.send_response(200 if known else 401)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base's name
        pass


def kubeconfig(server: str) -> str:
    return yaml.safe_dump(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "here",
            "contexts": [{"name": "here", "context": {"cluster": "here", "user": "me"}}],
            "clusters": [{"name": "here", "cluster": {"server": server}}],
            "users": [{"name": "me", "user": {"token": "canary-token"}}],
        }
    )


@pytest.fixture(scope="session")
def cluster_file(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The kubeconfig of an API server that answers."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _ApiServer)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    path = tmp_path_factory.mktemp("cluster") / "kubeconfig"
    path.write_text(kubeconfig(f"http://127.0.0.1:{server.server_port}"))
    yield path
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture(scope="session")
def config(project: Path, cluster_file: Path) -> dict[str, object]:
    """The settings of stack `local`, on a cluster that answers."""
    return {
        **graph.local_config(project),
        "cluster": {"source": "kubeconfig", "kubeconfig": str(cluster_file)},
    }


@pytest.fixture(scope="session")
def local(project: Path, config: dict[str, object]) -> graph.Graph:
    """What stack `local` registers in an update, every output known."""
    return graph.run(project, config, preview=False)


@pytest.fixture(scope="session")
def stacks(project: Path, local: graph.Graph) -> dict[str, graph.Graph]:
    """What each stack registers in an update, every output known."""
    clouds = {
        name: graph.run(project, graph.stack_config(project, name), stack=name, preview=False)
        for name in ("dev", "prod")
    }
    return {"local": local, **clouds}
