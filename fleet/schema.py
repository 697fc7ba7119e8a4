"""The settings: what a stack file may say, typed, bounded and frozen.

Each field carries what a person needs when it is wrong: its description, its bounds, and `why` those bounds exist.
Errors and the settings reference are both made from here (`fleet.settings`, `fleet.settings_reference`). Rules between
settings, and between settings and files, are `fleet.preflight`'s.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Annotated, Any, Final, Literal, NoReturn, get_args

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from fleet import names

GPUS_PER_NODE_MAX: Final = 16
"""AWS p2.16xlarge, the most GPUs of any EC2 instance: https://docs.aws.amazon.com/ec2/latest/instancetypes/ac.html"""
NODES_MAX: Final = 450
"""Nodes of one EKS managed node group: https://docs.aws.amazon.com/eks/latest/userguide/service-quotas.html"""
REPLICAS_MAX: Final = 1000
"""Endpoints of one EndpointSlice at its default cap times ten: far above any fleet this program was made for."""
LOAD_TIMEOUT_MAX_S: Final = 7200
WIDEST_IPV4_PREFIX: Final = 8
WIDEST_IPV6_PREFIX: Final = 32

RESERVED_NAMESPACES: Final = frozenset({"default", names.NAMESPACE_SYSTEM, names.NAMESPACE_MONITORING})

_LABEL_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_LABEL_PREFIX = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_IMAGE = re.compile(
    r"([a-z0-9]([-a-z0-9.]*[a-z0-9])?(:[0-9]+)?/)?[a-z0-9]+([._-]+[a-z0-9]+)*(/[a-z0-9]+([._-]+[a-z0-9]+)*)*"
    r"(:(?P<tag>[A-Za-z0-9_][-A-Za-z0-9_.]{0,127}))?(@(?P<digest>sha256:[0-9a-f]{64}))?"
)
_TAINT_EFFECTS: Final = {
    "NO_SCHEDULE": "NoSchedule",
    "PREFER_NO_SCHEDULE": "PreferNoSchedule",
    "NO_EXECUTE": "NoExecute",
}

FAULT_TYPE: Final = "fleet_fault"
"""The type of pydantic errors whose context already holds the limit, why and fix of a `fleet.faults.Fault`."""


@dataclass(frozen=True, slots=True)
class Form:
    """What a text must look like, in words; stands among the metadata of a type, for errors and the reference."""

    text: str


def _refuse(limit: str, why: str, fix: str) -> NoReturn:
    raise PydanticCustomError(FAULT_TYPE, "refused", {"limit": limit, "why": why, "fix": fix})


def _dns_label(text: str) -> str:
    if not names.is_dns_label(text):
        _refuse(
            f"a DNS label: lower-case letters, digits and hyphens inside, 1 to {names.LABEL_MAX_CHARS} characters",
            "it becomes part of the names of Kubernetes objects, which RFC 1123 limits",
            "choose a name of lower-case letters, digits and hyphens",
        )
    return text


def _service_name(text: str) -> str:
    _dns_label(text)
    if not text[0].isalpha():
        _refuse(
            "a DNS label that begins with a letter",
            "it becomes the name of a Service, which RFC 1035 limits further: a letter comes first",
            f"put a letter before it, for example 'm{text}'",
        )
    return text


def _namespace(text: str) -> str:
    _dns_label(text)
    if text in RESERVED_NAMESPACES or text.startswith("kube-"):
        _refuse(
            f"a namespace of its own, not {', '.join(sorted(RESERVED_NAMESPACES))} or kube-…",
            "the serving namespace denies all traffic that it does not name and admits restricted pods only; "
            "what else lives there would stop working",
            "leave it out for triton-<environment>, or name a namespace that nothing else uses",
        )
    return text


def _label_key(text: str) -> str:
    prefix, slash, name = text.rpartition("/")
    if (slash and _LABEL_PREFIX.fullmatch(prefix) is None) or _LABEL_NAME.fullmatch(name) is None:
        _refuse(
            "a Kubernetes label key: [prefix/]name, the name of 1 to 63 letters, digits, '-', '_' and '.'",
            "the API server refuses an object with any other",
            "correct the key",
        )
    return text


