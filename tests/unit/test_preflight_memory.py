"""Preflight of memory and of the time to load: what does not fit, what fits in part, with the arithmetic shown."""

from __future__ import annotations

from typing import Any

import pytest

from fleet import preflight_memory
from fleet.faults import Fault
from fleet.preflight import Draft
from fleet.schema import Settings

Raw = dict[str, Any]

PARAMETERS = 8_030_261_248
GIB = 2**30
A10G_BYTES = 22888 * 2**20
KV_TOKEN = 2 * 32 * 8 * 128 * 2
ACTIVATIONS = 2048 * 2 * (4096 + 14336) * 2 + 128256 * 4
TOKENS = int((A10G_BYTES - 2 * PARAMETERS - ACTIVATIONS) * 0.9) // KV_TOKEN
"""What an A10G's cache holds beside Llama 3 8B in 16 bits: 53474 tokens of 128 KiB."""


def weights(**changes: object) -> Raw:
    return {"named": "llama-3-8b", "sequence": 8192, "step_tokens": 2048, **changes}


def draft(given: Raw, skus: list[Raw] | None = None, store: Raw | None = None, **changes: object) -> Draft:
    model = {
        "name": "llm",
        "version": 1,
        "runtime": "tensorrt_llm",
        "weights": given,
        "placements": [{"sku": "gpu", "replicas": {"min": 1, "max": 2}}],
        **changes,
    }
    return Draft.of(
        Settings.model_validate(
            {
                "environment": "dev",
                "cluster": {"source": "kubeconfig", "kubeconfig": "k"},
                "store": store or {},
                "skus": skus or [gpu("NVIDIA-A10G")],
                "models": [model],
                "images": {"triton": "t:1", "tools": "t:1"},
            }
        )
    )


def gpu(product: str | None, **more: object) -> Raw:
    return {"name": "gpu", "gpu_product": product, "gpus_per_node": 8, "nodes": {"min": 0, "max": 1}, **more}


def arithmetic(tokens: int, activations: str = "0.14 GiB") -> str:
    return (
        f"weights 14.96 GiB + activations {activations} + cache of {tokens} tokens x 128 KiB = "
        f"{tokens * KV_TOKEN / GIB:.2f} GiB, of 22.35 GiB a GPU, of whose rest the cache gets 90%: 6.53 GiB, "
        f"{TOKENS} tokens"
    )


def verdict(made: Draft) -> tuple[list[Fault], list[Fault]]:
    return list(preflight_memory.refusals(made)), list(preflight_memory.warnings(made))


def test_by_hand() -> None:
    assert TOKENS == 53474
    assert (
        pytest.approx(14.957, abs=1e-3),
        pytest.approx(0.141, abs=1e-3),
    ) == (2 * PARAMETERS / GIB, ACTIVATIONS / GIB)


TOO_BIG = (
    "what does not fit is not loaded, or cannot answer one request of full length",
    (
        "raise tensor_parallel or pipeline_parallel, lower sequence or step_tokens, use fewer bytes_per_parameter or "
        "kv_bytes, or place the model on GPUs with more memory"
    ),
)
BEYOND = (
    "beyond its own limit a model answers, but not sensibly",
    "lower sequence, or choose a model that was made for longer ones",
)


def test_it_fits() -> None:
    assert verdict(draft(weights())) == ([], [])


def test_the_last_token_that_fits_and_the_first_that_does_not() -> None:
    limit = Fault(
        "models[0].weights.sequence",
        f"{TOKENS} tokens",
        "8192 tokens, which the model was made for",
        *BEYOND,
    )
    assert verdict(draft(weights(sequence=TOKENS))) == ([], [limit])
    refusals, _ = verdict(draft(weights(sequence=TOKENS + 1)))
    assert refusals == [
        Fault(
            "models[0].weights",
            f"1 x 1 GPUs of SKU 'gpu': {arithmetic(TOKENS + 1)}",
            f"weights, activations and the cache of one sequence of {TOKENS + 1} tokens",
            *TOO_BIG,
        )
    ]


def test_a_batch_that_does_not_fit_is_paged_and_warned_of() -> None:
    assert verdict(draft(weights(sequence=8000, batch=6))) == ([], [])
    made = draft(weights(sequence=8000, batch=7))
    # seven sequences have seven rows of logits: 6 x 128256 x 4 bytes more
    tokens = int((A10G_BYTES - 2 * PARAMETERS - ACTIVATIONS - 6 * 128256 * 4) * 0.9) // KV_TOKEN
    shown = arithmetic(56000).replace(f"{TOKENS} tokens", f"{tokens} tokens")
    assert verdict(made) == (
        [],
        [
            Fault(
                "models[0].weights.batch",
                f"7 sequences of 8000 tokens on SKU 'gpu': {shown}",
                f"{tokens} tokens in the cache, {tokens // 8000} sequences of full length",
                "the runtime pages its cache: sequences beyond that wait, which is well while most are short",
                "lower batch or sequence, use fewer kv_bytes, or raise tensor_parallel",
            )
        ],
    )


