"""Whether a stack in AWS can work: cluster, network, instances, store."""

from __future__ import annotations

import difflib
import ipaddress
from typing import TYPE_CHECKING, Final

from fleet import aws_addons, aws_autoscaler, aws_names, aws_network, aws_nodes, catalog, workload
from fleet.catalog.kubernetes import versions
from fleet.catalog.regions import regions
from fleet.faults import Fault, shown
from fleet.schema import EfsStore, EksCluster, HostPathStore, KubeconfigCluster, NewNetwork

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from fleet.catalog import Instance
    from fleet.preflight import Draft
    from fleet.schema import ExistingNetwork, ModelSettings, Sku

DOCUMENTATION: Final = tuple(
    ipaddress.IPv4Network(cidr) for cidr in ("192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24")
)
"""RFC 5737: ranges for examples, which nobody has."""
NODE_PODS: Final = 8
"""Pods of DaemonSets on each node, at least: CNI, kube-proxy, EFS driver, Pod Identity agent and those of the GPUs."""
WARM_ADDRESSES: Final = 100
"""Addresses that the CNI takes on a large node: two interfaces of 50, one of them in reserve.
https://docs.aws.amazon.com/eks/latest/best-practices/vpc-cni.html"""
ALLOCATABLE_MEMORY: Final = 0.86
"""Of a node's memory, what pods get: the least of the catalog's GPU instances (g5.xlarge: 14162 of 16384 MiB), as the
catalog's source of measures records them."""
SPOT_NOTICE_S: Final = 120
"""https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/spot-instance-termination-notices.html"""
SYSTEM_CPU: Final = 0.5
"""Cores of a node that its own pods take."""


def refusals(draft: Draft) -> Iterator[Fault]:
    """What AWS, EKS or the nodes would not do."""
    cluster = draft.cluster
    if cluster is not None and not isinstance(cluster, KubeconfigCluster):
        yield from _region(cluster.region)
    if isinstance(cluster, EksCluster):
        yield from _endpoint(cluster)
        yield from _version(cluster)
        yield from _system_nodes(cluster)
        yield from _monitoring_room(draft, cluster)
        if isinstance(cluster.network, NewNetwork):
            yield from _layout(cluster, cluster.network)
            yield from _room(draft, cluster, cluster.network)
            yield from _overlap(draft, cluster.network)
        else:
            yield from _subnets(cluster.network)
    for index, sku in draft.skus.items():
        yield from _sku(f"skus[{index}]", sku, draft)
    if draft.whole:
        yield from _node_room(draft)
    yield from _store(draft)


def warnings(draft: Draft) -> Iterator[Fault]:
    """What works, at a price."""
    cluster = draft.cluster
    if isinstance(cluster, EksCluster):
        yield from _nobody(cluster)
        if isinstance(cluster.network, NewNetwork):
            yield from _warm_room(draft, cluster, cluster.network)
    for index, sku in draft.skus.items():
        if draft.environment == "prod" and sku.instance is not None and sku.instance.capacity == "spot":
            yield from _spot(f"skus[{index}].instance", sku)
    for number, model in draft.models.items():
        yield from _cut_short(f"models[{number}].drain_timeout_s", model, draft)
    if draft.environment == "prod":
        yield from _unprotected(draft)


def _region(region: str) -> Iterator[Fault]:
    if region not in regions():
        close = difflib.get_close_matches(region, regions(), n=1)
        yield Fault(
            "cluster.region",
            shown(region),
            "a region that the AWS provider knows (fleet/catalog/regions.yaml)",
            "AWS is found by the name of its region: elsewhere nothing answers",
            f"did you mean '{close[0]}'?" if close else "name it as AWS does, for example us-east-1",
        )


def _subnets(network: ExistingNetwork) -> Iterator[Fault]:
    named: list[str] = []
    for setting in ("private_subnet_ids", "public_subnet_ids"):
        for index, subnet in enumerate(getattr(network, setting)):
            if subnet in named:
                yield Fault(
                    f"cluster.network.{setting}[{index}]",
                    shown(subnet),
                    "each subnet once",
                    "a subnet is private or public, and one that is named twice stands for no second zone",
                    "name another subnet, or remove it",
                )
            named.append(subnet)