def _label_value(text: str) -> str:
    if text and _LABEL_NAME.fullmatch(text) is None:
        _refuse(
            "a Kubernetes label value: at most 63 letters, digits, '-', '_' and '.', letter or digit at both ends",
            "the API server refuses an object with any other",
            "correct the value; spaces are written as hyphens, as GPU feature discovery does",
        )
    return text


def _taint_effect(value: object) -> object:
    return _TAINT_EFFECTS.get(value, value) if isinstance(value, str) else value


def _image(text: str) -> str:
    match = _IMAGE.fullmatch(text)
    if match is None or (match["digest"] is None and match["tag"] in (None, "latest")):
        _refuse(
            "a pinned image: name:tag with a tag other than 'latest', or name@sha256:…",
            "without a pin two replicas can run different programs, and an update cannot be undone",
            "name the tag or the digest",
        )
    return text


def _node_path(text: str) -> str:
    path = PurePosixPath(text)
    if not path.is_absolute() or ".." in path.parts or len(path.parts) < 3 or "\0" in text:  # noqa: PLR2004
        _refuse(
            "an absolute path at least two folders deep, without '..'",
            "it is a folder on the node that the program fills and owns; a shallow one would be the system's",
            "name a folder such as /var/lib/triton-fleet/store",
        )
    return str(path)


def _one_line(text: str) -> str:
    if not text.strip() or "\0" in text or "\n" in text:
        _refuse("text on one line", "it names one thing", "write the name alone, not the content of what it names")
    return text


def _cidr(text: str) -> str:
    try:
        network = ipaddress.ip_network(text)
    except ValueError:
        network = None
    if network is None or network.prefixlen < (WIDEST_IPV4_PREFIX if network.version == 4 else WIDEST_IPV6_PREFIX):  # noqa: PLR2004
        _refuse(
            f"an address range in CIDR form, host bits zero, no wider than /{WIDEST_IPV4_PREFIX} "
            f"(IPv6: /{WIDEST_IPV6_PREFIX})",
            "whoever is in the range may call the models; a wide-open range is never meant",
            "name the range that the clients are in, for example 10.20.0.0/16",
        )
    return text


def whole(minimum: int, maximum: int, why: str, description: str, **more: Any) -> Any:  # noqa: ANN401 - as pydantic.Field
    """A bounded whole number. Strict: `"8"`, `8.5` and `true` are refused, not guessed at."""
    return setting(why, description, ge=minimum, le=maximum, strict=True, **more)


def setting(why: str, description: str, derived: str = "", **more: Any) -> Any:  # noqa: ANN401 - as pydantic.Field
    """A setting; `derived` says in words what it is where it is left out and made from other settings."""
    return Field(description=description, json_schema_extra={"why": why, "derived": derived}, **more)


DnsLabel = Annotated[str, AfterValidator(_dns_label), Form("a DNS label")]
ServiceName = Annotated[str, AfterValidator(_service_name), Form("a DNS label that begins with a letter")]
Namespace = Annotated[str, AfterValidator(_namespace), Form("a DNS label, no namespace of the system's")]
LabelKey = Annotated[str, AfterValidator(_label_key), Form("a Kubernetes label key")]
LabelValue = Annotated[str, AfterValidator(_label_value), Form("a Kubernetes label value")]
TaintEffect = Annotated[Literal["NoSchedule", "PreferNoSchedule", "NoExecute"], BeforeValidator(_taint_effect)]
ImageRef = Annotated[str, AfterValidator(_image), Form("a pinned image, name:tag or name@sha256:…")]
NodePath = Annotated[str, AfterValidator(_node_path), Form("an absolute path, two folders deep or more")]
FilePath = Annotated[str, AfterValidator(_one_line), Form("a path")]
Location = Annotated[str, AfterValidator(_one_line), Form("a URL, an OCI reference or a path")]
Version = Annotated[str, AfterValidator(_one_line), Form("a version")]
Cidr = Annotated[str, AfterValidator(_cidr), Form("an address range in CIDR form")]

