"""A program on the machine that takes Alertmanager's webhooks."""

from __future__ import annotations

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Self

from local.cluster.topology import Addresses

if TYPE_CHECKING:
    from tests.e2e.checkout import Checkout


class Hooks(ThreadingHTTPServer):
    """Keeps each alert by the path it was sent to, and when something was sent there."""

    def __init__(self, checkout: Checkout, *paths: str) -> None:
        recorded = json.loads((checkout.folder / ".fleet" / "cluster" / "process.json").read_text())
        address = Addresses.of(recorded["network"]).host
        super().__init__((address, 0), _Taker)
        self.alerts: dict[str, list[dict[str, Any]]] = {path: [] for path in paths}
        self.heard_at: dict[str, list[float]] = {path: [] for path in paths}
        self.url = f"http://{address}:{self.server_port}"
        self._thread = threading.Thread(target=self.serve_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self._thread.join()
        self.server_close()

    def got(self, path: str, **labels: str) -> list[dict[str, Any]]:
        """Alerts that came there and carry these labels."""
        return [alert for alert in self.alerts[path] if labels.items() <= alert["labels"].items()]


class _Taker(BaseHTTPRequestHandler):
    server: Hooks

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.alerts[self.path] += body["alerts"]
        self.server.heard_at[self.path].append(time.monotonic())
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None: ...
