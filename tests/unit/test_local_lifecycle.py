"""Finding, claiming and clearing what the embedded cluster has on the machine."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from local.cluster import handle, images, lifecycle, topology
from local.cluster.handle import Handle
from local.errors import LocalError
from local.images.build import Image
from local.state import State

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence


@pytest.fixture
def state(tmp_path: Path) -> State:
    made = State(tmp_path / "state")
    made.logs.mkdir(parents=True)
    return made


@pytest.fixture
def sleeper() -> Iterator[int]:
    """The PID of a process that is there."""
    with subprocess.Popen(["sleep", "60"]) as process:
        yield process.pid
        process.kill()


def gone_pid() -> int:
    with subprocess.Popen(["true"]) as process:
        process.wait()
    return process.pid


def program(folder: Path, name: str, script: str) -> Path:
    """An executable of this name that runs a shell script."""
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


# What is recorded of a cluster, and whether it is still that cluster


def test_a_handle_is_read_as_it_was_written(state: State) -> None:
    assert Handle.read(state) is None
    written = Handle(state, 7, 8, "198.18.0.0/20", "tfc6120000")
    written.write()
    assert Handle.read(state) == written


@pytest.mark.parametrize("text", ["", "{", "[]", '"pid"', '{"pid": 7}'])
def test_a_spoilt_record_is_no_cluster(state: State, text: str) -> None:
    handle.process_file(state).write_text(text)
    assert Handle.read(state) is None


def test_a_process_with_the_recorded_start_is_alive(state: State, sleeper: int) -> None:
    started = handle.start_time(sleeper)
    assert started is not None
    running = Handle(state, sleeper, started, "198.18.0.0/20", "tfc6120000")
    assert running.alive
    given_to_another = replace(running, started=started - 1)
    assert not given_to_another.alive


def test_a_process_that_is_gone_is_not_alive(state: State) -> None:
    assert not Handle(state, gone_pid(), 1, "198.18.0.0/20", "tfc6120000").alive


def test_a_zombie_is_not_alive() -> None:
    process = subprocess.Popen(["sleep", "60"])
    try:
        assert handle.start_time(process.pid) is not None
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert Path(f"/proc/{process.pid}/stat").exists()
        assert handle.start_time(process.pid) is None
    finally:
        process.wait()


def test_a_process_knows_its_children_and_its_namespace(sleeper: int) -> None:
    assert sleeper in handle.children(os.getpid())
    assert handle.children(gone_pid()) == []
    assert {os.getpid(), sleeper} <= handle.same_pid_namespace(sleeper)


def test_commands_enter_the_cluster_and_then_a_node(state: State) -> None:
    running = Handle(state, 7, 8, "198.18.0.0/20", "tfc6120000")
    assert running.status == {}
    (state.cluster / "status.json").write_text(json.dumps({"nodes": {"system": 12}, "components": {}}))
    cluster = ["nsenter", "--target=7", "--mount", "--net", "--pid", "--"]
    assert running.inside(["ctr", "version"]) == [*cluster, "ctr", "version"]
    assert running.inside(["ctr", "version"], node="system") == [
        *cluster, "nsenter", "--target=12", "--mount", "--net", "--", "ctr", "version",
    ]  # fmt: skip


# The address range


class Ip:
    """A machine's links and routes, told and changed by an `ip` program."""

    def __init__(self, folder: Path) -> None:
        self.links = folder / "links"
        self.links.mkdir()
        self.routes = folder / "routes.json"
        self.routes.write_text("[]")
        self.log = folder / "log"
        self.log.touch()
        program(
            folder / "bin",
            "ip",
            f"""echo "$*" >> '{self.log}'
case "$*" in
    "-json -4 route show table all") cat '{self.routes}' ;;
    "link add "*)
        if [ -e '{self.links}'/denied ]; then echo 'RTNETLINK answers: Operation not permitted' >&2; exit 2; fi
        if [ -e '{self.links}'/"$3" ]; then echo 'RTNETLINK answers: File exists' >&2; exit 2; fi
        mkdir '{self.links}'/"$3" ;;
    "link delete "*) rm -r '{self.links}'/"$3" ;;
    *) exit 9 ;;
esac""",
        )

    def route(self, *destinations: str, dev: str = "eth0") -> None:
        self.routes.write_text(json.dumps([{"dst": dst, "dev": dev} for dst in destinations]))

    def link(self, name: str, alias: str = "") -> None:
        (self.links / name).mkdir()
        (self.links / name / "ifalias").write_text(f"{alias}\n")

    @property
    def names(self) -> set[str]:
        return {entry.name for entry in self.links.iterdir()}

    @property
    def changes(self) -> list[str]:
        return [line for line in self.log.read_text().splitlines() if line.startswith("link ")]


