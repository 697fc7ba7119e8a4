"""The store: what brings a model's files there, and what may stand in its way."""

from __future__ import annotations

import base64
import os
from typing import TYPE_CHECKING

import pytest

from fleet import model_repository, pods, store, verification, workload
from services.model_store import fill
from tests.unit.graph import local_settings

if TYPE_CHECKING:
    from pathlib import Path

    from fleet.model_repository import ModelFolder
    from tests.unit.graph import Graph

FILES = {"config.pbtxt": b'name: "minilm"', "1/model.py": b"# one\n", "1/deep/data.bin": b"\x00\xff"}
DIGEST = model_repository.digest(FILES)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """The files as the kubelet mounts a ConfigMap: links to links, and its own bookkeeping beside them."""
    mount = tmp_path / "source"
    real = mount / "..2026_11_30"
    for path, content in FILES.items():
        (real / path).parent.mkdir(parents=True, exist_ok=True)
        (real / path).write_bytes(content)
    (mount / "..data").symlink_to(real.name)
    for top in {path.partition("/")[0] for path in FILES}:
        (mount / top).symlink_to(f"..data/{top}")
    return mount


def tree(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_the_files_arrive_whole_and_nothing_else_does(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "store/repository/minilm/cafe"
    assert fill.fill(source, target, "minilm", DIGEST) == f"{target} holds 3 files"
    assert tree(target) == {f"minilm/{path}": content for path, content in FILES.items()}
    assert [path.name for path in target.parent.iterdir()] == ["cafe"]


def test_a_second_run_changes_nothing(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "cafe"
    fill.fill(source, target, "minilm", DIGEST)
    before = {path: path.stat().st_mtime_ns for path in target.rglob("*")}
    assert fill.fill(source, target, "minilm", DIGEST) == f"{target} holds this content already"
    assert {path: path.stat().st_mtime_ns for path in target.rglob("*")} == before


def test_what_somebody_altered_is_put_right(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "repository" / "cafe"
    fill.fill(source, target, "minilm", DIGEST)
    (target / "minilm/1/model.py").write_bytes(b"# broken\n")
    assert fill.fill(source, target, "minilm", DIGEST) == f"{target} was altered by somebody and holds again 3 files"
    assert tree(target) == {f"minilm/{path}": content for path, content in FILES.items()}


def test_files_that_are_not_the_ones_meant_never_appear(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "repository" / "cafe"
    with pytest.raises(SystemExit, match=f"have digest {DIGEST}, not 0000"):
        fill.fill(source, target, "minilm", "0000")
    assert list(target.parent.iterdir()) == []


def test_what_an_interrupted_run_left_is_removed_later(source: Path, tmp_path: Path) -> None:
    repository = tmp_path / "repository"
    for name, age_s in ((".filling-old", fill.STALE_S + 60), (".filling-fresh", 0)):
        (repository / name).mkdir(parents=True)
        when = os.stat(repository / name).st_mtime - age_s  # noqa: PTH116 - the time alone
        os.utime(repository / name, (when, when))
    fill.fill(source, repository / "cafe", "minilm", DIGEST)
    assert sorted(path.name for path in repository.iterdir()) == [".filling-fresh", "cafe"]


def test_a_store_that_belongs_to_somebody_else_says_what_to_do_b33(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing but the refusal is made up: root, which tests may run as, is refused nowhere."""
    target = tmp_path / "repository" / "cafe"

    def refuse(folder: Path, **_: object) -> None:
        raise PermissionError(13, "Permission denied", str(folder))

    monkeypatch.setattr(fill.Path, "mkdir", refuse)
    arguments = [f"--source={source}", f"--target={target}", "--model=minilm", f"--digest={DIGEST}"]
    monkeypatch.setattr("sys.argv", ["fill.py", *arguments])
    assert fill.main() == 1
    ids = f"{os.getuid()}:{os.getgid()}"
    assert capsys.readouterr().err.endswith(f"give the store's folder to them: chown {ids} <store.path>\n")


@pytest.fixture
def folder(project: Path) -> ModelFolder:
    return model_repository.read(project, "model_repo/minilm")


def test_the_job_gets_each_file_at_its_path(project: Path, folder: ModelFolder) -> None:
    settings = local_settings(project)
    source_map = store.source(settings, folder)
    job = store.fill_job(settings, folder, "model-store-program-cafe")
    (volume,) = [one for one in job["spec"]["template"]["spec"]["volumes"] if one["name"] == "source"]
    assert volume["configMap"]["name"] == source_map["metadata"]["name"]
    mounted = {
        item["path"]: base64.b64decode(source_map["binaryData"][item["key"]]) for item in volume["configMap"]["items"]
    }
    assert mounted == dict(folder.files)
    assert model_repository.VERIFICATION_FILE not in mounted


def test_the_job_is_told_where_triton_looks(project: Path, folder: ModelFolder) -> None:
    settings = local_settings(project)
    job = store.fill_job(settings, folder, "model-store-program-cafe")
    (container,) = job["spec"]["template"]["spec"]["containers"]
    assert container["command"] == [
        "python3",
        "/program/fill.py",
        "--source=/source",
        f"--target={store.repository_path('minilm', folder.digest12)}",
        "--model=minilm",
        f"--digest={folder.digest}",
    ]
    assert len(job["metadata"]["name"]) <= 63


def test_volume_and_claim(project: Path) -> None:
    settings = local_settings(project, store={"path": "/srv/fleet/store", "size_gib": 7})
    name = f"model-store-{pods.digest('/srv/fleet/store')}"
    assert store.volume(settings)["spec"] == {
        "capacity": {"storage": "7Gi"},
        "accessModes": ["ReadWriteMany"],
        "persistentVolumeReclaimPolicy": "Retain",
        "storageClassName": "",
        "volumeMode": "Filesystem",
        "claimRef": {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "namespace": "triton-local",
            "name": name,
        },
        "hostPath": {"path": "/srv/fleet/store", "type": "Directory"},
    }
    assert store.claim(settings)["spec"] == {
        "accessModes": ["ReadWriteMany"],
        "storageClassName": "",
        "volumeMode": "Filesystem",
        "volumeName": f"triton-local-{name}",
        "resources": {"requests": {"storage": "7Gi"}},
    }


def test_another_folder_has_another_claim_which_all_pods_use(project: Path, folder: ModelFolder) -> None:
    """Volume and claim cannot be changed: the new ones are made before the pods that use them change."""

    def claims(**changes: object) -> set[str]:
        settings = local_settings(project, store={"size_gib": 1, **changes})
        (model,), (placement, _) = settings.models, settings.models[0].placements
        order = verification.Order(verification.plan(settings), "verification")
        pod_specs = [
            store.fill_job(settings, folder, "program")["spec"]["template"]["spec"],
            workload.deployment(settings, model, placement, folder.digest12)["spec"]["template"]["spec"],
            verification.job(order, "1", "write", [], None, writable=True)["spec"]["template"]["spec"],
        ]
        found = {
            volume["persistentVolumeClaim"]["claimName"]
            for spec in pod_specs
            for volume in spec["volumes"]
            if "persistentVolumeClaim" in volume
        }
        assert store.claim(settings)["metadata"]["name"] in found
        return found

    assert claims() == claims(size_gib=2) == {"model-store"}
    assert claims(path="/srv/a") == {f"model-store-{pods.digest('/srv/a')}"}
    assert claims(path="/srv/a") != claims(path="/srv/b")


def test_a_volume_and_its_claim_keep_the_size_that_they_were_made_with(local: Graph) -> None:
    """Kubernetes refuses to resize a claim that was bound by hand, in the middle of an update."""
    ignored = {
        one.type.rpartition(":")[2]: (one.ignored, store.NOMINAL[one.type.rpartition(":")[2]])
        for one in local.resources
        if one.type.startswith("kubernetes:core/v1:PersistentVolume")
    }
    assert ignored == {
        "PersistentVolume": (frozenset({"spec.capacity"}), "spec.capacity"),
        "PersistentVolumeClaim": (frozenset({"spec.resources"}), "spec.resources"),
    }
