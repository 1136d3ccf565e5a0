"""Fused decoder layers against Hugging Face's own, with the references of the kernels.

Covered: logits of prompts, chunks and tokens through the paged cache, before and after fusing, over
families that are fused, partly fused or left alone; what a trial has to notice; weights that are
joined and stay readable; sums that are left to the next norm; quantized weights; the worker.
Left out: the Triton kernels (`tests/kernels_triton/test_engine_on_triton.py`) and ranks
(`tests/engine/parallel/test_fused_ranks.py`).
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from transformers import PreTrainedModel

from pagefleet_engine import worker
from pagefleet_engine.layers.agreement import difference
from pagefleet_engine.layers.fused_layer import FusedLayer
from pagefleet_engine.llm import LLM
from pagefleet_engine.models.checkpoint import read_shape
from pagefleet_engine.models.loader import load_model, weight_bytes
from pagefleet_engine.request import SamplingParams
from pagefleet_kernels.backend import torch_backend
from pagefleet_kernels.paged_attention import PagedAttention
from pagefleet_kernels.reference import paged_attention_reference
from tests.engine.core.test_models import PROMPTS, SMALL, check, engine_for, save_model
from tests.support.fused_models import fuse, logits, random_model, uses_of
from tests.support.parallel_engine import save_model as save_for_ranks
from tests.support.quantized_checkpoint import save_quantized
from tests.support.quantized_forms import FORMS, SIZES

BACKEND = torch_backend()
EXPERTS = {"num_experts": 4, "moe_intermediate_size": 24, "num_experts_per_tok": 2}
# Of three layers each: how many are fused, and what is said of the others.
FAMILIES: dict[str, tuple[dict[str, Any], int, str]] = {
    "llama": ({"attention_bias": True, "mlp_bias": True}, 3, ""),
    "mistral": ({"sliding_window": 8}, 3, ""),
    "qwen2": ({}, 3, ""),
    "qwen3": ({}, 3, ""),
    "qwen3_moe": (EXPERTS, 3, ""),
    "mixtral": ({"num_local_experts": 4}, 3, ""),
    "gemma": ({}, 3, ""),  # norms by 1 + weight, another activation
    "granite": ({"residual_multiplier": 0.6}, 0, "added hidden states"),
    "smollm3": ({"no_rope_layers": [1, 0, 1]}, 2, "queries"),
    "glm": ({}, 0, "queries"),  # pairs of RoPE side by side
    "starcoder2": ({}, 0, "LayerNorm is no RMSNorm"),
    "gemma2": ({"sliding_window": 8}, 0, "post_feedforward_layernorm"),
    "olmo2": ({}, 0, "post_feedforward_layernorm"),
    "cohere": ({}, 0, "CohereDecoderLayer has the parts"),
    "gpt_oss": ({"num_local_experts": 4}, 0, "sinks"),
    "gpt_neox": ({"rotary_pct": 0.5}, 0, ""),
}
# Roundings: fp32 sums in another order, bf16 rounds less often in the fused layers.
TOLERANCES = {torch.float32: 1e-5, torch.bfloat16: 3e-2}


def small(family: str, dtype: torch.dtype = torch.float32, **extra: Any) -> PreTrainedModel:
    return random_model(family, dtype, **{**SMALL, **extra})


def fused_layers(model: PreTrainedModel) -> list[FusedLayer]:
    forwards = [vars(each).get("forward") for each in model.modules()]
    return [each for each in forwards if isinstance(each, FusedLayer)]


@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
@pytest.mark.parametrize("family", FAMILIES)
def test_logits_stay_those_of_the_model(family: str, dtype: torch.dtype) -> None:
    extra, fused, reason = FAMILIES[family]
    model = small(family, dtype, **extra)
    before = logits(model, BACKEND)
    done = fuse(model, BACKEND)
    assert (done.layers, len(fused_layers(model))) == (fused, fused)
    assert reason in str(done) and done.kept.total() == (0 if family == "gpt_neox" else 3 - fused)
    after = logits(model, BACKEND)
    assert difference(after, before, share=0.5) <= TOLERANCES[dtype]
    if dtype is torch.float32:
        torch.testing.assert_close(after, before, atol=1e-4, rtol=1e-4)


def test_the_log_says_in_one_line_what_was_done(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    fuse(small("smollm3", no_rope_layers=[1, 0, 0]), BACKEND)
    assert [each.message for each in caplog.records] == [
        "fused 1 of 3 decoder layers; 2 stay as they are: its queries are not what the fused layer "
        "makes"
    ]


def layers_of(model: PreTrainedModel) -> list[Any]:
    return list(model.base_model.layers)


def changed(model: PreTrainedModel, path: str, change: Any) -> PreTrainedModel:
    """The last layer's module gives something else, which its parts do not show."""
    module = layers_of(model)[-1].get_submodule(path)
    plain = module.forward
    module.forward = lambda *args, **named: change(plain(*args, **named))
    return model


