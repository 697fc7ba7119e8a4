"""The settings: what a stack file may say, typed, bounded and frozen.

Each field carries what a person needs when it is wrong: its description, its bounds, and `why` those bounds exist.
Errors and the settings reference are both made from here (`fleet.settings`, `fleet.settings_reference`). Rules between
settings, and between settings and files, are `fleet.preflight`'s.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final, Literal, get_args

from annotated_types import Ge, Le, MaxLen, MinLen
from pydantic import Discriminator, Strict, Tag, model_validator

from fleet import catalog, names
from fleet.schema_autoscaling import Autoscaling, ModelAutoscaling
from fleet.schema_base import (
    DISK_MAX_GIB,
    DISK_MIN_GIB,
    EFS_PROVISIONED_MAX_MIBPS,
    GPUS_PER_NODE_MAX,
    KEY_DELETION_MAX_DAYS,
    KEY_DELETION_MIN_DAYS,
    LABEL_NAME,
    LOAD_TIMEOUT_MAX_S,
    NODES_MAX,
    PUBLIC_CIDRS_MAX,
    REPLICAS_MAX,
    UNNAMED,
    ZONES_MAX,
    ZONES_MIN,
    AddonName,
    AddonVersion,
    Capacity,
    Choice,
    Cidr,
    ClusterName,
    DnsLabel,
    Environment,
    FilePath,
    ImageRef,
    InstanceType,
    KubernetesVersion,
    LabelKey,
    LabelValue,
    LogType,
    Mirror,
    Model,
    Namespace,
    NodePath,
    PrincipalArn,
    PublicCidr,
    Region,
    Repository,
    ReservationId,
    Runtime,
    ServiceName,
    SubnetId,
    Taint,
    Version,
    VpcCidr,
    VpcId,
    Zone,
    by,
    by_presence,
    setting,
    whole,
)
from fleet.schema_observe import Alerts, GpuStack, Monitoring, Slo


class KubeconfigCluster(Model):
    """A cluster that exists, reached by a kubeconfig file."""

    source: Literal["kubeconfig"] = setting(
        "these are the ways to reach a cluster that this version knows",
        "How the cluster is had: by a file.",
    )
    kubeconfig: FilePath = setting(
        "no ambient kubeconfig is ever used, so that an update cannot reach a cluster by accident",
        "The kubeconfig file, relative to the project's folder.",
    )


class EksExistingCluster(Model):
    """A cluster of EKS that exists, adopted by its name; nothing of it is made or changed."""

    source: Literal["eks_existing"] = setting(
        "these are the ways to reach a cluster that this version knows",
        "How the cluster is had: it exists on EKS.",
    )
    name: ClusterName = setting("the cluster is found by its name", "Name of the cluster.")
    region: Region = setting("the cluster is found in a region", "Region of the cluster.")


class Admin(Model):
    """An IAM principal that may enter the cluster."""

    principal_arn: PrincipalArn = setting("an access entry is for a principal of IAM", "ARN of the role or user.")
    policy: Literal["cluster_admin", "admin", "edit", "view"] = setting(
        "these are EKS' access policies: "
        "https://docs.aws.amazon.com/eks/latest/userguide/access-policy-permissions.html",
        "What the principal may do.",
    )
    namespaces: tuple[DnsLabel, ...] = setting(
        "each is a namespace", "Where it may; `[]` for the whole cluster.", default=(), max_length=100
    )


class SystemNodes(Model):
    """The nodes without GPU and taint that hold what serves the cluster."""

    instance_type: InstanceType = setting(
        "it is a type of the catalog", "Instance type of the nodes.", default="m7i.xlarge"
    )
    min: int = whole(1, 100, "CoreDNS and monitoring run there, always", "Fewest nodes.", default=2)
    max: int = whole(1, 100, "CoreDNS and monitoring run there, always", "Most nodes.", default=4)
    disk_gib: int = whole(
        DISK_MIN_GIB, DISK_MAX_GIB, "images and logs need room", "Root volume of a node, GiB.", default=100
    )


class NewNetwork(Model):
    """A VPC of the stack's own."""

    vpc_cidr: VpcCidr = setting(
        "each node and pod has an address of it; networks that meet must not overlap", "Address range of the VPC."
    )
    zones: Annotated[
        Annotated[int, Ge(ZONES_MIN), Le(ZONES_MAX), Strict(), Tag("count")]
        | Annotated[tuple[Zone, ...], MinLen(ZONES_MIN), MaxLen(ZONES_MAX), Tag("names")],
        Discriminator(lambda value: "names" if isinstance(value, (list, tuple)) else "count"),
    ] = setting(
        "EKS wants two zones, and the layout of the addresses has room for three",
        "Availability zones: how many, or which.",
        default=2,
    )
    nat: Literal["single", "per_zone"] = setting(
        "private nodes reach the internet through NAT gateways",
        "One NAT gateway, or one per zone, so that the loss of a zone takes no other with it.",
        default="single",
    )


