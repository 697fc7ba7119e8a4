"""Command lines and configuration files of every component of the embedded cluster.

Each value that is not Kubernetes' default has its reason beside it; most were found by running without it.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

import yaml

from local.cluster import hardware, pki
from local.cluster.topology import DNS_DOMAIN, NODES, Addresses, Node

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

CNI_PLUGINS = "/usr/lib/cni"
"""Where Debian's containernetworking-plugins puts them."""
PAUSE_IMAGE = "triton-fleet.local/pause:1"
NODE_STORE = "/var/lib/triton-fleet/store"
"""Where every node sees the folder that plays the shared file system (the default of `store.path`)."""
STORE_OWNER = 1000
"""User and group of the pods (the defaults of `serving.run_as_user` and `serving.run_as_group`)."""

CONTROL_PLANE_USERS: Mapping[str, tuple[str, str | None]] = {
    # file name: (user, group), as Kubernetes' built-in role bindings expect them.
    "admin": ("triton-fleet-admin", "system:masters"),
    "controller-manager": ("system:kube-controller-manager", None),
    "scheduler": ("system:kube-scheduler", None),
    "kube-proxy": ("system:kube-proxy", None),
    "kube-router": ("system:kube-router", None),
    "apiserver-kubelet-client": ("kube-apiserver-kubelet-client", "system:masters"),
}


@dataclass(frozen=True)
class Component:
    """A program that the cluster's first process starts and restarts.

    `where` is "" for the cluster's own namespaces or the name of the node in whose namespaces it runs.
    """

    name: str
    argv: tuple[str, ...]
    where: str = ""


@dataclass(frozen=True)
class ClusterFiles:
    """The folders of one cluster and the paths that its components read."""

    folder: Path
    store: Path
    identity: str
    addresses: Addresses
    binaries: Mapping[str, str]

    @property
    def pki(self) -> Path:
        return self.folder / "pki"

    @property
    def config(self) -> Path:
        return self.folder / "config"

    def node(self, node: Node) -> Path:
        return self.folder / "nodes" / node.name

    def node_config(self, node: Node) -> Path:
        return self.config / node.name

    def cgroup(self, node: Node) -> str:
        """Cgroup paths are machine-wide, so they carry the cluster's identity."""
        return f"/{self.identity}/{node.name}"

    def kubeconfig(self, user: str) -> Path:
        return self.config / f"{user}.kubeconfig"


def write(files: ClusterFiles) -> None:
    """Write certificates, kubeconfigs and configuration files; repeating it changes nothing that runs."""
    for folder in (files.pki, files.config, files.store):
        folder.mkdir(parents=True, exist_ok=True)
    # As an EFS access point does, the shared folder belongs to the pods' user.
    os.chown(files.store, STORE_OWNER, STORE_OWNER)
    files.pki.chmod(0o700)
    files.config.chmod(0o700)
    _write_pki(files)
    for index, node in enumerate(NODES):
        _write_node(files, node, index)


def _write_pki(files: ClusterFiles) -> None:
    at = files.addresses
    authority = pki.Authority(files.pki, "ca")
    authority.ensure()
    authority.issue(
        "apiserver",
        "kube-apiserver",
        hosts=[
            "localhost",
            "kubernetes",
            "kubernetes.default",
            "kubernetes.default.svc",
            f"kubernetes.default.svc.{DNS_DOMAIN}",
        ],
        addresses=["127.0.0.1", at.control_plane, at.node_gateway, at.kubernetes_service],
    )
    for name, (user, group) in CONTROL_PLANE_USERS.items():
        authority.issue(name, user, group)
    for index, node in enumerate(NODES):
        authority.issue(
            f"kubelet-{node.name}",
            f"system:node:{node.name}",
            "system:nodes",
            hosts=[node.name],
            addresses=[at.node(index)],
        )
    # Aggregated APIs (the metrics adapter) trust requests that carry this second authority's certificate.
    front_proxy = pki.Authority(files.pki, "front-proxy-ca")
    front_proxy.ensure()
    front_proxy.issue("front-proxy-client", "front-proxy-client")
    pki.service_account_key(files.pki)
    for user in CONTROL_PLANE_USERS:
        if user != "apiserver-kubelet-client":
            pki.kubeconfig(files.pki, user, at.api_server, files.kubeconfig(user))
    for node in NODES:
        pki.kubeconfig(files.pki, f"kubelet-{node.name}", at.api_server, files.kubeconfig(f"kubelet-{node.name}"))


