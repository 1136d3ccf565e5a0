"""The block record: its bytes against the memory model, its alignment, its views, what it refuses.

Covered: every mode, equal and different widths, several layers, records wider than the layout.
"""

from typing import get_args

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pagefleet_kernels import KV_MODES, ArgumentError, KVLayout, KVPool, LayerKVShape
from pagefleet_kernels.kv_pool import layer_cache
from pagefleet_memory import KV_CACHE_DTYPES
from pagefleet_memory.dtypes import RowPart, kv_row_bytes
from tests.support.kv_pools import CPU, poisoned_pool

SHAPES = st.builds(
    LayerKVShape,
    num_kv_heads=st.integers(1, 5),
    head_dim=st.integers(1, 32).map(lambda quarter: 4 * quarter),
    v_head_dim=st.integers(1, 32).map(lambda quarter: 4 * quarter),
)
LAYOUTS = st.builds(
    KVLayout,
    mode=st.sampled_from(KV_MODES),
    block_size=st.integers(1, 5).map(lambda eighth: 8 * eighth),
    layers=st.lists(SHAPES, min_size=1, max_size=4).map(tuple),
)


def test_the_memory_model_knows_the_same_modes() -> None:
    assert set(KV_MODES) | {"auto"} == set(KV_CACHE_DTYPES)


@settings(deadline=None, max_examples=50)
@given(LAYOUTS)
def test_a_record_takes_the_bytes_that_the_memory_model_counts(layout: KVLayout) -> None:
    key, value = get_args(RowPart)
    rows = [
        each.num_kv_heads
        * (
            kv_row_bytes(each.head_dim, layout.mode, part=key)
            + kv_row_bytes(each.v_head_dim, layout.mode, part=value)
        )
        for each in layout.layers
    ]
    assert layout.record_bytes == layout.block_size * sum(rows)


@settings(deadline=None, max_examples=50)
@given(LAYOUTS)
def test_parts_follow_each_other_on_multiples_of_16_bytes(layout: KVLayout) -> None:
    end = 0
    for index in range(len(layout.layers)):
        parts = layout.parts(index)
        offsets = (parts.k_codes, parts.v_codes, parts.k_scales, parts.v_scales, parts.end)
        assert layout.layer_offset(index) == parts.k_codes == end
        assert list(offsets) == sorted(offsets) and all(each % 16 == 0 for each in offsets)
        end = parts.end
    assert end == layout.record_bytes


@settings(deadline=None, max_examples=50)
@given(LAYOUTS)
def test_views_cover_every_byte_of_a_record_once(layout: KVLayout) -> None:
    pool = KVPool(layout, num_blocks=2, device=CPU)
    for index in range(len(layout.layers)):
        cache = pool.layer(index)
        for view in (cache.k_codes, cache.v_codes, cache.k_scales, cache.v_scales):
            if view is not None:
                row = view[1].contiguous().flatten().view(torch.uint8)
                view[1].copy_((row + 1).view(view.dtype).view(view[1].shape))
    assert torch.equal(pool.records, torch.tensor([[0], [1]]).expand(2, layout.record_bytes))


@pytest.mark.parametrize("mode", KV_MODES)
def test_views_follow_the_stride_of_wider_records(mode: str) -> None:
    pool = poisoned_pool(mode, num_layers=2)
    wide = torch.zeros(24, pool.layout.record_bytes + 48, dtype=torch.uint8)
    cache = layer_cache(wide[:, : pool.layout.record_bytes], pool.layout, 1)
    own = pool.layer(1)
    for name in ("k_codes", "v_codes", "k_scales", "v_scales"):
        view, expected = getattr(cache, name), getattr(own, name)
        if expected is None:
            assert view is None
            continue
        assert view.shape == expected.shape and view.dtype == expected.dtype
        assert view.stride(0) * view.element_size() == wide.shape[1]
        assert view.stride()[1:] == expected.stride()[1:]


def test_clearing_blocks_leaves_the_others() -> None:
    pool = poisoned_pool("int8", num_layers=3)
    pool.clear(torch.tensor([3, 7]))
    assert pool.records.any(dim=1).logical_not().nonzero().flatten().tolist() == [3, 7]


@pytest.mark.parametrize(
    ("field", "value", "settings"),
    [
        ("mode", "int3", {"mode": "int3"}),
        ("block_size", 4, {"block_size": 4}),
        ("block_size", 0, {"block_size": 0}),
        ("block_size", 20, {"block_size": 20}),
        ("head_dim", 9, {"head_dim": 9}),
        ("head_dim", 0, {"head_dim": 0, "mode": "bfloat16"}),
        ("v_head_dim", 13, {"v_head_dim": 13, "mode": "fp8_e4m3"}),
        ("head_dim", 6, {"head_dim": 6, "mode": "int4"}),
        ("v_head_dim", 6, {"v_head_dim": 6, "mode": "int8k_int4v"}),
    ],
)
def test_what_cannot_be_stored_is_named(
    field: str, value: object, settings: dict[str, object]
) -> None:
    given = {"mode": "int8", "block_size": 16, "head_dim": 8, "v_head_dim": 8, **settings}
    widths = {name: given.pop(name) for name in ("head_dim", "v_head_dim")}
    with pytest.raises(ArgumentError) as caught:
        shape = LayerKVShape(num_kv_heads=1, **widths)  # type: ignore[arg-type]
        KVLayout(layers=(shape,), **given)  # type: ignore[arg-type]
    assert (caught.value.field, caught.value.value) == (field, value)


def test_int8k_int4v_takes_a_key_width_that_int4_does_not() -> None:
    shape = LayerKVShape(num_kv_heads=1, head_dim=6, v_head_dim=8)
    assert KVLayout(mode="int8k_int4v", block_size=8, layers=(shape,)).record_bytes == 8 * (
        (6 + 4) + (4 + 4)
    )