@pytest.fixture
def ip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ip:
    made = Ip(tmp_path)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.delenv(lifecycle.RANGE_VARIABLE, raising=False)
    monkeypatch.setattr(lifecycle, "LINKS", made.links)
    return made


@pytest.mark.parametrize(
    ("routes", "links", "preferred", "claimed"),
    [
        pytest.param([], [], None, "198.18.0.0/20", id="the first"),
        pytest.param(["default", "0.0.0.0/0", "10.0.0.0/8"], [], None, "198.18.0.0/20", id="the default is no claim"),
        pytest.param(["198.18.3.0/24"], [], None, "198.18.16.0/20", id="after one with a route in it"),
        pytest.param(["198.18.0.0/16"], [], None, "198.19.0.0/20", id="after a route over many"),
        pytest.param(["198.18.15.255"], [], None, "198.18.16.0/20", id="after one with an address in it"),
        pytest.param([], ["tfc6120000", "tfc6121000"], None, "198.18.32.0/20", id="after others' links"),
        pytest.param(["198.18.16.0/20"], ["tfc6120000"], None, "198.18.32.0/20", id="after both"),
        pytest.param([], [], "198.18.80.0/20", "198.18.80.0/20", id="the one it had"),
        pytest.param(["198.18.80.0/20"], [], "198.18.80.0/20", "198.18.0.0/20", id="the first, its own being taken"),
        pytest.param([], [], "10.1.16.0/20", "10.1.16.0/20", id="the one it was told before"),
    ],
)
def test_a_free_range_is_claimed_by_its_link(
    ip: Ip, routes: list[str], links: list[str], preferred: str | None, claimed: str
) -> None:
    ip.route(*routes)
    for name in links:
        ip.link(name)
    network = lifecycle._claim_range(preferred)
    name = topology.link_name(network)
    assert str(network) == claimed
    assert ip.names == {*links, name}
    assert ip.changes[-1] == f"link add {name} type veth peer name {name}p"


