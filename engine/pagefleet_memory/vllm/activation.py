"""The peak that vLLM profiles: one forward and one sampling step, whichever is higher."""

from pagefleet_memory.constants import constant
from pagefleet_memory.dtypes import dtype_bytes
from pagefleet_memory.model_shape import ModelShape
from pagefleet_memory.vllm.run import Run


def forward_bytes(shape: ModelShape, run: Run) -> int:
    """The forward's own peak: a layer, routed experts, and what stages hand over."""
    return _forward(shape, run) + _experts(shape, run) + _between_stages(shape, run)


def sampler_bytes(shape: ModelShape, run: Run, stage: int) -> int:
    """By how much the sampling step, which only the last stage runs, exceeds the forward."""
    if stage != run.pipeline_parallel_size - 1 or not run.profiles_sampler:
        return 0
    return max(0, _sampling(shape, run) - _forward(shape, run))


def _hidden(shape: ModelShape, run: Run) -> int:
    """One tensor of hidden states of the profiled tokens."""
    return run.profiled_tokens * shape.hidden_size * dtype_bytes(run.dtype)


def _forward(shape: ModelShape, run: Run) -> int:
    """gate, up and their product, the residual and the hidden states."""
    widest = shape.intermediate_size if _has_dense_mlp(shape) else 0
    width = 3 * -(-widest // run.tensor_parallel_size) + 2 * shape.hidden_size
    rows = run.profiled_tokens * width * dtype_bytes(run.dtype)
    floor = constant("gpu_forward_floor", "vllm").value
    return rows + floor


def _sampling(shape: ModelShape, run: Run) -> int:
    """Logits of all sequences over the gathered vocabulary: no rank's share is smaller."""
    name = "sorted" if run.release.sorts_logits else "unsorted"
    logits = run.max_num_seqs * shape.vocab_size
    per_logit = constant(f"sampler_{name}_millibytes_per_logit", "vllm").value
    wider = (dtype_bytes(run.dtype) - 2) * logits  # logits in the compute dtype
    floor = constant(f"sampler_{name}_floor", "vllm").value
    images = _images(shape, run) if shape.is_multimodal and not run.text_only else 0
    return logits * per_logit // 1000 + wider + _hidden(shape, run) + images + floor


def _images(shape: ModelShape, run: Run) -> int:
    """Images that fill a step: their pixels (float32 until 0.16) and what they are encoded to."""
    pixel_bytes = 4 if run.release.sorts_logits else 2
    pixels = run.profiled_tokens * shape.pixels_per_token * pixel_bytes
    return pixels + _hidden(shape, run)


def _experts(shape: ModelShape, run: Run) -> int:
    """What routed tokens pass through, kept for the whole run; MXFP4 kernels keep none."""
    if not shape.num_experts or run.release.sorts_logits:
        return 0
    if shape.quantization is not None and shape.quantization.method == "mxfp4":
        return 0
    tp = run.tensor_parallel_size
    width = shape.hidden_size + 2 * -(-shape.moe_intermediate_size // tp)
    return run.profiled_tokens * shape.experts_per_token * width * dtype_bytes(run.dtype)


def _between_stages(shape: ModelShape, run: Run) -> int:
    """Hidden states and residual that stages hand over."""
    return 2 * _hidden(shape, run) if run.pipeline_parallel_size > 1 else 0


def _has_dense_mlp(shape: ModelShape) -> bool:
    return any(kind.weights.mlp for kind in shape.layer_kinds)
