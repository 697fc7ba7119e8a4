"""What a plan says, read from a preview's JSON and from two renders."""

from __future__ import annotations

import inspect
import json
import re
from typing import TYPE_CHECKING, Any

import pulumi_aws
import pytest

from review import preview, renders
from review.plan import Change, Kind, Origin, Plan, Unreadable, name_of, type_of
from review.replacement import RULES

if TYPE_CHECKING:
    from pathlib import Path

CLUSTER = "aws:eks/cluster:Cluster"
GROUP = "aws:eks/nodeGroup:NodeGroup"
FILES = "aws:efs/fileSystem:FileSystem"
ROLE = "aws:iam/role:Role"
BUCKET = "aws:s3/bucket:Bucket"
AWS = "pulumi:providers:aws"


def urn(kind: str, name: str) -> str:
    return f"urn:pulumi:prod::triton-fleet::triton-fleet:index:Parent${kind}::{name}"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("urn:pulumi:prod::p::aws:eks/cluster:Cluster::c", (CLUSTER, "c")),
        ("urn:pulumi:prod::p::a:b:C$d:e:F$aws:eks/cluster:Cluster::c", (CLUSTER, "c")),
        ("urn:pulumi:prod::p::kubernetes:core/v1:Pod::ns/a::b$c", ("kubernetes:core/v1:Pod", "ns/a::b$c")),
    ],
)
def test_a_urn_tells_type_and_name(text: str, told: tuple[str, str]) -> None:
    assert (type_of(text), name_of(text)) == told


@pytest.mark.parametrize("text", ["", "c", "urn:pulumi:prod::p::t", "urn:other:prod::p::t::n"])
def test_what_is_no_urn_is_not_guessed_at(text: str) -> None:
    with pytest.raises(Unreadable, match="is no URN"):
        type_of(text)


# Previews


def step(op: str, name: str = "x", *, old: object = None, new: object = None, **more: object) -> dict[str, Any]:
    states = {"oldState": old, "newState": new}
    return {
        "op": op,
        "urn": urn(BUCKET, name),
        "detailedDiff": None,
        **{key: {"inputs": state} for key, state in states.items() if state is not None},
        **more,
    }


def digest(*steps: dict[str, Any], **more: object) -> str:
    return json.dumps({"steps": list(steps), "changeSummary": {"same": 3, "create": 1}, **more})


UPDATED = {"tags.a": {"kind": "update", "inputDiff": False}}
REPLACING = {"diffReasons": ["name", "tags"], "replaceReasons": ["name"], "detailedDiff": UPDATED}


@pytest.mark.parametrize(
    ("steps", "change"),
    [
        pytest.param([step("create", new={"a": 1})], (Kind.CREATE, {}, {"a": 1}, (), ()), id="create"),
        pytest.param([step("import", new={"a": 1})], (Kind.IMPORT, {}, {"a": 1}, (), ()), id="import"),
        pytest.param([step("delete", old={"a": 1})], (Kind.DELETE, {"a": 1}, {}, (), ()), id="delete"),
        pytest.param(
            [step("update", old={"a": 1}, new={"a": 2}, diffReasons=["a"])],
            (Kind.UPDATE, {"a": 1}, {"a": 2}, ("a",), ()),
            id="update",
        ),
        pytest.param(
            [step("update", old={"a": 1}, new={"a": 2}, diffReasons=["tags", "a"], detailedDiff=UPDATED)],
            (Kind.UPDATE, {"a": 1}, {"a": 2}, ("a", "tags.a"), ()),
            id="update, told in detail",
        ),
        pytest.param(
            [
                step("create-replacement", old={"a": 1}, new={"a": 2}, **REPLACING),
                step("replace", old={"a": 1}, new={"a": 2}, **REPLACING),
                step("delete-replaced", old={"a": 1}),
            ],
            (Kind.REPLACE, {"a": 1}, {"a": 2}, ("name", "tags.a"), ("name",)),
            id="replacement in three steps",
        ),
        pytest.param(
            [step("delete-replaced", old={"a": 1}), step("create-replacement", old={"a": 1}, new={"a": 2})],
            (Kind.REPLACE, {"a": 1}, {"a": 2}, ("a",), ()),
            id="deleted before it is replaced",
        ),
        pytest.param(
            [step("import-replacement", old={"a": 1}, new={"a": 2})],
            (Kind.REPLACE, {"a": 1}, {"a": 2}, ("a",), ()),
            id="replaced by an import",
        ),
        pytest.param(
            [step("delete", old={"a": 1}), step("create", new={"a": 2})],
            (Kind.REPLACE, {"a": 1}, {"a": 2}, ("a",), ()),
            id="deleted and made again",
        ),
        pytest.param(
            [step("refresh", old={"a": 1}), step("delete", old={"a": 1})],
            (Kind.DELETE, {"a": 1}, {}, (), ()),
            id="read again, then deleted",
        ),
    ],
)
def test_the_steps_of_a_resource_are_one_change(steps: list[dict[str, Any]], change: tuple[Any, ...]) -> None:
    assert preview.read(digest(*steps)) == Plan(Origin.PREVIEW, (Change(change[0], urn(BUCKET, "x"), *change[1:]),), 3)


