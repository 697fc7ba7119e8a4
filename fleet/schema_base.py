"""What settings are made of: bounded kinds of text and numbers, and what a person needs when one of them is wrong.

`fleet.schema` and its parts make the settings of these.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Annotated, Any, Final, Literal, NoReturn

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
)
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

ZONES_MIN: Final = 2
"""EKS wants subnets in two zones: https://docs.aws.amazon.com/eks/latest/userguide/network-reqs.html"""
ZONES_MAX: Final = 3
DISK_MIN_GIB: Final = 20
"""The disk that EKS gives a node by default: https://docs.aws.amazon.com/eks/latest/APIReference/API_CreateNodegroup.html"""
DISK_MAX_GIB: Final = 16384
"""The largest gp3 volume that a node boots from: https://docs.aws.amazon.com/ebs/latest/userguide/ebs-volume-types.html"""
EFS_PROVISIONED_MAX_MIBPS: Final = 3414
"""https://docs.aws.amazon.com/efs/latest/ug/API_CreateFileSystem.html"""
KEY_DELETION_MIN_DAYS: Final = 7
KEY_DELETION_MAX_DAYS: Final = 30
"""https://docs.aws.amazon.com/kms/latest/APIReference/API_ScheduleKeyDeletion.html"""
PUBLIC_CIDRS_MAX: Final = 40
"""https://docs.aws.amazon.com/eks/latest/userguide/service-quotas.html"""

RESERVED_NAMESPACES: Final = frozenset({"default", names.NAMESPACE_SYSTEM, names.NAMESPACE_MONITORING})

LABEL_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_LABEL_PREFIX = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_REGION = re.compile(r"[a-z]{2}(-[a-z]+){1,2}-[0-9]{1,2}")
_ZONE = re.compile(rf"{_REGION.pattern}[a-z]")
_CLUSTER_NAME = re.compile(r"[A-Za-z0-9][-A-Za-z0-9_]{0,99}")
_INSTANCE_TYPE = re.compile(r"[a-z][-a-z0-9]*\.[a-z0-9-]+")
_PRINCIPAL = re.compile(r"arn:aws(-cn|-us-gov)?:iam::[0-9]{12}:(role|user)/[-A-Za-z0-9_+=,.@/]+")
_RESERVATION = re.compile(r"cr-[0-9a-f]{8,17}")
_VPC = re.compile(r"vpc-[0-9a-f]{8,17}")
_SUBNET = re.compile(r"subnet-[0-9a-f]{8,17}")
_IMAGE = re.compile(
    r"([a-z0-9]([-a-z0-9.]*[a-z0-9])?(:[0-9]+)?/)?[a-z0-9]+([._-]+[a-z0-9]+)*(/[a-z0-9]+([._-]+[a-z0-9]+)*)*"
    r"(:(?P<tag>[A-Za-z0-9_][-A-Za-z0-9_.]{0,127}))?(@(?P<digest>sha256:[0-9a-f]{64}))?"
)
_TAINT_EFFECTS: Final = {
    "NO_SCHEDULE": "NoSchedule",
    "PREFER_NO_SCHEDULE": "PreferNoSchedule",
    "NO_EXECUTE": "NoExecute",
}

UNNAMED: Final = "unnamed"

FAULT_TYPE: Final = "fleet_fault"
"""The type of pydantic errors whose context already holds the limit, why and fix of a `fleet.faults.Fault`."""


@dataclass(frozen=True, slots=True)
class Form:
    """What a text must look like, in words; stands among the metadata of a type, for errors and the reference."""

    text: str


@dataclass(frozen=True, slots=True)
class Choice:
    """Stands among the metadata of a type that is one of several: what tells them apart, and what each is called.

    `field` is the setting whose value chooses, or nothing where the settings that are there do. `titles` name the
    kinds, in their order.
    """

    field: str | None
    titles: tuple[str, ...]


def by(field: str, default: str | None = None) -> Discriminator:
    """Chooses by the value of a setting."""

    def tag(data: object) -> str | None:
        value = data.get(field, default) if isinstance(data, Mapping) else getattr(data, field, default)
        return value if value is None or isinstance(value, str) else repr(value)

    return Discriminator(tag)


def by_presence(fields: Sequence[str], there: str, absent: str) -> Discriminator:
    """Chooses by whether one of these settings is there."""

    def tag(data: object) -> str:
        found = any(field in data if isinstance(data, Mapping) else hasattr(data, field) for field in fields)
        return there if found else absent

    return Discriminator(tag)


def refuse(limit: str, why: str, fix: str) -> NoReturn:
    raise PydanticCustomError(FAULT_TYPE, "refused", {"limit": limit, "why": why, "fix": fix})


