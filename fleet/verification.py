"""What a deployment must prove: which checks, what each expects, and how what was observed is judged.

The checks that need the Kubernetes API are judged here. Those that a client makes run inside the cluster
(services/verification/program.py), which is told each one's name, kind and arguments by `client_checks`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from pydantic import BaseModel, ConfigDict

from fleet import aws_addons, names, own_images, pods, store, verification_observe
from fleet.schema import Images, Serving, gpus_per_replica
from fleet.verification_observe import GpuPlan, MonitoringPlan
from fleet.workload import node_labels, tolerations

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from fleet.pods import Manifest
    from fleet.schema import Settings
    from fleet.verification_observe import DaemonPod, DaemonSetPlan, Question

PROGRAM: Final = "program.py"
CASES: Final = "cases.json"
PLAN: Final = "plan.json"
CONFIG_MAP: Final = "verification"
"""The ConfigMap's name in the stack; its name in the cluster follows its content."""
MOUNT: Final = "/verification"
SCRATCH_MIB: Final = 64
JOB_MARGIN_S: Final = 30
"""A Job of a runner that died ends by itself this long after its deadline."""
JOB_KEPT_S: Final = 60
"""An ended Job of a runner that died is removed after this long."""

ADDON_WORKS: Final = "ACTIVE"

RECORD_PREFIX: Final = "@check "
"""Marks the lines of the program's log that are results, one JSON object each."""


Kind = Literal["resolve", "live", "ready", "index", "version", "answer", "spread"]
"""What the program in the cluster can do; one of its methods each."""


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class SkuPlan(_Frozen):
    """What one SKU must run of a model."""

    name: str
    node_labels: dict[str, str]
    tolerations: tuple[dict[str, str], ...]
    gpus: int
    replicas: int


class ModelPlan(_Frozen):
    """What must be true of one model."""

    name: str
    version: int
    skus: tuple[SkuPlan, ...]


class ManagedAddons(_Frozen):
    """Add-ons that EKS keeps in the cluster."""

    cluster: str
    region: str
    names: tuple[str, ...]


class Plan(_Frozen):
    """All that verification needs to know; it travels as JSON in the ConfigMap, so that it can be run again."""

    serving: Serving
    images: Images
    deadline_s: int
    check_deadline_s: int
    models: tuple[ModelPlan, ...]
    addons: ManagedAddons | None = None
    gpus: GpuPlan | None = None
    """None where no SKU has GPUs."""
    monitoring: MonitoringPlan | None = None
    unproved: tuple[str, ...] = ()
    """Models without a known answer."""
    claim: str = names.STORE_NAME
    """Of the model store."""

    @property
    def namespace(self) -> str:
        return self.serving.namespace

    def dump(self) -> str:
        """As JSON, without what says nothing: a setting that is not verified must not make verification run again."""
        images = {"model_store", "load", "ecr", *({"verification"} if self.images.verification is None else ())}
        empty = {key for key in ("addons", "gpus", "monitoring", "unproved") if not getattr(self, key)}
        usual = {"claim"} if self.claim == names.STORE_NAME else set()
        return self.model_dump_json(exclude={"images": images, **dict.fromkeys(empty | usual, True)})


@dataclass(frozen=True, slots=True)
class Order:
    """A plan, and the ConfigMap that holds the program and the known answers for it."""

    plan: Plan
    config_map: str


class Result(_Frozen):
    """The outcome of one check."""

    name: str
    ok: bool
    seconds: float
    reason: str


class Check(_Frozen):
    """A check that the program in the cluster makes."""

    name: str
    kind: Kind
    arguments: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Node:
    """A node as the API server shows it."""

    name: str
    labels: Mapping[str, str]
    ready: bool
    gpus: int
    """GPUs that pods can ask for."""


@dataclass(frozen=True, slots=True)
class Pod:
    """A Triton pod as the API server shows it."""

    name: str
    model: str
    sku: str
    node: str | None
    address: str | None
    ready: bool
    gpus: int
    waiting: str
    """Why it is not ready, as far as its status says; empty when it is."""


