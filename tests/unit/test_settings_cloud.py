"""Settings of stacks in AWS: what loads, what follows from environment and catalog, what is said of the rest."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from fleet import preflight, settings
from fleet.faults import Fault, Refused
from fleet.schema import (
    EfsStore,
    EksCluster,
    ElasticThroughput,
    ExistingNetwork,
    HostPathStore,
    NewNetwork,
    OwnWeights,
    ProvisionedThroughput,
    Sku,
)

if TYPE_CHECKING:
    from pathlib import Path

Raw = dict[str, Any]

MINIMAL: Raw = {
    "environment": "dev",
    "cluster": {
        "source": "eks",
        "region": "us-east-1",
        "access": "inside_vpc",
        "network": {"vpc_cidr": "10.20.0.0/16"},
    },
    "store": {"kind": "efs"},
    "skus": [{"name": "a10g", "instance": {"instance_types": ["g5.12xlarge"]}, "nodes": {"min": 0, "max": 1}}],
    "models": [
        {
            "name": "minilm",
            "version": 1,
            "runtime": "python",
            "placements": [{"sku": "a10g", "replicas": {"min": 1, "max": 4}}],
        }
    ],
    "images": {"triton": "triton:1", "tools": "tools:1"},
}
CLUSTER: Raw = {
    "source": "eks",
    "name": "triton-fleet-dev",
    "region": "us-east-1",
    "kubernetes_version": "1.34",
    "access": "inside_vpc",
    "public_cidrs": (),
    "admins": (),
    "log_types": ("api", "audit", "authenticator", "controllerManager", "scheduler"),
    "log_retention_days": 90,
    "system_nodes": {"instance_type": "m7i.xlarge", "min": 2, "max": 4, "disk_gib": 100},
    "network": {"vpc_cidr": "10.20.0.0/16", "zones": 2, "nat": "single"},
    "protect": False,
    "key_deletion_days": 30,
    "addons": {},
}
STORE: Raw = {"kind": "efs", "size_gib": 100, "throughput": {"mode": "elastic"}, "backup": False, "protect": False}
SKU: Raw = {
    "name": "a10g",
    "instance": {
        "instance_types": ("g5.12xlarge",),
        "capacity": "on_demand",
        "capacity_reservation_id": None,
        "on_demand_floor": 0,
        "efa": False,
        "placement_group": False,
        "zone": None,
        "disk_gib": 200,
    },
    "gpu_product": "NVIDIA-A10G",
    "gpus_per_node": 4,
    "nodes": {"min": 0, "max": 1},
    "labels": {
        "nvidia.com/gpu": "present",
        "nvidia.com/gpu.present": "true",
        "nvidia.com/gpu.product": "NVIDIA-A10G",
    },
    "taints": ({"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"},),
}
REFERENCE = "docs/settings.md shows it under"
WAYS = "these are the ways to reach a cluster that this version knows"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A project with the one model of `MINIMAL`."""
    model = tmp_path / "model_repo" / "minilm"
    (model / "1").mkdir(parents=True)
    (model / "1" / "model.py").write_text("")
    (model / "config.pbtxt").write_text('backend: "python"')
    (model / "verification.json").write_text("{}")
    return tmp_path


def changed(**parts: object) -> Raw:
    """`MINIMAL` with settings put in the place of its own."""
    return {**copy.deepcopy(MINIMAL), **parts}


def cluster(**changes: object) -> Raw:
    """The cluster of `MINIMAL`, changed; `...` removes."""
    merged = {**MINIMAL["cluster"], **changes}
    return {key: value for key, value in merged.items() if value is not ...}


def test_the_least_that_a_stack_in_aws_may_say(folder: Path) -> None:
    made = settings.load(MINIMAL, folder).model_dump()
    assert (made["cluster"], made["store"], made["skus"]) == (CLUSTER, STORE, (SKU,))


def test_prod_is_protected_unless_it_says_otherwise(folder: Path) -> None:
    made = settings.load(changed(environment="prod"), folder)
    assert made.model_dump()["cluster"] == {**CLUSTER, "name": "triton-fleet-prod", "protect": True}
    assert made.model_dump()["store"] == {**STORE, "backup": True, "protect": True}
    said = settings.load(
        changed(environment="prod", cluster=cluster(protect=False, name="x"), store={"kind": "efs", "backup": False}),
        folder,
    )
    assert isinstance(said.cluster, EksCluster)
    assert isinstance(said.store, EfsStore)
    assert (said.cluster.name, said.cluster.protect) == ("x", False)
    assert (said.store.backup, said.store.protect) == (False, True)


