"""The recorded series, evaluated by promtool over what Triton would count.

The expected values are reckoned by hand from what each stretch of time says: requests finished before each scrape, one
each 10 s, and how long each was in the queue and in compute. The window of the rates is 60 s.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from fleet import recording
from tests.rules.promtool import A100, H100, Case, Samples, Triton, named, run, settings_of, together

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

A = "minilm-a100-40gb-78cbc5696f-2ktf7"
B = "minilm-h100-80gb-6955c79785-wfvx6"
C = "minilm-h100-80gb-6955c79785-zzzzz"
RATIO = recording.QUEUE_COMPUTE_RATIO
REQUEST = recording.REQUEST_DURATION


def of_pod(name: str, pod: str = A, sku: str = A100, model: str = "minilm") -> str:
    """A sample of a series of pods: these labels and no others."""
    return named(
        name,
        {"environment": "local", "namespace": "triton-local", "pod": pod, "sku": sku, "deployed_model": model},
    )


def of_sku(name: str, sku: str = A100, model: str = "minilm") -> str:
    return named(name, {"environment": "local", "namespace": "triton-local", "sku": sku, "deployed_model": model})


def of_model(name: str, model: str = "minilm") -> str:
    return named(name, {"environment": "local", "namespace": "triton-local", "deployed_model": model})


def pods(second: int, pod: str = A, sku: str = A100, **values: float) -> dict[tuple[int, str], dict[str, float]]:
    """The four series of a pod: `ratio`, and the means `queue`, `compute` and `request` in seconds."""
    found = {(second, f'{RATIO}{{pod="{pod}"}}'): {of_pod(RATIO, pod, sku): values["ratio"]}}
    for key, name in (
        ("queue", recording.QUEUE_DURATION),
        ("compute", recording.COMPUTE_DURATION),
        ("request", REQUEST),
    ):
        found[second, f'{name}{{pod="{pod}"}}'] = {of_pod(name, pod, sku): values[key] * 1e6}
    return found


def absent(second: int, *names: str, pod: str = A) -> dict[tuple[int, str], dict[str, float]]:
    return {(second, f'{name}{{pod="{pod}"}}'): {} for name in names}


def skus(second: int, sku: str = A100, **values: float) -> dict[tuple[int, str], dict[str, float]]:
    names = {
        "served": recording.SERVED,
        "failed": recording.FAILED,
        "failed_ratio": recording.FAILED_RATIO,
        "latency": recording.LATENCY,
        "pending": recording.PENDING,
        "ratio": recording.SKU_QUEUE_COMPUTE_RATIO,
        "scraped": recording.SCRAPED,
    }
    return {(second, f'{names[key]}{{sku="{sku}"}}'): {of_sku(names[key], sku): value} for key, value in values.items()}


def idle() -> Case:
    """Field report B06: nothing divided by nothing is 0, and there."""
    return Case(
        "idle",
        together(Triton().serves(40), Triton(B, H100).serves(40)),
        {
            **pods(300, ratio=0, queue=0, compute=0, request=0),
            **pods(300, B, H100, ratio=0, queue=0, compute=0, request=0),
            **skus(300, served=0, failed=0, failed_ratio=0, latency=0, pending=0, ratio=0, scraped=1),
            (300, recording.MODEL_BATCH + '{sku="a100-40gb"}'): {
                named(recording.MODEL_BATCH, {**LABELS, "sku": A100, "model": "minilm"}): 0
            },
            (300, recording.errors("1h")): {of_model(recording.errors("1h")): 0},
        },
    )


LABELS = {"environment": "local", "namespace": "triton-local", "deployed_model": "minilm"}


def seldom() -> Case:
    """One request in ten seconds. The guide's rules would divide by one a second and say a tenth of it."""
    return Case(
        "one request in ten seconds",
        Triton().serves(40, 1, queue_s=0.05, compute_s=0.2, other_s=0.01).series,
        {
            **pods(300, ratio=0.25, queue=0.05, compute=0.2, request=0.26),
            **skus(300, served=0.1, latency=0.26, ratio=0.25),
        },
    )


