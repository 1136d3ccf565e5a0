"""What split attention needs for partial results: pure arithmetic, without Triton.

Covered: that no batch within an engine's limits needs more than was reserved, and that one needs
all of it; layers of several shapes; bytes of the parts. Left out: results, which the kernels' own
tests compare.
"""

from dataclasses import replace
from math import prod

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pagefleet_kernels import ArgumentError, KVLayout, LayerKVShape, open_backend
from pagefleet_kernels.gpu.launch import AttentionShape
from pagefleet_kernels.gpu.reachable import Limits, ReachingBatch, decode_launch_within
from pagefleet_kernels.gpu.scratch import Scratch, partial_bytes, scratch_bytes
from pagefleet_kernels.kv_layout import KV_MODES

CPU = torch.device("cpu")
H100 = Limits(
    max_num_seqs=256,
    max_model_len=131072,
    most_decode_query=8,
    is_deterministic=False,
    num_processors=132,
    capability=90,
)


@st.composite
def shapes(draw: st.DrawFn) -> AttentionShape:
    num_kv_heads = draw(st.sampled_from([1, 2, 3, 8]))
    return AttentionShape(
        num_heads=num_kv_heads * draw(st.sampled_from([1, 3, 4, 7, 12])),
        num_kv_heads=num_kv_heads,
        head_dim=draw(st.sampled_from([64, 128, 256])),
        v_head_dim=draw(st.sampled_from([64, 80, 128, 192])),
        kv_mode=draw(st.sampled_from(KV_MODES)),
        dtype=draw(st.sampled_from(["bfloat16", "float16", "float32"])),
    )


@st.composite
def engine_limits(draw: st.DrawFn) -> Limits:
    return Limits(
        max_num_seqs=draw(st.integers(1, 24)),
        max_model_len=draw(st.integers(1, 80_000)),
        most_decode_query=draw(st.integers(1, 8)),
        is_deterministic=draw(st.booleans()),
        num_processors=draw(st.integers(1, 200)),
        capability=90,
    )


def needed(shape: AttentionShape, batch: ReachingBatch, limits: Limits) -> int:
    launch = decode_launch_within(shape, batch, limits)
    itemsize = 4 if shape.dtype == "float32" else 2
    rows = launch.partial_rows(shape)
    return prod(rows) * (shape.v_head_dim * itemsize + 8) if launch.is_split else 0


@settings(deadline=None, max_examples=100)
@given(st.lists(shapes(), min_size=1, max_size=3), engine_limits(), st.data())
def test_no_batch_needs_more_than_was_reserved(
    layers: list[AttentionShape], limits: Limits, data: st.DataObject
) -> None:
    reserved = scratch_bytes(layers, limits)
    for _ in range(5):
        batch = ReachingBatch(
            num_seqs=data.draw(st.integers(1, limits.max_num_seqs)),
            query_len=data.draw(st.integers(1, limits.most_decode_query)),
            max_seq_len=data.draw(st.integers(1, limits.max_model_len)),
        )
        assert all(needed(layer, batch, limits) <= reserved for layer in layers)
    longest = [
        ReachingBatch(num_seqs=seqs, query_len=tokens, max_seq_len=limits.max_model_len)
        for seqs in range(1, limits.max_num_seqs + 1)
        for tokens in range(1, limits.most_decode_query + 1)
    ]
    assert max(needed(layer, each, limits) for layer in layers for each in longest) == reserved


def test_splits_of_a_usual_engine_take_megabytes_and_fixed_ones_gibibytes() -> None:
    layer = AttentionShape(
        num_heads=32,
        num_kv_heads=8,
        head_dim=128,
        v_head_dim=128,
        kv_mode="bfloat16",
        dtype="bfloat16",
    )
    # 16 sequences of 8 tokens, in 4 splits: 512 programs of 32 rows for 264 places.
    assert scratch_bytes([layer], H100) == 16 * 8 * 32 * 4 * (128 * 2 + 8)
    assert scratch_bytes([layer], replace(H100, max_model_len=1024)) == 0
    fixed = scratch_bytes([layer], replace(H100, is_deterministic=True))
    assert fixed == 256 * 8 * 32 * 128 * (128 * 2 + 8)


def test_parts_lie_side_by_side_and_do_not_move() -> None:
    rows = (3, 2, 4, 8)
    scratch = Scratch(partial_bytes(rows, width=80, itemsize=2) + 5, CPU)
    values, stats = scratch.partials(rows, width=80, dtype=torch.bfloat16)
    assert (values.shape, stats.shape) == ((*rows, 80), (*rows, 2))
    assert stats.data_ptr() == values.data_ptr() + values.nbytes
    assert stats.data_ptr() % 16 == 0, "an address that is no multiple compiles another kernel"
    smaller, _ = scratch.partials((1, 1, 4, 2), width=64, dtype=torch.float32)
    assert smaller.data_ptr() == values.data_ptr()


def test_more_than_was_reserved_is_refused_with_both_figures() -> None:
    scratch = Scratch(partial_bytes((1, 1, 4, 8), width=64, itemsize=2), CPU)
    scratch.partials((1, 1, 4, 8), width=64, dtype=torch.bfloat16)
    with pytest.raises(
        ArgumentError, match=r"=4352: 8704 are needed for .*\(2, 1, 4, 8\)"
    ) as error:
        scratch.partials((2, 1, 4, 8), width=64, dtype=torch.bfloat16)
    assert error.value.field == "scratch.num_bytes"


def test_plain_torch_reserves_nothing() -> None:
    layer = LayerKVShape(num_kv_heads=2, head_dim=64, v_head_dim=64)
    layout = KVLayout(mode="bfloat16", block_size=16, layers=(layer,))
    assert open_backend("torch", layout, CPU, scratch_bytes=4096).scratch_bytes == 0
