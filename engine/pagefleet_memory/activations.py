"""The widest moment of a layer, in elements a token: what the engine's modules hold at a time.

Counted operator by operator in the modules of Transformers 5.24, as a forward runs them. A test
counts them again for every family: no family may need more than this, or much less.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from pagefleet_memory.limits import EngineLimits
from pagefleet_memory.model_shape import ModelShape

_NORM = 5  # a norm computes in float32, and keeps its input and its square


@dataclass(frozen=True, slots=True, kw_only=True)
class _Moments:
    """Tensors at a time, each as wide as a part of the layer."""

    hidden: int = 4  # embeddings, a layer's input, its residual and its normed input
    mlp: int = 3  # gate, up and their product
    queries: int = 5  # while they are rotated
    keys: int = 2  # keys and values beside them
    expert_inner: int = 4  # of a chosen expert's width, beside its input
    expert_outer: int = 6  # of the hidden width, while results are weighted in float32
    runs_all_experts: bool = False


_JOINED = _Moments(mlp=4)  # gate and up come as one, which stays; or GELU is spelled out
_UNGATED = _Moments(mlp=2)
_ROUNDED = _Moments(expert_outer=4)  # experts' weights are in the type of the computation
_FAMILIES: Mapping[str, _Moments] = MappingProxyType(
    {
        "chatglm": _JOINED,
        "cohere": _Moments(queries=10, keys=5),
        "cohere2": _Moments(queries=10, keys=5),
        "gemma4_text": _Moments(hidden=6, keys=8),
        "glm": _JOINED,
        "glm4": _JOINED,
        "gpt2": _Moments(hidden=6, mlp=4),
        "gpt_oss": _Moments(expert_inner=9),
        "granitemoe": _ROUNDED,
        "llama4_text": _Moments(queries=7, expert_outer=3, runs_all_experts=True),
        "olmo2": _Moments(queries=8),
        "opt": _UNGATED,
        "phi": _JOINED,
        "phi3": _JOINED,
        "qwen2_moe": _ROUNDED,
        "qwen3_moe": _ROUNDED,
        "starcoder2": _UNGATED,
    }
)
_PLAIN = _Moments()


def widest_row(shape: ModelShape, limits: EngineLimits) -> int:
    """Elements of one token on one rank where a layer is widest."""
    moments, tp = _FAMILIES.get(shape.model_type, _PLAIN), limits.tensor_parallel_size
    rotary = 2 * shape.head_dim  # cosine and sine
    parts = (
        moments.mlp * _mlp_width(shape, tp),
        _attention(shape, moments, tp),
        _NORM * shape.hidden_size,
        _experts(shape, moments, tp),
    )
    return moments.hidden * shape.hidden_size + rotary + max(parts)


def _attention(shape: ModelShape, moments: _Moments, tp: int) -> int:
    queries = -(-shape.num_attention_heads // tp) * shape.head_dim
    keys = max(1, shape.num_key_value_heads // tp) * shape.head_dim
    return moments.queries * queries + moments.keys * keys


def _experts(shape: ModelShape, moments: _Moments, tp: int) -> int:
    chosen = shape.num_experts if moments.runs_all_experts else shape.experts_per_token
    if not chosen:
        return 0
    hidden, inner = shape.hidden_size, -(-shape.moe_intermediate_size // tp)
    widest = max(hidden + moments.expert_inner * inner, moments.expert_outer * hidden)
    routing = 32 * chosen + 4 * shape.num_experts  # logits in float32, and places in int64
    shared = hidden if _mlp_width(shape, tp) else 0  # what shared experts gave
    return chosen * widest + routing + shared


def _mlp_width(shape: ModelShape, tp: int) -> int:
    """Of the widest MLP or shared expert on one rank; 0 where all layers route."""
    widths = [
        matrix.plain_shape(tp)[1]
        for kind in shape.layer_kinds
        for matrix in kind.weights.matrices
        if matrix.name.startswith("mlp.") and matrix.name.endswith("down_proj")
        if ".experts." not in matrix.name
    ]
    return max(widths, default=0)
