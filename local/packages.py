"""Debian packages that the embedded cluster runs or is built with: installed by apt, as root, only where missing."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from local.errors import LocalError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

# package: a file that it brings, looked for on PATH unless it is absolute.
NEEDED = {
    "etcd-server": "etcd",
    "containerd": "containerd",
    "runc": "runc",
    "containernetworking-plugins": "/usr/lib/cni/bridge",
    "iptables": "iptables",
    "ipset": "ipset",
    "iproute2": "ip",
    "debootstrap": "debootstrap",
    "util-linux": "unshare",
}
ELSEWHERE = (
    "use a cluster that you have: `make up CLUSTER=<kubeconfig file>`; its nodes need the labels, GPUs and images "
    "(on a Debian machine `make images EXPORT=<folder>` writes the images, and "
    "`make prepare CLUSTER=<kubeconfig file> SIMULATE_GPUS=1` labels the nodes)"
)
APT_TIMEOUT_S = 600
POLICY = Path("/usr/sbin/policy-rc.d")
POLICY_TEXT = (
    "#!/bin/sh\n# triton-fleet: no service starts while `make up` installs packages. Safe to remove.\nexit 101\n"
)
SEARCH = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
"""A user's PATH often lacks the folders of system programs."""


def missing(needed: Mapping[str, str] | None = None) -> list[str]:
    """Of the packages needed, by default the embedded cluster's, those whose file is not there."""
    return [package for package, file in (NEEDED if needed is None else needed).items() if program(file) is None]


def program(file: str) -> str | None:
    if file.startswith("/"):
        return file if Path(file).exists() else None
    return shutil.which(file, path=SEARCH)


def require_machine() -> None:
    """Refuse a machine that cannot hold the embedded cluster, before anything is installed or started."""
    if platform.system() != "Linux":
        raise LocalError(f"the embedded cluster needs Linux; this is {platform.system()}", fix=ELSEWHERE)
    if os.geteuid() != 0:
        raise LocalError(
            f"the embedded cluster needs root (namespaces, mounts, containers); this is user {os.geteuid()}",
            fix=f"run the command as root, or {ELSEWHERE}",
        )
    lacking = missing()
    if lacking and shutil.which("apt-get") is None:
        raise LocalError(
            f"these programs are missing, and there is no apt to install them: {', '.join(NEEDED[p] for p in lacking)}",
            fix=f"install them by this system's own means, or {ELSEWHERE}",
        )


def ensure(progress: Callable[[str], None], needed: Mapping[str, str] | None = None) -> None:
    """Install what is missing; says what first."""
    lacking = missing(needed)
    if not lacking:
        return
    progress(f"packages: installing with apt: {', '.join(lacking)}")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    # On a new machine apt itself is often at work: wait for it, in seconds.
    options = ["--yes", "--quiet", "--no-install-recommends", "--option=DPkg::Lock::Timeout=300"]
    install = ["apt-get", "install", *options, *lacking]
    with _services_stay_off():
        done = _apt(install, environment)
        if done.returncode != 0:
            # A new machine has no package lists, or old ones.
            _apt(["apt-get", "update", "--quiet"], environment)
            done = _apt(install, environment)
    still = missing(needed)
    if done.returncode != 0 or still:
        raise LocalError(
            f"apt could not install {', '.join(still or lacking)} (exit status {done.returncode})",
            details=(done.stdout + done.stderr).strip()[-1500:],
            fix=f"run `apt-get update && {' '.join(install)}` and read what it says",
        )


def _apt(argv: list[str], environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            argv,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=APT_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise LocalError(
            f"`{' '.join(argv)}` was not done within {APT_TIMEOUT_S} s", fix="run it by hand and read what it says"
        ) from error


@contextmanager
def _services_stay_off() -> Iterator[None]:
    """Debian starts a service when it installs one; the cluster runs its own etcd and containerd, so this forbids it.

    policy-rc.d is Debian's own means (invoke-rc.d(8)); one that the machine has already is left alone, one that a
    killed command of ours left is removed.
    """
    if POLICY.exists() and POLICY.read_text() != POLICY_TEXT:
        yield
        return
    POLICY.write_text(POLICY_TEXT)
    POLICY.chmod(0o755)
    try:
        yield
    finally:
        POLICY.unlink(missing_ok=True)
