"""Images of ours, built by the real buildah and pushed to a real registry on loopback."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.request import Request, urlopen

import pytest

from fleet import own_images
from local import push, toolchain

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [
    pytest.mark.engine,
    pytest.mark.skipif(os.geteuid() != 0, reason="debootstrap makes the base, as root"),
]

START_TIMEOUT_S = 30
CALL_TIMEOUT_S = 20
MANIFESTS = "application/vnd.oci.image.manifest.v1+json, application/vnd.docker.distribution.manifest.v2+json"
LISTENING = re.compile(r"listening on 127\.0\.0\.1:(\d+)")


@dataclass(frozen=True)
class Registry:
    """A registry that runs: where, and the folder of its files."""

    place: str

    def fetch(self, path: str) -> bytes:
        asked = Request(f"http://{self.place}/v2/{path}", headers={"Accept": MANIFESTS})
        with urlopen(asked, timeout=CALL_TIMEOUT_S) as answer:  # noqa: S310 - on loopback
            body: bytes = answer.read()
            return body

    def manifest(self, repository: str, reference: str) -> tuple[str, dict[str, Any]]:
        """The manifest that the registry hands out, and the digest of the bytes that it sent."""
        body = self.fetch(f"{repository}/manifests/{reference}")
        return f"sha256:{hashlib.sha256(body).hexdigest()}", json.loads(body)

    def config(self, repository: str, manifest: dict[str, Any]) -> dict[str, Any]:
        config: dict[str, Any] = json.loads(self.fetch(f"{repository}/blobs/{manifest['config']['digest']}"))
        return config


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    """The distribution project's registry on a port that the system picks; ended by its process, nothing left."""
    program = toolchain.ensure(["registry"], print)["registry"]
    home = tmp_path_factory.mktemp("registry")
    settings = {
        "version": 0.1,
        "log": {"level": "info"},
        "storage": {"filesystem": {"rootdirectory": str(home / "files")}},
        "http": {"addr": "127.0.0.1:0"},
    }
    (home / "config.yml").write_text(json.dumps(settings))
    log = home / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [program, "serve", home / "config.yml"],
            cwd=home,
            env={**os.environ, "OTEL_TRACES_EXPORTER": "none"},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
    try:
        yield Registry(f"127.0.0.1:{_port(process, log)}")
    finally:
        process.terminate()
        process.wait(timeout=START_TIMEOUT_S)
        shutil.rmtree(home)


def _port(process: subprocess.Popen[bytes], log: Path) -> str:
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline and process.poll() is None:
        found = LISTENING.search(log.read_text())
        if found:
            return found[1]
        time.sleep(0.05)
    raise AssertionError(log.read_text())


@pytest.fixture(scope="module")
def first(registry: Registry, tmp_path_factory: pytest.TempPathFactory) -> tuple[list[push.Pushed], list[str]]:
    """What the first push into an empty registry returned, and what it said."""
    said: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(push, "REPORT", tmp_path_factory.mktemp("reports") / "images.json")
        return push.images(f"{registry.place}/team", None, said.append), said


def test_the_digest_that_is_printed_is_the_one_that_the_registry_hands_out(
    registry: Registry, first: tuple[list[push.Pushed], list[str]]
) -> None:
    pushed, said = first
    assert [each.setting for each in pushed] == ["model_store", "verification", "load"]
    for each in pushed:
        name, _, digest = each.image.partition("@")
        repository = name.removeprefix(f"{registry.place}/")
        by_tag, manifest = registry.manifest(repository, each.tag.rpartition(":")[2])
        by_digest, same = registry.manifest(repository, digest)
        assert (by_tag, by_digest) == (digest, digest)
        assert manifest == same
        assert own_images.is_ours(each.image)
        assert f"image {each.tag}: pushing it" in said


def test_the_images_run_their_program_as_the_pods_user(
    registry: Registry, first: tuple[list[push.Pushed], list[str]]
) -> None:
    started = {}
    for each in first[0]:
        repository = each.image.partition("@")[0].removeprefix(f"{registry.place}/")
        config = registry.config(repository, registry.manifest(repository, each.image.partition("@")[2])[1])["config"]
        started[each.setting] = (config["User"], config["Entrypoint"])
    assert started == {
        "model_store": ("1000:1000", ["python3", "/opt/triton-fleet/fill.py"]),
        "verification": ("1000:1000", ["python3", "-u", "/opt/triton-fleet/program.py"]),
        "load": ("1000:1000", ["python3", "-u", "-m", "services.load.program"]),
    }


def test_a_second_push_finds_the_images_and_builds_none(
    registry: Registry,
    first: tuple[list[push.Pushed], list[str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(push, "REPORT", tmp_path / "reports" / "images.json")
    said: list[str] = []
    pushed = push.images(f"{registry.place}/team", None, said.append)
    assert pushed == first[0]
    assert said == [f"image {each.tag}: the registry has it" for each in pushed]
    assert capsys.readouterr().out.splitlines()[-3:] == [f"  {each.setting}: {each.image}" for each in pushed]
    report = json.loads((tmp_path / "reports" / "images.json").read_text())
    assert report == [{"setting": each.setting, "tag": each.tag, "image": each.image} for each in pushed]
    assert not (toolchain.cache_folder() / "buildah").exists()