def test_weights_that_are_larger_than_the_gpu_and_are_shared_by_two() -> None:
    big = {**weights(), "named": "llama-3-1-70b", "bytes_per_parameter": 0.5}
    refusals, _ = verdict(draft(big))
    assert [fault.setting for fault in refusals] == ["models[0].weights"]
    assert ": 0.00 GiB, 0 tokens" in refusals[0].got
    assert verdict(draft(big, tensor_parallel=2)) == ([], [])


def test_memory_is_that_of_the_instance_or_of_the_product() -> None:
    a100 = gpu(None, gpus_per_node=0, instance={"instance_types": ["p4d.24xlarge"]})
    del a100["gpu_product"], a100["gpus_per_node"]
    whole = weights(sequence=100_000)
    assert [fault.setting for fault in verdict(draft(whole, [a100]))[0]] == []
    assert [fault.setting for fault in verdict(draft(whole, [gpu("NVIDIA-A100-SXM4-40GB")]))[0]] == []
    assert [fault.setting for fault in verdict(draft(whole, [gpu("NVIDIA-A10G")]))[0]] == ["models[0].weights"]


def test_nothing_is_reckoned_where_nothing_is_known() -> None:
    whole = weights(sequence=10_000_000)
    sequence = ["models[0].weights.sequence"]
    for skus in ([gpu("UNHEARD-OF")], [gpu(None, gpus_per_node=0)]):
        refusals, warnings = verdict(draft(whole, skus))
        assert (refusals, [fault.setting for fault in warnings]) == ([], sequence)


def test_a_model_that_the_catalog_does_not_know() -> None:
    assert verdict(draft({"named": "llama-3-9b", "sequence": 1})) == (
        [
            Fault(
                "models[0].weights.named",
                "'llama-3-9b'",
                "one of llama-3-8b, llama-3-1-8b, llama-3-1-70b",
                "the catalog has the measures of these models",
                "did you mean 'llama-3-8b'?",
            )
        ],
        [],
    )


WEIGHTS_MIB = 2 * PARAMETERS / 2**20  # 15316.5
SLOW = [
    pytest.param({"mode": "elastic"}, 11, 2, None, id="elastic, 1500 MiB/s a client: 10.2 s"),
    pytest.param({"mode": "elastic"}, 10, 2, (1500, 20480, 1500.0, 10), id="elastic, a second too few"),
    pytest.param({"mode": "elastic"}, 10, 14, (1500, 20480, 20480 / 14, 10), id="elastic, 14 replicas share the whole"),
    pytest.param({"mode": "provisioned", "mibps": 100}, 103, 2, None, id="provisioned, 3 x 100 MiB/s for two"),
    pytest.param({"mode": "provisioned", "mibps": 100}, 102, 2, (500, 300, 150.0, 102), id="provisioned, too slow"),
    pytest.param({"mode": "provisioned", "mibps": 3000}, 31, 2, None, id="provisioned, 500 MiB/s a client: 30.6 s"),
]


@pytest.mark.parametrize(("throughput", "load_timeout_s", "replicas", "expected"), SLOW)
def test_weights_are_read_in_the_time_to_load(
    throughput: Raw, load_timeout_s: int, replicas: int, expected: tuple[int, int, float, int] | None
) -> None:
    made = draft(
        weights(),
        store={"kind": "efs", "throughput": throughput},
        load_timeout_s=load_timeout_s,
        placements=[{"sku": "gpu", "replicas": {"min": 1, "max": replicas}}],
    )
    refusals = []
    if expected is not None:
        each, whole, rate, _ = expected
        refusals = [
            Fault(
                "models[0].load_timeout_s",
                f"{load_timeout_s} s; {replicas} replicas that start together read 15317 MiB each at {rate:.1f} MiB/s "
                f"(the least of {each} MiB/s a client and {whole} MiB/s / {replicas}): {WEIGHTS_MIB / rate:.0f} s",
                "at least the time that reading the weights takes",
                "a replica that is slower than its start-up probe is restarted, and begins anew",
                "raise load_timeout_s, give the store more throughput (throughput: {mode: elastic}), or lower "
                "replicas.max",
            )
        ]
    assert verdict(made) == (refusals, [])
