"""Preflight of stacks in AWS: what AWS, EKS or the nodes would not do, and what works at a price."""

from __future__ import annotations

from typing import Any

import pytest

from fleet import preflight_cloud
from fleet.faults import Fault
from fleet.preflight import Draft
from fleet.schema import Settings

Raw = dict[str, Any]


def cluster(**changes: object) -> Raw:
    return {
        "source": "eks",
        "region": "us-east-1",
        "access": "inside_vpc",
        "network": {"vpc_cidr": "10.20.0.0/16", "zones": ["us-east-1a", "us-east-1b"]},
        **changes,
    }


def sku(*types: str, low: int = 0, high: int = 4, name: str = "gpu", **more: Any) -> Raw:  # noqa: ANN401 - a setting
    instance = {"instance_types": list(types or ["g5.12xlarge"]), **more.pop("instance", {})}
    return {"name": name, "instance": instance, "nodes": {"min": low, "max": high}, **more}


def model(high: int = 4, **more: object) -> Raw:
    return {
        "name": "minilm",
        "version": 1,
        "runtime": "python",
        "placements": [{"sku": "gpu", "replicas": {"min": 1, "max": high}}],
        **more,
    }


def draft(place: Raw | None = None, skus: list[Raw] | None = None, environment: str = "dev", **more: object) -> Draft:
    return Draft.of(
        Settings.model_validate(
            {
                "environment": environment,
                "cluster": place or cluster(),
                "store": {"kind": "efs"},
                "skus": skus or [sku()],
                "models": [model()],
                "images": {"triton": "t:1", "tools": "t:1"},
                **more,
            }
        )
    )


def test_nothing_to_say() -> None:
    made = draft(environment="prod")
    assert (list(preflight_cloud.refusals(made)), list(preflight_cloud.warnings(made))) == ([], [])


