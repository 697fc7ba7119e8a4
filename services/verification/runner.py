"""Runs verification: as the last step of an update, or by hand from a stack's state.

    python -m services.verification.runner --from-state FILE [--json PATH]

FILE is what `pulumi stack export --show-secrets` printed. Exit status: 0 all checks held, 1 some failed, 2 it could not
run.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import threading
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from pydantic import ValidationError

from fleet import names, verification
from fleet.verification import RECORD_PREFIX, Check, Order, Result
from services.verification import hint
from services.verification.cluster import ClusterError, JobPod, KubernetesCluster

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from fleet.pods import Manifest
    from fleet.verification import Node, Plan, Pod
    from fleet.verification_observe import DaemonPod, Question

POLL_S: Final = 0.5
CLIENT_RUNS: Final = 3
"""Autoscaling adds or takes a replica a minute or less often; more in a row are no coincidence."""
OBSERVED_POLL_S: Final = 2.0
"""Monitoring learns with its next scrape, seconds away."""
ARGUMENT_CHARS: Final = 64 * 1024
"""Length of one piece of the checks: Linux takes arguments of up to 128 KiB each."""
STORE_FOLDER: Final = f"{names.STORE_MOUNT}/.verification"

CONFIG_MAP_TYPE: Final = "kubernetes:core/v1:ConfigMap"
PROVIDER_TYPE: Final = "pulumi:providers:kubernetes"
SECRET_KEY: Final = "4dabf18193072939515e22adb298388d"  # noqa: S105 - the key under which an export marks any secret
EXIT_FAILED: Final = 1
EXIT_NOT_RUN: Final = 2


class Cluster(Protocol):
    """What a run needs of a cluster; services.verification.cluster has the real one."""

    def nodes(self) -> list[Node]: ...
    def triton_pods(self, namespace: str) -> list[Pod]: ...
    def create_job(self, manifest: Manifest) -> object: ...
    def job_pod(self, namespace: str, job: str) -> JobPod: ...
    def follow(self, namespace: str, pod: str, timeout_s: float) -> Iterator[str]: ...
    def log(self, namespace: str, pod: str) -> list[str]: ...
    def delete_job(self, namespace: str, job: str) -> None: ...
    def daemon_pods(self, namespace: str, name: str) -> list[DaemonPod] | None: ...
    def get(self, path: str) -> Any: ...  # noqa: ANN401 - any JSON
    def renew(self, manifest: Manifest) -> None: ...


@dataclass(slots=True)
class Run:
    """One run: what it verifies, where, whom it tells, and until when."""

    order: Order
    connect: Callable[[], Cluster]
    """A connection for each thread."""
    say: Callable[[str], None]
    until: float
    """On the monotonic clock."""
    settling: bool
    """Whether an update has just changed something, which monitoring may not know yet."""
    name: str = field(default_factory=lambda: uuid.uuid4().hex[:8])
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def plan(self) -> Plan:
        return self.order.plan

    def left_s(self) -> float:
        return max(self.until - time.monotonic(), 0.0)

    def tell(self, text: str) -> None:
        with self.lock:
            self.say(text)


def verify(
    order: Order, connect: Callable[[], Cluster], say: Callable[[str], None], *, settling: bool = True
) -> list[Result]:
    """Makes every check of the plan and returns one result for each, in the order of causes.

    Raises nothing of the cluster's: what could not be asked has failed.
    """
    plan, started = order.plan, time.monotonic()
    run = Run(order=order, connect=connect, say=say, until=started + plan.deadline_s, settling=settling)
    addons = managed_addons(plan)
    for result in addons:
        run.tell(_line(result))
    return [*addons, *_verify(run, started)]


def _verify(run: Run, started: float) -> list[Result]:
    plan = run.plan
    try:
        cluster = run.connect()
        nodes, found, placed = _settled(run, cluster, started)
    except ClusterError as error:
        expected = [*verification.gpu_results(plan, {}, [], 0.0), *verification.placement(plan, [], [], 0.0)]
        asked = [question.name for question in verification.observation_questions(plan)]
        return verification.complete([*(result.name for result in expected), *asked], [], str(error))
    for result in placed:
        run.tell(_line(result))
    readers = verification.reader_nodes(plan, found, nodes)
    with ThreadPoolExecutor(max_workers=3) as pool:
        store = pool.submit(_store, run, readers)
        client = pool.submit(_clients, run, found)
        observed = pool.submit(_observed, run, found)
        return [*placed, *store.result(), *client.result(), *observed.result()]


def managed_addons(plan: Plan) -> list[Result]:
    """What EKS says of each add-on that the stack put into its cluster. The AWS CLI asks, as it does for kubectl."""
    results = []
    for addon in plan.addons.names if plan.addons is not None else ():
        started = time.monotonic()
        status = _addon_status(plan, addon)
        results.append(verification.addon_result(addon, status, round(time.monotonic() - started, 3)))
    return results


def _addon_status(plan: Plan, addon: str) -> str:
    if plan.addons is None:
        return ""
    command = [
        *("aws", "eks", "describe-addon", "--region", plan.addons.region, "--cluster-name", plan.addons.cluster),
        *("--addon-name", addon, "--query", "addon.status", "--output", "text"),
    ]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=plan.check_deadline_s, check=False)
    except FileNotFoundError:
        return "the AWS CLI is not installed, which every kubeconfig of EKS needs"
    except subprocess.TimeoutExpired:
        return f"no answer within {plan.check_deadline_s} s"
    return done.stdout.strip() if done.returncode == 0 else " ".join(done.stderr.split())


def _settled(run: Run, cluster: Cluster, started: float) -> tuple[list[Node], list[Pod], list[Result]]:
    """Nodes, pods and the judgement on them, as soon as it is good, else when a check's deadline has passed."""
    plan, until = run.plan, min(started + run.plan.check_deadline_s, run.until)
    daemon_sets = () if plan.gpus is None else plan.gpus.daemon_sets
    while True:
        nodes, found = cluster.nodes(), cluster.triton_pods(plan.namespace)
        daemon_pods = {one: cluster.daemon_pods(one.namespace, one.name) for one in daemon_sets}
        seconds = round(time.monotonic() - started, 3)
        placed = [
            *verification.gpu_results(plan, daemon_pods, nodes, seconds),
            *verification.placement(plan, found, nodes, seconds),
        ]
        if not verification.failed(placed) or time.monotonic() > until:
            return nodes, found, placed
        time.sleep(POLL_S)


