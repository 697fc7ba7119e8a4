"""What a bare cluster needs before the stack is deployed: GPUs to pretend, DNS, and the rules' reader.

`pretend_gpus` serves any cluster (make prepare CLUSTER=… SIMULATE_GPUS=1); the rest is for the embedded one.
"""

from __future__ import annotations

import re
import string
import time
from pathlib import Path
from typing import TYPE_CHECKING

from kubernetes import client
from kubernetes.client import ApiException
from kubernetes.config import ConfigException, new_client_from_config
from urllib3.exceptions import HTTPError

from fleet import names
from local.cluster import hardware, lifecycle
from local.cluster.topology import NODES, Addresses, Node
from local.errors import LocalError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from local.cluster.handle import Handle
    from local.images.build import Image

MANIFESTS = Path(__file__).parent / "manifests"
DNS_DEADLINE_S = 120.0


def system_services(running: Handle, coredns: Image, progress: Callable[[str], None]) -> None:
    """Apply the manifests beside this file and wait until DNS answers."""
    values = {"DNS_SERVICE": Addresses.of(running.network).dns_service, "IMAGE": coredns.ref, "IMAGE_KEY": coredns.key}
    for manifest in sorted(MANIFESTS.glob("*.yaml")):
        text = string.Template(manifest.read_text()).substitute(values)
        done = lifecycle.kubectl(
            running.state, "apply", "--server-side", "--force-conflicts", "--filename=-", text=text
        )
        if done.returncode != 0:
            raise LocalError(
                f"{manifest.name} could not be applied: {done.stderr.strip()}", fix="make down, then make up"
            )
    _wait_for_dns(running, progress)


def _wait_for_dns(running: Handle, progress: Callable[[str], None]) -> None:
    deadline = time.monotonic() + DNS_DEADLINE_S
    said = False
    while True:
        done = lifecycle.kubectl(
            running.state, "get", "deployment", "coredns", "--namespace=kube-system",
            "--output=jsonpath={.status.replicas}/{.status.availableReplicas}/{.status.updatedReplicas}",
        )  # fmt: skip
        if done.stdout.strip() == "1/1/1":
            return
        if not said:
            progress("cluster: waiting for DNS (CoreDNS)")
            said = True
        if time.monotonic() > deadline:
            pods = lifecycle.kubectl(
                running.state, "describe", "pods", "--namespace=kube-system", "--selector=k8s-app=kube-dns"
            )
            raise LocalError(
                f"cluster: CoreDNS was not available within {DNS_DEADLINE_S:.0f} s",
                details=pods.stdout[-1500:],
                fix="make down clears the cluster, make up starts it again",
            )
        time.sleep(0.5)


def pretend_gpus(kubeconfig: Path, nodes: Sequence[Node]) -> None:
    """Say on nodes which GPUs they pretend to have. The stack's device plugin, a stand-in, then offers them."""
    with new_client_from_config(config_file=str(kubeconfig)) as api_client:
        api = client.CoreV1Api(api_client)
        for node in nodes:
            if node.gpus:
                api.patch_node(node.name, {"metadata": {"annotations": _annotations(node)}})


def _annotations(node: Node) -> dict[str, str]:
    return {hardware.ANNOTATION: hardware.described(node)}


def prepare(running: Handle, coredns: Image, progress: Callable[[str], None]) -> None:
    pretend_gpus(running.state.kubeconfig, NODES)
    system_services(running, coredns, progress)


def api_error(kubeconfig: Path) -> str | None:
    """Why the cluster of a kubeconfig file cannot be used; None if it answers."""
    once = client.Configuration()
    once.retries = 0
    try:
        with new_client_from_config(config_file=str(kubeconfig), client_configuration=once) as api_client:
            client.CoreV1Api(api_client).list_node(_request_timeout=10, limit=1)
    except (ConfigException, AttributeError, KeyError, TypeError, ValueError) as error:
        # Beside its own error, the client lets what it met in a malformed file through.
        return f"the file is not usable: {error}"
    except ApiException as error:
        return f"HTTP {error.status} {error.reason}"
    except (HTTPError, OSError) as error:
        # urllib3 names the connection by its address in memory.
        return re.sub(r"<[^>]*>:? ?", "", str(error.__cause__ or error))[:300]
    return None


def server_of(kubeconfig: Path) -> str:
    with new_client_from_config(config_file=str(kubeconfig)) as api_client:
        return str(api_client.configuration.host)


