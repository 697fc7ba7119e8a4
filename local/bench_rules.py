"""How long the rules of a large fleet take: a real Prometheus evaluates them over made-up scrapes.

The fleet is `REPLICAS` pods of ensembles, four Triton models each. This process answers their scrapes, and those of
kube-state-metrics and of the GPU exporter; what the error windows of three days read is laid down beforehand.
"""

from __future__ import annotations

import contextlib
import json
import statistics
import subprocess
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import yaml

from fleet import alerts, names, recording, scraping, settings, workload
from local import stack, toolchain
from local.errors import LocalError
from local.state import PROJECT

MODELS = tuple(f"model-{letter}" for letter in "abcd")
SKUS = ("a100-40gb", "h100-80gb")
REPLICAS = 200
PARTS = ("", "preprocessing", "engine", "postprocessing")
"""The models of an ensemble in one pod; the first is the one that users call."""
HISTORY_S = 3 * 86400
WARM_S = 150
"""Two evaluations of the slowest group, and a full window of rates."""
SAMPLES = 12
SAMPLE_S = 10
PORT = 9347
SCRAPES_PORT = 9348

Progress = Callable[[str], None]


def measure(progress: Progress) -> float:
    """The slowest group: how much of its interval one evaluation takes, percent; the median of two minutes."""
    tools = toolchain.ensure(["prometheus", "promtool"], progress)
    fleet = _settings()
    with tempfile.TemporaryDirectory(prefix="bench-rules-") as folder:
        work = Path(folder)
        _write(work, fleet)
        progress("bench: rules: laying down three days of recorded rates")
        subprocess.run(
            [tools["promtool"], "tsdb", "create-blocks-from", "openmetrics", "history.txt", "data"],
            cwd=work,
            check=True,
            stdout=subprocess.DEVNULL,
        )
        with _scrapes(fleet), _prometheus(tools["prometheus"], work):
            progress(
                f"bench: rules: {REPLICAS} replicas with {len(PARTS)} models each, {WARM_S} s until windows are full"
            )
            time.sleep(WARM_S)
            return _slowest(progress)


def _settings() -> settings.Settings:
    """Stack `local` with four models on both SKUs. Nothing of it is installed, so it need not fit anywhere."""
    key = f"{names.CONFIG_NAMESPACE}:"
    config = yaml.safe_load(stack.tracked_settings("local").read_text())["config"]
    plain = {name.removeprefix(key): value for name, value in config.items()}
    model = plain["models"][0]
    return settings.load({**plain, "models": [{**model, "name": name} for name in MODELS]}, PROJECT)


