"""Which matrices a quantization section packs, and the bytes that leaves."""

from typing import Any

import pytest

from pagefleet_memory import ModelShape, ShapeError
from pagefleet_memory.engine_weights import require_readable_weights, unread_weights
from pagefleet_memory.module_patterns import ModulePatterns
from pagefleet_memory.packing import packed_bytes
from tests.memory.memory_builders import DEEPSEEK_V3, LLAMA_3_8B, shape

_CHANNEL_INT8 = {"num_bits": 8, "type": "int", "strategy": "channel", "symmetric": True}
_GROUPED_INT4 = {"num_bits": 4, "type": "int", "group_size": 32, "symmetric": True}
_NVFP4 = {"num_bits": 4, "type": "float", "group_size": 16}


def _packings(model: ModelShape, layer: int = 0) -> dict[str, str]:
    matrices = model.layers[layer].weights.matrices
    return {matrix.name: matrix.packing for matrix in matrices if matrix.packing}


def _groups(weights: dict[str, Any], **section: Any) -> dict[str, Any]:
    group = {"targets": ["Linear"], "weights": weights}
    return {
        "quant_method": "compressed-tensors",
        "config_groups": {"group_0": group},
        **section,
    }


@pytest.mark.parametrize(
    ("code", "bits"),
    [
        ("fp8", 8.0),
        ("fp8-block", 8.002),
        ("int8", 8.0),
        ("int4-g128", 4.125),
        ("int4-g128-zp", 4.156),
        ("int4-g32-zp", 4.625),
        ("nf4", 4.5),
        ("nf4-dq", 4.127),
        ("mxfp4", 4.25),
        ("nvfp4", 4.5),
    ],
)
def test_bits_per_weight_of_a_packing(code: str, bits: float) -> None:
    rows, columns = 8192, 8192
    scale_of_a_row = 0.01  # at 8192 inputs
    assert 8 * packed_bytes(code, rows, columns) / (rows * columns) == pytest.approx(
        bits, abs=scale_of_a_row
    )


@pytest.mark.parametrize(
    ("section", "packing"),
    [
        ({"quant_method": "awq", "bits": 4, "group_size": 128}, "int4-g128-zp"),
        ({"quant_method": "gptq", "bits": 4, "group_size": 128, "sym": True}, "int4-g128"),
        ({"quant_method": "gptq", "bits": 8, "group_size": -1}, "int8"),
        ({"quant_method": "auto-round", "bits": 4, "group_size": 64}, "int4-g64"),
        ({"quant_method": "fp8"}, "fp8"),
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, "fp8-block"),
        ({"quant_method": "fbgemm_fp8"}, "fp8"),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, "nf4"),
        ({"quant_method": "bitsandbytes", "bnb_4bit_use_double_quant": True}, "nf4-dq"),
        ({"quant_method": "bitsandbytes", "load_in_8bit": True}, "int8"),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, "nvfp4"),
        ({"quant_method": "modelopt", "quant_algo": "FP8"}, "fp8"),
        (_groups(_CHANNEL_INT8), "int8"),
        (_groups(_GROUPED_INT4), "int4-g32"),
        (_groups({**_GROUPED_INT4, "symmetric": False}), "int4-g32-zp"),
        (_groups(_NVFP4), "nvfp4"),
    ],
)
def test_projections_are_packed_and_nothing_else(section: dict[str, Any], packing: str) -> None:
    model = shape(LLAMA_3_8B, quantization_config=section)
    assert _packings(model) == dict.fromkeys(
        [
            "self_attn.qkv_proj",
            "self_attn.o_proj",
            "mlp.gate_up_proj",
            "mlp.down_proj",
        ],
        packing,
    )
    assert model.head_packing == ""


