"""The contract of names: labels, selectors and the length of what Kubernetes makes of a name."""

from __future__ import annotations

import pytest

from fleet import names


@pytest.mark.parametrize(
    ("text", "is_label"),
    [
        ("a", True),
        ("0", True),
        ("a-b", True),
        ("h100-80gb", True),
        ("a" * 63, True),
        ("", False),
        ("a" * 64, False),
        ("-a", False),
        ("a-", False),
        ("a_b", False),
        ("a.b", False),
        ("A", False),
        ("ä", False),
        ("٣", False),
        ("a\n", False),
    ],
)
def test_dns_label(text: str, is_label: bool) -> None:  # noqa: FBT001 - a column of the table
    assert names.is_dns_label(text) is is_label


def test_pod_labels() -> None:
    assert names.pod_labels("minilm", "a100-40gb") == {
        "app.kubernetes.io/name": "triton",
        "app.kubernetes.io/instance": "minilm-a100-40gb",
        "app.kubernetes.io/component": "triton",
        "app.kubernetes.io/part-of": "triton-fleet",
        "app.kubernetes.io/managed-by": "pulumi",
        "model": "minilm",
        "triton-fleet.io/sku": "a100-40gb",
    }


FLEET = [("minilm", "a100-40gb"), ("minilm", "h100-80gb"), ("minilm-large", "a100-40gb")]


def _matched(selector: dict[str, str]) -> list[tuple[str, str]]:
    return [pod for pod in FLEET if selector.items() <= names.pod_labels(*pod).items()]


def test_a_selector_matches_its_own_pods_and_no_other_workloads() -> None:
    assert {pod: _matched(names.selector(*pod)) for pod in FLEET} == {pod: [pod] for pod in FLEET}
    assert {model: _matched(names.model_selector(model)) for model in ("minilm", "minilm-large")} == {
        "minilm": FLEET[:2],
        "minilm-large": FLEET[2:],
    }
    assert _matched(names.fleet_selector()) == FLEET


def test_other_components_are_no_triton_pods() -> None:
    others = [component for component in names.Component if component is not names.Component.TRITON]
    matched = [
        component
        for component in others
        if names.fleet_selector().items() <= names.common_labels(component, "x", "y").items()
    ]
    assert (len(others), matched) == (len(names.Component) - 1, [])


def test_objects_of_a_model() -> None:
    assert (
        names.deployment_name("minilm", "h100-80gb"),
        names.service_name("minilm"),
        names.headless_name("minilm"),
        names.namespace("prod"),
        names.service_host("minilm", "triton-local"),
    ) == ("minilm-h100-80gb", "minilm", "minilm-pods", "triton-prod", "minilm.triton-local.svc")


def test_the_longest_deployment_leaves_room_for_its_pods_suffix() -> None:
    pod = "d" * names.WORKLOAD_MAX_CHARS + "-" + "f" * 10 + "-" + "x" * 5
    assert len(pod) == names.LABEL_MAX_CHARS
    assert names.is_dns_label(pod)


def test_gpu_node_labels() -> None:
    assert names.gpu_node_labels("NVIDIA-H100-80GB-HBM3") == {
        "nvidia.com/gpu": "present",
        "nvidia.com/gpu.present": "true",
        "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3",
    }
