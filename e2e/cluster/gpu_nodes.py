"""Simulated GPU nodes: what GPU feature discovery would say, and no GPU behind it."""

import json
from dataclasses import dataclass
from typing import Any, Protocol

TAINT = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}
MARK_LABEL = "pagefleet.io/simulated-node"


@dataclass(frozen=True, slots=True)
class GpuProduct:
    """A GPU model in the words of GPU feature discovery."""

    label: str
    memory_mib: int
    family: str
    compute: tuple[int, int]
    machine: str


GPUS = (
    GpuProduct("Tesla-T4", 15360, "turing", (7, 5), "g4dn"),
    GpuProduct("NVIDIA-L4", 23034, "ada-lovelace", (8, 9), "g6"),
    GpuProduct("NVIDIA-L40S", 46068, "ada-lovelace", (8, 9), "g6e"),
    GpuProduct("NVIDIA-A10G", 23028, "ampere", (8, 6), "g5"),
    GpuProduct("NVIDIA-A100-SXM4-40GB", 40960, "ampere", (8, 0), "p4d"),
    GpuProduct("NVIDIA-A100-SXM4-80GB", 81920, "ampere", (8, 0), "p4de"),
    GpuProduct("NVIDIA-H100-80GB-HBM3", 81559, "hopper", (9, 0), "p5"),
    GpuProduct("NVIDIA-H200", 143771, "hopper", (9, 0), "p5e"),
    GpuProduct("NVIDIA-B200", 183359, "blackwell", (10, 0), "p6"),
)
PRODUCTS = {gpu.label: gpu for gpu in GPUS}


class KubectlCall(Protocol):
    """Run kubectl against some cluster."""

    def __call__(self, *arguments: str, stdin: str | None = None) -> str: ...


@dataclass(frozen=True, slots=True)
class GpuNodes:
    """The simulated nodes of a cluster that runs KWOK."""

    kubectl: KubectlCall

    def create(self, product: str, *, gpus: int = 8, count: int = 1) -> list[str]:
        """Create nodes of one product, wait until they are Ready, and return their names."""
        names = [f"{product.lower()}-{index}" for index in range(count)]
        documents = [gpu_node(name, PRODUCTS[product], gpus=gpus) for name in names]
        manifest = json.dumps({"apiVersion": "v1", "kind": "List", "items": documents})
        self.kubectl("apply", "--server-side", "-f", "-", stdin=manifest)
        targets = [f"node/{name}" for name in names]
        self.kubectl("wait", "--for=condition=Ready", "--timeout=30s", *targets)
        return names

    def delete(self, *names: str) -> None:
        """Delete these nodes; the control plane collects their pods."""
        self.kubectl("delete", "node", "--ignore-not-found", *names)

    def delete_all(self) -> None:
        """Delete every simulated node, and never the real one."""
        self.kubectl("delete", "node", "--ignore-not-found", "-l", f"{MARK_LABEL}=true")


def gpu_node(name: str, product: GpuProduct, *, gpus: int) -> dict[str, Any]:
    """A Node that KWOK keeps alive and that only pods for GPUs tolerate."""
    capacity = {
        "cpu": str(12 * gpus),
        "memory": f"{128 * gpus}Gi",
        "ephemeral-storage": "2Ti",
        "pods": "110",
        "nvidia.com/gpu": str(gpus),
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "annotations": {"kwok.x-k8s.io/node": "fake", "node.alpha.kubernetes.io/ttl": "0"},
            "labels": {**_machine_labels(name), **gpu_labels(product, gpus=gpus)},
        },
        "spec": {"taints": [TAINT]},
        "status": {"capacity": capacity, "allocatable": capacity},
    }


def gpu_labels(product: GpuProduct, *, gpus: int) -> dict[str, str]:
    """The labels by which GPUs are told apart."""
    major, minor = product.compute
    return {
        "nvidia.com/gpu.present": "true",
        "nvidia.com/gpu.product": product.label,
        "nvidia.com/gpu.memory": str(product.memory_mib),
        "nvidia.com/gpu.count": str(gpus),
        "nvidia.com/gpu.replicas": "1",
        "nvidia.com/gpu.family": product.family,
        "nvidia.com/gpu.machine": product.machine,
        "nvidia.com/gpu.compute.major": str(major),
        "nvidia.com/gpu.compute.minor": str(minor),
        "nvidia.com/gpu.sharing-strategy": "none",
    }


def _machine_labels(name: str) -> dict[str, str]:
    return {
        MARK_LABEL: "true",
        "kubernetes.io/hostname": name,
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/os": "linux",
    }
