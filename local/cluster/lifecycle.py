"""Start and stop the embedded cluster. Both can be repeated, and both cope with what a crash left."""

from __future__ import annotations

import contextlib
import ipaddress
import json
import os
import shutil
import signal
import ssl
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path

from local import packages
from local.cluster import cgroups, config, handle, pki, topology
from local.cluster.handle import Handle
from local.cluster.topology import NODES, Addresses
from local.errors import LocalError
from local.state import PROJECT, State

RANGE_VARIABLE = "TRITON_FLEET_RANGE"
API_DEADLINE_S = 90.0
NODES_DEADLINE_S = 120.0
STOP_DEADLINE_S = 30.0
KUBECTL_TIMEOUT_S = 60.0
LOG_LINES_SHOWN = 15
RESTARTS_TOLERATED = 4
"""A component may wait for another by failing; one that was restarted more often is broken."""
LINKS = Path("/sys/class/net")
BRIDGE_SETTINGS = Path("/proc/sys/net/bridge")
INOTIFY_LIMIT = Path("/proc/sys/fs/inotify/max_user_instances")
INOTIFY = Path("anon_inode:inotify")
"""What a file descriptor of an inotify instance is a link to."""
WATCHES_OF_A_CLUSTER = 40
"""Instances of inotify that one needs: 35 were counted with three nodes, and its root pods have some."""

Progress = Callable[[str], None]


def start(state: State, binaries: Mapping[str, str], progress: Progress, *, equip: Callable[[], None]) -> Handle:
    """Start the cluster of `state`, or find it running; returns when every node is Ready. One command at a time.

    `equip` lays into the nodes' folders what they begin with; called when nothing keeps the cluster from starting.

    Errors: LocalError with the last log lines of the component that failed.
    """
    running = Handle.read(state)
    if running and running.alive:
        progress(f"cluster: running already (process {running.pid}, range {running.network})")
        before = _restarts(running)
    else:
        _clear_remains(state)
        running = _launch(state, binaries, progress, equip, preferred=running.network if running else None)
        before = {}
    _wait_for_api(running, before, progress)
    _wait_for_nodes(running, before, progress)
    return running


def stop(state: State, progress: Progress) -> None:
    """End the cluster of `state` and remove all it made, but the store; says nothing where there is nothing."""
    recorded = Handle.read(state)
    if recorded and recorded.alive:
        progress(f"cluster: stopping (process {recorded.pid})")
        _end(recorded)
    _clear_remains(state)
    shutil.rmtree(state.cluster, ignore_errors=True)
    state.kubeconfig.unlink(missing_ok=True)


def _launch(
    state: State, binaries: Mapping[str, str], progress: Progress, equip: Callable[[], None], preferred: str | None
) -> Handle:
    _require_bridge_filter()
    _require_watches()
    network = _claim_range(preferred)
    state.logs.mkdir(parents=True, exist_ok=True)
    link = topology.link_name(network)
    at = Addresses(network)
    process: subprocess.Popen[bytes] | None = None
    try:
        _ip("link", "set", link, "alias", state.identity)
        files = config.ClusterFiles(state.cluster, state.store, state.identity, at, binaries)
        _forget_other_range(state, str(network))
        equip()
        config.write(files)
        (state.cluster / "status.json").unlink(missing_ok=True)
        described = state.cluster / "described.json"
        described.write_text(
            json.dumps(
                {
                    "folder": str(state.cluster),
                    "store": str(state.store),
                    "identity": state.identity,
                    "network": str(network),
                    "binaries": dict(binaries),
                },
                indent=2,
            )
            + "\n"
        )
        progress(f"cluster: starting in {network}")
        with (state.logs / "init.log").open("ab") as log:
            process = subprocess.Popen(
                [
                    "unshare", "--mount", "--net", "--pid", "--fork", "--mount-proc", "--kill-child",
                    "--", sys.executable, "-m", "local.cluster.init", str(described),
                ],
                cwd=PROJECT,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
            )  # fmt: skip
        first, started = _first_process(state, process)
        running = Handle(state, first, started, str(network), link)
        running.write()
        _ip("link", "set", f"{link}p", "netns", str(first), "name", "eth0")
        _ip("address", "add", f"{at.host}/30", "dev", link)
        _ip("link", "set", link, "up")
        _ip("route", "add", str(network), "via", at.control_plane, "dev", link)
    except BaseException:
        if process is not None:
            process.kill()
        subprocess.run(["ip", "link", "delete", link], capture_output=True, check=False)
        raise
    pki.kubeconfig(files.pki, "admin", at.api_server, state.kubeconfig)
    return running