def _observed(run: Run, found: Sequence[Pod]) -> list[Result]:
    """What monitoring is asked, all of it again and again until it holds or its time is over.

    A replica that goes meanwhile, as autoscaling may have it, is asked about no more; one that comes is not yet.
    """
    questions = verification.observation_questions(run.plan)
    if run.plan.monitoring is None:
        return []
    started, known = time.monotonic(), {pod.name for pod in found}
    try:
        cluster = run.connect()
    except ClusterError as error:
        return verification.complete([question.name for question in questions], [], str(error))
    patience_s = max(run.plan.check_deadline_s, run.plan.monitoring.settle_s if run.settling else 0)
    until = min(started + patience_s, run.until)
    results: dict[str, Result] = {}
    while True:
        for question in questions:
            if question.name not in results or not results[question.name].ok:
                results[question.name] = _asked(run, cluster, question, known, started)
                if results[question.name].ok:
                    run.tell(_line(results[question.name]))
        bad = verification.failed(list(results.values()))
        if not bad or time.monotonic() > until:
            break
        time.sleep(OBSERVED_POLL_S)
    for result in bad:
        run.tell(_line(result))
    return [results[question.name] for question in questions]


def _asked(run: Run, cluster: Cluster, question: Question, known: set[str], started: float) -> Result:
    try:
        answers = [cluster.get(path) for path in question.paths]
        found = [pod for pod in cluster.triton_pods(run.plan.namespace) if pod.name in known]
    except ClusterError as error:
        return Result(
            name=question.name, ok=False, seconds=round(time.monotonic() - started, 3), reason=f"did not run: {error}"
        )
    return verification.observed(question, answers, found, round(time.monotonic() - started, 3))


