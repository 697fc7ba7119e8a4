"""The files and command lines of the embedded cluster's components, and its certificates."""

from __future__ import annotations

import base64
import datetime as dt
import json
import os
import re
import ssl
import stat
import tomllib
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives.serialization import load_pem_private_key, load_pem_public_key
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from local.cluster import config, pki
from local.cluster.topology import NODES, Addresses

if TYPE_CHECKING:
    from pathlib import Path

BINARIES = {name: f"/tools/{name}" for name in ("kube", "kube-router", "etcd", "containerd")}
GPU_TAINT = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}


@pytest.fixture
def owners(monkeypatch: pytest.MonkeyPatch) -> dict[Path, tuple[int, int]]:
    """Whom the folders were given to: only root may do it."""
    given: dict[Path, tuple[int, int]] = {}
    monkeypatch.setattr(os, "chown", lambda path, user, group: given.update({path: (user, group)}))
    return given


@pytest.fixture
def files(tmp_path: Path, owners: dict[Path, tuple[int, int]]) -> config.ClusterFiles:
    """Everything that a start in 198.18.16.0/20 writes."""
    folder = tmp_path / "cluster"
    made = config.ClusterFiles(folder, tmp_path / "store", "fleet-1", Addresses.of("198.18.16.0/20"), BINARIES)
    config.write(made)
    assert owners == {tmp_path / "store": (config.STORE_OWNER, config.STORE_OWNER)}
    return made


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def node_files(files: config.ClusterFiles, name: str) -> list[dict[str, Any]]:
    return [yaml.safe_load((files.node_config(node) / name).read_text()) for node in NODES]


# Files


def test_every_path_that_a_component_is_given_was_made(files: config.ClusterFiles) -> None:
    texts = [" ".join(part.argv) for part in config.components(files)]
    texts += [content.decode() for name, content in contents(files.config).items() if ".kubeconfig" not in name]
    named = {found for text in texts for found in re.findall(rf"{re.escape(str(files.folder))}[^\s\"',]*", text)}
    assert len(named) > 30
    assert {path for path in named if not os.path.exists(path)} == {str(files.folder / "etcd")}  # noqa: PTH110 - text


def test_all_components_are_there_in_the_order_of_starting(files: config.ClusterFiles) -> None:
    expected = [
        ("etcd", "", ("/tools/etcd",)),
        *(
            (name, "", ("/tools/kube", name))
            for name in ("kube-apiserver", "kube-controller-manager", "kube-scheduler")
        ),
    ]
    for node in NODES:
        expected += [
            (f"{node.name}/containerd", node.name, ("/tools/containerd",)),
            (f"{node.name}/kubelet", node.name, ("/tools/kube", "kubelet")),
            (f"{node.name}/kube-proxy", node.name, ("/tools/kube", "kube-proxy")),
            (f"{node.name}/kube-router", node.name, ("/tools/kube-router",)),
        ]
    assert [
        (part.name, part.where, tuple(word for word in part.argv if not word.startswith("--")))
        for part in config.components(files)
    ] == expected


def test_kubelets_register_their_nodes_taints_and_labels(files: config.ClusterFiles) -> None:
    kubelets = node_files(files, "kubelet.yaml")
    assert [
        (k["address"], k["cgroupRoot"], k["registerWithTaints"], k["clusterDNS"], k["tlsCertFile"]) for k in kubelets
    ] == [
        ("198.19.240.11", "/fleet-1/system", [], ["198.18.24.10"], f"{files.pki}/kubelet-system.crt"),
        (
            "198.19.240.12", "/fleet-1/gpu-a100-40gb", [GPU_TAINT], ["198.18.24.10"],
            f"{files.pki}/kubelet-gpu-a100-40gb.crt",
        ),
        (
            "198.19.240.13", "/fleet-1/gpu-h100-80gb", [GPU_TAINT], ["198.18.24.10"],
            f"{files.pki}/kubelet-gpu-h100-80gb.crt",
        ),
    ]  # fmt: skip
    argv = {part.name: part.argv for part in config.components(files) if part.name.endswith("/kubelet")}
    assert argv["gpu-a100-40gb/kubelet"][2:] == (
        f"--config={files.config}/gpu-a100-40gb/kubelet.yaml",
        f"--kubeconfig={files.config}/kubelet-gpu-a100-40gb.kubeconfig",
        "--hostname-override=gpu-a100-40gb",
        "--node-ip=198.19.240.12",
        "--node-labels=nvidia.com/gpu=present,nvidia.com/gpu.present=true",
    )
    assert [word for word in argv["system/kubelet"] if word.startswith("--node-labels")] == []