@pytest.mark.parametrize(
    ("path", "change", "reason"),
    [
        ("mlp", lambda y: 1.2 * y, "added hidden states"),
        ("mlp", lambda y: -y, "added hidden states"),
        ("self_attn", lambda y: (0.8 * y[0], y[1]), "added hidden states"),
        ("input_layernorm", lambda y: y - y.mean(-1, keepdim=True), "is no RMSNorm"),
        ("self_attn.q_norm", lambda y: y.roll(1, -1), "is no RMSNorm"),
        ("self_attn.k_norm", lambda y: y + 0.2, "is no RMSNorm"),
        ("self_attn.v_proj", lambda y: y + 0.5, "values"),
        ("mlp.up_proj", lambda y: y.abs(), "added hidden states"),
    ],
)
def test_a_trial_notices_what_the_parts_do_not_show(path: str, change: Any, reason: str) -> None:
    for dtype in TOLERANCES:
        done = fuse(changed(small("qwen3", dtype), path, change), BACKEND)
        assert (done.layers, done.kept.total()) == (2, 1)
        assert reason in str(done)


@pytest.mark.parametrize("scale", [1e-3, 30.0])
def test_a_small_part_is_noticed_beside_a_large_one(scale: float) -> None:
    """The MLP adds a thousandth of what attention adds, or thirty times as much."""
    for path, change in (("mlp", lambda y: 1.2 * y), ("self_attn", lambda y: (0.5 * y[0], y[1]))):
        model = small("llama", torch.bfloat16)
        for layer in layers_of(model):
            layer.mlp.down_proj.weight *= scale
        assert fuse(model, BACKEND).layers == 3
        again = small("llama", torch.bfloat16)
        for layer in layers_of(again):
            layer.mlp.down_proj.weight *= scale
        assert fuse(changed(again, path, change), BACKEND).layers == 2, path


@pytest.mark.parametrize(("max_model_len", "fused"), [(64, 3), (72, 0), (500, 0)])
def test_what_changes_far_out_is_noticed(max_model_len: int, fused: int) -> None:
    """Queries are scaled from position 64 on."""
    rope = {
        "rope_type": "yarn",
        "rope_theta": 10000.0,
        "factor": 8.0,
        "original_max_position_embeddings": 64,
        "max_position_embeddings": 64,
        "llama_4_scaling_beta": 0.2,
    }
    model = small("ministral3", rope_parameters=rope, max_position_embeddings=512)
    done = fuse(model, BACKEND, max_model_len=max_model_len)
    assert done.layers == fused
    assert ("queries" in str(done)) == (fused == 0)


def test_a_layer_that_is_not_called_stays_as_it_is() -> None:
    model = small("llama")
    model.config.num_hidden_layers = 2
    done = fuse(model, BACKEND)
    assert done.layers == 2
    assert dict(done.kept) == {"it is not called with hidden states": 1}


def test_weights_are_joined_and_none_is_held_twice() -> None:
    model = small("qwen2")
    state = {name: each.clone() for name, each in model.state_dict().items()}
    held = weight_bytes(model)
    fuse(model, BACKEND)
    assert weight_bytes(model) == held
    assert {name: each.shape for name, each in model.state_dict().items()} == {
        name: each.shape for name, each in state.items()
    }
    assert all(torch.equal(each, state[name]) for name, each in model.state_dict().items())
    for layer in layers_of(model):
        attention, mlp = layer.self_attn, layer.mlp
        for group in (
            (attention.q_proj, attention.k_proj, attention.v_proj),
            (mlp.gate_proj, mlp.up_proj),
        ):
            storages = {each.weight.untyped_storage().data_ptr() for each in group}
            assert len(storages) == 1


