"""The parts of a planned workspace are what the engine's kernels hold, to the byte.

Covered: partial results of attention over shapes, limits and every product; what products with
quantized weights unpack, over formats, types and cards, and in the layers of every family; that
either makes the pool smaller by as much. Left out: activations, which are a fitted law.
"""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from pagefleet_engine.attention_limits import attention_scratch_bytes
from pagefleet_engine.models.attention import AttentionOptions, LayerUse
from pagefleet_engine.parallel.group import RankGroup
from pagefleet_engine.parallel.placement import Node, Place
from pagefleet_engine.parallel.tensor_split import split_tensors
from pagefleet_kernels import Fp8BlockWeight, Fp8Weight, Int4Weight, LayerKVShape
from pagefleet_kernels.gpu.checks import HEAD_DIMS
from pagefleet_kernels.gpu.device import DeviceTraits
from pagefleet_kernels.quantized_matmul import has_kernel as engine_has_kernel
from pagefleet_kernels.unpacking import product_bytes
from pagefleet_memory import (
    Accelerator,
    EngineLimits,
    ModelShape,
    build_ledger,
    cpu_accelerator,
)
from pagefleet_memory import attention_scratch as planned
from pagefleet_memory.accelerator import accelerator_from_labels
from pagefleet_memory.engine_split import tensor_problem
from pagefleet_memory.products import PRODUCTS
from pagefleet_memory.unpacking import (
    PackedLinear,
    has_kernel,
    layer_linears,
    unpacked_bytes,
)
from tests.memory.family_configs import CONFIGS
from tests.memory.memory_builders import GIB, LLAMA_3_8B, gpu, limits, shape

CPU = torch.device("cpu")
AWQ: dict[str, Any] = {"quant_method": "awq", "bits": 4, "group_size": 128}
FP8: dict[str, Any] = {"quant_method": "fp8"}
FP8_BLOCKS: dict[str, Any] = {"quant_method": "fp8", "weight_block_size": [128, 128]}
OPTIONS = AttentionOptions(scale=1.0, window=None, softcap=None, sinks=None)


def llama(heads: tuple[int, int], width: int) -> ModelShape:
    return shape(
        LLAMA_3_8B, num_attention_heads=heads[0], num_key_value_heads=heads[1], head_dim=width
    )


def reserved(
    model: ModelShape, settings: EngineLimits, processors: int, monkeypatch: pytest.MonkeyPatch
) -> int:
    """What an engine reserves on a rank of a GPU with so many processors."""
    traits = DeviceTraits(num_processors=processors, capability=90)
    monkeypatch.setattr("pagefleet_engine.attention_limits.traits_of", lambda device: traits)
    tp = settings.tensor_parallel_size
    layers = [
        LayerUse(
            shape=LayerKVShape(
                num_kv_heads=kind.attention.local_kv_heads(tp),
                head_dim=kind.attention.k_width,
                v_head_dim=kind.attention.v_width,
            ),
            num_heads=model.num_attention_heads // tp,
            options=OPTIONS,
        )
        for kind in model.layer_kinds
    ]
    return attention_scratch_bytes(layers, settings, CPU)


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_partial_results_are_counted_as_the_kernels_reserve_them(data: st.DataObject) -> None:
    heads = data.draw(st.sampled_from([(32, 8), (64, 8), (28, 4), (8, 8), (12, 2), (6, 1)]))
    tp = data.draw(st.sampled_from([1, 2]))
    model = llama(heads, data.draw(st.sampled_from(HEAD_DIMS)))
    given_limits = limits(
        dtype=data.draw(st.sampled_from(["bfloat16", "float16", "float32"])),
        kv_cache_dtype=data.draw(st.sampled_from(["auto", "int8", "int4"])),
        max_model_len=data.draw(st.integers(1, 150_000)),
        max_num_seqs=data.draw(st.integers(1, 40)),
        max_num_batched_tokens=data.draw(st.sampled_from([1, 3, 512])),
        tensor_parallel_size=tp,
    )
    row = data.draw(st.sampled_from(PRODUCTS))
    card = accelerator_from_labels(row.label, row.label_mib)
    with pytest.MonkeyPatch.context() as monkeypatch:
        assert planned.scratch_bytes(model, card, given_limits) == reserved(
            model, given_limits, row.processors, monkeypatch
        )