class ExistingNetwork(Model):
    """A VPC that exists."""

    vpc_id: VpcId = setting("the cluster is put there", "The VPC.")
    private_subnet_ids: tuple[SubnetId, ...] = setting(
        "EKS wants subnets in two zones", "Subnets for nodes and pods.", min_length=ZONES_MIN, max_length=16
    )
    public_subnet_ids: tuple[SubnetId, ...] = setting(
        "public load balancers are put there", "Subnets for public load balancers.", default=(), max_length=16
    )


Network = Annotated[
    Annotated[NewNetwork, Tag("new")] | Annotated[ExistingNetwork, Tag("existing")],
    by_presence(("vpc_id", "private_subnet_ids"), "existing", "new"),
    Choice(None, ("a new VPC", "an existing VPC")),
]


class EksCluster(Model):
    """A cluster of EKS that the stack makes."""

    source: Literal["eks"] = setting(
        "these are the ways to reach a cluster that this version knows",
        "How the cluster is had: the stack makes it on EKS.",
    )
    name: ClusterName = setting(
        "two clusters of a region and account cannot share a name",
        "Name of the cluster.",
        derived="`triton-fleet-<environment>`",
    )
    region: Region = setting("everything of the stack is made there", "Region of the stack.")
    kubernetes_version: KubernetesVersion = setting(
        "EKS supports some versions, and add-ons fit one each", "Kubernetes version, minor.", default="1.34"
    )
    access: Literal["inside_vpc", "public"] = setting(
        "the API endpoint is private: the first `up` from a machine outside of the VPC would make a cluster and then "
        "not reach it. Say that it runs inside, or open the endpoint to ranges in public_cidrs",
        "From where the API endpoint is reached: `inside_vpc`, or `public` too, by the ranges in `public_cidrs`.",
    )
    public_cidrs: tuple[PublicCidr, ...] = setting(
        "whoever is in a range may try to enter the cluster; EKS takes at most 40",
        "Ranges from which the public endpoint may be reached, with `access: public`.",
        default=(),
        max_length=PUBLIC_CIDRS_MAX,
    )
    admins: tuple[Admin, ...] = setting(
        "who is not listed does not get in, but for whoever makes the cluster",
        "Principals of IAM that may enter the cluster.",
        default=(),
        max_length=100,
    )
    log_types: tuple[LogType, ...] = setting(
        "these are the control plane's logs",
        "Logs of the control plane that are kept.",
        default=get_args(LogType),
        max_length=5,
    )
    log_retention_days: Literal[1, 3, 5, 7, 14, 30, 60, 90, 180, 365, 731] = setting(
        "CloudWatch keeps logs for some periods only: "
        "https://docs.aws.amazon.com/AmazonCloudWatchLogs/latest/APIReference/API_PutRetentionPolicy.html",
        "How long they are kept, days.",
        default=90,
    )
    system_nodes: SystemNodes = setting(
        "CoreDNS and monitoring run somewhere", "Nodes for what serves the cluster.", default=SystemNodes()
    )
    network: Network = setting("nodes are in a network", "The network that the cluster is in.")
    protect: bool = setting(
        "a protected cluster is not deleted by a mistake",
        "Whether the cluster can only be destroyed after its protection is taken away.",
        derived="`true` in prod, else `false`",
        strict=True,
    )
    key_deletion_days: int = whole(
        KEY_DELETION_MIN_DAYS,
        KEY_DELETION_MAX_DAYS,
        "KMS waits so long, and without the key Secrets in backups are lost",
        "Days from the destruction of the cluster until its key is gone.",
        default=KEY_DELETION_MAX_DAYS,
    )
    addons: Mapping[AddonName, AddonVersion] = setting(
        "add-ons are pinned", "Versions of EKS add-ons in place of the default ones, by name.", default={}, max_length=5
    )


