"""A large Llama-style checkpoint that exists only as its config.json and safetensors headers."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

ELEMENT_BYTES = 2
COMMIT = "0123456789abcdef0123456789abcdef01234567"


@dataclass(frozen=True)
class VirtualModel:
    """What a hub would say of a model; reading past a header yields zeros."""

    config: Mapping[str, Any]

    @cached_property
    def header(self) -> bytes:
        """The length prefix and JSON header of model.safetensors."""
        entries: dict[str, Any] = {}
        offset = 0
        for name, shape in tensors(self.config):
            size = ELEMENT_BYTES
            for extent in shape:
                size *= extent
            span = [offset, offset + size]
            entries[name] = {"dtype": "BF16", "shape": shape, "data_offsets": span}
            offset += size
        text = json.dumps(entries).encode()
        return len(text).to_bytes(8, "little") + text

    @cached_property
    def weights_size(self) -> int:
        elements = 0
        for _, shape in tensors(self.config):
            count = 1
            for extent in shape:
                count *= extent
            elements += count
        return len(self.header) + ELEMENT_BYTES * elements

    @cached_property
    def files(self) -> dict[str, bytes]:
        """Whole small files; the weights are only ever served in part."""
        return {"config.json": json.dumps(dict(self.config)).encode()}


def llama(*, hidden: int, layers: int, heads: int, kv_heads: int, mlp: int) -> VirtualModel:
    """A Llama-3 shaped model with a vocabulary of 128,256 and 131,072 positions."""
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "head_dim": hidden // heads,
        "intermediate_size": mlp,
        "vocab_size": 128256,
        "max_position_embeddings": 131072,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
    }
    return VirtualModel(config)


LLAMA_8B = llama(hidden=4096, layers=32, heads=32, kv_heads=8, mlp=14336)
LLAMA_70B = llama(hidden=8192, layers=80, heads=64, kv_heads=8, mlp=28672)
LLAMA_405B = llama(hidden=16384, layers=126, heads=128, kv_heads=8, mlp=53248)


def tensors(config: Mapping[str, Any]) -> Iterator[tuple[str, list[int]]]:
    """Names and shapes of a Llama checkpoint, in file order."""
    hidden, mlp, vocab = config["hidden_size"], config["intermediate_size"], config["vocab_size"]
    kv = config["num_key_value_heads"] * config["head_dim"]
    yield "model.embed_tokens.weight", [vocab, hidden]
    for layer in range(config["num_hidden_layers"]):
        prefix = f"model.layers.{layer}"
        yield f"{prefix}.self_attn.q_proj.weight", [hidden, hidden]
        yield f"{prefix}.self_attn.k_proj.weight", [kv, hidden]
        yield f"{prefix}.self_attn.v_proj.weight", [kv, hidden]
        yield f"{prefix}.self_attn.o_proj.weight", [hidden, hidden]
        yield f"{prefix}.mlp.gate_proj.weight", [mlp, hidden]
        yield f"{prefix}.mlp.up_proj.weight", [mlp, hidden]
        yield f"{prefix}.mlp.down_proj.weight", [hidden, mlp]
        yield f"{prefix}.input_layernorm.weight", [hidden]
        yield f"{prefix}.post_attention_layernorm.weight", [hidden]
    yield "model.norm.weight", [hidden]
    yield "lm_head.weight", [vocab, hidden]
