"""The simulator's PromQL against the real one: the same samples and the same rules, evaluated by promtool."""

from __future__ import annotations

import json
import math
import random
import subprocess
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from fleet import autoscaling, recording
from fleet.simulate import promql
from fleet.simulate.observed import METRICS
from tests.unit import graph

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SAMPLES = 40
STEP_S = 10


def series(seed: int) -> dict[str, list[float | None]]:
    """Counters and gauges of four pods: idle, busy, restarted, stuck; some scrapes missed."""
    chance = random.Random(seed)  # noqa: S311 - samples, the same each time
    found: dict[str, list[float | None]] = {}
    for pod in ("idle", "busy", "restarted", "stuck"):
        labels = f'job="triton-local/triton",environment="local",pod="{pod}",sku="s",deployed_model="m"'
        for metric in METRICS:
            total, values = chance.randrange(1000), list[float | None]()
            for index in range(SAMPLES):
                if pod == "restarted" and index == SAMPLES // 2:
                    total = 0
                if "pending" in metric:
                    total = {"idle": 0, "stuck": 5}.get(pod, chance.randrange(4))
                elif pod in ("busy", "restarted") or (pod == "stuck" and index < 5):
                    total += chance.randrange(1_000_000 if metric.endswith("_us") else 20)
                values.append(None if chance.random() < 0.1 else total)
            found[f'{metric}{{{labels},model="m",version="1"}}'] = values
    return found


def labels_of(text: str) -> tuple[str, promql.Labels]:
    name, _, rest = text.partition("{")
    pairs = (pair.partition("=") for pair in rest.rstrip("}").split(",") if pair)
    return name, frozenset((key, value.strip('"')) for key, _, value in pairs)


@pytest.mark.parametrize("seed", range(3))
def test_the_autoscalers_rules_give_what_promtool_says(
    tool: Callable[[str], str], tmp_path: Path, project: Path, seed: int
) -> None:
    given = series(seed)
    storage = promql.Storage()
    for text, values in given.items():
        name, labels = labels_of(text)
        for index, value in enumerate(values):
            if value is not None:
                storage.add(name, labels, index * STEP_S, value)
    settings = graph.local_settings(project)
    rules = {
        rule["record"]: rule["expr"]
        for group in recording.rules(settings)["spec"]["groups"]
        for rule in group["rules"]
        if rule["record"] in (*recording.PER_POD, recording.PENDING)
    }
    assert autoscaling.RATIO in rules
    expected = []
    for expr in rules.values():
        for now in range(STEP_S, SAMPLES * STEP_S, 7 * STEP_S):
            found = promql.query(expr).at(storage, float(now))
            samples: list[dict[str, Any]] = [
                {"labels": _written(dict(labels)), "value": math.floor(value * 1000 + 0.5) / 1000}
                for labels, value in found.items()
            ]
            # Sums are added in another order there: the last of sixteen digits differs.
            expected.append({"expr": f"round({expr}, 0.001)", "eval_time": f"{now}s", "exp_samples": samples})
    assert any(sample["value"] > 0 for one in expected for sample in one["exp_samples"])
    test = {
        "rule_files": [],
        "tests": [
            {
                "interval": f"{STEP_S}s",
                "input_series": [
                    {"series": text, "values": " ".join("_" if value is None else f"{value}" for value in values)}
                    for text, values in given.items()
                ],
                "promql_expr_test": expected,
            }
        ],
    }
    path = tmp_path / "test.yaml"
    path.write_text(yaml.safe_dump(json.loads(json.dumps(test))))
    done = subprocess.run([tool("promtool"), "test", "rules", str(path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]


def _written(labels: dict[str, str]) -> str:
    name = labels.pop("__name__", "")
    return f"{name}{{{','.join(f'{key}={json.dumps(value)}' for key, value in sorted(labels.items()))}}}"
