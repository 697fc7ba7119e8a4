"""The model repository reader: protobuf text, what is taken from it, and the digest of a folder."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from fleet import model_repository, protobuf_text
from fleet.model_repository import ModelConfig, ModelFolder
from fleet.protobuf_text import Message, Word

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        ("", {}),
        ("# only a comment", {}),
        ('a: "x"', {"a": ["x"]}),
        ("a: 'x\"y'", {"a": ['x"y']}),
        ('a: "x" "y"\n  \'z\'', {"a": ["xyz"]}),
        (r'a: "\n\t\"\\\101\x41\303\274"', {"a": ['\n\t"\\AAü']}),
        ('a: "ü # no comment"', {"a": ["ü # no comment"]}),
        ("a: 1 b: -2, c: 0x1F; d: 017", {"a": [1], "b": [-2], "c": [31], "d": [15]}),
        ("a: 1.5 b: .5 c: 1e3 d: 2f e: -1.5e-3", {"a": [1.5], "b": [0.5], "c": [1000.0], "d": [2.0], "e": [-0.0015]}),
        ("a: KIND_CPU b: true c: -inf", {"a": ["KIND_CPU"], "b": ["true"], "c": ["-inf"]}),
        ("a: [1, 2, 3] a: 4 b: []", {"a": [1, 2, 3, 4], "b": []}),
        ("a { b: 1 } a: < c: 2 >", {"a": [Message({"b": [1]}), Message({"c": [2]})]}),
        ("a [ { b: 1 }, { b: 2 } ]", {"a": [Message({"b": [1]}), Message({"b": [2]})]}),
        ("a{b{c{}}}", {"a": [Message({"b": [Message({"c": [Message()]})]})]}),
    ],
)
def test_protobuf_text(text: str, fields: dict[str, object]) -> None:
    assert protobuf_text.parse(text) == Message(fields)  # type: ignore[arg-type]


def test_words_are_no_text() -> None:
    message = protobuf_text.parse('a: x b: "x"')
    assert [isinstance(message.fields[name][0], Word) for name in ("a", "b")] == [True, False]


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("", ""),
        ("a: 1", ""),
        ("# one\na: 1 # two\nb { a: 3 }\n", "# one\n # two\nb { a: 3 }\n"),
        ('a { b: "}" } b: 2', " b: 2"),
        ("b: 1, a: [1, 2]; b: 3", "b: 1,  b: 3"),
        ("a [ { b: 1 }, < c: 2 > ] b: 1", " b: 1"),
        ("a: 'x' \"y\" b: 'a: 1' a: -2", " b: 'a: 1' "),
    ],
)
def test_fields_are_taken_out_of_protobuf_text_and_the_rest_stays_as_it_is(text: str, left: str) -> None:
    assert protobuf_text.without(text, {"a"}) == left


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("a", "line 1: the end stands where ':' or '{' belongs"),
        ("a 1", "line 1: 1 stands where ':' or '{' belongs"),
        ("a:", "line 1: the end stands where a value belongs"),
        ("a: }", "line 1: } stands where a value belongs"),
        ("\n\na: 1 }", "line 3: } stands where the name of a field belongs"),
        ("a { b: 1", "line 1: the end stands where the name of a field belongs"),
        ("a { b: 1 >", "line 1: > stands where the name of a field belongs"),
        ("a: [1", "line 1: the end stands where ',' or ']' belongs"),
        ("a: [1,]", "line 1: ] stands where a value belongs"),
        ('# x\na: "x', "line 2: cannot read '\"x'"),
        ('a: "\\xff"', "line 1: text that is not UTF-8"),
        ("a: 12abc", "line 1: cannot read '12abc'"),
        ("[ext]: 1", "line 1: [ stands where the name of a field belongs"),
        ('{"name": "json"}', "line 1: { stands where the name of a field belongs"),
        ("name: $x", "line 1: cannot read '$x'"),
        ("a: 09", "line 1: 09 is no octal number"),
        ("a {" * 101 + "\nb: 1", "line 2: messages are nested more than 100 deep"),
    ],
)
def test_what_is_no_protobuf_text(text: str, error: str) -> None:
    with pytest.raises(ValueError, match="line") as raised:
        protobuf_text.parse(text)
    assert str(raised.value) == error


FULL = """
name: "minilm"  # a comment
backend: "python"
max_batch_size: 32
input [ { name: "TEXT" data_type: TYPE_STRING dims: [ 1 ] } ]
output [ { name: "EMBEDDING" data_type: TYPE_FP32 dims: [ 384 ] } ]
instance_group [ { count: 1 kind: KIND_CPU }, { count: 1, kind: KIND_GPU }, {} ]
dynamic_batching { preferred_batch_size: [ 8, 16 ] max_queue_delay_microseconds: 1000 }
version_policy: { latest { num_versions: 2 } }
parameters { key: "weights" value: { string_value: "/opt/models/minilm" } }
parameters: { key: "x", value: { string_value: "y" } }
"""


@pytest.mark.parametrize(
    ("text", "config"),
    [
        (
            FULL,
            ModelConfig(
                name="minilm",
                backend="python",
                platform="",
                max_batch_size=32,
                kinds=("KIND_CPU", "KIND_GPU", "KIND_AUTO"),
                latest=2,
                specific=(),
                parameters={"weights": "/opt/models/minilm", "x": "y"},
            ),
        ),
        ("", ModelConfig("", "", "", 0, (), 1, (), {})),
        ("name: [] max_batch_size: [] version_policy: []", ModelConfig("", "", "", 0, (), 1, (), {})),
        ('platform: "p" version_policy: { all {} }', ModelConfig("", "", "p", 0, (), None, (), {})),
        ("version_policy { specific { versions: [ 3, 1 ] } }", ModelConfig("", "", "", 0, (), 1, (3, 1), {})),
    ],
)
def test_what_is_taken_from_a_config(text: str, config: ModelConfig) -> None:
    assert model_repository.parse_config(text) == config


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("name: minilm", "field 'name' is 'minilm', not text"),
        ("name: 1", "field 'name' is 1, not text"),
        ('name { x: "y" }', "field 'name' is a message, not text"),
        ('max_batch_size: "8"', "field 'max_batch_size' is '8', not a whole number"),
        ("max_batch_size: 1.5", "field 'max_batch_size' is 1.5, not a whole number"),
        ('instance_group: "KIND_CPU"', "field 'instance_group' is 'KIND_CPU', not a message"),
        ('instance_group { kind: "KIND_CPU" }', "field 'kind' is 'KIND_CPU', not the name of an enum's value"),
    ],
)
def test_fields_of_the_wrong_type(text: str, error: str) -> None:
    with pytest.raises(ValueError, match="field") as raised:
        model_repository.parse_config(text)
    assert str(raised.value) == error


@pytest.mark.parametrize(
    ("policy", "there", "served"),
    [
        ("", [1], [1]),
        ("", [1, 2, 10], [10]),
        ("version_policy { latest { num_versions: 2 } }", [1, 2, 10], [2, 10]),
        ("version_policy { all {} }", [1, 2, 10], [1, 2, 10]),
        ("version_policy { specific { versions: [ 1 ] } }", [1, 2, 10], [1]),
    ],
)
def test_which_versions_triton_serves(policy: str, there: list[int], served: list[int]) -> None:
    config = model_repository.parse_config(policy)
    assert [version for version in there if config.serves(version, there)] == served


def test_a_folder_is_read_whole_without_caches_hidden_files_and_verification(tmp_path: Path) -> None:
    folder = tmp_path / "repo" / "m"
    for path, text in {
        "config.pbtxt": 'backend: "python"',
        "verification.json": "{}",
        "1/model.py": "pass",
        "1/sub/data.bin": "\x00",
        "1/__pycache__/model.pyc": "cache",
        ".git/x": "hidden",
        "1/.swp": "hidden",
        "labels.txt": "",
    }.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    files = {"1/model.py": b"pass", "1/sub/data.bin": b"\0", "config.pbtxt": b'backend: "python"', "labels.txt": b""}
    digest = model_repository.digest(files)
    read = model_repository.read(tmp_path, "repo/m")
    assert read == ModelFolder(
        name="m",
        config=ModelConfig("", "python", "", 0, (), 1, (), {}),
        versions=(1,),
        files=files,
        digest=digest,
        verification=b"{}",
    )
    assert (list(read.files), read.digest12) == (sorted(files), digest[:12])


def test_a_digest_tells_every_change_apart() -> None:
    folders: list[dict[str, bytes]] = [
        {},
        {"a": b""},
        {"a": b"b"},
        {"ab": b""},
        {"a": b"", "b": b""},
        {"b": b"", "a": b"x"},
        {"a": b"1:b:0:"},
    ]
    digests = [model_repository.digest(folder) for folder in folders]
    assert len(set(digests)) == len(folders)
    assert model_repository.digest({"b": b"2", "a": b"1"}) == model_repository.digest({"a": b"1", "b": b"2"})
