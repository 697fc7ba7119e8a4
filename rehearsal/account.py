"""The account that the stand-ins keep: what exists in it, and whether AWS would let a change happen.

Pure: no engine, no disk, no clock. `rehearsal.kinds` says what each resource type is; here stands what holds for
all of them: names are taken once, what is referred to exists, what is referred to is not deleted, immutable inputs
replace. Unknown values (previews) are never a reason to refuse.

Stricter than AWS in three places, on purpose: what AWS retries for minutes is refused at once (deletion of something
that is in use), a key that encrypts something cannot be deleted, and an ARN of this account must exist.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

UNKNOWN = "04da6b54-80e4-46f7-96ec-b56ff0331ba9"
"""How the engine writes a value that is not known yet (pulumi.runtime.rpc.UNKNOWN)."""

Values = Mapping[str, Any]


class ApiError(Exception):
    """AWS refused a call: the code that it answers with, and the reason."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message


@dataclass(frozen=True, slots=True)
class Thing:
    """One resource in the account. `urn` is empty when AWS made it by itself, as a part of another."""

    type: str
    id: str
    urn: str
    inputs: Values
    outputs: Values
    made_by: str = ""
    """Key of the thing that this is a part of; goes with it."""

    @property
    def key(self) -> str:
        return f"{self.type}|{self.id}"

    def as_json(self) -> dict[str, Any]:
        return {
            "type": self.type,
            "id": self.id,
            "urn": self.urn,
            "inputs": dict(self.inputs),
            "outputs": dict(self.outputs),
            "made_by": self.made_by,
        }


@dataclass(frozen=True, slots=True)
class Reference:
    """An input that names another resource."""

    path: str
    """Names joined by dots; lists on the way are walked through."""
    to: str
    by: str = "id"
    """The output of the other that the value is."""
    holds: bool = True
    """The other cannot be deleted while this is there."""
    code: str = "InvalidParameterException"
    within: str = ""
    """Set: only values that start with it name something of this account that must exist."""


@dataclass(frozen=True, slots=True)
class Part:
    """Something that AWS makes by itself together with a resource."""

    type: str
    outputs: Values
    stays: bool = False
    """It outlives what it came with."""


@dataclass(frozen=True, slots=True)
class Made:
    """What creating a resource yields: its id, the outputs that it did not get as inputs, and its parts."""

    id: str
    outputs: Values = field(default_factory=dict)
    parts: tuple[Part, ...] = ()
    part_of: str = ""
    """Key of the thing that takes this along when it goes."""


Rule = Callable[["Account", Values], Iterable[str]]
"""Says why AWS would refuse these inputs: texts `Code: reason`. Nothing when it would not."""


@dataclass(frozen=True, slots=True)
class Kind:
    """One resource type: how it is named, what it refers to, what may change, and what AWS refuses."""

    token: str
    make: Callable[[Maker, Values], Made]
    name: str = ""
    """The input that holds its name, where it has one; made from Pulumi's name when it is not given."""
    name_limit: int = 255
    scope: tuple[str, ...] = ()
    """Inputs that, with the name, can be there only once. Empty and no name: any number."""
    taken: str = "ResourceInUseException"
    in_use: str = "ResourceInUseException"
    missing: str = "ResourceNotFoundException"
    immutable: frozenset[str] = frozenset()
    references: tuple[Reference, ...] = ()
    allowed: Mapping[str, frozenset[str]] = field(default_factory=dict)
    at_most_one: tuple[tuple[str, ...], ...] = ()
    exactly_one: tuple[tuple[str, ...], ...] = ()
    rules: tuple[Rule, ...] = ()
    update_rules: tuple[Callable[[Account, Thing, Values], Iterable[str]], ...] = ()
    delete_rules: tuple[Callable[[Account, Thing], Iterable[str]], ...] = ()
    renewed: Callable[[Thing, Values], Values] = lambda thing, inputs: {}  # noqa: ARG005 - the default changes nothing
    """Outputs that change with an update; unknown in its preview."""
    renewed_names: frozenset[str] = frozenset()
    nested: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Outputs inside an input's own object."""


def values_at(values: Any, path: str) -> list[Any]:  # noqa: ANN401 - from the wire
    """All values that a path reaches, none of them unknown or missing."""
    reached = [values]
    for name in path.split(".") if path else ():
        flat = [one for some in reached for one in (some if isinstance(some, list) else [some])]
        reached = [one[name] for one in flat if isinstance(one, Mapping) and one.get(name) is not None]
    flat = [one for some in reached for one in (some if isinstance(some, list) else [some])]
    return [one for one in flat if one is not None and one != UNKNOWN]