BLOCK = (
    (
        "a capacity block is of one type, in one zone, and found by its id: "
        "https://docs.aws.amazon.com/eks/latest/userguide/capacity-blocks-mng.html"
    ),
    "take it from the reservation (`aws ec2 describe-capacity-reservations`)",
)
NO_RANGE = Fault(
    "cluster.public_cidrs",
    "nothing",
    "one range or more, with access: public",
    "an endpoint that is open to no range is open to nobody, and without ranges EKS opens it to the world",
    "name the ranges that you and CI come from, or set access: inside_vpc and run `pulumi up` from there",
)
REFUSED = [
    pytest.param({"place": cluster(access="public")}, [NO_RANGE], id="public without ranges"),
    pytest.param(
        {"place": cluster(public_cidrs=["198.18.0.0/24"])},
        [
            Fault(
                "cluster.public_cidrs",
                "['198.18.0.0/24']",
                "nothing, with access: inside_vpc",
                "a private endpoint is reached from inside the VPC alone; the ranges would do nothing",
                "remove them, or set access: public",
            ),
            Fault(
                "cluster.public_cidrs[0]",
                "'198.18.0.0/24'",
                "a range of the internet",
                "from private addresses the public endpoint is never reached: a NAT stands between",
                "name the public addresses that your office, VPN or CI leaves from",
            ),
        ],
        id="ranges that do nothing, and that nobody comes from",
    ),
    pytest.param(
        {"place": cluster(kubernetes_version="1.22")},
        [
            Fault(
                "cluster.kubernetes_version",
                "'1.22'",
                "one of 1.31, 1.32, 1.33, 1.34, 1.35",
                "EKS supports these versions (fleet/catalog/kubernetes.yaml)",
                "choose one of them, or bring the catalog up to date",
            )
        ],
        id="a version that EKS does not support",
    ),
    pytest.param(
        {
            "place": cluster(
                kubernetes_version="1.33", addons={"vpc-cni": "v1.0.0-eksbuild.1", "kube-proxy": "v1.0.0-eksbuild.1"}
            )
        },
        [
            Fault(
                "cluster.kubernetes_version",
                "'1.33', for which no version of eks-pod-identity-agent, coredns, aws-efs-csi-driver is pinned",
                "1.34, or a version of each in cluster.addons",
                "an add-on fits some versions of Kubernetes only, and is pinned",
                "name versions in cluster.addons: `aws eks describe-addon-versions --kubernetes-version 1.33` lists "
                "them",
            ),
            Fault(
                "cluster.kubernetes_version",
                "'1.33'",
                "one of 1.34",
                "the node autoscaler decides as the scheduler of its own version would, and has none for this one",
                "choose another version, or add the autoscaler's to fleet/aws_autoscaler.py",
            ),
        ],
        id="a version for which add-ons are not pinned",
    ),
    pytest.param(
        # m7i.large has 8192 MiB, of which pods get 86 %: 7045.12.
        {
            "place": cluster(system_nodes={"instance_type": "m7i.large"}),
            "monitoring": {"prometheus_memory_mib": 7046},
        },
        [
            Fault(
                "monitoring.prometheus_memory_mib",
                "7046",
                "at most 7045, what pods get of a system node, m7i.large",
                "Prometheus would stay pending, and the update wait for it in vain",
                "lower it, choose a larger cluster.system_nodes.instance_type, or name other nodes in "
                "monitoring.node_selector",
            )
        ],
        id="a Prometheus that no system node has room for",
    ),
    pytest.param(
        {"place": cluster(region="eu-centrl-1", network={"vpc_cidr": "10.20.0.0/16", "zones": 2})},
        [
            Fault(
                "cluster.region",
                "'eu-centrl-1'",
                "a region that the AWS provider knows (fleet/catalog/regions.yaml)",
                "AWS is found by the name of its region: elsewhere nothing answers",
                "did you mean 'eu-central-1'?",
            )
        ],
        id="a region that there is not",
    ),
    pytest.param(
        {
            "place": cluster(
                network={
                    "vpc_id": f"vpc-{1:017x}",
                    "private_subnet_ids": [f"subnet-{number:017x}" for number in (1, 2, 1)],
                    "public_subnet_ids": [f"subnet-{number:017x}" for number in (3, 2)],
                }
            )
        },
        [
            Fault(
                f"cluster.network.{setting}",
                f"'subnet-{number:017x}'",
                "each subnet once",
                "a subnet is private or public, and one that is named twice stands for no second zone",
                "name another subnet, or remove it",
            )
            for setting, number in (("private_subnet_ids[2]", 1), ("public_subnet_ids[1]", 2))
        ],
        id="subnets that are named twice",
    ),
    pytest.param(
        {"place": cluster(system_nodes={"instance_type": "g5.xlarge", "min": 3, "max": 2})},
        [
            Fault(
                "cluster.system_nodes.min",
                "3",
                "at most cluster.system_nodes.max, which is 2",
                "there is no number of nodes between the two",
                "lower min or raise max",
            ),
            Fault(
                "cluster.system_nodes.instance_type",
                "'g5.xlarge'",
                "an instance type without GPU",
                "these nodes hold CoreDNS and monitoring; their GPUs would stand idle",
                "choose a type such as m7i.xlarge",
            ),
        ],
        id="system nodes",
    ),
    pytest.param(
        {
            "place": cluster(
                network={"vpc_cidr": "10.20.0.0/25", "zones": ["us-east-1a", "us-east-1a", "eu-west-1a"]},
                system_nodes={"instance_type": "m7i.huge"},
            )
        },
        [
            Fault(
                "cluster.system_nodes.instance_type",
                "'m7i.huge'",
                "an instance type of the catalog (fleet/catalog/instances.yaml)",
                "GPUs, memory, architecture and price of nodes are taken from there",
                "did you mean 'm7i.large'?",
            ),
            Fault(
                "cluster.network.vpc_cidr",
                "'10.20.0.0/25'",
                "a /16 to /24",
                "a VPC is at most a /16, and divided into subnets AWS makes none narrower than a /28",
                "name a range of that size, for example 10.20.0.0/16",
            ),
            Fault(
                "cluster.network.zones[1]",
                "'us-east-1a'",
                "each zone once",
                "two subnets of one zone are lost together",
                "name another zone",
            ),
            Fault(
                "cluster.network.zones[2]",
                "'eu-west-1a'",
                "a zone of us-east-1",
                "the stack is in that region, and so are its subnets",
                "name a zone such as us-east-1a",
            ),
        ],
        id="a network that cannot be laid out",
    ),
    pytest.param(
        {
            "place": cluster(network={"vpc_cidr": "10.20.0.0/24", "zones": 2}),
            "skus": [sku("g5.12xlarge", high=10)],
            "models": [model(high=40)],
        },
        [
            Fault(
                "cluster.network.vpc_cidr",
                "'10.20.0.0/24', 118 addresses in 2 private subnets",
                "166 addresses: 14 nodes x (1 + 8 pods) + 40 replicas",
                "each node and pod has an address of the VPC; without one a pod does not start",
                "name a wider range, or lower nodes.max",
            )
        ],
        id="a network that is too small: 2 x (64 - 5) addresses",
    ),
    pytest.param(
        {"serving": {"client_cidrs": ["10.21.0.0/16", "10.0.0.0/8", "fd00::/32"]}},
        [
            Fault(
                "serving.client_cidrs[1]",
                "'10.0.0.0/8'",
                "a range outside of cluster.network.vpc_cidr, which is 10.20.0.0/16",
                "the VPC keeps its own addresses to itself: clients that have them elsewhere get no answer, and every "
                "pod of the cluster would be let in",
                "renumber one of the two; pods of the cluster are let in by their namespace's label",
            )
        ],
        id="clients with the VPC's addresses",
    ),
    pytest.param(
        {"skus": [{"name": "gpu", "gpu_product": "X", "gpus_per_node": 8, "nodes": {"min": 0, "max": 1}}]},
        [
            Fault(
                "skus[0].instance",
                "nothing",
                "the instances that are its nodes, with cluster.source: eks",
                "the stack makes the nodes, and has to know of what",
                "add instance: {instance_types: [...]}",
            )
        ],
        id="a SKU of nothing",
    ),
    pytest.param(
        {"place": {"source": "eks_existing", "name": "c", "region": "us-east-1"}},
        [
            Fault(
                "skus[0].instance",
                "['g5.12xlarge']",
                "nothing, with cluster.source: eks_existing",
                "the nodes of a cluster that exists are there already; nothing would be made of it",
                "remove it, or let the stack make the cluster (cluster.source: eks)",
            )
        ],
        id="instances of a cluster that exists",
    ),
    pytest.param(
        {"skus": [sku("g5.12xlarge", "p5e.24xlarge", gpu_product="NVIDIA-L4", gpus_per_node=8)]},
        [
            Fault(
                "skus[0].instance.instance_types[1]",
                "'p5e.24xlarge'",
                "an instance type of the catalog (fleet/catalog/instances.yaml)",
                "GPUs, memory, architecture and price of nodes are taken from there",
                "did you mean 'p5e.48xlarge'?",
            ),
            Fault(
                "skus[0].gpu_product",
                "'NVIDIA-L4'",
                "'NVIDIA-A10G', which g5.12xlarge has",
                "pods wait for nodes whose GPUs have that name, and these nodes never will",
                "leave gpu_product out, or choose another instance type",
            ),
            Fault(
                "skus[0].gpus_per_node",
                "8",
                "4, which g5.12xlarge has",
                "replicas are counted by it, and nodes bought",
                "leave gpus_per_node out, or choose another instance type",
            ),
        ],
        id="a SKU that is not what its instances are",
    ),
    pytest.param(
        {"skus": [sku("g5.12xlarge", "m7g.xlarge", "g5.24xlarge")]},
        [
            Fault(
                "skus[0].instance.instance_types",
                "g5.12xlarge: 4 x a10g on x86_64; m7g.xlarge: no GPU on arm64; g5.24xlarge: 4 x a10g on x86_64",
                "types with the same GPUs, as many of them, and one architecture",
                "pods are placed, memory reckoned and engines built for one GPU; a group of several would give any",
                "make a SKU of each kind",
            )
        ],
        id="mixed instance types (field report B36)",
    ),
    pytest.param(
        {
            "skus": [
                sku("g5.xlarge", instance={"efa": True, "placement_group": True}),
            ],
            "models": [model(resources={"cpu": 1.0, "memory_mib": 1024})],
        },
        [
            Fault(
                "skus[0].instance.efa",
                "true",
                "false, with g5.xlarge",
                "g5.xlarge has no EFA interface",
                "set efa to false, or choose a type that has it",
            ),
            Fault(
                "skus[0].instance.zone",
                "nothing",
                "a zone, with placement_group",
                "nodes that are close to one another are in one zone",
                "name the zone, or set placement_group to false",
            ),
            Fault(
                "skus[0].instance.zone",
                "nothing",
                "a zone, with efa",
                "nodes that are close to one another are in one zone",
                "name the zone, or set efa to false",
            ),
        ],
        id="EFA where there is none, and nodes close together in any zone",
    ),
    pytest.param(
        {"skus": [sku("p4d.24xlarge", "p4d.24xlarge", instance={"capacity": "capacity_block"})]},
        [
            Fault(
                "skus[0].instance.capacity_reservation_id",
                "nothing",
                "the id of the reservation, with capacity: capacity_block",
                *BLOCK,
            ),
            Fault(
                "skus[0].instance.zone", "nothing", "the zone of the reservation, with capacity: capacity_block", *BLOCK
            ),
            Fault(
                "skus[0].instance.instance_types",
                "['p4d.24xlarge', 'p4d.24xlarge']",
                "the one type of it, with capacity: capacity_block",
                *BLOCK,
            ),
        ],
        id="a capacity block of which nothing is said",
    ),
    pytest.param(
        {
            "skus": [
                sku(instance={"capacity": "spot", "capacity_reservation_id": "cr-01234567", "on_demand_floor": 5}),
                sku(name="other", instance={"on_demand_floor": 1}),
            ]
        },
        [
            Fault(
                "skus[0].instance.capacity_reservation_id",
                "'cr-01234567'",
                "nothing, with capacity: spot",
                "spot instances never start in reserved capacity; it would be paid for twice",
                "remove it, or set capacity: on_demand",
            ),
            Fault(
                "skus[0].instance.on_demand_floor",
                "5",
                "at most nodes.max, which is 4",
                "the floor is part of the nodes",
                "lower it, or raise nodes.max",
            ),
            Fault(
                "skus[1].instance.on_demand_floor",
                "1",
                "0, with capacity: on_demand",
                "it is what stays on demand beside spot nodes, and there are none",
                "remove it, or set capacity: spot",
            ),
        ],
        id="spot",
    ),
    pytest.param(
        {"skus": [sku(instance={"zone": "us-east-1c"}), sku(name="far", instance={"zone": "eu-west-1a"})]},
        [
            Fault(
                "skus[0].instance.zone",
                "'us-east-1c'",
                "one of us-east-1a, us-east-1b",
                "the network has subnets in these zones alone",
                "add the zone to cluster.network.zones, or name one that is there",
            ),
            Fault(
                "skus[1].instance.zone",
                "'eu-west-1a'",
                "a zone of us-east-1",
                "the stack is in that region, and so are its subnets",
                "name a zone such as us-east-1a",
            ),
        ],
        id="zones without a subnet",
    ),
    pytest.param(
        {
            "place": cluster(network={"vpc_cidr": "10.20.0.0/16", "zones": 3}),
            "skus": [sku(instance={"zone": "us-east-1a"})],
        },
        [
            Fault(
                "skus[0].instance.zone",
                "'us-east-1a'",
                "a zone of cluster.network.zones, named there",
                "the network takes 3 zones as AWS lists them, which may leave this one out",
                "name the network's zones, us-east-1a among them",
            )
        ],
        id="a zone of a network whose zones AWS chooses",
    ),
    pytest.param(
        {"skus": [sku(name="s" * 33), sku(name="t" * 32), sku(name="u" * 27, instance={"capacity": "spot"})]},
        [
            Fault(
                f"skus[{index}].name",
                f"'{name}', {len(name)} characters",
                f"{limit} characters for a SKU with instances",
                "the environment comes before it, EKS appends 26 characters, and a node group's name has at most 63",
                "shorten the name",
            )
            for index, name, limit in [(0, "s" * 33, 32), (2, "u" * 27, 26)]
        ],
        id="names of node groups: 63 - 26 - 'dev-' - '-', and '-floor' beside spot",
    ),
    pytest.param(
        {"skus": [sku(taints=[{"key": "a", "effect": "NoSchedule"}, {"key": "a", "effect": "NO_EXECUTE"}])]},
        [
            Fault(
                "skus[0].taints[1].key",
                "'a'",
                "each key once, for a SKU with instances",
                "the node autoscaler learns of the taints of nodes that are not there yet by tags, one for each key",
                "give one of the two another key",
            )
        ],
        id="two taints of one key",
    ),
    pytest.param(
        {"models": [model(high=9, resources={"cpu": 20.0, "memory_mib": 1024})]},
        [
            Fault(
                "models[0].placements[0].replicas.max",
                "9; a replica asks for 20 cores and 1024 MiB and 1 GPU, and g5.12xlarge gives 47.5 cores and "
                "169082 MiB and 4 GPUs: 2 a node",
                "2 x 4 nodes = 8",
                "replicas above that would stay pending just when the load asks for them",
                "lower replicas.max or resources, raise nodes.max, or choose a larger instance type",
            )
        ],
        id="GPUs enough, cores too few: 47.5 / 20 is 2 a node",
    ),
    pytest.param(
        {
            "skus": [sku("m7i.xlarge", "m7i.2xlarge")],
            "models": [model(high=5, resources={"cpu": 0.5, "memory_mib": 8192})],
        },
        [
            Fault(
                "models[0].placements[0].replicas.max",
                "5; a replica asks for 0.5 cores and 8192 MiB, and m7i.xlarge gives 3.5 cores and 14090 MiB: 1 a node",
                "1 x 4 nodes = 4",
                "replicas above that would stay pending just when the load asks for them",
                "lower replicas.max or resources, raise nodes.max, or choose a larger instance type",
            )
        ],
        id="without GPU, by memory of the smallest type: 0.86 x 16384 MiB",
    ),
    pytest.param(
        {
            "place": {"source": "kubeconfig", "kubeconfig": "k"},
            "skus": [{"name": "gpu", "nodes": {"min": 0, "max": 1}}],
        },
        [
            Fault(
                "store.kind",
                "'efs'",
                "host_path, with cluster.source: kubeconfig",
                "a file system of EFS needs a network and nodes in AWS that the stack knows",
                "adopt the cluster by its name (cluster.source: eks_existing), or use host_path",
            )
        ],
        id="EFS for a cluster of which only the API is known",
    ),
    pytest.param(
        {"store": {}},
        [
            Fault(
                "store.kind",
                "'host_path'",
                "efs, with cluster.source: eks",
                "its nodes are machines of their own: a folder on one is not on the others",
                "set store: {kind: efs}",
            )
        ],
        id="a folder on machines that come and go",
    ),
]


