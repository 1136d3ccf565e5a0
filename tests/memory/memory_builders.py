"""Small model configs, GPUs and node groups for the memory model's tests."""

from typing import Any

from pagefleet_memory import (
    Accelerator,
    EngineLimits,
    ModelShape,
    NodeGroup,
    accelerator_from_labels,
    cpu_accelerator,
)

GIB = 1 << 30
MIB = 1 << 20

LLAMA_2_70B: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 8192,
    "num_hidden_layers": 80,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "intermediate_size": 28672,
    "vocab_size": 32000,
    "max_position_embeddings": 32768,
    "torch_dtype": "bfloat16",
}
LLAMA_3_70B = {**LLAMA_2_70B, "vocab_size": 128256, "max_position_embeddings": 131072}
LLAMA_13B: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 5120,
    "num_hidden_layers": 40,
    "num_attention_heads": 40,
    "intermediate_size": 13824,
    "vocab_size": 32000,
    "max_position_embeddings": 2048,
    "torch_dtype": "float16",
}
LLAMA_3_8B: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "torch_dtype": "bfloat16",
}
SMOLLM2_135M: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 576,
    "num_hidden_layers": 30,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "intermediate_size": 1536,
    "vocab_size": 49152,
    "max_position_embeddings": 8192,
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
}
DEEPSEEK_V3: dict[str, Any] = {
    "model_type": "deepseek_v3",
    "hidden_size": 7168,
    "num_hidden_layers": 61,
    "num_attention_heads": 128,
    "num_key_value_heads": 128,
    "intermediate_size": 18432,
    "moe_intermediate_size": 2048,
    "n_routed_experts": 256,
    "n_shared_experts": 1,
    "num_experts_per_tok": 8,
    "first_k_dense_replace": 3,
    "q_lora_rank": 1536,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "vocab_size": 129280,
    "max_position_embeddings": 163840,
    "torch_dtype": "bfloat16",
}

_LABELS = {
    "T4": ("Tesla-T4", 15360),
    "L4": ("NVIDIA-L4", 23034),
    "A100-40": ("NVIDIA-A100-SXM4-40GB", 40960),
    "A100-80": ("NVIDIA-A100-SXM4-80GB", 81920),
    "H100": ("NVIDIA-H100-80GB-HBM3", 81559),
}


def shape(config: dict[str, Any], **changes: object) -> ModelShape:
    """The shape of a config with some keys changed."""
    return ModelShape.from_config({**config, **changes})


def gpu(name: str) -> Accelerator:
    """A product by its short name."""
    product, memory_mib = _LABELS[name]
    return accelerator_from_labels(product, memory_mib)


def gpus(name: str, per_node: int, nodes: int = 1, *, group: str = "") -> NodeGroup:
    """Nodes of one product."""
    return NodeGroup(group or name.lower(), gpu(name), per_node, nodes, nvlink=per_node > 1)


def cpus(memory_bytes: int, *, bf16: bool = False) -> NodeGroup:
    """One CPU node."""
    return NodeGroup("cpu", cpu_accelerator(memory_bytes, bf16=bf16), 1, 1)


def limits(**changes: Any) -> EngineLimits:
    """Engine limits with some changed."""
    values: dict[str, Any] = {
        "dtype": "bfloat16",
        "max_model_len": 4096,
        "max_num_seqs": 16,
        "max_num_batched_tokens": 2048,
    }
    return EngineLimits(**{**values, **changes})