def test_a_range_that_is_named_is_taken_before_the_one_it_had(ip: Ip, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(lifecycle.RANGE_VARIABLE, "10.1.16.0/20")
    assert str(lifecycle._claim_range("198.18.80.0/20")) == "10.1.16.0/20"
    assert ip.names == {"tfa011000"}


def _full(ip: Ip) -> None:
    for network in topology.ranges():
        ip.link(topology.link_name(network))


def _routed(ip: Ip) -> None:
    ip.route("198.18.20.0/24", dev="wg0")


def _linked(ip: Ip) -> None:
    ip.link("tfc6121000")


def _denied(ip: Ip) -> None:
    ip.link("denied")


TAKEN_FIX = "fix: choose another /20 with TRITON_FLEET_RANGE=, or unset it to let one be found"


@pytest.mark.parametrize(
    ("named", "machine", "text"),
    [
        pytest.param(
            "198.18.16.0/20",
            _routed,
            f"the address range 198.18.16.0/20 is taken: route to 198.18.20.0/24 by wg0\n{TAKEN_FIX}",
            id="routed",
        ),
        pytest.param(
            "198.18.16.0/20",
            _linked,
            f"the address range 198.18.16.0/20 is taken: another cluster has just claimed it\n{TAKEN_FIX}",
            id="claimed",
        ),
        pytest.param(
            None,
            _full,
            "all 31 address ranges of 198.18.0.0/15 are taken\n"
            "fix: stop a cluster of another checkout (make down), or name a free range with "
            "TRITON_FLEET_RANGE=<network>/20; `ip route` shows what uses them",
            id="all claimed",
        ),
        pytest.param(
            None,
            _denied,
            "the link tfc6120000 could not be made: RTNETLINK answers: Operation not permitted\n"
            "fix: use a kernel with veth links, or a cluster that you have: make up CLUSTER=<kubeconfig file>",
            id="no links",
        ),
    ],
)
def test_a_range_that_cannot_be_had_is_refused(
    ip: Ip, monkeypatch: pytest.MonkeyPatch, named: str | None, machine: Callable[[Ip], None], text: str
) -> None:
    machine(ip)
    there = ip.names
    if named:
        monkeypatch.setenv(lifecycle.RANGE_VARIABLE, named)
    with pytest.raises(LocalError) as refused:
        lifecycle._claim_range(None)
    assert str(refused.value) == text
    assert ip.names == there


@pytest.mark.parametrize(
    ("named", "text"),
    [
        ("198.18.16.0", "TRITON_FLEET_RANGE=198.18.16.0 is a /32; the cluster needs a /20"),
        ("10.0.0.0/8", "TRITON_FLEET_RANGE=10.0.0.0/8 is a /8; the cluster needs a /20"),
        ("all", "TRITON_FLEET_RANGE='all' is no IPv4 network: Expected 4 octets in 'all'"),
        ("198.18.1.0/20", "TRITON_FLEET_RANGE='198.18.1.0/20' is no IPv4 network: 198.18.1.0/20 has host bits set"),
        (
            "198.19.240.0/20",
            "TRITON_FLEET_RANGE=198.19.240.0/20 holds 198.19.240.0/24, which every cluster's nodes have inside it",
        ),
        ("fd00::/20", "TRITON_FLEET_RANGE='fd00::/20' is no IPv4 network: Expected 4 octets in 'fd00::'"),
    ],
)
def test_a_range_that_is_none_is_refused(named: str, text: str) -> None:
    with pytest.raises(LocalError) as refused:
        lifecycle._range_of(named)
    assert str(refused.value) == f"{text}\nfix: name a network such as 198.18.0.0/20"


def test_in_another_range_certificates_and_state_begin_anew_and_logs_stay(state: State) -> None:
    def there() -> set[str]:
        return {entry.name for entry in state.cluster.iterdir()}

    for name in ("etcd", "pki", "config", "nodes"):
        (state.cluster / name).mkdir()
    lifecycle._forget_other_range(state, "198.18.0.0/20")
    lifecycle._forget_other_range(state, "198.18.0.0/20")
    assert there() == {"etcd", "pki", "config", "nodes", "logs", "range"}
    lifecycle._forget_other_range(state, "198.18.16.0/20")
    assert there() == {"logs", "range"}


# What a crash leaves


def test_only_links_of_this_cluster_are_cleared(ip: Ip, state: State, monkeypatch: pytest.MonkeyPatch) -> None:
    """By its name the recorded link may by now be another cluster's, which has claimed the range since."""
    Handle(state, gone_pid(), 1, "198.18.0.0/20", "tfc6120000").write()
    ip.link("tfc6120000", alias="triton-fleet-00000000")
    ip.link("tfc6121000", alias=state.identity)
    ip.link("tfc6122000")
    ip.link("eth0", alias=state.identity)
    monkeypatch.setattr(lifecycle.cgroups, "processes", lambda _: set())
    monkeypatch.setattr(lifecycle.cgroups, "remove", lambda _: [])
    lifecycle._clear_remains(state)
    assert ip.changes == ["link delete tfc6121000"]
    assert ip.names == {"tfc6120000", "tfc6122000", "eth0"}


def test_processes_left_in_its_cgroups_are_killed(
    ip: Ip, state: State, sleeper: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    pids = {sleeper, gone_pid()}
    monkeypatch.setattr(lifecycle.cgroups, "processes", lambda path: (asked.append(path), pids)[1])
    monkeypatch.setattr(lifecycle.cgroups, "remove", lambda path: (asked.append(path), [])[1])
    lifecycle._clear_remains(state)
    assert asked == [f"/{state.identity}"] * 2
    assert os.WTERMSIG(os.waitpid(sleeper, 0)[1]) == signal.SIGKILL
    assert ip.changes == []


def test_cgroups_that_stay_are_an_error(ip: Ip, state: State, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lifecycle.cgroups, "processes", lambda _: set())
    monkeypatch.setattr(lifecycle.cgroups, "remove", lambda _: [Path("/a"), Path("/b"), Path("/c"), Path("/d")])
    with pytest.raises(LocalError) as failed:
        lifecycle._clear_remains(state)
    assert str(failed.value) == (
        "cgroups of an earlier cluster could not be removed: /a, /b, /c\n"
        "fix: end the processes listed in their cgroup.procs files, then try again"
    )
    assert ip.changes == []


@pytest.mark.parametrize(
    ("links", "expected"),
    [({"tf1": "up\n"}, True), ({"tf1": "down\n"}, False), ({"tf1": "lowerlayerdown\n"}, False), ({}, False)],
)
def test_nothing_is_sent_before_the_link_is_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, links: dict[str, str], *, expected: bool
) -> None:
    monkeypatch.setattr(lifecycle, "LINKS", tmp_path)
    for name, operstate in links.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "operstate").write_text(operstate)
    assert lifecycle._link_up("tf1") is expected


# Waiting


@pytest.fixture
def running(state: State, sleeper: int) -> Handle:
    started = handle.start_time(sleeper)
    assert started is not None
    return Handle(state, sleeper, started, "198.18.0.0/20", "tfc6120000")


