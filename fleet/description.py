"""What a setting accepts, in words, made from its type and bounds: one source for errors and for the reference."""

from __future__ import annotations

import types
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal, TypeGuard, Union, get_args, get_origin

from annotated_types import Ge, Le, MaxLen, MinLen
from pydantic import Tag
from pydantic_core import PydanticUndefined

from fleet.schema import Settings
from fleet.schema_base import Choice, Form, Model

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pydantic.fields import FieldInfo


@dataclass(frozen=True, slots=True)
class Place:
    """A place in the settings: what it accepts, why, and the settings there by name if it is an object."""

    accepts: str
    why: str
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Kinds:
    """The kinds that a setting may be of: their types by tag, and what tells them apart, where that is a choice."""

    choice: Choice | None
    options: Mapping[str, object]

    @property
    def titled(self) -> list[tuple[str, object]]:
        """The kinds with their names for people."""
        titles = self.choice.titles if self.choice else tuple(self.options)
        return list(zip(titles, self.options.values(), strict=True))


def kinds(annotation: object, metadata: Iterable[object] = ()) -> Kinds | None:
    """The kinds of a type that is one of several; nothing for a type that is one."""
    found = [*metadata]
    if get_origin(annotation) is Annotated:
        annotation, *more = get_args(annotation)
        found += more
    if get_origin(annotation) not in (Union, types.UnionType):
        return None
    options = [option for option in get_args(annotation) if option is not types.NoneType]
    if len(options) == 1:
        return kinds(options[0], found)
    tagged = {next(item.tag for item in get_args(option) if isinstance(item, Tag)): option for option in options}
    return Kinds(next((item for item in found if isinstance(item, Choice)), None), tagged)


@dataclass(frozen=True, slots=True)
class _Step:
    """Where a walk through the settings has come; `part` is the last one of its path, which may be a kind's tag."""

    part: int | str
    is_tag: bool
    annotation: object
    metadata: Sequence[object]
    why: str


def _walk(loc: Sequence[int | str]) -> Iterator[_Step]:
    """The steps to `loc`, as far as there are such settings."""
    annotation: object = Settings
    metadata: Sequence[object] = ()
    why = ""
    for part in loc:
        several = kinds(annotation, metadata)
        if several is not None:
            if part not in several.options:
                return
            annotation, metadata = several.options[str(part)], ()
            yield _Step(part, is_tag=True, annotation=annotation, metadata=metadata, why=why)
            continue
        inner = bare(annotation)
        if is_model(inner):
            field = inner.model_fields.get(str(part))
            if field is None:
                return
            annotation, metadata, why = field.annotation, field.metadata, reason(field)
        elif get_origin(inner) in (tuple, Mapping) and get_args(inner):
            annotation, metadata = get_args(inner)[0 if get_origin(inner) is tuple else 1], ()
        else:
            return
        yield _Step(part, is_tag=False, annotation=annotation, metadata=metadata, why=why)


def at(loc: Sequence[int | str]) -> Place | None:
    """The place at `loc` (names of settings, tags of kinds, keys of maps, indices of lists); nothing where none is."""
    steps = list(_walk(loc))
    if len(steps) < len(loc):
        return None
    last = (
        steps[-1]
        if steps
        else _Step("", is_tag=False, annotation=Settings, metadata=(), why="settings are found by their names")
    )
    inner = bare(last.annotation)
    several = kinds(last.annotation, last.metadata)
    return Place(
        words(last.annotation, last.metadata),
        last.why,
        tuple(inner.model_fields) if several is None and is_model(inner) else (),
    )


def keys_at(loc: Sequence[int | str]) -> Sequence[str]:
    """The names that a map at `loc` may have, where they are an enumeration."""
    steps = list(_walk(loc))
    inner = bare(steps[-1].annotation) if steps and len(steps) == len(loc) else None
    keys = get_args(inner)[0] if get_origin(inner) is Mapping else None
    return [str(option) for option in get_args(keys)] if get_origin(keys) is Literal else []


def kinds_at(loc: Sequence[int | str]) -> Kinds | None:
    """The kinds that the setting at `loc` may be of."""
    steps = list(_walk(loc))
    return kinds(steps[-1].annotation, steps[-1].metadata) if steps and len(steps) == len(loc) else None


def untagged(loc: Sequence[int | str]) -> tuple[int | str, ...]:
    """A location as a person writes it: without the tags of kinds."""
    steps = list(_walk(loc))
    return (*(step.part for step in steps if not step.is_tag), *loc[len(steps) :])


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
        several = kinds(annotation, found)
        nothing = ", or nothing" if types.NoneType in get_args(annotation) else ""
        return f"{words(options[0], found) if several is None else _either(several)}{nothing}"
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
    if annotation is bool:
        return "true or false"
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


def _either(several: Kinds) -> str:
    if several.choice is None:
        return ", or ".join(words(option) for option in several.options.values())
    found = []
    for title, option in several.titled:
        inner = bare(option)
        found.append(f"{title} with {_parts(inner, several.choice.field)}" if is_model(inner) else title)
    return f"an object of {' | of '.join(found)}"


def _parts(model: type[Model], but: str | None = None) -> str:
    fields = {name: field for name, field in model.model_fields.items() if name != but}
    required = ", ".join(name for name, field in fields.items() if is_required(field))
    optional = ", ".join(name for name, field in fields.items() if not is_required(field))
    return "; ".join(part for part in (required, optional and f"optional {optional}") if part)


def _length(metadata: Iterable[object]) -> str:
    low, high = _bound(metadata, MinLen, "min_length", 0), _bound(metadata, MaxLen, "max_length")
    return f" of {low} to {high}"


def _bound(metadata: Iterable[object], kind: type, attribute: str, default: object = PydanticUndefined) -> object:
    return next((getattr(item, attribute) for item in metadata if isinstance(item, kind)), default)
