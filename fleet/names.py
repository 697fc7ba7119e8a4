"""The contract of design section 3: every name, label, port and key that two parts of the program must agree on.

Functions, not objects, so that a part can name another's object before that object exists.
"""

from __future__ import annotations

import re
from enum import StrEnum

CONFIG_NAMESPACE = "triton-fleet"
PART_OF = "triton-fleet"
MANAGED_BY = "pulumi"
FIELD_MANAGER = "triton-fleet"
DOMAIN = "triton-fleet.io"

LABEL_NAME = "app.kubernetes.io/name"
LABEL_INSTANCE = "app.kubernetes.io/instance"
LABEL_COMPONENT = "app.kubernetes.io/component"
LABEL_PART_OF = "app.kubernetes.io/part-of"
LABEL_MANAGED_BY = "app.kubernetes.io/managed-by"
LABEL_MODEL = "model"
LABEL_SKU = f"{DOMAIN}/sku"
LABEL_CLIENT = f"{DOMAIN}/client"
"""On a namespace, with the value `true`: its pods may call the fleet."""
LABEL_NAMESPACE_NAME = "kubernetes.io/metadata.name"
"""Set by the API server on every namespace."""

ANNOTATION_MODEL_VERSION = f"{DOMAIN}/model-version"
ANNOTATION_MODEL_DIGEST = f"{DOMAIN}/model-digest"
ANNOTATION_REPLICAS = f"{DOMAIN}/replicas"
"""On a Deployment: who sets the number of its replicas."""

NODE_GPU_LABEL = "nvidia.com/gpu"
NODE_GPU_LABEL_VALUE = "present"
NODE_GPU_PRESENT_LABEL = "nvidia.com/gpu.present"
"""What NVIDIA's charts select."""
NODE_GPU_PRESENT_VALUE = "true"
NODE_GPU_PRODUCT_LABEL = "nvidia.com/gpu.product"
"""As GPU feature discovery writes it."""
NODE_GPU_COUNT_LABEL = "nvidia.com/gpu.count"
GPU_TAINT_KEY = "nvidia.com/gpu"
GPU_TAINT_VALUE = "present"
GPU_RESOURCE = "nvidia.com/gpu"

PORT_HTTP = 8000
PORT_GRPC = 8001
PORT_METRICS = 8002
PORT_HTTP_NAME = "http"
PORT_GRPC_NAME = "grpc"
PORT_METRICS_NAME = "metrics"

NAMESPACE_SYSTEM = "kube-system"
NAMESPACE_MONITORING = "monitoring"

STORE_MOUNT = "/store"
STORE_NAME = "model-store"

LABEL_MAX_CHARS = 63
"""RFC 1123, section 2.1: a DNS label."""
POD_SUFFIX_CHARS = len("-0123456789-abcde")
"""What a Deployment appends to its name for a pod: `-<template hash, at most 10>-<5>`."""
WORKLOAD_MAX_CHARS = LABEL_MAX_CHARS - POD_SUFFIX_CHARS
"""A pod's name is its host name too, which is cut at 63 characters."""
HEADLESS_SUFFIX = "-pods"

POD_MONITOR = "triton"
"""Of the serving namespace: what has every Triton pod scraped."""
VERIFICATION_STAMP = "triton-fleet-verification"
"""ConfigMap of the serving namespace, made anew by each verification that held; its age is that of the proof."""

_DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")


class Component(StrEnum):
    """Values of `app.kubernetes.io/component`; `triton` stands on Triton's pods and on no other."""

    TRITON = "triton"
    MODEL_STORE = "model-store"
    VERIFICATION = "verification"
    LOAD = "load"


def is_dns_label(text: str) -> bool:
    """Whether `text` is a DNS label as Kubernetes reads it: up to 63 lower-case letters, digits, inner hyphens."""
    return len(text) <= LABEL_MAX_CHARS and _DNS_LABEL.fullmatch(text) is not None


def namespace(environment: str) -> str:
    return f"triton-{environment}"


def cluster(environment: str) -> str:
    """Name of the cluster that a stack makes."""
    return f"{PART_OF}-{environment}"


def deployment_name(model: str, sku: str) -> str:
    return f"{model}-{sku}"


def service_name(model: str) -> str:
    return model


def headless_name(model: str) -> str:
    return f"{model}{HEADLESS_SUFFIX}"


def service_host(service: str, namespace: str) -> str:
    """The name by which a client inside the cluster reaches a Service, whatever the cluster's DNS domain is."""
    return f"{service}.{namespace}.svc"


def common_labels(component: Component, name: str, instance: str) -> dict[str, str]:
    return {
        LABEL_NAME: name,
        LABEL_INSTANCE: instance,
        LABEL_COMPONENT: component.value,
        LABEL_PART_OF: PART_OF,
        LABEL_MANAGED_BY: MANAGED_BY,
    }


def pod_labels(model: str, sku: str) -> dict[str, str]:
    """Labels of a Triton pod."""
    return {
        **common_labels(Component.TRITON, "triton", deployment_name(model, sku)),
        LABEL_MODEL: model,
        LABEL_SKU: sku,
    }


def selector(model: str, sku: str) -> dict[str, str]:
    """What a Deployment selects: stable identity, never a version."""
    return {LABEL_COMPONENT: Component.TRITON.value, LABEL_MODEL: model, LABEL_SKU: sku}


def model_selector(model: str) -> dict[str, str]:
    """What the Services and the disruption budget of a model select: its pods on every SKU."""
    return {LABEL_COMPONENT: Component.TRITON.value, LABEL_MODEL: model}


def fleet_selector() -> dict[str, str]:
    """What the network policies select: every Triton pod of the namespace, and no other pod."""
    return {LABEL_COMPONENT: Component.TRITON.value}


def gpu_node_labels(gpu_product: str) -> dict[str, str]:
    """Labels that a node of a GPU SKU carries."""
    return {
        NODE_GPU_LABEL: NODE_GPU_LABEL_VALUE,
        NODE_GPU_PRESENT_LABEL: NODE_GPU_PRESENT_VALUE,
        NODE_GPU_PRODUCT_LABEL: gpu_product,
    }
