"""The ledger: exact sums, stages, measurements, and which terms an accelerator has."""

import pytest

from pagefleet_memory import (
    CheckpointSummary,
    Measured,
    ModelShape,
    build_ledger,
    build_stage_ledgers,
    cpu_accelerator,
    kv_block_bytes,
    num_kv_blocks,
)
from pagefleet_memory.constants import CONSTANTS
from pagefleet_memory.ledger import TERM_NAMES
from tests.memory.memory_builders import (
    GIB,
    LLAMA_3_8B,
    LLAMA_3_70B,
    SMOLLM2_135M,
    gpu,
    limits,
    shape,
)


def test_terms_are_named_in_order_and_sum_to_the_budget() -> None:
    ledger = build_ledger(shape(LLAMA_3_8B), gpu("H100"), limits())
    assert tuple(term.name for term in ledger.terms) == TERM_NAMES
    assert sum(term.bytes for term in ledger.terms) == ledger.budget_bytes
    assert ledger.budget_bytes == int(gpu("H100").memory_bytes * 0.90)
    assert all(term.source for term in ledger.terms)


def test_a_budget_too_small_shows_as_a_negative_pool_and_no_blocks() -> None:
    model, settings = shape(LLAMA_3_70B), limits()
    ledger = build_ledger(model, gpu("L4"), settings)
    assert ledger.kv_pool_bytes < 0
    assert sum(term.bytes for term in ledger.terms) == ledger.budget_bytes
    assert num_kv_blocks(ledger, model, settings) == 0


def test_measurements_replace_predictions_and_the_pool_takes_the_difference() -> None:
    model, settings = shape(LLAMA_3_8B), limits()
    predicted = build_ledger(model, gpu("H100"), settings)
    measured = build_ledger(
        model, gpu("H100"), settings, measured=Measured(context_bytes=GIB, workspace_bytes=0)
    )
    assert measured.term("context").bytes == GIB
    assert measured.term("context").source == "measured"
    freed = sum(predicted.term(name).bytes for name in ("context", "workspace")) - GIB
    assert measured.kv_pool_bytes == predicted.kv_pool_bytes + freed


def test_cpu_has_no_graphs_and_no_communication() -> None:
    ledger = build_ledger(
        shape(SMOLLM2_135M), cpu_accelerator(4 * GIB, bf16=False), limits(dtype="float32")
    )
    assert ledger.term("graphs").bytes == ledger.term("communication").bytes == 0
    assert ledger.term("context").bytes > 500 << 20


def test_weights_stored_as_bf16_and_run_as_float32_count_four_bytes() -> None:
    model = shape(SMOLLM2_135M)
    accelerator = cpu_accelerator(4 * GIB, bf16=False)
    ledger = build_ledger(model, accelerator, limits(dtype="float32"))
    assert model.num_parameters == 134_515_008
    packed_head = 49152 * 576
    assert ledger.term("weights").bytes == 4 * (model.num_parameters + packed_head)


def test_an_untied_head_is_held_once_on_cpu() -> None:
    model = shape(SMOLLM2_135M, tie_word_embeddings=False)
    accelerator = cpu_accelerator(4 * GIB, bf16=False)
    ledger = build_ledger(model, accelerator, limits(dtype="float32"))
    assert ledger.term("weights").bytes == 4 * model.num_parameters


def test_the_checkpoint_overrules_the_formula() -> None:
    config = {**LLAMA_3_8B}
    stored = CheckpointSummary(
        total_bytes=16_060_522_496 + 4096, bytes_by_dtype={"BF16": 16_060_526_592}, num_parameters=1
    )
    model = ModelShape.from_config(config, checkpoint=stored)
    assert model.weight_bytes("bfloat16") == stored.total_bytes
    ledger = build_ledger(model, gpu("H100"), limits())
    assert ledger.term("weights").bytes == stored.total_bytes