Environment = Literal["local", "dev", "prod"]
Runtime = Literal["python", "native", "tensorrt_llm", "llmapi", "vllm"]


class Model(BaseModel):
    """Base of all settings: frozen, and nothing but what is declared."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=False)


class Cluster(Model):
    """Where the fleet runs."""

    source: Literal["kubeconfig"] = setting(
        "these are the ways to reach a cluster that this version knows",
        "How the cluster is had: `kubeconfig` takes one that exists.",
    )
    kubeconfig: FilePath = setting(
        "no ambient kubeconfig is ever used, so that an update cannot reach a cluster by accident",
        "The kubeconfig file, relative to the project's folder.",
    )


class Serving(Model):
    """The namespace that the models are served in, and who may call them."""

    namespace: Namespace = setting(
        "it becomes the name of a namespace",
        "The serving namespace.",
        derived="`triton-<environment>`",
    )
    run_as_user: int = whole(
        1,
        2**31 - 1,
        "pods never run as root (user 0)",
        "User id that pods run as and that owns the store.",
        default=1000,
    )
    run_as_group: int = whole(
        1,
        2**31 - 1,
        "pods never run as root (group 0)",
        "Group id that pods run as and that owns the store.",
        default=1000,
    )
    client_cidrs: tuple[Cidr, ...] = setting(
        "whoever is in a range may call the models",
        "Address ranges outside the cluster from which the models may be called.",
        default=(),
        max_length=32,
    )


class Store(Model):
    """Where the models' files are kept."""

    kind: Literal["host_path"] = setting(
        "these are the stores that this version knows",
        "What holds the files: `host_path` is a folder on the machine that all nodes share.",
        default="host_path",
    )
    path: NodePath = setting(
        "it is a folder on the node",
        "The folder on the node, absolute.",
        default="/var/lib/triton-fleet/store",
    )
    size_gib: int = whole(
        1, 65536, "it is the size of the volume that the claim asks for", "Size of the volume, GiB.", default=10
    )


class Taint(Model):
    """A taint of a SKU's nodes, which the SKU's pods tolerate."""

    key: LabelKey = setting("it is the key of a node's taint", "Key of the taint.")
    value: LabelValue = setting("it is the value of a node's taint", "Value of the taint.", default="")
    effect: TaintEffect = setting(
        "Kubernetes knows these effects; AWS's spelling (NO_SCHEDULE …) is accepted too",
        "What the taint does.",
    )


class NodeBounds(Model):
    """How many nodes a SKU may have."""

    min: int = whole(0, NODES_MAX, "a node group of EKS has at most that many nodes", "Fewest nodes.")
    max: int = whole(1, NODES_MAX, "a node group of EKS has at most that many nodes", "Most nodes.")


GPU_TAINTS: Final = ({"key": names.GPU_TAINT_KEY, "value": names.GPU_TAINT_VALUE, "effect": "NoSchedule"},)


class Sku(Model):
    """One kind of node: a GPU model and how many of them, or no GPU."""

    name: DnsLabel = setting("it becomes part of the names of Deployments", "Name of the SKU.")
    gpu_product: LabelValue | None = setting(
        "pods are bound to their SKU's nodes by the label nvidia.com/gpu.product, as GPU feature discovery writes it",
        "GPU product, as GPU feature discovery writes it. Left out: nodes without a GPU.",
        default=None,
        min_length=1,
    )
    gpus_per_node: int = whole(
        0,
        GPUS_PER_NODE_MAX,
        "no machine that this program knows has more",
        "GPUs of one node; 0 without a GPU.",
        default=0,
    )
    nodes: NodeBounds = setting("a SKU needs bounds, or its cost has none", "How many nodes.")
    labels: Mapping[LabelKey, LabelValue] = setting(
        "they are labels of nodes",
        "Labels of the nodes, which pods select. What is named here is added to those of a GPU SKU.",
        derived="none, and for a GPU SKU always `nvidia.com/gpu=present`, `nvidia.com/gpu.present=true` and "
        "`nvidia.com/gpu.product=<gpu_product>`",
        default={},
        max_length=32,
    )
    taints: tuple[Taint, ...] = setting(
        "they are taints of nodes",
        "Taints of the nodes, which pods tolerate; `[]` for none.",
        derived="none, and for a GPU SKU `nvidia.com/gpu=present:NoSchedule`",
        default=(),
        max_length=16,
    )

    @model_validator(mode="before")
    @classmethod
    def _gpu_defaults(cls, data: object) -> object:
        if not isinstance(data, Mapping) or not isinstance(product := data.get("gpu_product"), str):
            return data
        if _LABEL_NAME.fullmatch(product) is None:  # refused by its own field; not once more as a label
            return data
        labels = data.get("labels", {})
        return {
            **data,
            "labels": {**names.gpu_node_labels(product), **labels} if isinstance(labels, Mapping) else labels,
            "taints": data.get("taints", GPU_TAINTS),
        }


