"""What a rehearsal substitutes, and that it says so."""

from __future__ import annotations

from rehearsal import overlay

MODEL = {
    "name": "minilm",
    "runtime": "python",
    "autoscaling": {"scale_down": {"window_s": 60}},
    "placements": [{"sku": "elsewhere"}],
}
IMAGES = {"triton": "local/triton:1", "tools": "local/tools:1", "pull_policy": "Never"}
CONFIG = {
    "triton-fleet:environment": "prod",
    "triton-fleet:skus": [{"name": "a100"}, {"name": "h100"}],
    "triton-fleet:models": [
        {"name": "llama", "placements": [{"sku": "a100", "replicas": {"min": 1, "max": 2}}, {"sku": "h100"}]},
        {"name": "small", "placements": [{"sku": "a100", "replicas": {"min": 2, "max": 3}}]},
    ],
    "triton-fleet:images": {"triton": "registry/triton@sha256:1", "pull_secrets": ["s"]},
    "triton-fleet:charts": {"overrides": {"x": {"version": "1"}}, "compat": "guide"},
    "triton-fleet:monitoring": {"retention_days": 30, "storage": {"size_gib": 9}, "prometheus_memory_mib": 9000},
}


def test_the_small_model_stands_where_every_model_stood_and_it_is_said() -> None:
    by = overlay.Substitutes.of({"triton-fleet:models": [MODEL], "triton-fleet:images": IMAGES})
    config, said = overlay.substitute(CONFIG, by)
    assert config == {
        **CONFIG,
        "triton-fleet:models": [
            {
                "name": "minilm",
                "runtime": "python",
                "placements": [
                    {"sku": "a100", "replicas": {"min": 3, "max": 5}},
                    {"sku": "h100", "replicas": {"min": 1, "max": 1}},
                ],
            }
        ],
        "triton-fleet:images": {"pull_secrets": ["s"], **IMAGES},
        "triton-fleet:charts": {
            "overrides": {"x": {"version": "1"}},
            "mirror": "local/charts",
            "compat": "current",
        },
        "triton-fleet:monitoring": {"retention_days": 30, "prometheus_memory_mib": 400},
    }
    assert said == [
        "model: minilm (python) in place of llama, small, on a100, h100; GPUs are simulated",
        "image tools: local/tools:1 in place of the default",
        "image triton: local/triton:1 in place of registry/triton@sha256:1",
        "charts: light ones from local/charts; their programs are stand-ins where they need an account",
        "monitoring: 400 MiB for Prometheus, and no disk of EBS, which is not played",
    ]


def test_the_small_model_scales_as_the_stacks_first_does() -> None:
    by = overlay.Substitutes.of({"triton-fleet:models": [MODEL], "triton-fleet:images": IMAGES})
    first, *others = CONFIG["triton-fleet:models"]
    slow = {**first, "autoscaling": {"enabled": False}}
    config, _ = overlay.substitute({**CONFIG, "triton-fleet:models": [slow, *others]}, by)
    assert config["triton-fleet:models"][0]["autoscaling"] == {"enabled": False}
