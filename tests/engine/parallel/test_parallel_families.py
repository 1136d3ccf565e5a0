"""What the planner believes that engines can split is what they do split, family by family.

Models are built on meta in tiny sizes, so nothing is computed; that split models give the same
tokens is tested for some of the families beside this file.
"""

from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from pagefleet_engine.errors import ConfigError
from pagefleet_engine.parallel.group import RankGroup
from pagefleet_engine.parallel.pipeline import cut_to_stage
from pagefleet_engine.parallel.placement import Node, Place
from pagefleet_engine.parallel.tensor_split import split_tensors
from pagefleet_memory import ModelShape
from pagefleet_memory.engine_split import stage_problem, tensor_problem
from tests.memory.family_configs import CONFIGS

SERVED = {
    model_type: values
    for model_type, values in CONFIGS
    if ModelShape.from_config({"model_type": model_type, **values}).unsupported_by_engine is None
}


def meta_model(model_type: str) -> PreTrainedModel:
    config = AutoConfig.for_model(model_type, **SERVED[model_type])
    with torch.device("meta"):
        return cast(PreTrainedModel, AutoModelForCausalLM.from_config(config))


def place(*, tensor_size: int = 1, num_stages: int = 1) -> Place:
    node = Node(rank=0, count=1)
    return Place(rank=0, node=node, tensor_size=tensor_size, num_stages=num_stages)


def is_allowed(split: Any, *arguments: Any) -> bool:
    try:
        split(*arguments)
    except ConfigError:
        return False
    return True


@pytest.mark.parametrize("model_type", sorted(SERVED))
def test_the_plan_and_the_engine_agree_on_what_can_be_split(model_type: str) -> None:
    shape = ModelShape.from_config({"model_type": model_type, **SERVED[model_type]})
    group = cast(RankGroup, SimpleNamespace(place=place(tensor_size=2)))
    splits = is_allowed(split_tensors, meta_model(model_type), group)
    assert splits == (tensor_problem(shape, 2) is None), tensor_problem(shape, 2)
    cuts = is_allowed(cut_to_stage, meta_model(model_type), place(num_stages=2))
    assert cuts == (stage_problem(shape, 2) is None), stage_problem(shape, 2)
