"""What Triton's Python backend loads: requests in, embeddings out. The computing is in embedding.py."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import triton_python_backend_utils as pb  # put on the path by the backend
from embedding import Embedder


class TritonPythonModel:
    """One instance of the model; the backend gives it a process of its own."""

    def initialize(self, args: dict[str, str]) -> None:
        parameters = json.loads(args["model_config"])["parameters"]
        self.embedder = Embedder(Path(parameters["weights"]["string_value"]))

    def execute(self, requests: list[Any]) -> list[Any]:
        """Answers all requests with one batch; a text that is not UTF-8 fails its own request only."""
        answers: list[Any] = [None] * len(requests)
        texts: list[str] = []
        spans: dict[int, slice] = {}
        for index, request in enumerate(requests):
            data = pb.get_input_tensor_by_name(request, "TEXT").as_numpy().reshape(-1)
            try:
                decoded = [text.decode() for text in data]
            except UnicodeDecodeError as error:
                answers[index] = pb.InferenceResponse(error=pb.TritonError(f"TEXT must be UTF-8: {error}"))
                continue
            spans[index] = slice(len(texts), len(texts) + len(decoded))
            texts += decoded
        embeddings = self.embedder.embed(texts)
        for index, span in spans.items():
            answers[index] = pb.InferenceResponse([pb.Tensor("EMBEDDING", embeddings[span])])
        return answers
