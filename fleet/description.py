"""What a setting accepts, in words, made from its type and bounds: one source for errors and for the reference."""

from __future__ import annotations

import types
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal, TypeGuard, Union, get_args, get_origin

from annotated_types import Ge, Le, MaxLen, MinLen
from pydantic_core import PydanticUndefined

from fleet.schema import Form, Model, Settings

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pydantic.fields import FieldInfo


@dataclass(frozen=True, slots=True)
class Place:
    """A place in the settings: what it accepts, why, and the settings there by name if it is an object."""

    accepts: str
    why: str
    names: tuple[str, ...]


def at(loc: Sequence[int | str]) -> Place | None:
    """The place at `loc` (names of settings, keys of maps, indices of lists); nothing where there is none."""
    annotation: object = Settings
    metadata: Sequence[object] = ()
    why = "settings are found by their names"
    for part in loc:
        inner = bare(annotation)
        if is_model(inner):
            field = inner.model_fields.get(str(part))
            if field is None:
                return None
            annotation, metadata, why = field.annotation, field.metadata, reason(field)
        elif get_origin(inner) in (tuple, Mapping) and get_args(inner):
            annotation, metadata = get_args(inner)[0 if get_origin(inner) is tuple else 1], ()
        else:
            return None
    inner = bare(annotation)
    return Place(words(annotation, metadata), why, tuple(inner.model_fields) if is_model(inner) else ())


def accepts(field: FieldInfo) -> str:
    """What a setting accepts, in words."""
    return words(field.annotation, field.metadata)


def reason(field: FieldInfo) -> str:
    """Why a setting is bounded as it is."""
    extra = field.json_schema_extra
    return str(extra["why"]) if isinstance(extra, Mapping) else ""


def derived(field: FieldInfo) -> str:
    """What a setting is where it is left out, if that is made from other settings."""
    extra = field.json_schema_extra
    return str(extra["derived"]) if isinstance(extra, Mapping) else ""


def is_required(field: FieldInfo) -> bool:
    """Whether the stack file has to say it."""
    return field.is_required() and not derived(field)


def words(annotation: object, metadata: Iterable[object] = ()) -> str:  # noqa: PLR0911 - one per kind of type
    """A type and its bounds, in words."""
    found = [*metadata]
    if get_origin(annotation) is Annotated:
        annotation, *inner_metadata = get_args(annotation)
        found += inner_metadata
    options = [option for option in get_args(annotation) if option is not types.NoneType]
    origin = get_origin(annotation)
    if origin in (Union, types.UnionType):
        return f"{words(options[0], found)}, or nothing"
    form = next((item.text for item in found if isinstance(item, Form)), None)
    if form is not None:
        return form
    if origin is Literal:
        return f"one of {', '.join(str(option) for option in options)}"
    if origin is tuple:
        return f"a list{_length(found)}, each {words(options[0])}"
    if origin is Mapping:
        return f"an object{_length(found)}, each name {words(options[0])}, each value {words(options[1])}"
    if is_model(annotation):
        return f"an object with {_parts(annotation)}"
    kind = {int: "a whole number", float: "a number"}[annotation]  # type: ignore[index]
    low, high = _bound(found, Ge, "ge"), _bound(found, Le, "le")
    return f"{kind} from {low} to {high}"


def bare(annotation: object) -> object:
    """A type without its metadata, and without the possibility of nothing."""
    if get_origin(annotation) is Annotated:
        return bare(get_args(annotation)[0])
    if get_origin(annotation) in (Union, types.UnionType):
        return bare(next(option for option in get_args(annotation) if option is not types.NoneType))
    return annotation


def is_model(annotation: object) -> TypeGuard[type[Model]]:
    return isinstance(annotation, type) and issubclass(annotation, Model)


def _parts(model: type[Model]) -> str:
    required = ", ".join(name for name, field in model.model_fields.items() if is_required(field))
    optional = ", ".join(name for name, field in model.model_fields.items() if not is_required(field))
    return "; ".join(part for part in (required, optional and f"optional {optional}") if part)


def _length(metadata: Iterable[object]) -> str:
    low, high = _bound(metadata, MinLen, "min_length", 0), _bound(metadata, MaxLen, "max_length")
    return f" of {low} to {high}"


def _bound(metadata: Iterable[object], kind: type, attribute: str, default: object = PydanticUndefined) -> object:
    return next((getattr(item, attribute) for item in metadata if isinstance(item, kind)), default)
