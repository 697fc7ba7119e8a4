"""What a language model needs of each GPU's memory: weights, activations, and the cache of keys and values.

The parts are those that https://nvidia.github.io/TensorRT-LLM/reference/memory.html names. The runtimes page the cache:
they give it a share of what weights and activations leave, and serve as many sequences at once as fit into that.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from fleet.catalog.models import Measures, models
from fleet.schema import NamedWeights

if TYPE_CHECKING:
    from fleet.schema import Weights

GIB: Final = 2**30
MIB: Final = 2**20
CACHE_SHARE: Final = 0.9
"""Of the free memory, what the cache gets: https://nvidia.github.io/TensorRT-LLM/examples/kvcacheconfig.html"""
ACTIVATION_BYTES: Final = 2
"""Activations are of 16 bits, also where weights are of fewer."""
LOGIT_BYTES: Final = 4


@dataclass(frozen=True, slots=True)
class Footprint:
    """Bytes on each GPU of a replica. `cache_token` is what one token takes of the cache."""

    weights: int
    activations: int
    cache_token: int
    total: int
    """What the GPU has."""

    @property
    def cache(self) -> int:
        """What the cache can have; nothing where weights and activations take all."""
        return max(int((self.total - self.weights - self.activations) * CACHE_SHARE), 0)

    @property
    def tokens(self) -> int:
        """Tokens that the cache holds, of all sequences together."""
        return self.cache // self.cache_token

    def arithmetic(self, tokens: int) -> str:
        """How the memory of a GPU goes round with so many tokens in the cache, in words."""
        return (
            f"weights {gib(self.weights)} + activations {gib(self.activations)} + cache of {tokens} tokens x "
            f"{self.cache_token // 1024} KiB = {gib(tokens * self.cache_token)}, of {gib(self.total)} a GPU, of whose "
            f"rest the cache gets {CACHE_SHARE:.0%}: {gib(self.cache)}, {self.tokens} tokens"
        )


def gib(size: int) -> str:
    """Bytes in GiB, for people."""
    return f"{size / GIB:.2f} GiB"


def measures(weights: Weights) -> Measures | None:
    """The model's measures; nothing for a name that the catalog does not know."""
    if isinstance(weights, NamedWeights):
        return models().get(weights.named)
    return Measures(
        parameters=round(weights.parameters_b * 1e9),
        layers=weights.layers,
        hidden=weights.hidden,
        intermediate=weights.intermediate,
        vocabulary=weights.vocabulary,
        kv_heads=weights.kv_heads,
        head_dim=weights.head_dim,
        max_sequence=weights.max_sequence,
    )


def weight_bytes(weights: Weights, model: Measures) -> int:
    """Size of all weights, which is what a replica reads when it starts."""
    return round(model.parameters * weights.bytes_per_parameter)


def footprint(
    weights: Weights, model: Measures, tensor_parallel: int, pipeline_parallel: int, gpu_memory_mib: int
) -> Footprint:
    """What a replica over so many GPUs needs of the fullest of them.

    Tensor parallelism shares each layer, pipeline parallelism the layers, of which a GPU has a whole number. Heads of
    keys and values are shared as far as there are some, and copied beyond. Activations are those of one layer: its
    input twice (before and after the norm) and both inner products; and the logits of each sequence, of which the last
    stage makes all.
    """
    layers = -(-model.layers // pipeline_parallel)
    kv_heads = max(-(-model.kv_heads // tensor_parallel), 1)
    inner = -(-model.intermediate // tensor_parallel)
    return Footprint(
        weights=-(-weight_bytes(weights, model) * layers // (model.layers * tensor_parallel)),
        activations=weights.step_tokens * 2 * (model.hidden + inner) * ACTIVATION_BYTES
        + weights.batch * model.vocabulary * LOGIT_BYTES,
        cache_token=max(round(2 * layers * kv_heads * model.head_dim * weights.kv_bytes), 1),
        total=gpu_memory_mib * MIB,
    )