def _first_process(state: State, unshare: subprocess.Popen[bytes]) -> tuple[int, int]:
    """PID and start time of the process that `unshare` starts in the new namespaces."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        for pid in handle.children(unshare.pid):
            started = handle.start_time(pid)
            if started is not None:
                return pid, started
        if unshare.poll() is not None:
            break
        time.sleep(0.02)
    raise _failed(state, "init", "the namespaces of the cluster could not be made")


def _claim_range(preferred: str | None) -> ipaddress.IPv4Network:
    """Take the first free range by making the link named after it, which only one command can do."""
    named = os.environ.get(RANGE_VARIABLE)
    if named:
        candidates = [_range_of(named)]
    else:
        candidates = topology.ranges()
        if preferred:
            wanted = ipaddress.IPv4Network(preferred)
            candidates = [wanted, *(net for net in candidates if net != wanted)]
    used = _used_networks()
    for network in candidates:
        taken = next((text for net, text in used if net.overlaps(network)), None)
        if taken is None and _make_link(topology.link_name(network)):
            return network
        if named:
            raise LocalError(
                f"the address range {network} is taken: {taken or 'another cluster has just claimed it'}",
                fix=f"choose another /{topology.RANGE_PREFIX} with {RANGE_VARIABLE}=, or unset it to let one be found",
            )
    raise LocalError(
        f"all {len(candidates)} address ranges of {topology.NEVER_ROUTED} are taken",
        fix="stop a cluster of another checkout (make down), or name a free range with "
        f"{RANGE_VARIABLE}=<network>/{topology.RANGE_PREFIX}; `ip route` shows what uses them",
    )


def _range_of(text: str) -> ipaddress.IPv4Network:
    try:
        network = ipaddress.IPv4Network(text)
    except ValueError as error:
        raise LocalError(
            f"{RANGE_VARIABLE}={text!r} is no IPv4 network: {error}",
            fix=f"name a network such as 198.18.0.0/{topology.RANGE_PREFIX}",
        ) from error
    if network.prefixlen != topology.RANGE_PREFIX:
        raise LocalError(
            f"{RANGE_VARIABLE}={text} is a /{network.prefixlen}; the cluster needs a /{topology.RANGE_PREFIX}",
            fix=f"name a network such as 198.18.0.0/{topology.RANGE_PREFIX}",
        )
    if network.overlaps(topology.NODE_NETWORK):
        raise LocalError(
            f"{RANGE_VARIABLE}={text} holds {topology.NODE_NETWORK}, which every cluster's nodes have inside it",
            fix=f"name a network such as 198.18.0.0/{topology.RANGE_PREFIX}",
        )
    return network


def _used_networks() -> list[tuple[ipaddress.IPv4Network, str]]:
    """What the machine routes or has addresses in, with the line that says so; the default route is no claim."""
    found: list[tuple[ipaddress.IPv4Network, str]] = []
    for route in json.loads(_ip("-json", "-4", "route", "show", "table", "all")):
        try:
            network = ipaddress.IPv4Network(route["dst"], strict=False)
        except (KeyError, ValueError):
            continue
        if network.prefixlen > 0:
            found.append((network, f"route to {network} by {route.get('dev', 'no device')}"))
    return found


def _make_link(name: str) -> bool:
    made = subprocess.run(
        ["ip", "link", "add", name, "type", "veth", "peer", "name", f"{name}p"],
        capture_output=True,
        text=True,
        check=False,
    )
    if made.returncode != 0 and "File exists" not in made.stderr:
        raise LocalError(
            f"the link {name} could not be made: {made.stderr.strip()}",
            fix="use a kernel with veth links, or a cluster that you have: make up CLUSTER=<kubeconfig file>",
        )
    return made.returncode == 0


def _forget_other_range(state: State, network: str) -> None:
    """Certificates and Services of a cluster carry its addresses: in another range it has to begin anew."""
    marker = state.cluster / "range"
    if marker.exists() and marker.read_text() != network:
        for name in ("etcd", "pki", "config", "nodes"):
            shutil.rmtree(state.cluster / name, ignore_errors=True)
    marker.write_text(network)


def _clear_remains(state: State) -> None:
    """Remove what outlives the namespaces: cgroups always, the link where it was not moved yet.

    A link goes by the alias that says whose it is: by its name it may be another cluster's, which has claimed
    the range since.
    """
    for pid in cgroups.processes(f"/{state.identity}"):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    left = cgroups.remove(f"/{state.identity}")
    if left:
        raise LocalError(
            f"cgroups of an earlier cluster could not be removed: {', '.join(map(str, left[:3]))}",
            fix="end the processes listed in their cgroup.procs files, then try again",
        )
    for link in _links_of(state):
        subprocess.run(["ip", "link", "delete", link], capture_output=True, check=False)


def _links_of(state: State) -> list[str]:
    return [
        alias.parent.name for alias in sorted(LINKS.glob("tf*/ifalias")) if alias.read_text().strip() == state.identity
    ]


def _require_bridge_filter() -> None:
    """Pods on one bridge reach each other's Services by a kernel module, which most machines have but not loaded."""
    if BRIDGE_SETTINGS.exists():
        return
    with contextlib.suppress(OSError):
        subprocess.run(["modprobe", "br_netfilter"], env={"PATH": packages.SEARCH}, capture_output=True, check=False)
    if not BRIDGE_SETTINGS.exists():
        raise LocalError(
            f"the kernel module br_netfilter is not loaded and could not be: {BRIDGE_SETTINGS} does not exist",
            fix="load it on the machine with `modprobe br_netfilter` (from inside a container: on its host)",
        )


