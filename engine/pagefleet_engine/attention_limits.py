"""What bounds the batches that the attention kernels get, in the kernels' own words."""

from collections.abc import Sequence

import torch

from pagefleet_engine.models.attention import LayerUse
from pagefleet_kernels.gpu.device import traits_of
from pagefleet_kernels.gpu.launch import AttentionShape
from pagefleet_kernels.gpu.reachable import Limits
from pagefleet_kernels.gpu.scratch import scratch_bytes
from pagefleet_memory import EngineLimits

MOST_DECODE_QUERY = 8  # a chunk of a prompt can be as short as a decoding step


def attention_limits(limits: EngineLimits, device: torch.device) -> Limits:
    traits = traits_of(device)
    return Limits(
        max_num_seqs=limits.max_num_seqs,
        max_model_len=limits.max_model_len,
        most_decode_query=min(MOST_DECODE_QUERY, limits.max_num_batched_tokens),
        is_deterministic=False,
        num_processors=traits.num_processors,
        capability=traits.capability,
    )


def attention_scratch_bytes(
    layers: Sequence[LayerUse], limits: EngineLimits, device: torch.device
) -> int:
    """What the kernels need for partial results in any step of an engine with these limits."""
    shapes = [
        AttentionShape(
            num_heads=each.num_heads,
            num_kv_heads=each.shape.num_kv_heads,
            head_dim=each.shape.head_dim,
            v_head_dim=each.shape.v_head_dim,
            kv_mode=limits.resolved_kv_dtype,
            dtype=limits.dtype,
        )
        for each in layers
    ]
    return scratch_bytes(shapes, attention_limits(limits, device))
