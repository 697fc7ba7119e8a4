"""Values between the engine's messages and plain Python. Unknown values are the engine's own text for them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pulumi.provider.experimental.property_value import Computed, PropertyValue

from rehearsal.account import UNKNOWN


def plain(value: PropertyValue) -> Any:  # noqa: ANN401 - any value of the wire
    """Numbers without a fraction become integers; the wire knows only one kind of number."""
    inner = value.value
    if isinstance(inner, Computed):
        return UNKNOWN
    if isinstance(inner, Mapping):
        return {name: plain(one) for name, one in inner.items()}
    if isinstance(inner, list | tuple):
        return [plain(one) for one in inner]
    if isinstance(inner, float) and inner.is_integer():
        return int(inner)
    return inner


def plain_map(values: Mapping[str, PropertyValue]) -> dict[str, Any]:
    return {name: plain(value) for name, value in values.items()}


def wrapped(value: Any) -> PropertyValue:  # noqa: ANN401 - any value of the wire
    if isinstance(value, bool | str) or value is None:
        return PropertyValue(value)
    if isinstance(value, int | float):
        return PropertyValue(float(value))
    if isinstance(value, Mapping):
        return PropertyValue({name: wrapped(one) for name, one in value.items()})
    return PropertyValue([wrapped(one) for one in value])


def wrapped_map(values: Mapping[str, Any]) -> dict[str, PropertyValue]:
    return {name: wrapped(value) for name, value in values.items()}
