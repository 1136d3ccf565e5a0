"""Small objects for the operator's tests: specs, shapes, nodes and pods with what a test varies."""

from typing import Any

from pagefleet_memory import CheckpointSummary, ModelShape
from pagefleet_operator.planning.images import Images
from pagefleet_operator.planning.inventory import Inventory, build_inventory
from pagefleet_operator.planning.serving_plan import ServingPlan, make_serving_plan
from pagefleet_operator.spec import InferenceDeployment

A100 = "NVIDIA-A100-SXM4-80GB"
L4 = "NVIDIA-L4"
GIB = 1 << 30
REVISION = "0123abcd"
IMAGES = Images(engine="registry/engine:1", operator="registry/operator:1")


def infd(name: str = "demo", **spec: Any) -> InferenceDeployment:
    return InferenceDeployment.parse(body(name, **spec))


def body(name: str = "demo", **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "pagefleet.io/v1alpha1",
        "kind": "InferenceDeployment",
        "metadata": {"name": name, "namespace": "team", "uid": "u1", "generation": 3},
        "spec": {"model": {"uri": "hf://example/model"}, **spec},
    }


def llama_config(**changes: Any) -> dict[str, Any]:
    """An 8-billion-parameter Llama."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": 4096,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "intermediate_size": 14336,
        "vocab_size": 128256,
        "max_position_embeddings": 131072,
        "torch_dtype": "bfloat16",
        **changes,
    }


def llama_8b() -> ModelShape:
    return ModelShape.from_config(llama_config())


def llama_70b() -> ModelShape:
    size = {"hidden_size": 8192, "num_hidden_layers": 80, "num_attention_heads": 64}
    return ModelShape.from_config(llama_config(**size, intermediate_size=28672))


def smollm2() -> ModelShape:
    size = {"hidden_size": 576, "num_hidden_layers": 30, "num_attention_heads": 9}
    config = llama_config(
        **size,
        num_key_value_heads=3,
        intermediate_size=1536,
        vocab_size=49152,
        max_position_embeddings=8192,
        tie_word_embeddings=True,
    )
    summary = CheckpointSummary(269_030_016, {"BF16": 269_030_016}, 134_515_008)
    return ModelShape.from_config(config, checkpoint=summary)


def gpu_node(name: str, product: str = A100, *, gpus: int = 8, **changes: Any) -> dict[str, Any]:
    labels = {"nvidia.com/gpu.product": product, "nvidia.com/gpu.count": str(gpus)}
    node = cpu_node(name, cpu="96", memory="1024Gi")
    node["metadata"]["labels"] = labels
    node["status"]["capacity"]["nvidia.com/gpu"] = str(gpus)
    node["status"]["allocatable"]["nvidia.com/gpu"] = str(gpus)
    node["spec"]["taints"] = [{"key": "nvidia.com/gpu", "effect": "NoSchedule"}]
    node["spec"].update(changes)
    return node


def cpu_node(name: str, *, cpu: str = "8", memory: str = "16Gi") -> dict[str, Any]:
    amounts = {"cpu": cpu, "memory": memory}
    return {
        "metadata": {"name": name, "labels": {}},
        "spec": {},
        "status": {
            "capacity": dict(amounts),
            "allocatable": dict(amounts),
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def pod(
    name: str, *, node: str = "", labels: dict[str, str] | None = None, **requests: str
) -> dict[str, Any]:
    amounts = {key.replace("gpus", "nvidia.com/gpu"): value for key, value in requests.items()}
    return {
        "metadata": {"name": name, "namespace": "team", "labels": labels or {}},
        "spec": {
            "nodeName": node or None,
            "containers": [{"name": "engine", "resources": {"requests": amounts}}],
        },
        "status": {"phase": "Running" if node else "Pending"},
    }


def inventory(*nodes: dict[str, Any], pods: tuple[dict[str, Any], ...] = ()) -> Inventory:
    return build_inventory(nodes, pods)


def gpu_plan(shape: ModelShape | None = None, **spec: Any) -> ServingPlan:
    found = make_serving_plan(
        infd(**spec),
        shape or llama_8b(),
        REVISION,
        inventory(gpu_node("gpu-1")),
        IMAGES,
    )
    assert isinstance(found, ServingPlan), found
    return found


def cpu_plan(**spec: Any) -> ServingPlan:
    hardware = {"accelerator": "CPU", **spec.pop("hardware", {})}
    found = make_serving_plan(
        infd(hardware=hardware, **spec), smollm2(), REVISION, inventory(cpu_node("n1")), IMAGES
    )
    assert isinstance(found, ServingPlan), found
    return found
