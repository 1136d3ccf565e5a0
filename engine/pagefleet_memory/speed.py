"""Speed by roofline: memory traffic or arithmetic, whichever takes longer, and what ranks exchange.

A step of decoding reads the weights that its batch touches and every cached token; a prefill is
arithmetic. Shares of the data sheet that kernels reach are NVIDIA AIConfigurator's: 0.8 of the
memory's, 3 us for each kernel; 0.5 of the arithmetic's is the middle of what prefills reach.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from pagefleet_memory.accelerator import Accelerator
from pagefleet_memory.dtypes import COMPUTE_DTYPES, dtype_bytes
from pagefleet_memory.limits import EngineLimits
from pagefleet_memory.model_shape import ModelShape, kv_bytes_per_layer

_BANDWIDTH_SHARE = 0.8
_FLOPS_SHARE = 0.5
# Where a product's speed is unknown: an L4, so that a known faster card is preferred.
_UNKNOWN_BANDWIDTH_GBPS = 300.0
_UNKNOWN_TFLOPS = 121.0
_PCIE_GBPS = 32.0  # generation 4, 16 lanes, one direction, as data sheets say
# Time of one layer that no data sheet bounds: twelve kernels of a captured graph, or the host
# that launches them one by one (0.8 ms in public profiles of eager runs).
_LAYER_SECONDS_GRAPH = 12 * 3e-6
_LAYER_SECONDS_EAGER = 0.8e-3


@dataclass(frozen=True, slots=True)
class ModelWork:
    """What a model asks of its device for a token, counted over its layers once."""

    shape: ModelShape
    parameters_used: int  # that multiply each token: looking up an embedding multiplies nothing
    routed_share: float  # of all parameters, those of routed experts
    bytes_read: Mapping[str, int]  # of the weights in each compute dtype, by a full batch


@dataclass(frozen=True, slots=True)
class Speed:
    """What one replica is predicted to do, with every slot in use."""

    decode_tokens_per_second: float  # of all requests together
    step_seconds: float  # between two tokens of a request
    prefill_tokens_per_second: float  # for prompts of the mean length


def model_work(shape: ModelShape) -> ModelWork:
    """Count the layers; an embedding that is no head as well is looked up, not read."""
    lookup = 0 if shape.tie_word_embeddings else shape.embedding_parameters
    routed = sum(kind.weights.experts for kind in shape.layers)
    return ModelWork(
        shape,
        parameters_used=max(1, shape.active_parameters - lookup),
        routed_share=routed / shape.num_parameters,
        bytes_read={
            dtype: max(0, shape.weight_bytes(dtype) - lookup * dtype_bytes(dtype))
            for dtype in COMPUTE_DTYPES
        },
    )


def predict_speed(
    work: ModelWork,
    accelerator: Accelerator,
    limits: EngineLimits,
    *,
    batch: int,
    context_tokens: int,
    prompt_tokens: int,
) -> Speed | None:
    """The predicted speed; None where the accelerator's own is not known."""
    if accelerator.bandwidth_gbps is None or accelerator.bf16_tflops is None:
        return None
    step = decode_step_seconds(
        work, accelerator, limits, batch=batch, context_tokens=context_tokens
    )
    prefill = prefill_seconds(work, accelerator, limits, tokens=prompt_tokens)
    return Speed(batch / step, step, prompt_tokens / prefill)


def decode_step_seconds(
    work: ModelWork,
    accelerator: Accelerator,
    limits: EngineLimits,
    *,
    batch: int,
    context_tokens: int,
) -> float:
    """Seconds of one decode step of `batch` requests that each hold `context_tokens`.

    Stages work one after the other, so that only tensor parallelism shortens a step.
    """
    tp = limits.tensor_parallel_size
    read = _weights_read(work, limits, batch) / tp
    read += batch * _cached_bytes_read(work.shape, limits, context_tokens)
    arithmetic = 2 * work.parameters_used * batch / tp
    return (
        max(read / _bandwidth(accelerator), arithmetic / _flops(accelerator))
        + _exchange_seconds(work.shape, accelerator, limits, tokens=batch)
        + _launch_seconds(work.shape, accelerator, limits)
    )