@pytest.mark.parametrize(
    ("raw", "kind"),
    [
        ({"vpc_cidr": "10.0.0.0/16", "zones": ["us-east-1a", "us-east-1b"]}, NewNetwork),
        (
            {
                "vpc_id": "vpc-0123456789abcdef0",
                "private_subnet_ids": ["subnet-0123456789abcdef0", "subnet-0123456789abcdef1"],
            },
            ExistingNetwork,
        ),
    ],
)
def test_a_network_is_new_or_exists(raw: Raw, kind: type, folder: Path) -> None:
    made = settings.load(changed(cluster=cluster(network=raw)), folder)
    assert isinstance(made.cluster, EksCluster)
    assert type(made.cluster.network) is kind


@pytest.mark.parametrize(
    ("raw", "kind"),
    [
        ({"kind": "efs", "throughput": {"mode": "provisioned", "mibps": 512}}, ProvisionedThroughput),
        ({"kind": "efs", "throughput": {}}, ElasticThroughput),
    ],
)
def test_throughput_is_elastic_unless_it_is_provisioned(raw: Raw, kind: type, folder: Path) -> None:
    made = settings.load(changed(store=raw), folder)
    assert isinstance(made.store, EfsStore)
    assert type(made.store.throughput) is kind


def test_a_store_without_a_kind_is_a_folder() -> None:
    made = preflight.Draft.of_raw({"store": {"size_gib": 3}}).store
    assert made == HostPathStore(size_gib=3)


def test_nothing_follows_from_an_instance_that_the_catalog_does_not_know() -> None:
    made = Sku.model_validate({**MINIMAL["skus"][0], "instance": {"instance_types": ["g99.xlarge"]}})
    assert (made.gpu_product, made.gpus_per_node, dict(made.labels), made.taints) == (None, 0, {}, ())


FAULTS = [
    pytest.param(
        {"cluster": {"kubeconfig": "x"}},
        [
            Fault(
                "cluster.source",
                "nothing",
                "one of kubeconfig, eks, eks_existing",
                WAYS,
                f"add it; {REFERENCE} 'cluster'",
            )
        ],
        id="no source",
    ),
    pytest.param(
        {"cluster": {"source": "gke"}},
        [
            Fault(
                "cluster.source",
                "'gke'",
                "one of kubeconfig, eks, eks_existing",
                WAYS,
                f"correct it; {REFERENCE} 'cluster'",
            )
        ],
        id="a source that is none",
    ),
    pytest.param(
        {"cluster": {"source": ["eks"]}},
        [
            Fault(
                "cluster.source",
                "['eks']",
                "one of kubeconfig, eks, eks_existing",
                WAYS,
                f"correct it; {REFERENCE} 'cluster'",
            )
        ],
        id="a source that is a list",
    ),
    pytest.param(
        {"cluster": cluster(access=..., regin="x", region="Frankfurt")},
        [
            Fault(
                "cluster.region",
                "'Frankfurt'",
                "the code of a region of AWS",
                "everything of the stack is made there",
                "name it as AWS does, for example us-east-1",
            ),
            Fault(
                "cluster.access",
                "nothing",
                "one of inside_vpc, public",
                "the API endpoint is private: the first `up` from a machine outside of the VPC would make a cluster "
                "and then not reach it. Say that it runs inside, or open the endpoint to ranges in public_cidrs",
                f"add it; {REFERENCE} 'cluster'",
            ),
            Fault(
                "cluster.regin",
                "a setting named 'regin'",
                "a setting that exists: source, name, region, kubernetes_version, access, public_cidrs, admins, "
                "log_types, log_retention_days, system_nodes, network, protect, key_deletion_days, addons",
                "no setting has that name, and a misspelt one would silently do nothing",
                "did you mean 'region'?",
            ),
        ],
        id="inside a kind",
    ),
    pytest.param(
        {"cluster": cluster(network={"vpc_cidr": "8.8.0.0/16", "zones": 4}, kubernetes_version=1.34)},
        [
            Fault(
                "cluster.kubernetes_version",
                "1.34",
                "a minor version of Kubernetes",
                "EKS supports some versions, and add-ons fit one each",
                f"write it in quotes: YAML reads it bare as a number (1.30 as 1.3); {REFERENCE} 'cluster'",
            ),
            Fault(
                "cluster.network.vpc_cidr",
                "'8.8.0.0/16'",
                "a private IPv4 range in CIDR form, host bits zero",
                "nodes and pods have addresses of it, and addresses of others could then not be reached",
                "name a range of 10.0.0.0/8, 172.16.0.0/12 or 192.168.0.0/16, for example 10.20.0.0/16",
            ),
            Fault(
                "cluster.network.zones",
                "4",
                "a whole number from 2 to 3",
                "EKS wants two zones, and the layout of the addresses has room for three",
                f"correct it; {REFERENCE} 'cluster'",
            ),
        ],
        id="inside a kind of a kind",
    ),
    pytest.param(
        {"cluster": cluster(access="public", public_cidrs=["0.0.0.0/0"]), "store": {"kind": "ebs"}},
        [
            Fault(
                "cluster.public_cidrs[0]",
                "'0.0.0.0/0'",
                "an IPv4 range in CIDR form, host bits zero, no wider than /8",
                "whoever is in the range may try to enter the cluster; a wide-open range is never meant",
                "name the range that your office, VPN or CI leaves from, an address alone as x.x.x.x/32",
            ),
            Fault(
                "store.kind",
                "'ebs'",
                "one of host_path, efs",
                "these are the stores that this version knows",
                f"correct it; {REFERENCE} 'store'",
            ),
        ],
        id="the open world, and no such store",
    ),
]