def steady() -> Case:
    """300 requests between scrapes: 30 a second, each half as long in the queue as in compute, in batches of 4."""
    model = {**LABELS, "sku": A100, "model": "minilm"}
    return Case(
        "steady",
        Triton().serves(40, 300, queue_s=0.04, compute_s=0.08, other_s=0.005, pending=2, batch=4).series,
        {
            **pods(300, ratio=0.5, queue=0.04, compute=0.08, request=0.125),
            **skus(300, served=30, failed=0, failed_ratio=0, latency=0.125, pending=2, ratio=0.5, scraped=1),
            (300, recording.MODEL_BATCH): {named(recording.MODEL_BATCH, model): 4},
            (300, recording.MODEL_QUEUE): {named(recording.MODEL_QUEUE, model): 0.04},
            (300, recording.MODEL_COMPUTE): {named(recording.MODEL_COMPUTE, model): 0.08},
            (300, recording.MODEL_SERVED): {named(recording.MODEL_SERVED, model): 30},
        },
    )


def doubled() -> Case:
    """Twice the traffic at the same wait is the same signal: it is no sum of waits a second."""
    return Case(
        "twice the traffic at the same wait",
        Triton().serves(30, 100, queue_s=0.04, compute_s=0.08).serves(30, 200, queue_s=0.04, compute_s=0.08).series,
        {
            **pods(290, ratio=0.5, queue=0.04, compute=0.08, request=0.12),
            **pods(590, ratio=0.5, queue=0.04, compute=0.08, request=0.12),
            **skus(290, served=10),
            **skus(590, served=20),
        },
    )


def burst() -> Case:
    """60 requests at once after silence, three seconds in the queue each: seen at the next evaluation, gone when no
    scrape of the window is older.
    """
    return Case(
        "burst",
        Triton().serves(30).serves(1, 60, queue_s=3, compute_s=0.5).serves(30).series,
        {
            **pods(290, ratio=0, queue=0, compute=0, request=0),
            **pods(300, ratio=6, queue=3, compute=0.5, request=3.5),
            **pods(340, ratio=6, queue=3, compute=0.5, request=3.5),
            **pods(350, ratio=0, queue=0, compute=0, request=0),
        },
    )


def generation() -> Case:
    """One generation of 150 s. While it runs alone nothing waits; its end tells its length."""
    return Case(
        "one generation longer than the window",
        Triton().serves(15).serves(1, 1, queue_s=0.1, compute_s=150).serves(10).series,
        {
            **pods(140, ratio=0, queue=0, compute=0, request=0),
            **pods(150, ratio=0.1 / 150, queue=0.1, compute=150, request=150.1),
        },
    )


def generation_with_others_waiting() -> Case:
    """Two more arrive at 100 s, and wait. From the second scrape on that shows them the pod is busy: two wait for one.

    At 200 s six scrapes have shown a queue that was never empty, over 50 s: at least that long they have waited.
    """
    return Case(
        "requests wait behind a generation longer than the window",
        Triton().serves(10).serves(11, pending=2).series,
        {
            **pods(100, ratio=0, queue=0, compute=0, request=0),
            **pods(110, ratio=2, queue=0, compute=0, request=0),
            **pods(200, ratio=2, queue=50, compute=50, request=50),
            **skus(200, latency=50, pending=2, ratio=2),
        },
    )


def hung() -> Case:
    """Triton accepts and never answers: 5 more wait at each scrape from 300 s on.

    The last answers leave the window 60 s later. Until then the ratio is theirs; from then on it is what waits, the
    fewer of the last two scrapes. At 400 s those are 11 x 5 and 10 x 5.
    """
    pod = Triton().serves(30, 50, queue_s=0.05, compute_s=0.1)
    for step in range(1, 20):
        pod.serves(1, pending=5 * step)
    return Case(
        "a hung server",
        pod.series,
        {
            **pods(290, ratio=0.5, queue=0.05, compute=0.1, request=0.15),
            **pods(330, ratio=0.5, queue=0.05, compute=0.1, request=0.15),
            **pods(400, ratio=50, queue=50, compute=50, request=50),
            **skus(400, served=0, pending=55, ratio=50, latency=50),
        },
    )


