"""Bad input is refused with a clear error before anything is created, on the real commands."""

from __future__ import annotations

import json
import socket
import subprocess
from typing import TYPE_CHECKING

import pytest
import yaml

from tests.e2e import machine
from tests.e2e.checkout import FOLDER, PROJECT
from tests.e2e.conftest import fresh_copy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.e2e.checkout import Checkout

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def fresh(before: dict[str, list[str]]) -> Iterator[Checkout]:
    """A copy in which nothing was ever started."""
    assert before
    copy = fresh_copy(FOLDER / "refusals")
    yield copy
    copy.make("down")


def test_a_cluster_file_that_does_not_exist(fresh: Checkout) -> None:
    done = fresh.make("up", "CLUSTER=nowhere.yaml")
    assert done.status != 0
    assert "nowhere.yaml" in done.text
    assert "there is no such file" in done.text
    assert "Traceback" not in done.text


def test_a_cluster_that_does_not_answer(fresh: Checkout, tmp_path: Path) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": f"https://127.0.0.1:{port}"}}],
        "users": [{"name": "u", "user": {}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    file = tmp_path / "kubeconfig"
    file.write_text(yaml.safe_dump(document))
    done = fresh.make("up", f"CLUSTER={file}")
    assert done.status != 0
    assert f"127.0.0.1:{port} does not answer" in done.text
    assert "Traceback" not in done.text


def test_an_address_range_that_is_taken(fresh: Checkout) -> None:
    """An address of another program's in the range that was asked for: said with its device, and nothing is started."""
    subprocess.run(["ip", "address", "add", "198.19.224.1/24", "dev", "lo"], check=True)
    try:
        begun = machine.snapshot()
        done = fresh.make("up", environment={"TRITON_FLEET_RANGE": "198.19.224.0/20"})
        assert done.status != 0
        assert "the address range 198.19.224.0/20 is taken" in done.text
        assert "by lo" in done.text
        assert machine.difference(begun, machine.snapshot()) == {}
    finally:
        subprocess.run(["ip", "address", "delete", "198.19.224.1/24", "dev", "lo"], check=True)


def _two_skus_of_one_name(settings: dict) -> None:  # type: ignore[type-arg]
    settings["triton-fleet:skus"].append(dict(settings["triton-fleet:skus"][0]))


def _misspelt(settings: dict) -> None:  # type: ignore[type-arg]
    settings["triton-fleet:skus"][0]["gpu_prodcut"] = settings["triton-fleet:skus"][0].pop("gpu_product")


def _too_many_gpus(settings: dict) -> None:  # type: ignore[type-arg]
    settings["triton-fleet:models"][0] |= {"tensor_parallel": 8, "pipeline_parallel": 2}


def _no_dns_label(settings: dict) -> None:  # type: ignore[type-arg]
    settings["triton-fleet:skus"][0]["name"] = "A100_40GB"
    settings["triton-fleet:models"][0]["placements"][0]["sku"] = "A100_40GB"


def _missing_folder(settings: dict) -> None:  # type: ignore[type-arg]
    settings["triton-fleet:models"][0]["repository"] = "model_repo/absent"


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (_two_skus_of_one_name, ["skus[2].name", "a100-40gb"]),
        (_misspelt, ["skus[0].gpu_prodcut"]),
        (_too_many_gpus, ["models[0]", "16", "8"]),
        (_no_dns_label, ["skus[0].name", "A100_40GB"]),
        (_missing_folder, ["models[0].repository", "model_repo/absent"]),
    ],
    ids=lambda value: value.__name__.strip("_") if callable(value) else None,
)
def test_wrong_settings_are_refused_by_the_preview_before_anything_is_registered(
    fresh: Checkout, change: Callable[[dict[str, object]], None], named: list[str]
) -> None:
    file = fresh.folder / "Pulumi.local.yaml"
    document = yaml.safe_load(file.read_text())
    change(document["config"])
    file.write_text(yaml.safe_dump(document))
    try:
        done = fresh.make("preview", "STACK=local")
    finally:
        fresh.restore("Pulumi.local.yaml")
    assert done.status != 0
    for text in named:
        assert text in done.text, done.text[-2500:]
    assert "Traceback" not in done.text
    assert "kubernetes:" not in done.text, "a resource was registered before the refusal"


def test_there_is_nothing_to_verify_before_an_up(fresh: Checkout) -> None:
    done = fresh.make("verify")
    assert done.status != 0
    assert "stack local was not deployed from here" in done.text
    assert "fix: run make up first" in done.text
    assert not (fresh.folder / ".fleet" / "pulumi").exists()


def test_an_unknown_stack_names_those_that_there_are(fresh: Checkout) -> None:
    done = fresh.make("preview", "STACK=staging")
    assert done.status != 0
    assert "'staging'" in done.text
    assert "local" in done.text


def test_a_preview_needs_no_cluster_and_plans_everything(fresh: Checkout) -> None:
    done = fresh.make("preview", "STACK=local")
    assert done.status == 0, done.text[-3000:]
    for resource in ("minilm-a100-40gb", "minilm-h100-80gb", "verification", "model-store"):
        assert resource in done.text
    assert not (fresh.folder / ".fleet" / "cluster").exists()
    # Pulumi writes the salt of a stack's secrets into its settings file; the tracked one must stay as it is.
    assert (fresh.folder / "Pulumi.local.yaml").read_text() == (PROJECT / "Pulumi.local.yaml").read_text()


def test_prod_can_be_looked_at_without_an_account(fresh: Checkout) -> None:
    for target in ("preflight", "preview", "render"):
        done = fresh.make(target, "STACK=prod")
        assert done.status == 0, done.text[-3000:]
    registered = json.loads((fresh.folder / "rendered" / "prod" / "resources.json").read_text())
    assert {"aws:efs/fileSystem:FileSystem", "aws:eks/nodeGroup:NodeGroup"} <= {one["type"] for one in registered}
