"""What the wrappers of attention and of the KV write refuse, and how they name it.

Covered: dtypes, shapes, strides, devices, widths, block sizes, e4m3 on an A100, ids and slots past
the pool in debug mode; warming up. Left out: a real A100.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch

from pagefleet_kernels import ArgumentError, LayerCache, PagedAttention
from pagefleet_kernels import store_kv as store_kv_reference
from pagefleet_kernels.gpu import checks
from pagefleet_kernels.gpu import warm_up as gpu_warm_up
from pagefleet_kernels.gpu.attention import paged_attention
from pagefleet_kernels.gpu.checks import check_fp8
from pagefleet_kernels.gpu.device import INTERPRETED, DeviceTraits
from pagefleet_kernels.gpu.reachable import Limits
from pagefleet_kernels.gpu.store import rope_store_kv, store_kv
from pagefleet_kernels.gpu.warm_up import AttentionLayer, warm_up
from pagefleet_kernels.metadata import DeviceLengths
from pagefleet_kernels.norm import HeadNorms
from pagefleet_kernels.reference import paged_attention_reference
from pagefleet_kernels.rope import rope_store_kv_reference
from tests.support.attention_problems import problem
from tests.support.kv_pools import poisoned_pool

BF16 = torch.bfloat16
META, CUDA = torch.device("meta"), torch.device("cuda")
Arguments = dict[str, Any]


def attention_arguments() -> Arguments:
    given = problem([(1, 20), (2, 9)], heads=(4, 2))
    return {
        "query": given.query,
        "cache": given.cache,
        "metadata": given.metadata,
        "scale": 0.1,
        "debug": True,
    }


def with_tables(arguments: Arguments, change: Callable[[torch.Tensor], torch.Tensor]) -> Arguments:
    tables = change(arguments["metadata"].block_tables.clone())
    return {**arguments, "metadata": replace(arguments["metadata"], block_tables=tables)}


def with_metadata(arguments: Arguments, **changes: Any) -> Arguments:
    return {**arguments, "metadata": replace(arguments["metadata"], **changes)}


def with_lengths(
    arguments: Arguments,
    *,
    seq_lens: Sequence[int] = (20, 9),
    dtype: torch.dtype = torch.int32,
    tables: int = 2,
) -> Arguments:
    """As a captured graph has them: on the device alone."""
    numbers = DeviceLengths(
        query_starts=torch.tensor([0, 1, 3], dtype=dtype)[: tables + 1],
        seq_lens=torch.tensor(seq_lens, dtype=torch.int32),
        max_query_len=2,
        max_seq_len=20,
    )
    known = with_metadata(arguments, query_starts=(), seq_lens=(), device_lengths=numbers)
    return with_tables(known, lambda each: each[:tables])


def past_the_pool(tables: torch.Tensor) -> torch.Tensor:
    tables[1, 0] = 99
    return tables


ATTENTION: dict[str, Callable[[Arguments], Arguments]] = {
    "query.dtype": lambda a: {**a, "query": a["query"].double()},
    "query.shape": lambda a: {**a, "query": a["query"][..., :48]},
    "query.shape[1]": lambda a: {**a, "query": a["query"][:, :3]},
    "query.stride(-1)": lambda a: {**a, "query": a["query"].repeat(1, 1, 2)[..., ::2]},
    "k_codes.device": lambda a: {**a, "query": a["query"].to(META)},
    "sinks.shape": lambda a: {**a, "sinks": torch.zeros(3)},
    "sinks.stride()": lambda a: {**a, "sinks": torch.zeros(8)[::2]},
    "alibi_slopes.device": lambda a: {**a, "alibi_slopes": torch.zeros(4, device=META)},
    "out": lambda a: {**a, "out": torch.zeros(3, 4, 32, dtype=BF16)},
    "out.stride(-1)": lambda a: {**a, "out": torch.zeros(3, 4, 128, dtype=BF16)[..., ::2]},
    "block_tables": lambda a: with_tables(a, past_the_pool),
    "block_tables.dtype": lambda a: with_tables(a, torch.Tensor.short),
    "block_tables.stride(-1)": lambda a: with_tables(a, lambda tables: tables.T.contiguous().T),
    "block_tables.shape": lambda a: with_tables(a, torch.Tensor.flatten),
    "block_tables.device": lambda a: with_tables(a, lambda tables: tables.to(META)),
    "block_tables.shape[0]": lambda a: with_lengths(a, tables=0),
    "query_starts": lambda a: with_metadata(a, query_starts=(0, 3)),
    "query_starts[-1]": lambda a: with_metadata(a, query_starts=(0, 1, 2)),
    "seq_lens": lambda a: with_metadata(a, seq_lens=(20,)),
    "seq_lens[1]": lambda a: with_metadata(a, seq_lens=(20, 1)),
    "seq_lens[0]": lambda a: with_lengths(a, seq_lens=[999, 9]),
    "device_lengths.seq_lens.shape": lambda a: with_lengths(a, seq_lens=[20, 9, 1]),
    "device_lengths.query_starts.dtype": lambda a: with_lengths(a, dtype=torch.int64),
    "window": lambda a: {**a, "window": 0},
    "softcap": lambda a: {**a, "softcap": 0.0},
    "head_dim": lambda a: {**a, "cache": replace(a["cache"], head_dim=72)},
    "v_head_dim": lambda a: {**a, "cache": replace(a["cache"], v_head_dim=8)},
    "block_size": lambda a: {**a, "cache": replace(a["cache"], block_size=20)},
    "v_codes.stride(0)": lambda a: {**a, "cache": apart(a["cache"])},
    "k_codes.stride(-1)": lambda a: {**a, "cache": transposed(a["cache"])},
}


def apart(cache: LayerCache) -> LayerCache:
    return replace(cache, v_codes=cache.v_codes.clone())


def transposed(cache: LayerCache) -> LayerCache:
    codes = torch.zeros(*cache.k_codes.shape[:2], 64, 16, dtype=BF16).transpose(2, 3)
    wide = codes.new_zeros(cache.num_blocks, cache.k_codes.stride(0)).as_strided(
        codes.shape, (cache.k_codes.stride(0), *codes.stride()[1:])
    )
    return replace(cache, k_codes=wide)


@pytest.mark.parametrize("named", ATTENTION)
def test_attention_names_the_argument(named: str) -> None:
    arguments = ATTENTION[named](attention_arguments())
    with pytest.raises(ArgumentError) as error:
        paged_attention(**arguments)
    assert error.value.field == named


@pytest.mark.parametrize("named", ["query_starts", "query_starts[-1]", "seq_lens", "window"])
def test_plain_torch_names_it_too(named: str) -> None:
    arguments = ATTENTION[named](attention_arguments())
    del arguments["debug"]
    for function in (PagedAttention(), paged_attention_reference):
        with pytest.raises(ArgumentError) as error:
            function(**arguments)
        assert error.value.field == named


def test_lengths_on_the_device_alone_are_enough() -> None:
    given = attention_arguments()
    expected = paged_attention(**given)
    torch.testing.assert_close(paged_attention(**with_lengths(given)), expected)


def test_attention_arguments_as_they_are_work() -> None:
    assert paged_attention(**attention_arguments()).isfinite().all()


def store_arguments() -> Arguments:
    return {
        "query": torch.zeros(3, 4, 64, dtype=BF16),
        "key": torch.zeros(3, 2, 64, dtype=BF16),
        "value": torch.zeros(3, 2, 80, dtype=BF16),
        "cache": poisoned_pool("int8", widths=(64, 80)).layer(0),
        "slots": torch.tensor([0, -1, 7]),
        "positions": torch.tensor([0, 1, 2]),
        "cos": torch.ones(9, 16),
        "sin": torch.zeros(9, 16),
        "debug": True,
    }


W = torch.ones(64, dtype=BF16)
STORE: dict[str, Callable[[Arguments], Arguments]] = {
    "key.dtype": lambda a: {**a, "key": a["key"].int()},
    "key.shape": lambda a: {**a, "key": a["key"][:, :1]},
    "value.shape": lambda a: {**a, "value": a["value"][..., :64]},
    "value.shape[0]": lambda a: {**a, "value": a["value"][:2]},
    "key.stride(-1)": lambda a: {**a, "key": a["key"].repeat(1, 1, 2)[..., ::2]},
    "slots": lambda a: {**a, "slots": torch.tensor([0, 1, 24 * 8])},
    "slots.dtype": lambda a: {**a, "slots": a["slots"].int()},
    "slots.shape": lambda a: {**a, "slots": a["slots"][:2]},
    "slots.stride()": lambda a: {**a, "slots": a["slots"].repeat(2)[::2]},
    "query.shape[0]": lambda a: {**a, "query": a["query"][:1]},
    "positions.dtype": lambda a: {**a, "positions": a["positions"].int()},
    "cos.dtype": lambda a: {**a, "cos": a["cos"].double()},
    "sin.dtype": lambda a: {**a, "sin": a["sin"].bfloat16()},
    "cos.shape": lambda a: {**a, "cos": torch.ones(9, 40), "sin": torch.ones(9, 40)},
    "sin.shape": lambda a: {**a, "sin": a["sin"][:, :8].contiguous()},
    "sin.stride(0)": lambda a: {**a, "sin": a["sin"].repeat(1, 2)[:, :16]},
    "sin.stride(-1)": lambda a: {**a, "sin": a["sin"].repeat(1, 2)[:, ::2]},
    "norms.query.shape": lambda a: {**a, "norms": HeadNorms(query=W[:32], key=W, eps=1e-6)},
    "norms.key.dtype": lambda a: {**a, "norms": HeadNorms(query=W, key=W.float(), eps=1e-6)},
    "norms.eps": lambda a: {**a, "norms": HeadNorms(query=W, key=W, eps=0.0)},
    "cos.shape ": lambda a: {**a, "cos": torch.ones(9, 0), "sin": torch.ones(9, 0)},
    "positions": lambda a: {**a, "positions": torch.tensor([0, 9, 1])},
    "positions ": lambda a: {**a, "positions": torch.tensor([0, -1, 1])},
    "positions.shape": lambda a: {**a, "positions": a["positions"][:1]},
    "sin.device": lambda a: {**a, "sin": a["sin"].to(META)},
}


@pytest.mark.parametrize("named", STORE)
def test_the_kv_write_names_the_argument(named: str) -> None:
    arguments = STORE[named](store_arguments())
    with pytest.raises(ArgumentError) as error:
        rope_store_kv(**arguments)
    assert error.value.field == named.strip()
    without_rope = {name: arguments[name] for name in ("key", "value", "cache", "slots", "debug")}
    if named.split(".")[0] in without_rope:
        with pytest.raises(ArgumentError):
            store_kv(**without_rope)


def test_without_positions_the_tables_have_a_row_a_token() -> None:
    arguments = {**store_arguments(), "positions": None}
    with pytest.raises(ArgumentError, match=r"\[3, 1 to 32\]") as error:
        rope_store_kv(**arguments)
    assert error.value.field == "cos.shape"
    rope_store_kv(**{**arguments, "cos": torch.ones(3, 16), "sin": torch.ones(3, 16)})


@pytest.mark.parametrize("named", ["positions.shape", "cos.shape", "cos.shape ", "cos.dtype"])
def test_plain_rope_names_it_too(named: str) -> None:
    arguments = STORE[named](store_arguments())
    del arguments["debug"]
    with pytest.raises(ArgumentError) as error:
        rope_store_kv_reference(**arguments)
    assert error.value.field == named.strip()


@pytest.mark.parametrize("name", ["key", "value"])
def test_plain_torch_takes_one_row_a_slot(name: str) -> None:
    given = {each: store_arguments()[each] for each in ("key", "value", "cache", "slots")}
    with pytest.raises(ArgumentError) as error:  # one row would be written to every slot
        store_kv_reference(**{**given, name: given[name][:1]})
    assert error.value.field == name


def test_kv_write_arguments_as_they_are_work() -> None:
    assert torch.equal(rope_store_kv(**store_arguments()), store_arguments()["query"])


@pytest.mark.parametrize("capability", [75, 80, 86])
def test_e4m3_is_refused_where_nothing_reads_it(capability: int) -> None:
    with pytest.raises(ArgumentError, match="use int8") as error:
        check_fp8(capability)
    assert error.value.field == "kv_cache_dtype"
    check_fp8(89)


def test_an_e4m3_cache_on_an_a100_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    a100 = DeviceTraits(num_processors=108, capability=80)
    monkeypatch.setattr(checks, "traits_of", lambda device: a100)
    with pytest.raises(ArgumentError, match="compute capability 8.0.*use int8"):
        checks.check_cache(poisoned_pool("fp8_e4m3", widths=(64, 64)).layer(0), CUDA)


def test_warming_up_launches_every_kernel_and_touches_no_block() -> None:
    pool = poisoned_pool("int8", num_kv_heads=1, widths=(64, 64), num_layers=2)
    before = pool.records.clone()
    layers = [AttentionLayer(cache=pool.layer(index), num_heads=4) for index in range(2)]
    limits = Limits(
        max_num_seqs=2,
        max_model_len=2048,
        most_decode_query=1,
        is_deterministic=False,
        num_processors=INTERPRETED.num_processors,
        capability=INTERPRETED.capability,
    )
    done = warm_up(layers, dtype=BF16, limits=limits)
    assert done.kernels == 4  # writing; decoding whole, in two splits; prefill
    assert done.seconds > 0
    assert torch.equal(pool.records, before)
    windowed = AttentionLayer(cache=pool.layer(1), num_heads=4, window=100)
    assert warm_up([*layers, windowed], dtype=BF16, limits=limits).kernels == 8


@pytest.mark.parametrize("has_head_norms", [False, True])
def test_warming_up_writes_as_the_layer_does(
    has_head_norms: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Turned, by tables that are laid out as a model's."""
    pool = poisoned_pool("int8", num_kv_heads=1, widths=(64, 64))
    before, launched = pool.records.clone(), []

    def write(*arguments: Any, **named: Any) -> torch.Tensor:
        launched.append(named)
        return rope_store_kv(*arguments, **named)

    monkeypatch.setattr(gpu_warm_up, "rope_store_kv", write)
    layer = AttentionLayer(
        cache=pool.layer(0), num_heads=2, rotary_dim=32, has_head_norms=has_head_norms
    )
    limits = Limits(
        max_num_seqs=1,
        max_model_len=1,
        most_decode_query=1,
        is_deterministic=False,
        num_processors=INTERPRETED.num_processors,
        capability=INTERPRETED.capability,
    )
    warm_up([layer], dtype=BF16, limits=limits)
    (named,) = launched
    assert named["cos"].stride() == named["sin"].stride() == (32, 1)
    assert (named["norms"] is not None) == has_head_norms
    assert torch.equal(pool.records, before)
