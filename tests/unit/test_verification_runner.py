"""The runner, on a cluster that does as a test says."""

# ruff: noqa: ARG002 - the cluster made up here takes what the real one does

from __future__ import annotations

import dataclasses
import json
import threading
from typing import TYPE_CHECKING, Any

import pytest

from components.verification import Runner, VerificationFailed
from fleet import verification
from fleet.verification import Node, Pod, Result
from fleet.verification_observe import DaemonPod, DaemonSetPlan, MonitoringPlan, questions
from services.verification import runner
from services.verification.cluster import ClusterError, JobPod
from tests.unit.graph import local_settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from fleet.verification import Order

A100 = {
    "nvidia.com/gpu": "present",
    "nvidia.com/gpu.present": "true",
    "nvidia.com/gpu.product": "NVIDIA-A100-SXM4-40GB",
}
H100 = {**A100, "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}
SUCCEEDED = JobPod("pod", "Succeeded", "")


def replica(sku: str, node: str, address: str) -> Pod:
    return Pod(f"minilm-{sku}-0", "minilm", sku, node, address, ready=True, gpus=1, waiting="")


class Cluster:
    """Runs each Job by a function from its arguments to the lines of its log."""

    def __init__(self, run: Callable[[list[str]], list[str]], ends: JobPod = SUCCEEDED) -> None:
        self.run = run
        self.ends = ends
        self.started: dict[str, list[str]] = {}
        self.nodes_of: dict[str, str | None] = {}
        self.deleted: list[str] = []
        self.lock = threading.Lock()
        self.breaks_streams = False
        self.polls_running = 0
        """How often a Job's pod is seen running before it has ended."""
        self.polls: dict[str, int] = {}
        self.answers: Callable[[str], object] = unasked
        """What is answered on a path."""
        self.daemons: dict[str, list[DaemonPod]] = {}
        """By DaemonSet."""
        self.made_anew: list[dict[str, Any]] = []

    def nodes(self) -> list[Node]:
        return [
            Node("gpu-a", A100, ready=True, gpus=8),
            Node("gpu-b", H100, ready=True, gpus=8),
            Node("system", {}, ready=True, gpus=0),
        ]

    def triton_pods(self, namespace: str) -> list[Pod]:
        assert namespace == "triton-local"
        return [replica("a100-40gb", "gpu-a", "198.18.0.1"), replica("h100-80gb", "gpu-b", "198.18.0.2")]

    def create_job(self, manifest: dict[str, Any]) -> None:
        spec = manifest["spec"]["template"]["spec"]
        with self.lock:
            name = manifest["metadata"]["name"]
            self.started[name] = spec["containers"][0]["command"][3:]
            self.nodes_of[name.partition("-")[2].partition("-")[2]] = spec.get("nodeName")

    def job_pod(self, namespace: str, job: str) -> JobPod:
        with self.lock:
            self.polls[job] = self.polls.get(job, 0) + 1
            ended = self.polls[job] > self.polls_running
        return dataclasses.replace(self.ends, name=job) if ended else JobPod(job, "Running", "")

    def follow(self, namespace: str, pod: str, timeout_s: float) -> Iterator[str]:
        if self.breaks_streams:
            raise ClusterError("following the log of pod: connection reset")
        yield from ()

    def log(self, namespace: str, pod: str) -> list[str]:
        with self.lock:
            lines = self.run(self.started[pod])
            return lines if self.polls[pod] > self.polls_running else lines[:-1]

    def delete_job(self, namespace: str, job: str) -> None:
        with self.lock:
            self.deleted.append(job)

    def daemon_pods(self, namespace: str, name: str) -> list[DaemonPod] | None:
        return self.daemons.get(f"{namespace}/{name}")

    def get(self, path: str) -> object:
        return self.answers(path)

    def renew(self, manifest: dict[str, Any]) -> None:
        self.made_anew.append(manifest)


def unasked(path: str) -> object:
    raise AssertionError(path)


def record(name: str, *, ok: bool = True, reason: str = "good") -> str:
    return verification.RECORD_PREFIX + json.dumps({"name": name, "ok": ok, "seconds": 0.1, "reason": reason})


def all_well(arguments: list[str]) -> list[str]:
    """The log of a Job whose checks all hold."""
    if arguments[0] == "client":
        text = "".join(part.removeprefix("--checks=") for part in arguments if part.startswith("--checks="))
        return ["for people", *(record(check["name"]) for check in json.loads(text))]
    return [record(part.removeprefix("--name=")) for part in arguments if part.startswith("--name=")]


@pytest.fixture
def order(project: Path) -> Order:
    settings = local_settings(project, verification={"deadline_s": 30, "check_deadline_s": 5})
    return unwatched(verification.order(verification.config_map(settings, "program", {})))


def unwatched(order: Order) -> Order:
    """Without the GPU stack and monitoring, which have tests of their own."""
    assert order.plan.gpus is not None
    gpus = order.plan.gpus.model_copy(update={"daemon_sets": ()})
    return dataclasses.replace(order, plan=order.plan.model_copy(update={"gpus": gpus, "monitoring": None}))


NAMES = [
    "gpus/nodes",
    "placement/minilm/a100-40gb",
    "placement/minilm/h100-80gb",
    "store/write",
    "store/read/gpu-a",
    "store/read/gpu-b",
    "service/minilm/dns",
    "replicas/minilm/dns",
    "service/minilm/live/http",
    "service/minilm/ready/http",
    "service/minilm/index/http",
    "service/minilm/live/grpc",
    "service/minilm/ready/grpc",
    "service/minilm/index/grpc",
    "replica/minilm-a100-40gb-0/version",
    "replica/minilm-a100-40gb-0/answer",
    "replica/minilm-h100-80gb-0/version",
    "replica/minilm-h100-80gb-0/answer",
    "service/minilm/answer/http",
    "service/minilm/answer/grpc",
    "service/minilm/spread",
]


def test_every_check_is_made_told_and_cleaned_up_after(order: Order) -> None:
    cluster, told = Cluster(all_well), list[str]()
    results = runner.verify(order, lambda: cluster, told.append)
    assert [result.name for result in results] == NAMES
    assert verification.failed(results) == []
    assert sorted(line.split()[1] for line in told) == sorted(NAMES)
    assert cluster.nodes_of == {"client-1": None, "write": None, "read-0": "gpu-a", "read-1": "gpu-b"}
    assert sorted(cluster.deleted) == sorted(cluster.started)
    assert runner.report(results)[3] == {"name": "store/write", "ok": True, "seconds": 0.1, "reason": "good"}


@pytest.mark.parametrize("breaks", [False, True], ids=["ends", "breaks"])
def test_a_stream_that_ends_before_its_pod_loses_no_result(
    order: Order, monkeypatch: pytest.MonkeyPatch, *, breaks: bool
) -> None:
    """On a busy node the log's stream ended while the last check still ran, and that check counted as failed."""
    monkeypatch.setattr(runner, "POLL_S", 0.01)
    cluster = Cluster(all_well)
    cluster.breaks_streams = breaks
    cluster.polls_running = 7
    assert verification.failed(runner.verify(order, lambda: cluster, lambda _: None)) == []
    assert set(cluster.polls.values()) == {8}


def test_a_line_that_is_no_result_costs_only_its_own_check(order: Order) -> None:
    def garbled(arguments: list[str]) -> list[str]:
        return [line[:-9] if "service/minilm/live/grpc" in line else line for line in all_well(arguments)]

    told: list[str] = []
    failed = verification.failed(runner.verify(order, lambda: Cluster(garbled), told.append))
    assert [result.name for result in failed] == ["service/minilm/live/grpc"]
    assert any(line.startswith("a line of the log is no result") for line in told)


def test_no_failed_check_stops_another(order: Order) -> None:
    def one_wrong(arguments: list[str]) -> list[str]:
        return [
            record("service/minilm/answer/http", ok=False, reason="differs") if "answer/http" in line else line
            for line in all_well(arguments)
        ]

    results = runner.verify(order, lambda: Cluster(one_wrong), lambda _: None)
    assert [result.name for result in results] == NAMES
    assert verification.failed(results) == [
        Result(name="service/minilm/answer/http", ok=False, seconds=0.1, reason="differs")
    ]


def test_a_store_that_cannot_be_written_is_not_read(order: Order) -> None:
    def read_only(arguments: list[str]) -> list[str]:
        return [record("store/write", ok=False, reason="denied")] if arguments[0] == "write" else all_well(arguments)

    failed = verification.failed(runner.verify(order, lambda: Cluster(read_only), lambda _: None))
    assert {result.name: result.reason for result in failed} == {
        "store/write": "denied",
        "store/read/gpu-a": "did not run: store/write failed",
        "store/read/gpu-b": "did not run: store/write failed",
    }


def test_a_job_that_dies_half_way_fails_what_it_did_not_report_with_its_own_reason(order: Order) -> None:
    def dies(arguments: list[str]) -> list[str]:
        return all_well(arguments)[:4] if arguments[0] == "client" else all_well(arguments)

    cluster = Cluster(dies, JobPod("pod", "Failed", "container verification exited with 137: OOMKilled"))
    results = runner.verify(order, lambda: cluster, lambda _: None)
    assert [result.name for result in results if not result.ok] == NAMES[9:]
    assert {result.reason for result in verification.failed(results)} == {
        "did not run: its pod ended early: container verification exited with 137: OOMKilled"
    }
    assert sorted(cluster.deleted) == sorted(cluster.started)


def test_a_job_whose_pod_never_starts_says_why(project: Path) -> None:
    settings = local_settings(project, verification={"deadline_s": 30, "check_deadline_s": 5})
    plan = unwatched(verification.Order(verification.plan(settings), "x")).plan.model_copy(update={"deadline_s": 1})
    cluster = Cluster(all_well, JobPod("pod", "Pending", "ErrImageNeverPull: tools:1 is not present"))
    results = runner.verify(verification.Order(plan, "verification-x"), lambda: cluster, lambda _: None)
    assert [result.name for result in results] == NAMES
    reasons = {result.name: result.reason for result in results}
    assert reasons["service/minilm/dns"].endswith("did not start within 1 s: ErrImageNeverPull: tools:1 is not present")
    assert reasons["store/read/gpu-a"] == "did not run: store/write failed"
    assert sorted(cluster.deleted) == sorted(cluster.started)


def test_a_cluster_that_does_not_answer_fails_what_was_to_be_asked_of_it(order: Order) -> None:
    def silent() -> Cluster:
        raise ClusterError("listing nodes: connection refused")

    assert runner.verify(order, silent, lambda _: None) == [
        Result(
            name=name,
            ok=False,
            seconds=0.0,
            reason="did not run: listing nodes: connection refused",
        )
        for name in ("gpus/nodes", "placement/minilm/a100-40gb", "placement/minilm/h100-80gb")
    ]


MONITORING = MonitoringPlan(
    serving="triton-local",
    namespace="monitoring",
    prometheus="prometheus:9090",
    alertmanager=None,
    alerting={},
    rules=(),
    series=("triton:queue_compute:ratio",),
    pod_metrics=(),
    autoscalers=(),
    node_metrics=True,
    fresh_s=30,
    settle_s=1,
)
OBSERVED = [one.name for one in questions(MONITORING)]


def monitored(order: Order, **changes: object) -> Order:
    plan = MONITORING.model_copy(update=changes)
    return verification.Order(order.plan.model_copy(update={"monitoring": plan}), order.config_map)


class Answers:
    """Answers that are good from the time that a path was asked so often."""

    def __init__(self, good_from: int) -> None:
        self.good_from = good_from
        self.asked: dict[str, int] = {}

    def __call__(self, path: str) -> object:
        path = path.partition("?")[0].rpartition("/")[2]
        self.asked[path] = self.asked.get(path, 0) + 1
        up = "up" if self.asked[path] >= self.good_from else "down"
        pods = [f"minilm-{sku}-0" for sku in ("a100-40gb", "h100-80gb")]
        if path == "nodes":
            return {"items": [{"metadata": {"name": "gpu-a"}}]}
        data = {
            "runtimeinfo": {"reloadConfigSuccess": True},
            "targets": {
                "activeTargets": [
                    {"labels": {"namespace": "triton-local", "pod": pod}, "health": up, "lastError": "refused"}
                    for pod in pods
                ]
            },
            "query": {"result": [{"metric": {"pod": pod}, "values": [[0, "0"]]} for pod in pods]},
        }[path]
        return {"data": data}


def test_monitoring_is_asked_until_it_knows_and_what_held_is_asked_no_more(
    order: Order, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "OBSERVED_POLL_S", 0.01)
    cluster, told = Cluster(all_well), list[str]()
    cluster.answers = answers = Answers(good_from=4)
    results = runner.verify(monitored(order), lambda: cluster, told.append)
    assert [result.name for result in results] == [*NAMES, *OBSERVED]
    assert verification.failed(results) == []
    assert answers.asked == {"runtimeinfo": 1, "targets": 4, "query": 1, "nodes": 1}
    assert sorted(line.split()[1] for line in told) == sorted([*NAMES, *OBSERVED])


def test_monitoring_that_never_knows_fails_when_its_time_is_over(order: Order, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "OBSERVED_POLL_S", 0.01)
    cluster = Cluster(all_well)
    cluster.answers = Answers(good_from=10**9)
    plan = order.plan.model_copy(update={"check_deadline_s": 1, "monitoring": MONITORING})
    failed = verification.failed(runner.verify(verification.Order(plan, "x"), lambda: cluster, lambda _: None))
    assert [(one.name, one.reason) for one in failed] == [
        ("monitoring/targets", "minilm-a100-40gb-0 is down: refused; minilm-h100-80gb-0 is down: refused")
    ]
    assert failed[0].seconds == pytest.approx(1.0, abs=0.5)


def test_only_after_an_update_monitoring_is_given_time_to_know_of_it(
    order: Order, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "OBSERVED_POLL_S", 0.01)
    plan = order.plan.model_copy(
        update={"check_deadline_s": 0, "monitoring": MONITORING.model_copy(update={"settle_s": 20})}
    )
    outcomes = {}
    for settling in (True, False):
        cluster = Cluster(all_well)
        cluster.answers = Answers(good_from=20)
        results = runner.verify(verification.Order(plan, "x"), lambda: cluster, lambda _: None, settling=settling)  # noqa: B023 - called at once
        outcomes[settling] = [one.name for one in verification.failed(results)]
    assert outcomes == {True: [], False: ["monitoring/targets"]}


def test_a_service_without_a_pod_fails_with_what_the_api_server_said(
    order: Order, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_endpoints(path: str) -> object:
        raise ClusterError(f"asking {path.partition('?')[0]}: the API server answered 503: no endpoints available")

    monkeypatch.setattr(runner, "OBSERVED_POLL_S", 0.01)
    cluster = Cluster(all_well)
    cluster.answers = no_endpoints
    plan = order.plan.model_copy(update={"check_deadline_s": 1, "monitoring": MONITORING})
    results = runner.verify(verification.Order(plan, "x"), lambda: cluster, lambda _: None)
    assert [one.name for one in verification.failed(results)] == OBSERVED
    assert verification.failed(results)[0].reason == (
        "did not run: asking /api/v1/namespaces/monitoring/services/prometheus:9090/proxy/api/v1/status/runtimeinfo: "
        "the API server answered 503: no endpoints available"
    )


def test_a_replica_that_goes_meanwhile_is_asked_about_no_more(order: Order, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "OBSERVED_POLL_S", 0.01)

    class Shrinking(Cluster):
        listed = 0

        def triton_pods(self, namespace: str) -> list[Pod]:
            self.listed += 1
            new = replica("h100-80gb", "gpu-b", "198.18.0.9")
            left = super().triton_pods(namespace)
            return left if self.listed == 1 else [*left[:1], dataclasses.replace(new, name="new")]

    cluster = Shrinking(all_well)
    cluster.answers = Answers(good_from=1)
    results = runner.verify(monitored(order), lambda: cluster, lambda _: None)
    by_name = {result.name: result for result in results}
    assert by_name["monitoring/targets"] == Result(
        name="monitoring/targets",
        ok=True,
        seconds=by_name["monitoring/targets"].seconds,
        reason="1 replicas are scraped",
    )


def test_replicas_that_autoscaling_changed_are_asked_again(order: Order) -> None:
    class Growing(Cluster):
        grown = False

        def triton_pods(self, namespace: str) -> list[Pod]:
            found = super().triton_pods(namespace)
            new = replica("h100-80gb", "gpu-b", "198.18.0.9")
            return [*found, dataclasses.replace(new, name="new")] if self.grown else found

    def grows(arguments: list[str]) -> list[str]:
        lines = all_well(arguments)
        if arguments[0] == "client" and not cluster.grown:
            cluster.grown = True
            return [line.replace('"ok": true', '"ok": false') if "replicas/" in line else line for line in lines]
        return lines

    told: list[str] = []
    cluster = Growing(grows)
    results = runner.verify(order, lambda: cluster, told.append)
    assert verification.failed(results) == []
    assert {result.name for result in results} == {*NAMES, "replica/new/version", "replica/new/answer"}
    assert "the replicas are others than when they were asked: asking again" in told
    assert cluster.nodes_of.keys() >= {"client-1", "client-2"}


def test_replicas_that_stay_are_asked_once(order: Order) -> None:
    def wrong(arguments: list[str]) -> list[str]:
        return [
            line.replace('"ok": true', '"ok": false') if "/answer" in line else line for line in all_well(arguments)
        ]

    cluster = Cluster(wrong)
    assert len(verification.failed(runner.verify(order, lambda: cluster, lambda _: None))) == 4
    assert sorted(cluster.nodes_of) == ["client-1", "read-0", "read-1", "write"]


def test_daemon_sets_of_the_gpu_stack_are_looked_at_on_each_gpu_node(order: Order) -> None:
    assert order.plan.gpus is not None
    daemon_sets = tuple(DaemonSetPlan(namespace="kube-system", name=name) for name in ("plugin", "nfd"))
    gpus = order.plan.gpus.model_copy(update={"daemon_sets": daemon_sets})
    plan = order.plan.model_copy(update={"gpus": gpus, "check_deadline_s": 1})
    cluster = Cluster(all_well)
    cluster.daemons = {
        "kube-system/plugin": [
            DaemonPod("p", "gpu-a", ready=True, waiting=""),
            DaemonPod("q", "gpu-b", ready=True, waiting=""),
        ],
        "kube-system/nfd": [DaemonPod("r", "gpu-a", ready=False, waiting="ErrImagePull")],
    }
    results = runner.verify(verification.Order(plan, "x"), lambda: cluster, lambda _: None)
    assert [(one.name, one.ok, one.reason) for one in results[:3]] == [
        ("gpus/kube-system/plugin", True, "ready on gpu-a, gpu-b"),
        (
            "gpus/kube-system/nfd",
            False,
            "r on gpu-a is not ready: ErrImagePull; gpu-b has no pod of it: its taints or labels do not fit",
        ),
        ("gpus/nodes", True, "gpu-a offers 8, gpu-b offers 8"),
    ]
    assert verification.first_look(plan, results) == "kubectl -n kube-system describe daemonset nfd"


def test_only_a_verification_that_held_is_recorded(order: Order) -> None:
    cluster, said = Cluster(all_well), list[str]()
    good, bad = (Result(name="store/write", ok=ok, seconds=0.1, reason="") for ok in (True, False))
    runner.record(order.plan, [good, bad], lambda: cluster, said.append)
    assert cluster.made_anew == []
    runner.record(order.plan, [good], lambda: cluster, said.append)
    assert cluster.made_anew == [verification.stamp(order.plan, [good])]
    assert said == []


def test_a_time_that_cannot_be_recorded_is_told_and_fails_nothing(order: Order) -> None:
    def silent() -> Cluster:
        raise ClusterError("making ConfigMap triton-fleet-verification anew: forbidden")

    said: list[str] = []
    runner.record(order.plan, [Result(name="store/write", ok=True, seconds=0.1, reason="")], silent, said.append)
    assert said == [
        "the time of this verification was not recorded: making ConfigMap triton-fleet-verification anew: forbidden"
    ]


def secret(value: object) -> dict[str, object]:
    return {runner.SECRET_KEY: "1b47061264138c4ac30d75fd1eb44270", "plaintext": json.dumps(value)}


def state(order_manifest: dict[str, Any]) -> dict[str, Any]:
    urn = "urn:pulumi:local::triton-fleet::parent$kubernetes:core/v1:ConfigMap"
    old = {**order_manifest, "metadata": {"name": "verification-old"}}
    return {
        "deployment": {
            "resources": [
                {"type": "pulumi:pulumi:Stack", "urn": "urn:pulumi:local::triton-fleet::pulumi:pulumi:Stack::x"},
                {"type": runner.PROVIDER_TYPE, "urn": "a::cluster", "inputs": {"kubeconfig": secret("apiVersion: v1")}},
                {"type": runner.CONFIG_MAP_TYPE, "urn": f"{urn}::model-store", "inputs": {}},
                {"type": runner.CONFIG_MAP_TYPE, "urn": f"{urn}::verification", "inputs": old, "delete": True},
                {"type": runner.CONFIG_MAP_TYPE, "urn": f"{urn}::verification", "inputs": order_manifest},
            ],
        }
    }


def test_order_and_kubeconfig_come_from_the_state(project: Path) -> None:
    manifest = verification.config_map(local_settings(project), "program", {})
    assert runner.from_state(state(manifest)) == (verification.order(manifest), "apiVersion: v1")


@pytest.mark.parametrize(
    ("exported", "told"),
    [
        ({"deployment": {}}, "run `pulumi up` first"),
        ({"deployment": None}, "run `pulumi up` first"),
    ],
)
def test_a_state_without_a_fleet_says_what_to_do(
    exported: dict[str, Any], told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "state.json"
    file.write_text(json.dumps(exported))
    assert runner.main(["--from-state", str(file)]) == runner.EXIT_NOT_RUN
    assert told in capsys.readouterr().err


def test_a_state_whose_secrets_are_encrypted_says_what_to_do(project: Path) -> None:
    manifest = verification.config_map(local_settings(project), "program", {})
    exported = state(manifest)
    exported["deployment"]["resources"][1]["inputs"]["kubeconfig"] = {runner.SECRET_KEY: "x", "ciphertext": "v1:…"}
    with pytest.raises(runner.NotRunError, match="--show-secrets"):
        runner.from_state(exported)


@pytest.mark.parametrize(("ok", "status"), [(True, 0), (False, runner.EXIT_FAILED)])
def test_the_report_and_the_exit_status_of_a_run_by_hand(  # noqa: PLR0913, PLR0917 - fixtures and a table
    project: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    ok: bool,  # noqa: FBT001 - a column of the table
    status: int,
) -> None:
    file = tmp_path / "state.json"
    file.write_text(json.dumps(state(verification.config_map(local_settings(project), "program", {}))))
    result = Result(name="store/write", ok=ok, seconds=0.5, reason="as it is")
    monkeypatch.setattr(runner, "run", lambda *_, settling: [] if settling else [result])
    assert runner.main(["--from-state", str(file), "--json", str(tmp_path / "reports" / "verification.json")]) == status
    assert json.loads((tmp_path / "reports" / "verification.json").read_text()) == [
        {"name": "store/write", "ok": ok, "seconds": 0.5, "reason": "as it is"}
    ]
    assert ("look first at: kubectl -n triton-local describe pvc model-store" in capsys.readouterr().out) is not ok


@pytest.fixture
def props(order: Order) -> dict[str, Any]:
    return {
        "plan": order.plan.model_dump_json(),
        "config_map": order.config_map,
        "kubeconfig": "canary",
        "digest": "one",
    }


def test_the_provider_keeps_the_report_and_never_the_kubeconfig(
    props: dict[str, Any], order: Order, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = Result(name="store/write", ok=True, seconds=0.5, reason="good")

    def run(given: Order, kubeconfig: str, _: Callable[[str], None], *, settling: bool) -> list[Result]:
        assert (given, kubeconfig, settling) == (order, "canary", True)
        return [result]

    monkeypatch.setattr(runner, "run", run)
    kept = {"digest": "one", "report": [result.model_dump()]}
    created = Runner().create(props)
    assert (created.id, created.outs) == ("verification", kept)
    assert Runner().update("verification", {}, props).outs == kept


def test_a_failed_check_fails_the_update_with_the_table_and_where_to_look(
    props: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    results = [Result(name="store/write", ok=False, seconds=0.5, reason="denied")]
    monkeypatch.setattr(runner, "run", lambda *_, settling: results if settling else [])
    with pytest.raises(VerificationFailed) as failure:
        Runner().create(props)
    assert str(failure.value) == (
        "verification failed\n"
        f"{verification.table(results)}\n"
        "look first at: kubectl -n triton-local describe pvc model-store"
    )


@pytest.mark.parametrize(
    ("olds", "news", "changes"),
    [
        ({"digest": "one"}, {"digest": "one", "kubeconfig": "new"}, False),
        ({"digest": "one"}, {"digest": "two"}, True),
        ({}, {"digest": "two"}, True),
    ],
)
def test_only_another_digest_runs_verification_again(
    olds: dict[str, Any],
    news: dict[str, Any],
    changes: bool,  # noqa: FBT001 - a column of the table
) -> None:
    assert Runner().diff("verification", olds, news).changes is changes


def test_eks_is_asked_of_each_add_on_and_what_it_says_is_told(
    order: Order, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = tmp_path / "asked"
    aws = tmp_path / "aws"
    aws.write_text(
        f"""#!/bin/sh
echo "$*" >> {asked}
case "$*" in
  *coredns*) echo DEGRADED;;
  *kube-proxy*) echo "An error occurred (ResourceNotFoundException)" >&2; exit 254;;
  *) echo ACTIVE;;
esac
"""
    )
    aws.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    addons = verification.ManagedAddons(cluster="fleet", region="eu-west-1", names=("vpc-cni", "coredns", "kube-proxy"))
    results = runner.managed_addons(order.plan.model_copy(update={"addons": addons}))
    assert [(one.name, one.ok, one.reason) for one in results] == [
        ("addon/vpc-cni", True, "ACTIVE"),
        ("addon/coredns", False, "DEGRADED"),
        ("addon/kube-proxy", False, "An error occurred (ResourceNotFoundException)"),
    ]
    assert asked.read_text().splitlines()[0] == (
        "eks describe-addon --region eu-west-1 --cluster-name fleet --addon-name vpc-cni "
        "--query addon.status --output text"
    )


def test_without_the_aws_cli_an_add_on_has_not_been_proved(
    order: Order, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    addons = verification.ManagedAddons(cluster="fleet", region="eu-west-1", names=("vpc-cni",))
    (result,) = runner.managed_addons(order.plan.model_copy(update={"addons": addons}))
    assert (result.ok, result.reason) == (False, "the AWS CLI is not installed, which every kubeconfig of EKS needs")
    assert runner.managed_addons(order.plan) == []