@pytest.mark.parametrize(
    "op", ["same", "read", "refresh", "read-replacement", "discard", "discard-replaced", "remove-pending-replace"]
)
def test_what_leaves_the_cloud_as_it_is_is_no_change(op: str) -> None:
    assert preview.read(digest(step(op))) == Plan(Origin.PREVIEW, (), 3)


def test_changes_are_sorted_by_what_is_lost_first() -> None:
    ops = ["create", "update", "delete", "replace", "import"]
    plan = preview.read(digest(*(step(op, f"{name}-{op}") for name in "ba" for op in ops)))
    assert [change.name for change in plan.changes] == [
        *("a-delete", "b-delete", "a-replace", "b-replace", "a-update", "b-update"),
        *("a-import", "b-import", "a-create", "b-create"),
    ]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "the preview printed no JSON; its log says why"),
        ("error: no stack\n", "the preview printed no JSON; its log says why"),
        ("[]", "the preview printed JSON, but no digest of a preview"),
        ('{"steps": [{"op": "create"}]}', "the preview printed JSON, but no digest of a preview (KeyError)"),
        ('{"steps": 3}', "the preview printed JSON, but no digest of a preview (TypeError)"),
        ('{"steps": [{"op": "create", "urn": "x"}]}', "'x' is no URN"),
        (
            digest(step("teleport")),
            "the preview names the operation 'teleport', which nobody has judged yet",
        ),
    ],
)
def test_a_preview_that_cannot_be_read_is_no_plan(text: str, why: str) -> None:
    with pytest.raises(Unreadable) as unreadable:
        preview.read(text)
    assert str(unreadable.value) == why


@pytest.mark.parametrize(
    ("more", "errors"),
    [
        pytest.param(
            {"diagnostics": [{"severity": "warning", "message": "w"}, {"severity": "error", "message": "refused\n"}]},
            ("refused",),
            id="the program failed",
        ),
        pytest.param({"changeSummary": None}, ("the preview ended without a summary: it did not finish",), id="cut"),
        pytest.param({"diagnostics": [{"severity": "info", "message": "i"}]}, (), id="nothing wrong"),
    ],
)
def test_a_preview_that_failed_says_so(more: dict[str, Any], errors: tuple[str, ...]) -> None:
    assert preview.read(digest(**more)).errors == errors


# Renders


def resource(kind: str, name: str, inputs: dict[str, Any], **more: object) -> dict[str, Any]:
    return {
        "type": kind,
        "name": name,
        "urn": urn(kind, name),
        "parent": "urn:parent",
        "provider": urn(AWS, "default"),
        "inputs": inputs,
        "dependencies": [],
        "protect": False,
        "retainOnDelete": False,
        "ignoreChanges": [],
        **more,
    }


def compared(old: list[dict[str, Any]], new: list[dict[str, Any]]) -> Plan:
    return renders.compare({one["urn"]: one for one in old}, {one["urn"]: one for one in new})


def one_change(kind: str, old: dict[str, Any], new: dict[str, Any], **more: Any) -> tuple[Any, ...] | None:  # noqa: ANN401
    """Kind, keys and reasons of the change of one resource; options that begin with `old_` are the old one's."""
    before = {key.removeprefix("old_"): value for key, value in more.items() if key.startswith("old_")}
    after = {key: value for key, value in more.items() if not key.startswith("old_")}
    plan = compared([resource(kind, "x", old, **before)], [resource(kind, "x", new, **after)])
    if not plan.changes:
        return None
    (change,) = plan.changes
    assert (change.before, change.after, plan.unchanged) == (old, new, 0)
    return change.kind, change.keys, change.reasons


def test_a_resource_of_one_side_alone_is_made_or_deleted() -> None:
    gone, kept, made = (resource(BUCKET, name, {"n": name}) for name in ("gone", "kept", "made"))
    assert compared([gone, kept], [kept, made]) == Plan(
        Origin.RENDERS,
        (
            Change(Kind.DELETE, urn(BUCKET, "gone"), {"n": "gone"}, {}),
            Change(Kind.CREATE, urn(BUCKET, "made"), {}, {"n": "made"}),
        ),
        1,
    )