def _endpoint(cluster: EksCluster) -> Iterator[Fault]:
    if cluster.access == "public" and not cluster.public_cidrs:
        yield Fault(
            "cluster.public_cidrs",
            "nothing",
            "one range or more, with access: public",
            "an endpoint that is open to no range is open to nobody, and without ranges EKS opens it to the world",
            "name the ranges that you and CI come from, or set access: inside_vpc and run `pulumi up` from there",
        )
    if cluster.access == "inside_vpc" and cluster.public_cidrs:
        yield Fault(
            "cluster.public_cidrs",
            shown(list(cluster.public_cidrs)),
            "nothing, with access: inside_vpc",
            "a private endpoint is reached from inside the VPC alone; the ranges would do nothing",
            "remove them, or set access: public",
        )
    for index, cidr in enumerate(cluster.public_cidrs):
        network = ipaddress.IPv4Network(cidr)
        if not network.is_global and not _for_examples(network):
            yield Fault(
                f"cluster.public_cidrs[{index}]",
                shown(cidr),
                "a range of the internet",
                "from private addresses the public endpoint is never reached: a NAT stands between",
                "name the public addresses that your office, VPN or CI leaves from",
            )


def _for_examples(network: ipaddress.IPv4Network) -> bool:
    return any(network.subnet_of(each) for each in DOCUMENTATION)


def _nobody(cluster: EksCluster) -> Iterator[Fault]:
    for index, cidr in enumerate(cluster.public_cidrs):
        if _for_examples(ipaddress.IPv4Network(cidr)):
            yield Fault(
                f"cluster.public_cidrs[{index}]",
                shown(cidr),
                "a range that somebody has",
                "RFC 5737 keeps it for examples: it lets nobody in",
                "name the range that you and CI come from",
            )


def _version(cluster: EksCluster) -> Iterator[Fault]:
    version, where = cluster.kubernetes_version, "cluster.kubernetes_version"
    if version not in versions():
        yield Fault(
            where,
            shown(version),
            f"one of {', '.join(versions())}",
            "EKS supports these versions (fleet/catalog/kubernetes.yaml)",
            "choose one of them, or bring the catalog up to date",
        )
        return
    missing = aws_addons.missing(version, cluster.addons)
    if missing:
        yield Fault(
            where,
            f"{shown(version)}, for which no version of {', '.join(missing)} is pinned",
            f"{' or '.join(aws_addons.VERSIONS)}, or a version of each in cluster.addons",
            "an add-on fits some versions of Kubernetes only, and is pinned",
            "name versions in cluster.addons: `aws eks describe-addon-versions --kubernetes-version "
            f"{version}` lists them",
        )
    if version not in aws_autoscaler.IMAGE_TAGS:
        yield Fault(
            where,
            shown(version),
            f"one of {', '.join(aws_autoscaler.IMAGE_TAGS)}",
            "the node autoscaler decides as the scheduler of its own version would, and has none for this one",
            "choose another version, or add the autoscaler's to fleet/aws_autoscaler.py",
        )


def _system_nodes(cluster: EksCluster) -> Iterator[Fault]:
    nodes, where = cluster.system_nodes, "cluster.system_nodes"
    if nodes.min > nodes.max:
        yield Fault(
            f"{where}.min",
            str(nodes.min),
            f"at most {where}.max, which is {nodes.max}",
            "there is no number of nodes between the two",
            "lower min or raise max",
        )
    known = catalog.find(nodes.instance_type)
    if known is None:
        yield _unknown_type(f"{where}.instance_type", nodes.instance_type)
    elif known.gpus:
        yield Fault(
            f"{where}.instance_type",
            shown(nodes.instance_type),
            "an instance type without GPU",
            "these nodes hold CoreDNS and monitoring; their GPUs would stand idle",
            "choose a type such as m7i.xlarge",
        )


def _unknown_type(where: str, name: str) -> Fault:
    close = difflib.get_close_matches(name, catalog.instances(), n=1)
    return Fault(
        where,
        shown(name),
        "an instance type of the catalog (fleet/catalog/instances.yaml)",
        "GPUs, memory, architecture and price of nodes are taken from there",
        f"did you mean '{close[0]}'?" if close else "choose a type that is there, or add it with its source",
    )


def _zone_count(network: NewNetwork) -> int:
    return network.zones if isinstance(network.zones, int) else len(network.zones)