def plan_nodes(kubeconfig: Path, simulated: Sequence[Node], named: Sequence[str] = ()) -> list[tuple[str, Node]]:
    """Which node of a cluster is to pretend which GPUs: those named, in the order of the GPUs; where none are,
    those that already do first, then the others by name, last first.

    One node must stay without a GPU taint, for everything that is no model server.
    """
    wanted = [node for node in simulated if node.gpus]
    with new_client_from_config(config_file=str(kubeconfig)) as api_client:
        found = client.CoreV1Api(api_client).list_node(_request_timeout=10).items
    schedulable = sorted(
        (node for node in found if not node.spec.unschedulable and not _is_control_plane(node)),
        key=lambda node: str(node.metadata.name),
    )
    if len(schedulable) <= len(wanted):
        raise LocalError(
            f"prepare: {len(schedulable)} worker nodes; {len(wanted)} become GPU nodes and one must stay without GPUs",
            fix=f"use a cluster with at least {len(wanted) + 1} worker nodes",
        )
    real = [node.metadata.name for node in schedulable if _has_real_gpus(node)]
    if real:
        raise LocalError(
            f"prepare: these nodes have GPUs of their own: {', '.join(real)}",
            fix="leave SIMULATE_GPUS out: real GPUs are announced by the device plugin",
        )
    if named:
        return _plan_named(named, wanted, [node.metadata.name for node in schedulable])
    plan: list[tuple[str, Node]] = []
    free = list(schedulable)
    for node in wanted:
        chosen = next((n for n in free if _product(n) == node.gpu_product), None) or next(
            (n for n in reversed(free) if _product(n) is None), None
        )
        if chosen is None:
            raise LocalError(
                f"prepare: no worker node is left for {node.gpu_product}: every other one has a label "
                f"{names.NODE_GPU_PRODUCT_LABEL} of another GPU",
                fix=f"remove that label from one of {', '.join(n.metadata.name for n in free)}, or add a worker node",
            )
        free.remove(chosen)
        plan.append((chosen.metadata.name, node))
    return plan


def _plan_named(named: Sequence[str], wanted: Sequence[Node], workers: Sequence[str]) -> list[tuple[str, Node]]:
    unknown = [name for name in named if name not in workers]
    if unknown or len(set(named)) != len(wanted):
        problem = f"no worker node is {', '.join(unknown)}" if unknown else f"{len(wanted)} different nodes are needed"
        order = ", then ".join(f"the one for {node.gpu_product}" for node in wanted)
        raise LocalError(
            f"prepare: NODES={','.join(named)}: {problem}",
            fix=f"name {len(wanted)} of {', '.join(workers)}: {order}",
        )
    return list(zip(named, wanted, strict=True))


def _product(node: client.V1Node) -> str | None:
    """What it has, or pretends to have."""
    return hardware.product(node.metadata.annotations) or (node.metadata.labels or {}).get(names.NODE_GPU_PRODUCT_LABEL)


def _is_control_plane(node: client.V1Node) -> bool:
    return "node-role.kubernetes.io/control-plane" in (node.metadata.labels or {})


def _has_real_gpus(node: client.V1Node) -> bool:
    capacity = int((node.status.capacity or {}).get(names.GPU_RESOURCE, "0"))
    return capacity > 0 and hardware.ANNOTATION not in (node.metadata.annotations or {})


def label_nodes(kubeconfig: Path, plan: Sequence[tuple[str, Node]]) -> None:
    """Carry out a plan: labels, taint, and what each node pretends to have."""
    with new_client_from_config(config_file=str(kubeconfig)) as api_client:
        api = client.CoreV1Api(api_client)
        for name, node in plan:
            try:
                present = api.read_node(name).spec.taints or []
                taints = [t.to_dict() for t in present if t.key != names.GPU_TAINT_KEY] + list(node.taints)
                taints = [{k: v for k, v in taint.items() if k in ("key", "value", "effect") and v} for taint in taints]
                metadata = {"labels": node.all_labels, "annotations": _annotations(node)}
                api.patch_node(name, {"metadata": metadata, "spec": {"taints": taints}})
            except ApiException as error:
                raise LocalError(
                    f"prepare: node {name} could not be changed: HTTP {error.status} {error.reason}",
                    fix="use a kubeconfig whose user may patch nodes, then run make prepare again",
                ) from error
