"""Whether a model fits into the memory of its GPUs, and can be read from the store in the time that it has."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Final

from fleet import catalog, memory
from fleet.catalog.models import models
from fleet.faults import Fault, shown
from fleet.schema import EfsStore, NamedWeights, ProvisionedThroughput

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from fleet.catalog.models import Measures
    from fleet.preflight import Draft
    from fleet.schema import ModelSettings, Sku, Throughput, Weights

EFS_ELASTIC_MIBPS: Final = 20 * 1024
EFS_ELASTIC_CLIENT_MIBPS: Final = 1500
EFS_PROVISIONED_CLIENT_MIBPS: Final = 500
EFS_READ_FACTOR: Final = 3
"""Reads count a third of provisioned throughput. All four are of regional file systems, the least of all regions:
https://docs.aws.amazon.com/efs/latest/ug/performance.html"""


def refusals(draft: Draft) -> Iterator[Fault]:
    """Models that cannot be loaded."""
    skus = {sku.name: sku for sku in draft.skus.values()}
    for index, model in draft.models.items():
        where = f"models[{index}].weights"
        if model.weights is None:
            continue
        measures = memory.measures(model.weights)
        if measures is None:
            yield _unknown(where, model.weights)
            continue
        for sku, footprint in _footprints(model, model.weights, measures, skus):
            if footprint.tokens < model.weights.sequence:
                yield _too_big(where, model, model.weights, sku, footprint)
        yield from _too_slow(f"models[{index}].load_timeout_s", model, model.weights, measures, draft)


def warnings(draft: Draft) -> Iterator[Fault]:
    """Models that load, and serve less than is configured."""
    skus = {sku.name: sku for sku in draft.skus.values()}
    for index, model in draft.models.items():
        where = f"models[{index}].weights"
        measures = memory.measures(model.weights) if model.weights is not None else None
        if model.weights is None or measures is None:
            continue
        sequence, batch = model.weights.sequence, model.weights.batch
        if sequence > measures.max_sequence:
            yield Fault(
                f"{where}.sequence",
                f"{sequence} tokens",
                f"{measures.max_sequence} tokens, which the model was made for",
                "beyond its own limit a model answers, but not sensibly",
                "lower sequence, or choose a model that was made for longer ones",
            )
        for sku, footprint in _footprints(model, model.weights, measures, skus):
            if sequence <= footprint.tokens < sequence * batch:
                yield Fault(
                    f"{where}.batch",
                    f"{batch} sequences of {sequence} tokens on SKU '{sku.name}': "
                    f"{footprint.arithmetic(sequence * batch)}",
                    f"{footprint.tokens} tokens in the cache, {footprint.tokens // sequence} sequences of full length",
                    "the runtime pages its cache: sequences beyond that wait, which is well while most are short",
                    "lower batch or sequence, use fewer kv_bytes, or raise tensor_parallel",
                )


def _footprints(
    model: ModelSettings, weights: Weights, measures: Measures, skus: Mapping[str, Sku]
) -> Iterator[tuple[Sku, memory.Footprint]]:
    """The model on each SKU whose GPUs' memory is known."""
    for placement in model.placements:
        sku = skus.get(placement.sku)
        size = _gpu_memory_mib(sku) if sku is not None else None
        if sku is not None and size is not None:
            yield sku, memory.footprint(weights, measures, model.tensor_parallel, model.pipeline_parallel, size)


def _gpu_memory_mib(sku: Sku) -> int | None:
    """Memory of one GPU of the SKU, by its instance or, where it has none, by the product."""
    if sku.instance is not None:
        known = catalog.find(sku.instance.instance_types[0])
        return known.gpu_memory_mib if known is not None else None
    if sku.gpu_product is None:
        return None
    return next(
        (each.gpu_memory_mib for each in catalog.instances().values() if each.gpu_product == sku.gpu_product), None
    )


def _unknown(where: str, weights: Weights) -> Fault:
    named = weights.named if isinstance(weights, NamedWeights) else ""
    close = difflib.get_close_matches(named, models(), n=1)
    return Fault(
        f"{where}.named",
        shown(named),
        f"one of {', '.join(models())}",
        "the catalog has the measures of these models",
        f"did you mean '{close[0]}'?" if close else "give the model's measures in its place (docs/settings.md)",
    )


def _too_big(where: str, model: ModelSettings, weights: Weights, sku: Sku, footprint: memory.Footprint) -> Fault:
    return Fault(
        where,
        f"{model.tensor_parallel} x {model.pipeline_parallel} GPUs of SKU '{sku.name}': "
        f"{footprint.arithmetic(weights.sequence)}",
        f"weights, activations and the cache of one sequence of {weights.sequence} tokens",
        "what does not fit is not loaded, or cannot answer one request of full length",
        "raise tensor_parallel or pipeline_parallel, lower sequence or step_tokens, use fewer bytes_per_parameter or "
        "kv_bytes, or place the model on GPUs with more memory",
    )


def _too_slow(where: str, model: ModelSettings, weights: Weights, measures: Measures, draft: Draft) -> Iterator[Fault]:
    """All replicas may start at once, as after the loss of a zone; then they share the file system."""
    if not isinstance(draft.store, EfsStore):
        return
    replicas = sum(placement.replicas.max for placement in model.placements)
    size_mib = memory.weight_bytes(weights, measures) / memory.MIB
    whole, each = _read_mibps(draft.store.throughput)
    rate = min(each, whole / replicas)
    seconds = size_mib / rate
    if seconds > model.load_timeout_s:
        yield Fault(
            where,
            f"{model.load_timeout_s} s; {replicas} replicas that start together read {size_mib:.0f} MiB each at "
            f"{rate:.1f} MiB/s (the least of {each} MiB/s a client and {whole} MiB/s / {replicas}): {seconds:.0f} s",
            "at least the time that reading the weights takes",
            "a replica that is slower than its start-up probe is restarted, and begins anew",
            "raise load_timeout_s, give the store more throughput (throughput: {mode: elastic}), or lower replicas.max",
        )


def _read_mibps(throughput: Throughput) -> tuple[int, int]:
    """MiB/s that can be read at most: of the file system, and by one client."""
    if isinstance(throughput, ProvisionedThroughput):
        return throughput.mibps * EFS_READ_FACTOR, EFS_PROVISIONED_CLIENT_MIBPS
    return EFS_ELASTIC_MIBPS, EFS_ELASTIC_CLIENT_MIBPS
