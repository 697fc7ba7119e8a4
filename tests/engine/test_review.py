"""What the real engine prints as a preview's JSON, read by `review.preview`; the provider is the test's own."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from review import preview
from review.plan import Kind, Origin
from tests.engine.conftest import Engine, engine

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

pytestmark = pytest.mark.engine

SECRET = "canary-7d1f"
PROGRAM = """
import json
import os
import pulumi
from pulumi.dynamic import CreateResult, DiffResult, Resource, ResourceProvider, UpdateResult


class Provider(ResourceProvider):
    def create(self, props):
        return CreateResult("id", props)

    def diff(self, _id, olds, news):
        replaces = [key for key in ("name",) if olds[key] != news[key]]
        return DiffResult(changes=any(olds[key] != news[key] for key in ("name", "size")), replaces=replaces)

    def update(self, _id, olds, news):
        return UpdateResult(news)


class Thing(Resource):
    pass


for name, inputs in json.loads(os.environ["RESOURCES"]).items():
    Thing(Provider(), name, {**inputs, "password": pulumi.Output.secret("SECRET")})
if "FAIL" in os.environ:
    raise pulumi.RunError("the program refuses")
""".replace("SECRET", SECRET)


@pytest.fixture
def stack(project: Path, engine_path: str, tmp_path: Path) -> Engine:
    program, home = tmp_path / "program", tmp_path / "home"
    program.mkdir()
    home.mkdir()
    (program / ".venv").symlink_to(project / ".venv")
    (program / "Pulumi.yaml").write_text((project / "Pulumi.yaml").read_text())
    (program / "__main__.py").write_text(PROGRAM)
    made = engine(program, home, engine_path)
    made.configure({})
    return made


def resources(**sizes_and_names: tuple[int, str]) -> str:
    return json.dumps({name: {"size": size, "name": given} for name, (size, given) in sizes_and_names.items()})


def preview_of(stack: Engine, **environment: str) -> tuple[str, int]:
    done = stack.run("preview", "--json", **environment)
    return done.text[done.text.index("{") :], done.status


def test_the_preview_of_a_real_engine_is_understood(stack: Engine) -> None:
    first = resources(kept=(1, "a"), updated=(1, "a"), replaced=(1, "a"), deleted=(1, "a"))
    text, status = preview_of(stack, RESOURCES=first)
    plan = preview.read(text)
    assert (status, plan.origin, plan.unchanged, plan.errors) == (0, Origin.PREVIEW, 0, ())
    assert [(one.kind, one.name) for one in plan.changes if "dynamic" in one.type] == [
        (Kind.CREATE, name) for name in ("deleted", "kept", "replaced", "updated")
    ]
    done = stack.run("up", "--yes", "--skip-preview", RESOURCES=first)
    assert done.status == 0, done.text

    second = resources(kept=(1, "a"), updated=(2, "a"), replaced=(1, "b"), made=(1, "a"))
    text, status = preview_of(stack, RESOURCES=second)
    plan = preview.read(text)
    assert [(one.kind, one.name, one.keys, one.reasons) for one in plan.changes] == [
        (Kind.DELETE, "deleted", (), ()),
        (Kind.REPLACE, "replaced", ("name",), ("name",)),
        (Kind.UPDATE, "updated", ("size",), ()),
        (Kind.CREATE, "made", (), ()),
    ]
    values = {one.name: (_values(one.before), _values(one.after)) for one in plan.changes}
    assert values == {
        "deleted": ((1, "a"), None),
        "replaced": ((1, "a"), (1, "b")),
        "updated": ((1, "a"), (2, "a")),
        "made": (None, (1, "a")),
    }
    assert (status, plan.errors) == (0, ())
    assert plan.unchanged == 2  # the stack, and what is kept
    assert SECRET not in text


def test_a_preview_that_the_program_refuses_is_not_whole(stack: Engine) -> None:
    text, status = preview_of(stack, RESOURCES="{}", FAIL="1")
    assert status != 0
    assert any("the program refuses" in error for error in preview.read(text).errors)


def _values(inputs: Mapping[str, object]) -> tuple[object, object] | None:
    return (inputs["size"], inputs["name"]) if inputs else None
