"""What the embedded cluster consists of: its nodes and its addresses. Pure."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field

from fleet import names

# RFC 2544 reserves this range for benchmarks between two hosts: it is never routed on the internet, so a
# cluster in it hides no address that the machine uses, and a packet that strays leaves for nowhere.
NEVER_ROUTED = ipaddress.ip_network("198.18.0.0/15")
RANGE_PREFIX = 20
NODE_NETWORK = ipaddress.IPv4Network("198.19.240.0/24")
"""The nodes' own addresses, the same in every cluster: they are seen only inside its namespaces.

What this machine sends to a Service arrives from one of them, so the stack's settings can let the machine in and
no pod with it (`serving.client_cidrs` in Pulumi.local.yaml).
"""
DNS_DOMAIN = "cluster.local"


@dataclass(frozen=True)
class Node:
    """One node: its name, the labels and taints that its kubelet registers, the GPUs that it pretends to have.

    The product is no label that a kubelet registers: GPU feature discovery publishes it.
    """

    name: str
    gpu_product: str | None = None
    gpus: int = 0
    labels: dict[str, str] = field(default_factory=dict)

    @property
    def taints(self) -> tuple[dict[str, str], ...]:
        if not self.gpus:
            return ()
        return ({"key": names.GPU_TAINT_KEY, "value": names.GPU_TAINT_VALUE, "effect": "NoSchedule"},)

    @property
    def all_labels(self) -> dict[str, str]:
        gpu = names.gpu_node_labels(self.gpu_product) if self.gpus and self.gpu_product else {}
        return {key: value for key, value in {**gpu, **self.labels}.items() if key != names.NODE_GPU_PRODUCT_LABEL}


NODES = (
    Node("system"),
    Node("gpu-a100-40gb", gpu_product="NVIDIA-A100-SXM4-40GB", gpus=8),
    Node("gpu-h100-80gb", gpu_product="NVIDIA-H100-80GB-HBM3", gpus=8),
)


@dataclass(frozen=True)
class Addresses:
    """How one /20 is cut up.

    `.0.0/30` joins the machine (host) and the control plane; `.4.0/22` holds one /24 of pods per node; `.8.0/24`
    the Services. The nodes have addresses of NODE_NETWORK.
    """

    network: ipaddress.IPv4Network

    @classmethod
    def of(cls, network: str) -> Addresses:
        return cls(ipaddress.IPv4Network(network))

    def _at(self, third: int, fourth: int) -> str:
        return str(self.network.network_address + third * 256 + fourth)

    @property
    def host(self) -> str:
        return self._at(0, 1)

    @property
    def control_plane(self) -> str:
        return self._at(0, 2)

    @property
    def node_gateway(self) -> str:
        return str(NODE_NETWORK.network_address + 1)

    def node(self, index: int) -> str:
        return str(NODE_NETWORK.network_address + 11 + index)

    @property
    def pods(self) -> str:
        return f"{self._at(4, 0)}/22"

    def node_pods(self, index: int) -> str:
        return f"{self._at(4 + index, 0)}/24"

    def node_pods_gateway(self, index: int) -> str:
        return self._at(4 + index, 1)

    @property
    def services(self) -> str:
        return f"{self._at(8, 0)}/24"

    @property
    def kubernetes_service(self) -> str:
        return self._at(8, 1)

    @property
    def dns_service(self) -> str:
        return self._at(8, 10)

    @property
    def api_server(self) -> str:
        return f"https://{self.control_plane}:6443"


def ranges() -> list[ipaddress.IPv4Network]:
    """The 31 ranges that clusters on one machine choose from; the last one is the nodes'."""
    return [
        network
        for network in NEVER_ROUTED.subnets(new_prefix=RANGE_PREFIX)
        if isinstance(network, ipaddress.IPv4Network) and not network.overlaps(NODE_NETWORK)
    ]


def link_name(network: ipaddress.IPv4Network) -> str:
    """The host's end of the link, named by its range: making it claims the range (15 characters at most)."""
    return f"tf{int(network.network_address):x}"
