"""The torch reference of paged attention against float64, over drawn shapes and features.

Covered: head counts, widths, block sizes, query and sequence lengths, every KV mode and every
feature, together. Left out: the fused CPU path, which test_paged_attention.py compares with it.
"""

from typing import Any

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pagefleet_kernels import KV_MODES
from pagefleet_kernels.reference import paged_attention_reference
from tests.support.attention_problems import Problem, exact_stored, problem, relative_error

SMALL_LENGTH = st.integers(0, 40)
WIDTHS = st.sampled_from([8, 12, 64, 80, 96, 128, 192, 256])  # of keys and of values


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    batch = []
    for seq_len in draw(st.lists(SMALL_LENGTH, min_size=1, max_size=3)):
        batch.append((draw(st.integers(1, max(1, min(seq_len, 12)))), seq_len))
    features: dict[str, Any] = {
        "window": draw(st.none() | st.integers(1, 50)),
        "softcap": draw(st.none() | st.floats(0.5, 30.0)),
        "sinks": draw(st.sampled_from([None, True])),
        "alibi_slopes": draw(st.sampled_from([None, True])),
    }
    num_kv_heads = draw(st.integers(1, 3))
    return problem(
        batch,
        mode=draw(st.sampled_from(KV_MODES)),
        dtype=torch.float32,
        heads=(num_kv_heads * draw(st.integers(1, 3)), num_kv_heads),
        widths=(draw(WIDTHS), draw(WIDTHS)),
        block_size=draw(st.sampled_from([8, 16, 24, 64, 256])),
        features=features,
    )


@settings(deadline=None)
@given(problems())
def test_the_reference_is_attention_as_it_is_defined(drawn: Problem) -> None:
    found = paged_attention_reference(
        drawn.query, drawn.cache, drawn.metadata, out=drawn.blank(), **drawn.options
    )
    exact = exact_stored(drawn)
    if not exact.any():
        assert not found.any()
    else:
        assert relative_error(found, exact) < 2e-6
