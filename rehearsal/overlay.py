"""What a rehearsal puts in the place of what only GPUs and registries have; all else stays as the stack says. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from fleet import names

if TYPE_CHECKING:
    from collections.abc import Mapping

Config = dict[str, Any]
"""A stack file's `config`: Pulumi's keys, `<namespace>:<name>`."""

CHARTS: Final = "local/charts"
PROMETHEUS_MEMORY_MIB: Final = 400
"""What Prometheus needs for a rehearsal's few pods; the machine holds the whole cluster."""
KEPT_OF_IMAGES: Final = frozenset({"pull_secrets", "ecr"})


@dataclass(frozen=True, slots=True)
class Substitutes:
    """The model and the images that run without a GPU: stack `local`'s own."""

    model: Mapping[str, Any]
    images: Mapping[str, Any]

    @classmethod
    def of(cls, local: Config) -> Substitutes:
        """From stack `local`'s configuration."""
        (model,) = local[_key("models")]
        return cls(model, local[_key("images")])


def substitute(config: Config, by: Substitutes) -> tuple[Config, list[str]]:
    """The rehearsed configuration, and what was substituted, a line each.

    The small model stands on every SKU that a model of the stack stands on, with the replicas that they ask for
    together, so that each node group and each GPU product has pods to prove it.
    """
    monitoring = config.get(_key("monitoring")) or {}
    models, images = config.get(_key("models")) or [], config.get(_key("images")) or {}
    placements = _placements(models)
    changed = {
        **config,
        _key("models"): [{**_model(by.model, models), "placements": placements}],
        _key("images"): {**{key: images[key] for key in images if key in KEPT_OF_IMAGES}, **by.images},
        _key("charts"): {**(config.get(_key("charts")) or {}), "mirror": CHARTS, "compat": "current"},
        _key("monitoring"): {
            **{key: value for key, value in monitoring.items() if key != "storage"},
            "prometheus_memory_mib": PROMETHEUS_MEMORY_MIB,
        },
    }
    served = ", ".join(str(model.get("name")) for model in models)
    where = ", ".join(str(placement["sku"]) for placement in placements)
    said = [
        f"model: {by.model['name']} ({by.model['runtime']}) in place of {served}, on {where}; GPUs are simulated",
        *(
            f"image {name}: {value} in place of {images.get(name, 'the default')}"
            for name, value in sorted(by.images.items())
            if name != "pull_policy"
        ),
        f"charts: light ones from {CHARTS}; their programs are stand-ins where they need an account",
        f"monitoring: {PROMETHEUS_MEMORY_MIB} MiB for Prometheus"
        + (", and no disk of EBS, which is not played" if monitoring.get("storage") else ""),
    ]
    return changed, said


def _model(small: Mapping[str, Any], models: list[Mapping[str, Any]]) -> dict[str, Any]:
    """The small model, scaled as the stack's first model is: how fast is a matter of the environment."""
    scaled = next((model["autoscaling"] for model in models[:1] if "autoscaling" in model), None)
    kept = {key: value for key, value in small.items() if key != "autoscaling"}
    return kept if scaled is None else {**kept, "autoscaling": scaled}


def _placements(models: list[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """One per SKU; replicas add up, in the order in which SKUs are named first."""
    together: dict[str, dict[str, int]] = {}
    for model in models:
        for placement in model.get("placements") or ():
            asked = placement.get("replicas") or {}
            bounds = together.setdefault(placement["sku"], {"min": 0, "max": 0})
            for bound in bounds:
                bounds[bound] += int(asked.get(bound, 1))
    return [{"sku": sku, "replicas": bounds} for sku, bounds in together.items()]


def _key(setting: str) -> str:
    return f"{names.CONFIG_NAMESPACE}:{setting}"