def test_a_usual_engine_reserves_what_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    model, given_limits = llama((32, 8), 128), limits(max_num_seqs=256, max_model_len=131072)
    counted = planned.scratch_bytes(model, gpu("H100"), given_limits)
    assert counted == 16 * 8 * 32 * 4 * (128 * 2 + 8)
    assert counted == reserved(model, given_limits, 132, monkeypatch)


def test_a_card_that_is_not_known_is_taken_for_the_largest() -> None:
    model, given_limits = llama((32, 8), 128), limits(max_model_len=131072)
    unknown = Accelerator(kind="GPU", name="another", memory_bytes=40 * GIB, bf16=True)
    counts = [
        planned.scratch_bytes(model, replace(unknown, processors=each), given_limits)
        for each in (None, *sorted({row.processors for row in PRODUCTS}))
    ]
    assert counts[1:] == sorted(counts[1:]) and counts[0] == counts[-1]


def test_where_plain_torch_attends_keys_are_gathered_and_none_are_split() -> None:
    assert planned.KERNEL_WIDTHS == HEAD_DIMS
    given_limits = limits(max_model_len=131072)
    for card, width, gathered in (
        (gpu("H100"), 128, 0),
        (gpu("H100"), 72, 131072 * 2 * 8 * 72 * 2),
        (cpu_accelerator(GIB, bf16=True), 128, 131072 * 2 * 8 * 128 * 2),
    ):
        model = llama((32, 8), width)
        short = build_ledger(model, card, replace(given_limits, max_model_len=1024))
        ledger = build_ledger(model, card, given_limits)
        partials = planned.scratch_bytes(model, card, given_limits)
        assert (partials == 0) == (gathered > 0)
        grown = ledger.term("workspace").bytes - short.term("workspace").bytes
        assert grown == partials + gathered - gathered // 128
        assert ("gathered" in ledger.term("workspace").source) == (gathered > 0)


@pytest.mark.parametrize("card", ["A100-80", "L4", "H100"])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
@pytest.mark.parametrize(("packing", "inputs"), [("int4-g128", 256), ("fp8", 256), ("fp8", 200)])
def test_plans_and_engines_agree_where_a_kernel_multiplies(
    packing: str, inputs: int, dtype: str, card: str
) -> None:
    codes = torch.zeros(8, inputs)
    weight = (
        Int4Weight(torch.zeros(2, 8, 64, dtype=torch.uint8), torch.zeros(2, 8), None)
        if packing.startswith("int4")
        else Fp8Weight(codes.to(torch.float8_e4m3fn), torch.zeros(8))
    )
    accelerator = gpu(card)
    capability = round(10 * (accelerator.compute_capability or 0))
    found = engine_has_kernel(weight, getattr(torch, dtype), capability=capability)
    assert has_kernel(PackedLinear(packing, 8, inputs), accelerator, dtype) == found


def test_blocks_of_fp8_and_processors_have_no_kernel() -> None:
    blocks = Fp8BlockWeight(torch.zeros(8, 8).to(torch.float8_e4m3fn), torch.zeros(1, 1))
    assert not engine_has_kernel(blocks, torch.bfloat16, capability=90)
    assert not has_kernel(PackedLinear("fp8-block", 8, 8), gpu("H100"), "bfloat16")
    cpu = cpu_accelerator(GIB, bf16=True)
    assert not has_kernel(PackedLinear("int4-g128", 8, 256), cpu, "bfloat16")