Cluster = Annotated[
    Annotated[KubeconfigCluster, Tag("kubeconfig")]
    | Annotated[EksCluster, Tag("eks")]
    | Annotated[EksExistingCluster, Tag("eks_existing")],
    by("source"),
    Choice("source", ("source kubeconfig", "source eks", "source eks_existing")),
]


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


class HostPathStore(Model):
    """A folder on the machine that all nodes share."""

    kind: Literal["host_path"] = setting(
        "these are the stores that this version knows",
        "What holds the files: a folder on the machine that all nodes share.",
        default="host_path",
    )
    path: NodePath = setting(
        "it is a folder on the node",
        "The folder on the node, absolute.",
        default="/var/lib/triton-fleet/store",
    )
    size_gib: int = whole(
        1,
        65536,
        "it is the size of the volume that the claim asks for",
        "Size of the volume, GiB; one that is made keeps its size.",
        default=10,
    )


class ElasticThroughput(Model):
    """Throughput that follows the load, paid by what is read and written."""

    mode: Literal["elastic"] = setting(
        "these are EFS' modes that hold their rate", "Throughput follows the load.", default="elastic"
    )


class ProvisionedThroughput(Model):
    """Throughput that is paid for whether it is used or not."""

    mode: Literal["provisioned"] = setting("these are EFS' modes that hold their rate", "Throughput is fixed.")
    mibps: int = whole(1, EFS_PROVISIONED_MAX_MIBPS, "EFS provisions no more", "Throughput, MiB per second.")


Throughput = Annotated[
    Annotated[ElasticThroughput, Tag("elastic")] | Annotated[ProvisionedThroughput, Tag("provisioned")],
    by("mode", "elastic"),
    Choice("mode", ("mode elastic", "mode provisioned")),
]


class EfsStore(Model):
    """A file system of EFS."""

    kind: Literal["efs"] = setting(
        "these are the stores that this version knows", "What holds the files: a file system of EFS."
    )
    size_gib: int = whole(
        1,
        2**20,
        "it is the size that the claim asks for, and that the cost is reckoned with; EFS itself grows as needed",
        "Size of the volume, GiB; one that is made keeps its size.",
        default=100,
    )
    throughput: Throughput = setting(
        "replicas that start together read their weights together",
        "How fast the file system is.",
        default=ElasticThroughput(),
    )
    backup: bool = setting(
        "weights and engines took time to make",
        "Whether AWS Backup keeps daily copies.",
        derived="`true` in prod, else `false`",
        strict=True,
    )
    protect: bool = setting(
        "a protected file system is not deleted by a mistake",
        "Whether the file system is protected, and stays when the stack goes.",
        derived="`true` in prod, else `false`",
        strict=True,
    )


Store = Annotated[
    Annotated[HostPathStore, Tag("host_path")] | Annotated[EfsStore, Tag("efs")],
    by("kind", "host_path"),
    Choice("kind", ("kind host_path", "kind efs")),
]


class NodeBounds(Model):
    """How many nodes a SKU may have."""

    min: int = whole(0, NODES_MAX, "a node group of EKS has at most that many nodes", "Fewest nodes.")
    max: int = whole(1, NODES_MAX, "a node group of EKS has at most that many nodes", "Most nodes.")