def test_each_node_has_its_own_pods_proxy_and_containerd(files: config.ClusterFiles) -> None:
    networks = [json.loads((files.node_config(node) / "cni" / "10-pods.conflist").read_text()) for node in NODES]
    assert [network["plugins"][0]["ipam"]["ranges"] for network in networks] == [
        [[{"subnet": f"198.18.{third}.0/24"}]] for third in (20, 21, 22)
    ]
    assert [(p["hostnameOverride"], p["clusterCIDR"]) for p in node_files(files, "kube-proxy.yaml")] == [
        (node.name, "198.18.20.0/22") for node in NODES
    ]
    for node in NODES:
        settings = tomllib.loads((files.node_config(node) / "containerd.toml").read_text())
        cri = settings["plugins"]["io.containerd.grpc.v1.cri"]
        assert cri["sandbox_image"] == "triton-fleet.local/pause:1"
        assert cri["cni"] == {"bin_dir": "/usr/lib/cni", "conf_dir": str(files.node_config(node) / "cni")}


def test_keys_and_kubeconfigs_are_their_owners_alone(files: config.ClusterFiles) -> None:
    secret = [*files.pki.glob("*.key"), *files.config.glob("*.kubeconfig")]
    assert sorted(path.name for path in files.config.glob("*.kubeconfig")) == sorted(
        [
            *(
                f"{user}.kubeconfig"
                for user in ("admin", "controller-manager", "scheduler", "kube-proxy", "kube-router")
            ),
            *(f"kubelet-{node.name}.kubeconfig" for node in NODES),
        ]
    )
    assert {stat.S_IMODE(path.stat().st_mode) for path in secret} == {0o600}
    assert {stat.S_IMODE(folder.stat().st_mode) for folder in (files.pki, files.config)} == {0o700}


def test_a_kubeconfig_that_was_open_to_others_is_closed(files: config.ClusterFiles) -> None:
    admin = files.kubeconfig("admin")
    admin.chmod(0o644)
    pki.kubeconfig(files.pki, "admin", files.addresses.api_server, admin)
    assert stat.S_IMODE(admin.stat().st_mode) == 0o600


def test_a_second_start_changes_no_file(files: config.ClusterFiles) -> None:
    before = contents(files.folder)
    config.write(files)
    assert contents(files.folder) == before


# Certificates


def described(path: Path) -> tuple[str, str, list[str]]:
    """Common name, organization, and the names that a certificate is valid for as a server's."""
    certificate = x509.load_pem_x509_certificate(path.read_bytes())

    def part(oid: x509.ObjectIdentifier) -> str:
        return ",".join(str(attribute.value) for attribute in certificate.subject.get_attributes_for_oid(oid))

    try:
        alternatives = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        alternatives = x509.SubjectAlternativeName([])
    return part(NameOID.COMMON_NAME), part(NameOID.ORGANIZATION_NAME), [str(name.value) for name in alternatives]


def test_certificates_name_whom_kubernetes_expects(files: config.ClusterFiles) -> None:
    assert {path.stem: described(path) for path in files.pki.glob("*.crt")} == {
        "ca": ("triton-fleet-ca", "", []),
        "front-proxy-ca": ("triton-fleet-front-proxy-ca", "", []),
        "apiserver": (
            "kube-apiserver",
            "",
            [
                "localhost",
                "kubernetes",
                "kubernetes.default",
                "kubernetes.default.svc",
                "kubernetes.default.svc.cluster.local",
                "127.0.0.1",
                "198.18.16.2",
                "198.19.240.1",
                "198.18.24.1",
            ],
        ),
        "admin": ("triton-fleet-admin", "system:masters", []),
        "apiserver-kubelet-client": ("kube-apiserver-kubelet-client", "system:masters", []),
        "controller-manager": ("system:kube-controller-manager", "", []),
        "scheduler": ("system:kube-scheduler", "", []),
        "kube-proxy": ("system:kube-proxy", "", []),
        "kube-router": ("system:kube-router", "", []),
        "front-proxy-client": ("front-proxy-client", "", []),
        "kubelet-system": ("system:node:system", "system:nodes", ["system", "198.19.240.11"]),
        "kubelet-gpu-a100-40gb": (
            "system:node:gpu-a100-40gb",
            "system:nodes",
            ["gpu-a100-40gb", "198.19.240.12"],
        ),
        "kubelet-gpu-h100-80gb": (
            "system:node:gpu-h100-80gb",
            "system:nodes",
            ["gpu-h100-80gb", "198.19.240.13"],
        ),
    }


