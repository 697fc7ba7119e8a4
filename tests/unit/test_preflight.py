"""Preflight: combinations of settings, and of settings and files, that cannot work; and those that work at a price."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

from fleet import preflight, settings
from fleet.faults import Fault, Refused
from fleet.preflight import Preflight

if TYPE_CHECKING:
    from pathlib import Path

CONFIG = 'name: "minilm"\nbackend: "python"\n'
FILES = {"config.pbtxt": CONFIG, "1/model.py": "", "verification.json": "{}"}


def sku(name: str = "h100", **changes: object) -> dict[str, object]:
    return {"name": name, "gpu_product": name.upper(), "gpus_per_node": 8, "nodes": {"min": 1, "max": 1}, **changes}


def place(name: str = "h100", low: int = 1, high: int = 4) -> dict[str, object]:
    return {"sku": name, "replicas": {"min": low, "max": high}}


def model(name: str = "minilm", **changes: object) -> dict[str, object]:
    return {"name": name, "version": 1, "runtime": "python", "placements": [place()], **changes}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("minilm", "mini"):
        write(tmp_path / "model_repo" / name, {**FILES, "config.pbtxt": CONFIG.replace("minilm", name)})
    return tmp_path


def write(folder: Path, files: dict[str, str]) -> None:
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)


def verdict(
    project: Path,
    skus: list[Any] | None = None,
    models: list[Any] | None = None,
    environment: str = "local",
    **more: object,
) -> Preflight:
    raw = {
        "environment": environment,
        "cluster": {"source": "kubeconfig", "kubeconfig": "kubeconfig"},
        "skus": skus or [sku()],
        "models": models or [model()],
        "images": {"triton": "triton:1", "tools": "tools:1"},
        **more,
    }
    return preflight.check(settings.load(raw, project), project)


def refused(*faults: Fault) -> Preflight:
    return Preflight(refusals=faults, warnings=())


def test_nothing_to_say(folder: Path) -> None:
    assert verdict(folder) == refused()


NO_SPARE = (
    (
        "without a spare GPU an update stops the old replica before the new one starts; for that time the SKU does not "
        "serve the model"
    ),
    "raise replicas.min, raise nodes.max, or lower a replicas.max on that SKU",
)
TABLE: list[Any] = [
    pytest.param(
        {"skus": [sku(), sku(gpu_product="OTHER")]},
        refused(
            Fault(
                "skus[1].name",
                "'h100'",
                "a name of its own",
                "skus[0] has that name, and Kubernetes objects are found by it",
                "rename one of the two",
            )
        ),
        id="two SKUs of one name",
    ),
    pytest.param(
        {"models": [model(placements=[place(high=1)]), model(placements=[place(high=1)])]},
        refused(
            Fault(
                "models[1].name",
                "'minilm'",
                "a name of its own",
                "models[0] has that name, and Kubernetes objects are found by it",
                "rename one of the two",
            )
        ),
        id="two models of one name",
    ),
    pytest.param(
        {"skus": [sku(nodes={"min": 2, "max": 1})], "models": [model(placements=[place(low=3, high=2)])]},
        refused(
            Fault(
                "skus[0].nodes.min",
                "2",
                "at most skus[0].nodes.max, which is 1",
                "there is no number of nodes between the two",
                "lower min or raise max",
            ),
            Fault(
                "models[0].placements[0].replicas.min",
                "3",
                "at most models[0].placements[0].replicas.max, which is 2",
                "there is no number of replicas between the two",
                "lower min or raise max",
            ),
        ),
        id="bounds the wrong way round",
    ),
    pytest.param(
        {"skus": [sku(gpus_per_node=0), sku("cpu", gpu_product=None, gpus_per_node=4)]},
        refused(
            Fault(
                "skus[0].gpus_per_node",
                "0",
                "1 or more",
                "the SKU has a GPU product, H100, but no GPU to run on",
                "say how many GPUs a node has, or leave gpu_product out",
            ),
            Fault(
                "skus[1].gpu_product",
                "nothing",
                "the product that the nodes' label nvidia.com/gpu.product names",
                "the SKU has 4 GPUs a node, and pods find its nodes by their product",
                "add gpu_product, or set gpus_per_node to 0",
            ),
        ),
        id="half a GPU SKU",
    ),
    pytest.param(
        {"skus": [sku(), sku("other", gpu_product="H100")]},
        refused(
            Fault(
                "skus[1].labels",
                "{'nvidia.com/gpu': 'present', 'nvidia.com/gpu.present': 'true', 'nvidia.com/gpu.product': 'H100'}",
                "labels that no other SKU has",
                "skus[0] selects the same nodes, so pods of one SKU would run on the other's and its GPUs would count "
                "twice",
                "add a label that tells the nodes apart, or make the two one SKU",
            )
        ),
        id="two SKUs of the same nodes",
    ),
    pytest.param({"skus": [sku(), sku("other", gpu_product="H100", labels={"pool": "b"})]}, refused(), id="told apart"),
    pytest.param(
        {"models": [model(runtime="vllm")]},
        refused(
            Fault(
                "models[0].runtime",
                "'vllm'",
                "on environment local: native or python",
                "local's Triton runs on CPUs and has no TensorRT-LLM and no vLLM",
                "choose another runtime, or another environment for this model",
            )
        ),
        id="a runtime that local has not",
    ),
    pytest.param({"models": [model(runtime="vllm")], "environment": "dev"}, refused(), id="dev has it"),
    pytest.param(
        {"models": [model(runtime="vllm")], "environment": "prod"},
        Preflight(
            (),
            (
                Fault(
                    "alerts.receivers",
                    "nothing",
                    "at least one receiver",
                    "alerts of prod would fire and nobody would hear of them",
                    "add one; docs/alerts.md shows how its secret is set",
                ),
            ),
        ),
        id="prod has it, and tells nobody",
    ),
    pytest.param(
        {"models": [model(shm_mib=700, resources={"cpu": 1, "memory_mib": 700})]},
        refused(
            Fault(
                "models[0].shm_mib",
                "700",
                "less than models[0].resources.memory_mib, which is 700",
                "its shared memory counts into the pod's memory, and the server needs the rest",
                "lower shm_mib or raise memory_mib",
            )
        ),
        id="shared memory fills the pod's",
    ),
    pytest.param(
        {"models": [model(placements=[place(high=1), place(high=1), place("h1000")])]},
        refused(
            Fault(
                "models[0].placements[1].sku",
                "'h100'",
                "each SKU once",
                "models[0].placements[0] places the model there already",
                "make the two one placement",
            ),
            Fault(
                "models[0].placements[2].sku",
                "'h1000'",
                "one of h100",
                "a model runs on nodes of a SKU that is configured",
                "did you mean 'h100'?",
            ),
        ),
        id="placed twice, and nowhere",
    ),
    pytest.param(
        {"models": [model(tensor_parallel=4, pipeline_parallel=4, placements=[place(high=1)])]},
        refused(
            Fault(
                "models[0].tensor_parallel",
                "4 x 4 = 16 GPUs",
                "8 GPUs",
                "the GPUs of a replica are on one node, and a node of SKU 'h100' has 8",
                "lower tensor_parallel x pipeline_parallel, or place the model on a SKU with more GPUs a node",
            )
        ),
        id="more GPUs than a node has",
    ),
    pytest.param(
        {
            "skus": [sku("cpu", gpu_product=None, gpus_per_node=0)],
            "models": [model(tensor_parallel=2, placements=[place("cpu")])],
        },
        refused(
            Fault(
                "models[0].tensor_parallel",
                "2 x 1 = 2 GPUs",
                "1 x 1",
                "SKU 'cpu' has no GPU to spread a replica over",
                "set both to 1, or place the model on a SKU with GPUs",
            )
        ),
        id="parallel without GPUs",
    ),
    pytest.param(
        {
            "skus": [sku(nodes={"min": 1, "max": 2})],
            "models": [
                model(tensor_parallel=5, placements=[place(low=2, high=2)]),
                model("mini", tensor_parallel=4, placements=[place(low=1, high=1)]),
            ],
        },
        Preflight(
            refusals=(
                Fault(
                    "skus[0].nodes.max",
                    "2 nodes of 8 GPUs; wanted at most: minilm 2 x 5, mini 1 x 4 = 14 GPUs",
                    "nodes that hold every replica of every model on SKU 'h100'",
                    "replicas above that would stay pending just when the load asks for them",
                    "raise nodes.max, or lower replicas.max of the models placed there",
                ),
            ),
            warnings=(
                Fault(
                    "models[1].placements[0].replicas.min",
                    "1",
                    "2, or GPUs that are free for one more replica (4) on SKU 'h100'",
                    *NO_SPARE,
                ),
            ),
        ),
        id="GPUs that are there but not together, and a lone replica",
    ),
    pytest.param(
        {"models": [model(placements=[place(high=8)])]},
        Preflight(
            refusals=(),
            warnings=(
                Fault(
                    "models[0].placements[0].replicas.min",
                    "1",
                    "2, or GPUs that are free for one more replica (1) on SKU 'h100'",
                    *NO_SPARE,
                ),
            ),
        ),
        id="a lone replica without a spare GPU",
    ),
    pytest.param({"models": [model(placements=[place(low=2, high=8)])]}, refused(), id="two replicas need no spare"),
    pytest.param(
        {
            "skus": [sku("cpu", gpu_product=None, gpus_per_node=0)],
            "models": [model(placements=[place("cpu", 1, 100)])],
        },
        refused(),
        id="without GPUs none is counted",
    ),
    pytest.param(
        {
            "skus": [sku("h100"), sku("lm-h100")],
            "models": [
                model(placements=[place()]),
                model("mini", placements=[place("lm-h100")]),
                model("minilm-pods", repository="model_repo/minilm", placements=[place(high=1)]),
            ],
        },
        refused(
            Fault(
                "models[2].name",
                "'minilm-pods'",
                "the name of a Service that is free",
                "model 'minilm' has a Service of that name: names are joined with hyphens, and these join to the same",
                "rename the model or the SKU",
            ),
            Fault(
                "models[2].repository",
                "'model_repo/minilm'",
                "a folder named 'minilm-pods', as models[2].name says",
                "Triton takes a model's name from its folder; clients, labels and verification use the configured one",
                "rename the folder or the model",
            ),
        ),
        id="a Service of another model's name",
    ),
    pytest.param(
        {
            "skus": [sku("lm-h100"), sku("h100", gpus_per_node=8)],
            "models": [
                model("mini", placements=[place("lm-h100")]),
                model("mini-lm", repository="model_repo/mini", placements=[place("h100")]),
            ],
        },
        refused(
            Fault(
                "models[1].placements[0].sku",
                "'mini-lm-h100'",
                "the name of a Deployment that is free",
                "model 'mini' has a Deployment of that name: names are joined with hyphens, and these join to the same",
                "rename the model or the SKU",
            ),
            Fault(
                "models[1].repository",
                "'model_repo/mini'",
                "a folder named 'mini-lm', as models[1].name says",
                "Triton takes a model's name from its folder; clients, labels and verification use the configured one",
                "rename the folder or the model",
            ),
        ),
        id="names that join to the same",
    ),
    pytest.param(
        {"skus": [sku("h" * 40)], "models": [model(placements=[place("h" * 40)])]},
        refused(
            Fault(
                "models[0].placements[0].sku",
                f"'minilm-{'h' * 40}', 47 characters",
                "46 characters for the name of the Deployment",
                "a pod's name is its host name too, at most 63 characters, and Kubernetes appends up to 17 to a "
                "Deployment's",
                "shorten the model's name or the SKU's",
            )
        ),
        id="no room for a pod's suffix",
    ),
    pytest.param(
        {"verification": {"deadline_s": 30, "check_deadline_s": 31}},
        refused(
            Fault(
                "verification.check_deadline_s",
                "31",
                "at most verification.deadline_s, which is 30",
                "a check cannot take longer than all of them",
                "lower check_deadline_s or raise deadline_s",
            )
        ),
        id="a check longer than all",
    ),
]


@pytest.mark.parametrize(("change", "expected"), TABLE)
def test_settings_that_contradict_each_other(change: dict[str, Any], expected: Preflight, folder: Path) -> None:
    assert verdict(folder, **change) == expected


REPOSITORY = "models[0].repository"
FOLDERS: list[Any] = [
    pytest.param(
        {"1/model.py": "", "verification.json": "{}"},
        Fault(
            REPOSITORY,
            "model_repo/m, without config.pbtxt",
            "a folder that holds config.pbtxt",
            "Triton learns from it what the model takes, gives and needs",
            "write model_repo/m/config.pbtxt",
        ),
        id="no config.pbtxt",
    ),
    pytest.param(
        {"config.pbtxt": 'name: "m"\nbackend "python"', "1/model.py": "", "verification.json": "{}"},
        Fault(
            REPOSITORY,
            "model_repo/m/config.pbtxt: line 2: \"python\" stands where ':' or '{' belongs",
            "protobuf text of Triton's ModelConfig, UTF-8",
            "Triton refuses to load a model whose configuration it cannot read",
            "correct model_repo/m/config.pbtxt",
        ),
        id="no protobuf text",
    ),
    pytest.param(
        {"config.pbtxt": 'name: "n" backend: "python"', "1/model.py": "", "verification.json": "{}"},
        Fault(
            REPOSITORY,
            "model_repo/m/config.pbtxt: name: 'n'",
            "'m', as the folder is named, or no name",
            "Triton refuses a model whose name differs from its folder's",
            "correct the name",
        ),
        id="another name",
    ),
    pytest.param(
        {"config.pbtxt": 'backend: "python"', "2/model.py": "", "verification.json": "{}"},
        Fault(
            "models[0].version",
            "1",
            "a version whose folder holds a file; model_repo/m has 2",
            "Triton loads a version from the folder of its number",
            "add model_repo/m/1, or name a version that is there",
        ),
        id="no folder of the version",
    ),
    pytest.param(
        {"config.pbtxt": 'backend: "python"', "01/model.py": "", "1x/model.py": "", "verification.json": "{}"},
        Fault(
            "models[0].version",
            "1",
            "a version whose folder holds a file; model_repo/m has none",
            "Triton loads a version from the folder of its number",
            "add model_repo/m/1, or name a version that is there",
        ),
        id="folders that are no versions",
    ),
    pytest.param(
        {"config.pbtxt": 'backend: "python"', "1/model.py": "", "2/model.py": "", "verification.json": "{}"},
        Fault(
            "models[0].version",
            "1",
            "a version that version_policy in model_repo/m/config.pbtxt serves",
            "the folder has 1, 2, and the policy (without one: the newest alone) leaves this one out",
            "set version_policy: { specific: { versions: [ 1 ] } }",
        ),
        id="a newer version beside it",
    ),
    pytest.param(
        {"config.pbtxt": 'platform: "onnxruntime_onnx"', "1/model.onnx": "", "verification.json": "{}"},
        Fault(
            REPOSITORY,
            "model_repo/m/config.pbtxt: backend: 'onnxruntime_onnx'",
            "'python', as runtime 'python' says",
            "the runtime decides what a replica needs, the backend what Triton loads; they must agree",
            "correct the backend or the runtime",
        ),
        id="another backend",
    ),
    pytest.param(
        {"config.pbtxt": 'backend: "python"', "1/model.py": ""},
        Fault(
            REPOSITORY,
            "model_repo/m, without verification.json",
            "a known input and its answer for each model",
            "an update is proved by an inference whose answer was computed without Triton",
            "write model_repo/m/verification.json",
        ),
        id="nothing to prove it by",
    ),
    pytest.param(
        {"config.pbtxt": 'backend: "python"', "1/model.py": "x" * 1024 * 1024, "verification.json": "{}"},
        Fault(
            REPOSITORY,
            "model_repo/m: 3 files of 1048595 bytes",
            "256 files of 1024000 bytes",
            "the files reach the store through a ConfigMap, which Kubernetes limits to 1 MiB",
            "keep weights out of the folder: put them into the image and name their path by a parameter in "
            "config.pbtxt",
        ),
        id="too large",
    ),
    pytest.param(
        {"config.pbtxt": 'backend: "python"', "1/ünï.py": "", "verification.json": "{}"},
        Fault(
            REPOSITORY,
            "'model_repo/m/1/ünï.py'",
            "names of ASCII letters, digits, '-', '_' and '.'",
            "files travel as keys of a ConfigMap, which allows no others",
            "rename the file",
        ),
        id="a name that no ConfigMap holds",
    ),
]


@pytest.mark.parametrize(("files", "fault"), FOLDERS)
def test_folders_that_cannot_be_served(files: dict[str, str], fault: Fault, tmp_path: Path) -> None:
    write(tmp_path / "model_repo" / "m", files)
    assert verdict(tmp_path, models=[model("m")]) == refused(fault)


@pytest.mark.parametrize(
    ("config", "kind"),
    [('backend: "python" instance_group [{ count: 1 kind: KIND_GPU }]', "KIND_GPU"), ('backend: "python"', None)],
)
def test_a_model_bound_to_gpus_on_nodes_without(config: str, kind: str | None, tmp_path: Path) -> None:
    write(tmp_path / "model_repo" / "m", {**FILES, "config.pbtxt": config})
    skus = [sku("cpu", gpu_product=None, gpus_per_node=0)]
    fault = Fault(
        REPOSITORY,
        f"model_repo/m/config.pbtxt: kind: {kind}",
        "KIND_CPU or KIND_AUTO",
        "the model is placed on cpu, which has no GPU",
        "correct the instance group, or place the model elsewhere",
    )
    expected = refused(fault) if kind else refused()
    assert verdict(tmp_path, skus, [model("m", placements=[place("cpu")])]) == expected


OUTSIDE = (
    "a folder inside the project, relative to it, without '..'",
    "what is served is what was reviewed: the project's own files",
    "move the model's folder into model_repo/ and name it from there",
)
LINK = (
    "files and folders, no links",
    "a link may point outside the project, and points nowhere once it is shipped",
    "put the file itself there",
)
ABSENT = (
    "a folder in Triton's model repository layout",
    "the program ships that folder into the store",
    "make the folder with config.pbtxt and a version folder in it, or correct the setting",
)


@pytest.mark.parametrize(
    ("repository", "faults"),
    [
        ("../minilm", [("'../minilm'", *OUTSIDE)]),
        ("model_repo/../../minilm", [("'model_repo/../../minilm'", *OUTSIDE)]),
        ("/etc", [("'/etc'", *OUTSIDE)]),
        (".", [("'.'", *OUTSIDE)]),
        ("model_repo/nope", [("'model_repo/nope', which is not there", *ABSENT)]),
        ("x" * 300, [(f"'{'x' * 118}…, which is not there", *ABSENT)]),
        ("\ud800", [("'\\ud800', which is not there", *ABSENT)]),
        ("model_repo/minilm/config.pbtxt", [("'model_repo/minilm/config.pbtxt', which is no folder", *ABSENT)]),
        ("model_repo/minilm/config.pbtxt/x", [("'model_repo/minilm/config.pbtxt/x', which is not there", *ABSENT)]),
        ("linked", [("'linked', a link", *LINK)]),
        ("linked/minilm", [("'linked', a link", *LINK)]),
        (
            "links/minilm",
            [("'links/minilm/1/model.py', a link", *LINK), ("'links/minilm/2', a link", *LINK)],
        ),
        (
            "pipe/minilm",
            [
                (
                    "'pipe/minilm/1/model.py', neither a file nor a folder",
                    "files and folders",
                    "the program ships contents, and a pipe, socket or device has none to ship",
                    "remove it",
                )
            ],
        ),
    ],
)
def test_folders_out_of_reach(repository: str, faults: list[tuple[str, str, str, str]], folder: Path) -> None:
    (folder / "linked").symlink_to(folder / "model_repo")
    write(folder / "links" / "minilm", {"config.pbtxt": CONFIG, "1/.keep": ""})
    (folder / "links/minilm/1/model.py").symlink_to("/etc/passwd")
    (folder / "links/minilm/2").symlink_to("/etc")
    write(folder / "pipe" / "minilm", {"config.pbtxt": CONFIG, "1/.keep": ""})
    os.mkfifo(folder / "pipe/minilm/1/model.py")
    expected = refused(*(Fault(REPOSITORY, *fault) for fault in faults))
    assert verdict(folder, models=[model(repository=repository)]) == expected


@pytest.mark.parametrize("runtime", ["tensorrt_llm", "llmapi", "vllm"])
def test_a_prepared_model_without_known_answers_is_served_and_warned_of(runtime: str, folder: Path) -> None:
    (folder / "model_repo/minilm/verification.json").unlink()
    warning = Fault(
        REPOSITORY,
        "model_repo/minilm, without verification.json",
        "a known input and its answer for each model",
        "until then an update proves that the model is ready, not that it answers rightly",
        "write model_repo/minilm/verification.json",
    )
    rules = {"waiting_requests_target": 4} if runtime == "tensorrt_llm" else {}
    served = model(runtime=runtime, autoscaling=rules)
    assert verdict(folder, models=[served], environment="dev") == Preflight((), (warning,))


def test_the_verdict_holds_what_is_said_of_clouds_memory_and_images(folder: Path) -> None:
    made = verdict(
        folder,
        [{"name": "h100", "instance": {"instance_types": ["p5.48xlarge"]}, "nodes": {"min": 0, "max": 1}}],
        [model(weights={"named": "llama-3-8b", "sequence": 10000})],
        environment="prod",
        cluster={
            "source": "eks",
            "region": "us-east-1",
            "access": "public",
            "network": {"vpc_cidr": "10.0.0.0/16"},
            "protect": False,
        },
        store={"kind": "efs"},
        images={"triton": "triton:1", "tools": "tools:1", "verification": "r/triton-fleet/verification:1"},
    )
    assert [fault.setting for fault in made.refusals] == ["cluster.public_cidrs", "images.verification"]
    assert [fault.setting for fault in made.warnings] == [
        "models[0].weights.sequence",
        "cluster.protect",
        "alerts.receivers",
    ]


def test_faults_of_settings_and_of_the_cloud_are_told_together(folder: Path) -> None:
    raw = {
        "environment": "prod",
        "cluster": {"source": "eks", "region": "us-east-1", "access": "public", "network": {"vpc_cidr": "10.0.0.0/16"}},
        "skus": [{"name": "h100", "instance": {"instance_types": ["p5.49xlarge"]}, "nodes": {"min": "0", "max": 1}}],
        "models": [model()],
        "images": {"triton": "triton:1", "tools": "tools:1"},
    }
    with pytest.raises(Refused) as told:
        settings.load(raw, folder)
    assert [fault.setting for fault in told.value.faults] == [
        "skus[0].nodes.min",
        "cluster.public_cidrs",
        "store.kind",
    ]
