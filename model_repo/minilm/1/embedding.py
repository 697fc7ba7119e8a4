"""Sentence embeddings with a BERT encoder in numpy: float32, CPU, no framework.

Texts of one batch are packed one after the other, never padded: the dense layers run over all tokens of the batch at
once, attention runs text by text. So a text's embedding and its cost do not depend on the texts beside it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from safetensors.numpy import load_file
from tokenizers import Tokenizer

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    Floats = NDArray[np.float32]

FEED_FORWARD_ROWS = 256
"""Tokens that go through a feed-forward layer at a time: 1.5 MiB of activations, which stay near the core. With
twice as many a text of a batch of 32 takes a third longer (docs/benchmarks.md).
"""

EXPECTED = {
    "config.json": {
        "model_type": "bert",
        "hidden_act": "gelu",
        "position_embedding_type": "absolute",
    },
    "1_Pooling/config.json": {
        "pooling_mode_cls_token": False,
        "pooling_mode_mean_tokens": True,
        "pooling_mode_max_tokens": False,
        "pooling_mode_mean_sqrt_len_tokens": False,
    },
}
"""What this code computes; a model folder that says otherwise would give wrong vectors, not errors."""
STEPS = ["Transformer", "Pooling", "Normalize"]


@dataclass(frozen=True)
class Dense:
    """`x @ weight + bias`."""

    weight: Floats
    bias: Floats

    def __call__(self, x: Floats) -> Floats:
        y = x @ self.weight
        y += self.bias
        return y


@dataclass(frozen=True)
class LayerNorm:
    """Each row to mean 0 and variance 1, then scaled and shifted."""

    weight: Floats
    bias: Floats
    epsilon: np.float32

    def __call__(self, x: Floats) -> Floats:
        x = x - x.mean(axis=-1, keepdims=True)
        variance = np.mean(np.square(x), axis=-1, keepdims=True)
        x /= np.sqrt(variance + self.epsilon)
        x *= self.weight
        x += self.bias
        return x


@dataclass(frozen=True)
class EncoderLayer:
    """One transformer layer; `query_key_value` is the three projections side by side."""

    query_key_value: Dense
    attended: Dense
    attended_norm: LayerNorm
    inner: Dense
    outer: Dense
    outer_norm: LayerNorm


class Embedder:
    """A model folder of sentence-transformers, loaded once; `embed` may be called any number of times."""

    def __init__(self, folder: Path) -> None:
        self._refuse_what_this_code_does_not_compute(folder)
        config = _read(folder / "config.json")
        self.heads: int = config["num_attention_heads"]
        self.width: int = config["hidden_size"]
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(_read(folder / "sentence_bert_config.json")["max_seq_length"])
        named = load_file(folder / "model.safetensors")
        epsilon = np.float32(config["layer_norm_eps"])
        self._words = named["embeddings.word_embeddings.weight"]
        self._places = (
            named["embeddings.position_embeddings.weight"] + named["embeddings.token_type_embeddings.weight"][0]
        )
        self._input_norm = _norm(named, "embeddings.LayerNorm", epsilon)
        self._layers = [
            _encoder_layer(named, f"encoder.layer.{number}", epsilon) for number in range(config["num_hidden_layers"])
        ]

    @staticmethod
    def _refuse_what_this_code_does_not_compute(folder: Path) -> None:
        for name, expected in EXPECTED.items():
            found = _read(folder / name)
            for setting, value in expected.items():
                got = found.get(setting)
                if got != value:
                    raise ValueError(f"{folder / name}: {setting} is {got!r}, this code computes {value!r}")
        steps = [step["type"].rpartition(".")[2] for step in _read(folder / "modules.json")]
        if steps != STEPS:
            raise ValueError(f"{folder / 'modules.json'}: the steps are {steps}, this code computes {STEPS}")

    def embed(self, texts: Sequence[str]) -> Floats:
        """One row of length 1 for each text; what exceeds the model's longest text is cut off."""
        if not texts:
            return np.empty((0, self.width), np.float32)
        tokens = [np.array(encoded.ids) for encoded in self._tokenizer.encode_batch_fast(list(texts))]
        ends = np.cumsum([len(ids) for ids in tokens])
        spans = [slice(end - len(ids), end) for ids, end in zip(tokens, ends, strict=True)]
        places = np.concatenate([np.arange(len(ids)) for ids in tokens])
        x = self._input_norm(self._words[np.concatenate(tokens)] + self._places[places])
        for layer in self._layers:
            x = layer.attended_norm(x + layer.attended(self._attend(layer.query_key_value(x), spans)))
            x = layer.outer_norm(x + _feed_forward(layer, x))
        means = np.stack([x[span].mean(axis=0) for span in spans])
        means /= np.linalg.norm(means, axis=1, keepdims=True)
        return means

    def _attend(self, query_key_value: Floats, spans: Sequence[slice]) -> Floats:
        out = np.empty((len(query_key_value), self.width), np.float32)
        size = self.width // self.heads
        for span in spans:
            # (tokens, 3, heads, size) -> 3 of (heads, tokens, size)
            query, key, value = query_key_value[span].reshape(-1, 3, self.heads, size).transpose(1, 2, 0, 3)
            scores = query @ key.transpose(0, 2, 1)
            scores *= np.float32(size**-0.5)
            scores -= scores.max(axis=-1, keepdims=True)
            np.exp(scores, out=scores)
            scores /= scores.sum(axis=-1, keepdims=True)
            out[span] = (scores @ value).transpose(1, 0, 2).reshape(-1, self.width)
        return out


