"""Warm-up steps reach every attention launch that serving can come to.

Covered: the decoding and prompt launches of several models and limits, against random steps. Left
out: what Triton itself specializes on.
"""

import random

import pytest
import torch

from pagefleet_engine.executor import StepInputs
from pagefleet_engine.step_tensors import StepTensors
from pagefleet_engine.warm_up import warm_up_steps
from pagefleet_kernels.gpu.launch import (
    MOST_DECODE_QUERY,
    AttentionShape,
    decode_tile,
    row_tiles_of,
    split_launch,
)
from pagefleet_memory import EngineLimits


def limits(**settings: int) -> EngineLimits:
    given = {"max_model_len": 8192, "max_num_seqs": 64, "max_num_batched_tokens": 512, **settings}
    return EngineLimits(dtype="bfloat16", **given)  # type: ignore[arg-type]


def launch(
    shape: AttentionShape, *, num_seqs: int, query_len: int, max_seq_len: int
) -> tuple[object, ...]:
    """What is compiled anew when it differs."""
    if query_len > MOST_DECODE_QUERY:
        return ("prompt",)
    tile = decode_tile(shape, query_len=query_len)
    split = split_launch(
        shape,
        num_seqs=num_seqs,
        row_tiles=row_tiles_of(shape, tile, query_len=query_len),
        max_seq_len=max_seq_len,
        num_processors=132,
        is_deterministic=False,
    )
    return (tile, split.splits)


def launch_of(shape: AttentionShape, inputs: StepInputs) -> tuple[object, ...]:
    ends = [sum(pair) for pair in zip(inputs.num_computed, inputs.num_tokens, strict=True)]
    return launch(
        shape,
        num_seqs=len(ends),
        query_len=max(inputs.num_tokens),
        max_seq_len=max(ends),
    )


@pytest.mark.parametrize("heads", [(32, 8), (16, 16), (8, 1), (28, 4)])
@pytest.mark.parametrize(
    "settings", [{}, {"max_model_len": 100}, {"max_num_batched_tokens": 6}, {"max_num_seqs": 1}]
)
def test_no_step_launches_what_was_not_launched_before(
    heads: tuple[int, int], settings: dict[str, int]
) -> None:
    served = limits(**settings)
    shape = AttentionShape(
        num_heads=heads[0],
        num_kv_heads=heads[1],
        head_dim=128,
        v_head_dim=128,
        kv_mode="int8",
        dtype="bfloat16",
    )
    warm = {launch_of(shape, step) for step in warm_up_steps(served, num_blocks=4096)}
    random_numbers = random.Random(0)
    for _ in range(500):
        query_len = random_numbers.choice([*range(1, 9), 40])
        if query_len > min(served.max_num_batched_tokens, served.max_model_len):
            continue
        step = launch(
            shape,
            num_seqs=random_numbers.randint(1, served.max_num_seqs),
            query_len=query_len,
            max_seq_len=random_numbers.randint(query_len, served.max_model_len),
        )
        assert step in warm


def test_steps_stay_within_the_limits_and_the_pool() -> None:
    served = limits(max_model_len=3000, max_num_batched_tokens=100)
    for num_blocks in (4, 40, 400):
        for inputs in warm_up_steps(served, num_blocks=num_blocks):
            step = StepTensors.of(inputs, block_size=served.block_size)
            assert len(step.token_ids) <= served.max_num_batched_tokens
            assert max(step.metadata.seq_lens) <= served.max_model_len
            assert step.metadata.num_seqs <= served.max_num_seqs
            assert int(step.metadata.block_tables.max()) < num_blocks
            slots = step.metadata.slot_mapping
            assert len(torch.unique(slots)) == len(slots), "every token has a slot of its own"