def pods(fleet: settings.Settings) -> Iterator[dict[str, str]]:
    """The target labels of each pod."""
    for number in range(REPLICAS):
        model, sku = MODELS[number % len(MODELS)], SKUS[number // len(MODELS) % len(SKUS)]
        yield {
            scraping.LABEL_ENVIRONMENT: fleet.environment,
            scraping.LABEL_NAMESPACE: fleet.serving.namespace,
            scraping.LABEL_POD: f"{names.deployment_name(model, sku)}-78cbc5696f-{number:05d}",
            scraping.LABEL_SKU: sku,
            scraping.LABEL_DEPLOYED_MODEL: model,
            "container": workload.CONTAINER,
            "endpoint": names.PORT_METRICS_NAME,
        }


def triton(model: str, seconds: float) -> str:
    """What a busy pod says after so many seconds: 20 requests a second, 30 ms in the queue and 60 ms in compute."""
    lines = []
    for part in PARTS:
        labels = f'model="{part or model}",version="1"'
        requests = round(20 * seconds)
        figures: Mapping[str, float] = {
            "nv_inference_request_success": requests,
            "nv_inference_count": requests,
            "nv_inference_exec_count": requests / 4,
            "nv_inference_request_duration_us": requests * 95_000,
            "nv_inference_queue_duration_us": requests * 30_000,
            "nv_inference_compute_infer_duration_us": requests * 60_000,
            "nv_inference_pending_request_count": 2,
        }
        lines += [f"{name}{{{labels}}} {value}" for name, value in figures.items()]
        lines += [
            f'nv_inference_request_failure{{{labels},reason="{reason}"}} {requests / 1000}'
            for reason in ("REJECTED", "CANCELED", "BACKEND", "OTHER")
        ]
    return "\n".join(lines) + "\n"


def state(fleet: settings.Settings) -> str:
    """What kube-state-metrics and the GPU exporter say of the fleet."""
    namespace = f'namespace="{fleet.serving.namespace}"'
    lines = [f'kube_configmap_created{{{namespace},configmap="{names.VERIFICATION_STAMP}"}} {time.time():.0f}']
    for model in MODELS:
        for sku in SKUS:
            deployment = f'{namespace},deployment="{names.deployment_name(model, sku)}"'
            lines += [
                f"kube_deployment_created{{{deployment}}} 0",
                f"kube_deployment_spec_replicas{{{deployment}}} 25",
                f"kube_deployment_status_replicas_available{{{deployment}}} 25",
            ]
    for number, pod in enumerate(pods(fleet)):
        container = f'{namespace},pod="{pod[scraping.LABEL_POD]}",container="{workload.CONTAINER}",uid="{number}"'
        gpu = f'gpu="{number % 8}",UUID="GPU-{number}",Hostname="node-{number // 8}",modelName="H100"'
        holder = f'exported_namespace="{fleet.serving.namespace}",exported_pod="{pod[scraping.LABEL_POD]}"'
        lines += [
            f"kube_pod_container_status_ready{{{container}}} 1",
            f"kube_pod_container_state_started{{{container}}} 0",
            *(
                f"DCGM_FI_DEV_{name}{{{gpu},{holder}}} {value}"
                for name, value in (("GPU_UTIL", 80), ("FB_USED", 60000), ("FB_FREE", 20000), ("XID_ERRORS", 0))
            ),
        ]
    return "\n".join(lines) + "\n"


def _history(fleet: settings.Settings, now: int) -> Iterator[str]:
    """Three days of the recorded rates that the error windows add up, in OpenMetrics, until a minute ago."""
    step = fleet.monitoring.evaluation_interval_s
    for series, value in ((recording.SERVED, 500), (recording.FAILED, 0.1)):
        yield f"# TYPE {series} gauge\n"
        for model in MODELS:
            for sku in SKUS:
                labels = (
                    f'environment="{fleet.environment}",namespace="{fleet.serving.namespace}",'
                    f'deployed_model="{model}",sku="{sku}"'
                )
                for second in range(now - HISTORY_S, now - 60, step):
                    yield f"{series}{{{labels}}} {value} {second}\n"
    yield "# EOF\n"


def _write(work: Path, fleet: settings.Settings) -> None:
    server = f"127.0.0.1:{SCRAPES_PORT}"
    interval = f"{fleet.monitoring.scrape_interval_s}s"
    config = {
        "global": {"scrape_interval": interval, "scrape_timeout": interval, "evaluation_interval": interval},
        "rule_files": ["rules-*.yml"],
        "scrape_configs": [
            {
                "job_name": scraping.job(fleet),
                "static_configs": [
                    {
                        "targets": [server],
                        "labels": {**pod, "__metrics_path__": f"/triton/{pod['deployed_model']}/{pod['pod']}"},
                    }
                    for pod in pods(fleet)
                ],
            },
            {
                "job_name": "state",
                "honor_labels": True,
                "static_configs": [{"targets": [server], "labels": {"__metrics_path__": "/state"}}],
            },
        ],
    }
    (work / "prometheus.yml").write_text(yaml.safe_dump(config))
    for name, manifest in (("recording", recording.rules(fleet)), ("alerts", alerts.rules(fleet))):
        (work / f"rules-{name}.yml").write_text(yaml.safe_dump(manifest["spec"]))
    with (work / "history.txt").open("w") as history:
        history.writelines(_history(fleet, int(time.time())))


@contextlib.contextmanager
def _scrapes(fleet: settings.Settings) -> Iterator[None]:
    began = time.monotonic()
    constant = state(fleet).encode()

    class Scrapes(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            parts = self.path.split("/")
            body = constant if parts[1] == "state" else triton(parts[2], time.monotonic() - began).encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002, ANN401 - the base's names
            pass

    server = ThreadingHTTPServer(("127.0.0.1", SCRAPES_PORT), Scrapes)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextlib.contextmanager
def _prometheus(program: Path, work: Path) -> Iterator[None]:
    with (work / "prometheus.log").open("w") as log:
        process = subprocess.Popen(
            [
                program,
                "--config.file=prometheus.yml",
                "--storage.tsdb.path=data",
                "--storage.tsdb.retention.time=10d",
                f"--web.listen-address=127.0.0.1:{PORT}",
            ],
            cwd=work,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        try:
            yield
        finally:
            process.terminate()
            process.wait(timeout=60)


def _slowest(progress: Progress) -> float:
    parts: dict[str, list[float]] = {}
    for _ in range(SAMPLES):
        for group in _groups():
            parts.setdefault(group["name"], []).append(100 * group["evaluationTime"] / group["interval"])
        time.sleep(SAMPLE_S)
    medians = {name: statistics.median(found) for name, found in parts.items()}
    for name, median in sorted(medians.items(), key=lambda one: -one[1]):
        progress(f"bench: rules: {name}: {median:.2f} % of its interval")
    return max(medians.values())


def _groups() -> list[dict[str, Any]]:
    with urllib.request.urlopen(f"http://127.0.0.1:{PORT}/api/v1/rules", timeout=30) as answer:
        groups: list[dict[str, Any]] = json.load(answer)["data"]["groups"]
    broken = [rule for group in groups for rule in group["rules"] if rule["health"] != "ok"]
    silent = [rule["name"] for group in groups for rule in group["rules"] if not rule.get("lastEvaluation")]
    if broken or silent:
        raise LocalError(f"rules fail: {broken or silent}", fix="tests/rules")
    return groups