def _dns_label(text: str) -> str:
    if not names.is_dns_label(text):
        refuse(
            f"a DNS label: lower-case letters, digits and hyphens inside, 1 to {names.LABEL_MAX_CHARS} characters",
            "it becomes part of the names of Kubernetes objects, which RFC 1123 limits",
            "choose a name of lower-case letters, digits and hyphens",
        )
    return text


def _service_name(text: str) -> str:
    _dns_label(text)
    if not text[0].isalpha():
        refuse(
            "a DNS label that begins with a letter",
            "it becomes the name of a Service, which RFC 1035 limits further: a letter comes first",
            f"put a letter before it, for example 'm{text}'",
        )
    return text


def _namespace(text: str) -> str:
    _dns_label(text)
    if text in RESERVED_NAMESPACES or text.startswith("kube-"):
        refuse(
            f"a namespace of its own, not {', '.join(sorted(RESERVED_NAMESPACES))} or kube-…",
            "the serving namespace denies all traffic that it does not name and admits restricted pods only; "
            "what else lives there would stop working",
            "leave it out for triton-<environment>, or name a namespace that nothing else uses",
        )
    return text


def _label_key(text: str) -> str:
    prefix, slash, name = text.rpartition("/")
    if (slash and _LABEL_PREFIX.fullmatch(prefix) is None) or LABEL_NAME.fullmatch(name) is None:
        refuse(
            "a Kubernetes label key: [prefix/]name, the name of 1 to 63 letters, digits, '-', '_' and '.'",
            "the API server refuses an object with any other",
            "correct the key",
        )
    return text