@pytest.mark.parametrize(("parts", "expected"), FAULTS)
def test_faults_name_the_setting_as_a_person_writes_it(parts: Raw, expected: list[Fault], folder: Path) -> None:
    with pytest.raises(Refused) as refused:
        settings.load(changed(**parts), folder)
    assert refused.value.faults == expected


def test_weights_by_measures(folder: Path) -> None:
    own = {
        "parameters_b": 8.03,
        "layers": 32,
        "hidden": 4096,
        "intermediate": 14336,
        "vocabulary": 128256,
        "kv_heads": 8,
        "head_dim": 128,
        "max_sequence": 8192,
        "sequence": 1024,
    }
    made = settings.load(changed(models=[{**MINIMAL["models"][0], "weights": own}]), folder).models[0].weights
    assert isinstance(made, OwnWeights)
    assert made.model_dump() == {
        **own,
        "bytes_per_parameter": 2.0,
        "kv_bytes": 2.0,
        "batch": 1,
        "step_tokens": 8192,
    }


def stack(project: Path, name: str) -> settings.Settings:
    text = (project / f"Pulumi.{name}.yaml").read_text()
    return settings.load(settings.from_config(yaml.safe_load(text)["config"]), project)


@pytest.mark.parametrize("name", ["local", "dev", "prod"])
def test_the_stack_files_can_work(project: Path, name: str) -> None:
    verdict = preflight.check(stack(project, name), project)
    unproved = [] if name == "local" else ["models[0].repository"]
    unheard = ["alerts.receivers"] if name == "prod" else []  # whom prod tells is its users' to say
    assert (verdict.refusals, [fault.setting for fault in verdict.warnings]) == ((), [*unproved, *unheard])


def test_dev_and_prod_share_no_name_and_no_address(project: Path) -> None:
    dev, prod = stack(project, "dev"), stack(project, "prod")
    assert isinstance(dev.cluster, EksCluster)
    assert isinstance(prod.cluster, EksCluster)
    assert isinstance(dev.cluster.network, NewNetwork)
    assert isinstance(prod.cluster.network, NewNetwork)
    for one, other in [
        (dev.environment, prod.environment),
        (dev.cluster.name, prod.cluster.name),
        (dev.serving.namespace, prod.serving.namespace),
        (dev.cluster.network.vpc_cidr, prod.cluster.network.vpc_cidr),
    ]:
        assert one != other


def test_prod_is_private_protected_and_over_three_zones(project: Path) -> None:
    prod = stack(project, "prod")
    assert isinstance(prod.cluster, EksCluster)
    assert isinstance(prod.cluster.network, NewNetwork)
    assert isinstance(prod.store, EfsStore)
    assert (prod.cluster.access, prod.cluster.public_cidrs, prod.cluster.protect) == ("inside_vpc", (), True)
    assert (prod.cluster.network.zones, prod.cluster.network.nat) == (3, "per_zone")
    assert (prod.store.protect, prod.store.backup) == (True, True)
    assert {sku.name: (sku.gpu_product, sku.gpus_per_node) for sku in prod.skus} == {
        "a100-40gb": ("NVIDIA-A100-SXM4-40GB", 8),
        "h100-80gb": ("NVIDIA-H100-80GB-HBM3", 8),
    }
    assert [[placement.sku for placement in model.placements] for model in prod.models] == [["a100-40gb", "h100-80gb"]]


def test_dev_opens_its_endpoint_to_no_range_by_default(project: Path) -> None:
    dev = stack(project, "dev")
    assert isinstance(dev.cluster, EksCluster)
    assert (dev.cluster.access, dev.cluster.public_cidrs) == ("inside_vpc", ())
    assert "public_cidrs: [<your range>]" in (project / "Pulumi.dev.yaml").read_text()
