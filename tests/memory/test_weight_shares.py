"""Ranks and stages together hold every parameter exactly once, plus what is copied on purpose.

Over every family of the table, in sizes that TP 2 divides; padding of what does not divide is a
matter of the engine and left out.
"""

from typing import Any

import pytest

from pagefleet_memory import ModelShape
from pagefleet_memory.dtypes import dtype_bytes
from pagefleet_memory.layers import LayerKind
from pagefleet_memory.parallelism import tensor_parallel_problem
from pagefleet_memory.weights import rank_weight_bytes
from tests.memory.family_configs import CONFIGS, WRAPPERS

_EVEN = {"num_attention_heads": 4, "vocab_size": 1024}
_SPLITS = ((1, 1), (2, 1), (4, 1), (2, 2), (1, 3))
_SPLITTABLE = [
    (f"{index}-{model_type}", {"model_type": model_type, **values, **_EVEN})
    for index, (model_type, values) in enumerate(CONFIGS)
    if "n_embd" not in values and values.get("num_key_value_heads", 4) in (2, 4)
]


@pytest.mark.parametrize("config", [c for _, c in _SPLITTABLE], ids=[n for n, _ in _SPLITTABLE])
def test_ranks_hold_each_parameter_once_and_copies_beside(config: dict[str, Any]) -> None:
    shape = ModelShape.from_config(config)
    splits = [(r, s) for r, s in _SPLITS if tensor_parallel_problem(shape, r) is None]
    assert (1, 1) in splits and (2, 1) in splits
    for ranks, stages in splits:
        held = ranks * sum(
            rank_weight_bytes(
                shape, "bfloat16", tensor_parallel_size=ranks, stages=stages, stage=stage
            )
            for stage in range(stages)
        )
        copied = dtype_bytes("bfloat16") * _copied_parameters(shape, ranks, stages)
        assert held == shape.weight_bytes("bfloat16") + copied, (ranks, stages)


@pytest.mark.parametrize(("model_type", "values"), WRAPPERS, ids=[name for name, _ in WRAPPERS])
def test_a_tower_stands_whole_on_the_first_stage(model_type: str, values: dict[str, Any]) -> None:
    shape = ModelShape.from_config({"model_type": model_type, **values})
    stages = [
        rank_weight_bytes(shape, "bfloat16", tensor_parallel_size=1, stages=2, stage=stage)
        for stage in (0, 1)
    ]
    tied = shape.embedding_parameters if shape.tie_word_embeddings else 0
    assert sum(stages) == shape.weight_bytes("bfloat16") + 2 * tied
    assert shape.weight_bytes("bfloat16") == 2 * (shape.num_parameters + shape.tower_parameters)


def _copied_parameters(shape: ModelShape, ranks: int, stages: int) -> int:
    """Whole matrices and spare KV heads on each rank, the final norm, a tied head's second copy."""
    layers = sum(_copied_of_layer(kind, ranks) for kind in shape.layers)
    tied = shape.embedding_parameters if shape.tie_word_embeddings and stages > 1 else 0
    return layers + (ranks - 1) * shape.final_parameters + tied


def _copied_of_layer(kind: LayerKind, ranks: int) -> int:
    whole = (ranks - 1) * kind.weights.replicated
    if not kind.attention.kv_heads:
        return whole
    copies = ranks * kind.attention.local_kv_heads(ranks) // kind.attention.kv_heads - 1
    return whole + copies * sum(m.kv_rows * m.columns for m in kind.weights.matrices)