def plan(settings: Settings) -> Plan:
    """The plan that follows from the settings."""
    return Plan(
        serving=settings.serving,
        images=settings.images,
        deadline_s=settings.verification.deadline_s,
        check_deadline_s=settings.verification.check_deadline_s,
        models=tuple(
            ModelPlan(
                name=model.name,
                version=model.version,
                skus=tuple(
                    SkuPlan(
                        name=sku.name,
                        node_labels=node_labels(sku),
                        tolerations=tuple(tolerations(sku)),
                        gpus=gpus_per_replica(model, sku),
                        replicas=placement.replicas.min,
                    )
                    for placement in model.placements
                    for sku in (settings.sku(placement.sku),)
                ),
            )
            for model in settings.models
        ),
        addons=_addons(settings),
        gpus=verification_observe.gpu_plan(settings),
        monitoring=verification_observe.monitoring_plan(settings),
        claim=store.claim_name(settings),
    )


def _addons(settings: Settings) -> ManagedAddons | None:
    cluster = settings.cluster
    if cluster.source != "eks":
        return None
    driver = (aws_addons.EFS_DRIVER,) if settings.store.kind == "efs" else ()
    installed = (*aws_addons.BEFORE_NODES, *aws_addons.AFTER_NODES, *driver)
    return ManagedAddons(cluster=cluster.name, region=cluster.region, names=installed)


def config_map(settings: Settings, program: str, cases: Mapping[str, object]) -> Manifest:
    """The program, each model's known answers and the plan, under a name that follows their content."""
    unproved = tuple(sorted(model for model, known in cases.items() if not known))
    planned = plan(settings).model_copy(update={"unproved": unproved})
    data = {PROGRAM: program, CASES: pods.canonical(cases), PLAN: planned.dump()}
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": pods.metadata(
            f"{CONFIG_MAP}-{pods.digest(data)}", settings.serving.namespace, pods.labels("verification", CONFIG_MAP)
        ),
        "immutable": True,
        "data": data,
    }


def order(manifest: Manifest) -> Order:
    """The order that a registered ConfigMap holds."""
    return Order(Plan.model_validate_json(manifest["data"][PLAN]), manifest["metadata"]["name"])


def selects(labels: Mapping[str, str], node: Node) -> bool:
    return all(node.labels.get(key) == value for key, value in labels.items())


def _observed(found: Sequence[Pod], model: ModelPlan, sku: SkuPlan) -> list[Pod]:
    mine = [pod for pod in found if (pod.model, pod.sku) == (model.name, sku.name)]
    return sorted(mine, key=lambda pod: pod.name)


def _misplaced(pod: Pod, sku: SkuPlan, nodes: Mapping[str, Node]) -> str | None:
    node = nodes.get(pod.node or "")
    if node is None:
        return f"{pod.name} is on no node: {pod.waiting or 'not scheduled'}"
    if not pod.ready:
        return f"{pod.name} on {node.name} is not ready: {pod.waiting or 'no reason given'}"
    wrong = {key: node.labels.get(key) for key, value in sku.node_labels.items() if node.labels.get(key) != value}
    if wrong:
        shown = ", ".join(f"{key} is {got!r}, not {sku.node_labels[key]!r}" for key, got in sorted(wrong.items()))
        return f"{pod.name} is on {node.name}, which is no node of {sku.name}: {shown}"
    if pod.gpus != sku.gpus:
        return f"{pod.name} holds {pod.gpus} GPUs, not {sku.gpus}"
    return None


