"""What the benchmark of a step in load compares: two arms that differ in nothing but what scales them."""

from __future__ import annotations

import json
import statistics
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import pytest

from fleet import names, scraping
from fleet.schema_autoscaling import SYNC_S
from local import bench, bench_steps, commands, paced
from local.errors import LocalError
from local.state import State

if TYPE_CHECKING:
    from pathlib import Path

    from fleet.pods import Manifest

MODELS = [paced.Paced("one", {bench_steps.SKU: 0.2}, {}), paced.Paced("two", {bench_steps.SKU: 0.2}, {})]


def arms() -> tuple[list[Manifest], list[Manifest]]:
    ours = paced.served(paced.fleet(bench_steps.OURS, MODELS), MODELS)
    return ours, list(bench_steps.guides(ours))


def of(kind: str, manifests: list[Manifest]) -> list[Manifest]:
    return [manifest for manifest in manifests if manifest["kind"] == kind]


def test_steps_are_spread_evenly_over_the_scrape_period_and_over_the_looks() -> None:
    scrapes = [bench_steps.scrape_phase_s(number) for number in range(bench_steps.STEPS)]
    # 30 s by 20 steps: each 1.5 s after the one before.
    assert scrapes == pytest.approx([1.5 * number for number in range(20)])
    looks = sorted(bench_steps.look_phase_s(number) for number in range(bench_steps.STEPS))
    gaps = [after - before for before, after in zip(looks, [*looks[1:], looks[0] + SYNC_S], strict=True)]
    # 20 points of 15 s are 0.75 s apart; no hole is twice as wide.
    assert max(gaps) < 1.5
    assert statistics.fmean(looks) == pytest.approx(SYNC_S / 2, abs=0.75)


def test_the_arms_serve_the_same() -> None:
    ours, theirs = arms()
    for mine, other in zip(of("Deployment", ours), of("Deployment", theirs), strict=True):
        assert other["spec"]["template"]["spec"] == without_spread(mine)
        assert other["spec"]["strategy"] == mine["spec"]["strategy"]
    assert [one["data"] for one in of("ConfigMap", theirs)] == [one["data"] for one in of("ConfigMap", ours)]


def without_spread(deployment: Manifest) -> Any:  # noqa: ANN401 - part of a manifest
    spec = dict(deployment["spec"]["template"]["spec"])
    del spec["topologySpreadConstraints"]
    return spec


def test_each_arm_has_its_own_pods_and_nobody_elses() -> None:
    ours, theirs = arms()
    monitors = (scraping.pod_monitor(paced.fleet(bench_steps.OURS, MODELS)), bench_steps.guide_monitor())
    for monitor, manifests in zip(monitors, (ours, theirs), strict=True):
        # A monitor without a selector of namespaces takes pods of its own.
        assert "namespaceSelector" not in monitor["spec"]
        selected = monitor["spec"]["selector"]["matchLabels"].items()
        for deployment in of("Deployment", manifests):
            labels = deployment["spec"]["template"]["metadata"]["labels"]
            assert deployment["metadata"]["namespace"] == monitor["metadata"]["namespace"]
            assert selected <= labels.items()
            assert deployment["spec"]["selector"]["matchLabels"].items() <= labels.items()
    for service, deployment in zip(of("Service", theirs), of("Deployment", theirs), strict=True):
        labels = deployment["spec"]["template"]["metadata"]["labels"]
        assert service["spec"]["selector"].items() <= labels.items()
    # Both are under one Prometheus, and a rule without a selector would read all pods.
    (group,) = bench_steps.guide_rules()["spec"]["groups"]
    assert all(rule["expr"].count(f'namespace="{bench_steps.GUIDES}"') == 2 for rule in group["rules"])