def component(state: State, name: str, restarts: int, last_exit: int) -> None:
    part = {"pid": 1, "restarts": restarts, "last_exit": last_exit}
    (state.cluster / "status.json").write_text(json.dumps({"nodes": {}, "components": {name: part}}))


def test_a_component_that_keeps_ending_is_named_with_its_last_lines(running: Handle, state: State) -> None:
    log = state.logs / "system-kubelet.log"
    log.write_text("".join(f"line {number}\n" for number in range(30)))
    component(state, "system/kubelet", 4, 1)
    lifecycle._check_alive(running, {})
    component(state, "system/kubelet", 5, 1)
    with pytest.raises(LocalError) as failed:
        lifecycle._check_alive(running, {})
    lines = "\n".join(f"  | line {number}" for number in range(15, 30))
    assert str(failed.value) == (
        f"cluster: system/kubelet ended 5 times, last with status 1\n{lines}\n"
        f"fix: read {log}; `make down` clears the cluster, `make up` starts it again"
    )


def test_what_ended_before_a_command_is_not_held_against_it(running: Handle, state: State) -> None:
    component(state, "etcd", 9, -9)
    before = lifecycle._restarts(running)
    assert before == {"etcd": 9}
    lifecycle._check_alive(running, before)
    component(state, "etcd", 14, -9)
    with pytest.raises(LocalError, match="etcd ended 5 times, last with status -9"):
        lifecycle._check_alive(running, before)


def test_a_first_process_that_ended_is_an_error(running: Handle, state: State) -> None:
    ended = replace(running, started=running.started + 1)
    with pytest.raises(LocalError) as failed:
        lifecycle._check_alive(ended, {})
    log = state.logs / "init.log"
    assert str(failed.value) == (
        f"cluster: the cluster's first process ended\n(no log at {log})\n"
        f"fix: read {log}; `make down` clears the cluster, `make up` starts it again"
    )


def test_an_empty_log_is_said_to_be_empty(tmp_path: Path) -> None:
    (tmp_path / "log").touch()
    assert lifecycle.last_lines(tmp_path / "log") == "  | (the log is empty)"


def test_the_first_process_is_the_child_of_unshare(state: State) -> None:
    with subprocess.Popen(["sh", "-c", "sleep 60 & wait"]) as shell:
        pid, started = lifecycle._first_process(state, shell)
        assert (handle.children(shell.pid), handle.start_time(pid)) == ([pid], started)
        os.kill(pid, signal.SIGKILL)


def test_namespaces_that_cannot_be_made_are_an_error(state: State) -> None:
    (state.logs / "init.log").write_text("unshare: unshare failed: Operation not permitted\n")
    began = time.monotonic()
    with subprocess.Popen(["true"]) as process, pytest.raises(LocalError, match="Operation not permitted"):
        lifecycle._first_process(state, process)
    assert time.monotonic() - began < 5


@pytest.mark.parametrize(
    ("there", "modprobe", "fine"),
    [
        pytest.param(True, "exit 9", True, id="there"),
        pytest.param(False, 'mkdir "{settings}"', True, id="loaded"),
        pytest.param(False, "exit 1", False, id="not loadable"),
        pytest.param(False, None, False, id="no modprobe"),
    ],
)
def test_the_bridge_filter_is_loaded_or_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, there: bool, modprobe: str | None, fine: bool
) -> None:
    settings = tmp_path / "bridge"
    if there:
        settings.mkdir()
    (tmp_path / "bin").mkdir()
    if modprobe is not None:
        program(tmp_path / "bin", "modprobe", f'[ "$*" = br_netfilter ] && {modprobe.format(settings=settings)}')
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/bin")
    monkeypatch.setattr(lifecycle.packages, "SEARCH", f"{tmp_path / 'bin'}:/bin")
    monkeypatch.setattr(lifecycle, "BRIDGE_SETTINGS", settings)
    if fine:
        lifecycle._require_bridge_filter()
        return
    with pytest.raises(LocalError) as failed:
        lifecycle._require_bridge_filter()
    assert str(failed.value) == (
        f"the kernel module br_netfilter is not loaded and could not be: {settings} does not exist\n"
        "fix: load it on the machine with `modprobe br_netfilter` (from inside a container: on its host)"
    )