def _divisible(network: NewNetwork) -> bool:
    return (
        aws_network.WIDEST_PREFIX <= ipaddress.IPv4Network(network.vpc_cidr).prefixlen <= aws_network.NARROWEST_PREFIX
    )


def _layout(cluster: EksCluster, network: NewNetwork) -> Iterator[Fault]:
    if not _divisible(network):
        yield Fault(
            "cluster.network.vpc_cidr",
            shown(network.vpc_cidr),
            f"a /{aws_network.WIDEST_PREFIX} to /{aws_network.NARROWEST_PREFIX}",
            "a VPC is at most a /16, and divided into subnets AWS makes none narrower than a /28",
            "name a range of that size, for example 10.20.0.0/16",
        )
    named = () if isinstance(network.zones, int) else network.zones
    for index, zone in enumerate(named):
        if not zone.startswith(cluster.region):
            yield _foreign_zone(f"cluster.network.zones[{index}]", zone, cluster.region)
        if zone in named[:index]:
            yield Fault(
                f"cluster.network.zones[{index}]",
                shown(zone),
                "each zone once",
                "two subnets of one zone are lost together",
                "name another zone",
            )


def _foreign_zone(where: str, zone: str, region: str) -> Fault:
    return Fault(
        where,
        shown(zone),
        f"a zone of {region}",
        "the stack is in that region, and so are its subnets",
        f"name a zone such as {region}a",
    )


def _nodes_max(draft: Draft, cluster: EksCluster) -> int:
    return cluster.system_nodes.max + sum(sku.nodes.max for sku in draft.skus.values())


def _private_addresses(network: NewNetwork) -> int:
    layout = aws_network.layout(network.vpc_cidr, _zone_count(network))
    return sum(subnet.addresses for subnet in layout.private)


def _room(draft: Draft, cluster: EksCluster, network: NewNetwork) -> Iterator[Fault]:
    """A node has an address and so has each pod: those that are on every node, and the replicas."""
    if not draft.whole or not _divisible(network):
        return
    nodes = _nodes_max(draft, cluster)
    replicas = sum(placement.replicas.max for model in draft.models.values() for placement in model.placements)
    needed, there = nodes * (1 + NODE_PODS) + replicas, _private_addresses(network)
    if needed > there:
        yield Fault(
            "cluster.network.vpc_cidr",
            f"{shown(network.vpc_cidr)}, {there} addresses in {_zone_count(network)} private subnets",
            f"{needed} addresses: {nodes} nodes x (1 + {NODE_PODS} pods) + {replicas} replicas",
            "each node and pod has an address of the VPC; without one a pod does not start",
            "name a wider range, or lower nodes.max",
        )


def _warm_room(draft: Draft, cluster: EksCluster, network: NewNetwork) -> Iterator[Fault]:
    if not draft.whole or not _divisible(network):
        return
    nodes, there = _nodes_max(draft, cluster), _private_addresses(network)
    if nodes * WARM_ADDRESSES > there:
        yield Fault(
            "cluster.network.vpc_cidr",
            f"{shown(network.vpc_cidr)}, {there} addresses in {_zone_count(network)} private subnets",
            f"{nodes * WARM_ADDRESSES} addresses: {nodes} nodes x {WARM_ADDRESSES}",
            "the VPC's CNI keeps an interface in reserve on each node, up to 50 addresses on large ones; the last "
            "nodes may find none left",
            "name a wider range, or lower nodes.max",
        )


def _overlap(draft: Draft, network: NewNetwork) -> Iterator[Fault]:
    vpc = ipaddress.IPv4Network(network.vpc_cidr)
    for index, cidr in enumerate(draft.client_cidrs):
        clients = ipaddress.ip_network(cidr)
        if isinstance(clients, ipaddress.IPv4Network) and clients.overlaps(vpc):
            yield Fault(
                f"serving.client_cidrs[{index}]",
                shown(cidr),
                f"a range outside of cluster.network.vpc_cidr, which is {network.vpc_cidr}",
                "the VPC keeps its own addresses to itself: clients that have them elsewhere get no answer, and every "
                "pod of the cluster would be let in",
                "renumber one of the two; pods of the cluster are let in by their namespace's label",
            )