class Resources(Model):
    """What one replica asks of its node, beside GPUs."""

    cpu: float = setting(
        "below the lower bound Triton cannot start; above the upper one no machine has so many",
        "CPU cores requested.",
        ge=0.01,
        le=448,
        strict=True,
        default=1.0,
    )
    memory_mib: int = whole(
        128,
        2**25,
        "Triton alone needs more than the lower bound; no machine has the upper",
        "Memory, MiB.",
        default=2048,
    )

    @property
    def cpu_quantity(self) -> str:
        """Cores as Kubernetes writes them, in thousandths."""
        return f"{round(self.cpu * 1000)}m"

    @property
    def memory_quantity(self) -> str:
        return f"{self.memory_mib}Mi"


class ReplicaBounds(Model):
    """How many replicas of a model a SKU may run."""

    min: int = whole(1, REPLICAS_MAX, "a model without a replica answers nobody", "Fewest replicas.")
    max: int = whole(1, REPLICAS_MAX, "a model without a replica answers nobody", "Most replicas.")


class Placement(Model):
    """A model on a SKU."""

    sku: DnsLabel = setting("it is the name of one of `skus`", "Name of the SKU.")
    replicas: ReplicaBounds = setting("a placement needs bounds, or its cost has none", "How many replicas.")


class ModelSettings(Model):
    """A model that the fleet serves."""

    name: ServiceName = setting("it becomes the name of a Service", "Name of the model, in Triton and as a Service.")
    version: int = whole(1, 2**31 - 1, "Triton's versions are whole numbers from 1", "Version that is served.")
    runtime: Runtime = setting(
        "these are the ways to run a model that this version knows",
        "What runs the model: `python` (Python backend), `native` (any backend of the stock image), "
        "`tensorrt_llm`, `llmapi` or `vllm`.",
    )
    repository: FilePath = setting(
        "the program ships that folder into the store",
        "Folder of the model in Triton's own layout, relative to the project's folder.",
        derived="`model_repo/<name>`",
    )
    tensor_parallel: int = whole(
        1,
        GPUS_PER_NODE_MAX,
        "a replica's GPUs are on one node",
        "Tensor parallelism: GPUs that share each layer.",
        default=1,
    )
    pipeline_parallel: int = whole(
        1,
        GPUS_PER_NODE_MAX,
        "a replica's GPUs are on one node",
        "Pipeline parallelism: GPUs that share the layers.",
        default=1,
    )
    load_timeout_s: int = whole(
        10,
        LOAD_TIMEOUT_MAX_S,
        "the start-up probe's budget follows it; a pod slower than that is restarted",
        "Longest time until a replica is ready, seconds.",
        default=600,
    )
    drain_timeout_s: int = whole(
        1,
        3600,
        "a pod's grace period follows it, and an update waits for it",
        "Longest time for requests in flight when a replica stops, seconds.",
        default=30,
    )
    shm_mib: int = whole(
        16,
        2**20,
        "backends pass tensors through /dev/shm, which counts into the pod's memory",
        "Size of /dev/shm, MiB.",
        default=256,
    )
    resources: Resources = setting(
        "pods ask for what they need", "What one replica asks for, beside GPUs.", default=Resources()
    )
    placements: tuple[Placement, ...] = setting(
        "a model without a placement is not served", "The SKUs that serve the model.", min_length=1, max_length=32
    )

    @model_validator(mode="before")
    @classmethod
    def _repository_default(cls, data: object) -> object:
        if not isinstance(data, Mapping) or "repository" in data or "name" not in data:
            return data
        name = data["name"] if isinstance(data["name"], str) and names.is_dns_label(data["name"]) else "unnamed"
        return {**data, "repository": f"model_repo/{name}"}

    @property
    def gpus(self) -> int:
        """GPUs of one replica on a GPU SKU: tensor times pipeline parallelism."""
        return self.tensor_parallel * self.pipeline_parallel