class Instance(Model):
    """The instances that are a SKU's nodes, where the stack makes them."""

    instance_types: tuple[InstanceType, ...] = setting(
        "a node group of EKS takes at most 20 types; all must have the same GPUs",
        "Instance types of the nodes; several give the group more places to find capacity.",
        min_length=1,
        max_length=20,
    )
    capacity: Capacity = setting(
        "these are EKS' ways to buy capacity",
        "How the nodes are bought: `on_demand`, `spot` (cheaper, and taken back at two minutes' notice), or "
        "`capacity_block` (reserved beforehand).",
        default="on_demand",
    )
    capacity_reservation_id: ReservationId | None = setting(
        "the capacity was reserved under it", "The reservation that nodes start in.", default=None
    )
    on_demand_floor: int = whole(
        0,
        NODES_MAX,
        "so many nodes stay when AWS takes spot capacity back",
        "Nodes bought on demand beside spot ones, part of `nodes`.",
        default=0,
    )
    efa: bool = setting(
        "instances without it have no such interface",
        "Whether nodes get EFA interfaces, for models that span nodes.",
        default=False,
        strict=True,
    )
    placement_group: bool = setting(
        "nodes close to one another answer one another sooner",
        "Whether nodes are placed close to one another, in one zone.",
        default=False,
        strict=True,
    )
    zone: Zone | None = setting(
        "reserved capacity is in one zone", "The zone that nodes are in. Left out: all of the network's.", default=None
    )
    disk_gib: int = whole(
        DISK_MIN_GIB,
        DISK_MAX_GIB,
        "an image of Triton with TensorRT-LLM is 20 GB packed and twice that unpacked, and two are there at an update",
        "Root volume of a node, GiB.",
        default=200,
    )


GPU_TAINTS: Final = ({"key": names.GPU_TAINT_KEY, "value": names.GPU_TAINT_VALUE, "effect": "NoSchedule"},)


def _of_instance(raw: object) -> dict[str, object]:
    """What the catalog knows of the first instance type that a SKU names."""
    types = raw.get("instance_types") if isinstance(raw, Mapping) else None
    first = types[0] if isinstance(types, (list, tuple)) and types else None
    known = catalog.find(first) if isinstance(first, str) else None
    if known is None or not known.gpus:
        return {}
    return {"gpus_per_node": known.gpus, **({"gpu_product": known.gpu_product} if known.gpu_product else {})}


