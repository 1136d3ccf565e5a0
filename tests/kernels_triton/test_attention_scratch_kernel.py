"""Attention whose partial results lie in one reserved piece of memory, in the interpreter.

Covered: the same bits as with memory of its own, whatever lay there before; layers of different
shapes and types in turn; a smaller step after a larger one; too little of it. Left out: CUDA.
"""

from dataclasses import replace
from typing import Any

import pytest
import torch

from pagefleet_kernels import ArgumentError
from pagefleet_kernels.gpu.attention import paged_attention
from pagefleet_kernels.gpu.scratch import Scratch
from tests.support.attention_problems import Batch, Problem, problem

CPU = torch.device("cpu")
LARGER: Batch = [(1, 140), (2, 65), (1, 0)]
SMALLER: Batch = [(1, 40)]
PROMPT_BESIDE: Batch = [(1, 70), (12, 30)]
BOUND = 4 * 1024  # tokens: 4 splits, of which short sequences leave some empty


def attend(given: Problem, **more: Any) -> torch.Tensor:
    return paged_attention(
        given.query, given.cache, given.metadata, out=given.blank(), **given.options, **more
    )


def poisoned(scratch: Scratch) -> Scratch:
    scratch._bytes.fill_(0xFF)  # not-a-number in every type
    return scratch


def layers() -> list[Problem]:
    """Steps of layers that differ in heads, widths, formats and types."""
    return [
        problem(LARGER, max_seq_len=BOUND),
        problem(LARGER, mode="int8", heads=(6, 2), widths=(64, 128), max_seq_len=BOUND),
        problem(SMALLER, mode="int8", heads=(6, 2), widths=(64, 128), max_seq_len=BOUND),
        problem(LARGER, mode="float32", dtype=torch.float32, max_seq_len=BOUND),
        problem(PROMPT_BESIDE, mode="int4", features={"sinks": True}, max_seq_len=BOUND),
        problem(SMALLER, max_seq_len=BOUND),
    ]


def test_neither_other_layers_nor_what_lay_there_before_changes_a_bit() -> None:
    scratch = poisoned(Scratch(1 << 20, CPU))
    for given in layers():
        alone = attend(given)
        assert alone.isfinite().all()
        assert torch.equal(attend(given, scratch=scratch), alone)
        assert torch.equal(attend(given, scratch=poisoned(scratch)), alone)
        assert not (scratch._bytes == 0xFF).all(), "partial results were kept elsewhere"


def test_splits_of_one_length_use_it_as_well() -> None:
    given = problem([(1, 1100), (3, 20)], max_seq_len=4096)
    scratch = poisoned(Scratch(1 << 20, CPU))
    found = attend(given, scratch=scratch, is_deterministic=True)
    assert torch.equal(found, attend(given, is_deterministic=True))


def test_a_step_that_needs_more_is_refused() -> None:
    given = problem(SMALLER, max_seq_len=BOUND)
    with pytest.raises(ArgumentError, match="scratch_bytes says how many"):
        attend(given, scratch=Scratch(64, CPU))
    unsplit = replace(given, metadata=replace(given.metadata, device_lengths=None))
    assert torch.equal(attend(unsplit, scratch=Scratch(0, CPU)), attend(unsplit))
