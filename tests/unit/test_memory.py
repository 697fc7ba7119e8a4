"""Memory of a language model: the arithmetic, checked by hand for a model that everybody knows."""

from __future__ import annotations

import pytest

from fleet import memory
from fleet.catalog.models import models
from fleet.memory import Footprint
from fleet.schema import NamedWeights, OwnWeights

GIB = 2**30
LLAMA = models()["llama-3-8b"]
PARAMETERS = 8_030_261_248
KV_TOKEN = 2 * 32 * 8 * 128 * 2
"""Keys and values of 32 layers, 8 heads of 128 numbers of 2 bytes: 128 KiB."""


def named(**changes: float) -> NamedWeights:
    return NamedWeights.model_validate({"named": "llama-3-8b", "sequence": 8192, **changes})


CASES = [
    pytest.param(
        named(),
        (1, 1, 40960),
        Footprint(
            weights=2 * PARAMETERS,
            activations=8192 * 2 * (4096 + 14336) * 2 + 128256 * 4,
            cache_token=KV_TOKEN,
            total=40 * GIB,
        ),
        id="one A100 of 40 GiB",
    ),
    pytest.param(
        named(batch=8, step_tokens=2048),
        (2, 1, 22888),
        Footprint(
            weights=PARAMETERS,
            activations=2048 * 2 * (4096 + 7168) * 2 + 8 * 128256 * 4,
            cache_token=KV_TOKEN // 2,
            total=22888 * 2**20,
        ),
        id="tensor parallelism shares layers",
    ),
    pytest.param(
        named(),
        (1, 3, 22888),
        Footprint(
            weights=-(-2 * PARAMETERS * 11 // 32),
            activations=8192 * 2 * (4096 + 14336) * 2 + 128256 * 4,
            cache_token=2 * 11 * 8 * 128 * 2,
            total=22888 * 2**20,
        ),
        id="of 32 layers over 3 stages one stage has 11",
    ),
    pytest.param(
        named(),
        (3, 1, 22888),
        Footprint(
            weights=-(-2 * PARAMETERS // 3),
            activations=8192 * 2 * (4096 + 4779) * 2 + 128256 * 4,
            cache_token=2 * 32 * 3 * 128 * 2,
            total=22888 * 2**20,
        ),
        id="of 8 heads over 3 GPUs one GPU has 3",
    ),
    pytest.param(
        named(bytes_per_parameter=0.5, kv_bytes=1.0),
        (16, 1, 81920),
        Footprint(
            weights=-(-PARAMETERS // 2 // 16),
            activations=8192 * 2 * (4096 + 896) * 2 + 128256 * 4,
            cache_token=2 * 32 * 1 * 128,
            total=80 * GIB,
        ),
        id="8 heads over 16 GPUs are copied; small weights, small cache",
    ),
]


@pytest.mark.parametrize(("weights", "gpus", "expected"), CASES)
def test_footprint(weights: NamedWeights, gpus: tuple[int, int, int], expected: Footprint) -> None:
    assert memory.footprint(weights, LLAMA, *gpus) == expected


def test_the_cache_gets_nine_tenths_of_the_rest() -> None:
    made = Footprint(weights=10 * GIB, activations=2 * GIB, cache_token=2**17, total=22 * GIB)
    assert (made.cache, made.tokens) == (9 * GIB, 9 * GIB // 2**17)
    assert Footprint(weights=10 * GIB, activations=2 * GIB, cache_token=2**17, total=11 * GIB).tokens == 0


def test_the_arithmetic_is_shown() -> None:
    made = Footprint(weights=10 * GIB, activations=2 * GIB, cache_token=2**17, total=22 * GIB)
    assert made.arithmetic(8192) == (
        "weights 10.00 GiB + activations 2.00 GiB + cache of 8192 tokens x 128 KiB = 1.00 GiB, of 22.00 GiB a GPU, of "
        "whose rest the cache gets 90%: 9.00 GiB, 73728 tokens"
    )


def test_own_measures_are_those_of_the_named_model() -> None:
    own = OwnWeights(
        parameters_b=PARAMETERS / 1e9,
        layers=32,
        hidden=4096,
        intermediate=14336,
        vocabulary=128256,
        kv_heads=8,
        head_dim=128,
        max_sequence=8192,
        sequence=1,
    )
    assert memory.measures(own) == LLAMA == memory.measures(named())
    assert memory.measures(NamedWeights(named="llama-9", sequence=1)) is None


def test_weights_are_read_whole_by_each_replica() -> None:
    assert memory.weight_bytes(named(), LLAMA) == 2 * PARAMETERS
    assert memory.weight_bytes(named(bytes_per_parameter=1.0), LLAMA) == PARAMETERS
