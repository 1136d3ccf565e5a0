"""The InferenceDeployments that the scenarios apply."""

from collections.abc import Mapping
from typing import Any


def inference_deployment(name: str, spec: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "pagefleet.io/v1alpha1",
        "kind": "InferenceDeployment",
        "metadata": {"name": name},
        "spec": dict(spec),
    }


def on_cpu(name: str, model_image: str, **changes: Any) -> dict[str, Any]:
    """The real chat model on the CPU node, small enough that several replicas share it."""
    spec: dict[str, Any] = {
        "model": {"uri": f"oci://{model_image}"},
        "hardware": {"accelerator": "CPU", "cpu": "300m", "memory": "3Gi"},
        "workload": {"maxModelLen": 1024, "concurrency": 8},
        "drain": {"timeoutSeconds": 60},
    }
    return inference_deployment(name, spec | changes)


def on_gpu(name: str, repository: str, **changes: Any) -> dict[str, Any]:
    """A large model that is planned and scheduled on nodes with GPUs."""
    spec: dict[str, Any] = {"model": {"uri": f"hf://{repository}"}, "replicas": 1}
    return inference_deployment(name, spec | changes)
