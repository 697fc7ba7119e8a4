"""When the wait for an update ends, and with what."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from components.rollout import RolloutFailed, Waiter
from fleet.rollout import NewPod, Progress, Verdict, judge
from services.verification import rollout
from services.verification.cluster import ClusterError, last_words

if TYPE_CHECKING:
    from collections.abc import Iterator


def progress(**changes: object) -> Progress:
    given: dict[str, Any] = {
        "seen": True,
        "wanted": 2,
        "updated": 2,
        "available": 2,
        "total": 2,
        "given_up": "",
        **changes,
    }
    return Progress(**given)


def pod(**changes: object) -> NewPod:
    given: dict[str, Any] = {
        "name": "new-1",
        "ready": False,
        "restarts": 0,
        "reason": "",
        "waiting": "Pending",
        **changes,
    }
    return NewPod(**given)


READY = pod(name="new-0", ready=True, waiting="")
CRASHED = "container triton exited with 1: error: creating server: no weights"
LOOP = {"reason": "CrashLoopBackOff", "waiting": CRASHED}


@pytest.mark.parametrize(
    ("status", "pods", "verdict"),
    [
        pytest.param(
            progress(), [READY], Verdict("done", "m: 2 of 2 replicas new, 2 available"), id="all new and available"
        ),
        pytest.param(
            progress(seen=False, given_up="timed out before"),
            [pod(restarts=9, **LOOP)],
            Verdict("waiting", "m: the update is about to begin"),
            id="the status is still that of the update before",
        ),
        pytest.param(
            progress(updated=1, available=2, total=3),
            [pod()],
            Verdict("waiting", "m: 1 of 2 replicas new, 2 available; new-1: Pending"),
            id="half-way",
        ),
        pytest.param(
            progress(updated=2, available=1),
            [READY, pod(waiting="ContainersNotReady")],
            Verdict("waiting", "m: 2 of 2 replicas new, 1 available; new-1: ContainersNotReady"),
            id="the last one loads",
        ),
        pytest.param(
            progress(total=3),
            [READY],
            Verdict("waiting", "m: 2 of 2 replicas new, 2 available, 1 old to go"),
            id="an old one is left",
        ),
        pytest.param(
            progress(updated=1, available=2, total=3),
            [pod(restarts=2, **LOOP)],
            Verdict("waiting", f"m: 1 of 2 replicas new, 2 available; new-1: {CRASHED}"),
            id="crashed twice",
        ),
        pytest.param(
            progress(updated=1, available=2, total=3),
            [pod(restarts=3, **LOOP)],
            Verdict("failed", f"m: the new pod new-1 crashed 3 times: {CRASHED}", "logs new-1 --previous"),
            id="crashed once too often",
        ),
        pytest.param(
            progress(),
            [pod(restarts=3, ready=True, waiting="")],
            Verdict("done", "m: 2 of 2 replicas new, 2 available"),
            id="crashed, but came up in the end",
        ),
        pytest.param(
            progress(updated=1, available=2, total=3),
            [pod(reason="ErrImageNeverPull", waiting="ErrImageNeverPull: not present")],
            Verdict(
                "failed",
                "m: the new pod new-1 cannot start: ErrImageNeverPull: not present",
                "describe pod new-1",
            ),
            id="an image that is not on the node and may not be pulled",
        ),
        pytest.param(
            progress(updated=1, available=2, total=3),
            [pod(reason="ImagePullBackOff", waiting="ImagePullBackOff")],
            Verdict("waiting", "m: 1 of 2 replicas new, 2 available; new-1: ImagePullBackOff"),
            id="an image whose registry may answer later",
        ),
        pytest.param(
            progress(updated=1, available=2, total=3, given_up="it has timed out progressing."),
            [pod(waiting="Insufficient nvidia.com/gpu")],
            Verdict(
                "failed",
                "m: it has timed out progressing. new-1: Insufficient nvidia.com/gpu",
                "describe deployment m",
            ),
            id="the deadline has passed, with its reason",
        ),
        pytest.param(
            progress(updated=0, available=2, given_up="exceeded quota"),
            [],
            Verdict("failed", "m: exceeded quota", "describe deployment m"),
            id="no pod could be made",
        ),
    ],
)
def test_where_an_update_stands(status: Progress, pods: list[NewPod], verdict: Verdict) -> None:
    assert judge("m", status, pods) == verdict


@pytest.mark.parametrize(
    ("wanted", "fewest", "state"), [(1, 0, "done"), (1, 1, "done"), (1, 2, "waiting"), (2, 1, "waiting")]
)
def test_a_new_deployment_waits_until_its_autoscaler_brought_it_to_the_fewest(
    wanted: int, fewest: int, state: str
) -> None:
    status = progress(wanted=wanted, updated=1, available=1, total=1)
    assert judge("m", status, [READY], fewest).state == state


class Cluster:
    """Answers with one status after the other, the last one for ever."""

    def __init__(self, *answers: Progress | ClusterError) -> None:
        self.answers: Iterator[Progress | ClusterError] = iter(answers)
        self.last = answers[-1]

    def rollout(self, namespace: str, name: str) -> tuple[Progress, list[NewPod]]:
        assert (namespace, name) == ("triton-local", "m")
        answer = next(self.answers, self.last)
        if isinstance(answer, ClusterError):
            raise answer
        return answer, []


HALF = progress(updated=1)


@pytest.mark.parametrize(
    ("cluster", "deadline_s", "verdict", "told"),
    [
        (
            Cluster(HALF, HALF, ClusterError("no answer"), HALF, progress()),
            60.0,
            Verdict("done", "m: 2 of 2 replicas new, 2 available"),
            ["m: 1 of 2 replicas new, 2 available", "m: no answer", "m: 1 of 2 replicas new, 2 available"],
        ),
        (
            Cluster(HALF),
            0.05,
            Verdict("failed", "not done within 0.05 s: m: 1 of 2 replicas new, 2 available", "describe deployment m"),
            ["m: 1 of 2 replicas new, 2 available"],
        ),
        (
            Cluster(ClusterError("no answer")),
            0.05,
            Verdict("failed", "not done within 0.05 s: m: no answer", "describe deployment m"),
            ["m: no answer"],
        ),
    ],
)
def test_waiting_tells_each_change_once_and_ends(
    cluster: Cluster, deadline_s: float, verdict: Verdict, told: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rollout, "POLL_S", 0.01)
    said: list[str] = []
    awaited = rollout.Awaited("triton-local", "m", 1, deadline_s)
    assert rollout.wait(cluster, awaited, said.append) == verdict
    assert said == told


@pytest.mark.parametrize(
    ("log", "words"),
    [
        (
            "I1130 loading\nerror: creating server: no\n\nAt:\n  model.py(18)\n",
            "error: creating server: no At: model.py(18)",
        ),
        ("error: first\nerror: second\n", "error: second"),
        ("Killed", "Killed"),
        ("", ""),
        ("x" * 900, "x" * 400),
    ],
)
def test_the_last_words_of_a_container(log: str, words: str) -> None:
    assert last_words(log) == words


PROPS = {
    "kubeconfig": "canary",
    "namespace": "triton-local",
    "deployment": "m",
    "fewest": 2,
    "deadline_s": 60,
    "digest": "one",
}


def test_a_failed_update_says_why_and_where_to_look(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rollout, "run", lambda *_: Verdict("failed", "m: the new pod crashed", "logs p"))
    with pytest.raises(RolloutFailed) as failure:
        Waiter().update("m", {}, PROPS)
    assert str(failure.value) == "m: the new pod crashed\nlook first at: kubectl -n triton-local logs p"


def test_a_done_update_keeps_its_digest_and_never_the_kubeconfig(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(kubeconfig: str, awaited: rollout.Awaited, _: object) -> Verdict:
        assert (kubeconfig, awaited) == ("canary", rollout.Awaited("triton-local", "m", 2, 60))
        return Verdict("done", "m: done")

    monkeypatch.setattr(rollout, "run", run)
    created = Waiter().create(PROPS)
    assert (created.id, created.outs) == ("m", {"digest": "one"})
    assert Waiter().update("m", {}, PROPS).outs == {"digest": "one"}


@pytest.mark.parametrize(
    ("olds", "news", "changes"),
    [({"digest": "one"}, {**PROPS, "kubeconfig": "new"}, False), ({"digest": "one"}, {"digest": "two"}, True)],
)
def test_only_another_deployment_is_waited_for_again(
    olds: dict[str, Any],
    news: dict[str, Any],
    changes: bool,  # noqa: FBT001 - a column of the table
) -> None:
    assert Waiter().diff("m", olds, news).changes is changes