def test_certificates_are_valid_signed_by_their_authority_and_match_their_keys(files: config.ClusterFiles) -> None:
    now = dt.datetime.now(dt.UTC)
    authorities = {
        name: x509.load_pem_x509_certificate((files.pki / f"{name}.crt").read_bytes())
        for name in ("ca", "front-proxy-ca")
    }
    serials = set()
    for path in sorted(files.pki.glob("*.crt")):
        certificate = x509.load_pem_x509_certificate(path.read_bytes())
        private = load_pem_private_key(path.with_suffix(".key").read_bytes(), None)
        assert private.public_key() == certificate.public_key(), path.name
        assert certificate.not_valid_before_utc < now < certificate.not_valid_after_utc - dt.timedelta(days=3000)
        serials.add(certificate.serial_number)
        if path.stem in authorities:
            constraints = certificate.extensions.get_extension_for_class(x509.BasicConstraints)
            assert (constraints.critical, constraints.value.ca) == (True, True)
            continue
        right, wrong = ("front-proxy-ca", "ca") if path.stem == "front-proxy-client" else ("ca", "front-proxy-ca")
        certificate.verify_directly_issued_by(authorities[right])
        with pytest.raises(ValueError, match="does not match"):
            certificate.verify_directly_issued_by(authorities[wrong])
        usages = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
        assert set(usages) == {ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH}
    assert len(serials) == 13


def test_service_account_tokens_are_checked_with_the_key_that_signs_them(files: config.ClusterFiles) -> None:
    private = load_pem_private_key((files.pki / "service-account.key").read_bytes(), None)
    assert private.public_key() == load_pem_public_key((files.pki / "service-account.pub").read_bytes())


def handshake(files: config.ClusterFiles, host: str) -> dict[str, Any]:
    """Who the API server sees when the admin's kubeconfig calls it as `host`; raises as TLS does."""
    server_side = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server_side.load_cert_chain(files.pki / "apiserver.crt", files.pki / "apiserver.key")
    server_side.load_verify_locations(files.pki / "ca.crt")
    server_side.verify_mode = ssl.CERT_REQUIRED
    document = yaml.safe_load(files.kubeconfig("admin").read_text())
    user = document["users"][0]["user"]
    client_side = ssl.create_default_context(
        cadata=base64.b64decode(document["clusters"][0]["cluster"]["certificate-authority-data"]).decode()
    )
    for kind in ("client-certificate-data", "client-key-data"):
        (files.folder / kind).write_bytes(base64.b64decode(user[kind]))
    client_side.load_cert_chain(files.folder / "client-certificate-data", files.folder / "client-key-data")
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = client_side.wrap_bio(to_client, to_server, server_hostname=host)
    server = server_side.wrap_bio(to_server, to_client, server_side=True)
    waiting = [client, server]
    for side in [client, server] * 4:
        if side in waiting:
            try:
                side.do_handshake()
                waiting.remove(side)
            except ssl.SSLWantReadError:
                continue
    assert waiting == []
    return dict(part[0] for part in (server.getpeercert() or {})["subject"])  # type: ignore[misc]


def test_the_admin_and_the_api_server_accept_each_other(files: config.ClusterFiles) -> None:
    document = yaml.safe_load(files.kubeconfig("admin").read_text())
    assert document["clusters"][0]["cluster"]["server"] == "https://198.18.16.2:6443"
    assert document["current-context"] == document["contexts"][0]["name"]
    assert handshake(files, "198.18.16.2") == {
        "commonName": "triton-fleet-admin",
        "organizationName": "system:masters",
    }
    with pytest.raises(ssl.SSLCertVerificationError, match=re.escape("198.18.32.2")):
        handshake(files, "198.18.32.2")
