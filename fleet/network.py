"""Who may talk to whom in the serving namespace: nobody, but for what is named here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from fleet import names, pods

if TYPE_CHECKING:
    from fleet.pods import Manifest
    from fleet.schema import Serving
    from fleet.settings import Settings

DNS_POD_LABELS: Final = {"k8s-app": "kube-dns"}
"""What CoreDNS carries in every distribution, so that it can stand in for kube-dns."""

SERVING_PORTS: Final = (names.PORT_HTTP, names.PORT_GRPC)


def _tcp(*ports: int) -> list[Manifest]:
    return [{"protocol": "TCP", "port": port} for port in ports]


def _policy(serving: Serving, name: str, selected: dict[str, str], **rules: Any) -> Manifest:  # noqa: ANN401 - rules as Kubernetes has them
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": pods.metadata(name, serving.namespace, pods.labels("network-policy", name)),
        "spec": {
            "podSelector": {"matchLabels": selected} if selected else {},
            "policyTypes": [kind for kind in ("Ingress", "Egress") if kind.lower() in rules],
            **rules,
        },
    }


def deny_all(serving: Serving) -> Manifest:
    return _policy(serving, "deny-all", {}, ingress=[], egress=[])


def dns(serving: Serving) -> Manifest:
    """Every pod of the namespace may ask the cluster's DNS, on whatever port its pods listen.

    A policy sees a packet when the Service's port, 53, has become the pod's, and CoreDNS without root listens higher.
    """
    peer = {
        "namespaceSelector": {"matchLabels": {names.LABEL_NAMESPACE_NAME: names.NAMESPACE_SYSTEM}},
        "podSelector": {"matchLabels": DNS_POD_LABELS},
    }
    return _policy(serving, "dns", {}, egress=[{"to": [peer]}])


def triton(serving: Serving, monitoring: str) -> Manifest:
    """Triton answers its namespace, the namespaces labelled as clients and the address ranges named; it is scraped by
    the namespace `monitoring`; it calls nobody. Probes come from the node, which no policy holds up.
    """
    clients: list[Manifest] = [
        {"podSelector": {}},
        {"namespaceSelector": {"matchLabels": {names.LABEL_CLIENT: "true"}}},
        *({"ipBlock": {"cidr": cidr}} for cidr in serving.client_cidrs),
    ]
    scrapers = {"namespaceSelector": {"matchLabels": {names.LABEL_NAMESPACE_NAME: monitoring}}}
    return _policy(
        serving,
        "triton",
        names.fleet_selector(),
        ingress=[
            {"from": clients, "ports": _tcp(*SERVING_PORTS)},
            {"from": [scrapers], "ports": _tcp(names.PORT_METRICS)},
        ],
    )


def to_triton(serving: Serving, name: str, selected: dict[str, str]) -> Manifest:
    """Some pods may call Triton, by the Services and by each pod's address."""
    return _policy(
        serving,
        name,
        selected,
        egress=[{"to": [{"podSelector": {"matchLabels": names.fleet_selector()}}], "ports": _tcp(*SERVING_PORTS)}],
    )


def verification(serving: Serving) -> Manifest:
    """Verification may call Triton; a load's policy comes and goes with the load."""
    return to_triton(serving, "verification", {names.LABEL_COMPONENT: names.Component.VERIFICATION.value})


def policies(settings: Settings) -> list[Manifest]:
    """All policies of the serving namespace."""
    serving = settings.serving
    return [deny_all(serving), dns(serving), triton(serving, settings.monitoring.namespace), verification(serving)]


def namespace(serving: Serving) -> Manifest:
    """The serving namespace; the API server admits no pod to it that is not restricted."""
    levels = {f"pod-security.kubernetes.io/{mode}": "restricted" for mode in ("enforce", "warn")}
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": pods.metadata(serving.namespace, None, {**pods.labels("namespace", serving.namespace), **levels}),
    }
