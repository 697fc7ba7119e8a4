"""Makes docs/settings.md and Pulumi.yaml from the settings' types. `python -m fleet.settings_reference` writes both.

The engine checks a stack file against Pulumi.yaml's schema before the program runs, and stops at its first fault. So
the schema says the kinds of the settings and gives each an empty default, which `fleet.settings` reads as left out:
what is missing or wrong inside is then said by this program, all at once.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, get_args, get_origin

import yaml

from fleet import description, names
from fleet.schema import Settings
from fleet.schema_base import Model

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pydantic.fields import FieldInfo

DOCS: Final = "docs/settings.md"
PROJECT: Final = "Pulumi.yaml"
COMMAND: Final = "python -m fleet.settings_reference"
PROJECT_TEXT: Final = "An autoscaled, observed and verified fleet of Triton Inference Servers, over several GPU models"

INTRODUCTION: Final = (
    f"A stack file sets these below the namespace `{names.CONFIG_NAMESPACE}`, as in `{names.CONFIG_NAMESPACE}:models`.",
    "It holds differences from the defaults only. An unknown name, a value out of bounds or a combination that cannot",
    "work is refused before anything is created, and all faults are listed at once. In the tables, `[]` stands for",
    "each item of a list and `<name>` for a name of your own.",
)

_EMPTY: Final[dict[str, type[str | list[object] | dict[str, object]]]] = {"string": str, "array": list, "object": dict}


def config_schema() -> dict[str, dict[str, object]]:
    """The schema of the project's configuration, as Pulumi's engine reads it: kinds and descriptions, no bounds."""
    schema: dict[str, dict[str, object]] = {}
    for name, field in Settings.model_fields.items():
        kind = _kind(field)
        items = {"items": {"type": "object"}} if kind == "array" else {}
        schema[f"{names.CONFIG_NAMESPACE}:{name}"] = {
            "type": kind,
            **items,
            "description": f"{field.description} {DOCS} has the details.",
            "default": _EMPTY[kind](),
        }
    return schema


def project_file() -> str:
    """Pulumi.yaml."""
    project = {
        "name": names.CONFIG_NAMESPACE,
        "description": PROJECT_TEXT,
        "runtime": {"name": "python", "options": {"toolchain": "pip", "virtualenv": ".venv"}},
        "config": config_schema(),
    }
    text = yaml.safe_dump(project, sort_keys=False, allow_unicode=True, width=120)
    return f"# Made by `{COMMAND}` from fleet/schema.py; a test keeps the two equal.\n{text}"


def reference() -> str:
    """docs/settings.md."""
    lines = [
        "# Settings",
        "",
        f"Made by `{COMMAND}` from fleet/schema.py; a test keeps the two equal.",
        "",
        *INTRODUCTION,
    ]
    for name, field in Settings.model_fields.items():
        lines += ["", f"## {name}", "", f"{field.description} {_need(field)}", ""]
        lines += [
            "| setting | accepts | left out | what it is | why it is bounded |",
            "| --- | --- | --- | --- | --- |",
        ]
        lines += [_row(path, inner) for path, inner in _leaves(name, field)]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Writes both files into the project that this module stands in."""
    project = Path(__file__).parent.parent
    (project / PROJECT).write_text(project_file(), encoding="utf-8")
    (project / DOCS).parent.mkdir(exist_ok=True)
    (project / DOCS).write_text(reference(), encoding="utf-8")


def _kind(field: FieldInfo) -> str:
    if get_origin(field.annotation) is Literal:
        return "string"
    return "array" if get_origin(field.annotation) is tuple else "object"


def _leaves(path: str, field: FieldInfo, title: str = "") -> Iterator[tuple[str, FieldInfo]]:
    """The settings at and below a path that are no objects themselves, with their paths and the kinds they are of."""
    several = description.kinds(field.annotation, field.metadata)
    if several is not None and several.choice is not None:
        for kind, option in several.titled:
            yield from _below(path, option, kind)
        return
    suffix, inner = "", description.bare(field.annotation)
    arguments = get_args(inner)
    if get_origin(inner) is tuple:
        items = description.kinds(arguments[0])
        if items is not None and items.choice is not None:
            for kind, option in items.titled:
                yield from _below(f"{path}[]", option, kind)
            return
        suffix, inner = "[]", description.bare(arguments[0])
    elif get_origin(inner) is not Literal and arguments:
        suffix, inner = ".<name>", description.bare(arguments[1])
    if several is None and description.is_model(inner):
        yield from _below(f"{path}{suffix}", inner, title)
    else:
        yield f"`{path}`{f' ({title})' if title else ''}", field


def _below(path: str, annotation: object, title: str) -> Iterator[tuple[str, FieldInfo]]:
    model = description.bare(annotation)
    if description.is_model(model):
        for name, part in model.model_fields.items():
            yield from _leaves(f"{path}.{name}", part, title)


def _need(field: FieldInfo) -> str:
    return "Required." if description.is_required(field) else "May be left out."


def _row(path: str, field: FieldInfo) -> str:
    cells = [
        path,
        description.accepts(field),
        _default(field),
        str(field.description),
        description.reason(field),
    ]
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _default(field: FieldInfo) -> str:
    derived = description.derived(field)
    if derived:
        return derived
    if field.is_required():
        return "**required**"
    default = field.default
    if isinstance(default, Model) or default in (None, (), {}, ""):
        return "none"
    if isinstance(default, bool):
        return f"`{str(default).lower()}`"
    return f"`{', '.join(default) if isinstance(default, tuple) else default}`"


if __name__ == "__main__":
    main()
