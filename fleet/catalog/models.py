"""Measures of models that stacks may name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fleet.catalog import data

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class Measures:
    """A decoder's measures, as its `config.json` has them. `max_sequence` is in tokens."""

    parameters: int
    layers: int
    hidden: int
    intermediate: int
    vocabulary: int
    kv_heads: int
    head_dim: int
    max_sequence: int


def models() -> Mapping[str, Measures]:
    """Measures by name."""
    return {
        name: Measures(**{key: value for key, value in measures.items() if key != "source"})
        for name, measures in data.load("models.yaml").items()
    }
