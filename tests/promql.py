"""What an expression of PromQL reads: series, the labels that it names, and those that it makes.

It knows as much of the language as the project's own expressions use.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_AGGREGATION = {"by", "without"}
_MATCHING = {"on", "ignoring", "group_left", "group_right"}
_WORDS = {"and", "or", "unless", "bool", "offset"}
_STRING = re.compile(r'"((?:[^"\\]|\\.)*)"')
_TOKEN = re.compile(r"(?P<name>[a-zA-Z_:$][\w:$]*)|(?P<matchers>\{[^}]*\})|(?P<range>\[[^\]]*\])|(?P<mark>[^\s\w])|\w+")
_MATCHER = re.compile(r"([a-zA-Z_]\w*)\s*(=~|!~|!=|=)\s*#([0-9]+)#")


@dataclass(frozen=True)
class Selector:
    """A series that is read: its name and its matchers, as (label, operator, value)."""

    metric: str
    matchers: tuple[tuple[str, str, str], ...]


@dataclass(frozen=True)
class Reads:
    """All that an expression reads.

    `grouped` are the labels in `by`, `on` and the like, `made` those that `label_replace` writes.
    """

    selectors: tuple[Selector, ...]
    grouped: frozenset[str]
    made: frozenset[str]


def reads(expr: str) -> Reads:
    """Takes the expression apart."""
    texts: list[str] = []

    def put_aside(found: re.Match[str]) -> str:
        texts.append(found.group(1))
        return f"#{len(texts) - 1}#"

    tokens = [(one.lastgroup, one.group()) for one in _TOKEN.finditer(_STRING.sub(put_aside, expr))]
    tokens.append((None, ""))
    selectors: list[Selector] = []
    grouped: set[str] = set()
    listing = False
    for index, (kind, text) in enumerate(tokens[:-1]):
        following = tokens[index + 1][1]
        if listing:
            listing = text != ")"
            grouped |= {text} if kind == "name" else set()
        elif kind != "name" or text in _WORDS:
            continue
        elif text in _AGGREGATION | _MATCHING:
            listing = following == "("
        elif following != "(" and following not in _AGGREGATION:
            matchers = _MATCHER.findall(following) if following.startswith("{") else []
            selectors.append(Selector(text, tuple((name, how, texts[int(number)]) for name, how, number in matchers)))
    return Reads(tuple(selectors), frozenset(grouped), _made(expr))


def _made(expr: str) -> frozenset[str]:
    """The labels that `label_replace` writes: the first of the four texts at its end."""
    return frozenset(re.findall(r'"(\w+)", "[^"]*", "\w+", "[^"]*"\)', expr))
