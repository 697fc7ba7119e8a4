"""What a stack tells about itself: its outputs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fleet import monitoring, names

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fleet.schema import Settings


def endpoint(settings: Settings, addresses: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """Where clients call, by model: inside the cluster by name, and the Service's address for who can route to it."""
    found = {}
    for model in settings.models:
        host = names.service_host(names.service_name(model.name), settings.serving.namespace)
        found[model.name] = {
            "http": f"http://{host}:{names.PORT_HTTP}",
            "grpc": f"{host}:{names.PORT_GRPC}",
            "address": addresses[model.name],
        }
    return found


def skus(settings: Settings) -> list[dict[str, Any]]:
    """Each SKU with what it serves: model, version and replica bounds."""
    return [
        {
            "name": sku.name,
            "gpu_product": sku.gpu_product,
            "gpus_per_node": sku.gpus_per_node,
            "nodes": {"min": sku.nodes.min, "max": sku.nodes.max},
            "models": [
                {
                    "name": model.name,
                    "version": model.version,
                    "replicas": {"min": placement.replicas.min, "max": placement.replicas.max},
                }
                for model in settings.models
                for placement in model.placements
                if placement.sku == sku.name
            ],
        }
        for sku in settings.skus
    ]


def grafana(settings: Settings) -> dict[str, str] | None:
    """Where Grafana is, and where its password stands; None where the stack installs none."""
    if not monitoring.has_grafana(settings.monitoring):
        return None
    namespace = settings.monitoring.namespace
    service = monitoring.grafana_service(settings.monitoring)
    secret = service if settings.monitoring.grafana_password is None else monitoring.GRAFANA_SECRET
    return {
        "url": f"http://{names.service_host(service, namespace)}:{monitoring.PORT_GRAFANA}",
        "user": monitoring.GRAFANA_USER,
        "password": f"Secret {namespace}/{secret}, key {monitoring.GRAFANA_PASSWORD_KEY}",
        "open": f"kubectl -n {namespace} port-forward service/{service} 3000:{monitoring.PORT_GRAFANA}",
    }