def test_a_quantized_checkpoint_keeps_its_packed_bytes_in_any_dtype() -> None:
    stored = CheckpointSummary(
        total_bytes=5_700_000_000,
        bytes_by_dtype={"I32": 3_500_000_000, "F16": 2_200_000_000},
        num_parameters=1_975_000_000,
    )
    config = {**LLAMA_3_8B, "quantization_config": {"quant_method": "awq", "bits": 4}}
    model = ModelShape.from_config(config, checkpoint=stored)
    assert model.weight_bytes("float16") == 5_700_000_000
    assert model.weight_bytes("float32") == 7_900_000_000
    assert build_ledger(model, gpu("L4"), limits()).term("weights").bytes == 5_700_000_000


def test_quantized_weights_without_files_match_what_was_measured() -> None:
    """GPTQ g128 of Llama-3.1-8B: 5.38 GiB resident, of which 0.03 are rotary tables."""
    config = {
        **LLAMA_3_8B,
        "quantization_config": {"quant_method": "gptq", "bits": 4, "group_size": 128},
    }
    assert shape(config).weight_bytes("bfloat16") / GIB == pytest.approx(5.31, abs=0.01)


def test_embedding_is_on_the_first_stage_and_the_head_on_the_last() -> None:
    """Llama-3.1-8B in four stages: 4.26 / 3.28 / 3.28 / 4.26 GiB measured."""
    ledgers = build_stage_ledgers(shape(LLAMA_3_8B), gpu("H100"), limits(pipeline_parallel_size=4))
    weights = [ledger.term("weights").bytes / GIB for ledger in ledgers]
    assert weights == pytest.approx([4.23, 3.25, 3.25, 4.23], abs=0.02)
    assert [ledger.term("sampler").bytes > 0 for ledger in ledgers] == [False, False, False, True]


def test_stages_and_ranks_together_hold_every_parameter() -> None:
    """Replicated norms are counted on each rank, so the sum may only be larger, and barely."""
    model = shape(LLAMA_3_70B)
    settings = limits(tensor_parallel_size=4, pipeline_parallel_size=3)
    ledgers = build_stage_ledgers(model, gpu("H100"), settings)
    held = 4 * sum(ledger.term("weights").bytes for ledger in ledgers)
    exact = model.weight_bytes("bfloat16")
    assert exact <= held < exact * 1.001


def test_tied_embeddings_are_on_both_ends_of_a_pipeline() -> None:
    model = shape(LLAMA_3_8B, tie_word_embeddings=True)
    ledgers = build_stage_ledgers(model, gpu("H100"), limits(pipeline_parallel_size=2))
    held = sum(ledger.term("weights").bytes for ledger in ledgers)
    assert held - model.weight_bytes("bfloat16") == 128256 * 4096 * 2


def test_the_binding_stage_is_the_one_reported_without_a_stage() -> None:
    model, settings = shape(LLAMA_3_8B), limits(pipeline_parallel_size=4)
    ledgers = build_stage_ledgers(model, gpu("H100"), settings)
    binding = build_ledger(model, gpu("H100"), settings)
    assert binding.stage == 3
    assert num_kv_blocks(ledgers, model, settings) == num_kv_blocks(binding, model, settings)


def test_the_last_stage_with_unequal_layers_still_decides_the_blocks() -> None:
    model, settings = shape(LLAMA_3_8B, num_hidden_layers=33), limits(pipeline_parallel_size=2)
    ledgers = build_stage_ledgers(model, gpu("H100"), settings)
    counts = [
        ledger.kv_pool_bytes // kv_block_bytes(model, settings, stage=ledger.stage)
        for ledger in ledgers
    ]
    assert num_kv_blocks(ledgers, model, settings) == min(counts)


def test_every_constant_says_where_it_comes_from() -> None:
    for (profile, name), record in CONSTANTS.items():
        assert (record.profile, record.name) == (profile, name)
        assert record.source and record.unit and record.date and record.value >= 0