def _label_value(text: str) -> str:
    if text and LABEL_NAME.fullmatch(text) is None:
        refuse(
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
        refuse(
            "a pinned image: name:tag with a tag other than 'latest', or name@sha256:…",
            "without a pin two replicas can run different programs, and an update cannot be undone",
            "name the tag or the digest",
        )
    return text


def _node_path(text: str) -> str:
    path = PurePosixPath(text)
    if not path.is_absolute() or ".." in path.parts or len(path.parts) < 3 or "\0" in text:  # noqa: PLR2004
        refuse(
            "an absolute path at least two folders deep, without '..'",
            "it is a folder on the node that the program fills and owns; a shallow one would be the system's",
            "name a folder such as /var/lib/triton-fleet/store",
        )
    return str(path)


def one_line(text: str) -> str:
    if not text.strip() or "\0" in text or "\n" in text:
        refuse("text on one line", "it names one thing", "write the name alone, not the content of what it names")
    return text


def _cidr(text: str) -> str:
    try:
        network = ipaddress.ip_network(text)
    except ValueError:
        network = None
    if network is None or network.prefixlen < (WIDEST_IPV4_PREFIX if network.version == 4 else WIDEST_IPV6_PREFIX):  # noqa: PLR2004
        refuse(
            f"an address range in CIDR form, host bits zero, no wider than /{WIDEST_IPV4_PREFIX} "
            f"(IPv6: /{WIDEST_IPV6_PREFIX})",
            "whoever is in the range may call the models; a wide-open range is never meant",
            "name the range that the clients are in, for example 10.20.0.0/16",
        )
    return text


def _public_cidr(text: str) -> str:
    try:
        network = ipaddress.IPv4Network(text)
    except ValueError:
        network = None
    if network is None or network.prefixlen < WIDEST_IPV4_PREFIX:
        refuse(
            f"an IPv4 range in CIDR form, host bits zero, no wider than /{WIDEST_IPV4_PREFIX}",
            "whoever is in the range may try to enter the cluster; a wide-open range is never meant",
            "name the range that your office, VPN or CI leaves from, an address alone as x.x.x.x/32",
        )
    return text


def _vpc_cidr(text: str) -> str:
    try:
        network = ipaddress.IPv4Network(text)
    except ValueError:
        network = None
    if network is None or not network.is_private:
        refuse(
            "a private IPv4 range in CIDR form, host bits zero",
            "nodes and pods have addresses of it, and addresses of others could then not be reached",
            "name a range of 10.0.0.0/8, 172.16.0.0/12 or 192.168.0.0/16, for example 10.20.0.0/16",
        )
    return text


def matching(pattern: re.Pattern[str], limit: str, why: str, fix: str) -> AfterValidator:
    def check(text: str) -> str:
        if pattern.fullmatch(text) is None:
            refuse(limit, why, fix)
        return text

    return AfterValidator(check)


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
FilePath = Annotated[str, AfterValidator(one_line), Form("a path")]
Repository = Annotated[str, AfterValidator(one_line), Form("an address that begins with https://, http:// or oci://")]
Mirror = Annotated[str, AfterValidator(one_line), Form("a folder's path, or a reference that begins with oci://")]
Version = Annotated[
    str,
    matching(
        re.compile(r"v?[0-9]+\.[0-9]+\.[0-9]+([-+][-+.0-9A-Za-z]+)?"),
        "a version in full, such as 1.2.3",
        "charts are pinned: a range or 'latest' is another chart tomorrow",
        "name one version; `helm search repo <chart> --versions` lists them",
    ),
    Form("a version"),
]
Cidr = Annotated[str, AfterValidator(_cidr), Form("an address range in CIDR form")]
PublicCidr = Annotated[str, AfterValidator(_public_cidr), Form("an IPv4 range in CIDR form")]
VpcCidr = Annotated[str, AfterValidator(_vpc_cidr), Form("a private IPv4 range in CIDR form")]
Region = Annotated[
    str,
    matching(
        _REGION,
        "the code of a region of AWS",
        "everything of the stack is made there",
        "name it as AWS does, for example us-east-1",
    ),
    Form("the code of a region of AWS"),
]
Zone = Annotated[
    str,
    matching(
        _ZONE,
        "the name of an availability zone",
        "a zone is a region's code and a letter",
        "name it as AWS does, for example us-east-1a",
    ),
    Form("the name of an availability zone"),
]
ClusterName = Annotated[
    str,
    matching(
        _CLUSTER_NAME,
        "1 to 100 letters, digits, '-' and '_', a letter or digit first",
        "EKS accepts no other name: https://docs.aws.amazon.com/eks/latest/APIReference/API_CreateCluster.html",
        "choose another name",
    ),
    Form("a name of a cluster of EKS"),
]
InstanceType = Annotated[
    str,
    matching(
        _INSTANCE_TYPE,
        "the name of an EC2 instance type",
        "nodes are instances of that type",
        "name it as AWS does, for example g5.12xlarge",
    ),
    Form("the name of an EC2 instance type"),
]
PrincipalArn = Annotated[
    str,
    matching(
        _PRINCIPAL,
        "the ARN of an IAM role or user",
        "an access entry lets a principal of IAM in",
        "write it in full, as arn:aws:iam::<account>:role/<name>",
    ),
    Form("the ARN of an IAM role or user"),
]
ReservationId = Annotated[
    str,
    matching(
        _RESERVATION,
        "the id of a capacity reservation",
        "nodes start in the capacity that it holds",
        "write it as cr-…, as AWS shows it",
    ),
    Form("the id of a capacity reservation, cr-…"),
]
VpcId = Annotated[
    str,
    matching(_VPC, "the id of a VPC", "the cluster is put there", "write it as vpc-…, as AWS shows it"),
    Form("the id of a VPC, vpc-…"),
]
SubnetId = Annotated[
    str,
    matching(_SUBNET, "the id of a subnet", "nodes are put there", "write it as subnet-…, as AWS shows it"),
    Form("the id of a subnet, subnet-…"),
]
AddonVersion = Annotated[
    str,
    matching(
        re.compile(r"v[0-9]+\.[0-9]+\.[0-9]+-eksbuild\.[0-9]+"),
        "a version in full, such as v1.2.3-eksbuild.1",
        "add-ons are pinned, and EKS names their versions so",
        "name one that `aws eks describe-addon-versions --addon-name <add-on>` lists",
    ),
    Form("a version of the add-on"),
]
KubernetesVersion = Annotated[
    str,
    matching(
        re.compile(r"1\.[0-9]{2}"),
        "a minor version of Kubernetes, as text",
        "EKS names versions so",
        "name the minor version alone, in quotes, as '1.34'",
    ),
    Form("a minor version of Kubernetes"),
]

Environment = Literal["local", "dev", "prod"]
Runtime = Literal["python", "native", "tensorrt_llm", "llmapi", "vllm"]
LogType = Literal["api", "audit", "authenticator", "controllerManager", "scheduler"]
AddonName = Literal[
    "vpc-cni", "coredns", "kube-proxy", "eks-pod-identity-agent", "aws-efs-csi-driver", "aws-ebs-csi-driver"
]
Capacity = Literal["on_demand", "spot", "capacity_block"]


class Model(BaseModel):
    """Base of all settings: frozen, and nothing but what is declared."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=False)


class Taint(Model):
    """A taint of nodes, which the pods that belong there tolerate."""

    key: LabelKey = setting("it is the key of a node's taint", "Key of the taint.")
    value: LabelValue = setting("it is the value of a node's taint", "Value of the taint.", default="")
    effect: TaintEffect = setting(
        "Kubernetes knows these effects; AWS's spelling (NO_SCHEDULE …) is accepted too",
        "What the taint does.",
    )