def _sku(where: str, sku: Sku, draft: Draft) -> Iterator[Fault]:
    cluster, instance = draft.cluster, sku.instance
    if instance is None:
        if isinstance(cluster, EksCluster):
            yield Fault(
                f"{where}.instance",
                "nothing",
                "the instances that are its nodes, with cluster.source: eks",
                "the stack makes the nodes, and has to know of what",
                "add instance: {instance_types: [...]}",
            )
        return
    if cluster is not None and not isinstance(cluster, EksCluster):
        yield Fault(
            f"{where}.instance",
            shown(list(instance.instance_types)),
            f"nothing, with cluster.source: {cluster.source}",
            "the nodes of a cluster that exists are there already; nothing would be made of it",
            "remove it, or let the stack make the cluster (cluster.source: eks)",
        )
    yield from _types(where, sku, instance.instance_types)
    yield from _capacity(f"{where}.instance", sku)
    yield from _zone(f"{where}.instance", sku, cluster)
    yield from _group_name(where, sku, draft.environment)
    yield from _taints(where, sku)


def _types(where: str, sku: Sku, types: Sequence[str]) -> Iterator[Fault]:
    known = {name: catalog.find(name) for name in types}
    for index, name in enumerate(types):
        if known[name] is None:
            yield _unknown_type(f"{where}.instance.instance_types[{index}]", name)
    found = [each for each in known.values() if each is not None]
    if len({_kind(each) for each in found}) > 1:
        each = "; ".join(f"{one.name}: {_kind_text(one)}" for one in found)
        yield Fault(
            f"{where}.instance.instance_types",
            each,
            "types with the same GPUs, as many of them, and one architecture",
            "pods are placed, memory reckoned and engines built for one GPU; a group of several would give any",
            "make a SKU of each kind",
        )
        return
    for one in found[:1]:
        if sku.gpu_product is not None and one.gpu_product is not None and sku.gpu_product != one.gpu_product:
            yield Fault(
                f"{where}.gpu_product",
                shown(sku.gpu_product),
                f"{shown(one.gpu_product)}, which {one.name} has",
                "pods wait for nodes whose GPUs have that name, and these nodes never will",
                "leave gpu_product out, or choose another instance type",
            )
        if sku.gpus_per_node != one.gpus:
            yield Fault(
                f"{where}.gpus_per_node",
                str(sku.gpus_per_node),
                f"{one.gpus}, which {one.name} has",
                "replicas are counted by it, and nodes bought",
                "leave gpus_per_node out, or choose another instance type",
            )
        if sku.instance is not None and sku.instance.efa:
            for other in found:
                if not other.efa_interfaces:
                    yield Fault(
                        f"{where}.instance.efa",
                        "true",
                        f"false, with {other.name}",
                        f"{other.name} has no EFA interface",
                        "set efa to false, or choose a type that has it",
                    )


def _kind(one: Instance) -> tuple[str | None, int, str]:
    return one.gpu, one.gpus, one.architecture


def _kind_text(one: Instance) -> str:
    return f"{one.gpus} x {one.gpu} on {one.architecture}" if one.gpu else f"no GPU on {one.architecture}"


def _capacity(where: str, sku: Sku) -> Iterator[Fault]:
    instance = sku.instance
    if instance is None:
        return
    if instance.capacity == "capacity_block":
        if instance.capacity_reservation_id is None:
            yield _block(f"{where}.capacity_reservation_id", "nothing", "the id of the reservation")
        if instance.zone is None:
            yield _block(f"{where}.zone", "nothing", "the zone of the reservation")
        if len(instance.instance_types) > 1:
            yield _block(f"{where}.instance_types", shown(list(instance.instance_types)), "the one type of it")
    if instance.capacity == "spot" and instance.capacity_reservation_id is not None:
        yield Fault(
            f"{where}.capacity_reservation_id",
            shown(instance.capacity_reservation_id),
            "nothing, with capacity: spot",
            "spot instances never start in reserved capacity; it would be paid for twice",
            "remove it, or set capacity: on_demand",
        )
    if instance.on_demand_floor and instance.capacity != "spot":
        yield Fault(
            f"{where}.on_demand_floor",
            str(instance.on_demand_floor),
            f"0, with capacity: {instance.capacity}",
            "it is what stays on demand beside spot nodes, and there are none",
            "remove it, or set capacity: spot",
        )
    if instance.on_demand_floor > sku.nodes.max:
        yield Fault(
            f"{where}.on_demand_floor",
            str(instance.on_demand_floor),
            f"at most nodes.max, which is {sku.nodes.max}",
            "the floor is part of the nodes",
            "lower it, or raise nodes.max",
        )


