"""Whether a configuration can work: rules between settings, and between settings and the model repository.

A refusal is a configuration that cannot work; a warning is one that works, at a price its owner should know.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from pydantic import TypeAdapter, ValidationError

from fleet import (
    capacity,
    model_repository,
    names,
    own_images,
    preflight_autoscaling,
    preflight_charts,
    preflight_cloud,
    preflight_memory,
    preflight_monitoring,
    preflight_observe,
    workload,
)
from fleet.faults import Fault, Refused, shown
from fleet.schema import (
    Charts,
    Cluster,
    Images,
    ModelSettings,
    Serving,
    Settings,
    Sku,
    Store,
    Verification,
    gpus_per_replica,
    of_environment,
)
from fleet.schema_base import Model
from fleet.schema_observe import Monitoring, Receiver, Route

if TYPE_CHECKING:
    from pathlib import Path

    from fleet.model_repository import ModelFolder

RUNTIMES_OF_LOCAL: Final = frozenset({"python", "native"})
"""Runtimes that the image of CPU-only Triton has."""

RUNTIMES_PREPARED: Final = frozenset({"tensorrt_llm", "llmapi", "vllm"})
"""Runtimes whose model is prepared on the GPUs that serve it, so that nobody knows its answers beforehand."""

_Part = TypeVar("_Part", bound=Model)
_Kind = TypeVar("_Kind")
# A union has no type of its own: mypy refuses it here or not by what its cache holds.
_CLUSTER: Final[TypeAdapter[Cluster]] = TypeAdapter(cast("Any", Cluster))
_STORE: Final[TypeAdapter[Store]] = TypeAdapter(cast("Any", Store))
_RECEIVER: Final[TypeAdapter[Receiver]] = TypeAdapter(cast("Any", Receiver))


@dataclass(frozen=True, slots=True)
class Preflight:
    """The verdict: `refusals` stop the program before anything is registered, `warnings` are shown."""

    refusals: tuple[Fault, ...]
    warnings: tuple[Fault, ...]


@dataclass(frozen=True, slots=True)
class Draft:
    """As much of the settings as could be read, by index in the stack file, and all names, also of what could not."""

    environment: str | None
    skus: Mapping[int, Sku]
    models: Mapping[int, ModelSettings]
    verification: Verification | None
    cluster: Cluster | None
    store: Store | None
    images: Images | None
    charts: Charts | None
    client_cidrs: tuple[str, ...]
    namespace: str | None
    monitoring: Monitoring | None
    receivers: Mapping[int, Receiver]
    routes: Mapping[int, Route]
    receiver_names: tuple[tuple[int, str], ...]
    dead_mans_switch: bool
    sku_names: tuple[tuple[int, str], ...]
    model_names: tuple[tuple[int, str], ...]

    @property
    def whole(self) -> bool:
        """Whether every SKU and model could be read, so that sums over them mean something."""
        return len(self.skus) == len(self.sku_names) and len(self.models) == len(self.model_names)

    @classmethod
    def of(cls, settings: Settings) -> Draft:
        return cls(
            environment=settings.environment,
            skus=dict(enumerate(settings.skus)),
            models=dict(enumerate(settings.models)),
            verification=settings.verification,
            cluster=settings.cluster,
            store=settings.store,
            images=settings.images,
            charts=settings.charts,
            client_cidrs=settings.serving.client_cidrs,
            namespace=settings.serving.namespace,
            monitoring=settings.monitoring,
            receivers=dict(enumerate(settings.alerts.receivers)),
            routes=dict(enumerate(settings.alerts.routes)),
            receiver_names=tuple((index, one.name) for index, one in enumerate(settings.alerts.receivers)),
            dead_mans_switch=settings.alerts.dead_mans_switch is not None,
            sku_names=tuple((index, sku.name) for index, sku in enumerate(settings.skus)),
            model_names=tuple((index, model.name) for index, model in enumerate(settings.models)),
        )

    @classmethod
    def of_raw(cls, raw: Mapping[str, object]) -> Draft:
        values = of_environment(raw)
        environment = values.get("environment")
        verification = _parts(Verification, [values.get("verification", {})])
        serving = _parts(Serving, [values.get("serving")]).get(0)
        alerts = values.get("alerts")
        alerts = alerts if isinstance(alerts, Mapping) else {}
        return cls(
            environment=environment if isinstance(environment, str) else None,
            skus=_parts(Sku, values.get("skus")),
            models=_parts(ModelSettings, values.get("models")),
            verification=verification.get(0),
            cluster=_one(_CLUSTER, values.get("cluster")),
            store=_one(_STORE, values.get("store", {})),
            images=_parts(Images, [values.get("images")]).get(0),
            charts=_parts(Charts, [values.get("charts", {})]).get(0),
            client_cidrs=serving.client_cidrs if serving is not None else (),
            namespace=serving.namespace if serving is not None else None,
            monitoring=_parts(Monitoring, [values.get("monitoring", {})]).get(0),
            receivers={
                index: receiver
                for index, raw_receiver in enumerate(_items(alerts.get("receivers")))
                if (receiver := _one(_RECEIVER, raw_receiver)) is not None
            },
            routes=_parts(Route, alerts.get("routes")),
            receiver_names=_names(alerts.get("receivers")),
            dead_mans_switch=alerts.get("dead_mans_switch") is not None,
            sku_names=_names(values.get("skus")),
            model_names=_names(values.get("models")),
        )


def check(settings: Settings, project: Path) -> Preflight:
    """The verdict over settings that loaded; `project` is the folder that `repository` settings are relative to."""
    draft = Draft.of(settings)
    return Preflight(
        refusals(draft, project),
        (
            *_single_replicas(settings),
            *_unproved(draft, project),
            *preflight_memory.warnings(draft),
            *preflight_cloud.warnings(draft),
            *preflight_observe.warnings(draft),
            *preflight_autoscaling.warnings(draft),
            *preflight_monitoring.left_out(settings),
        ),
    )


def refusals(draft: Draft, project: Path) -> tuple[Fault, ...]:
    """What is refused of that which could be read."""
    return (
        *_duplicates("skus", draft.sku_names),
        *_duplicates("models", draft.model_names),
        *(fault for index, sku in draft.skus.items() for fault in _sku(f"skus[{index}]", sku)),
        *_same_nodes(draft),
        *(fault for index, model in draft.models.items() for fault in _model(f"models[{index}]", model, draft)),
        *_object_names(draft),
        *_too_many_gpus(draft),
        *(
            fault
            for index, model in draft.models.items()
            for fault in _folder(f"models[{index}]", model, draft, project)
        ),
        *_deadlines(draft.verification),
        *preflight_memory.refusals(draft),
        *preflight_cloud.refusals(draft),
        *(() if draft.charts is None else preflight_charts.refusals(draft.charts, project)),
        *preflight_observe.refusals(draft),
        *preflight_monitoring.refusals(draft),
        *preflight_autoscaling.refusals(draft),
        *_images(draft),
    )


def _items(raw: object) -> Sequence[object]:
    return raw if isinstance(raw, (list, tuple)) else ()


def _parts(kind: type[_Part], raw: object) -> dict[int, _Part]:
    parts: dict[int, _Part] = {}
    for index, item in enumerate(_items(raw)):
        try:
            parts[index] = kind.model_validate(item)
        except ValidationError:
            continue
    return parts


def _one(adapter: TypeAdapter[_Kind], raw: object) -> _Kind | None:
    try:
        return adapter.validate_python(raw)
    except ValidationError:
        return None


def _names(raw: object) -> tuple[tuple[int, str], ...]:
    found = [(index, item.get("name") if isinstance(item, Mapping) else None) for index, item in enumerate(_items(raw))]
    return tuple((index, name if isinstance(name, str) else "") for index, name in found)


def _duplicates(setting: str, named: tuple[tuple[int, str], ...]) -> Iterator[Fault]:
    first: dict[str, int] = {}
    for index, name in named:
        if name and name in first:
            yield Fault(
                f"{setting}[{index}].name",
                shown(name),
                "a name of its own",
                f"{setting}[{first[name]}] has that name, and Kubernetes objects are found by it",
                "rename one of the two",
            )
        first.setdefault(name, index)


def _bounds(setting: str, low: int, high: int, what: str) -> Iterator[Fault]:
    if low > high:
        yield Fault(
            f"{setting}.min",
            str(low),
            f"at most {setting}.max, which is {high}",
            f"there is no number of {what} between the two",
            "lower min or raise max",
        )


def _sku(setting: str, sku: Sku) -> Iterator[Fault]:
    yield from _bounds(f"{setting}.nodes", sku.nodes.min, sku.nodes.max, "nodes")
    if sku.gpu_product is not None and sku.gpus_per_node == 0:
        yield Fault(
            f"{setting}.gpus_per_node",
            "0",
            "1 or more",
            f"the SKU has a GPU product, {sku.gpu_product}, but no GPU to run on",
            "say how many GPUs a node has, or leave gpu_product out",
        )
    if sku.gpu_product is None and sku.gpus_per_node > 0:
        yield Fault(
            f"{setting}.gpu_product",
            "nothing",
            "the product that the nodes' label nvidia.com/gpu.product names",
            f"the SKU has {sku.gpus_per_node} GPUs a node, and pods find its nodes by their product",
            "add gpu_product, or set gpus_per_node to 0",
        )


def _same_nodes(draft: Draft) -> Iterator[Fault]:
    first: dict[frozenset[tuple[str, str]], int] = {}
    for index, sku in draft.skus.items():
        labels = frozenset(sku.labels.items())
        if labels in first:
            yield Fault(
                f"skus[{index}].labels",
                shown(dict(sorted(labels))),
                "labels that no other SKU has",
                f"skus[{first[labels]}] selects the same nodes, so pods of one SKU would run on the other's "
                "and its GPUs would count twice",
                "add a label that tells the nodes apart, or make the two one SKU",
            )
        first.setdefault(labels, index)


def _model(setting: str, model: ModelSettings, draft: Draft) -> Iterator[Fault]:
    if draft.environment == "local" and model.runtime not in RUNTIMES_OF_LOCAL:
        yield Fault(
            f"{setting}.runtime",
            shown(model.runtime),
            f"on environment local: {' or '.join(sorted(RUNTIMES_OF_LOCAL))}",
            "local's Triton runs on CPUs and has no TensorRT-LLM and no vLLM",
            "choose another runtime, or another environment for this model",
        )
    if model.shm_mib >= model.resources.memory_mib:
        yield Fault(
            f"{setting}.shm_mib",
            str(model.shm_mib),
            f"less than {setting}.resources.memory_mib, which is {model.resources.memory_mib}",
            "its shared memory counts into the pod's memory, and the server needs the rest",
            "lower shm_mib or raise memory_mib",
        )
    placed: dict[str, int] = {}
    known = list(dict.fromkeys(name for _, name in draft.sku_names))
    readable = known and all(names.is_dns_label(name) for name in known)
    skus = {sku.name: sku for sku in draft.skus.values()}
    for index, placement in enumerate(model.placements):
        where = f"{setting}.placements[{index}]"
        yield from _bounds(f"{where}.replicas", placement.replicas.min, placement.replicas.max, "replicas")
        if placement.sku in placed:
            yield Fault(
                f"{where}.sku",
                shown(placement.sku),
                "each SKU once",
                f"{setting}.placements[{placed[placement.sku]}] places the model there already",
                "make the two one placement",
            )
        placed.setdefault(placement.sku, index)
        if readable and placement.sku not in known:
            close = difflib.get_close_matches(placement.sku, known, n=1)
            yield Fault(
                f"{where}.sku",
                shown(placement.sku),
                f"one of {', '.join(known)}",
                "a model runs on nodes of a SKU that is configured",
                f"did you mean '{close[0]}'?" if close else "add the SKU to skus, or name one that is there",
            )
        elif placement.sku in skus:
            yield from _parallelism(setting, model, skus[placement.sku])


def _parallelism(setting: str, model: ModelSettings, sku: Sku) -> Iterator[Fault]:
    product = f"{model.tensor_parallel} x {model.pipeline_parallel} = {model.gpus} GPUs"
    if sku.gpu_product is None and sku.gpus_per_node == 0:
        if model.gpus > 1:
            yield Fault(
                f"{setting}.tensor_parallel",
                product,
                "1 x 1",
                f"SKU '{sku.name}' has no GPU to spread a replica over",
                "set both to 1, or place the model on a SKU with GPUs",
            )
    elif model.gpus > sku.gpus_per_node > 0:
        yield Fault(
            f"{setting}.tensor_parallel",
            product,
            f"{sku.gpus_per_node} GPUs",
            f"the GPUs of a replica are on one node, and a node of SKU '{sku.name}' has {sku.gpus_per_node}",
            "lower tensor_parallel x pipeline_parallel, or place the model on a SKU with more GPUs a node",
        )


def _object_names(draft: Draft) -> Iterator[Fault]:
    services: dict[str, str] = {}
    deployments: dict[str, str] = {}
    for index, model in draft.models.items():
        for service in (names.service_name(model.name), names.headless_name(model.name)):
            if len(service) > names.LABEL_MAX_CHARS:
                yield _too_long(f"models[{index}].name", service, names.LABEL_MAX_CHARS, "Service")
            taken = services.setdefault(service, model.name)
            if taken != model.name:
                yield _taken(f"models[{index}].name", service, f"model '{taken}'", "Service")
        for number, placement in enumerate(model.placements):
            where = f"models[{index}].placements[{number}].sku"
            deployment = names.deployment_name(model.name, placement.sku)
            if len(deployment) > names.WORKLOAD_MAX_CHARS:
                yield _too_long(where, deployment, names.WORKLOAD_MAX_CHARS, "Deployment")
            taken = deployments.setdefault(deployment, model.name)
            if taken != model.name:
                yield _taken(where, deployment, f"model '{taken}'", "Deployment")


def _too_long(setting: str, name: str, limit: int, kind: str) -> Fault:
    return Fault(
        setting,
        f"{shown(name)}, {len(name)} characters",
        f"{limit} characters for the name of the {kind}",
        "a pod's name is its host name too, at most 63 characters, and Kubernetes appends up to "
        f"{names.POD_SUFFIX_CHARS} to a Deployment's"
        if kind == "Deployment"
        else "RFC 1035 limits it",
        "shorten the model's name or the SKU's",
    )


def _taken(setting: str, name: str, owner: str, kind: str) -> Fault:
    return Fault(
        setting,
        shown(name),
        f"the name of a {kind} that is free",
        f"{owner} has a {kind} of that name: names are joined with hyphens, and these join to the same",
        "rename the model or the SKU",
    )


def _too_many_gpus(draft: Draft) -> Iterator[Fault]:
    if not draft.whole:
        return
    models = list(draft.models.values())
    for index, sku in draft.skus.items():
        wanted = [demand for demand in capacity.demands(models, sku) if 0 < demand.gpus <= sku.gpus_per_node]
        if wanted and not capacity.fits(wanted, sku.gpus_per_node, sku.nodes.max):
            total = sum(demand.replicas * demand.gpus for demand in wanted)
            each = ", ".join(f"{demand.model} {demand.replicas} x {demand.gpus}" for demand in wanted)
            yield Fault(
                f"skus[{index}].nodes.max",
                f"{sku.nodes.max} nodes of {sku.gpus_per_node} GPUs; wanted at most: {each} = {total} GPUs",
                f"nodes that hold every replica of every model on SKU '{sku.name}'",
                "replicas above that would stay pending just when the load asks for them",
                "raise nodes.max, or lower replicas.max of the models placed there",
            )


def _folder(setting: str, model: ModelSettings, draft: Draft, project: Path) -> Iterator[Fault]:
    try:
        folder = model_repository.read(project, model.repository, f"{setting}.repository")
    except Refused as refused:
        yield from refused.faults
        return
    where = f"{setting}.repository"
    if folder.name != model.name:
        yield Fault(
            where,
            shown(model.repository),
            f"a folder named '{model.name}', as {setting}.name says",
            "Triton takes a model's name from its folder; clients, labels and verification use the configured one",
            "rename the folder or the model",
        )
    if folder.config.name not in ("", folder.name):
        yield Fault(
            where,
            f"{model.repository}/{model_repository.CONFIG_FILE}: name: {shown(folder.config.name)}",
            f"'{folder.name}', as the folder is named, or no name",
            "Triton refuses a model whose name differs from its folder's",
            "correct the name",
        )
    yield from _version(setting, model, folder)
    yield from _backend(where, model, folder)
    yield from _kinds(where, model, folder, draft)
    if folder.verification is None and model.runtime not in RUNTIMES_PREPARED:
        yield _without_answers(
            where, model, "an update is proved by an inference whose answer was computed without Triton"
        )


def _without_answers(where: str, model: ModelSettings, why: str) -> Fault:
    return Fault(
        where,
        f"{model.repository}, without {model_repository.VERIFICATION_FILE}",
        "a known input and its answer for each model",
        why,
        f"write {model.repository}/{model_repository.VERIFICATION_FILE}",
    )


def _unproved(draft: Draft, project: Path) -> Iterator[Fault]:
    """Models of which no answer is known; for some runtimes there is none before the model was prepared."""
    for index, model in draft.models.items():
        if model.runtime not in RUNTIMES_PREPARED:
            continue
        try:
            folder = model_repository.read(project, model.repository)
        except Refused:
            continue
        if folder.verification is None:
            yield _without_answers(
                f"models[{index}].repository",
                model,
                "until then an update proves that the model is ready, not that it answers rightly",
            )


def _images(draft: Draft) -> Iterator[Fault]:
    if draft.environment is not None and draft.images is not None and draft.cluster is not None:
        yield from own_images.refusals(draft.environment, draft.images, draft.cluster.source)


def _version(setting: str, model: ModelSettings, folder: ModelFolder) -> Iterator[Fault]:
    there = ", ".join(str(version) for version in folder.versions) or "none"
    if model.version not in folder.versions:
        yield Fault(
            f"{setting}.version",
            str(model.version),
            f"a version whose folder holds a file; {model.repository} has {there}",
            "Triton loads a version from the folder of its number",
            f"add {model.repository}/{model.version}, or name a version that is there",
        )
    elif not folder.config.serves(model.version, folder.versions):
        yield Fault(
            f"{setting}.version",
            str(model.version),
            f"a version that version_policy in {model.repository}/{model_repository.CONFIG_FILE} serves",
            f"the folder has {there}, and the policy (without one: the newest alone) leaves this one out",
            f"set version_policy: {{ specific: {{ versions: [ {model.version} ] }} }}",
        )


def _backend(where: str, model: ModelSettings, folder: ModelFolder) -> Iterator[Fault]:
    config = folder.config
    got = config.backend or config.platform
    if model.runtime == "python":
        right, limit = config.backend == "python", "'python'"
    elif model.runtime == "native":
        right, limit = got not in ("", "python"), "a backend or platform other than python"
    else:
        return
    if not right:
        yield Fault(
            where,
            f"{model.repository}/{model_repository.CONFIG_FILE}: backend: {shown(got)}",
            f"{limit}, as runtime '{model.runtime}' says",
            "the runtime decides what a replica needs, the backend what Triton loads; they must agree",
            "correct the backend or the runtime",
        )


def _kinds(where: str, model: ModelSettings, folder: ModelFolder, draft: Draft) -> Iterator[Fault]:
    skus = {sku.name: sku for sku in draft.skus.values()}
    bare = [
        placement.sku
        for placement in model.placements
        if placement.sku in skus and gpus_per_replica(model, skus[placement.sku]) == 0
    ]
    if bare and "KIND_GPU" in folder.config.kinds:
        yield Fault(
            where,
            f"{model.repository}/{model_repository.CONFIG_FILE}: kind: KIND_GPU",
            "KIND_CPU or KIND_AUTO",
            f"the model is placed on {', '.join(bare)}, which has no GPU",
            "correct the instance group, or place the model elsewhere",
        )


def _deadlines(verification: Verification | None) -> Iterator[Fault]:
    if verification is not None and verification.check_deadline_s > verification.deadline_s:
        yield Fault(
            "verification.check_deadline_s",
            str(verification.check_deadline_s),
            f"at most verification.deadline_s, which is {verification.deadline_s}",
            "a check cannot take longer than all of them",
            "lower check_deadline_s or raise deadline_s",
        )


def _single_replicas(settings: Settings) -> Iterator[Fault]:
    skus = {sku.name: sku for sku in settings.skus}
    for index, model in enumerate(settings.models):
        for number, placement in enumerate(model.placements):
            sku = skus.get(placement.sku)
            if sku is None or placement.replicas.min > 1 or model.gpus > sku.gpus_per_node > 0:
                continue
            if workload.rollout(settings, model, sku).surge:
                continue
            yield Fault(
                f"models[{index}].placements[{number}].replicas.min",
                str(placement.replicas.min),
                f"2, or GPUs that are free for one more replica ({model.gpus}) on SKU '{sku.name}'",
                "without a spare GPU an update stops the old replica before the new one starts; for that time the SKU "
                "does not serve the model",
                "raise replicas.min, raise nodes.max, or lower a replicas.max on that SKU",
            )
