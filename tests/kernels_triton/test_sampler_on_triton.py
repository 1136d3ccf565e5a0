"""The engine's sampler over the Triton kernels, in the interpreter, against their reference.

Covered: requests of every kind in one step, in float32 and bf16, a broken row, warm-up. Left out:
pinned memory and streams of a GPU.
"""

import pytest
import torch

from pagefleet_engine.request import SamplingParams
from pagefleet_engine.sampler import Sampler
from pagefleet_engine.sampling.kernel_draw import KernelDraw
from pagefleet_kernels.gpu.sampling import sample
from tests.support.sampled_rows import DRAWS, EOS, different_rows, sampler_of, sequence


def triton_sampler() -> Sampler:
    return Sampler(KernelDraw(sample, seed=0), eos_token_ids=frozenset([EOS]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_step_of_all_kinds_gives_the_references_tokens(dtype: torch.dtype) -> None:
    rows = [*different_rows(), sequence(SamplingParams(), name="broken")]
    logits = torch.randn(len(rows), 90, generator=torch.Generator().manual_seed(2)) * 3
    logits[-1, 7] = float("nan")
    found = triton_sampler().sample(logits.to(dtype), rows)
    assert found == sampler_of(DRAWS["reference"]).sample(logits.to(dtype), rows)
    assert [name for name, each in found.items() if each.error] == ["broken"]


def test_warm_up_runs_the_kernels() -> None:
    assert triton_sampler().warm_up(torch.zeros(1, 90, dtype=torch.bfloat16)) == 4