def _block(where: str, got: str, limit: str) -> Fault:
    return Fault(
        where,
        got,
        f"{limit}, with capacity: capacity_block",
        "a capacity block is of one type, in one zone, and found by its id: "
        "https://docs.aws.amazon.com/eks/latest/userguide/capacity-blocks-mng.html",
        "take it from the reservation (`aws ec2 describe-capacity-reservations`)",
    )


def _zone(where: str, sku: Sku, cluster: object) -> Iterator[Fault]:
    instance = sku.instance
    if instance is None or not isinstance(cluster, EksCluster):
        return
    if instance.zone is None:
        for setting, on in (("placement_group", instance.placement_group), ("efa", instance.efa)):
            if on:
                yield Fault(
                    f"{where}.zone",
                    "nothing",
                    f"a zone, with {setting}",
                    "nodes that are close to one another are in one zone",
                    f"name the zone, or set {setting} to false",
                )
        return
    if not instance.zone.startswith(cluster.region):
        yield _foreign_zone(f"{where}.zone", instance.zone, cluster.region)
    elif isinstance(cluster.network, NewNetwork):
        zones = cluster.network.zones
        if isinstance(zones, int):
            yield Fault(
                f"{where}.zone",
                shown(instance.zone),
                "a zone of cluster.network.zones, named there",
                f"the network takes {zones} zones as AWS lists them, which may leave this one out",
                f"name the network's zones, {instance.zone} among them",
            )
        elif instance.zone not in zones:
            yield Fault(
                f"{where}.zone",
                shown(instance.zone),
                f"one of {', '.join(zones)}",
                "the network has subnets in these zones alone",
                "add the zone to cluster.network.zones, or name one that is there",
            )


def _group_name(where: str, sku: Sku, environment: str | None) -> Iterator[Fault]:
    spot = sku.instance is not None and sku.instance.capacity == "spot"
    room = (
        aws_names.NODE_GROUP_PREFIX_MAX_CHARS - len(f"{environment}--") - (len(aws_nodes.FLOOR_SUFFIX) if spot else 0)
    )
    if len(sku.name) > room:
        yield Fault(
            f"{where}.name",
            f"{shown(sku.name)}, {len(sku.name)} characters",
            f"{room} characters for a SKU with instances",
            "the environment comes before it, EKS appends 26 characters, and a node group's name has at most 63",
            "shorten the name",
        )


def _taints(where: str, sku: Sku) -> Iterator[Fault]:
    keys = [taint.key for taint in sku.taints]
    for index, key in enumerate(keys):
        if key in keys[:index]:
            yield Fault(
                f"{where}.taints[{index}].key",
                shown(key),
                "each key once, for a SKU with instances",
                "the node autoscaler learns of the taints of nodes that are not there yet by tags, one for each key",
                "give one of the two another key",
            )


def _node_room(draft: Draft) -> Iterator[Fault]:
    """Replicas need cores and memory of their node beside its GPUs."""
    skus = {sku.name: sku for sku in draft.skus.values()}
    for index, model in draft.models.items():
        for number, placement in enumerate(model.placements):
            sku = skus.get(placement.sku)
            types = sku.instance.instance_types if sku is not None and sku.instance is not None else ()
            found = [each for each in map(catalog.find, types) if each is not None]
            if sku is None or not found:
                continue
            smallest = min(found, key=lambda each: _fits(model, each))
            each = _fits(model, smallest)
            if each * sku.nodes.max < placement.replicas.max:
                yield Fault(
                    f"models[{index}].placements[{number}].replicas.max",
                    f"{placement.replicas.max}; a replica asks for {model.resources.cpu:g} cores and "
                    f"{model.resources.memory_mib} MiB{_gpu_text(model, smallest)}, and {smallest.name} gives "
                    f"{smallest.vcpus - SYSTEM_CPU:g} cores and {_memory(smallest)} MiB"
                    f"{f' and {smallest.gpus} GPUs' if smallest.gpus else ''}: {each} a node",
                    f"{each} x {sku.nodes.max} nodes = {each * sku.nodes.max}",
                    "replicas above that would stay pending just when the load asks for them",
                    "lower replicas.max or resources, raise nodes.max, or choose a larger instance type",
                )


