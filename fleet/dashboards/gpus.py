"""GPUs, by SKU and each by itself."""

from __future__ import annotations

from typing import Final

from fleet.alert_names import Alert
from fleet.dashboards.grafana import Column, Dashboard, Panel, Query, Row, Threshold, Variable
from fleet.dashboards.shared import BY, FLEET_VARIABLES, MEMORY_HIGH, page

TEMPERATURE_WARM_C: Final = 80
TEMPERATURE_HOT_C: Final = 87
"""Choices of this program, warm and hot for any GPU of a data center. Each has limits of its own: `nvidia-smi -q`."""

_GPU: Final = 'modelName=~"$product"'
_GPU_BY: Final = "by (Hostname, hostname, gpu, modelName)"
"""dcgm-exporter renamed the label of the node after 4.8.2: https://github.com/NVIDIA/dcgm-exporter/pull/655"""
_GPU_NAME: Final = "{{Hostname}}{{hostname}} GPU {{gpu}}, {{modelName}}"

GPUS: Final = Dashboard(
    "triton-fleet-gpus",
    "Triton Fleet: GPUs",
    "What dcgm-exporter measures, by SKU and by GPU.",
    (
        Row(
            "GPUs of the fleet, by SKU",
            (
                Panel(
                    "Utilization",
                    "Part of the time in which a kernel runs, mean over the GPUs that pods of Triton hold.",
                    (Query('triton_fleet:gpu_utilization:ratio{namespace=~"$namespace",sku=~"$sku"}', BY),),
                    "percentunit",
                    width=8,
                    most=1,
                ),
                Panel(
                    "Memory in use",
                    "Part of the memory, mean of the same GPUs. Runtimes of language models take most of it at once.",
                    (Query('triton_fleet:gpu_memory_used:ratio{namespace=~"$namespace",sku=~"$sku"}', BY),),
                    "percentunit",
                    width=8,
                    most=1,
                    thresholds=(Threshold(MEMORY_HIGH, "orange"),),
                ),
                Panel(
                    "GPUs held",
                    "By pods of Triton.",
                    (Query('triton_fleet:gpus:count{namespace=~"$namespace",sku=~"$sku"}', BY),),
                    "short",
                    width=8,
                    decimals=0,
                ),
            ),
        ),
        Row(
            "Every GPU",
            (
                Panel(
                    "Utilization",
                    "Part of the time in which a kernel runs.",
                    (Query(f"max {_GPU_BY} (DCGM_FI_DEV_GPU_UTIL{{{_GPU}}})", _GPU_NAME),),
                    "percent",
                    most=100,
                ),
                Panel(
                    "Memory in use",
                    "Part of the memory.",
                    (
                        Query(
                            f"max {_GPU_BY} (DCGM_FI_DEV_FB_USED{{{_GPU}}}) / (max {_GPU_BY} "
                            f"(DCGM_FI_DEV_FB_USED{{{_GPU}}}) + max {_GPU_BY} (DCGM_FI_DEV_FB_FREE{{{_GPU}}}))",
                            _GPU_NAME,
                        ),
                    ),
                    "percentunit",
                    most=1,
                    thresholds=(Threshold(MEMORY_HIGH, "orange"),),
                ),
                Panel(
                    "Temperature",
                    "Of the chip. Above its own limit a GPU slows down.",
                    (Query(f"max {_GPU_BY} (DCGM_FI_DEV_GPU_TEMP{{{_GPU}}})", _GPU_NAME),),
                    "celsius",
                    least=None,
                    thresholds=(Threshold(TEMPERATURE_WARM_C, "orange"), Threshold(TEMPERATURE_HOT_C, "red")),
                ),
                Panel(
                    "Power",
                    "Drawn now.",
                    (Query(f"max {_GPU_BY} (DCGM_FI_DEV_POWER_USAGE{{{_GPU}}})", _GPU_NAME),),
                    "watt",
                ),
                Panel(
                    "Last XID error",
                    "The number of the last error that the driver reported; 0 is none.",
                    (Query(f"max {_GPU_BY} (DCGM_FI_DEV_XID_ERRORS{{{_GPU}}})", _GPU_NAME),),
                    "none",
                    decimals=0,
                    thresholds=(Threshold(1, "red"),),
                    links=(page(Alert.GPU_XID_ERRORS),),
                ),
                Panel(
                    "Memory rows",
                    "Rows that were remapped after errors that could not be corrected, and whether remapping failed.",
                    (
                        Query(
                            f"max {_GPU_BY} (DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS{{{_GPU}}})",
                            f"remapped: {_GPU_NAME}",
                        ),
                        Query(f"max {_GPU_BY} (DCGM_FI_DEV_ROW_REMAP_FAILURE{{{_GPU}}})", f"failed: {_GPU_NAME}"),
                    ),
                    "short",
                    decimals=0,
                    thresholds=(Threshold(1, "red"),),
                    links=(page(Alert.GPU_ECC_ERRORS),),
                ),
                Panel(
                    "Who holds which GPU",
                    "Free GPUs have no pod.",
                    (
                        Query(
                            "max by (Hostname, hostname, gpu, modelName, exported_namespace, exported_pod) "
                            f"(DCGM_FI_DEV_GPU_UTIL{{{_GPU}}})"
                        ),
                    ),
                    "percent",
                    "table",
                    width=24,
                    columns=(
                        Column("Hostname", "Node"),
                        Column("hostname", "Node (exporter after 4.8.2)"),
                        Column("gpu", "GPU"),
                        Column("modelName", "Product"),
                        Column("exported_namespace", "Namespace"),
                        Column("exported_pod", "Pod"),
                        Column("A", "Utilization", "percent"),
                    ),
                ),
            ),
        ),
    ),
    (
        *(variable for variable in FLEET_VARIABLES if variable.name != "model"),
        Variable("product", "GPU", "modelName", "DCGM_FI_DEV_GPU_UTIL"),
    ),
)