def prefill_seconds(
    work: ModelWork, accelerator: Accelerator, limits: EngineLimits, *, tokens: int
) -> float:
    """Seconds until the whole prompt of one request is computed, in chunks of the token budget."""
    tp = limits.tensor_parallel_size
    chunks = -(-tokens // limits.max_num_batched_tokens)
    shape = work.shape
    attention = 2 * shape.num_layers * shape.num_attention_heads * shape.head_dim * tokens**2
    arithmetic = (2 * work.parameters_used * tokens + attention) / tp
    read = chunks * _weights_read(work, limits, tokens) / tp
    return (
        max(read / _bandwidth(accelerator), arithmetic / _flops(accelerator))
        + _exchange_seconds(work.shape, accelerator, limits, tokens=tokens)
        + chunks * _launch_seconds(work.shape, accelerator, limits)
    )


def tokens_computed_in(
    seconds: float, work: ModelWork, accelerator: Accelerator, *, tensor_parallel_size: int
) -> int | None:
    """Prompt tokens that a step of this length computes; None where the speed is not known."""
    if accelerator.bf16_tflops is None:
        return None
    per_token = 2 * work.parameters_used / tensor_parallel_size
    return int(seconds * _flops(accelerator) / per_token)


def _bandwidth(accelerator: Accelerator) -> float:
    return (accelerator.bandwidth_gbps or _UNKNOWN_BANDWIDTH_GBPS) * 1e9 * _BANDWIDTH_SHARE


def _flops(accelerator: Accelerator) -> float:
    return (accelerator.bf16_tflops or _UNKNOWN_TFLOPS) * 1e12 * _FLOPS_SHARE


def _weights_read(work: ModelWork, limits: EngineLimits, tokens: int) -> float:
    """Bytes that a batch touches: an expert is read once for all its tokens."""
    shape, held = work.shape, work.bytes_read[limits.dtype]
    if not shape.num_experts:
        return held
    chosen = min(1.0, shape.experts_per_token / shape.num_experts)
    return held * (1 - work.routed_share * (1 - chosen) ** tokens)


def _cached_bytes_read(shape: ModelShape, limits: EngineLimits, context_tokens: int) -> int:
    """Bytes of the cache that one rank reads for one request; a window bounds its layers."""
    total = 0
    for index, kind in enumerate(shape.layer_kinds):
        seen = min(context_tokens, kind.attention.window or context_tokens)
        row = kv_bytes_per_layer(
            kind, limits.resolved_kv_dtype, tensor_parallel_size=limits.tensor_parallel_size
        )
        total += shape.layer_pattern.count(index) * seen * row
    return total


def _exchange_seconds(
    shape: ModelShape, accelerator: Accelerator, limits: EngineLimits, *, tokens: int
) -> float:
    """Two all-reduces a layer, each moving 2 (TP-1)/TP of the hidden states over a rank's link."""
    tp = limits.tensor_parallel_size
    if tp == 1:
        return 0.0
    one_way = accelerator.nvlink_gbps / 2 or _PCIE_GBPS
    moved = 2 * (tp - 1) / tp * tokens * shape.hidden_size * dtype_bytes(limits.dtype)
    return 2 * shape.num_layers * moved / (one_way * 1e9 * _BANDWIDTH_SHARE)


def _launch_seconds(shape: ModelShape, accelerator: Accelerator, limits: EngineLimits) -> float:
    if accelerator.kind == "CPU":
        return 0.0
    layer = _LAYER_SECONDS_EAGER if limits.enforce_eager else _LAYER_SECONDS_GRAPH
    return shape.num_layers * layer