def placement(plan: Plan, found: Sequence[Pod], nodes: Sequence[Node], seconds: float) -> list[Result]:
    """Per model and SKU: enough replicas are ready, each on a node of its SKU with the GPUs it asked for."""
    by_name = {node.name: node for node in nodes}
    held: dict[str, int] = {}
    for pod in found:
        held[pod.node or ""] = held.get(pod.node or "", 0) + pod.gpus
    results = []
    for model in plan.models:
        for sku in model.skus:
            mine = _observed(found, model, sku)
            wrong = [reason for pod in mine if (reason := _misplaced(pod, sku, by_name)) is not None]
            if len(mine) < sku.replicas:
                wrong.insert(0, f"{len(mine)} replicas, not {sku.replicas}")
            held_on = {pod.node for pod in mine if pod.node is not None}
            over = sorted(node for node in held_on & by_name.keys() if held[node] > by_name[node].gpus)
            wrong += [f"{node} has {by_name[node].gpus} GPUs and its pods hold {held[node]}" for node in over]
            where = ", ".join(f"{pod.name} on {pod.node}" for pod in mine)
            good = f"{where}; {sku.gpus} GPUs each" if sku.gpus else where
            results.append(
                Result(
                    name=f"placement/{model.name}/{sku.name}",
                    ok=not wrong,
                    seconds=seconds,
                    reason="; ".join(wrong) or good,
                )
            )
    return [*_products(plan, nodes, seconds), *results]


def _products(plan: Plan, nodes: Sequence[Node], seconds: float) -> list[Result]:
    """Per SKU whose nodes the stack made: each has the GPU product that the SKU was planned for, as it found it."""
    planned = {
        sku.name: sku.node_labels[names.NODE_GPU_PRODUCT_LABEL]
        for model in plan.models
        for sku in model.skus
        if names.NODE_GPU_PRODUCT_LABEL in sku.node_labels
    }
    results = []
    for sku, product in planned.items():
        mine = {
            node.name: node.labels.get(names.NODE_GPU_PRODUCT_LABEL)
            for node in nodes
            if node.labels.get(names.LABEL_SKU) == sku
        }
        wrong = [f"{node} has {found or 'no GPU product'}" for node, found in sorted(mine.items()) if found != product]
        if mine:
            reason = f"{', '.join(wrong)}, not {product}" if wrong else f"{len(mine)} with {product}"
            results.append(Result(name=f"nodes/{sku}", ok=not wrong, seconds=seconds, reason=reason))
    return results


def addon_result(addon: str, status: str, seconds: float) -> Result:
    """An add-on works when EKS says that it is ACTIVE; else `status` is what it said, or why it could not be asked."""
    return Result(name=f"addon/{addon}", ok=status == ADDON_WORKS, seconds=seconds, reason=status)


def gpu_results(
    plan: Plan, daemon_pods: Mapping[DaemonSetPlan, Sequence[DaemonPod] | None], nodes: Sequence[Node], seconds: float
) -> list[Result]:
    """Per DaemonSet of the GPU stack: a ready pod on every GPU node. Of all GPU nodes: they offer their GPUs."""
    if plan.gpus is None:
        return []
    mine = verification_observe.gpu_nodes(plan.gpus, nodes)
    judged = {
        verification_observe.daemon_check(one): verification_observe.daemon_verdict(daemon_pods.get(one), mine)
        for one in plan.gpus.daemon_sets
    }
    judged[verification_observe.NODES_CHECK] = verification_observe.offer_verdict(plan.gpus, mine)
    return [
        Result(name=name, ok=verdict.ok, seconds=seconds, reason=verdict.reason) for name, verdict in judged.items()
    ]


def observation_questions(plan: Plan) -> list[Question]:
    """What monitoring is asked, once the fleet serves."""
    return [] if plan.monitoring is None else verification_observe.questions(plan.monitoring)


def observed(question: Question, answers: Sequence[Any], found: Sequence[Pod], seconds: float) -> Result:
    """The judgement on an answer; of the replicas, those count that are ready."""
    ready = sorted((pod for pod in found if pod.ready), key=lambda pod: pod.name)
    verdict = verification_observe.judged(question, answers, ready)
    return Result(name=question.name, ok=verdict.ok, seconds=seconds, reason=verdict.reason)