def test_hooks_around_a_layer_still_run_and_hooks_inside_keep_it() -> None:
    model = small("llama")
    seen: list[torch.Tensor] = []
    outer, inner, norm = layers_of(model)
    outer.register_forward_hook(lambda _module, _args, output: seen.append(output))
    inner.self_attn.register_forward_hook(lambda *_: None)
    norm.input_layernorm.register_forward_hook(lambda *_: None)
    done = fuse(model, BACKEND)
    assert (done.layers, done.kept.total()) == (1, 2)
    seen.clear()
    uses_of(model)
    assert [each.shape for each in seen] == [(1, 2, 32)]


def test_what_is_called_keeps_its_hooks() -> None:
    model = small("llama")
    called: list[nn.Module] = []
    parts = [layers_of(model)[1].self_attn.k_proj, layers_of(model)[1].mlp.down_proj]
    for part in parts:
        part.register_forward_hook(lambda module, _args, _output: called.append(module))
    assert fuse(model, BACKEND).layers == 3
    called.clear()
    uses_of(model)
    assert called == parts


def test_sums_are_left_to_the_next_norm_where_nothing_comes_between() -> None:
    model = small("llama")
    adds: list[int] = []

    def counted(x: torch.Tensor, *args: Any, **named: Any) -> Any:
        adds.append(len(x))
        return BACKEND.add_rms_norm(x, *args, **named)

    fuse(model, replace(BACKEND, add_rms_norm=counted))
    assert [each.defers for each in fused_layers(model)] == [True] * 3
    adds.clear()
    uses_of(model)
    assert len(adds) == 6, "before each MLP, before each layer but the first, before the last norm"


def test_a_sum_is_made_where_something_comes_between() -> None:
    model = small("llama")
    layers_of(model)[1].register_forward_pre_hook(lambda _module, args: (args[0] * 0.5,))
    before = logits(model, BACKEND)
    assert fuse(model, BACKEND).layers == 3
    assert [each.defers for each in fused_layers(model)] == [False, False, True]
    torch.testing.assert_close(logits(model, BACKEND), before, atol=1e-4, rtol=1e-4)


def test_a_sum_is_made_before_a_layer_that_is_not_fused() -> None:
    model = small("smollm3", no_rope_layers=[1, 0, 1])
    fuse(model, BACKEND)
    assert [each.defers for each in fused_layers(model)] == [False, True]


@pytest.mark.parametrize("name", ["awq-32", "gptq-asymmetric", "fp8-tensor", "fp8-block"])
def test_quantized_projections_are_called_as_they_are(name: str, tmp_path: Path) -> None:
    floats = save_for_ranks(tmp_path / "floats", "qwen2", **SIZES)
    folder = save_quantized(floats, tmp_path, FORMS[name]) / "packed"
    model = load_model(
        folder,
        dtype=torch.float32,
        device=torch.device("cpu"),
        max_model_len=64,
        quantization=read_shape(folder).quantization,
    )
    before = logits(model, BACKEND)
    assert fuse(model, BACKEND).layers == 2
    torch.testing.assert_close(logits(model, BACKEND), before, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("family", ["qwen3", "gemma2"])
def test_a_worker_fuses_where_the_backend_is_not_plain_torch(
    family: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """And profiles, fills a cache and serves with it, in chunks and with shared prefixes."""
    caplog.set_level("INFO")
    model = save_model(tmp_path, family, {})
    like_a_gpu = replace(BACKEND, gathers=False, paged_attention=paged_attention_reference)
    monkeypatch.setattr(worker, "open_backend", lambda *_, **__: like_a_gpu)
    check(model, engine_for(tmp_path), PROMPTS)
    fused = 3 if family == "qwen3" else 0
    assert f"fused {fused} of 3 decoder layers" in caplog.text


def test_a_worker_leaves_plain_torch_as_it_is(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    save_model(tmp_path, "llama", {})
    core = engine_for(tmp_path)
    LLM(core).generate([[5, 6]], SamplingParams(temperature=0, max_tokens=2))
    assert isinstance(core._executor.layers._backend.paged_attention, PagedAttention)  # type: ignore[attr-defined]
    assert "decoder layers" not in caplog.text