@pytest.mark.parametrize(("more", "fine"), [(40, True), (39, False)])
def test_a_cluster_that_could_watch_no_files_is_not_started(tmp_path: Path, *, more: int, fine: bool) -> None:
    watching = subprocess.Popen(
        [sys.executable, "-c", "import ctypes; ctypes.CDLL(None).inotify_init(); print(flush=True); input()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert watching.stdout is not None
        watching.stdout.readline()
        assert lifecycle._watches_of(Path("/proc") / str(watching.pid)) == 1
        used = lifecycle._watches()
        limit = tmp_path / "limit"
        limit.write_text(f"{used + more}\n")
        monkey = pytest.MonkeyPatch()
        monkey.setattr(lifecycle, "_watches", lambda: used)
        if fine:
            lifecycle._require_watches(limit)
        else:
            with pytest.raises(LocalError) as refused:
                lifecycle._require_watches(limit)
            assert refused.value.what == (
                f"user {os.geteuid()} has {used} inotify instances of the {used + more} that the kernel allows; "
                "a cluster needs 40"
            )
        monkey.undo()
    finally:
        watching.communicate(b"\n")


# Images on nodes

LISTED = """\
REF                               TYPE        DIGEST       SIZE      PLATFORMS   LABELS
triton-fleet.local/pause:1        application sha256:aaaa  298.0 KiB linux/amd64 io.cri-containerd.image=managed,triton-fleet.io/key=k1
triton-fleet.local/tools:1        application sha256:bbbb  90.1 MiB  linux/amd64 triton-fleet.io/key=old
sha256:bbbb                       application sha256:bbbb  90.1 MiB  linux/amd64 -
"""  # noqa: E501 - as ctr prints it


class Nodes(Handle):
    """Answers ctr as if every node held what LISTED says, and records what it is asked to do."""

    def run(
        self, argv: Sequence[str], node: str | None = None, timeout_s: float = 60
    ) -> subprocess.CompletedProcess[str]:
        if argv[2:] == ["images", "list"]:
            return subprocess.CompletedProcess(argv, 0, LISTED, "")
        if "full" in argv[-1]:
            return subprocess.CompletedProcess(argv, 1, "", "no space left on device\n")
        if "slow" in argv[-1]:
            raise subprocess.TimeoutExpired(list(argv), timeout_s)
        with (self.state.cluster / "done").open("a") as done:
            done.write(f"{node}: {' '.join(argv)}\n")
        return subprocess.CompletedProcess(argv, 0, "", "")


@pytest.fixture
def few_images(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes that need less than ours do."""
    monkeypatch.setattr(images, "EVERYWHERE", ("pause", "tools"))
    monkeypatch.setattr(images, "WITH_GPUS", ("triton",))
    monkeypatch.setattr(images, "WITHOUT_GPUS", ("coredns",))


def built(archive: str) -> dict[str, Image]:
    refs = ("triton-fleet.local/pause:1", "triton-fleet.local/tools:1", "triton-fleet.local/triton:2")
    return images.by_name([*(Image(ref, Path(archive), "k1") for ref in refs), Image("coredns:1", Path("c.tar"), "k1")])


@pytest.mark.usefixtures("few_images")
def test_nodes_get_only_the_images_that_they_lack_or_have_in_another_build(state: State) -> None:
    said: list[str] = []
    images.load(Nodes(state, 1, 2, "", ""), built("a.tar"), said.append)
    # The nodes take turns as they like; each has its own order.
    done = (state.cluster / "done").read_text().splitlines()
    for node, refs in (
        ("system", {"triton-fleet.local/tools:1": "a.tar", "coredns:1": "c.tar"}),
        ("gpu-a100-40gb", {"triton-fleet.local/tools:1": "a.tar", "triton-fleet.local/triton:2": "a.tar"}),
        ("gpu-h100-80gb", {"triton-fleet.local/tools:1": "a.tar", "triton-fleet.local/triton:2": "a.tar"}),
    ):
        expected = []
        for ref, archive in refs.items():
            expected += [
                f"{node}: ctr --namespace=k8s.io images import {archive}",
                f"{node}: ctr --namespace=k8s.io images label {ref} triton-fleet.io/key=k1",
            ]
        assert [line for line in done if line.startswith(f"{node}: ")] == expected
    assert len(done) == 12
    assert "images: loading triton-fleet.local/tools:1 on system" in said
    assert len(said) == 6


@pytest.mark.parametrize(
    ("archive", "text"),
    [("full.tar", "no space left on device"), ("slow.tar", "not done within 300 s")],
)
@pytest.mark.usefixtures("few_images")
def test_an_image_that_cannot_be_loaded_is_an_error(state: State, archive: str, text: str) -> None:
    with pytest.raises(LocalError) as failed:
        images.load(Nodes(state, 1, 2, "", ""), built(archive), lambda _: None)
    assert str(failed.value) == (
        f"ctr --namespace=k8s.io images import {archive} on system: {text}\n"
        "fix: look at the disk with `df -h`, then run make up again"
    )
