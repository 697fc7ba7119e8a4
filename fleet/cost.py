"""What a stack costs: the least and the most that its settings allow, of what the stack itself makes.

USD, on demand, from the catalog's prices. What the catalog has no price for is unknown, and so is each sum over it; it
is never taken for nothing. What depends on use (data, requests, logs, backups) and small change (disks, keys) is left
out, and `LEFT_OUT` says so.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from fleet import capacity, catalog
from fleet.capacity import Demand
from fleet.catalog import services
from fleet.catalog.services import Service
from fleet.schema import EfsStore, EksCluster, NewNetwork, ProvisionedThroughput, gpus_per_replica

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from fleet.schema import Instance, Settings, Sku

HOURS_PER_MONTH: Final = 730
"""A year's hours by twelve, as AWS reckons: https://docs.aws.amazon.com/pricing-calculator/latest/userguide/faqs.html"""
GIB_IN_GB: Final = Decimal(2**30) / Decimal(10**9)
UNKNOWN: Final = "unknown"
LEFT_OUT: Final = "data transfer, requests, logs, backups, disks, keys, taxes, discounts"


@dataclass(frozen=True, slots=True)
class Range:
    """USD per hour: the least and the most; None where it is unknown."""

    floor: Decimal | None
    ceiling: Decimal | None

    @property
    def floor_per_hour(self) -> float | None:
        return _rounded(self.floor, 4)

    @property
    def ceiling_per_hour(self) -> float | None:
        return _rounded(self.ceiling, 4)

    @property
    def floor_per_month(self) -> float | None:
        return _rounded(_times(self.floor, HOURS_PER_MONTH), 2)

    @property
    def ceiling_per_month(self) -> float | None:
        return _rounded(_times(self.ceiling, HOURS_PER_MONTH), 2)


@dataclass(frozen=True, slots=True)
class Item(Range):
    """Something that is paid for: a SKU's nodes, or what the cluster stands on."""

    name: str
    what: str


@dataclass(frozen=True, slots=True)
class Cost(Range):
    """What the stack costs, and what that is made of."""

    skus: tuple[Item, ...]
    shared: tuple[Item, ...]


def of(settings: Settings) -> Cost:
    """What the stack costs; nothing of it for what is there already."""
    skus = tuple(_sku(settings, sku) for sku in settings.skus if sku.instance is not None)
    shared = tuple(_shared(settings))
    items = (*skus, *shared)
    return Cost(
        floor=_sum(item.floor for item in items), ceiling=_sum(item.ceiling for item in items), skus=skus, shared=shared
    )


def output(settings: Settings) -> dict[str, Any] | None:
    """The stack's output; nothing where the stack makes nothing that costs."""
    cost = of(settings)
    if not cost.skus and not cost.shared:
        return None
    return {
        "currency": "USD",
        **_figures(cost),
        "skus": [{"name": item.name, "what": item.what, **_figures(item)} for item in cost.skus],
        "shared": [{"name": item.name, "what": item.what, **_figures(item)} for item in cost.shared],
        "left_out": LEFT_OUT,
    }