def first(values: Any, path: str) -> Any:  # noqa: ANN401 - from the wire
    """The one value at a path, None when there is none that is known."""
    found = values_at(values, path)
    return found[0] if found else None


def given(values: Values, name: str) -> bool:
    """Whether an input is there, known or not; an empty list or text is as good as none."""
    value = values.get(name)
    return value is not None and value not in ("", []) and value is not False


def static_faults(kind: Kind, inputs: Values) -> Iterator[tuple[str, str]]:
    """(input, reason): what is wrong whatever exists."""
    for path, allowed in kind.allowed.items():
        for value in values_at(inputs, path):
            if value not in allowed:
                yield path, f"expected one of {', '.join(sorted(allowed))}; got {value}"
    for group in (*kind.at_most_one, *kind.exactly_one):
        there = [name for name in group if given(inputs, name)]
        if len(there) > 1:
            yield there[-1], f"conflicts with {', '.join(there[:-1])}: at most one of {', '.join(group)}"
    for group in kind.exactly_one:
        if not any(given(inputs, name) for name in group):
            yield group[0], f"one of {', '.join(group)} is required"


def replaced_by(kind: Kind, olds: Values, news: Values) -> list[str]:
    """The changed inputs that only another resource can have."""
    changed = {name for name in {*olds, *news} if not name.startswith("__") and olds.get(name) != news.get(name)}
    roots = {path.split(".")[0] for path in kind.immutable}
    return sorted(
        name
        for name in changed & roots
        if any(
            values_at({name: olds.get(name)}, path) != values_at({name: news.get(name)}, path)
            or UNKNOWN in (olds.get(name), news.get(name))
            for path in kind.immutable
            if path.split(".")[0] == name
        )
    )


def nested(kind: Kind, outputs: Values, inputs: Values) -> dict[str, Any]:
    """Inputs that hold outputs too, with those as they were."""
    return {
        name: {**{one: outputs[name][one] for one in inside if one in outputs[name]}, **inputs[name]}
        for name, inside in kind.nested.items()
        if isinstance(inputs.get(name), Mapping) and isinstance(outputs.get(name), Mapping)
    }


@dataclass(frozen=True, slots=True)
class Maker:
    """Makes what AWS makes up: ids, addresses and ARNs. The same account makes the same ones again."""

    account: Account
    region: str
    serial: int

    @property
    def number(self) -> str:
        return self.account.number

    def hexes(self, length: int, salt: str = "") -> str:
        return hashlib.sha256(f"{self.number}/{self.serial}/{salt}".encode()).hexdigest()[:length]

    def id(self, prefix: str, salt: str = "") -> str:
        """The form of EC2 and EFS since 2016: seventeen hexadecimal digits."""
        return f"{prefix}-{self.hexes(17, salt)}"

    def uuid(self, salt: str = "") -> str:
        digits = self.hexes(32, salt)
        return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))

    def arn(self, service: str, resource: str, *, regional: bool = True, owned: bool = True) -> str:
        region, owner = self.region if regional else "", self.number if owned else ""
        return f"arn:aws:{service}:{region}:{owner}:{resource}"


