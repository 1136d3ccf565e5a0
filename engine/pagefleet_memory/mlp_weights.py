"""The MLP half of a layer: its matrices, dense or routed."""

from dataclasses import replace

from pagefleet_memory.attention_weights import read_flag
from pagefleet_memory.config_fields import Config
from pagefleet_memory.decoder_sizes import DecoderSizes
from pagefleet_memory.family import Family
from pagefleet_memory.matrices import Matrix, linear, vector


def dense_mlp(config: Config, family: Family, sizes: DecoderSizes) -> tuple[Matrix, ...]:
    """One MLP that every token passes through."""
    bias = read_flag(config, family.mlp_bias)
    width = sizes.dense_intermediate_size or sizes.intermediate_size
    return _mlp("mlp", sizes.hidden_size, width, gated=family.gated_mlp, bias=bias)


def routed_mlp(family: Family, sizes: DecoderSizes) -> tuple[Matrix, ...]:
    """A router over experts and, where the family has them, shared experts beside it."""
    h, experts = sizes.hidden_size, sizes.num_experts
    biased = family.moe == "gpt_oss"
    routed = _mlp("mlp.experts", h, sizes.moe_intermediate_size, gated=True, bias=biased)
    matrices = tuple(replace(matrix, copies=experts) for matrix in routed)
    matrices += linear("mlp.gate", experts, h, "whole", bias=biased)
    shared = sizes.shared_intermediate_size
    if not shared:
        return matrices
    matrices += _mlp("mlp.shared_expert", h, shared, gated=True, bias=False)
    if family.moe == "qwen":
        matrices += (vector("mlp.shared_expert_gate", h),)
    return matrices


def _mlp(prefix: str, hidden: int, width: int, *, gated: bool, bias: bool) -> tuple[Matrix, ...]:
    up = "gate_up_proj" if gated else "up_proj"
    rows = 2 * width if gated else width
    return (
        *linear(f"{prefix}.{up}", rows, hidden, "rows", bias=bias),
        *linear(f"{prefix}.down_proj", hidden, width, "columns", bias=bias),
    )