def _write_node(files: ClusterFiles, node: Node, index: int) -> None:
    config = files.node_config(node)
    config.mkdir(parents=True, exist_ok=True)
    hardware.lay_bus(hardware.pci(files.folder, node), node.gpus)
    (config / "containerd.toml").write_text(containerd_config(config))
    cni = config / "cni"
    cni.mkdir(exist_ok=True)
    (cni / "10-pods.conflist").write_text(json.dumps(cni_config(files.addresses, index), indent=2) + "\n")
    (config / "kubelet.yaml").write_text(yaml.safe_dump(kubelet_config(files, node, index), sort_keys=False))
    (config / "kube-proxy.yaml").write_text(yaml.safe_dump(kube_proxy_config(files, node), sort_keys=False))
    (config / "resolv.conf").write_text("# A pod that asks for the node's DNS gets none: nothing here reaches out.\n")


def containerd_config(config: Path) -> str:
    """Containerd 1.6's own paths (/run/containerd, /var/lib/containerd) are the node's, by its mount namespace."""
    return f"""\
version = 2
disabled_plugins = [
  "io.containerd.snapshotter.v1.aufs",
  "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.devmapper",
  "io.containerd.snapshotter.v1.zfs",
  "io.containerd.internal.v1.tracing",
  "io.containerd.tracing.processor.v1.otlp",
]

[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE_IMAGE}"
  # Without CAP_SYS_RESOURCE no process may lower its score; every pod then stays in ContainerCreating.
  restrict_oom_score_adj = true
  disable_apparmor = true

[plugins."io.containerd.grpc.v1.cri".cni]
  bin_dir = "{CNI_PLUGINS}"
  conf_dir = "{config / "cni"}"

[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"

[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
  SystemdCgroup = false
"""


def cni_config(at: Addresses, index: int) -> dict[str, object]:
    return {
        "cniVersion": "0.4.0",
        "name": "pods",
        "plugins": [
            {
                "type": "bridge",
                "bridge": "pods",
                "isGateway": True,
                # A pod that calls its own Service gets the packet back.
                "hairpinMode": True,
                "ipam": {
                    "type": "host-local",
                    "ranges": [[{"subnet": at.node_pods(index)}]],
                    "routes": [{"dst": "0.0.0.0/0"}],
                },
            },
            {"type": "portmap", "capabilities": {"portMappings": True}},
        ],
    }


def kubelet_config(files: ClusterFiles, node: Node, index: int) -> dict[str, object]:
    at = files.addresses
    pki_folder = files.pki
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": at.node(index),
        "healthzBindAddress": at.node(index),
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(pki_folder / "ca.crt")},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": str(pki_folder / f"kubelet-{node.name}.crt"),
        "tlsPrivateKeyFile": str(pki_folder / f"kubelet-{node.name}.key"),
        "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
        "cgroupDriver": "cgroupfs",
        # With a shared root the kubelets kill each other's pods.
        "cgroupRoot": files.cgroup(node),
        "failSwapOn": False,
        # The disk is the machine's, with its own reserve and its own owner: a node may neither evict pods
        # nor remove images because of it.
        "evictionHard": {},
        "imageGCHighThresholdPercent": 100,
        "imageGCLowThresholdPercent": 99,
        "clusterDomain": DNS_DOMAIN,
        "clusterDNS": [at.dns_service],
        "resolvConf": str(files.node_config(node) / "resolv.conf"),
        "registerWithTaints": list(node.taints),
        "nodeStatusUpdateFrequency": "5s",
        "serializeImagePulls": False,
        "shutdownGracePeriod": "0s",
    }


def kube_proxy_config(files: ClusterFiles, node: Node) -> dict[str, object]:
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "clientConnection": {"kubeconfig": str(files.kubeconfig("kube-proxy"))},
        "mode": "iptables",
        "clusterCIDR": files.addresses.pods,
        "hostnameOverride": node.name,
        # The sizes of the connection table are the machine's, not ours to set.
        "conntrack": {"maxPerCore": 0, "min": 0},
        "iptables": {"minSyncPeriod": "200ms", "syncPeriod": "30s"},
    }


def components(files: ClusterFiles) -> list[Component]:
    """Everything that runs, in the order of starting."""
    return [*_control_plane(files), *(part for index, node in enumerate(NODES) for part in _node(files, node, index))]


