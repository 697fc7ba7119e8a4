"""What a resource type takes and gives, read from the installed SDK's own classes, and values checked against it.

Nothing here is written down by hand: a property that the SDK does not have is refused, and one that it requires is
asked for, exactly as the real provider's schema has it.
"""

from __future__ import annotations

import importlib
import inspect
import json
import typing
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Union, get_args, get_origin

import pulumi
from pulumi import _types as sdk

from rehearsal.account import UNKNOWN

if typing.TYPE_CHECKING:
    from pathlib import Path

Form = Literal["string", "boolean", "integer", "number", "any", "list", "map", "object"]


@dataclass(frozen=True, slots=True)
class Shape:
    """The type of one property, as the wire has it."""

    form: Form
    of: Shape | None = None
    """What a list or a map holds."""
    properties: Mapping[str, Shape] | None = None
    required: frozenset[str] = frozenset()

    def as_json(self) -> Any:  # noqa: ANN401 - JSON
        if self.properties is not None:
            properties = {name: shape.as_json() for name, shape in sorted(self.properties.items())}
            return {"properties": properties, "required": sorted(self.required)}
        return [self.form, self.of.as_json()] if self.of is not None else self.form

    @classmethod
    def from_json(cls, document: Any) -> Shape:  # noqa: ANN401 - JSON
        if isinstance(document, dict):
            properties = {name: cls.from_json(shape) for name, shape in document["properties"].items()}
            return cls("object", properties=properties, required=frozenset(document["required"]))
        if isinstance(document, list):
            return cls(document[0], of=cls.from_json(document[1]))
        return cls(document)


@dataclass(frozen=True, slots=True)
class ResourceShape:
    """What one resource type takes, and the names of all that it gives."""

    inputs: Shape
    outputs: frozenset[str]

    def as_json(self) -> dict[str, Any]:
        return {"inputs": self.inputs.as_json(), "outputs": sorted(self.outputs)}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> ResourceShape:
        return cls(Shape.from_json(document["inputs"]), frozenset(document["outputs"]))


ANY = Shape("any")
_SCALARS: Mapping[object, Shape] = {
    str: Shape("string"),
    bool: Shape("boolean"),
    int: Shape("integer"),
    float: Shape("number"),
}
_HOLDS: Mapping[Form, tuple[type, ...]] = {
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
    "list": (list,),
    "map": (dict,),
    "object": (dict,),
}


def module_of(token: str) -> tuple[str, str]:
    """Where the SDK has the class of a token: (module, class)."""
    package, module, name = token.split(":")
    namespace = module.split("/", maxsplit=1)[0]
    return ".".join([f"pulumi_{package}", *([] if namespace == "index" else [namespace])]), name


def read(token: str) -> ResourceShape:
    """The shape of a resource type. Raises LookupError when the installed SDK has no such type."""
    module, name = module_of(token)
    try:
        home = importlib.import_module(module)
        arguments, resource = getattr(home, f"{name}Args"), getattr(home, name)
    except (ImportError, AttributeError):
        raise LookupError(f"the installed SDK has no type {token}") from None
    return ResourceShape(_input(arguments, ()), frozenset(sdk.resource_pulumi_to_py_names(resource)))


def _input(arguments: type, above: tuple[type, ...]) -> Shape:
    names = sdk.input_type_py_to_pulumi_names(arguments)
    parameters = inspect.signature(arguments).parameters.values()
    required = frozenset(names[one.name] for one in parameters if one.default is inspect.Parameter.empty)
    types = sdk.input_type_types(arguments)
    properties = {name: _shape(types[name], (*above, arguments)) for name in names.values()}
    return Shape("object", properties=properties, required=required)


def _shape(annotation: Any, above: tuple[type, ...]) -> Shape:  # noqa: ANN401 - an annotation
    plain = sdk.unwrap_type(annotation)
    if plain in _SCALARS:
        return _SCALARS[plain]
    if inspect.isclass(plain) and sdk.is_input_type(plain):
        return ANY if plain in above else _input(plain, above)
    origin, arguments = get_origin(plain), get_args(plain)
    if origin in (list, Sequence) and arguments:
        return Shape("list", of=_shape(arguments[0], above))
    if origin in (dict, Mapping) and arguments:
        return Shape("map", of=_shape(arguments[1], above))
    if origin in (Union, typing.Union) or not inspect.isclass(plain):
        return _union(arguments, above)
    return ANY


def _union(arguments: Iterable[Any], above: tuple[type, ...]) -> Shape:
    """Of the alternatives, the one that the wire can have: a class of arguments and its dictionary are one."""
    shapes = [
        _shape(one, above)
        for one in arguments
        if one is not type(None) and get_origin(one) is not pulumi.Output and "Awaitable" not in str(one)
    ]
    known = [shape for shape in shapes if shape != ANY]
    return known[0] if known and all(shape.form == known[0].form for shape in known) else ANY


def faults(shape: Shape, value: Any, path: str = "") -> Iterator[tuple[str, str]]:  # noqa: ANN401 - from the wire
    """(path, reason) of each place where a value does not fit; unknown values fit everywhere."""
    if isinstance(value, pulumi.Output | pulumi.Resource) or value == UNKNOWN or value is None or shape.form == "any":
        return
    fits = isinstance(value, _HOLDS[shape.form]) and (shape.form == "boolean" or not isinstance(value, bool))
    if not fits:
        yield path, f"expected {shape.form}, got {json.dumps(value)[:60]}"
    elif shape.form == "list":
        for index, one in enumerate(value):
            yield from faults(shape.of or ANY, one, f"{path}[{index}]")
    elif shape.form == "map":
        for key, one in value.items():
            yield from faults(shape.of or ANY, one, f"{path}.{key}")
    elif shape.properties is not None:
        yield from _object_faults(shape, value, path)


def _object_faults(shape: Shape, value: Mapping[str, Any], path: str) -> Iterator[tuple[str, str]]:
    properties = shape.properties or {}
    prefix = f"{path}." if path else ""
    for name in sorted(shape.required):
        if value.get(name) is None:
            yield f"{prefix}{name}", "required, not given"
    for name, one in value.items():
        if name in properties:
            yield from faults(properties[name], one, f"{prefix}{name}")
        elif not name.startswith("__"):
            yield f"{prefix}{name}", "the type has no such property"


class Shapes:
    """Shapes of resource types, kept in a file so that only the first run pays for importing the SDK."""

    def __init__(self, cache: Path | None = None) -> None:
        self.cache = cache
        self._known: dict[str, ResourceShape] = {}
        if cache is not None and cache.exists():
            document = json.loads(cache.read_text())
            self._known = {token: ResourceShape.from_json(shape) for token, shape in document.items()}

    def __getitem__(self, token: str) -> ResourceShape:
        if token not in self._known:
            self._known[token] = read(token)
            self._write()
        return self._known[token]

    def _write(self) -> None:
        if self.cache is None:
            return
        self.cache.parent.mkdir(parents=True, exist_ok=True)
        scratch = self.cache.with_name(f"{self.cache.name}.{id(self)}.new")
        scratch.write_text(json.dumps({token: shape.as_json() for token, shape in sorted(self._known.items())}))
        scratch.replace(self.cache)
