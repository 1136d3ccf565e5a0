"""What is planned for activations is what a forward of Transformers' modules holds at its peak.

Covered: every family that an engine serves, in usual proportions; each tensor is counted while the
forward of a worker's profile runs. Left out: the logits, which are the sampler's term, and kernels
that need less.
"""

from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from pagefleet_engine.model_runner import run_model
from pagefleet_engine.models.attention import ATTENTION_NAME, UseRecorder, attach
from pagefleet_memory import EngineLimits, ModelShape
from pagefleet_memory.activations import widest_row
from tests.memory.family_configs import CONFIGS
from tests.support.live_memory import live_memory

TOKENS = 64
LIMITS = EngineLimits(
    dtype="bfloat16", max_model_len=TOKENS, max_num_seqs=1, max_num_batched_tokens=TOKENS
)
USUAL: dict[str, Any] = {
    "hidden_size": 256,
    "intermediate_size": 768,
    "num_hidden_layers": 2,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "vocab_size": 64,
    "max_position_embeddings": 2 * TOKENS,
    "pad_token_id": None,
    "tie_word_embeddings": True,
}
EXPERTS: dict[str, Any] = {
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 256,
    "shared_expert_intermediate_size": 256,
    "n_shared_experts": 1,
    "first_k_dense_replace": 1,
}
ALL_ROUTED = {"intermediate_size": 256, "num_local_experts": 8, "num_experts_per_tok": 2}
SPECIAL: dict[str, dict[str, Any]] = {
    "gpt2": {"n_embd": 256, "n_head": 8, "n_layer": 2, "n_positions": 2 * TOKENS},
    "opt": {"ffn_dim": 1024, "word_embed_proj_dim": 256},
    "gemma4_text": {
        "global_head_dim": 32,
        "num_global_key_value_heads": 1,
        "hidden_size_per_layer_input": 0,
    },
    "qwen2_moe": {**EXPERTS, "num_experts": 8},
    "qwen3_moe": {"num_experts_per_tok": 2, "moe_intermediate_size": 256, "num_experts": 8},
    "glm4_moe": {**EXPERTS, "n_routed_experts": 8},
    "llama4_text": {**ALL_ROUTED, "intermediate_size_mlp": 512, "num_experts_per_tok": 1},
    **dict.fromkeys(("mixtral", "gpt_oss", "minimax_m2", "granitemoe"), ALL_ROUTED),
}
SERVED = sorted(
    {
        model_type
        for model_type, values in CONFIGS
        if not ModelShape.from_config({"model_type": model_type, **values}).unsupported_by_engine
    }
)


def config_of(model_type: str, key_heads: int) -> dict[str, Any]:
    values = {**USUAL, "num_key_value_heads": key_heads, **SPECIAL.get(model_type, {})}
    dropped = {"gpt2": set(USUAL) - {"vocab_size"}, "opt": {"head_dim", "intermediate_size"}}
    return {key: each for key, each in values.items() if key not in dropped.get(model_type, ())}


def held_a_token(model_type: str, values: dict[str, Any]) -> float:
    """Bytes at the peak of a forward that computes one row of logits, for each of its tokens."""
    config = AutoConfig.for_model(model_type, **values)
    model: Any = AutoModelForCausalLM.from_config(
        config, attn_implementation=ATTENTION_NAME, dtype=torch.bfloat16
    ).eval()
    attach(model, UseRecorder())
    positions, last = torch.arange(TOKENS), torch.tensor([TOKENS - 1])
    token_ids = torch.zeros_like(positions)
    with live_memory(*model.parameters(), *model.buffers(), token_ids, positions, last) as memory:
        run_model(model, token_ids, positions, last)
    return memory.peak_bytes / TOKENS


# Families whose queries or keys take more than others', with as many key heads as query heads.
WIDE_KEYS = ("cohere", "gemma4_text", "llama", "olmo2", "phi")


@pytest.mark.parametrize(
    ("model_type", "key_heads"),
    [*((each, 2) for each in SERVED), *((each, 8) for each in WIDE_KEYS)],
)
def test_the_plan_holds_the_widest_moment_and_not_much_more(
    model_type: str, key_heads: int
) -> None:
    values = config_of(model_type, key_heads)
    shape = ModelShape.from_config({"model_type": model_type, "torch_dtype": "bfloat16", **values})
    held, planned = held_a_token(model_type, values), 2 * widest_row(shape, LIMITS)
    assert held <= planned <= 1.3 * held
