"""What `make images PUSH=` asks of buildah, what it refuses first, and what it says when the registry refuses."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from fleet import own_images
from local import __main__ as command_line
from local import commands, packages, push
from local.errors import LocalError

if TYPE_CHECKING:
    from pathlib import Path

DIGEST = f"sha256:{'ab' * 32}"
OTHER = f"sha256:{'cd' * 32}"
BASE = f"registry.example.com/python@{DIGEST}"
PLACE = "registry.example.com/team"


class Machine:
    """A buildah that records what it is asked; `answers` are lines of shell, by subcommand."""

    def __init__(self, folder: Path) -> None:
        self.bin = folder / "bin"
        self.bin.mkdir()
        self.log = folder / "log"
        self.log.touch()
        self.cache = folder / "cache"
        self.report = folder / "reports" / "images.json"
        self.said: list[str] = []

    def buildah(self, **answers: str) -> None:
        """`manifest add` is `manifest_add`; `$file` is the file that an ID or a digest is asked into."""
        known = {
            "manifest_add": "echo 'reading manifest: manifest unknown' >&2; exit 125",
            "pull": "echo base-id",
            "build": "printf image-id > $file",
            "push": f"printf {OTHER} > $file",
        }
        cases = "\n".join(f"{name}) {answer} ;;" for name, answer in {**known, **answers}.items())
        script = f"""#!/bin/sh