def test_the_guides_arm_is_the_guides() -> None:
    """Its PrometheusRule, its monitor, which leaves the interval to the operator's 30 s, and its autoscaler."""
    (group,) = bench_steps.guide_rules()["spec"]["groups"]
    here = '{namespace="scale-guide"}'
    assert group["interval"] == "6s"
    assert {rule["record"]: rule["expr"].replace(here, "") for rule in group["rules"]} == {
        "triton:compute_duration:average": "rate(nv_inference_compute_infer_duration_us[1m])"
        "/clamp_min(rate(nv_inference_request_success[1m]),1)",
        "triton:queue_duration:average": "rate(nv_inference_queue_duration_us[1m])"
        "/clamp_min(rate(nv_inference_request_success[1m]),1)",
        "triton:request_duration:average": "rate(nv_inference_request_duration_us[1m])"
        "/clamp_min(rate(nv_inference_request_success[1m]),1)",
        "triton:queue_compute:ratio": "rate(nv_inference_queue_duration_us[1m])"
        "/clamp_min(rate(nv_inference_compute_infer_duration_us[1m]),1)",
    }
    (endpoint,) = bench_steps.guide_monitor()["spec"]["podMetricsEndpoints"]
    assert endpoint == {"port": "metrics", "path": "/metrics", "interval": "30s"}
    spec = bench_steps.guide_autoscaler("one")["spec"]
    assert "behavior" not in spec
    assert (spec["minReplicas"], spec["maxReplicas"]) == (1, 4)


def test_ours_is_what_the_product_renders_by_default() -> None:
    """Not what stack `local` sets for those who watch it."""
    for manifest in paced.autoscalers(paced.fleet(bench_steps.OURS, MODELS)):
        assert manifest["spec"]["behavior"]["scaleUp"]["policies"] == [
            {"type": "Pods", "value": 1, "periodSeconds": 60}
        ]
        assert manifest["spec"]["behavior"]["scaleDown"]["stabilizationWindowSeconds"] == 300


def test_a_replica_finds_its_files_where_its_command_looks_for_them() -> None:
    ours, _ = arms()
    for config_map, deployment in zip(of("ConfigMap", ours), of("Deployment", ours), strict=True):
        spec = deployment["spec"]["template"]["spec"]
        (container,) = spec["containers"]
        (store,) = [volume for volume in spec["volumes"] if volume["name"] == "store"]
        paths = {f"{names.STORE_MOUNT}/{item['path']}" for item in store["configMap"]["items"]}
        (repository,) = [one.partition("=")[2] for one in container["command"] if "repository" in one]
        model = deployment["metadata"]["labels"][names.LABEL_MODEL]
        assert paths == {f"{repository}/{model}/config.pbtxt", f"{repository}/{model}/1/model.py"}
        assert {item["key"] for item in store["configMap"]["items"]} == config_map["data"].keys()
        assert names.GPU_RESOURCE not in container["resources"]["limits"]


def test_the_medians_of_an_arm() -> None:
    parts = bench_steps.Parts(3, 2, 1)
    found = [
        bench_steps.Scaled(decided, parts, decided + 1, last) for decided, last in ((6, None), (9, None), (7, 400))
    ]
    assert bench_steps.summed(found) == {
        "decided": 7,
        "until scraped": 3,
        "until recorded": 2,
        "until looked at": 1,
        "pod ready": 8,
        "to minimum": 400,
    }


class Slow(BaseHTTPRequestHandler):
    """A model that works until it is told to answer."""

    asked: int
    answer: threading.Event

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        type(self).asked += 1
        self.answer.wait(20)
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None: ...


def test_users_that_come_back_before_they_had_left_are_not_there_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    handler = type("Slower", (Slow,), {"asked": 0, "answer": threading.Event()})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        monkeypatch.setattr(names, "PORT_HTTP", server.server_port)
        with paced.Users("127.0.0.1", "m") as users:
            for count in (3, 1, 3):
                users.be(count)
            time.sleep(0.5)
            assert handler.asked == 3
            handler.answer.set()
        assert users.failures == []
        server.shutdown()


def test_figures_are_kept_where_the_cluster_does_not_stop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stuck(_: bench.Bench) -> None:
        raise LocalError("make down failed", fix="see why")

    monkeypatch.setattr(commands, "REPORTS", tmp_path / "reports")
    monkeypatch.setattr(bench.Bench, "down", stuck)
    monkeypatch.setattr(bench, "BENCHMARKS", {"one": ("a figure", "s", 5.0, lambda _: 3.0)})
    with pytest.raises(LocalError, match="make down failed"):
        bench.run(State(tmp_path / "state"), "one", lambda _: None)
    (row,) = json.loads((tmp_path / "reports" / "bench.json").read_text())
    assert (row["name"], row["value"], row["holds"]) == ("one", 3.0, True)
