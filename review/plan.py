"""A plan: what would happen to each resource of one stack, whatever told it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


class Unreadable(Exception):  # noqa: N818 - what was handed over, not a malfunction
    """A plan that cannot be read proves nothing: the gate stays closed."""


class Kind(StrEnum):
    """What happens to a resource; the order is that of the comment: what is lost first."""

    DELETE = "delete"
    REPLACE = "replace"
    UPDATE = "update"
    IMPORT = "import"
    CREATE = "create"


class Origin(StrEnum):
    """Where a plan comes from, and so what it can know."""

    PREVIEW = "preview"
    """`pulumi preview` against the stack's own state: the provider says what it would replace."""
    RENDERS = "renders"
    """The difference of two renders without state: replacement is known for the types of `review.replacement`."""


@dataclass(frozen=True, slots=True)
class Change:
    """One resource that does not stay as it is.

    `before` and `after` are its inputs, empty where it is not there. `keys` are the inputs that change, `reasons`
    those that make the change a replacement.
    """

    kind: Kind
    urn: str
    before: Mapping[str, object]
    after: Mapping[str, object]
    keys: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()

    @property
    def type(self) -> str:
        return type_of(self.urn)

    @property
    def name(self) -> str:
        return name_of(self.urn)


@dataclass(frozen=True, slots=True)
class Plan:
    """All changes, sorted by kind, type and name; `unchanged` counts the rest, `errors` are why it is not whole."""

    origin: Origin
    changes: tuple[Change, ...]
    unchanged: int
    errors: tuple[str, ...] = ()


def in_order(changes: list[Change]) -> tuple[Change, ...]:
    kinds = list(Kind)
    return tuple(sorted(changes, key=lambda change: (kinds.index(change.kind), change.type, change.name, change.urn)))


def differences(before: object, after: object, path: str = "") -> Iterator[str]:
    """Paths of the innermost values that differ, as Pulumi writes them."""
    if isinstance(before, dict) and isinstance(after, dict):
        for key in sorted(before.keys() | after.keys()):
            plain = re.fullmatch(r"\w+", key)
            inner = (f"{path}.{key}" if path else key) if plain else f'{path}["{key}"]'
            if key not in before or key not in after:
                yield inner
            else:
                yield from differences(before[key], after[key], inner)
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for index, (one, other) in enumerate(zip(before, after, strict=True)):
            yield from differences(one, other, f"{path}[{index}]")
    elif before != after or isinstance(before, bool) is not isinstance(after, bool):
        yield path


def type_of(urn: str) -> str:
    """`urn:pulumi:<stack>::<project>::<parent type>$<type>::<name>`: the type without its parents'."""
    return _parts(urn)[2].rsplit("$", 1)[-1]


def name_of(urn: str) -> str:
    return _parts(urn)[3]


def _parts(urn: str) -> list[str]:
    parts = urn.split("::", 3)
    if len(parts) != 4 or not parts[0].startswith("urn:pulumi:"):  # noqa: PLR2004 - the four parts of a URN
        raise Unreadable(f"{urn!r} is no URN")
    return parts