def _monitoring_room(draft: Draft, cluster: EksCluster) -> Iterator[Fault]:
    """Prometheus asks for its memory at once, on a system node unless the settings name others."""
    monitoring, node = draft.monitoring, catalog.find(cluster.system_nodes.instance_type)
    if monitoring is None or node is None or not monitoring.kube_prometheus_stack or monitoring.node_selector:
        return
    if monitoring.prometheus_memory_mib > _memory(node):
        yield Fault(
            "monitoring.prometheus_memory_mib",
            str(monitoring.prometheus_memory_mib),
            f"at most {_memory(node)}, what pods get of a system node, {node.name}",
            "Prometheus would stay pending, and the update wait for it in vain",
            "lower it, choose a larger cluster.system_nodes.instance_type, or name other nodes in "
            "monitoring.node_selector",
        )


def _memory(one: Instance) -> int:
    return int(one.memory_mib * ALLOCATABLE_MEMORY)


def _fits(model: ModelSettings, one: Instance) -> int:
    """Replicas that one such node holds."""
    return min(
        int((one.vcpus - SYSTEM_CPU) / model.resources.cpu),
        _memory(one) // model.resources.memory_mib,
        *([one.gpus // model.gpus] if one.gpus else []),
    )


def _gpu_text(model: ModelSettings, one: Instance) -> str:
    return f" and {model.gpus} GPU{'' if model.gpus == 1 else 's'}" if one.gpus else ""


def _store(draft: Draft) -> Iterator[Fault]:
    if isinstance(draft.store, EfsStore) and isinstance(draft.cluster, KubeconfigCluster):
        yield Fault(
            "store.kind",
            "'efs'",
            "host_path, with cluster.source: kubeconfig",
            "a file system of EFS needs a network and nodes in AWS that the stack knows",
            "adopt the cluster by its name (cluster.source: eks_existing), or use host_path",
        )
    if isinstance(draft.store, HostPathStore) and draft.cluster is not None and draft.cluster.source != "kubeconfig":
        yield Fault(
            "store.kind",
            "'host_path'",
            f"efs, with cluster.source: {draft.cluster.source}",
            "its nodes are machines of their own: a folder on one is not on the others",
            "set store: {kind: efs}",
        )


def _spot(where: str, sku: Sku) -> Iterator[Fault]:
    if sku.instance is not None and sku.instance.on_demand_floor == 0:
        yield Fault(
            f"{where}.on_demand_floor",
            "0",
            "1 or more, with capacity: spot in prod",
            "AWS takes spot nodes back at two minutes' notice, all of a type at once when it needs them",
            "set on_demand_floor to what must stay, or accept it",
        )


def _cut_short(where: str, model: ModelSettings, draft: Draft) -> Iterator[Fault]:
    most_s = SPOT_NOTICE_S - workload.PRE_STOP_S
    spot = {sku.name for sku in draft.skus.values() if sku.instance is not None and sku.instance.capacity == "spot"}
    for placement in model.placements:
        if placement.sku in spot and model.drain_timeout_s > most_s:
            yield Fault(
                where,
                str(model.drain_timeout_s),
                f"at most {most_s} on SKU '{placement.sku}' with capacity: spot",
                f"a spot node is gone {SPOT_NOTICE_S} s after its notice, {workload.PRE_STOP_S} of which pass before "
                "Triton is told; requests that take longer fail",
                "lower it, or place the model on nodes on demand",
            )


def _unprotected(draft: Draft) -> Iterator[Fault]:
    held = [("cluster.protect", draft.cluster.protect)] if isinstance(draft.cluster, EksCluster) else []
    if isinstance(draft.store, EfsStore):
        held += [("store.protect", draft.store.protect), ("store.backup", draft.store.backup)]
    for where, on in held:
        if not on:
            yield Fault(
                where,
                "false",
                "true in prod",
                "what is lost by a mistake in prod takes hours to make again",
                "leave it out: prod's default is true",
            )
