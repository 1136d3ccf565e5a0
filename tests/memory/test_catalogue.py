"""The catalogue: its models are read like any config.json, and are the sizes they are known by."""

import pytest

from pagefleet_memory import ModelShape, ShapeError
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