def passing() -> Case:
    """One scrape sees a request between its arrival and its batch: nothing waits."""
    return Case(
        "a request that one scrape sees",
        Triton().serves(20).serves(1, pending=9).serves(10).series,
        {
            **pods(200, ratio=0, queue=0, compute=0, request=0),
            **pods(210, ratio=0, queue=0, compute=0, request=0),
        },
    )


def queue_without_compute() -> Case:
    """Field report B06: the queue's time rises and compute's does not. 10 requests of 2 s each 10 s: two wait.

    What waits at the scrapes is not counted once more, since requests finish.
    """
    return Case(
        "queue rises, compute does not",
        Triton().serves(40, 10, queue_s=2, pending=3).series,
        {**pods(300, ratio=2, queue=2, compute=0, request=2)},
    )


def restarted() -> Case:
    """Field report B06: counters begin anew at 300 s, at the same load. Nothing is negative, the means are the same.

    The scrape at 300 s finds 50 of the new count, so 50 of the window's 300 requests: 30 a second less none.
    """
    return Case(
        "counters begin anew",
        Triton()
        .serves(30, 50, queue_s=0.05, compute_s=0.1)
        .restarts()
        .serves(30, 50, queue_s=0.05, compute_s=0.1)
        .series,
        {
            **pods(310, ratio=0.5, queue=0.05, compute=0.1, request=0.15),
            **pods(340, ratio=0.5, queue=0.05, compute=0.1, request=0.15),
            **skus(340, served=5),
        },
    )


def restart_unscraped() -> Case:
    """A restart of a minute in which scrapes fail. When too few are left in the window nothing is known, and nothing is
    said; the second scrape after it tells again.
    """
    return Case(
        "a restart that is not scraped for a minute",
        Triton()
        .serves(30, 50, queue_s=0.05, compute_s=0.1)
        .unanswered(7)
        .restarts()
        .serves(10, 50, queue_s=0.2, compute_s=0.1)
        .series,
        {
            **pods(320, ratio=0.5, queue=0.05, compute=0.1, request=0.15),
            **absent(350, *recording.PER_POD),
            **absent(370, *recording.PER_POD),
            **pods(380, ratio=2, queue=0.2, compute=0.1, request=0.3),
            **skus(350, scraped=0),
            **skus(380, scraped=1),
        },
    )


def missed() -> Case:
    """Field report B23: two scrapes of a window are missed, and its rates are still there."""
    return Case(
        "two scrapes missed",
        Triton()
        .serves(30, 50, queue_s=0.05, compute_s=0.1)
        .unanswered(2)
        .serves(1, 150, queue_s=0.05, compute_s=0.1)
        .serves(5, 50, queue_s=0.05, compute_s=0.1)
        .series,
        {
            **pods(310, ratio=0.5, queue=0.05, compute=0.1, request=0.15),
            **pods(340, ratio=0.5, queue=0.05, compute=0.1, request=0.15),
        },
    )


def vanished() -> Case:
    """A pod goes at 300 s: within a minute it has no sample, and the sums are the other pod's."""
    return Case(
        "a pod that vanishes",
        together(
            Triton(B, H100).serves(45, 100, queue_s=0.1, compute_s=0.1),
            Triton(C, H100).serves(30, 100, queue_s=0.3, compute_s=0.1).vanishes(15),
        ),
        {
            **pods(290, C, H100, ratio=3, queue=0.3, compute=0.1, request=0.4),
            **skus(290, H100, served=20, latency=0.3, ratio=2, scraped=2),
            **absent(360, *recording.PER_POD, pod=C),
            **pods(360, B, H100, ratio=1, queue=0.1, compute=0.1, request=0.2),
            **skus(360, H100, served=10, latency=0.2, ratio=1, scraped=1),
        },
    )