@pytest.mark.parametrize(
    ("old", "new", "more", "change"),
    [
        pytest.param({"a": 1}, {"a": 1}, {}, None, id="equal"),
        pytest.param({"a": "<unknown>"}, {"a": "<unknown>"}, {}, None, id="not known yet on both sides"),
        pytest.param({"a": 1}, {"a": "<unknown>"}, {}, (Kind.UPDATE, ("a",), ()), id="not known any more"),
        pytest.param({"a": 1}, {"a": True}, {}, (Kind.UPDATE, ("a",), ()), id="a number is no truth value"),
        pytest.param(
            {"a": {"b": [1, {"c": 2}]}, "d": 1},
            {"a": {"b": [1, {"c": 3}]}, "e": 1},
            {},
            (Kind.UPDATE, ("a.b[1].c", "d", "e"), ()),
            id="inside, gone and new",
        ),
        pytest.param(
            {"a": {"x.y/z": 1}}, {"a": {"x.y/z": 2}}, {}, (Kind.UPDATE, ('a["x.y/z"]',), ()), id="a key with dots"
        ),
        pytest.param({"a": [1]}, {"a": [1, 2]}, {}, (Kind.UPDATE, ("a",), ()), id="a longer list"),
        pytest.param({"a": 1, "b": 1}, {"a": 2, "b": 1}, {"ignoreChanges": ["a"]}, None, id="ignored"),
        pytest.param({"a": {"b": 1}}, {"a": {"b": 2}}, {"ignoreChanges": ["a.b"]}, None, id="ignored inside"),
        pytest.param(
            {"a": {"b": 1, "c": 1}},
            {"a": {"b": 2, "c": 2}},
            {"ignoreChanges": ["a.b"]},
            (Kind.UPDATE, ("a.c",), ()),
            id="another than is ignored",
        ),
        pytest.param({}, {}, {"old_protect": True}, (Kind.UPDATE, ("(protect)",), ()), id="protection taken away"),
        pytest.param({}, {}, {"parent": "urn:o"}, (Kind.UPDATE, ("(parent)",), ()), id="moved"),
        pytest.param({"name": "a"}, {"name": "b"}, {}, (Kind.UPDATE, ("name",), ()), id="a type without a list"),
    ],
)
def test_changes_of_a_resource(
    old: dict[str, Any], new: dict[str, Any], more: dict[str, Any], change: tuple[Any, ...] | None
) -> None:
    assert one_change(BUCKET, old, new, **more) == change


@pytest.mark.parametrize(
    ("kind", "old", "new", "change"),
    [
        (CLUSTER, {"name": "a"}, {"name": "b"}, (Kind.REPLACE, ("name",), ("name",))),
        (CLUSTER, {"version": "1.33"}, {"version": "1.34"}, (Kind.UPDATE, ("version",), ())),
        (CLUSTER, {"encryptionConfig": {"k": 1}}, {}, (Kind.REPLACE, ("encryptionConfig",), ("encryptionConfig",))),
        (CLUSTER, {}, {"encryptionConfig": {"k": 1}}, (Kind.UPDATE, ("encryptionConfig",), ())),
        (CLUSTER, {}, {"bootstrapSelfManagedAddons": True}, (Kind.UPDATE, ("bootstrapSelfManagedAddons",), ())),
        (
            CLUSTER,
            {},
            {"bootstrapSelfManagedAddons": False},
            (Kind.REPLACE, ("bootstrapSelfManagedAddons",), ("bootstrapSelfManagedAddons",)),
        ),
        (
            CLUSTER,
            {"kubernetesNetworkConfig": {"serviceIpv4Cidr": "10.0.0.0/16"}},
            {"kubernetesNetworkConfig": {"serviceIpv4Cidr": "10.1.0.0/16"}},
            (
                Kind.REPLACE,
                ("kubernetesNetworkConfig.serviceIpv4Cidr",),
                ("kubernetesNetworkConfig.serviceIpv4Cidr",),
            ),
        ),
        (
            GROUP,
            {"instanceTypes": ["a"]},
            {"instanceTypes": ["b"]},
            (Kind.REPLACE, ("instanceTypes[0]",), ("instanceTypes",)),
        ),
        (
            GROUP,
            {"scalingConfig": {"maxSize": 1}},
            {"scalingConfig": {"maxSize": 2}},
            (Kind.UPDATE, ("scalingConfig.maxSize",), ()),
        ),
        (
            GROUP,
            {"launchTemplate": {"id": "l", "version": "1"}},
            {"launchTemplate": {"id": "l", "version": "2"}},
            (Kind.UPDATE, ("launchTemplate.version",), ()),
        ),
        (
            GROUP,
            {"launchTemplate": {"id": "l"}},
            {"launchTemplate": {"id": "m"}},
            (Kind.REPLACE, ("launchTemplate.id",), ("launchTemplate.id",)),
        ),
        (
            GROUP,
            {"subnetIds": ["a", "b"]},
            {"subnetIds": ["b", "a"]},
            (Kind.UPDATE, ("subnetIds[0]", "subnetIds[1]"), ()),
        ),
        (GROUP, {"subnetIds": ["a", "b"]}, {"subnetIds": ["a"]}, (Kind.REPLACE, ("subnetIds",), ("subnetIds",))),
        (FILES, {"encrypted": True}, {"encrypted": "<unknown>"}, (Kind.REPLACE, ("encrypted",), ("encrypted",))),
        (FILES, {"throughputMode": "bursting"}, {"throughputMode": "elastic"}, (Kind.UPDATE, ("throughputMode",), ())),
        (ROLE, {"name": "a"}, {"name": "a", "path": "/"}, (Kind.UPDATE, ("path",), ())),
        (ROLE, {"name": "a"}, {"name": "a", "path": "/b/"}, (Kind.REPLACE, ("path",), ("path",))),
    ],
)
def test_changes_that_replace_what_is_guarded(
    kind: str, old: dict[str, Any], new: dict[str, Any], change: tuple[Any, ...]
) -> None:
    assert one_change(kind, old, new) == change