def _require_watches(limit: Path = INOTIFY_LIMIT) -> None:
    """Kubelets and containerds watch files; without an instance left they end with an error that names no limit."""
    allowed, used = int(limit.read_text()), _watches()
    if allowed - used < WATCHES_OF_A_CLUSTER:
        raise LocalError(
            f"user {os.geteuid()} has {used} inotify instances of the {allowed} that the kernel allows; "
            f"a cluster needs {WATCHES_OF_A_CLUSTER}",
            fix="stop a cluster of another checkout (make down), or allow more: "
            f"sysctl fs.inotify.max_user_instances={used + 4 * WATCHES_OF_A_CLUSTER}",
        )


def _watches() -> int:
    """Inotify instances that this user's processes have."""
    return sum(_watches_of(process) for process in Path("/proc").iterdir() if process.name.isdigit())


def _watches_of(process: Path) -> int:
    try:
        own = process.stat().st_uid == os.geteuid()
        return sum(each.readlink() == INOTIFY for each in (process / "fd").iterdir()) if own else 0
    except OSError:
        return 0


def _end(running: Handle) -> None:
    """Kill the first process; the kernel ends the rest of its PID namespace, and this waits until it has."""
    try:
        members = handle.same_pid_namespace(running.pid)
        parent = _parent(running.pid)
        os.kill(running.pid, signal.SIGTERM)
    except (FileNotFoundError, ProcessLookupError):
        return
    deadline = time.monotonic() + STOP_DEADLINE_S
    asked = False
    while any(handle.start_time(pid) is not None for pid in members):
        if time.monotonic() > deadline:
            raise LocalError(
                f"processes of the cluster did not end within {STOP_DEADLINE_S:.0f} s: "
                f"{sorted(pid for pid in members if handle.start_time(pid) is not None)}",
                fix="look at them with `ps`, then run make down again",
            )
        if not asked and time.monotonic() > deadline - STOP_DEADLINE_S + 5:
            asked = True
            with contextlib.suppress(ProcessLookupError):
                os.kill(running.pid, signal.SIGKILL)
        time.sleep(0.05)
    while parent is not None and handle.start_time(parent) is not None and time.monotonic() < deadline:
        time.sleep(0.05)
    while (LINKS / running.link).exists() and time.monotonic() < deadline:
        time.sleep(0.05)


