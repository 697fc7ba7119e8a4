"""A model's `verification.json`: known inputs and their answers, computed without Triton.

`{"cases": [{"inputs": [{"name", "datatype", "shape", "data"}], "output", "expected", "tolerance", "source"}]}`, or one
such case alone. `data` and `expected` are flat, in row-major order; `tolerance` is the largest absolute difference of a
number.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from fleet.faults import Fault, path_text
from fleet.model_repository import VERIFICATION_FILE

if TYPE_CHECKING:
    from fleet.model_repository import ModelFolder

Datatype = Literal[
    "BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64", "FP16", "FP32", "FP64", "BYTES"
]
"""Data types of the inference protocol (KServe, version 2) that JSON can say."""
Value = bool | int | float | str
Name = Annotated[str, Field(min_length=1)]


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Input(_Strict):
    """One input tensor."""

    name: Name
    datatype: Datatype
    shape: tuple[Annotated[int, Field(ge=1)], ...]
    data: tuple[Value, ...]

    @model_validator(mode="after")
    def _whole(self) -> Input:
        if math.prod(self.shape) != len(self.data):
            raise ValueError(f"shape {list(self.shape)} holds {math.prod(self.shape)} values, not {len(self.data)}")
        return self


class Case(_Strict):
    """One known input and what the model must answer."""

    inputs: Annotated[tuple[Input, ...], Field(min_length=1)]
    output: Name
    expected: Annotated[tuple[Value, ...], Field(min_length=1)]
    tolerance: Annotated[float, Field(ge=0)]
    source: Name

    def request(self) -> dict[str, Any]:
        """What a load asks with (`fleet.load.plan.Plan.case`): what an input looks like, how much an answer holds."""
        inputs = [one.model_dump(mode="json") for one in self.inputs]
        return {"inputs": inputs, "output": self.output, "values": len(self.expected)}


class KnownAnswers(_Strict):
    """All known answers of a model."""

    cases: Annotated[tuple[Case, ...], Field(min_length=1)]

    @model_validator(mode="before")
    @classmethod
    def _one_alone(cls, data: object) -> object:
        return {"cases": [data]} if isinstance(data, dict) and "cases" not in data else data


def read(folder: ModelFolder) -> tuple[KnownAnswers | None, list[Fault]]:
    """The known answers of a model, or all that is wrong with them; neither without the file, which is preflight's."""
    if folder.verification is None:
        return None, []
    try:
        return KnownAnswers.model_validate_json(folder.verification), []
    except ValidationError as error:
        return None, [
            Fault(
                setting=f"{folder.name}/{VERIFICATION_FILE}",
                got=f"{path_text(detail['loc']) or 'the file'}: {detail['msg']}",
                limit="cases of inputs, output, expected, tolerance and source",
                why="an update is proved by an inference whose answer was computed without Triton",
                fix=f"correct {VERIFICATION_FILE} in the model's folder",
            )
            for detail in error.errors()
        ]
