"""The catalogue: its models are read like any config.json, and are the sizes they are known by."""

import pytest

from pagefleet_memory import (
    ModelShape,
    NodeGroup,
    ShapeError,
    Workload,
    accelerator_from_labels,
    kv_block_bytes,
    plan_serving,
    resolve_product,
)
from pagefleet_memory.catalogue import catalogue, find_model, known_model


def test_it_holds_about_forty_models_each_with_its_source() -> None:
    assert 40 <= len(catalogue()) <= 60
    names = [model.name for model in catalogue()]
    assert names == sorted(set(names), key=str.lower)
    assert all("/" in model.name and model.source for model in catalogue())


@pytest.mark.parametrize("model", catalogue(), ids=lambda model: model.name)
def test_every_model_is_read_and_says_where_it_is_from(model: object) -> None:
    shape = known_model(getattr(model, "name", "")).shape()
    assert isinstance(shape, ModelShape)
    assert shape.num_parameters > 10**8
    assert any("catalogue" in remark for remark in shape.remarks)


@pytest.mark.parametrize(
    ("name", "parameters", "kv_bytes"),
    [
        ("meta-llama/Llama-3.1-8B-Instruct", 8_030_261_248, 131_072),
        ("meta-llama/Llama-3.3-70B-Instruct", 70_553_706_496, 327_680),
        ("meta-llama/Llama-3.1-405B-Instruct", 405_853_388_800, 516_096),
        ("Qwen/Qwen2.5-7B-Instruct", 7_615_616_512, 57_344),
        ("Qwen/Qwen3-30B-A3B", 30_532_122_624, 98_304),
        ("mistralai/Mixtral-8x7B-Instruct-v0.1", 46_702_792_704, 131_072),
        ("deepseek-ai/DeepSeek-V3", 671_026_419_200, 70_272),
        ("HuggingFaceTB/SmolLM2-135M-Instruct", 134_515_008, 23_040),
    ],
)
def test_sizes_that_publishers_state(name: str, parameters: int, kv_bytes: int) -> None:
    shape = known_model(name).shape()
    assert shape.num_parameters == pytest.approx(parameters, rel=1e-7)  # routers' bias buffers
    assert shape.kv_bytes_per_token("bfloat16") == kv_bytes


@pytest.mark.parametrize("name", ["Llama-3.1-8B-Instruct", "META-LLAMA/llama-3.1-8b-instruct"])
def test_the_organization_and_the_case_may_be_left_out(name: str) -> None:
    found = find_model(name)
    assert found is not None and found.name == "meta-llama/Llama-3.1-8B-Instruct"


def test_an_unknown_name_is_refused_with_similar_ones() -> None:
    with pytest.raises(ShapeError, match="similar: .*meta-llama/Llama-3.1-8B-Instruct"):
        known_model("meta-lama/Llama-3.1-8B-Instruct")
    with pytest.raises(ShapeError, match="the catalogue holds"):
        known_model("")


_SERVED = [model for model in catalogue() if model.shape().unsupported_by_engine is None]


@pytest.mark.parametrize(
    "product", "L4 A100-40GB A100-80GB L40S H100-80GB H200 B200 RTX-4090".split()
)
def test_no_plan_of_any_model_on_any_gpu_exceeds_its_own_budget(product: str) -> None:
    label = resolve_product(product)
    group = NodeGroup(label, accelerator_from_labels(label, None), 8, 2, nvlink=True)
    planned = 0
    for model in _SERVED:
        shape = model.shape()
        workload = Workload(max_model_len=min(2048, shape.max_position_embeddings))
        plan = plan_serving(shape, workload, [group]).chosen
        if plan is None:
            continue
        planned += 1
        for ledger in plan.stages:
            assert sum(term.bytes for term in ledger.terms) == ledger.budget_bytes, model.name
            assert ledger.budget_bytes <= plan.accelerator.memory_bytes
            block = kv_block_bytes(shape, plan.limits, stage=ledger.stage)
            assert plan.num_kv_blocks * block <= ledger.kv_pool_bytes, model.name
        assert plan.kv_tokens >= plan.limits.max_model_len
        assert plan.speed is not None and plan.speed.step_seconds > 0
    assert planned >= 40
