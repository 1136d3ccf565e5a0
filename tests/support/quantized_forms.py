"""The quantized forms that the engine reads, for models of these sizes."""

from typing import Any

from tests.support.quantized_checkpoint import Form, fp8, int4

SIZES: dict[str, Any] = {
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "head_dim": 64,
    "num_hidden_layers": 2,
}


def compressed(strategy: str, **weights: Any) -> dict[str, Any]:
    weights = {"num_bits": 8, "type": "float", "strategy": strategy, "symmetric": True, **weights}
    return {
        "quant_method": "compressed-tensors",
        "format": "float-quantized",
        "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights}},
        "ignore": ["lm_head"],
    }


def awq(group: int, **section: Any) -> Form:
    section = {"quant_method": "awq", "bits": 4, "group_size": group, "version": "gemm", **section}
    return Form(section, int4(group, symmetric=False, layout="awq"))


def gptq(group: int, *, symmetric: bool, form: str = "gptq", **section: Any) -> Form:
    section = {"quant_method": "gptq", "bits": 4, "group_size": group, "desc_act": False, **section}
    section |= {"sym": symmetric, "checkpoint_format": form}
    layout = form.replace("_", "-")
    return Form(section, int4(group, symmetric=symmetric, layout=layout))


BLOCKS = {"quant_method": "fp8", "weight_block_size": [128, 128]}
FORMS = {
    "awq-128": awq(128),
    "awq-32": awq(32),
    "gptq-symmetric": gptq(64, symmetric=True),
    "gptq-asymmetric": gptq(128, symmetric=False),
    "gptq-v2": gptq(32, symmetric=False, form="gptq_v2"),
    "fp8-tensor": Form({"quant_method": "fp8", "activation_scheme": "static"}, fp8("tensor")),
    "fp8-block": Form(BLOCKS, fp8("block", scale_name="weight_scale_inv")),
    "channel": Form(compressed("channel"), fp8("channel")),
    "block": Form(compressed("block", block_structure=[128, 128]), fp8("block")),
    "modelopt": Form({"quant_method": "modelopt", "quant_algo": "FP8"}, fp8("tensor")),
}
