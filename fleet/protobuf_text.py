"""Reads protobuf text, as `config.pbtxt` is written in, without the schema.

Specification: https://protobuf.dev/reference/protobuf/textformat-spec/. Extension names and `Any` in brackets are not
read: Triton's ModelConfig has neither.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple, NoReturn

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

DEPTH_MAX: Final = 100
"""As protobuf's own parsers limit nesting."""

_TOKEN = re.compile(
    r"""(?P<space>[ \t\r\n\f\v]+|\#[^\n]*)
      | (?P<text>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
      | (?P<number>-?\s*(?:0[xX][0-9A-Fa-f]+|[0-9]*\.?[0-9]+(?:[eE][-+]?[0-9]+)?\.?f?)(?![A-Za-z0-9_]))
      | (?P<word>-?[A-Za-z_][A-Za-z0-9_]*)
      | (?P<mark>[][{}<>:;,])""",
    re.VERBOSE,
)
_ESCAPE = re.compile(rb"\\([0-7]{1,3}|x[0-9A-Fa-f]{1,2}|.)", re.DOTALL)
_ESCAPES: Final = {b"n": b"\n", b"r": b"\r", b"t": b"\t", b"a": b"\a", b"b": b"\b", b"f": b"\f", b"v": b"\v"}


class Word(str):
    """A name of an enum's value, `true`, `false`, `inf` or `nan`: not a text."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Message:
    """A message: values by field, in the order in which they stand."""

    fields: Mapping[str, Sequence[Value]] = field(default_factory=dict)

    def one(self, name: str) -> Message:
        """The message in a field, empty where it is not set; the last one wins, as protobuf has it."""
        return (self.many(name) or [Message()])[-1]

    def many(self, name: str) -> list[Message]:
        values = self.fields.get(name, ())
        return [value if isinstance(value, Message) else _wrong(name, value, "a message") for value in values]

    def text(self, name: str, default: str = "") -> str:
        value = (self.fields.get(name) or (default,))[-1]
        return value if isinstance(value, str) and not isinstance(value, Word) else _wrong(name, value, "text")

    def word(self, name: str, default: str) -> str:
        value = (self.fields.get(name) or (Word(default),))[-1]
        return str(value) if isinstance(value, Word) else _wrong(name, value, "the name of an enum's value")

    def number(self, name: str, default: int) -> int:
        return (default, *self.numbers(name))[-1]

    def numbers(self, name: str) -> tuple[int, ...]:
        values = self.fields.get(name, ())
        return tuple(value if isinstance(value, int) else _wrong(name, value, "a whole number") for value in values)


Value = str | int | float | Message


class _Token(NamedTuple):
    kind: str
    text: str
    line: int
    start: int

    @property
    def end(self) -> int:
        return self.start + len(self.text)


def _wrong(name: str, value: Value, wanted: str) -> NoReturn:
    raise ValueError(f"field '{name}' is {'a message' if isinstance(value, Message) else repr(value)}, not {wanted}")


def parse(text: str) -> Message:
    """The message that `text` holds. Raises `ValueError` with the line of the first thing that is no protobuf text."""
    return _Reader(_tokens(text)).message("", 0)


def without(text: str, names: Collection[str]) -> str:
    """`text` less these fields of its outermost message; all else, comments too, stays as it is written."""
    tokens = _tokens(text)
    reader = _Reader(tokens)
    kept: list[str] = []
    position = 0
    while not reader.ends(""):
        first = tokens[reader.next]
        name, _ = reader.field(0)
        if name in names:
            kept.append(text[position : first.start])
            position = tokens[reader.next - 1].end
    return "".join([*kept, text[position:]])


def _tokens(text: str) -> list[_Token]:
    tokens: list[_Token] = []
    position, line = 0, 1
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise ValueError(f"line {line}: cannot read {text[position : position + 20]!r}")
        if match.lastgroup != "space":
            tokens.append(_Token(str(match.lastgroup), match.group(), line, position))
        line += match.group().count("\n")
        position = match.end()
    return [*tokens, _Token("end", "the end", line, position)]


class _Reader:
    """Takes tokens one after the other."""

    def __init__(self, tokens: Sequence[_Token]) -> None:
        self._tokens = tokens
        self.next = 0

    def message(self, closing: str, depth: int) -> Message:
        if depth > DEPTH_MAX:
            line = self._tokens[self.next].line
            raise ValueError(f"line {line}: messages are nested more than {DEPTH_MAX} deep")
        fields: dict[str, list[Value]] = {}
        while not self.ends(closing):
            name, values = self.field(depth)
            fields.setdefault(name, []).extend(values)
        return Message(fields)

    def field(self, depth: int) -> tuple[str, list[Value]]:
        name = self._take("word", "the name of a field")
        colon = self._accept(":")
        values = self._list(depth) if self._accept("[") else [self._value(depth, scalar=colon)]
        _ = self._accept(",") or self._accept(";")
        return name, values

    def ends(self, closing: str) -> bool:
        if closing:
            return self._accept(closing)
        return self._tokens[self.next].kind == "end"

    def _list(self, depth: int) -> list[Value]:
        values: list[Value] = []
        if self._accept("]"):
            return values
        while True:
            values.append(self._value(depth, scalar=True))
            if self._accept("]"):
                return values
            if not self._accept(","):
                raise self._unexpected("',' or ']'")

    def _value(self, depth: int, *, scalar: bool) -> Value:
        for opening, closing in (("{", "}"), ("<", ">")):
            if self._accept(opening):
                return self.message(closing, depth + 1)
        token = self._tokens[self.next]
        if not scalar or token.kind not in ("text", "number", "word"):
            raise self._unexpected("a value" if scalar else "':' or '{'")
        self.next += 1
        if token.kind == "word":
            return Word(token.text)
        if token.kind == "number":
            return _number(token)
        text = _unquoted(token)
        while self._tokens[self.next].kind == "text":
            text += _unquoted(self._tokens[self.next])
            self.next += 1
        return text

    def _take(self, kind: str, wanted: str) -> str:
        token = self._tokens[self.next]
        if token.kind != kind:
            raise self._unexpected(wanted)
        self.next += 1
        return token.text

    def _accept(self, mark: str) -> bool:
        token = self._tokens[self.next]
        accepted = token.kind == "mark" and token.text == mark
        self.next += accepted
        return accepted

    def _unexpected(self, wanted: str) -> ValueError:
        token = self._tokens[self.next]
        return ValueError(f"line {token.line}: {token.text} stands where {wanted} belongs")


def _number(token: _Token) -> int | float:
    text = "".join(token.text.split())
    sign, digits = (-1, text[1:]) if text.startswith("-") else (1, text)
    if digits[:2].lower() == "0x":
        return sign * int(digits, 16)
    if not digits.isdigit():
        return sign * float(digits.rstrip("f"))
    octal = len(digits) > 1 and digits[0] == "0"
    try:
        return sign * int(digits, 8 if octal else 10)
    except ValueError:
        kind = "octal number" if octal else "number of a length that fits"
        raise ValueError(f"line {token.line}: {digits[:20]} is no {kind}") from None


def _unquoted(token: _Token) -> str:
    def one(match: re.Match[bytes]) -> bytes:
        code = match[1]
        if code[:1].isdigit():
            return bytes([int(code, 8) & 0xFF])
        if code[:1] == b"x" and len(code) > 1:
            return bytes([int(code[1:], 16)])
        return _ESCAPES.get(code, code)

    try:
        return _ESCAPE.sub(one, token.text[1:-1].encode()).decode()
    except UnicodeError:
        raise ValueError(f"line {token.line}: text that is not UTF-8") from None
