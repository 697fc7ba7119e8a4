"""The EFS driver of the rehearsal: what the kubelet sends it, and what it answers."""

from __future__ import annotations

from pathlib import Path

import pytest

from rehearsal.file_system import Driver, Publish, decoded, encoded, folder_name, mounted

VOLUME = "fs-0123456789abcdef0::fsap-0123456789abcdef0"
TARGET = "/var/lib/kubelet/pods/x/mount"


def message(number: int, value: bytes) -> bytes:
    """A field that holds a message; short ones only."""
    return bytes([number << 3 | 2, len(value)]) + value


def publish(*options: str) -> bytes:
    """NodePublishVolumeRequest as csi.proto numbers it: also with what the driver has no use for."""
    mount = b"".join(encoded((2, option)) for option in options)
    read_only = bytes([6 << 3 | 0, 1])
    context = message(8, encoded((1, "csi.storage.k8s.io/pod.name"), (2, "minilm")))
    return encoded((1, VOLUME), (4, TARGET)) + message(5, message(2, mount)) + read_only + context


def test_a_mount_is_read_from_the_kubelets_message() -> None:
    assert Publish.of(publish("tls", "iam")) == Publish(VOLUME, Path(TARGET), ("tls", "iam"))


@pytest.mark.parametrize(
    ("options", "refused"),
    [
        (("tls", "iam"), None),
        (("iam",), "mount options lack tls: the file-system policy denies this mount"),
        ((), "mount options lack tls, iam: the file-system policy denies this mount"),
    ],
)
def test_a_mount_that_the_file_system_policy_denies_is_refused_b33(
    options: tuple[str, ...], refused: str | None
) -> None:
    assert Publish.of(publish(*options)).refusal() == refused


def test_long_texts_keep_their_length() -> None:
    text = "x" * 300
    assert decoded(encoded((1, "a"), (3, text))) == [(1, b"a"), (3, text.encode())]


def test_the_plugin_says_who_it_is() -> None:
    driver = Driver("gpu-1", Path("/store"), 1000, 1000)
    services = driver.services()
    assert decoded(services["csi.v1.Node"]["NodeGetInfo"](b"")) == [(1, b"gpu-1")]
    assert decoded(services["pluginregistration.Registration"]["GetInfo"](b"")) == [
        (1, b"CSIPlugin"),
        (2, b"efs.csi.aws.com"),
        (3, b"/var/lib/kubelet/plugins/efs.csi.aws.com/csi.sock"),
        (4, b"1.0.0"),
    ]


def test_each_access_point_has_a_folder_of_its_own() -> None:
    assert folder_name(VOLUME) == "fs-0123456789abcdef0__fsap-0123456789abcdef0"


def test_a_folder_mounted_within_one_file_system_is_seen() -> None:
    mounts = f"36 25 252:0 /store/efs/a {TARGET} rw,relatime shared:1 - ext4 /dev/vda rw\n"
    assert mounted(Path(TARGET), mounts)
    assert not mounted(Path(TARGET).parent, mounts)