def born() -> Case:
    """A new pod: one scrape is no rate yet, the second one is. What it counted before the first does not count."""
    return Case(
        "a new pod",
        Triton().awaits(20).serves(1, 500, queue_s=9, compute_s=0.1).serves(10, 50, queue_s=0.1, compute_s=0.1).series,
        {
            **absent(190, *recording.PER_POD),
            **absent(200, *recording.PER_POD),
            **pods(210, ratio=1, queue=0.1, compute=0.1, request=0.2),
        },
    )


def ensemble() -> Case:
    """An ensemble of two parts. Its own queue is empty and its compute the sum of the parts'; the part `engine` waits
    twice as long as it works. The guide's adapter would add up all three ratios: 2.25.

    Whoever calls the ensemble waits 0.9 s; its parts are no requests of users.
    """
    pod = Triton(deployed_model="llama", model="llama").serves(40, 10, queue_s=0, compute_s=0.3, other_s=0.6)
    pod.part("preprocessing").serves(40, 10, queue_s=0.01, compute_s=0.04)
    pod.part("engine").serves(40, 10, queue_s=0.52, compute_s=0.26, pending=5)
    sku = {"environment": "local", "namespace": "triton-local", "deployed_model": "llama", "sku": A100}
    return Case(
        "an ensemble",
        pod.series,
        {
            (300, RATIO): {of_pod(RATIO, model="llama"): 2},
            (300, recording.QUEUE_DURATION): {of_pod(recording.QUEUE_DURATION, model="llama"): 0.52e6},
            (300, REQUEST): {of_pod(REQUEST, model="llama"): 0.9e6},
            (300, recording.SERVED): {named(recording.SERVED, sku): 1},
            (300, recording.LATENCY): {named(recording.LATENCY, sku): 0.9},
            (300, recording.PENDING): {named(recording.PENDING, sku): 5},
            (300, recording.MODEL_QUEUE): {
                named(recording.MODEL_QUEUE, {**sku, "model": "llama"}): 0,
                named(recording.MODEL_QUEUE, {**sku, "model": "preprocessing"}): 0.01,
                named(recording.MODEL_QUEUE, {**sku, "model": "engine"}): 0.52,
            },
        },
    )


def ensemble_hung() -> Case:
    """A part of an ensemble hangs, another goes on: 4 requests wait for it, and the pod is busy."""
    pod = Triton(deployed_model="llama", model="llama").serves(40)
    pod.part("preprocessing").serves(40, 10, queue_s=0.01, compute_s=0.04)
    pod.part("engine").serves(40, pending=4)
    return Case("an ensemble with a part that hangs", pod.series, {(300, RATIO): {of_pod(RATIO, model="llama"): 4}})


def several() -> Case:
    """Pods on both SKUs, one with two versions of the model, which are one: 10 requests of 0.1 s in the queue and 30 of
    0.3 s, all 0.1 s in compute, are 0.25 s on the mean.
    """
    a = Triton().serves(40, 10, queue_s=0.1, compute_s=0.1)
    a.part("minilm", version="2").serves(40, 30, queue_s=0.3, compute_s=0.1)
    return Case(
        "several pods, SKUs and versions",
        together(
            a,
            Triton(B, H100).serves(40, 100, queue_s=0.02, compute_s=0.1),
            Triton(C, H100).serves(40, 300, queue_s=0.06, compute_s=0.1),
        ),
        {
            **pods(300, A, A100, ratio=2.5, queue=0.25, compute=0.1, request=0.35),
            **pods(300, B, H100, ratio=0.2, queue=0.02, compute=0.1, request=0.12),
            **pods(300, C, H100, ratio=0.6, queue=0.06, compute=0.1, request=0.16),
            **skus(300, A100, served=4, ratio=2.5, latency=0.35, scraped=1),
            # (100 x 0.12 + 300 x 0.16) / 400
            **skus(300, H100, served=40, ratio=0.4, latency=0.15, scraped=2),
        },
    )