class Images(Model):
    """The container images."""

    triton: ImageRef = setting("it is the image that serves", "Triton's image.")
    tools: ImageRef = setting(
        "it is the image that fills the store and verifies",
        "An image with Python 3 and tritonclient, for the fleet's own Jobs.",
    )
    pull_policy: Literal["IfNotPresent", "Never"] = setting(
        "pinned images never change, so none needs to be pulled always",
        "Whether a node may pull an image that it lacks.",
        default="IfNotPresent",
    )
    pull_secrets: tuple[DnsLabel, ...] = setting(
        "each is the name of a Secret",
        "Names of Secrets in the serving namespace that hold registry credentials.",
        default=(),
        max_length=8,
    )


class Chart(Model):
    """A Helm chart in place of the default one."""

    repository: Location = setting("it is where Helm finds the chart", "Repository of the chart.")
    version: Version = setting("charts are pinned", "Version of the chart.")


class Charts(Model):
    """Where Helm charts come from."""

    mirror: Location | None = setting(
        "clusters without the internet need one",
        "A folder or an OCI registry that holds all charts. Left out: each chart's own repository.",
        default=None,
    )
    overrides: Mapping[DnsLabel, Chart] = setting(
        "it replaces the repository and version of a chart by name",
        "Charts in place of the default ones, by name.",
        default={},
    )


class Verification(Model):
    """How long verification may take."""

    deadline_s: int = whole(30, 7200, "an update must end", "Longest time for all checks, seconds.", default=600)
    check_deadline_s: int = whole(
        5, 3600, "one check must not use up the time of all", "Longest time for one check, seconds.", default=60
    )


class Settings(Model):
    """All settings of a stack, below the config namespace `triton-fleet`."""

    environment: Environment = setting("names and defaults follow it", "Which environment the stack is.")
    cluster: Cluster = setting("the fleet runs on a cluster", "Where the fleet runs.")
    serving: Serving = setting(
        "models are served somewhere", "The serving namespace, and who may call it.", derived="its defaults"
    )
    store: Store = setting("models' files are kept somewhere", "Where the models' files are kept.", default=Store())
    skus: tuple[Sku, ...] = setting(
        "a fleet without nodes serves nothing", "The kinds of node.", min_length=1, max_length=32
    )
    models: tuple[ModelSettings, ...] = setting(
        "a fleet without models serves nothing", "The models that are served.", min_length=1, max_length=64
    )
    images: Images = setting("pods run images", "The container images.")
    charts: Charts = setting("Helm charts come from somewhere", "Where Helm charts come from.", default=Charts())
    verification: Verification = setting(
        "an update must end", "How long verification may take.", default=Verification()
    )

    @model_validator(mode="before")
    @classmethod
    def _namespace_default(cls, data: object) -> object:
        if not isinstance(data, Mapping):
            return data
        serving = data.get("serving", {})
        if not isinstance(serving, Mapping) or "namespace" in serving:
            return data
        environment = data.get("environment")
        known = environment if isinstance(environment, str) and environment in get_args(Environment) else "unnamed"
        return {**data, "serving": {**serving, "namespace": names.namespace(known)}}

    def sku(self, name: str) -> Sku:
        """The SKU of that name, which preflight has seen to exist."""
        return next(sku for sku in self.skus if sku.name == name)


def gpus_per_replica(model: ModelSettings, sku: Sku) -> int:
    """GPUs that one replica of the model asks for on the SKU; none on a SKU without GPUs."""
    return model.gpus if sku.gpus_per_node else 0