def test_an_ignored_input_replaces_nothing() -> None:
    assert one_change(FILES, {"kmsKeyId": "a"}, {"kmsKeyId": "b"}, ignoreChanges=["kmsKeyId"]) is None


def test_another_provider_replaces_what_is_guarded() -> None:
    other = urn(AWS, "other")
    assert one_change(FILES, {}, {}, provider=other) == (Kind.REPLACE, ("(provider)",), ("(provider)",))
    assert one_change(BUCKET, {}, {}, provider=other) == (Kind.UPDATE, ("(provider)",), ())


def test_all_that_a_replaced_provider_holds_is_replaced() -> None:
    """Whatever its URN sorts before, and whatever its type."""
    old = [resource(AWS, "default", {"region": "eu-west-1"}, provider=""), resource(BUCKET, "x", {})]
    new = [resource(AWS, "default", {"region": "eu-west-3"}, provider=""), resource(BUCKET, "x", {})]
    assert [(one.kind, one.name, one.reasons) for one in compared(old, new).changes] == [
        (Kind.REPLACE, "x", ("(provider, which is replaced)",)),
        (Kind.REPLACE, "default", ("region",)),
    ]


def test_renders_are_read_from_their_folders(tmp_path: Path) -> None:
    (tmp_path / "head").mkdir()
    (tmp_path / "head" / "resources.json").write_text(json.dumps([resource(BUCKET, "x", {"a": 1})]))
    assert renders.read(tmp_path / "base", tmp_path / "head") == Plan(
        Origin.RENDERS, (Change(Kind.CREATE, urn(BUCKET, "x"), {}, {"a": 1}),), 0
    )


@pytest.mark.parametrize("text", [None, "", "{}x", '[{"type": "t"}]', "[1]", "3"])
def test_a_render_that_cannot_be_read_is_no_plan(tmp_path: Path, text: str | None) -> None:
    (tmp_path / "head").mkdir()
    if text is not None:
        (tmp_path / "head" / "resources.json").write_text(text)
    with pytest.raises(Unreadable, match=r"^head/resources.json is no render's list of resources \(\w+\)$"):
        renders.read(tmp_path / "base", tmp_path / "head")


def test_every_rule_has_its_source_and_names_inputs_that_exist() -> None:
    for rule in RULES.values():
        module, _, name = rule.type.partition("/")
        kind = pulumi_aws.Provider
        if name:
            kind = getattr(getattr(pulumi_aws, module.removeprefix("aws:")), name.partition(":")[2])
        inputs = {re.sub(r"(?<=[a-z])(?=[A-Z])", "_", path.split(".")[0]).lower() for path in rule.replaces}
        assert inputs - set(inspect.signature(kind._internal_init).parameters) == set()
        paths = (*rule.replaces, *rule.replaces_if_removed)
        assert rule.source
        assert sorted(paths) == sorted(set(paths))
        assert {*rule.defaults, *rule.sets} <= set(rule.replaces)