def stamp(plan: Plan, results: Sequence[Result]) -> Manifest:
    """The object whose age tells when all that must be true was last proved."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": pods.metadata(
            names.VERIFICATION_STAMP, plan.namespace, pods.labels("verification", names.VERIFICATION_STAMP)
        ),
        "data": {"checks": str(len(results))},
    }


def reader_nodes(plan: Plan, found: Sequence[Pod], nodes: Sequence[Node]) -> list[Node]:
    """The nodes that must read the store: all that replicas can be on; for a SKU without labels, where they are."""
    chosen: set[str] = set()
    for model in plan.models:
        for sku in model.skus:
            if sku.node_labels:
                chosen |= {node.name for node in nodes if selects(sku.node_labels, node)}
            else:
                chosen |= {pod.node for pod in _observed(found, model, sku) if pod.node is not None}
    return sorted((node for node in nodes if node.name in chosen), key=lambda node: node.name)


def write_check() -> str:
    return "store/write"


def read_check(node: str) -> str:
    return f"store/read/{node}"


def client_checks(plan: Plan, found: Sequence[Pod]) -> list[Check]:
    """What a client in the cluster checks, in the order in which a fault shows its cause first."""
    checks = []
    for model in plan.models:
        mine = [pod for sku in model.skus for pod in _observed(found, model, sku)]
        known = [pod for pod in mine if pod.address is not None]
        shared = names.service_host(names.service_name(model.name), plan.namespace)
        headless = names.service_host(names.headless_name(model.name), plan.namespace)
        served = {"model": model.name, "version": model.version}
        replicas = {str(pod.address): pod.sku for pod in known}

        def check(name: str, kind: Kind, **arguments: object) -> None:
            checks.append(Check(name=name, kind=kind, arguments=arguments))

        check(f"service/{model.name}/dns", "resolve", host=shared, addresses=None)
        # A SKU that the stack has just lost still serves: its Deployment goes after everything is proved.
        serving = sorted(str(pod.address) for pod in found if pod.model == model.name and pod.address is not None)
        check(f"replicas/{model.name}/dns", "resolve", host=headless, addresses=serving)
        for protocol in ("http", "grpc"):
            check(f"service/{model.name}/live/{protocol}", "live", host=shared, protocol=protocol)
            check(f"service/{model.name}/ready/{protocol}", "ready", host=shared, protocol=protocol)
            check(f"service/{model.name}/index/{protocol}", "index", host=shared, protocol=protocol, **served)
        for pod in known:
            check(f"replica/{pod.name}/version", "version", host=pod.address, protocol="http", **served)
            if model.name not in plan.unproved:
                check(f"replica/{pod.name}/answer", "answer", host=pod.address, protocol="grpc", **served)
        if model.name in plan.unproved:
            continue
        for protocol in ("http", "grpc"):
            check(f"service/{model.name}/answer/{protocol}", "answer", host=shared, protocol=protocol, **served)
        wanted = [sku.name for sku in model.skus]
        check(f"service/{model.name}/spread", "spread", host=shared, replicas=replicas, skus=wanted, **served)
    return checks


def job(  # noqa: PLR0913 - what a Job is
    order: Order, run: str, purpose: str, arguments: Sequence[str], node: str | None, *, writable: bool
) -> Manifest:
    """A Job of one run of verification: the program with the arguments, on the node if one is named."""
    plan = order.plan
    name = f"verify-{run}-{purpose}"
    labels = names.common_labels(names.Component.VERIFICATION, "verification", name)
    store_volume, store_mount = pods.store_volume(plan.claim, writable=writable)
    program_volume, program_mount = pods.config_volume("verification", order.config_map, MOUNT)
    tmp_volume, tmp_mount = pods.scratch(SCRATCH_MIB)
    container = {
        "name": "verification",
        "image": own_images.image(plan.images, own_images.VERIFICATION),
        "imagePullPolicy": plan.images.pull_policy,
        "command": ["python3", "-u", f"{MOUNT}/{PROGRAM}", *arguments],
        "env": [
            {"name": "HOME", "value": pods.TMP_MOUNT},
            {"name": "PYTHONDONTWRITEBYTECODE", "value": "1"},
            # gRPC's own resolver does not walk the search domains as the C library's does.
            {"name": "GRPC_DNS_RESOLVER", "value": "native"},
        ],
        "resources": {"requests": {"cpu": "50m", "memory": "128Mi"}, "limits": {"memory": "1Gi"}},
        "securityContext": pods.container_security(),
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [program_mount, store_mount, tmp_mount],
    }
    every = [toleration for model in plan.models for sku in model.skus for toleration in sku.tolerations]
    unique = [toleration for number, toleration in enumerate(every) if toleration not in every[:number]]
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": pods.metadata(name, plan.namespace, labels),
        "spec": {
            "backoffLimit": 0,
            "activeDeadlineSeconds": plan.deadline_s + JOB_MARGIN_S,
            "ttlSecondsAfterFinished": JOB_KEPT_S,
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    **pods.pod_defaults(plan.serving, plan.images),
                    **({"nodeName": node, "tolerations": unique} if node is not None else {}),
                    "restartPolicy": "Never",
                    "terminationGracePeriodSeconds": 5,
                    "containers": [container],
                    "volumes": [program_volume, store_volume, tmp_volume],
                },
            },
        },
    }


def complete(wanted: Iterable[str], got: Iterable[Result], problem: str) -> list[Result]:
    """One result per check wanted, in that order: a check that nobody reported has failed, for the reason given."""
    by_name = {result.name: result for result in got}
    return [
        by_name.get(name) or Result(name=name, ok=False, seconds=0.0, reason=f"did not run: {problem}")
        for name in wanted
    ]


def failed(results: Sequence[Result]) -> list[Result]:
    return [result for result in results if not result.ok]


def table(results: Sequence[Result]) -> str:
    """The report as people read it."""
    width = max((len(result.name) for result in results), default=0)
    lines = [
        f"{'ok  ' if result.ok else 'FAIL'}  {result.name:<{width}}  {result.seconds:6.2f} s  {result.reason}"
        for result in results
    ]
    bad = len(failed(results))
    total = f"{len(results)} checks, " + (f"{bad} FAILED" if bad else "all ok")
    return "\n".join([*lines, total])


def first_look(plan: Plan, results: Sequence[Result]) -> str:
    """Where to look first: what tells most about the first check that failed. Checks stand in the order of causes."""
    bad = failed(results)
    if not bad:
        return ""
    kind, _, rest = bad[0].name.partition("/")
    subject, _, what = rest.partition("/")
    if kind == "addon":
        return f"kubectl -n {names.NAMESPACE_SYSTEM} get pods -o wide"
    if bad[0].name == verification_observe.NODES_CHECK:
        return f"kubectl describe nodes -l {names.NODE_GPU_LABEL}={names.NODE_GPU_LABEL_VALUE}"
    if kind == "gpus":
        return f"kubectl -n {subject} describe daemonset {what}"
    if kind == "monitoring" and plan.monitoring is not None:
        return f"kubectl {verification_observe.first_look(plan.monitoring, bad[0].name)}"
    slices = "get endpointslices -o wide -l kubernetes.io/service-name="
    look = {
        "placement": f"describe pods -l {names.LABEL_MODEL}={subject},{names.LABEL_SKU}={what}",
        "nodes": f"describe nodes -l {names.LABEL_SKU}={subject}",
        "store": f"describe pvc {plan.claim}",
        "replica": f"logs {subject}",
        "replicas": f"{slices}{names.headless_name(subject)}",
        "service": f"{slices}{names.service_name(subject)}",
    }[kind]
    if kind == "service" and what.startswith("answer"):
        look = f"logs -l {names.LABEL_MODEL}={subject} --prefix"
    return f"kubectl -n {plan.namespace} {look}"