def _feed_forward(layer: EncoderLayer, x: Floats) -> Floats:
    out = np.empty_like(x)
    for start in range(0, len(x), FEED_FORWARD_ROWS):
        rows = slice(start, start + FEED_FORWARD_ROWS)
        out[rows] = layer.outer(gelu(layer.inner(x[rows])))
    return out


def gelu(x: Floats) -> Floats:
    """`x * (1 + erf(x / sqrt 2)) / 2`, in place.

    erf by Abramowitz and Stegun, Handbook of Mathematical Functions, 7.1.26: its error is below 1.5e-7, which is
    float32's own.
    """
    z = np.abs(x)
    z *= np.float32(0.5**0.5)
    t = np.float32(1) / (np.float32(1) + np.float32(0.3275911) * z)
    np.square(z, out=z)
    np.negative(z, out=z)
    np.exp(z, out=z)
    tail = np.full_like(x, 1.061405429)
    for coefficient in (-1.453152027, 1.421413741, -0.284496736, 0.254829592):
        tail *= t
        tail += np.float32(coefficient)
    tail *= t
    tail *= z  # 1 - erf(|x| / sqrt 2)
    # For x >= 0 the result is x - x * tail / 2, else x * tail / 2: the larger of x and 0, less |x| * tail / 2.
    tail *= np.abs(x)
    tail *= np.float32(0.5)
    np.maximum(x, 0, out=x)
    x -= tail
    return x


def _encoder_layer(named: Mapping[str, Floats], prefix: str, epsilon: np.float32) -> EncoderLayer:
    attention = [f"{prefix}.attention.self.{name}" for name in ("query", "key", "value")]
    return EncoderLayer(
        query_key_value=Dense(
            np.concatenate([named[f"{name}.weight"].T for name in attention], axis=1),
            np.concatenate([named[f"{name}.bias"] for name in attention]),
        ),
        attended=_dense(named, f"{prefix}.attention.output.dense"),
        attended_norm=_norm(named, f"{prefix}.attention.output.LayerNorm", epsilon),
        inner=_dense(named, f"{prefix}.intermediate.dense"),
        outer=_dense(named, f"{prefix}.output.dense"),
        outer_norm=_norm(named, f"{prefix}.output.LayerNorm", epsilon),
    )


def _dense(named: Mapping[str, Floats], name: str) -> Dense:
    return Dense(np.ascontiguousarray(named[f"{name}.weight"].T), named[f"{name}.bias"])


def _norm(named: Mapping[str, Floats], name: str, epsilon: np.float32) -> LayerNorm:
    return LayerNorm(named[f"{name}.weight"], named[f"{name}.bias"], epsilon)


def _read(path: Path) -> Any:  # noqa: ANN401 - whatever the file holds
    return json.loads(path.read_text())
