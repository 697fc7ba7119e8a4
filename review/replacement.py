"""Which changed inputs replace a resource, for the types that the gate guards: data, each with its source.

A difference of two renders has no provider to ask. What the list holds, but the provider would do in place (an input
that was computed before and now says the same), is refused too much, never too little.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

LIST: Final = Path(__file__).with_name("replacement.json")
_ABSENT: Final = object()


@dataclass(frozen=True, slots=True)
class Rule:
    """Of one type: the inputs, as paths, whose change or removal replaces it.

    `defaults` is what the provider takes for an input that is left out; of `sets` the order means nothing.
    """

    type: str
    replaces: tuple[str, ...]
    replaces_if_removed: tuple[str, ...]
    defaults: Mapping[str, object]
    sets: tuple[str, ...]
    source: str

    def reasons(self, before: Mapping[str, object], after: Mapping[str, object]) -> tuple[str, ...]:
        """The inputs that make this change a replacement."""
        changed = [path for path in self.replaces if self._value(before, path) != self._value(after, path)]
        removed = [
            path
            for path in self.replaces_if_removed
            if at(before, path) not in (_ABSENT, None) and at(after, path) in (_ABSENT, None)
        ]
        return tuple(sorted((*changed, *removed)))

    def _value(self, inputs: Mapping[str, object], path: str) -> object:
        value = at(inputs, path)
        if value is _ABSENT or value is None:
            return self.defaults.get(path, _ABSENT)
        return sorted(value, key=str) if path in self.sets and isinstance(value, list) else value


def at(inputs: object, path: str) -> object:
    """What stands at `a.b` in nested inputs, or a value of its own where nothing does."""
    for part in path.split("."):
        if not isinstance(inputs, dict) or part not in inputs:
            return _ABSENT
        inputs = inputs[part]
    return inputs


def _read() -> dict[str, Rule]:
    rules = [
        Rule(
            row["type"],
            tuple(row["replaces"]),
            tuple(row["replaces_if_removed"]),
            row["defaults"],
            tuple(row["sets"]),
            row["source"],
        )
        for row in json.loads(LIST.read_text())
    ]
    return {rule.type: rule for rule in rules}


RULES: Final = _read()