def _clients(run: Run, found: Sequence[Pod]) -> list[Result]:
    """What a client in the cluster checks. Where autoscaling changed the replicas meanwhile, it is asked again."""
    for number in range(1, CLIENT_RUNS + 1):
        results = _client(run, verification.client_checks(run.plan, found), f"client-{number}")
        if not verification.failed(results) or number == CLIENT_RUNS:
            break
        try:
            now = run.connect().triton_pods(run.plan.namespace)
        except ClusterError:
            break
        if {(pod.name, pod.address) for pod in now} == {(pod.name, pod.address) for pod in found}:
            break
        run.tell("the replicas are others than when they were asked: asking again")
        found = now
    return results


def _client(run: Run, checks: Sequence[Check], purpose: str) -> list[Result]:
    text = json.dumps([check.model_dump() for check in checks], separators=(",", ":"))
    pieces = [text[at : at + ARGUMENT_CHARS] for at in range(0, len(text), ARGUMENT_CHARS)]
    arguments = [
        "client",
        f"--deadline-s={run.plan.check_deadline_s}",
        f"--cases={verification.MOUNT}/{verification.CASES}",
        *(f"--checks={piece}" for piece in pieces),
    ]
    return _job(run, purpose, arguments, None, [check.name for check in checks], writable=False)


def _store(run: Run, readers: Sequence[Node]) -> list[Result]:
    write = verification.write_check()
    wrote = _job(run, "write", _store_arguments(run, "write", write), None, [write], writable=True)
    if verification.failed(wrote):
        wanted = [verification.read_check(node.name) for node in readers]
        return [*wrote, *verification.complete(wanted, [], f"{write} failed")]

    def read(number: int, node: Node) -> list[Result]:
        name = verification.read_check(node.name)
        if not node.ready:
            return verification.complete([name], [], f"node {node.name} is not Ready")
        return _job(run, f"read-{number}", _store_arguments(run, "read", name), node.name, [name], writable=False)

    with ThreadPoolExecutor(max_workers=8) as pool:
        each = list(pool.map(read, range(len(readers)), readers))
    return [*wrote, *(result for results in each for result in results)]


def _store_arguments(run: Run, what: str, name: str) -> list[str]:
    return [
        what,
        f"--deadline-s={run.plan.check_deadline_s}",
        f"--name={name}",
        f"--folder={STORE_FOLDER}",
        f"--token={run.name}",
    ]


def _job(  # noqa: PLR0913 - what a Job is, and what is wanted of it
    run: Run, purpose: str, arguments: Sequence[str], node: str | None, wanted: Sequence[str], *, writable: bool
) -> list[Result]:
    """Runs one Job to its end and returns a result for each check wanted of it. The Job is gone afterwards."""
    manifest = verification.job(run.order, run.name, purpose, arguments, node, writable=writable)
    name, namespace = manifest["metadata"]["name"], run.plan.namespace
    try:
        cluster = run.connect()
        cluster.create_job(manifest)
    except ClusterError as error:
        return verification.complete(wanted, [], str(error))
    got: dict[str, Result] = {}
    try:
        problem = _followed(run, cluster, name, got)
    except ClusterError as error:
        problem = str(error)
    finally:
        try:
            cluster.delete_job(namespace, name)
        except ClusterError as error:
            run.tell(f"{error}; it removes itself after its end")
    return verification.complete(wanted, got.values(), problem)


def _followed(run: Run, cluster: Cluster, job: str, got: dict[str, Result]) -> str:
    """Collects a Job's results in `got`; says why more of them will not come."""
    namespace = run.plan.namespace
    pod = cluster.job_pod(namespace, job)
    while not pod.started or pod.name is None:
        if run.left_s() == 0:
            return f"the pod of Job {job} did not start within {run.plan.deadline_s} s: {pod.waiting}"
        time.sleep(POLL_S)
        pod = cluster.job_pod(namespace, job)
    while not pod.ended and run.left_s() > 0:
        try:
            for line in cluster.follow(namespace, pod.name, max(run.left_s(), 1.0)):
                _take(run, line, got)
                if run.left_s() == 0:
                    break
        except ClusterError as error:
            run.tell(f"{error}; reading it again")
        # A stream that ends says nothing about the pod: on a busy node it ends early. Only the pod's phase does.
        pod = cluster.job_pod(namespace, job)
        if not pod.ended:
            time.sleep(POLL_S)
            pod = cluster.job_pod(namespace, job)
    for line in cluster.log(namespace, str(pod.name)):
        _take(run, line, got)
    if not pod.ended:
        return f"the {run.plan.deadline_s} s for all checks were over"
    return f"its pod ended early: {pod.waiting}"