shift 3
echo "$*" >> '{self.log}'
name=$1
[ "$1" = manifest ] && name=manifest_$2
for word; do
    case $word in --iidfile=*|--digestfile=*) file=${{word#*=}} ;; esac
    last=$word
done
[ "$name" = build ] && (cd "$last" && made=$(dirname services/*/Containerfile) &&
    find . -type f | sort > "{self.log}.${{made##*/}}")
case $name in
{cases}
esac
"""
        (self.bin / "buildah").write_text(script)
        (self.bin / "buildah").chmod(0o755)

    @property
    def asked(self) -> list[str]:
        """The subcommands, with their last word."""
        lines = [line.split() for line in self.log.read_text().splitlines()]
        return [f"{line[0]} {line[-1]}" for line in lines if line[0] != "manifest" or line[1] == "add"]


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    made = Machine(tmp_path)
    monkeypatch.setattr(packages, "SEARCH", f"{made.bin}:/usr/bin:/bin")
    monkeypatch.setenv("PATH", f"{made.bin}:/usr/bin:/bin")
    monkeypatch.setenv("TRITON_FLEET_CACHE", str(made.cache))
    monkeypatch.setattr(push, "REPORT", made.report)
    return made


def refs() -> list[str]:
    return [f"{own_images.repository(PLACE, program.name)}:{push.tag(program, BASE)}" for program in push.PROGRAMS]


def test_what_the_registry_lacks_is_built_and_pushed(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    machine.buildah()
    pushed = push.images(f"{PLACE}/", BASE, machine.said.append)
    store, verification, load = refs()
    assert pushed == [
        push.Pushed("model_store", store, f"{PLACE}/triton-fleet/model-store@{OTHER}"),
        push.Pushed("verification", verification, f"{PLACE}/triton-fleet/verification@{OTHER}"),
        push.Pushed("load", load, f"{PLACE}/triton-fleet/load@{OTHER}"),
    ]
    asked = machine.asked
    made = ["build", "push"]
    assert [line.split()[0] for line in asked] == ["manifest", "pull", *made, "manifest", *made, "manifest", *made]
    assert [line.split()[1] for line in asked if not line.startswith("build")] == [
        f"docker://{store}",
        f"docker://{BASE}",
        f"docker://{store}",
        f"docker://{verification}",
        f"docker://{verification}",
        f"docker://{load}",
        f"docker://{load}",
    ]
    assert json.loads(machine.report.read_text()) == [
        {"setting": each.setting, "tag": each.tag, "image": each.image} for each in pushed
    ]
    assert capsys.readouterr().out.splitlines()[-3:] == [
        f"  model_store: {PLACE}/triton-fleet/model-store@{OTHER}",
        f"  verification: {PLACE}/triton-fleet/verification@{OTHER}",
        f"  load: {PLACE}/triton-fleet/load@{OTHER}",
    ]
    assert not (machine.cache / "buildah").exists()


def test_a_build_sees_the_files_that_its_tag_is_made_of_and_no_others(machine: Machine) -> None:
    machine.buildah()
    push.images(PLACE, BASE, machine.said.append)
    for program in push.PROGRAMS:
        seen = (machine.log.with_name(f"log.{own_images.SETTINGS[program.name]}")).read_text().splitlines()
        assert [path.removeprefix("./") for path in seen] == sorted(program.files)


def test_what_the_registry_has_is_neither_built_nor_pushed(machine: Machine) -> None:
    machine.buildah(manifest_add=f"echo 'list-id: {OTHER}'", pull="exit 9", build="exit 9", push="exit 9")
    pushed = push.images(PLACE, BASE, machine.said.append)
    assert [each.image.partition("@")[2] for each in pushed] == [OTHER] * len(push.PROGRAMS)
    assert machine.said == [f"image {ref}: the registry has it" for ref in refs()]
    assert machine.asked == [f"manifest docker://{ref}" for ref in refs()]


@pytest.mark.parametrize(
    ("step", "says", "command", "asked"),
    [
        pytest.param("manifest_add", "dial tcp: connect: connection refused", "manifest", 1, id="nobody is there"),
        pytest.param("manifest_add", "x509: unknown authority", "manifest", 1, id="a certificate of nobody known"),
        pytest.param("pull", "no space left on device", "pull", 2, id="the base"),
        pytest.param("build", "No module named pip", "build", 3, id="the build"),
        pytest.param("push", "requested access to the resource is denied", "push", 4, id="no credentials"),
    ],
)
def test_a_refusal_is_told_and_leaves_nothing(machine: Machine, step: str, says: str, command: str, asked: int) -> None:
    machine.buildah(**{step: f"echo '{says}' >&2; exit 125"})
    with pytest.raises(LocalError) as failed:
        push.images(PLACE, BASE, machine.said.append)
    assert str(failed.value) == (
        f"`buildah {command}` failed with status 125\n{says}\n"
        f"fix: check that {PLACE} is reached and lets you in (`buildah login`); docs/images.md has it for ECR"
    )
    assert len(machine.asked) == asked
    assert not (machine.cache / "buildah").exists()
    assert not machine.report.exists()


@pytest.mark.parametrize(
    ("registry", "place"),
    [
        ("registry.example.com", "registry.example.com"),
        ("registry.example.com/team/", "registry.example.com/team"),
        (
            "123456789012.dkr.ecr.eu-central-1.amazonaws.com/prod",
            "123456789012.dkr.ecr.eu-central-1.amazonaws.com/prod",
        ),
        ("localhost:5000", "localhost:5000"),
        ("127.0.0.1:5000/a/b-c", "127.0.0.1:5000/a/b-c"),
        ("[::1]:5000", "[::1]:5000"),
        ("registry:5000/team", "registry:5000/team"),
        ("https://registry.example.com", None),
        ("team/images", None),
        ("registry.example.com/Team", None),
        ("registry.example.com/team:1", None),
        ("", None),
    ],
)
def test_a_registry_is_named_by_its_host(registry: str, place: str | None) -> None:
    if place is not None:
        assert push.destination(registry) == place
        return
    with pytest.raises(LocalError, match="this is no registry"):
        push.destination(registry)


@pytest.mark.parametrize("base", ["python:3.11", "registry.example.com/python:3.11", f"python@{DIGEST[:-1]}"])
def test_a_base_without_a_digest_is_refused(machine: Machine, base: str) -> None:
    machine.buildah()
    with pytest.raises(LocalError, match="the base must be named by digest"):
        push.images(PLACE, base, machine.said.append)
    assert machine.asked == []


@pytest.mark.parametrize(
    ("image", "verify"),
    [
        ("127.0.0.1:5000/triton-fleet/verification:1", "false"),
        ("127.8.0.1/a", "false"),
        ("localhost/team/a", "false"),
        ("[::1]:5000/a", "false"),
        ("10.0.0.1:5000/a", "true"),
        ("localhost.example.com/a", "true"),
        ("registry.example.com/127.0.0.1", "true"),
    ],
)
def test_only_a_registry_on_this_machine_may_speak_plain_http(image: str, verify: str) -> None:
    assert push.tls(image) == f"--tls-verify={verify}"


def test_a_tag_changes_with_all_that_the_image_is_made_from(project: Path, tmp_path: Path) -> None:
    program = push.PROGRAMS[1]
    for name in program.files:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(project / name, tmp_path / name)
    tags = [push.tag(program, BASE, tmp_path), push.tag(program, f"{BASE}0", tmp_path)]
    assert tags[0] == push.tag(program, BASE)
    tags.append(push.tag(replace(program, inputs=program.inputs[1:]), BASE, tmp_path))
    for name in program.files:
        with (tmp_path / name).open("a") as file:
            file.write("\n")
        tags.append(push.tag(program, BASE, tmp_path))
    assert len(set(tags)) == len(tags)
    os.utime(tmp_path / program.containerfile, (1, 1))
    assert push.tag(program, BASE, tmp_path) == tags[-1]


def test_buildah_is_installed_only_for_a_push(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not push.BUILDAH.keys() & packages.NEEDED.keys()
    monkeypatch.setattr(packages, "SEARCH", str(machine.bin))
    with pytest.raises(LocalError, match="buildah, which is missing, and there is no apt"):
        push.images(PLACE, BASE, machine.said.append)
    asked: list[object] = []
    (machine.bin / "apt-get").write_text("#!/bin/sh\n")
    (machine.bin / "apt-get").chmod(0o755)
    monkeypatch.setattr(packages, "ensure", lambda _, needed: asked.append(needed))
    with pytest.raises(FileNotFoundError):
        push.images(PLACE, BASE, machine.said.append)
    assert asked == [push.BUILDAH]


def test_the_command_pushes_where_a_registry_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PATH", "no_proxy", "NO_PROXY"):
        monkeypatch.setenv(name, os.environ.get(name, ""))
    done: list[object] = []
    monkeypatch.setattr(push, "images", lambda *given: done.append(("push", *given[:2])))
    monkeypatch.setattr(commands, "images", lambda *given: done.append(("build", *given[:1])))
    for words in (["--push", PLACE], ["--push", PLACE, "--base", BASE], []):
        assert command_line.main(["images", *words]) == 0
    assert done == [("push", PLACE, None), ("push", PLACE, BASE), ("build", None)]