def _parent(pid: int) -> int | None:
    """The `unshare` process that waits for the first one: it ends just after it."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        name = Path(f"/proc/{fields[1]}/comm").read_text().strip()
    except OSError:
        return None
    return int(fields[1]) if name == "unshare" else None


# Waiting


def _wait_for_api(running: Handle, before: Mapping[str, int], progress: Progress) -> None:
    at = Addresses.of(running.network)
    context = ssl.create_default_context(cafile=str(running.state.cluster / "pki" / "ca.crt"))
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context))
    deadline = time.monotonic() + API_DEADLINE_S
    said = False
    while True:
        _check_alive(running, before)
        if _link_up(running.link):
            try:
                # Anything but 2xx raises.
                with direct.open(f"{at.api_server}/readyz", timeout=5):
                    return
            except OSError:
                pass
        if not said:
            progress("cluster: waiting for the API server")
            said = True
        if time.monotonic() > deadline:
            raise _failed(
                running.state, "kube-apiserver", f"the API server was not ready within {API_DEADLINE_S:.0f} s"
            )
        time.sleep(0.3)


def _link_up(link: str) -> bool:
    """Without the link a packet to the cluster's range would leave by the default route: then send none."""
    try:
        return (LINKS / link / "operstate").read_text().strip() == "up"
    except OSError:
        return False


def _wait_for_nodes(running: Handle, before: Mapping[str, int], progress: Progress) -> None:
    deadline = time.monotonic() + NODES_DEADLINE_S
    said: set[str] = set()
    while True:
        _check_alive(running, before)
        ready = ready_nodes(running)
        waiting = [node.name for node in NODES if node.name not in ready]
        if not waiting:
            return
        message = f"cluster: waiting for {', '.join(waiting)}"
        if message not in said:
            progress(message)
            said.add(message)
        if time.monotonic() > deadline:
            raise _failed(
                running.state,
                f"{waiting[0]}-kubelet",
                f"node {waiting[0]} was not Ready within {NODES_DEADLINE_S:.0f} s",
            )
        time.sleep(0.5)


def ready_nodes(running: Handle) -> set[str]:
    done = kubectl(running.state, "get", "nodes", "--output=json")
    if done.returncode != 0:
        return set()
    return {
        node["metadata"]["name"]
        for node in json.loads(done.stdout)["items"]
        if any(c["type"] == "Ready" and c["status"] == "True" for c in node["status"].get("conditions", []))
    }


def kubectl_argv(state: State, *arguments: str) -> list[str]:
    """Our own kubectl on the cluster of `state`; never the ambient kubeconfig."""
    binaries = json.loads((state.cluster / "described.json").read_text())["binaries"]
    return [binaries["kube"], "kubectl", f"--kubeconfig={state.kubeconfig}", *arguments]


def kubectl(state: State, *arguments: str, text: str | None = None) -> subprocess.CompletedProcess[str]:
    """What kubectl says. It fails, and is not waited for, where the cluster does not answer."""
    argv = kubectl_argv(state, "--request-timeout=10s", *arguments)
    try:
        return subprocess.run(argv, input=text, capture_output=True, text=True, check=False, timeout=KUBECTL_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        said = f"no answer within {KUBECTL_TIMEOUT_S:.0f} s"
        return subprocess.CompletedProcess(argv, returncode=1, stdout="", stderr=said)


def _restarts(running: Handle) -> dict[str, int]:
    return {name: part["restarts"] for name, part in running.status.get("components", {}).items()}


def _check_alive(running: Handle, before: Mapping[str, int]) -> None:
    """`before`: how often each component had been restarted when this command began to wait."""
    if not running.alive:
        raise _failed(running.state, "init", "the cluster's first process ended")
    for name, part in running.status.get("components", {}).items():
        ended = part["restarts"] - before.get(name, 0)
        if ended > RESTARTS_TOLERATED:
            raise _failed(
                running.state,
                name.replace("/", "-"),
                f"{name} ended {ended} times, last with status {part['last_exit']}",
            )


def _failed(state: State, log: str, what: str) -> LocalError:
    return LocalError(
        f"cluster: {what}",
        details=last_lines(state.logs / f"{log}.log"),
        fix=f"read {state.logs / f'{log}.log'}; `make down` clears the cluster, `make up` starts it again",
    )


def last_lines(path: Path, count: int = LOG_LINES_SHOWN) -> str:
    try:
        lines = path.read_text(errors="replace").splitlines()[-count:]
    except OSError:
        return f"(no log at {path})"
    return "\n".join(f"  | {line}" for line in lines) or "  | (the log is empty)"


def _ip(*arguments: str) -> str:
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise LocalError(f"ip {' '.join(arguments)}: {done.stderr.strip()}", fix="make down, then make up again")
    return done.stdout