def _control_plane(files: ClusterFiles) -> list[Component]:
    at = files.addresses
    kube = files.binaries["kube"]
    etcd_client, etcd_peer = f"http://{at.control_plane}:2379", f"http://{at.control_plane}:2380"
    pki_folder = files.pki
    return [
        Component(
            "etcd",
            (
                files.binaries["etcd"],
                f"--data-dir={files.folder / 'etcd'}",
                "--name=local",
                f"--listen-client-urls={etcd_client}",
                f"--advertise-client-urls={etcd_client}",
                f"--listen-peer-urls={etcd_peer}",
                f"--initial-advertise-peer-urls={etcd_peer}",
                f"--initial-cluster=local={etcd_peer}",
                # A cluster that is thrown away survives a killed process, not a power cut.
                "--unsafe-no-fsync",
                "--log-level=warn",
            ),
        ),
        Component(
            "kube-apiserver",
            (
                kube,
                "kube-apiserver",
                f"--etcd-servers={etcd_client}",
                f"--advertise-address={at.control_plane}",
                f"--bind-address={at.control_plane}",
                "--secure-port=6443",
                f"--service-cluster-ip-range={at.services}",
                f"--client-ca-file={pki_folder / 'ca.crt'}",
                f"--tls-cert-file={pki_folder / 'apiserver.crt'}",
                f"--tls-private-key-file={pki_folder / 'apiserver.key'}",
                f"--kubelet-certificate-authority={pki_folder / 'ca.crt'}",
                f"--kubelet-client-certificate={pki_folder / 'apiserver-kubelet-client.crt'}",
                f"--kubelet-client-key={pki_folder / 'apiserver-kubelet-client.key'}",
                # Node names are in no DNS, so logs and exec must go by address.
                "--kubelet-preferred-address-types=InternalIP",
                f"--service-account-issuer=https://kubernetes.default.svc.{DNS_DOMAIN}",
                f"--service-account-key-file={pki_folder / 'service-account.pub'}",
                f"--service-account-signing-key-file={pki_folder / 'service-account.key'}",
                "--authorization-mode=Node,RBAC",
                "--enable-admission-plugins=NodeRestriction",
                f"--requestheader-client-ca-file={pki_folder / 'front-proxy-ca.crt'}",
                "--requestheader-allowed-names=front-proxy-client",
                "--requestheader-extra-headers-prefix=X-Remote-Extra-",
                "--requestheader-group-headers=X-Remote-Group",
                "--requestheader-username-headers=X-Remote-User",
                f"--proxy-client-cert-file={pki_folder / 'front-proxy-client.crt'}",
                f"--proxy-client-key-file={pki_folder / 'front-proxy-client.key'}",
                # The control plane runs no kube-proxy: it reaches aggregated APIs by their pods.
                "--enable-aggregator-routing=true",
            ),
        ),
        Component(
            "kube-controller-manager",
            (
                kube,
                "kube-controller-manager",
                f"--kubeconfig={files.kubeconfig('controller-manager')}",
                f"--authentication-kubeconfig={files.kubeconfig('controller-manager')}",
                f"--authorization-kubeconfig={files.kubeconfig('controller-manager')}",
                f"--bind-address={at.control_plane}",
                f"--root-ca-file={pki_folder / 'ca.crt'}",
                f"--service-account-private-key-file={pki_folder / 'service-account.key'}",
                f"--cluster-signing-cert-file={pki_folder / 'ca.crt'}",
                f"--cluster-signing-key-file={pki_folder / 'ca.key'}",
                "--use-service-account-credentials=true",
                "--leader-elect=false",
            ),
        ),
        Component(
            "kube-scheduler",
            (
                kube,
                "kube-scheduler",
                f"--kubeconfig={files.kubeconfig('scheduler')}",
                f"--authentication-kubeconfig={files.kubeconfig('scheduler')}",
                f"--authorization-kubeconfig={files.kubeconfig('scheduler')}",
                f"--bind-address={at.control_plane}",
                "--leader-elect=false",
            ),
        ),
    ]


def _node(files: ClusterFiles, node: Node, index: int) -> list[Component]:
    config = files.node_config(node)
    kube = files.binaries["kube"]
    labels = ",".join(f"{key}={value}" for key, value in sorted(node.all_labels.items()))
    return [
        Component(
            f"{node.name}/containerd",
            (files.binaries["containerd"], f"--config={config / 'containerd.toml'}"),
            node.name,
        ),
        Component(
            f"{node.name}/kubelet",
            (
                kube,
                "kubelet",
                f"--config={config / 'kubelet.yaml'}",
                f"--kubeconfig={files.kubeconfig(f'kubelet-{node.name}')}",
                f"--hostname-override={node.name}",
                f"--node-ip={files.addresses.node(index)}",
                *([f"--node-labels={labels}"] if labels else []),
            ),
            node.name,
        ),
        Component(
            f"{node.name}/kube-proxy",
            (kube, "kube-proxy", f"--config={config / 'kube-proxy.yaml'}"),
            node.name,
        ),
        Component(
            f"{node.name}/kube-router",
            (
                files.binaries["kube-router"],
                f"--kubeconfig={files.kubeconfig('kube-router')}",
                f"--hostname-override={node.name}",
                # Only the network policies: routes are static, Services are kube-proxy's.
                "--run-firewall=true",
                "--run-router=false",
                "--run-service-proxy=false",
                "--run-loadbalancer=false",
                f"--service-cluster-ip-range={files.addresses.services}",
                "--health-port=0",
            ),
            node.name,
        ),
    ]