class Account:
    """What exists. Every method that changes something either does all of it or raises ApiError and does nothing."""

    def __init__(self, number: str, kinds: Mapping[str, Kind], things: Iterable[Thing] = (), serial: int = 0) -> None:
        self.number = number
        self.kinds = kinds
        self.things = {thing.key: thing for thing in things}
        self.serial = serial
        self.events: list[dict[str, str]] = []
        self._itself: Thing | None = None

    def of(self, token: str) -> list[Thing]:
        return [thing for thing in self.things.values() if thing.type == token]

    def others(self, token: str) -> list[Thing]:
        """All of a type but the one whose change is being judged."""
        return [thing for thing in self.of(token) if self._itself is None or thing.key != self._itself.key]

    def find(self, token: str, by: str, value: object) -> Thing | None:
        for thing in self.of(token):
            if (thing.id if by == "id" else thing.outputs.get(by)) == value:
                return thing
        return None

    def get(self, token: str, value: object) -> Thing | None:
        """A thing by its id; None for an id that is not known."""
        return self.things.get(f"{token}|{value}")

    def admit(self, token: str, inputs: Values, itself: Thing | None = None) -> None:
        """Raises ApiError when AWS would refuse a resource with these inputs beside what exists."""
        kind = self.kinds[token]
        self._itself = itself
        for reference in kind.references:
            for value in values_at(inputs, reference.path):
                self._require(reference, value)
        scope = kind.scope or ((kind.name,) if kind.name else ())
        wanted = [inputs.get(name) for name in scope]
        if scope and UNKNOWN not in wanted and None not in wanted:
            for other in self.others(token):
                if [other.inputs.get(name, other.outputs.get(name)) for name in scope] == wanted:
                    raise ApiError(kind.taken, f"{' / '.join(map(str, wanted))} already exists ({other.id})")
        for rule in kind.rules:
            self._judge(rule(self, inputs))

    def _require(self, reference: Reference, value: object) -> None:
        if not isinstance(value, str) or not value.startswith(reference.within.replace("{account}", self.number)):
            return
        if self.find(reference.to, reference.by, value) is None:
            raise ApiError(reference.code, f"{reference.path}: {value} does not exist")

    @staticmethod
    def _judge(reasons: Iterable[str]) -> None:
        for reason in reasons:
            code, _, message = reason.partition(": ")
            raise ApiError(code, message)

    def create(self, token: str, urn: str, inputs: Values, region: str) -> Thing:
        self.admit(token, inputs)
        self.serial += 1
        maker = Maker(self, region, self.serial)
        made = self.kinds[token].make(maker, inputs)
        thing = Thing(token, made.id, urn, dict(inputs), {**inputs, **made.outputs}, made.part_of)
        self.things[thing.key] = thing
        for part in made.parts:
            self._make_part(thing, part)
        self._tell("create", thing)
        return thing

    def _make_part(self, thing: Thing, part: Part) -> None:
        made = Thing(part.type, str(part.outputs["id"]), "", {}, part.outputs, "" if part.stays else thing.key)
        self.things.setdefault(made.key, made)

    def update(self, token: str, identity: str, inputs: Values) -> Thing:
        thing = self._existing(token, identity)
        kind = self.kinds[token]
        replaces = replaced_by(kind, thing.inputs, inputs)
        if replaces:
            raise ApiError("InvalidRequest", f"{', '.join(replaces)} of {identity} cannot be changed")
        self.admit(token, inputs, thing)
        for rule in kind.update_rules:
            self._judge(rule(self, thing, inputs))
        kept = {name: value for name, value in thing.outputs.items() if name not in thing.inputs or name in inputs}
        outputs = {**kept, **inputs, **nested(kind, thing.outputs, inputs), **kind.renewed(thing, inputs)}
        changed = Thing(token, identity, thing.urn, dict(inputs), outputs, thing.made_by)
        self.things[thing.key] = changed
        self._tell("update", changed)
        return changed

    def delete(self, token: str, identity: str) -> None:
        """Deletes; what is gone already is no fault, as with the real provider."""
        thing = self.get(token, identity)
        if thing is None:
            return
        kind = self.kinds[token]
        for rule in kind.delete_rules:
            self._judge(rule(self, thing))
        held = self.held_by(thing)
        if held:
            named = ", ".join(f"{other.type.split(':')[-1]} {other.id}" for other in held)
            raise ApiError(kind.in_use, f"{identity} is in use by {named}")
        self._drop(thing)
        self._tell("delete", thing)

    def _drop(self, thing: Thing) -> None:
        """What belongs to a thing goes with it; a part that somebody still refers to stays behind."""
        del self.things[thing.key]
        for part in [one for one in self.things.values() if one.made_by == thing.key]:
            if self.held_by(part):
                self.things[part.key] = Thing(part.type, part.id, part.urn, part.inputs, part.outputs)
            else:
                self._drop(part)

    def held_by(self, thing: Thing) -> list[Thing]:
        """Those that refer to a thing and do not let it go."""
        return [
            other
            for other in self.things.values()
            if thing.key not in (other.key, other.made_by)
            for reference in (self.kinds[other.type].references if other.type in self.kinds else ())
            if reference.holds and reference.to == thing.type
            if (thing.id if reference.by == "id" else thing.outputs.get(reference.by))
            in values_at(other.inputs or other.outputs, reference.path)
        ]

    def _existing(self, token: str, identity: str) -> Thing:
        thing = self.get(token, identity)
        if thing is None:
            raise ApiError(self.kinds[token].missing, f"{identity} does not exist")
        return thing

    def _tell(self, op: str, thing: Thing) -> None:
        self.events.append({"op": op, "type": thing.type, "id": thing.id, "urn": thing.urn})