class Sku(Model):
    """One kind of node: a GPU model and how many of them, or no GPU."""

    name: DnsLabel = setting("it becomes part of the names of Deployments", "Name of the SKU.")
    instance: Instance | None = setting(
        "the stack makes nodes of it; on a cluster that exists the nodes are there already",
        "The instances that are its nodes; with `cluster.source: eks` only, and there required.",
        default=None,
    )
    gpu_product: LabelValue | None = setting(
        "pods are bound to their SKU's nodes by the label nvidia.com/gpu.product, as GPU feature discovery writes it",
        "GPU product, as GPU feature discovery writes it. Without one: nodes without a GPU.",
        derived="none, and with an instance that of its type in the catalog",
        default=None,
        min_length=1,
    )
    gpus_per_node: int = whole(
        0,
        GPUS_PER_NODE_MAX,
        "no machine that this program knows has more",
        "GPUs of one node; 0 without a GPU.",
        derived="0, and with an instance that of its type in the catalog",
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
        if not isinstance(data, Mapping):
            return data
        data = {**_of_instance(data.get("instance")), **data}
        if not isinstance(product := data.get("gpu_product"), str):
            return data
        if LABEL_NAME.fullmatch(product) is None:  # refused by its own field; not once more as a label
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

    min: int = whole(
        1,
        REPLICAS_MAX,
        "a model without a replica answers nobody, and has no metric by which an autoscaler could start one",
        "Fewest replicas.",
    )
    max: int = whole(1, REPLICAS_MAX, "a model without a replica answers nobody", "Most replicas.")


class Placement(Model):
    """A model on a SKU."""

    sku: DnsLabel = setting("it is the name of one of `skus`", "Name of the SKU.")
    replicas: ReplicaBounds = setting("a placement needs bounds, or its cost has none", "How many replicas.")
    autoscaled: bool = setting(
        "one alone may set the number of replicas",
        "Whether the load decides how many replicas there are between the bounds. Otherwise there are `replicas.min`.",
        default=True,
        strict=True,
    )


class _Footprint(Model):
    """How a model is run, as far as its memory follows from it."""

    bytes_per_parameter: float = setting(
        "from 4-bit to 32-bit weights", "Bytes of one weight.", ge=0.5, le=4, strict=True, default=2.0
    )
    kv_bytes: float = setting(
        "from 4-bit to 32-bit caches", "Bytes of one number in the KV cache.", ge=0.5, le=4, strict=True, default=2.0
    )
    sequence: int = whole(
        1, 2**24, "the KV cache of one sequence must fit", "Longest sequence, input and output, tokens."
    )
    batch: int = whole(1, 4096, "each sequence in work has a KV cache", "Sequences in work at once.", default=1)
    step_tokens: int = whole(
        1,
        2**20,
        "activations are as many as tokens go through the layers at once",
        "Most tokens of one step (`max_num_tokens` of TensorRT-LLM).",
        default=8192,
    )


class NamedWeights(_Footprint):
    """A model whose measures the catalog knows."""

    named: DnsLabel = setting("it is the name of a model in the catalog", "Name of the model in the catalog.")


class OwnWeights(_Footprint):
    """A model by its measures, which its `config.json` has."""

    parameters_b: float = setting(
        "no model is outside of it", "Parameters, thousand millions.", ge=0.001, le=10000, strict=True
    )
    layers: int = whole(1, 1000, "no model is outside of it", "Layers (`num_hidden_layers`).")
    hidden: int = whole(1, 2**20, "no model is outside of it", "Width of a layer (`hidden_size`).")
    intermediate: int = whole(1, 2**20, "no model is outside of it", "Width inside a layer (`intermediate_size`).")
    vocabulary: int = whole(1, 2**24, "no model is outside of it", "Size of the vocabulary (`vocab_size`).")
    kv_heads: int = whole(1, 1024, "no model is outside of it", "Heads of keys and values (`num_key_value_heads`).")
    head_dim: int = whole(1, 4096, "no model is outside of it", "Width of a head (`head_dim`).")
    max_sequence: int = whole(
        1,
        2**24,
        "the model was made for no longer sequence",
        "Longest sequence of the model itself, tokens (`max_position_embeddings`).",
    )


Weights = Annotated[
    Annotated[NamedWeights, Tag("named")] | Annotated[OwnWeights, Tag("own")],
    by_presence(("named",), "named", "own"),
    Choice(None, ("by name", "by measures")),
]


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
    weights: Weights | None = setting(
        "what does not fit into the GPUs' memory cannot be loaded",
        "The model's measures, by which preflight reckons its memory. Left out: nothing is reckoned.",
        default=None,
    )
    slo: Slo = setting("alerts are measured by it", "What the model's users are promised.", default=Slo())
    autoscaling: ModelAutoscaling = setting(
        "replicas follow the load", "By what replicas are scaled, and how fast.", default=ModelAutoscaling()
    )
    placements: tuple[Placement, ...] = setting(
        "a model without a placement is not served", "The SKUs that serve the model.", min_length=1, max_length=64
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
    model_store: ImageRef | None = setting(
        "the program is mounted, so NVIDIA's image of tools will do",
        "Image of ours that fills the store, as `make images PUSH=<registry>` prints it.",
        derived="`images.tools`",
        default=None,
    )
    verification: ImageRef | None = setting(
        "the program is mounted, so NVIDIA's image of tools will do",
        "Image of ours that verifies, as `make images PUSH=<registry>` prints it.",
        derived="`images.tools`",
        default=None,
    )
    load: ImageRef | None = setting(
        "a load is made with Locust, which NVIDIA's image of tools has not",
        "Image of ours that makes loads inside the cluster, as `make images PUSH=<registry>` prints it.",
        derived="`images.tools`, which must then have Locust",
        default=None,
    )
    ecr: bool = setting(
        "a cluster's account may hold the images that it runs",
        "Whether the stack makes ECR repositories for images of ours in the cluster's account.",
        default=False,
        strict=True,
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

    repository: Repository = setting("it is where Helm finds the chart", "Repository of the chart.")
    version: Version = setting("charts are pinned", "Version of the chart.")


class Charts(Model):
    """Where Helm charts come from."""

    compat: Literal["current", "guide"] = setting(
        "the charts of a set fit each other",
        "Which set of versions is installed: the current one, or that of the original guide.",
        default="current",
    )
    mirror: Mirror | None = setting(
        "clusters without the internet need one",
        "A folder or an OCI registry that holds all charts. Left out: each chart's own repository.",
        default=None,
    )
    overrides: Mapping[DnsLabel, Chart] = setting(
        "it replaces the repository and version of a chart by name",
        "Charts in place of the default ones, by name.",
        default={},
        max_length=64,
    )


class Verification(Model):
    """How long verification may take."""

    deadline_s: int = whole(30, 7200, "an update must end", "Longest time for all checks, seconds.", default=600)
    check_deadline_s: int = whole(
        5, 3600, "one check must not use up the time of all", "Longest time for one check, seconds.", default=60
    )
    max_age_days: int = whole(
        1,
        365,
        "what was proved long ago may not be true any more; `make verify` proves it again",
        "Age of the last verification that held from which an alert asks for another, days.",
        default=30,
    )


class Settings(Model):
    """All settings of a stack, below the config namespace `triton-fleet`."""

    environment: Environment = setting("names and defaults follow it", "Which environment the stack is.")
    cluster: Cluster = setting("the fleet runs on a cluster", "Where the fleet runs.")
    serving: Serving = setting(
        "models are served somewhere", "The serving namespace, and who may call it.", derived="its defaults"
    )
    store: Store = setting(
        "models' files are kept somewhere", "Where the models' files are kept.", default=HostPathStore()
    )
    skus: tuple[Sku, ...] = setting(
        "a fleet without nodes serves nothing", "The kinds of node.", min_length=1, max_length=64
    )
    models: tuple[ModelSettings, ...] = setting(
        "a fleet without models serves nothing", "The models that are served.", min_length=1, max_length=64
    )
    images: Images = setting("pods run images", "The container images.")
    gpu_stack: GpuStack = setting(
        "Kubernetes knows nothing of GPUs by itself", "What makes GPUs visible to Kubernetes.", default=GpuStack()
    )
    monitoring: Monitoring = setting(
        "what is not measured is not known", "Prometheus, Alertmanager, Grafana and metrics APIs.", default=Monitoring()
    )
    alerts: Alerts = setting("alerts go to somebody, or nowhere", "Who hears of alerts.", default=Alerts())
    autoscaling: Autoscaling = setting(
        "one alone may set the number of replicas", "Who changes the number of replicas.", default=Autoscaling()
    )
    charts: Charts = setting("Helm charts come from somewhere", "Where Helm charts come from.", default=Charts())
    verification: Verification = setting(
        "an update must end", "How long verification may take.", default=Verification()
    )

    @model_validator(mode="before")
    @classmethod
    def _environment_defaults(cls, data: object) -> object:
        return of_environment(data) if isinstance(data, Mapping) else data

    def sku(self, name: str) -> Sku:
        """The SKU of that name, which preflight has seen to exist."""
        return next(sku for sku in self.skus if sku.name == name)


def gpus_per_replica(model: ModelSettings, sku: Sku) -> int:
    """GPUs that one replica of the model asks for on the SKU; none on a SKU without GPUs."""
    return model.gpus if sku.gpus_per_node else 0


def of_environment(values: Mapping[str, object]) -> dict[str, object]:
    """Raw settings with the defaults that follow from the environment: names, and protection in prod."""
    environment = values.get("environment")
    known = environment if isinstance(environment, str) and environment in get_args(Environment) else UNNAMED
    lasting = known == "prod"
    defaults: dict[str, dict[str, object]] = {"serving": {"namespace": names.namespace(known)}}
    if _says(values, "cluster", "source", "eks"):
        defaults["cluster"] = {"name": names.cluster(known), "protect": lasting}
    if _says(values, "store", "kind", "efs"):
        defaults["store"] = {"backup": lasting, "protect": lasting}
    found = dict(values)
    for name, default in defaults.items():
        given = values.get(name, {})
        if isinstance(given, Mapping):
            found[name] = {**default, **given}
    return found


def _says(values: Mapping[str, object], name: str, key: str, value: str) -> bool:
    given = values.get(name)
    return isinstance(given, Mapping) and given.get(key) == value
