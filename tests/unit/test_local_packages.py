"""What is refused before anything is installed, and how apt is used."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from local import __main__ as command_line
from local import packages
from local.errors import LocalError

if TYPE_CHECKING:
    from pathlib import Path

NEEDED = {"etcd-server": "etcd", "iproute2": "ip"}
INSTALL = "apt-get install --yes --quiet --no-install-recommends --option=DPkg::Lock::Timeout=300 etcd-server iproute2"
UPDATE = "apt-get update --quiet"
WHERE_ELSE = (
    "make up CLUSTER=<kubeconfig file>",
    "make images EXPORT=<folder>",
    "make prepare CLUSTER=<kubeconfig file>",
)


class Machine:
    """A PATH with programs of a test's own, a policy-rc.d, and the order in which things were said and done."""

    def __init__(self, folder: Path) -> None:
        self.bin = folder / "bin"
        self.bin.mkdir()
        self.policy = folder / "policy-rc.d"
        self.log = folder / "log"
        self.log.touch()

    def program(self, name: str, script: str = "exit 0") -> None:
        (self.bin / name).write_text(f"#!/bin/sh\n{script}\n")
        (self.bin / name).chmod(0o755)

    def apt(self, on_install: str) -> None:
        """An apt-get that records its words and whether services were kept from starting, then does as told."""
        self.program(
            "apt-get",
            f"""policy=$([ -x '{self.policy}' ] && sh '{self.policy}'; echo $?)
echo "apt-get $* (policy $policy, $DEBIAN_FRONTEND)" >> '{self.log}'
install() {{ for name in etcd ip; do printf '#!/bin/sh\\n' > '{self.bin}'/$name; chmod +x '{self.bin}'/$name; done; }}
[ "$1" = update ] && {{ touch '{self.bin}'/lists; exit 0; }}
{on_install}""",
        )

    def say(self, line: str) -> None:
        with self.log.open("a") as log:
            log.write(f"said: {line}\n")

    @property
    def happened(self) -> list[str]:
        return self.log.read_text().splitlines()


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """Linux, root, nothing installed."""
    made = Machine(tmp_path)
    monkeypatch.setenv("PATH", f"{made.bin}:/usr/bin:/bin")
    monkeypatch.setattr(packages, "SEARCH", str(made.bin))
    monkeypatch.setattr(packages, "NEEDED", NEEDED)
    monkeypatch.setattr(packages, "POLICY", made.policy)
    monkeypatch.setattr(packages.platform, "system", lambda: "Linux")
    monkeypatch.setattr(packages.os, "geteuid", lambda: 0)
    return made


# Refusals


def refusal() -> str:
    with pytest.raises(LocalError) as refused:
        packages.require_machine()
    text = str(refused.value)
    assert [way for way in WHERE_ELSE if way not in text] == []
    return refused.value.what


