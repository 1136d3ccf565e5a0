"""Warm-up steps stay within the limits. What is compiled is tested beside the kernels."""

import pytest
import torch

from pagefleet_engine.step_tensors import StepTensors
from pagefleet_engine.warm_up import warm_up_steps
from pagefleet_memory import EngineLimits


@pytest.mark.parametrize("num_blocks", [1, 4, 400])
@pytest.mark.parametrize(("max_model_len", "budget"), [(3000, 100), (24, 512), (16, 1), (2, 8)])
def test_a_prompt_and_its_next_token(max_model_len: int, budget: int, num_blocks: int) -> None:
    limits = EngineLimits(
        dtype="bfloat16",
        max_model_len=max_model_len,
        max_num_seqs=4,
        max_num_batched_tokens=budget,
    )
    steps = [
        StepTensors.of(each, block_size=16) for each in warm_up_steps(limits, num_blocks=num_blocks)
    ]
    prompt, token = (each.metadata for each in steps)
    longest = min(max_model_len, num_blocks * 16)
    assert prompt.seq_lens == (min(budget, longest - 1),)
    assert (token.query_starts, token.seq_lens) == ((0, 1), (prompt.seq_lens[0] + 1,))
    for step in steps:
        assert int(step.metadata.block_tables.max()) < num_blocks
        assert len(torch.unique(step.metadata.slot_mapping)) == len(step.token_ids)
