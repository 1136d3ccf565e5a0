"""Decode speed by roofline: memory traffic or arithmetic, whichever takes longer."""

from pagefleet_memory.accelerator import Accelerator
from pagefleet_memory.limits import EngineLimits
from pagefleet_memory.model_shape import ModelShape

# Shares of the data sheet that kernels reach: NVIDIA AIConfigurator's 0.8 for memory, 2026-11.
_BANDWIDTH_SHARE = 0.8
_FLOPS_SHARE = 0.5
# Where a product's speed is unknown: an L4, so that a known faster card is preferred.
_UNKNOWN_BANDWIDTH_GBPS = 300.0
_UNKNOWN_TFLOPS = 121.0


def decode_step_seconds(
    shape: ModelShape,
    accelerator: Accelerator,
    limits: EngineLimits,
    *,
    batch: int,
    context_tokens: int,
) -> float:
    """Seconds of one decode step of `batch` requests that each hold `context_tokens`."""
    bandwidth = (accelerator.bandwidth_gbps or _UNKNOWN_BANDWIDTH_GBPS) * 1e9
    flops = (accelerator.bf16_tflops or _UNKNOWN_TFLOPS) * 1e12
    tp = limits.tensor_parallel_size
    read = shape.weight_bytes(limits.dtype) * _share_read(shape, batch)
    cached = shape.kv_bytes_per_token(limits.kv_cache_dtype, dtype=limits.dtype)
    read += batch * context_tokens * cached
    compute = 2 * shape.active_parameters * batch
    return max(read / tp / (_BANDWIDTH_SHARE * bandwidth), compute / tp / (_FLOPS_SHARE * flops))


def _share_read(shape: ModelShape, batch: int) -> float:
    """Share of the weights a batch touches: an expert is read once for all its tokens."""
    if not shape.num_experts:
        return 1.0
    chosen = min(1.0, shape.experts_per_token / shape.num_experts)
    touched = 1 - (1 - chosen) ** batch
    routed = sum(kind.weights.experts for kind in shape.layers) / shape.num_parameters
    return 1 - routed * (1 - touched)