def _take(run: Run, line: str, got: dict[str, Result]) -> None:
    """A line of the log: a result is kept and shown once; all others are for who reads the log itself."""
    if not line.startswith(RECORD_PREFIX):
        return
    try:
        result = Result.model_validate_json(line.removeprefix(RECORD_PREFIX))
    except ValidationError:
        run.tell(f"a line of the log is no result: {line[:200]}")
        return
    if result.name not in got:
        got[result.name] = result
        run.tell(_line(result))


def _line(result: Result) -> str:
    return f"{'ok  ' if result.ok else 'FAIL'}  {result.name}  {result.reason}"


def run(order: Order, kubeconfig: str, say: Callable[[str], None], *, settling: bool) -> list[Result]:
    """Verifies what the order says on the cluster of the kubeconfig, and records there when it held.

    `settling`: an update has just ended; monitoring is given the time that it needs to know of it.
    """
    results = verify(order, lambda: KubernetesCluster(kubeconfig), say, settling=settling)
    record(order.plan, results, lambda: KubernetesCluster(kubeconfig), say)
    return results


def record(plan: Plan, results: Sequence[Result], connect: Callable[[], Cluster], say: Callable[[str], None]) -> None:
    """Makes the time stamp anew if every check held. Without it an alert asks for a verification, no more."""
    if verification.failed(results):
        return
    try:
        connect().renew(verification.stamp(plan, results))
    except ClusterError as error:
        say(f"the time of this verification was not recorded: {error}")


def report(results: Sequence[Result]) -> list[dict[str, Any]]:
    """The report as it is stored: `name`, `ok`, `seconds`, `reason`."""
    return [result.model_dump() for result in results]


class NotRunError(Exception):
    """Verification could not begin; the text says why."""


def from_state(state: dict[str, Any]) -> tuple[Order, str]:
    """Order and kubeconfig of the last update, also of one that failed, from a stack exported with its secrets."""
    resources = [one for one in (state.get("deployment") or {}).get("resources") or [] if not one.get("delete")]
    manifest = _inputs(resources, CONFIG_MAP_TYPE, verification.CONFIG_MAP)
    provider = _inputs(resources, PROVIDER_TYPE, None)
    return verification.order(manifest), str(provider["kubeconfig"])


def _inputs(resources: list[dict[str, Any]], kind: str, name: str | None) -> dict[str, Any]:
    """The inputs of the one resource of that type, and name if one is given."""
    for resource in resources:
        if resource.get("type") == kind and name in (None, str(resource.get("urn")).rpartition("::")[2]):
            return {key: _plain(value) for key, value in (resource.get("inputs") or {}).items()}
    raise NotRunError("the stack holds nothing to verify: run `pulumi up` first")


def _plain(value: object) -> object:
    """A value of the state; a secret is marked and holds its JSON text."""
    if isinstance(value, dict) and SECRET_KEY in value:
        if "plaintext" not in value:
            raise NotRunError("the state's secrets are encrypted: export it with --show-secrets")
        return json.loads(value["plaintext"])
    return value


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m services.verification.runner", description=__doc__)
    parser.add_argument("--from-state", type=Path, required=True, help="the exported stack, its secrets shown")
    parser.add_argument("--json", type=Path, help="where the report goes")
    args = parser.parse_args(arguments)
    try:
        order, kubeconfig = from_state(json.loads(args.from_state.read_text()))
        results = run(order, kubeconfig, lambda text: print(text, file=sys.stderr, flush=True), settling=False)
    except (NotRunError, OSError, ValueError, ClusterError) as error:
        print(f"verification did not run: {error}", file=sys.stderr)
        return EXIT_NOT_RUN
    if args.json is not None:
        args.json.parent.mkdir(parents=True, exist_ok=True)
        args.json.write_text(json.dumps(report(results), indent=2) + "\n")
    print(verification.table(results))
    if verification.failed(results):
        print(f"look first at: {hint.runnable(verification.first_look(order.plan, results))}")
        return EXIT_FAILED
    return 0


if __name__ == "__main__":
    sys.exit(main())
