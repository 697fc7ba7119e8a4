"""The first process of the embedded cluster: it holds the namespaces and starts, watches and restarts the components.

It runs as process 1 of its own PID namespace, so that ending it, by whatever means, ends everything in the
cluster: processes, mounts, links and packet filter rules belong to namespaces that die with it.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from local.cluster import cgroups, config, hardware
from local.cluster.topology import NODES, Addresses, Node

RESTART_DELAY_S = 1.0
LINK_DEADLINE_S = 30.0
"""How long the starting command may take to give this process its link to the machine."""

# A namespace outlives its processes while one of its TCP sockets still tries to say goodbye to a peer that is gone:
# by the kernel's default for minutes (ip-sysctl, tcp_orphan_retries: 0 stands for 8). Three tries take 3 s.
ORPHAN_RETRIES = "/proc/sys/net/ipv4/tcp_orphan_retries"
ORPHAN_RETRIES_VALUE = "3"

# The kubelet sets these for the whole machine. Each node gets a private copy instead, so that the machine
# keeps its own values while the cluster runs and after it.
MACHINE_SETTINGS = (
    "/proc/sys/vm/overcommit_memory",
    "/proc/sys/vm/panic_on_oom",
    "/proc/sys/kernel/panic",
    "/proc/sys/kernel/panic_on_oops",
    "/proc/sys/kernel/keys/root_maxkeys",
    "/proc/sys/kernel/keys/root_maxbytes",
)


@dataclass
class Running:
    component: config.Component
    pid: int = 0
    restarts: int = 0
    last_exit: int | None = None
    start_at: float = 0.0


@dataclass
class Supervisor:
    files: config.ClusterFiles
    nodes: dict[str, int] = field(default_factory=dict)
    running: list[Running] = field(default_factory=list)
    stopping: bool = False

    def run(self) -> None:
        signal.signal(signal.SIGTERM, self._stop)
        signal.signal(signal.SIGINT, self._stop)
        self._cluster_network()
        for index, node in enumerate(NODES):
            self.nodes[node.name] = self._start_node(node, index)
        self._routes()
        self.running = [Running(part) for part in config.components(self.files)]
        while not self.stopping:
            self._start_due()
            self._reap()
            time.sleep(0.1)

    def _stop(self, *_: object) -> None:
        self.stopping = True

    # Network: this namespace is the control plane; each node is a namespace of its own on one bridge.

    def _cluster_network(self) -> None:
        at = self.files.addresses
        deadline = time.monotonic() + LINK_DEADLINE_S
        while not Path("/proc/self/net/dev").read_text().count("eth0:"):
            if time.monotonic() > deadline:
                raise SystemExit(f"no link to the machine within {LINK_DEADLINE_S:.0f} s")
            time.sleep(0.05)
        _ip("link", "set", "lo", "up")
        _ip("address", "add", f"{at.control_plane}/30", "dev", "eth0")
        _ip("link", "set", "eth0", "up")
        _ip("link", "add", "nodes", "type", "bridge")
        _ip("address", "add", f"{at.node_gateway}/24", "dev", "nodes")
        _ip("link", "set", "nodes", "up")
        Path("/proc/sys/net/ipv4/ip_forward").write_text("1")
        Path(ORPHAN_RETRIES).write_text(ORPHAN_RETRIES_VALUE)

    def _start_node(self, node: Node, index: int) -> int:
        at = self.files.addresses
        reader, writer = os.pipe()
        pid = os.posix_spawnp(
            "unshare",
            ["unshare", "--mount", "--net", "--", "sh", "-c", "echo held; exec sleep infinity >/dev/null"],
            os.environ,
            file_actions=[(os.POSIX_SPAWN_DUP2, writer, 1)],
        )
        os.close(writer)
        if not os.read(reader, 5):
            raise SystemExit(f"node {node.name}: its namespaces could not be made; see logs/init.log")
        os.close(reader)
        _ip("link", "add", f"node{index}", "type", "veth", "peer", "name", "eth0", "netns", str(pid))
        _ip("link", "set", f"node{index}", "master", "nodes", "up")
        inside = _inside(pid)
        _run([*inside, "ip", "link", "set", "lo", "up"])
        _run([*inside, "ip", "address", "add", f"{at.node(index)}/24", "dev", "eth0"])
        _run([*inside, "ip", "link", "set", "eth0", "up"])
        _run([*inside, "ip", "route", "add", "default", "via", at.node_gateway])
        for other in range(len(NODES)):
            if other != index:
                _run([*inside, "ip", "route", "add", at.node_pods(other), "via", at.node(other)])
        _run([*inside, "sh", "-ec", self._node_mounts(node)])
        cgroups.make(self.files.cgroup(node))
        return pid

    def _routes(self) -> None:
        at = self.files.addresses
        for index in range(len(NODES)):
            _ip("route", "add", at.node_pods(index), "via", at.node(index))
        # The machine reaches Services through the first node's kube-proxy.
        _ip("route", "add", at.services, "via", at.node(0))

    def _node_mounts(self, node: Node) -> str:
        """A script that gives the node its own /run, /etc, /var/lib, /var/log and PCI bus, as a machine has.

        Pods mount folders of the node, which are made where they are missing: the machine's /etc gets none.
        """
        folder, pci = self.files.node(node), hardware.pci(self.files.folder, node)
        for name in ("kubelet", "containerd", "log"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        lines = [
            "mount --make-rshared /",
            "mount -t tmpfs -o mode=755 run /run",
            "mount -t tmpfs -o mode=755 lib /var/lib",
            f"mkdir -p /var/lib/kubelet /var/lib/containerd {config.NODE_STORE}",
            f"mount --bind {shlex.quote(str(folder / 'kubelet'))} /var/lib/kubelet",
            f"mount --bind {shlex.quote(str(folder / 'containerd'))} /var/lib/containerd",
            f"mount --bind {shlex.quote(str(self.files.store))} {config.NODE_STORE}",
            f"mount --bind {shlex.quote(str(folder / 'log'))} /var/log",
            "cp -a /etc /run/etc",
            "mount --bind /run/etc /etc",
            f"[ ! -d {hardware.PCI_DEVICES} ] || mount --bind {shlex.quote(str(pci))} {hardware.PCI_DEVICES}",
            "mkdir -p /run/settings",
            "echo 1 > /proc/sys/net/ipv4/ip_forward",
            f"echo {ORPHAN_RETRIES_VALUE} > {ORPHAN_RETRIES}",
            # Pods on one bridge reach each other's Services only if bridged packets pass the filter.
            "echo 1 > /proc/sys/net/bridge/bridge-nf-call-iptables",
        ]
        for setting in MACHINE_SETTINGS:
            copy = "/run/settings/" + setting.strip("/").replace("/", ".")
            lines += [f"cat {setting} > {copy}", f"mount --bind {copy} {setting}"]
        return "\n".join(lines)

    # Components

    def _start_due(self) -> None:
        now = time.monotonic()
        for running in self.running:
            if running.pid == 0 and now >= running.start_at:
                running.pid = self._start(running.component)
                self._write_status()

    def _start(self, component: config.Component) -> int:
        argv = list(component.argv)
        if component.where:
            argv = [*_inside(self.nodes[component.where]), *argv]
        log = self.files.folder / "logs" / (component.name.replace("/", "-") + ".log")
        # Not subprocess: its own bookkeeping would collect a child behind the back of `_reap`.
        return os.posix_spawnp(
            argv[0],
            argv,
            os.environ,
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_OPEN, 1, str(log), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644),
                (os.POSIX_SPAWN_DUP2, 1, 2),
            ],
            setsid=True,
        )

    def _reap(self) -> None:
        """Collect every dead child: the components, and what the containers' shims leave to process 1."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            for running in self.running:
                if running.pid == pid:
                    running.pid = 0
                    running.restarts += 1
                    running.last_exit = os.waitstatus_to_exitcode(status)
                    running.start_at = time.monotonic() + RESTART_DELAY_S
                    self._write_status()

    def _write_status(self) -> None:
        """What the starting command reads: PIDs as this namespace counts them."""
        status = {
            "nodes": self.nodes,
            "components": {
                running.component.name: {
                    "pid": running.pid,
                    "restarts": running.restarts,
                    "last_exit": running.last_exit,
                }
                for running in self.running
            },
        }
        target = self.files.folder / "status.json"
        scratch = target.with_suffix(".new")
        scratch.write_text(json.dumps(status, indent=2) + "\n")
        scratch.replace(target)


def _inside(pid: int) -> list[str]:
    return ["nsenter", f"--target={pid}", "--mount", "--net", "--"]


def _run(argv: list[str]) -> None:
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(argv)}\nexit status {done.returncode}: {done.stderr.strip()}")


def _ip(*arguments: str) -> None:
    _run(["ip", *arguments])


def main() -> None:
    described = json.loads(Path(sys.argv[1]).read_text())
    files = config.ClusterFiles(
        folder=Path(described["folder"]),
        store=Path(described["store"]),
        identity=described["identity"],
        addresses=Addresses.of(described["network"]),
        binaries=described["binaries"],
    )
    with contextlib.suppress(OSError):
        ctypes.CDLL(None).prctl(15, b"triton-fleet", 0, 0, 0)
    Supervisor(files).run()


if __name__ == "__main__":
    main()
