"""Ledger terms of one step: activations, rotary tables, logits."""

from pagefleet_memory.accelerator import Accelerator
from pagefleet_memory.activations import widest_row
from pagefleet_memory.attention_scratch import has_kernels, scratch_bytes
from pagefleet_memory.constants import constant
from pagefleet_memory.dtypes import dtype_bytes
from pagefleet_memory.limits import EngineLimits
from pagefleet_memory.model_shape import ModelShape
from pagefleet_memory.overhead import LedgerTerm
from pagefleet_memory.unpacking import unpacked_bytes

_INDEX_BYTES = 4


def workspace_term(
    shape: ModelShape, accelerator: Accelerator, limits: EngineLimits, *, stage: int
) -> LedgerTerm:
    """Peak of activations over a step of `max_num_batched_tokens`, and what lies beside them."""
    tokens = limits.max_num_batched_tokens
    floor = constant(f"{accelerator.kind.lower()}_forward_floor")
    parts = {
        f"{tokens} tokens x (4 h + max(MLP, attention, norms, experts))": (
            tokens * widest_row(shape, limits) * dtype_bytes(limits.dtype)
        ),
        "K and V of one request, gathered": _gathered_bytes(shape, accelerator, limits),
        "partial results of attention": scratch_bytes(shape, accelerator, limits),
        "a quantized weight, unpacked": unpacked_bytes(shape, accelerator, limits, stage=stage),
        floor.source: floor.value,
    }
    source = "; ".join(name for name, size in parts.items() if size)
    return LedgerTerm("workspace", sum(parts.values()), source)


def rope_term(shape: ModelShape, limits: EngineLimits) -> LedgerTerm:
    """Cosine and sine rows up to `max_model_len`, and the block tables of all slots."""
    width = min(shape.head_dim, 256)
    rotary = limits.max_model_len * width * dtype_bytes(limits.dtype)
    table_entries = -(-limits.max_model_len // limits.block_size) * limits.max_num_seqs
    return LedgerTerm(
        "rope_and_buffers",
        rotary + table_entries * _INDEX_BYTES,
        "max_model_len x head_dim; block tables of max_num_seqs x blocks x 4 B",
    )


def sampler_term(shape: ModelShape, limits: EngineLimits, *, stage: int) -> LedgerTerm:
    """Logits and what sampling makes of them; only the last stage samples."""
    if stage != limits.pipeline_parallel_size - 1:
        return LedgerTerm("sampler", 0, "only the last stage samples")
    rows = min(constant("sampler_rows").value, limits.max_num_seqs)
    per_logit = constant("sampler_bytes_per_logit")
    logits = limits.max_num_seqs * shape.vocab_size * dtype_bytes(limits.dtype)
    return LedgerTerm(
        "sampler",
        logits + rows * shape.vocab_size * per_logit.value,
        f"logits of max_num_seqs rows, then {rows} rows at a time x vocabulary x "
        f"{per_logit.value} B: {per_logit.source}",
    )


def _gathered_bytes(shape: ModelShape, accelerator: Accelerator, limits: EngineLimits) -> int:
    """K and V of one layer and one full-length request, where no kernel reads them in place."""
    if has_kernels(shape, accelerator):
        return 0
    tp = limits.tensor_parallel_size
    layers = [kind.attention for kind in shape.layer_kinds]
    widest = max(each.local_kv_heads(tp) * (each.k_width + each.v_width) for each in layers)
    return limits.max_model_len * widest * dtype_bytes(limits.dtype)
