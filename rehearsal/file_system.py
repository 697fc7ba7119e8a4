"""A node's EFS driver, played: a CSI node plugin that mounts a folder of the machine where EFS would be mounted.

    python -m rehearsal.file_system --node NAME --folder FOLDER --uid UID --gid GID

It runs in a node's mount namespace beside the kubelet, which talks to it as to the real driver: registration, then a
mount and an unmount per pod. Each volume handle has a folder of its own, owned as an access point's is. What is not
played: the network, TLS and IAM; the mount options that ask for them are required all the same.

The messages are so few and so small that they are read and written here; their numbers are those of the CSI
specification (csi.proto, version 1) and of k8s.io/kubelet/pkg/apis/pluginregistration/v1.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import threading
from concurrent import futures
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import grpc  # type: ignore[import-untyped]

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

DRIVER: Final = "efs.csi.aws.com"
OPTIONS: Final = ("tls", "iam")
"""What the file-system policy asks of every mount."""
KUBELET: Final = Path("/var/lib/kubelet")
VERSION: Final = "1.0.0"
MOUNTS: Final = Path("/proc/self/mountinfo")

TEXT: Final = 2
"""Wire type of texts, maps and messages."""


def encoded(*fields: tuple[int, str]) -> bytes:
    """A message of texts: (number, text) each."""
    parts = []
    for number, text in fields:
        value = text.encode()
        parts.append(_varint(number << 3 | TEXT) + _varint(len(value)) + value)
    return b"".join(parts)


def decoded(message: bytes) -> list[tuple[int, bytes]]:
    """The fields that hold texts, maps and messages, by number, in their order; numbers and flags are left out."""
    return list(_fields(message))


def _fields(message: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at < len(message):
        tag, at = _read_varint(message, at)
        if tag & 7 == TEXT:
            length, at = _read_varint(message, at)
            yield tag >> 3, message[at : at + length]
            at += length
        elif tag & 7 == 0:
            _, at = _read_varint(message, at)
        else:
            raise ValueError(f"a field of wire type {tag & 7}, which these messages do not have")


def _varint(value: int) -> bytes:
    low, rest = value & 0x7F, value >> 7
    return bytes([low | 0x80]) + _varint(rest) if rest else bytes([low])


def _read_varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if not byte & 0x80:
            return value, at


@dataclass(frozen=True, slots=True)
class Publish:
    """A pod's mount, of NodePublishVolumeRequest."""

    volume: str
    target: Path
    options: tuple[str, ...]

    @classmethod
    def of(cls, message: bytes) -> Publish:
        fields = dict(decoded(message))
        capability = dict(decoded(fields.get(5, b"")))
        options = tuple(value.decode() for number, value in decoded(capability.get(2, b"")) if number == 2)  # noqa: PLR2004
        return cls(fields[1].decode(), Path(fields[4].decode()), options)

    def refusal(self) -> str | None:
        """Why EFS would not be mounted so."""
        missing = [option for option in OPTIONS if option not in self.options]
        return f"mount options lack {', '.join(missing)}: the file-system policy denies this mount" if missing else None


def folder_name(volume: str) -> str:
    """A folder's name for a volume handle, `fs-…::fsap-…`."""
    return volume.replace("/", "_").replace(":", "_")


def mounted(target: Path, mounts: str) -> bool:
    """Whether something is mounted at `target`, by the text of /proc/self/mountinfo (proc(5)).

    `Path.is_mount` does not see a folder that is mounted within one file system.
    """
    return any(line.split()[4] == str(target) for line in mounts.splitlines())


@dataclass(frozen=True, slots=True)
class Driver:
    """One node's plugin."""

    node: str
    folder: Path
    uid: int
    gid: int

    def services(self) -> Mapping[str, Mapping[str, Callable[[bytes], bytes]]]:
        """What the kubelet calls, by service and method."""
        nothing = encoded()
        return {
            "csi.v1.Identity": {
                "GetPluginInfo": lambda _: encoded((1, DRIVER), (2, VERSION)),
                "GetPluginCapabilities": lambda _: nothing,
                "Probe": lambda _: nothing,
            },
            "csi.v1.Node": {
                "NodeGetInfo": lambda _: encoded((1, self.node)),
                "NodeGetCapabilities": lambda _: nothing,
                "NodePublishVolume": self.publish,
                "NodeUnpublishVolume": self.unpublish,
            },
            "pluginregistration.Registration": {
                "GetInfo": lambda _: encoded((1, "CSIPlugin"), (2, DRIVER), (3, str(self.socket)), (4, VERSION)),
                "NotifyRegistrationStatus": lambda _: nothing,
            },
        }

    @property
    def socket(self) -> Path:
        return KUBELET / "plugins" / DRIVER / "csi.sock"

    @property
    def registration(self) -> Path:
        return KUBELET / "plugins_registry" / f"{DRIVER}-reg.sock"

    def publish(self, message: bytes) -> bytes:
        asked = Publish.of(message)
        refusal = asked.refusal()
        if refusal:
            raise PermissionError(refusal)
        source = self.folder / folder_name(asked.volume)
        source.mkdir(parents=True, exist_ok=True)
        os.chown(source, self.uid, self.gid)
        asked.target.mkdir(parents=True, exist_ok=True)
        if not mounted(asked.target, MOUNTS.read_text()):
            subprocess.run(["mount", "--bind", str(source), str(asked.target)], check=True)
        return encoded()

    def unpublish(self, message: bytes) -> bytes:
        target = Path(dict(decoded(message))[2].decode())
        if mounted(target, MOUNTS.read_text()):
            subprocess.run(["umount", str(target)], check=True)
        if target.exists():
            target.rmdir()
        return encoded()


def serve(driver: Driver) -> grpc.Server:
    """The plugin on its two sockets; the kubelet finds the second by itself."""
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=4))
    server.add_generic_rpc_handlers(
        tuple(
            grpc.method_handlers_generic_handler(
                service, {name: grpc.unary_unary_rpc_method_handler(_handler(call)) for name, call in methods.items()}
            )
            for service, methods in driver.services().items()
        )
    )
    for socket in (driver.socket, driver.registration):
        socket.parent.mkdir(parents=True, exist_ok=True)
        socket.unlink(missing_ok=True)
        server.add_insecure_port(f"unix://{socket}")
    server.start()
    return server


def _handler(call: Callable[[bytes], bytes]) -> Callable[[bytes, grpc.ServicerContext], bytes]:
    def handle(message: bytes, context: grpc.ServicerContext) -> bytes:
        try:
            return call(message)
        except PermissionError as error:
            context.abort(grpc.StatusCode.PERMISSION_DENIED, str(error))
        except (OSError, subprocess.CalledProcessError, KeyError, ValueError) as error:
            context.abort(grpc.StatusCode.INTERNAL, f"{type(error).__name__}: {error}")
        raise AssertionError("abort raises")

    return handle


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Play a node's EFS driver until the standard input ends.")
    parser.add_argument("--node", required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--uid", type=int, required=True)
    parser.add_argument("--gid", type=int, required=True)
    args = parser.parse_args(arguments)
    server = serve(Driver(args.node, args.folder, args.uid, args.gid))
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    # Whoever started it holds the other end: when that process is gone, so is this one.
    threading.Thread(target=_await_end, args=(ended,), daemon=True).start()
    ended.wait()
    server.stop(grace=1)
    return 0


def _await_end(ended: threading.Event) -> None:
    sys.stdin.read()
    ended.set()


if __name__ == "__main__":
    sys.exit(main())