def test_another_system_than_linux_is_refused(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.apt("install")
    monkeypatch.setattr(packages.platform, "system", lambda: "Darwin")
    assert refusal() == "the embedded cluster needs Linux; this is Darwin"


def test_another_user_than_root_is_refused(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.apt("install")
    monkeypatch.setattr(packages.os, "geteuid", lambda: 1000)
    assert refusal() == "the embedded cluster needs root (namespaces, mounts, containers); this is user 1000"


def test_a_system_without_apt_is_refused_where_something_is_missing(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(machine.bin))
    machine.program("ip")
    assert refusal() == "these programs are missing, and there is no apt to install them: etcd"
    machine.program("etcd")
    packages.require_machine()


def test_root_on_linux_with_apt_is_accepted(machine: Machine) -> None:
    machine.apt("install")
    packages.require_machine()
    assert machine.happened == []


# What is missing


def test_programs_are_looked_up_by_name_or_by_path(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plugin = tmp_path / "bridge"
    monkeypatch.setattr(packages, "NEEDED", {**NEEDED, "plugins": str(plugin)})
    assert packages.missing() == ["etcd-server", "iproute2", "plugins"]
    machine.program("ip")
    plugin.touch()
    assert packages.missing() == ["etcd-server"]
    assert packages.program("ip") == str(machine.bin / "ip")


def test_system_folders_are_searched_though_a_users_path_lacks_them() -> None:
    assert packages.SEARCH.split(":")[-2:] == ["/usr/sbin", "/sbin"]


@pytest.mark.parametrize(
    ("given", "no_proxy"),
    [
        pytest.param({}, "198.18.0.0/15", id="none"),
        pytest.param({"NO_PROXY": "a.example"}, "a.example,198.18.0.0/15", id="upper case"),
        pytest.param({"no_proxy": "b.example"}, "b.example,198.18.0.0/15", id="lower case"),
    ],
)
def test_every_program_finds_system_programs_and_passes_proxies_by(given: dict[str, str], no_proxy: str) -> None:
    environment = {"PATH": "/bin", "HTTPS_PROXY": "http://proxy.invalid", **given}
    command_line._adapt(environment)
    assert environment == {
        "PATH": packages.SEARCH,
        "HTTPS_PROXY": "http://proxy.invalid",
        "no_proxy": no_proxy,
        "NO_PROXY": no_proxy,
    }


# Installing

SAID = "said: packages: installing with apt: etcd-server, iproute2"


def test_nothing_is_said_or_done_where_nothing_is_missing(machine: Machine) -> None:
    machine.apt("exit 9")
    machine.program("etcd")
    machine.program("ip")
    packages.ensure(machine.say)
    assert machine.happened == []


def test_what_is_missing_is_said_and_then_installed_without_starting_services(machine: Machine) -> None:
    machine.apt("install")
    packages.ensure(machine.say)
    assert machine.happened == [SAID, f"{INSTALL} (policy 101, noninteractive)"]
    assert packages.missing() == []
    assert not machine.policy.exists()


def test_old_package_lists_are_fetched_anew(machine: Machine) -> None:
    machine.apt(f"[ -e '{machine.bin}/lists' ] && install")
    packages.ensure(machine.say)
    assert machine.happened == [
        SAID,
        *(f"{words} (policy 101, noninteractive)" for words in (INSTALL, UPDATE, INSTALL)),
    ]


@pytest.mark.parametrize(
    ("on_install", "status", "details"),
    [
        pytest.param(
            "echo reading; echo 'E: no such package' >&2; exit 100", 100, "reading\nE: no such package\n", id="fails"
        ),
        pytest.param("exit 0", 0, "", id="brings nothing"),
    ],
)
def test_a_failure_is_told_with_what_apt_said_and_leaves_no_policy(
    machine: Machine, on_install: str, status: int, details: str
) -> None:
    machine.apt(on_install)
    with pytest.raises(LocalError) as failed:
        packages.ensure(machine.say)
    assert str(failed.value) == (
        f"apt could not install etcd-server, iproute2 (exit status {status})\n{details}"
        f"fix: run `apt-get update && {INSTALL}` and read what it says"
    )
    assert machine.happened[0] == SAID
    assert not machine.policy.exists()


def test_an_apt_that_hangs_is_given_up(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packages, "APT_TIMEOUT_S", 0.1)
    machine.apt("exec sleep 60")
    with pytest.raises(LocalError) as failed:
        packages.ensure(machine.say)
    assert str(failed.value) == (f"`{INSTALL}` was not done within 0.1 s\nfix: run it by hand and read what it says")
    assert not machine.policy.exists()


@pytest.mark.parametrize("on_install", ["install", "exit 100"])
def test_a_policy_of_the_machines_own_is_left_alone(machine: Machine, on_install: str) -> None:
    machine.policy.write_text("#!/bin/sh\nexit 104\n")
    machine.policy.chmod(0o700)
    machine.apt(on_install)
    if on_install == "install":
        packages.ensure(machine.say)
    else:
        with pytest.raises(LocalError, match="apt could not install"):
            packages.ensure(machine.say)
    assert machine.happened[1] == f"{INSTALL} (policy 104, noninteractive)"
    assert (machine.policy.read_text(), machine.policy.stat().st_mode & 0o777) == ("#!/bin/sh\nexit 104\n", 0o700)


def test_a_policy_that_a_killed_command_left_is_removed(machine: Machine) -> None:
    machine.policy.write_text(packages.POLICY_TEXT)
    machine.apt("install")
    packages.ensure(machine.say)
    assert machine.happened[1] == f"{INSTALL} (policy 101, noninteractive)"
    assert not machine.policy.exists()


def test_the_command_line_prints_what_failed_and_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("PATH", "no_proxy", "NO_PROXY"):
        monkeypatch.setenv(name, os.environ.get(name, ""))
    missing = tmp_path / "none"
    arguments = ["--state", str(tmp_path / "state"), "prepare", "--cluster", str(missing), "--simulate-gpus=1"]
    assert command_line.main(arguments) == 1
    assert capsys.readouterr().err == (
        f"\nerror: CLUSTER={missing}: there is no such file\nfix: name the kubeconfig file of the cluster to use\n"
    )
