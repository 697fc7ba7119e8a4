"""Certificates and kubeconfigs of the embedded cluster. Written once per state folder, kept across restarts."""

from __future__ import annotations

import base64
import datetime as dt
import ipaddress
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

# The cluster is thrown away with its folder; the life of its certificates only has to outlast it.
LIFETIME_DAYS = 3650


def _write(path: Path, content: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        os.fchmod(descriptor, 0o600)  # the mode above is only for a new file
        file.write(content)


def _private_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _name(common: str, organization: str | None = None) -> x509.Name:
    parts = [x509.NameAttribute(NameOID.COMMON_NAME, common)]
    if organization:
        parts.append(x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization))
    return x509.Name(parts)


@dataclass(frozen=True)
class Authority:
    """A certificate authority whose files are `<folder>/<name>.crt` and `.key`."""

    folder: Path
    name: str

    @property
    def certificate_file(self) -> Path:
        return self.folder / f"{self.name}.crt"

    @property
    def key_file(self) -> Path:
        return self.folder / f"{self.name}.key"

    def ensure(self) -> None:
        """Make the authority unless it is there."""
        if self.key_file.exists() and self.certificate_file.exists():
            return
        key = _private_key()
        subject = _name(f"triton-fleet-{self.name}")
        certificate = (
            _builder(subject, subject, key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .sign(key, hashes.SHA256())
        )
        _write(self.key_file, _pem(key))
        _write(self.certificate_file, certificate.public_bytes(serialization.Encoding.PEM))

    def issue(
        self,
        name: str,
        common: str,
        organization: str | None = None,
        *,
        hosts: Sequence[str] = (),
        addresses: Sequence[str] = (),
    ) -> None:
        """Write `<name>.crt` and `<name>.key`, valid as client and, for `hosts` and `addresses`, as server."""
        if (self.folder / f"{name}.crt").exists() and (self.folder / f"{name}.key").exists():
            return
        authority = x509.load_pem_x509_certificate(self.certificate_file.read_bytes())
        signer = serialization.load_pem_private_key(self.key_file.read_bytes(), password=None)
        if not isinstance(signer, ec.EllipticCurvePrivateKey):
            raise TypeError(f"{self.key_file} holds a {type(signer).__name__}, not a key that this program made")
        key = _private_key()
        builder = _builder(_name(common, organization), authority.subject, key.public_key()).add_extension(
            x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH]), critical=False
        )
        alternatives: list[x509.GeneralName] = [x509.DNSName(host) for host in hosts]
        alternatives += [x509.IPAddress(ipaddress.ip_address(address)) for address in addresses]
        if alternatives:
            builder = builder.add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        _write(self.folder / f"{name}.key", _pem(key))
        _write(
            self.folder / f"{name}.crt",
            builder.sign(signer, hashes.SHA256()).public_bytes(serialization.Encoding.PEM),
        )


def _builder(subject: x509.Name, issuer: x509.Name, public_key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(hours=1))
        .not_valid_after(now + dt.timedelta(days=LIFETIME_DAYS))
    )


def service_account_key(folder: Path) -> None:
    """The key that signs and checks service account tokens: `service-account.key` and `.pub`."""
    if (folder / "service-account.pub").exists():
        return
    key = _private_key()
    _write(folder / "service-account.key", _pem(key))
    _write(
        folder / "service-account.pub",
        key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo),
    )


def kubeconfig(folder: Path, user: str, server: str, target: Path) -> None:
    """Write a kubeconfig for the client certificate `<user>.crt`, self-contained and readable by its owner only."""

    def data(name: str) -> str:
        return base64.b64encode((folder / name).read_bytes()).decode()

    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {
                "name": "triton-fleet-local",
                "cluster": {"server": server, "certificate-authority-data": data("ca.crt")},
            }
        ],
        "users": [
            {
                "name": user,
                "user": {
                    "client-certificate-data": data(f"{user}.crt"),
                    "client-key-data": data(f"{user}.key"),
                },
            }
        ],
        "contexts": [{"name": "triton-fleet-local", "context": {"cluster": "triton-fleet-local", "user": user}}],
        "current-context": "triton-fleet-local",
    }
    _write(target, yaml.safe_dump(document, sort_keys=False).encode())
