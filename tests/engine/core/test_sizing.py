"""Start-up sizing: the operator's arithmetic, refusals with numbers, derived lengths."""

from dataclasses import replace
from typing import Any

import pytest

from pagefleet_engine.config import EngineConfig
from pagefleet_engine.errors import ConfigError, DoesNotFitError
from pagefleet_engine.limits import resolve_limits
from pagefleet_engine.sizing import (
    KVSizing,
    describe_ledger,
    refuse_hopeless_weights,
    size_kv_cache,
)
from pagefleet_memory import (
    EngineLimits,
    Ledger,
    Measured,
    ModelShape,
    build_ledger,
    cpu_accelerator,
    kv_block_bytes,
    num_kv_blocks,
)

MIB = 1 << 20
SHAPE = ModelShape.from_config(
    {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": 512,
        "intermediate_size": 1024,
        "num_hidden_layers": 8,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "vocab_size": 32000,
        "max_position_embeddings": 4096,
        "torch_dtype": "float32",
    }
)
LIMITS = EngineLimits(
    dtype="float32", max_model_len=4096, max_num_seqs=8, max_num_batched_tokens=256
)


def ledger_with_pool(pool_bytes: int) -> Ledger:
    """A ledger whose KV pool has exactly this size."""
    probe = build_ledger(SHAPE, cpu_accelerator(64 << 30, bf16=False), LIMITS)
    limits = replace(LIMITS, gpu_memory_utilization=1.0)
    memory = probe.fixed_bytes + pool_bytes
    ledger = build_ledger(SHAPE, cpu_accelerator(memory, bf16=False), limits)
    assert ledger.kv_pool_bytes == pool_bytes
    return ledger


def test_the_pool_is_what_the_memory_model_says() -> None:
    ledger = ledger_with_pool(300 * MIB)
    sizing = size_kv_cache(SHAPE, LIMITS, ledger, length_is_stated=True)
    assert sizing.num_blocks == num_kv_blocks(ledger, SHAPE, LIMITS)
    assert sizing.limits == LIMITS


@pytest.mark.parametrize("more", [0, 5])
def test_a_term_that_is_only_its_prediction_is_not_called_measured(more: int) -> None:
    ledger = ledger_with_pool(300 * MIB)
    measured = Measured(context_bytes=ledger.term("context").bytes + more)
    found = describe_ledger(ledger, ledger, measured, KVSizing(9, LIMITS), pool_bytes=7)
    values = {term.name: term.measured_bytes for term in found.terms}
    assert values["context"] == (measured.context_bytes if more else None)
    assert values["weights"] is None and values["kv_pool"] == 7


def test_a_stated_length_that_does_not_fit_is_refused_with_the_largest_that_would() -> None:
    block = kv_block_bytes(SHAPE, LIMITS)
    ledger = ledger_with_pool(100 * block + 5)
    with pytest.raises(DoesNotFitError, match="needs 256 KV blocks.*that fits is 1600"):
        size_kv_cache(SHAPE, LIMITS, ledger, length_is_stated=True)
    exact = replace(LIMITS, max_model_len=1600)
    assert size_kv_cache(SHAPE, exact, ledger, length_is_stated=True).num_blocks == 100


def test_a_derived_length_shrinks_to_what_fits() -> None:
    ledger = ledger_with_pool(100 * kv_block_bytes(SHAPE, LIMITS))
    sizing = size_kv_cache(SHAPE, LIMITS, ledger, length_is_stated=False)
    assert (sizing.num_blocks, sizing.limits.max_model_len) == (100, 1600)


def test_no_room_at_all_is_refused_even_for_a_derived_length() -> None:
    with pytest.raises(DoesNotFitError, match="not one block fits"):
        size_kv_cache(SHAPE, LIMITS, ledger_with_pool(10), length_is_stated=False)


def test_weights_beyond_the_budget_are_refused_before_they_are_loaded() -> None:
    ledger = build_ledger(SHAPE, cpu_accelerator(32 * MIB, bf16=False), LIMITS)
    with pytest.raises(DoesNotFitError, match="weights take .* as float32"):
        refuse_hopeless_weights(ledger, LIMITS)


@pytest.mark.parametrize(("bf16", "dtype"), [(True, "bfloat16"), (False, "float32")])
def test_auto_dtype_on_cpu_follows_the_processor(bf16: bool, dtype: str) -> None:
    accelerator = cpu_accelerator(1 << 30, bf16=bf16)
    limits = resolve_limits(EngineConfig(model="/m"), shape=SHAPE, accelerator=accelerator)
    assert limits.dtype == dtype


@pytest.mark.parametrize(("settings", "field"), [({"max_model_len": 4097}, "max_model_len")])
def test_limits_the_model_cannot_honour_are_refused(settings: dict[str, Any], field: str) -> None:
    config = EngineConfig(model="/m", **settings)
    accelerator = cpu_accelerator(1 << 30, bf16=False)
    with pytest.raises(ConfigError, match="at most 4096") as caught:
        resolve_limits(config, shape=SHAPE, accelerator=accelerator)
    assert caught.value.field == field