def nodes_needed(settings: Settings, sku: Sku, instance: Instance) -> int:
    """Nodes that the SKU has when nothing is asked of it: its fewest, or those that the fewest replicas need."""
    placed = [
        (model, placement.replicas.min)
        for model in settings.models
        for placement in model.placements
        if placement.sku == sku.name
    ]
    wanted = [Demand(model.name, replicas, gpus_per_replica(model, sku)) for model, replicas in placed]
    nodes = max(sku.nodes.min, 1 if placed else 0)
    if sku.gpus_per_node:
        while nodes < sku.nodes.max and not capacity.fits(wanted, sku.gpus_per_node, nodes):
            nodes += 1
        return nodes
    known = [each for each in map(catalog.find, instance.instance_types) if each is not None]
    if known:
        cores = sum(model.resources.cpu * replicas for model, replicas in placed)
        nodes = max(nodes, -int(-cores // min(each.vcpus for each in known)))
    return min(nodes, sku.nodes.max)


def _sku(settings: Settings, sku: Sku) -> Item:
    instance = sku.instance
    if instance is None:
        raise ValueError(f"{sku.name} has no instances")
    least, most = nodes_needed(settings, sku, instance), sku.nodes.max
    region = settings.cluster.region if isinstance(settings.cluster, EksCluster) else ""
    prices = [known.price(region) if (known := catalog.find(name)) else None for name in instance.instance_types]
    cheapest, dearest = _least(prices), _most(prices)
    what = f"{least} to {most} x {' or '.join(instance.instance_types)}, {instance.capacity.replace('_', ' ')}"
    if instance.capacity == "spot":
        # A spot node costs at most what it costs on demand, and nobody knows how much less.
        held = min(instance.on_demand_floor, most)
        spot = _times(None, max(least - held, 0))
        return Item(_sum([_times(cheapest, min(held, most)), spot]), _times(dearest, most), sku.name, what)
    if instance.capacity == "capacity_block":
        # Its price was agreed, and paid, when the block was bought.
        return Item(_times(None, least), _times(None, most), sku.name, what)
    return Item(_times(cheapest, least), _times(dearest, most), sku.name, what)


def _shared(settings: Settings) -> Iterable[Item]:
    cluster = settings.cluster
    if isinstance(cluster, EksCluster):
        price = services.price(Service.EKS_STANDARD, cluster.region)
        yield Item(price, price, "control plane", f"EKS {cluster.kubernetes_version}, in standard support")
        nodes = cluster.system_nodes
        known = catalog.find(nodes.instance_type)
        hourly = known.price(cluster.region) if known is not None else None
        yield Item(
            _times(hourly, nodes.min),
            _times(hourly, nodes.max),
            "system nodes",
            f"{nodes.min} to {nodes.max} x {nodes.instance_type}",
        )
        if isinstance(cluster.network, NewNetwork):
            zones = cluster.network.zones if isinstance(cluster.network.zones, int) else len(cluster.network.zones)
            count = 1 if cluster.network.nat == "single" else zones
            each = _sum(
                [
                    services.price(Service.NAT_GATEWAY, cluster.region),
                    services.price(Service.PUBLIC_IPV4, cluster.region),
                ]
            )
            yield Item(_times(each, count), _times(each, count), "NAT", f"{count} x gateway with address")
    if isinstance(settings.store, EfsStore):
        region = "" if cluster.source == "kubeconfig" else cluster.region
        monthly = _times(services.price(Service.EFS_STORAGE, region), settings.store.size_gib * GIB_IN_GB)
        what = f"EFS, {settings.store.size_gib} GiB"
        throughput = settings.store.throughput
        if isinstance(throughput, ProvisionedThroughput):
            provisioned = _times(services.price(Service.EFS_PROVISIONED, region), throughput.mibps)
            monthly, what = _sum([monthly, provisioned]), f"{what}, {throughput.mibps} MiB/s provisioned"
        hourly = None if monthly is None else monthly / HOURS_PER_MONTH
        yield Item(hourly, hourly, "model store", what)


def _figures(cost: Range) -> dict[str, float | str]:
    """The four figures, with a word where one is unknown."""
    figures = {
        "floor_per_hour": cost.floor_per_hour,
        "ceiling_per_hour": cost.ceiling_per_hour,
        "floor_per_month": cost.floor_per_month,
        "ceiling_per_month": cost.ceiling_per_month,
    }
    return {name: UNKNOWN if figure is None else figure for name, figure in figures.items()}


def _times(price: Decimal | None, count: Decimal | int) -> Decimal | None:
    """None of something costs nothing, whatever its price."""
    if count == 0:
        return Decimal(0)
    return None if price is None else price * count


def _sum(prices: Iterable[Decimal | None]) -> Decimal | None:
    total = Decimal(0)
    for price in prices:
        if price is None:
            return None
        total += price
    return total


def _least(prices: Sequence[Decimal | None]) -> Decimal | None:
    known = [price for price in prices if price is not None]
    return min(known) if len(known) == len(prices) else None


def _most(prices: Sequence[Decimal | None]) -> Decimal | None:
    known = [price for price in prices if price is not None]
    return max(known) if len(known) == len(prices) else None


def _rounded(price: Decimal | None, digits: int) -> float | None:
    return None if price is None else float(round(price, digits))
