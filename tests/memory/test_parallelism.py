"""Which TP and PP sizes a model allows, and how its layers spread over stages."""

import pytest

from pagefleet_memory import LimitError
from pagefleet_memory.engine_split import tensor_sizes
from pagefleet_memory.parallelism import layers_per_stage, tensor_parallel_problem
from tests.memory.memory_builders import LLAMA_3_8B, SMOLLM2_135M, shape


@pytest.mark.parametrize(
    ("changes", "tensor", "named"),
    [
        (
            {"hidden_size": 5120, "num_attention_heads": 40, "num_key_value_heads": 8},
            5,
            "key-value heads",
        ),
        (
            {
                "hidden_size": 5120,
                "num_attention_heads": 40,
                "num_key_value_heads": 40,
                "vocab_size": 151936,
            },
            5,
            "vocab",
        ),
        ({"intermediate_size": 14337}, 2, "intermediate_size"),
        (
            {
                "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]},
                "intermediate_size": 768,
            },
            4,
            "scale",
        ),
        (
            {
                "quantization_config": {"quant_method": "awq", "group_size": 128},
                "intermediate_size": 1536,
            },
            8,
            "scale",
        ),
        (
            {
                "quantization_config": {"quant_method": "gptq", "group_size": 128},
                "head_dim": 48,
            },
            8,
            "the attention's width per rank, 192",
        ),
    ],
)
def test_intensor_sizes_say_why(changes: dict[str, object], tensor: int, named: str) -> None:
    problem = tensor_parallel_problem(shape(LLAMA_3_8B, **changes), tensor)
    assert problem is not None and named in problem


def test_tensor_sizes_of_nine_heads() -> None:
    assert tensor_sizes(shape(SMOLLM2_135M), 8) == (1, 3)


def test_remainder_layers_go_to_middle_stages() -> None:
    assert layers_per_stage(10, 4) == (2, 3, 3, 2)
    assert layers_per_stage(11, 4) == (3, 3, 3, 2)
    assert layers_per_stage(3, 2) == (2, 1)
    with pytest.raises(LimitError):
        layers_per_stage(3, 4)