@pytest.mark.parametrize(("changes", "expected"), REFUSED)
def test_refused(changes: Raw, expected: list[Fault]) -> None:
    assert list(preflight_cloud.refusals(draft(**changes))) == expected


WARNED = [
    pytest.param(
        {"place": cluster(access="public", public_cidrs=["203.0.113.0/24", "8.8.8.0/24"])},
        [
            Fault(
                "cluster.public_cidrs[0]",
                "'203.0.113.0/24'",
                "a range that somebody has",
                "RFC 5737 keeps it for examples: it lets nobody in",
                "name the range that you and CI come from",
            )
        ],
        id="a range for examples",
    ),
    pytest.param(
        {"place": cluster(network={"vpc_cidr": "10.20.0.0/22", "zones": 2}), "skus": [sku(high=1)]},
        [],
        id="room for the reserve of the CNI: 2 x (256 - 5) for 5 nodes",
    ),
    pytest.param(
        {"place": cluster(network={"vpc_cidr": "10.20.0.0/22", "zones": 2}), "skus": [sku(high=2)]},
        [
            Fault(
                "cluster.network.vpc_cidr",
                "'10.20.0.0/22', 502 addresses in 2 private subnets",
                "600 addresses: 6 nodes x 100",
                "the VPC's CNI keeps an interface in reserve on each node, up to 50 addresses on large ones; the last "
                "nodes may find none left",
                "name a wider range, or lower nodes.max",
            )
        ],
        id="no room for it with a sixth node",
    ),
    pytest.param(
        {
            "environment": "prod",
            "skus": [
                sku(instance={"capacity": "spot"}),
                sku(name="held", instance={"capacity": "spot", "on_demand_floor": 1}),
            ],
        },
        [
            Fault(
                "skus[0].instance.on_demand_floor",
                "0",
                "1 or more, with capacity: spot in prod",
                "AWS takes spot nodes back at two minutes' notice, all of a type at once when it needs them",
                "set on_demand_floor to what must stay, or accept it",
            )
        ],
        id="spot without a floor in prod",
    ),
    pytest.param({"skus": [sku(instance={"capacity": "spot"})]}, [], id="spot in dev"),
    pytest.param(
        {"skus": [sku(instance={"capacity": "spot"})], "models": [model(drain_timeout_s=105)]},
        [
            Fault(
                "models[0].drain_timeout_s",
                "105",
                "at most 104 on SKU 'gpu' with capacity: spot",
                "a spot node is gone 120 s after its notice, 16 of which pass before Triton is told; requests that "
                "take longer fail",
                "lower it, or place the model on nodes on demand",
            )
        ],
        id="a drain that outlasts a spot node",
    ),
    pytest.param(
        {"skus": [sku(instance={"capacity": "spot"})], "models": [model(drain_timeout_s=104)]},
        [],
        id="a drain that a spot node allows",
    ),
    pytest.param(
        {
            "environment": "prod",
            "place": cluster(protect=False),
            "store": {"kind": "efs", "protect": False, "backup": False},
        },
        [
            Fault(
                setting,
                "false",
                "true in prod",
                "what is lost by a mistake in prod takes hours to make again",
                "leave it out: prod's default is true",
            )
            for setting in ("cluster.protect", "store.protect", "store.backup")
        ],
        id="prod without protection",
    ),
]


@pytest.mark.parametrize(("changes", "expected"), WARNED)
def test_warned(changes: Raw, expected: list[Fault]) -> None:
    made = draft(**changes)
    assert (list(preflight_cloud.refusals(made)), list(preflight_cloud.warnings(made))) == ([], expected)


def test_taints_are_accepted_in_either_spelling_B34() -> None:  # noqa: N802 - the report's number
    spelt = [draft(skus=[sku(taints=[{"key": "a", "effect": effect}])]) for effect in ("NoSchedule", "NO_SCHEDULE")]
    assert spelt[0].skus == spelt[1].skus
    assert [list(preflight_cloud.refusals(each)) for each in spelt] == [[], []]


def test_a_stack_that_could_be_read_in_part_is_judged_in_part() -> None:
    raw = {
        "environment": "prod",
        "cluster": cluster(access="public"),
        "store": {"kind": "nfs"},
        "skus": [sku(), {"name": "broken"}],
        "models": [model()],
    }
    made = Draft.of_raw(raw)
    assert (made.store, made.images, made.whole) == (None, None, False)
    assert list(preflight_cloud.refusals(made)) == [NO_RANGE]
