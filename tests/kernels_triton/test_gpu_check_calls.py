"""What `make gpu-check` would launch, launched in the interpreter.

Covered: the comparisons that are small enough, one timed call of each kernel that is, attention's
batch builder. Left out: the sizes that are measured, CUDA graphs, the engine.
"""

from itertools import chain

import pytest
import torch

from bench.gpu import correctness, memory_bound, sanitizer
from bench.gpu.batches import Heads, make_batch
from bench.gpu.cases import distance
from pagefleet_kernels.gpu.attention import paged_attention
from pagefleet_kernels.reference import paged_attention_reference

CPU = torch.device("cpu")
CHECKS = {check.name: check for check in correctness.checks()}
CASES = {case.name: case for case in chain(memory_bound.cases(), memory_bound.sampling_cases())}


@pytest.mark.parametrize(
    "name",
    [
        "block copy",
        "SiLU-mul",
        "add + RMSNorm gemma",
        "KV write turned, normalized",
        "int4 matmul, 17 rows",
        "fp8 matmul, 1 rows",
        "attention, every feature int8",
        "attention, batch mates change no bit bfloat16",
        "RoPE and KV write int8",
    ],
)
def test_comparisons_hold_in_the_interpreter(name: str) -> None:
    check = CHECKS[name]
    assert distance(check.compare(CPU), is_share=check.is_share) <= check.tolerance


@pytest.mark.parametrize(
    "name", ["add + RMSNorm 1 x 2048", "SiLU-mul 1 x 14336", "sampling 1 x 32000, none"]
)
def test_timed_calls_can_be_launched(name: str) -> None:
    calls = CASES[name].prepare(CPU)
    assert len(calls) > 1, "small work is rotated among buffers"
    calls[0]()


def test_what_the_sanitizer_watches_can_be_launched() -> None:
    sanitizer.main(CPU)


@pytest.mark.parametrize("mode", ["bfloat16", "int4"])
def test_the_batches_of_attention_are_right(mode: str) -> None:
    batch = make_batch(
        [(1, 40), (5, 3)],
        mode=mode,
        heads=Heads(num_heads=2, num_kv_heads=1, head_dim=64),
        device=CPU,
        num_layers=2,
    )
    arguments = (batch.query, batch.pool.layer(1), batch.metadata)
    exact = paged_attention_reference(*arguments, scale=batch.scale).double()
    found = paged_attention(*arguments, scale=batch.scale).double()
    assert torch.isfinite(exact).all()
    assert float((found - exact).norm() / exact.norm()) < 1e-2
