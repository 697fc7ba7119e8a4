"""The stand-in for the AWS CLI."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from fleet import aws_access
from rehearsal import cli

if TYPE_CHECKING:
    from pathlib import Path

ASKED = ("eks", "describe-addon", "--region", "eu-west-1", "--query", "addon.status", "--output", "text")


@pytest.fixture(autouse=True)
def account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One add-on in the account of a stack, whose ordered faults lie beside it."""
    addon = {"type": cli.ADDON, "id": "a", "inputs": {"clusterName": "fleet", "addonName": "coredns"}}
    (tmp_path / "prod.json").write_text(json.dumps({"resources": {"a": addon}}))
    (tmp_path / "prod.faults.json").write_text("[]")
    monkeypatch.setenv("TRITON_FLEET_ACCOUNT", str(tmp_path))


@pytest.mark.parametrize(
    ("cluster", "addon", "status", "said"),
    [("fleet", "coredns", 0, "ACTIVE\n"), ("fleet", "vpc-cni", 254, ""), ("other", "coredns", 254, "")],
)
def test_an_add_on_is_active_where_it_is_in_the_account(
    capsys: pytest.CaptureFixture[str], cluster: str, addon: str, status: int, said: str
) -> None:
    assert cli.main([*ASKED, "--cluster-name", cluster, "--addon-name", addon]) == status
    told = capsys.readouterr()
    assert told.out == said
    assert ("ResourceNotFoundException" in told.err) is (status != 0)


def test_a_token_is_the_certificate_of_the_cluster_that_plays(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command is the one that the program writes into the kubeconfig of a cluster that exists."""
    user = {"client-certificate-data": "Y2VydA==", "client-key-data": "a2V5"}
    (tmp_path / "kubeconfig").write_text(json.dumps({"users": [{"name": "admin", "user": user}]}))
    monkeypatch.setenv("TRITON_FLEET_REHEARSAL_KUBECONFIG", str(tmp_path / "kubeconfig"))
    document = json.loads(aws_access.kubeconfig("theirs", "eu-west-1", "https://x", "Q0E="))
    (asked,) = (one["user"]["exec"] for one in document["users"])
    assert asked["command"] == "aws"
    assert cli.main(asked["args"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["apiVersion"] == asked["apiVersion"]
    assert told["status"] == {"clientCertificateData": "cert", "clientKeyData": "key"}


def test_anything_else_is_refused() -> None:
    with pytest.raises(SystemExit) as refused:
        cli.main(["eks", "delete-cluster", "--name", "fleet"])
    assert refused.value.code == 2
