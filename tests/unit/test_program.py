"""The whole program for stack `local`: what it registers, with what, and in which order."""

from __future__ import annotations

import copy
import json
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from components import access
from fleet import names, pods
from tests.unit import graph
from tests.unit.conftest import kubeconfig

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.unit.graph import Graph, Registered


@pytest.fixture(autouse=True)
def no_cluster_named_for_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(access.CLUSTER_VARIABLE, raising=False)


def texts(value: object) -> Iterator[str]:
    """All strings of a value, keys included."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from texts(key)
            yield from texts(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from texts(inner)


def selects(selector: dict[str, str], labels: dict[str, str]) -> bool:
    return selector.items() <= labels.items()


def test_registers_these_resources_and_no_others(local: Graph) -> None:
    assert sorted((one.type, one.name) for one in local.resources) == [
        ("kubernetes:apps/v1:Deployment", "minilm-a100-40gb"),
        ("kubernetes:apps/v1:Deployment", "minilm-h100-80gb"),
        ("kubernetes:autoscaling/v2:HorizontalPodAutoscaler", "minilm-a100-40gb"),
        ("kubernetes:autoscaling/v2:HorizontalPodAutoscaler", "minilm-h100-80gb"),
        ("kubernetes:batch/v1:Job", "fill-minilm"),
        ("kubernetes:core/v1:ConfigMap", "model-store-minilm"),
        ("kubernetes:core/v1:ConfigMap", "model-store-program"),
        ("kubernetes:core/v1:ConfigMap", "triton-fleet-alerts"),
        ("kubernetes:core/v1:ConfigMap", "triton-fleet-autoscaling"),
        ("kubernetes:core/v1:ConfigMap", "triton-fleet-gpus"),
        ("kubernetes:core/v1:ConfigMap", "triton-fleet-overview"),
        ("kubernetes:core/v1:ConfigMap", "triton-fleet-triton"),
        ("kubernetes:core/v1:ConfigMap", "verification"),
        ("kubernetes:core/v1:Namespace", "monitoring"),
        ("kubernetes:core/v1:Namespace", "triton-local"),
        ("kubernetes:core/v1:PersistentVolume", "triton-local-model-store"),
        ("kubernetes:core/v1:PersistentVolumeClaim", "model-store"),
        ("kubernetes:core/v1:Service", "minilm"),
        ("kubernetes:core/v1:Service", "minilm-pods"),
        ("kubernetes:helm.sh/v3:Release", "dcgm-exporter"),
        ("kubernetes:helm.sh/v3:Release", "kube-prometheus-stack"),
        ("kubernetes:helm.sh/v3:Release", "metrics-server"),
        ("kubernetes:helm.sh/v3:Release", "node-feature-discovery"),
        ("kubernetes:helm.sh/v3:Release", "nvidia-device-plugin"),
        ("kubernetes:helm.sh/v3:Release", "prometheus-adapter"),
        ("kubernetes:monitoring.coreos.com/v1:PodMonitor", "triton"),
        ("kubernetes:monitoring.coreos.com/v1:PrometheusRule", "triton-alerts"),
        ("kubernetes:monitoring.coreos.com/v1:PrometheusRule", "triton-recording"),
        ("kubernetes:networking.k8s.io/v1:NetworkPolicy", "deny-all"),
        ("kubernetes:networking.k8s.io/v1:NetworkPolicy", "dns"),
        ("kubernetes:networking.k8s.io/v1:NetworkPolicy", "triton"),
        ("kubernetes:networking.k8s.io/v1:NetworkPolicy", "verification"),
        ("kubernetes:policy/v1:PodDisruptionBudget", "minilm"),
        ("pulumi-python:dynamic/triton-fleet:Rollout", "minilm-a100-40gb"),
        ("pulumi-python:dynamic/triton-fleet:Rollout", "minilm-h100-80gb"),
        ("pulumi-python:dynamic/triton-fleet:Verification", "verification"),
        ("pulumi:providers:kubernetes", "cluster"),
        ("triton-fleet:cluster:GpuCluster", "cluster"),
        ("triton-fleet:gpu:GpuStack", "gpus"),
        ("triton-fleet:monitoring:Dashboards", "dashboards"),
        ("triton-fleet:monitoring:Monitoring", "monitoring"),
        ("triton-fleet:monitoring:TritonRules", "rules"),
        ("triton-fleet:serving:ServingNamespace", "serving"),
        ("triton-fleet:serving:TritonFleet", "fleet"),
        ("triton-fleet:serving:TritonSku", "minilm-a100-40gb"),
        ("triton-fleet:serving:TritonSku", "minilm-h100-80gb"),
        ("triton-fleet:store:ModelStore", "model-store"),
        ("triton-fleet:verification:Verification", "verification"),
    ]


def test_each_kubernetes_resource_uses_the_stacks_own_provider(local: Graph) -> None:
    (provider,) = local.of(graph.PROVIDER)
    assert {one.urn: one.provider for one in local.resources if one.is_kubernetes} == {
        one.urn: provider.urn for one in local.resources if one.is_kubernetes
    }


def test_each_resource_belongs_to_a_component(local: Graph) -> None:
    components = {one.urn for one in local.resources if one.type.startswith("triton-fleet:")}
    outside = [one.urn for one in local.resources if one.urn not in components and one.parent not in components]
    assert outside == []


def namespace_of(one: Registered) -> str | None:
    """None for an object of the cluster."""
    found = one.inputs if one.type == graph.RELEASE else one.inputs["metadata"]
    return found.get("namespace")


def test_each_object_is_in_a_namespace_of_the_stacks_or_the_clusters(local: Graph) -> None:
    found = {(one.type, namespace_of(one)) for one in local.resources if one.is_kubernetes}
    assert {kind for kind, namespace in found if namespace is None} == {graph.NAMESPACE, graph.VOLUME}
    assert {kind for kind, namespace in found if namespace == "monitoring"} == {graph.RELEASE, graph.CONFIG_MAP}
    assert {kind for kind, namespace in found if namespace == "kube-system"} == {graph.RELEASE}
    assert {namespace for _, namespace in found} == {None, "monitoring", "kube-system", "triton-local"}


def test_objects_go_before_what_they_need_when_the_stack_is_destroyed_b37(local: Graph) -> None:
    for namespace in local.of(graph.NAMESPACE):
        early = [
            one.urn
            for one in local.resources
            if one.is_kubernetes and namespace_of(one) == namespace.name and namespace.urn not in local.behind(one)
        ]
        assert early == []
    claim, (volume,) = local.of(graph.CLAIM)[0], local.of(graph.VOLUME)
    assert volume.urn in local.behind(claim)


def test_verification_is_behind_everything(local: Graph) -> None:
    (proof,) = local.of(graph.VERIFICATION)
    others = {one.urn for one in local.resources if one.is_kubernetes or one.type == graph.ROLLOUT}
    assert local.behind(proof) >= others
    assert [one.urn for one in local.resources if proof.urn in local.behind(one)] == []


def test_skus_of_a_model_are_updated_one_after_the_other_b18(local: Graph) -> None:
    """The second Deployment is touched when every replica of the first is new and Ready."""
    first, second = local.of(graph.DEPLOYMENT)
    first_ready, second_ready = local.of(graph.ROLLOUT)
    assert local.behind(second) >= {first.urn, first_ready.urn}
    assert local.behind(second_ready) >= {second.urn}
    assert not local.behind(first) & {second.urn, second_ready.urn}


def test_triton_starts_when_its_model_is_in_the_store_and_its_policies_stand(local: Graph) -> None:
    for deployment in local.of(graph.DEPLOYMENT):
        behind = local.behind(deployment)
        assert local.one(graph.JOB, "fill-minilm").urn in behind
        assert {policy.urn for policy in local.of(graph.POLICY)} <= behind


def test_no_description_of_an_output_got_into_a_string_b41(local: Graph, project: Path, config: dict[str, Any]) -> None:
    for run in (local, graph.run(project, without_cluster(config))):
        for one in run.resources:
            assert [text for text in texts(one.inputs) if "Output object at" in text or "__str__" in text] == []


def test_the_plan_without_a_cluster_is_that_with_one_b09(
    local: Graph, project: Path, config: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", "/nowhere")
    planned = graph.run(project, without_cluster(config))
    assert sorted(one.urn for one in planned.resources) == sorted(one.urn for one in local.resources)
    assert planned.warnings == ("kubeconfig is not there yet: this is the plan of a first update",)


def without_cluster(config: dict[str, Any]) -> dict[str, Any]:
    return {**config, "cluster": {"source": "kubeconfig", "kubeconfig": "not/there/kubeconfig"}}


def test_the_kubeconfig_is_a_secret_wherever_it_goes(local: Graph) -> None:
    holders = [one for one in local.resources if any("canary-token" in text for text in texts(one.inputs))]
    assert sorted(one.type for one in holders) == [graph.ROLLOUT, graph.ROLLOUT, graph.VERIFICATION, graph.PROVIDER]
    for one in holders:
        open_part = {
            key: value for key, value in one.inputs.items() if not (isinstance(value, dict) and graph.SECRET in value)
        }
        assert not any("canary-token" in text for text in texts(open_part))


@pytest.mark.parametrize(
    ("load_timeout_s", "budget_s"),
    [(60, 60), (1800, 1800), (7200, 7200)],
)
def test_nothing_gives_up_before_a_model_may_have_loaded_b11_b39(
    project: Path, config: dict[str, Any], load_timeout_s: int, budget_s: int
) -> None:
    changed = copy.deepcopy(config)
    changed["models"][0]["load_timeout_s"] = load_timeout_s
    run = graph.run(project, changed)
    for one in run.of(graph.DEPLOYMENT):
        (container,) = one.inputs["spec"]["template"]["spec"]["containers"]
        probe = container["startupProbe"]
        assert probe["periodSeconds"] * probe["failureThreshold"] >= budget_s
        assert one.inputs["spec"]["progressDeadlineSeconds"] > budget_s
        waited = run.one(graph.ROLLOUT, one.name).inputs
        assert (waited["namespace"], waited["deployment"]) == ("triton-local", one.inputs["metadata"]["name"])
        assert waited["deadline_s"] >= one.inputs["spec"]["progressDeadlineSeconds"]


def test_the_provider_waits_for_neither_services_nor_deployments_b39(local: Graph) -> None:
    waits = {
        one.inputs["metadata"]["annotations"]["pulumi.com/skipAwait"]
        for kind in (graph.SERVICE, graph.DEPLOYMENT)
        for one in local.of(kind)
    }
    assert waits == {"true"}


def test_an_update_is_waited_for_again_when_its_deployment_changed(
    project: Path, config: dict[str, Any], local: Graph
) -> None:
    changed = copy.deepcopy(config)
    changed["images"]["triton"] = "triton-fleet.local/triton:2.99.0-cpu"
    longer = copy.deepcopy(config)
    longer["verification"] = {"deadline_s": 700}

    def digests(run: Graph) -> list[str]:
        return [one.inputs["digest"] for one in run.of(graph.ROLLOUT)]

    assert digests(graph.run(project, longer, preview=False)) == digests(local)
    assert not set(digests(graph.run(project, changed, preview=False))) & set(digests(local))
    assert not set(digests(graph.run(project, config, preview=False, generation=3))) & set(digests(local))


def test_selectors_and_names_survive_another_image_and_model_version_b49(
    project: Path, config: dict[str, Any], local: Graph, tmp_path: Path
) -> None:
    changed = copy.deepcopy(config)
    changed["images"]["triton"] = "triton-fleet.local/triton:2.99.0-cpu"
    changed["models"][0]["version"] = 2
    changed["models"][0]["repository"] = "model_repo/minilm"
    other = copy_of_project(project, tmp_path)
    (other / "model_repo/minilm/2").mkdir()
    (other / "model_repo/minilm/2/model.py").write_text("# version 2\n")
    updated = graph.run(other, changed, preview=False)

    def stable(run: Graph) -> dict[str, Any]:
        return {
            one.urn: one.inputs["spec"].get("selector")
            for kind in (graph.DEPLOYMENT, graph.SERVICE, graph.BUDGET)
            for one in run.of(kind)
        }

    assert stable(updated) == stable(local)
    before, after = (run.one(graph.DEPLOYMENT, "minilm-a100-40gb") for run in (local, updated))
    assert before.inputs["spec"]["template"] != after.inputs["spec"]["template"]


def copy_of_project(project: Path, target: Path) -> Path:
    """The program with its model repository, for a test to change."""
    import shutil  # noqa: PLC0415

    for folder in ("model_repo", "services"):
        shutil.copytree(project / folder, target / folder, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(project / "__main__.py", target)
    (target / "local" / "charts").mkdir(parents=True)
    return target


def test_no_selector_of_a_workload_matches_anothers_pods(local: Graph) -> None:
    pods_of = {one.name: template["metadata"]["labels"] for one, template in local.pods()}
    for deployment in local.of(graph.DEPLOYMENT):
        selector = deployment.inputs["spec"]["selector"]["matchLabels"]
        assert [name for name, labels in pods_of.items() if selects(selector, labels)] == [deployment.name]
    for kind in (graph.SERVICE, graph.BUDGET):
        for one in local.of(kind):
            chosen = one.inputs["spec"]["selector"]
            matched = [name for name, labels in pods_of.items() if selects(chosen.get("matchLabels", chosen), labels)]
            assert sorted(matched) == ["minilm-a100-40gb", "minilm-h100-80gb"]


def test_component_triton_stands_on_tritons_pods_alone(local: Graph) -> None:
    carriers = [
        one.name
        for one, template in local.pods()
        if template["metadata"]["labels"][names.LABEL_COMPONENT] == names.Component.TRITON
    ]
    assert carriers == ["minilm-a100-40gb", "minilm-h100-80gb"]


def test_each_pod_is_restricted(local: Graph) -> None:
    for _, template in local.pods():
        spec = template["spec"]
        assert spec["automountServiceAccountToken"] is False
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert {volume_kind for volume in spec["volumes"] for volume_kind in volume if volume_kind != "name"} <= {
            "configMap",
            "emptyDir",
            "persistentVolumeClaim",
        }
        for container in spec["containers"]:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }
            assert container["terminationMessagePolicy"] == "FallbackToLogsOnError"


def test_only_what_fills_the_store_may_write_to_it_b33(local: Graph) -> None:
    written: dict[str, Any] = {}
    for one, template in local.pods():
        spec = template["spec"]
        assert (spec["securityContext"]["runAsUser"], spec["securityContext"]["runAsGroup"]) == (1000, 1000)
        (volume,) = [volume for volume in spec["volumes"] if volume["name"] == "store"]
        (mount,) = [mount for mount in spec["containers"][0]["volumeMounts"] if mount["name"] == "store"]
        written[one.name] = (volume["persistentVolumeClaim"]["readOnly"], mount["readOnly"])
    assert written == {
        "fill-minilm": (False, False),
        "minilm-a100-40gb": (True, True),
        "minilm-h100-80gb": (True, True),
    }
    (volume,), (claim,) = local.of(graph.VOLUME), local.of(graph.CLAIM)
    spec = volume.inputs["spec"]
    assert (spec["accessModes"], spec["persistentVolumeReclaimPolicy"]) == (["ReadWriteMany"], "Retain")
    assert (claim.inputs["spec"]["volumeName"], claim.inputs["spec"]["storageClassName"]) == (
        volume.inputs["metadata"]["name"],
        spec["storageClassName"],
    )
    assert (spec["claimRef"]["namespace"], spec["claimRef"]["name"]) == ("triton-local", "model-store")


def digest_of(run: Graph) -> str:
    (proof,) = run.of(graph.VERIFICATION)
    return str(proof.inputs["digest"])


def test_verification_runs_exactly_when_what_it_verifies_changed(
    project: Path, config: dict[str, Any], local: Graph, tmp_path: Path
) -> None:
    longer = copy.deepcopy(config)
    longer["verification"] = {"deadline_s": 700}
    other_image = copy.deepcopy(config)
    other_image["images"]["triton"] = "triton-fleet.local/triton:2.99.0-cpu"
    other_model = copy_of_project(project, tmp_path)
    model = other_model / "model_repo/minilm/1/model.py"
    model.write_text(model.read_text() + "\n# changed\n")
    same = digest_of(local)
    assert {
        "again": digest_of(graph.run(project, config, preview=False)) == same,
        "another deadline": digest_of(graph.run(project, longer, preview=False)) == same,
        "another image": digest_of(graph.run(project, other_image, preview=False)) == same,
        "another model": digest_of(graph.run(other_model, config, preview=False)) == same,
        "taken back after a failure": digest_of(graph.run(project, config, preview=False, generation=3)) == same,
    } == {
        "again": True,
        "another deadline": True,
        "another image": False,
        "another model": False,
        "taken back after a failure": False,
    }


def test_all_faults_are_told_at_once_and_nothing_is_registered_b42(project: Path, config: dict[str, Any]) -> None:
    broken = copy.deepcopy(config)
    broken["skus"][0]["nodes"]["min"] = "two"
    broken["skus"][1]["taints"] = {"key": "nvidia.com/gpu"}
    broken["skus"][1]["node_gruop"] = "a"
    broken["models"][0]["placements"][0]["sku"] = "a100"
    with pytest.raises(graph.Refusal) as refusal:
        graph.run(project, broken)
    told = str(refusal.value)
    for path in ("skus[0].nodes.min", "skus[1].taints", "skus[1].node_gruop", "models[0].placements[0].sku"):
        assert f" {path}\n" in told
    assert refusal.value.registered == 0


def test_a_model_whose_configured_name_is_another_is_refused_b47(
    project: Path, config: dict[str, Any], tmp_path: Path
) -> None:
    other = copy_of_project(project, tmp_path)
    file = other / "model_repo/minilm/config.pbtxt"
    file.write_text(file.read_text().replace('name: "minilm"', 'name: "minilm2"'))
    with pytest.raises(graph.Refusal, match="name: 'minilm2'") as refusal:
        graph.run(other, config)
    assert refusal.value.registered == 0


def test_known_answers_that_do_not_fit_their_shape_are_refused(
    project: Path, config: dict[str, Any], tmp_path: Path
) -> None:
    other = copy_of_project(project, tmp_path)
    file = other / "model_repo/minilm/verification.json"
    known = json.loads(file.read_text())
    known["cases"][0]["inputs"][0]["shape"] = [2, 1]
    del known["cases"][0]["source"]
    file.write_text(json.dumps(known))
    with pytest.raises(graph.Refusal) as refusal:
        graph.run(other, config)
    assert "shape [2, 1] holds 2 values, not 1" in str(refusal.value)
    assert "cases[0].source: Field required" in str(refusal.value)
    assert refusal.value.registered == 0


def closed_port() -> int:
    import socket  # noqa: PLC0415

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (None, "which is not there"),
        ("just text", "it is no kubeconfig"),
        ("current-context: gone\ncontexts: []\n", "it has no context named 'gone'"),
        ("a: [", "while parsing"),
        ("server", "Connection refused"),
    ],
)
def test_a_cluster_named_for_the_run_that_cannot_be_used_is_refused(  # noqa: PLR0913, PLR0917 - a table of cases
    project: Path,
    config: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    content: str | None,
    told: str,
) -> None:
    named = tmp_path / "kubeconfig"
    if content is not None:
        named.write_text(kubeconfig(f"http://127.0.0.1:{closed_port()}") if content == "server" else content)
    monkeypatch.setenv(access.CLUSTER_VARIABLE, str(named))
    with pytest.raises(graph.Refusal) as refusal:
        graph.run(project, config)
    assert access.CLUSTER_VARIABLE in str(refusal.value)
    assert told in str(refusal.value)
    assert refusal.value.registered == 0


def test_an_update_without_its_cluster_is_refused(project: Path, config: dict[str, Any]) -> None:
    with pytest.raises(graph.Refusal, match=r"cluster\.kubeconfig") as refusal:
        graph.run(project, without_cluster(config), preview=False)
    assert refusal.value.registered == 0


def test_only_the_current_context_of_a_kubeconfig_goes_into_the_state(tmp_path: Path) -> None:
    (tmp_path / "ca.crt").write_bytes(b"certificate")
    config = yaml.safe_load(kubeconfig("https://a"))
    config["clusters"][0]["cluster"]["certificate-authority"] = "ca.crt"
    config["clusters"].append({"name": "other", "cluster": {"server": "https://b"}})
    config["users"].append({"name": "other", "user": {"token": "canary"}})
    assert yaml.safe_load(access.minified(config, tmp_path)) == {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "here", "user": "me"}}],
        "clusters": [
            {"name": "here", "cluster": {"server": "https://a", "certificate-authority-data": "Y2VydGlmaWNhdGU="}}
        ],
        "users": [{"name": "me", "user": {"token": "canary-token"}}],
    }


def test_config_maps_that_follow_their_content_are_made_anew_under_stable_names(
    project: Path, config: dict[str, Any], local: Graph, tmp_path: Path
) -> None:
    other = copy_of_project(project, tmp_path)
    (other / "model_repo/minilm/1/extra.txt").write_text("more")
    changed = graph.run(other, config, preview=False)
    names_of = [
        {one.name: one.inputs["metadata"]["name"] for kind in (graph.CONFIG_MAP, graph.JOB) for one in run.of(kind)}
        for run in (local, changed)
    ]
    assert {name for name in names_of[0] if names_of[0][name] != names_of[1][name]} == {
        "fill-minilm",
        "model-store-minilm",
    }
    followers = [name for name, own in names_of[1].items() if name != own]
    assert sorted(followers) == ["fill-minilm", "model-store-minilm", "model-store-program", "verification"]
    assert all(len(names_of[1][name].rpartition("-")[2]) == pods.DIGEST_CHARS for name in followers)


def test_a_job_that_failed_is_made_anew_by_the_next_update_b40(local: Graph) -> None:
    assert [one.inputs["metadata"]["annotations"] for one in local.of(graph.JOB)] == [
        {"pulumi.com/replaceUnready": "true"}
    ]


def test_the_store_is_given_the_time_in_which_its_pods_drain_b37(project: Path, config: dict[str, Any]) -> None:
    changed = copy.deepcopy(config)
    changed["models"][0]["drain_timeout_s"] = 3600
    run = graph.run(project, changed)
    (claim,) = run.of(graph.CLAIM)
    grace = run.of(graph.DEPLOYMENT)[0].inputs["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
    assert int(claim.timeouts["delete"].removesuffix("s")) > grace > 3600