def test_ignored_modules_stay_in_floats() -> None:
    """Kimi-K2 packs its routed experts alone."""
    ignore = [
        "lm_head",
        "re:.*self_attn.*",
        "re:.*shared_experts.*",
        r"re:.*mlp\.(gate|up|down)_proj.*",
    ]
    model = shape(DEEPSEEK_V3, quantization_config=_groups(_GROUPED_INT4, ignore=ignore))
    assert _packings(model, layer=0) == {}
    assert set(_packings(model, layer=10)) == {
        "mlp.experts.gate_up_proj",
        "mlp.experts.down_proj",
    }


def test_layers_named_by_number_differ_from_the_others() -> None:
    section = {
        "quant_method": "fp8",
        "modules_to_not_convert": ["model.layers.1.mlp", "model.layers.2.self_attn.o_proj"],
    }
    model = shape(LLAMA_3_8B, quantization_config=section)
    assert len(model.layer_kinds) == 3
    assert "mlp.down_proj" not in _packings(model, layer=1)
    assert "self_attn.o_proj" not in _packings(model, layer=2)
    assert len(_packings(model, layer=11)) == 4


def test_a_head_is_packed_only_where_it_is_named() -> None:
    targeted = _groups(_NVFP4)
    targeted["config_groups"]["group_0"]["targets"] = ["re:.*_proj$", "lm_head"]
    assert shape(LLAMA_3_8B, quantization_config=targeted).head_packing == "nvfp4"
    ignored = {**targeted, "ignore": ["lm_head"]}
    assert shape(LLAMA_3_8B, quantization_config=ignored).head_packing == ""


def test_mxfp4_packs_experts_alone_and_leaves_the_router() -> None:
    model = shape(
        LLAMA_3_8B,
        model_type="gpt_oss",
        num_local_experts=4,
        quantization_config={"quant_method": "mxfp4"},
    )
    assert set(_packings(model)) == {"mlp.experts.gate_up_proj", "mlp.experts.down_proj"}


def test_a_quantization_inside_the_text_section_counts() -> None:
    text = {**LLAMA_3_8B, "quantization_config": {"quant_method": "fp8"}}
    model = ModelShape.from_config({"model_type": "llava", "text_config": text})
    assert model.quantization is not None and model.quantization.method == "fp8"


_FP8 = {"num_bits": 8, "type": "float", "strategy": "channel"}


def _compressed(weights: dict[str, Any], **section: Any) -> dict[str, Any]:
    return _groups(weights, **{"format": "float-quantized", **section})


@pytest.mark.parametrize(
    ("section", "name"),
    [
        ({"quant_method": "awq", "w_bit": 4, "q_group_size": 64, "version": "GEMM"}, "awq"),
        ({"quant_method": "gptq", "bits": 4, "group_size": 32, "desc_act": False}, "gptq"),
        ({"quant_method": "gptq", "bits": 4, "checkpoint_format": "gptq_v2"}, "gptq-v2"),
        ({"quant_method": "fp8", "fmt": "e4m3"}, "fp8"),
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, "fp8-block"),
        ({"quant_method": "fbgemm_fp8"}, "fp8"),
        ({"quant_method": "modelopt", "quant_algo": "FP8"}, "fp8"),
        (_compressed(_FP8, sparsity_config={"format": "dense"}), "fp8"),
        (_compressed({**_FP8, "strategy": "block", "block_structure": "128x128"}), "fp8-block"),
    ],
)
def test_what_the_engine_reads(section: dict[str, Any], name: str) -> None:
    model = shape(LLAMA_3_8B, quantization_config=section)
    assert model.quantization is not None and model.quantization.engine_format == name
    assert unread_weights(model) is None
    assert ModelShape.from_summary(model.to_summary()) == model
    require_readable_weights(model)


