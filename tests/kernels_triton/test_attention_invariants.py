"""What a result of paged attention must not depend on, in the interpreter.

Covered: the order of blocks, batch mates, garbage in the pool, bounds that the host gives: to the
bit; the number of splits and the way a prompt is cut into chunks: within rounding. Left out: CUDA.
"""

from dataclasses import replace
from typing import Any

import pytest
import torch

from pagefleet_kernels.gpu.attention import paged_attention
from pagefleet_kernels.gpu.device import DeviceTraits
from pagefleet_kernels.kv_pool import layer_cache
from tests.support.attention_problems import (
    Batch,
    Problem,
    exact_stored,
    lengths,
    problem,
    relative_error,
)

FP32 = torch.float32
MODES = ["bfloat16", "fp8_e4m3", "int8", "int8k_int4v", "int4"]
BATCH: Batch = [(1, 140), (3, 60), (12, 30)]


def attend(given: Problem, **more: Any) -> torch.Tensor:
    return paged_attention(given.query, given.cache, given.metadata, **given.options, **more)


@pytest.mark.parametrize("mode", MODES)
def test_the_order_of_blocks_changes_no_bit(mode: str) -> None:
    one, other = (problem(BATCH, mode=mode, block_seed=seed, block_size=8) for seed in (1, 2))
    assert not torch.equal(one.metadata.block_tables, other.metadata.block_tables)
    assert torch.equal(attend(one), attend(other))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("poison", [0x00, 0x7F, 0x80])
def test_garbage_in_the_pool_changes_no_bit(mode: str, poison: int) -> None:
    one, other = (problem([(1, 75), (12, 21)], mode=mode, poison=each) for each in (0xFF, poison))
    assert not torch.equal(one.pool.records, other.pool.records)
    assert torch.equal(attend(one), attend(other))


@pytest.mark.parametrize("mode", ["bfloat16", "int8", "int4"])
def test_in_deterministic_mode_batch_mates_change_no_bit(mode: str) -> None:
    # 1100 tokens are two splits of 1024; the mates bring more splits, and a prefill
    alone = problem([(1, 1100)], mode=mode, features={"sinks": True})
    found = [attend(alone, is_deterministic=True)]
    for mates in ([(1, 40)], [(8, 2200)], [(12, 30), (1, 0)]):
        together = problem([*mates, (1, 1100)], mode=mode, features={"sinks": True})
        found.append(attend(together, is_deterministic=True)[-1:])
    assert all(torch.equal(each, found[0]) for each in found)


@pytest.mark.parametrize("num_processors", [1, 3, 12, 400])
@pytest.mark.parametrize("mode", ["float32", "int8"])
def test_splits_change_rounding_alone(mode: str, num_processors: int) -> None:
    dtype = FP32 if mode == "float32" else torch.bfloat16
    features = {"sinks": True, "softcap": 8.0}
    given = problem([(1, 300), (2, 65)], mode=mode, dtype=dtype, features=features)
    metadata = replace(given.metadata, device_lengths=lengths([(1, 300), (2, 65)], 32 * 1024))
    traits = DeviceTraits(num_processors=num_processors, capability=90)
    found = paged_attention(given.query, given.cache, metadata, **given.options, traits=traits)
    limit = 2e-6 if mode == "float32" else 5e-3
    assert relative_error(found, exact_stored(given)) < limit


def test_bounds_of_the_host_change_no_bit_without_splits() -> None:
    given = problem(BATCH)
    bound = replace(lengths(BATCH, 900), max_query_len=512)
    loose = replace(given.metadata, device_lengths=bound, query_starts=(), seq_lens=())
    found = paged_attention(given.query, given.cache, loose, **given.options)
    assert torch.equal(found[0], attend(given)[0])
    assert relative_error(found, exact_stored(given)) < 5e-3


@pytest.mark.parametrize("features", [{}, {"window": 17, "sinks": True}], ids=str)
def test_chunks_of_a_prompt_change_rounding_alone(features: dict[str, Any]) -> None:
    whole = problem([(90, 90)], mode="float32", dtype=FP32, features=features)
    at_once, rows = attend(whole), []
    for start, stop in ((0, 33), (33, 34), (34, 40), (40, 90)):
        chunk = replace(whole.metadata, query_starts=(0, stop - start), seq_lens=(stop,))
        query = whole.query[start:stop]
        rows.append(paged_attention(query, whole.cache, chunk, **whole.options))
    torch.testing.assert_close(torch.cat(rows), at_once, atol=2e-6, rtol=2e-5)


def test_tables_of_32_bits_and_of_views_give_the_same() -> None:
    given = problem(BATCH)
    used = given.metadata.block_tables.clamp(max=0x7FFFFFFF).int()
    wide = torch.full((3, 30), 7, dtype=torch.int64)
    wide[:, : used.shape[1]] = used
    for tables in (used, wide[:, : used.shape[1]]):
        metadata = replace(given.metadata, block_tables=tables)
        found = paged_attention(given.query, given.cache, metadata, **given.options)
        assert torch.equal(found, attend(given))


@pytest.mark.parametrize("mode", ["bfloat16", "int8", "int4"])
def test_records_may_be_wider_than_their_parts(mode: str) -> None:
    given = problem(BATCH, mode=mode)
    num_blocks, record_bytes = given.pool.records.shape
    wide = torch.full((num_blocks, record_bytes + 48), 0xFF, dtype=torch.uint8)
    records = wide[:, :record_bytes]
    records.copy_(given.pool.records)
    cache = layer_cache(records, given.pool.layout, given.layer)
    found = paged_attention(given.query, cache, given.metadata, **given.options)
    assert torch.equal(found, attend(given))


def test_a_padded_row_gives_zeros_and_reads_no_table() -> None:
    given = problem([(1, 0), (1, 20), (2, 0)], features={"sinks": True}, max_seq_len=4096)
    given.metadata.block_tables[0] = given.metadata.block_tables[2] = 1 << 40
    found = paged_attention(
        given.query, given.cache, given.metadata, out=given.blank(), **given.options
    )
    assert (found[[0, 2, 3]] == 0).all()
    assert found[1].isfinite().all() and found[1].any()