@pytest.mark.parametrize("tp", [1, 2])
@pytest.mark.parametrize("tokens", [128, 2048])
@pytest.mark.parametrize(
    ("section", "card", "kernel"),
    [
        (AWQ, "H100", True),
        (FP8, "H100", True),
        (FP8, "A100-80", False),
        (FP8_BLOCKS, "H100", False),
    ],
)
def test_the_largest_product_is_counted(
    section: dict[str, Any], card: str, kernel: bool, tokens: int, tp: int
) -> None:
    model = shape(LLAMA_3_8B, quantization_config=section)
    given_limits = limits(max_num_batched_tokens=tokens, tensor_parallel_size=tp)
    largest = max(
        product_bytes(
            num_rows=tokens,
            in_features=inputs,
            out_features=outputs,
            itemsize=2,
            has_kernel=kernel,
        )
        for inputs, outputs in (
            (4096, 14336 // tp),
            (14336 // tp, 4096),
            (4096, 4096 // tp),
            (4096 // tp, 4096),
        )
    )
    assert unpacked_bytes(model, gpu(card), given_limits, stage=0) == largest
    plain = build_ledger(shape(LLAMA_3_8B), gpu(card), given_limits).term("workspace")
    packed = build_ledger(model, gpu(card), given_limits).term("workspace")
    assert packed.bytes == plain.bytes + largest
    assert ("unpacked" in packed.source) == (largest > 0)


def test_a_quantized_head_is_unpacked_on_the_last_stage_if_it_sees_many_rows() -> None:
    section = {
        "quant_method": "compressed-tensors",
        "format": "float-quantized",
        "config_groups": {
            "group_0": {
                "targets": ["re:.*lm_head"],
                "weights": {"num_bits": 8, "type": "float", "strategy": "channel"},
            }
        },
    }
    model = shape(LLAMA_3_8B, quantization_config=section)
    assert model.head_packing == "fp8"
    given_limits = limits(max_num_seqs=256, pipeline_parallel_size=2)
    counted = [unpacked_bytes(model, gpu("H100"), given_limits, stage=each) for each in (0, 1)]
    assert counted == [0, 128256 * 4096 * 2]
    few = replace(given_limits, max_num_seqs=255)
    assert unpacked_bytes(model, gpu("H100"), few, stage=1) == 0


SERVED = [
    (model_type, values)
    for model_type, values in CONFIGS
    if not ModelShape.from_config({"model_type": model_type, **values}).unsupported_by_engine
]


def real_linears(model_type: str, values: dict[str, Any], tp: int) -> set[int]:
    """Weights of each linear layer that the first of `tp` ranks holds, but of the head."""
    config = AutoConfig.for_model(model_type, **values)
    with torch.device("meta"):
        model = cast(PreTrainedModel, AutoModelForCausalLM.from_config(config))
    place = Place(rank=0, node=Node(rank=0, count=1), tensor_size=tp, num_stages=1)
    split_tensors(model, cast(RankGroup, SimpleNamespace(place=place)))
    return {
        module.out_features * module.in_features
        for name, module in model.named_modules()
        if type(module) is nn.Linear and "lm_head" not in name
    }


@pytest.mark.parametrize(
    ("model_type", "values"), SERVED, ids=[f"{i}-{t}" for i, (t, _) in enumerate(SERVED)]
)
def test_the_largest_linear_layer_of_every_family_is_known(
    model_type: str, values: dict[str, Any]
) -> None:
    model = shape({"model_type": model_type, **values, "quantization_config": AWQ})
    plain = shape({"model_type": model_type, **values})
    for tp in (1, 2):
        # qwen2_moe keeps its shared experts whole, and with quantized experts it is refused.
        if tensor_problem(plain, tp) is not None or (tp > 1 and model_type == "qwen2_moe"):
            continue
        counted = {each.outputs * each.inputs for each in layer_linears(model, tp)}
        real = real_linears(model_type, values, tp)
        assert max(counted) == max(real, default=max(counted)), tp
