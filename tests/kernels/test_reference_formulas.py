"""The plain-torch references of RoPE and RMSNorm against other formulas of the same thing.

Covered: RoPE as a product of complex numbers in float64 and as Hugging Face's models compute it,
of whole and of partly turned rows; both castings of RMSNorm to the bit of Hugging Face's.
"""

import pytest
import torch
from transformers.models.gemma.modeling_gemma import GemmaRMSNorm
from transformers.models.llama.modeling_llama import LlamaRMSNorm, apply_rotary_pos_emb

from pagefleet_kernels.norm import add_rms_norm_reference, rms_norm_reference
from pagefleet_kernels.rope import turn


def numbers(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


@pytest.mark.parametrize("is_interleaved", [False, True])
@pytest.mark.parametrize(("width", "rotary_dim"), [(64, 64), (80, 40), (6, 2)])
def test_a_pair_turns_like_a_complex_number(
    width: int, rotary_dim: int, is_interleaved: bool
) -> None:
    rows, angles = numbers(5, 3, width), numbers(5, rotary_dim // 2) * 4
    found = turn(
        rows,
        angles.cos()[:, None],
        angles.sin()[:, None],
        is_interleaved=is_interleaved,
    )
    for pair in range(rotary_dim // 2):
        step = (2 * pair, 2 * pair + 1) if is_interleaved else (pair, pair + rotary_dim // 2)
        one, other = (rows[..., index].double() for index in step)
        exact = torch.complex(one, other) * torch.polar(
            torch.ones(5, 1).double(), angles[:, None, pair].double()
        )
        for index, expected in zip(step, (exact.real, exact.imag), strict=True):
            torch.testing.assert_close(found[..., index].double(), expected, atol=1e-5, rtol=1e-5)
    assert torch.equal(found[..., rotary_dim:], rows[..., rotary_dim:])


def test_rows_turn_as_in_hugging_faces_models() -> None:
    query, key, angles = numbers(7, 4, 64), numbers(7, 2, 64), numbers(7, 32) * 4
    cos, sin = (torch.cat([each, each], dim=-1)[None] for each in (angles.cos(), angles.sin()))
    theirs = apply_rotary_pos_emb(query.transpose(0, 1)[None], key.transpose(0, 1)[None], cos, sin)
    for rows, expected in zip((query, key), theirs, strict=True):
        tables = angles.cos()[:, None], angles.sin()[:, None]
        found = turn(rows, *tables, is_interleaved=False)
        torch.testing.assert_close(found, expected[0].transpose(0, 1), atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_norms_are_hugging_faces_to_the_bit(dtype: torch.dtype) -> None:
    x, residual, weight = (numbers(*size).to(dtype) for size in ((9, 96), (9, 96), (96,)))
    llama, gemma = LlamaRMSNorm(96, eps=1e-5), GemmaRMSNorm(96, eps=1e-5)
    for theirs in (llama, gemma):
        theirs.weight.data = weight
    with torch.no_grad():
        found = rms_norm_reference(x, weight, eps=1e-5)
        assert torch.equal(found, llama(x))
        assert torch.equal(rms_norm_reference(x, weight, eps=1e-5, casting="gemma"), gemma(x))
        both = add_rms_norm_reference(x, residual, weight, eps=1e-5)
        assert torch.equal(both.summed, x + residual)
        assert torch.equal(both.normed, llama(x + residual))