@pytest.mark.parametrize(
    ("section", "unread"),
    [
        ({"quant_method": "awq", "bits": 3}, "awq 3-bit"),
        ({"quant_method": "awq", "version": "gemv_fast"}, "awq version gemv_fast"),
        ({"quant_method": "awq", "zero_point": False}, "awq zero_point false"),
        ({"quant_method": "gptq", "group_size": -1}, "gptq group_size -1"),
        ({"quant_method": "gptq", "desc_act": True}, "gptq desc_act true"),
        ({"quant_method": "gptq", "checkpoint_format": "marlin"}, "gptq checkpoint_format marlin"),
        ({"quant_method": "gptq", "dynamic": {"+:.*": {"bits": 8}}}, "gptq dynamic"),
        ({"quant_method": "auto-round"}, "auto-round"),
        ({"quant_method": "fp8", "fmt": "e5m2"}, "fp8 e5m2"),
        ({"quant_method": "bitsandbytes", "load_in_8bit": True}, "bitsandbytes"),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, "modelopt NVFP4"),
        (_groups(_CHANNEL_INT8, format="int-quantized"), "compressed-tensors int-quantized"),
        (_groups(_GROUPED_INT4, format="pack-quantized"), "compressed-tensors pack-quantized"),
        (_compressed({**_FP8, "num_bits": 4}), "compressed-tensors 4-bit float"),
        (_compressed({**_FP8, "strategy": "group"}), "compressed-tensors strategy group"),
        (
            _compressed({**_FP8, "strategy": "block", "block_structure": [64, 64]}),
            "compressed-tensors block_structure [64, 64]",
        ),
        (_compressed(_FP8, transform_config={"R1": {}}), "compressed-tensors transform_config"),
    ],
)
def test_what_the_engine_does_not_read_can_be_planned_and_is_named(
    section: dict[str, Any], unread: str
) -> None:
    model = shape(LLAMA_3_8B, quantization_config=section)
    assert unread_weights(model) == unread
    assert ModelShape.from_summary(model.to_summary()) == model
    with pytest.raises(ShapeError, match="does not read .* weights; awq .* work") as caught:
        require_readable_weights(model)
    assert caught.value.field == "quantization_config.quant_method"


def test_packed_experts_are_not_read_and_plain_ones_are() -> None:
    section = {"quant_method": "fp8", "modules_to_not_convert": []}
    mixtral = {**LLAMA_3_8B, "model_type": "mixtral", "num_local_experts": 4}
    assert unread_weights(shape(mixtral, quantization_config=section)) == "fp8 expert"
    section["modules_to_not_convert"] = ["re:.*experts.*"]
    assert unread_weights(shape(mixtral, quantization_config=section)) is None


@pytest.mark.parametrize(
    ("section", "field"),
    [
        ({"quant_method": "magic"}, "quantization_config.quant_method"),
        ({"quant_method": "awq", "bits": 0}, "bits"),
        ({"quant_method": "awq", "bits": 99}, "bits"),
        ({"quant_method": "gptq", "group_size": "many"}, "group_size"),
        (_groups(_CHANNEL_INT8, ignore=["re:("]), "quantization_config.ignore"),
        (_groups({}), "quantization_config.config_groups"),
    ],
)
def test_a_bad_section_is_refused_by_its_field(section: dict[str, Any], field: str) -> None:
    with pytest.raises(ShapeError) as caught:
        shape(LLAMA_3_8B, quantization_config=section)
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("pattern", "path", "matches"),
    [
        ("gate", "model.layers.0.mlp.gate", True),
        ("gate", "model.layers.0.mlp.gate_proj", False),
        ("model.layers.1.mlp", "model.layers.1.mlp.down_proj", True),
        ("model.layers.1.mlp", "model.layers.11.mlp.down_proj", False),
        ("model.layers.*.self_attn", "model.layers.7.self_attn.o_proj", True),
        ("model.layers.0*", "model.layers.0.mlp.gate_proj", True),
        ("model.layers.0*", "model.layers.10.mlp.gate_proj", False),
        ("model.language_model.layers.3.mlp", "model.layers.3.mlp.down_proj", True),
        ("model.layers.3.block_sparse_moe.gate", "model.layers.3.mlp.gate", True),
        (r"re:.*language_model\.layers.*", "model.layers.3.mlp.gate", True),
    ],
)
def test_names_of_modules_match_as_quantizers_mean_them(
    pattern: str, path: str, matches: bool
) -> None:
    assert ModulePatterns.read([pattern]).match(path) is matches
