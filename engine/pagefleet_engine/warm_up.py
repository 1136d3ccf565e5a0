"""Warm-up on a GPU: what is compiled or allocated once must not stall the first requests."""

import logging
from array import array
from collections.abc import Sequence

import torch

from pagefleet_engine.attention_limits import attention_limits
from pagefleet_engine.executor import StepInputs
from pagefleet_engine.models.attention import LayerUse
from pagefleet_kernels import KernelBackend, KVPool
from pagefleet_memory import EngineLimits

logger = logging.getLogger(__name__)


def compile_attention(
    layers: Sequence[LayerUse],
    pool: KVPool,
    backend: KernelBackend,
    limits: EngineLimits,
    *,
    dtype: torch.dtype,
) -> None:
    """Compile every Triton kernel that steps within these limits can reach."""
    # Imported here: a CPU does without triton.
    from pagefleet_kernels.gpu.warm_up import AttentionLayer, warm_up

    done = warm_up(
        [
            AttentionLayer(
                cache=pool.layer(index),
                num_heads=use.num_heads,
                window=use.options.window,
                softcap=use.options.softcap,
                sinks=use.options.sinks,
                rotary_dim=use.rotary_dim,
                has_head_norms=use.has_head_norms,
            )
            for index, use in enumerate(layers)
        ],
        dtype=dtype,
        limits=attention_limits(limits, pool.records.device),
        attend=backend.paged_attention,
    )
    logger.info("compiled %d attention kernels in %.1f s", done.kernels, done.seconds)


def warm_up_steps(limits: EngineLimits, *, num_blocks: int) -> list[StepInputs]:
    """A prompt as long as one step takes, and a token behind it, in blocks of nobody."""
    block_size = limits.block_size
    longest = min(limits.max_model_len, num_blocks * block_size) - 1
    prompt = max(1, min(limits.max_num_batched_tokens, longest))
    table = array("q", range(min(num_blocks, -(-(prompt + 1) // block_size))))
    return [
        StepInputs(
            token_ids=[0] * count,
            num_computed=[start],
            num_tokens=[count],
            block_tables=[table],
            rows=[count - 1],
        )
        for start, count in ((0, prompt), (prompt, 1))
    ]