def failing() -> Case:
    """Three of four requests fail; what a client gave up is no failure."""
    return Case(
        "failures",
        Triton().serves(40, 10, compute_s=0.1, failed=30, cancelled=500).series,
        {**skus(300, served=1, failed=3, failed_ratio=0.75, latency=0.1)},
    )


def all_failing() -> Case:
    """All fail. Durations do not move, so nothing is known of latency, and no load is seen."""
    return Case(
        "nothing but failures",
        Triton().serves(40, 0, failed=10).series,
        {
            **pods(300, ratio=0, queue=0, compute=0, request=0),
            **skus(300, served=0, failed=1, failed_ratio=1, latency=0),
        },
    )


def other_stack() -> Case:
    """Another stack in the same cluster has rules of its own; ours leave its pods alone."""
    return Case(
        "another stack's pods",
        Triton(namespace="triton-dev", environment="dev").serves(40, 10, queue_s=1, compute_s=1).series,
        {(300, RATIO): {}, (300, recording.SERVED): {}, (300, recording.PENDING): {}, (300, recording.SCRAPED): {}},
    )


def tensorrt_llm() -> Case:
    """TensorRT-LLM keeps requests waiting that Triton counts as in work."""
    pod = Triton().serves(40)
    waiting = {**pod.target, "model": "tensorrt_llm", "version": "1"}
    series = {
        named("nv_trt_llm_request_metrics", {**waiting, "request_type": kind}): [value] * 40
        for kind, value in (("waiting", 7), ("active", 40), ("max", 256))
    }
    return Case(
        "requests that TensorRT-LLM keeps waiting",
        together(pod, series),
        {
            (300, recording.WAITING_REQUESTS): {of_pod(recording.WAITING_REQUESTS): 7},
            (300, recording.SKU_WAITING): {of_sku(recording.SKU_WAITING): 7},
            (300, recording.PENDING): {of_sku(recording.PENDING): 7},
        },
    )


def gpus() -> Case:
    """Two pods of a SKU with a GPU each, one of another; a GPU that nobody holds, and one that another namespace does.

    As the exporter is scraped: the pod in `exported_pod`, the exporter's own in `pod`. MiB: 30000 of 40000 and 10000 of
    40000 are half of both.
    """
    pods_of = together(Triton(A).serves(40), Triton(B, H100).serves(40), Triton(C, H100).serves(40))

    def gpu(number: str, namespace: str, pod: str, used: float, percent: float) -> dict[str, Samples]:
        labels = {
            "job": "dcgm-exporter",
            "namespace": "monitoring",
            "pod": "dcgm-exporter-x7x7x",
            "gpu": number,
            "UUID": f"GPU-{number}",
            "modelName": "NVIDIA H100 80GB HBM3",
            **({"exported_namespace": namespace, "exported_pod": pod} if pod else {}),
        }
        return {
            named("DCGM_FI_DEV_FB_USED", labels): [used] * 40,
            named("DCGM_FI_DEV_FB_FREE", labels): [40000 - used] * 40,
            named("DCGM_FI_DEV_GPU_UTIL", labels): [percent] * 40,
        }

    return Case(
        "GPUs by SKU",
        together(
            pods_of,
            gpu("0", "triton-local", A, 4000, 25),
            gpu("1", "triton-local", B, 30000, 90),
            gpu("2", "triton-local", C, 10000, 50),
            gpu("3", "", "", 1, 0),
            gpu("4", "elsewhere", "notebook", 39999, 100),
        ),
        {
            (300, recording.GPU_UTILIZATION): {
                of_sku(recording.GPU_UTILIZATION, A100): 0.25,
                of_sku(recording.GPU_UTILIZATION, H100): 0.7,
            },
            (300, recording.GPU_MEMORY): {
                of_sku(recording.GPU_MEMORY, A100): 0.1,
                of_sku(recording.GPU_MEMORY, H100): 0.5,
            },
            (300, recording.GPUS): {of_sku(recording.GPUS, A100): 1, of_sku(recording.GPUS, H100): 2},
        },
    )


def bounds() -> Case:
    """Replicas of the Deployments beside the settings' bounds, 1 and 4."""

    def of(sku: str) -> dict[str, str]:
        return {**LABELS, "sku": sku, "deployment": f"minilm-{sku}"}

    def deployment(name: str, wanted: float, available: float) -> dict[str, Samples]:
        labels = {"job": "kube-state-metrics", "namespace": "triton-local", "deployment": name}
        return {
            named("kube_deployment_spec_replicas", labels): [wanted] * 40,
            named("kube_deployment_status_replicas_available", labels): [available] * 40,
        }

    return Case(
        "replicas beside their bounds",
        together(deployment("minilm-a100-40gb", 3, 2), deployment("minilm-h100-80gb", 4, 4), deployment("web", 9, 9)),
        {
            (300, recording.REPLICAS_MIN): {named(recording.REPLICAS_MIN, of(sku)): 1 for sku in (A100, H100)},
            (300, recording.REPLICAS_MAX): {named(recording.REPLICAS_MAX, of(sku)): 4 for sku in (A100, H100)},
            (300, recording.REPLICAS_WANTED): {
                named(recording.REPLICAS_WANTED, of(A100)): 3,
                named(recording.REPLICAS_WANTED, of(H100)): 4,
            },
            (300, recording.REPLICAS_AVAILABLE): {
                named(recording.REPLICAS_AVAILABLE, of(A100)): 2,
                named(recording.REPLICAS_AVAILABLE, of(H100)): 4,
            },
        },
    )


def promises() -> Case:
    """The promises, and what was broken of them over both SKUs: of 60 requests a second 3 fail, for ten minutes."""
    return Case(
        "promises and errors",
        together(
            Triton().serves(61, 270, compute_s=0.1, failed=30).serves(50, 300),
            Triton(B, H100).serves(111, 300, compute_s=0.1),
        ),
        {
            (600, recording.SLO_LATENCY): {of_model(recording.SLO_LATENCY): 2},
            (600, recording.SLO_AVAILABILITY): {of_model(recording.SLO_AVAILABILITY): 0.999},
            **{
                (600, recording.errors(window)): {of_model(recording.errors(window)): 0.05}
                for window in ("5m", "30m", "1h", "6h", "3d")
            },
            # 7 minutes after the last of them five minutes know of none, longer windows do
            (1020, recording.errors("5m")): {of_model(recording.errors("5m")): 0},
            (1020, f"{recording.errors('30m')} > bool 0.02"): {of_model(""): 1},
            (1020, f"{recording.errors('3d')} > bool 0.02"): {of_model(""): 1},
        },
    )


CASES = [
    make()
    for make in (
        idle,
        seldom,
        steady,
        doubled,
        burst,
        generation,
        generation_with_others_waiting,
        hung,
        passing,
        queue_without_compute,
        restarted,
        restart_unscraped,
        missed,
        vanished,
        born,
        ensemble,
        ensemble_hung,
        several,
        failing,
        all_failing,
        other_stack,
        tensorrt_llm,
        gpus,
        bounds,
        promises,
    )
]


@pytest.fixture(scope="module")
def outcomes(tool: Callable[[str], str], tmp_path_factory: pytest.TempPathFactory, project: Path) -> Mapping[str, str]:
    return run(tool("promtool"), tmp_path_factory.mktemp("recording"), settings_of(project), CASES)


@pytest.mark.parametrize("name", [case.name for case in CASES])
def test_what_is_recorded(name: str, outcomes: Mapping[str, str]) -> None:
    assert outcomes[name] == ""
