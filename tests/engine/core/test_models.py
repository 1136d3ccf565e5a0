"""Tiny random models through the whole engine, against the same model under eager attention.

Each model runs prompts of several lengths, in chunks, with shuffled blocks and shared prefixes;
every generated token's logits must be those of the untouched model over the whole text.
Left out: recurrent and latent-attention families, which are refused.
"""

import random
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from pagefleet_engine.config import EngineConfig
from pagefleet_engine.engine_core import EngineCore
from pagefleet_engine.errors import ModelLoadError
from pagefleet_engine.executor import SchedulerOutput
from pagefleet_engine.llm import LLM
from pagefleet_engine.request import SamplingParams
from pagefleet_engine.startup import build_engine_core

SMALL: dict[str, Any] = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "vocab_size": 96,
    "max_position_embeddings": 128,
    "eos_token_id": 2,
    "pad_token_id": 0,
    "bos_token_id": 1,
}
FAMILIES: dict[str, dict[str, Any]] = {
    "llama": {"tie_word_embeddings": True},
    "qwen2": {},
    "qwen3": {},
    "mistral": {"sliding_window": 8},
    "gemma2": {"sliding_window": 8, "query_pre_attn_scalar": 8},
    "gemma3_text": {"sliding_window": 8, "query_pre_attn_scalar": 8},
    "mixtral": {"num_local_experts": 4},
    "phi3": {},
    "gpt_oss": {"num_local_experts": 4, "sliding_window": 8},
    "smollm3": {},
    "granite": {},
}


def save_model(folder: Path, family: str, extra: dict[str, Any]) -> PreTrainedModel:
    torch.manual_seed(0)
    config = AutoConfig.for_model(family, **SMALL, **extra)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    model.save_pretrained(folder)
    assert isinstance(model, PreTrainedModel)
    return model


def engine_for(folder: Path, **settings: Any) -> EngineCore:
    defaults: dict[str, Any] = {
        "device": "cpu",
        "dtype": "float32",
        "block_size": 8,
        "max_num_batched_tokens": 7,
        "device_memory_bytes": 4 << 30,
        "num_gpu_blocks_override": 64,
    }
    return build_engine_core(EngineConfig(model=str(folder), **{**defaults, **settings}))


def shuffle_free_blocks(core: EngineCore) -> None:
    """Hand out blocks in no order, as they come after hours of use."""
    pool = core._scheduler.block_manager.pool
    blocks = pool.allocate(pool.num_free)
    random.Random(1).shuffle(blocks)
    pool.release(blocks)


@torch.no_grad()
def true_logprobs(model: PreTrainedModel, prompt: list[int], output: list[int]) -> torch.Tensor:
    logits = model(torch.tensor([prompt + output[:-1]]), use_cache=False).logits[0]
    return torch.log_softmax(logits[len(prompt) - 1 :].float(), dim=-1)


def check(model: PreTrainedModel, core: EngineCore, prompts: list[list[int]]) -> None:
    sampling = SamplingParams(temperature=0, max_tokens=8, logprobs=1, ignore_eos=True)
    for prompt, completion in zip(prompts, LLM(core).generate(prompts, sampling), strict=True):
        truth = true_logprobs(model, prompt, completion.token_ids)
        reported = torch.tensor([each.logprob for each in completion.logprobs])
        chosen = truth.gather(1, torch.tensor(completion.token_ids)[:, None])[:, 0]
        # fp32: packed linears and fused attention sum in another order
        torch.testing.assert_close(reported, chosen, atol=2e-4, rtol=2e-4)
        assert (truth.max(dim=1).values - chosen < 1e-3).all(), "not the most probable token"


PROMPTS = [[5 + i % 60 for i in range(length)] for length in (1, 3, 19, 30)]


@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_gives_the_untouched_models_logits(family: str, tmp_path: Path) -> None:
    model = save_model(tmp_path, family, FAMILIES[family])
    core = engine_for(tmp_path)
    shuffle_free_blocks(core)
    check(model, core, PROMPTS)
    check(model, core, PROMPTS)  # once more, out of the prefix cache
    assert core.stats().prefix_cache_hits > 0


@pytest.mark.parametrize("budget", [1, 2, 5, 16, 64])
@pytest.mark.parametrize("block_size", [8, 32])
def test_no_chunk_or_block_size_changes_the_logits(
    budget: int, block_size: int, tmp_path: Path
) -> None:
    model = save_model(tmp_path, "llama", {})
    core = engine_for(tmp_path, max_num_batched_tokens=budget, block_size=block_size)
    check(model, core, PROMPTS)


@pytest.mark.parametrize("max_model_len", [64, 128])
def test_longrope_is_chosen_by_the_served_length_and_not_by_the_batch(
    max_model_len: int, tmp_path: Path
) -> None:
    rope = {
        "rope_type": "longrope",
        "rope_theta": 10000.0,
        "short_factor": [1.0] * 4,
        "long_factor": [4.0, 3.0, 2.0, 2.0],
        "original_max_position_embeddings": 64,
        "factor": 2.0,
    }
    model = save_model(tmp_path, "llama", {"rope_parameters": rope})
    core = engine_for(tmp_path, max_model_len=max_model_len, max_num_batched_tokens=40)
    if max_model_len == 64:
        check(model, core, [[5, 6, 7], [8] * 40])
    else:
        sampling = SamplingParams(temperature=0, max_tokens=8, ignore_eos=True, logprobs=0)
        (alone,) = LLM(core).generate([[5, 6, 7]], sampling)
        beside, _ = LLM(engine_for(tmp_path, max_num_batched_tokens=200)).generate(
            [[5, 6, 7], [8] * 90], sampling
        )
        assert beside.token_ids == alone.token_ids
        assert [each.logprob for each in beside.logprobs] == pytest.approx(
            [each.logprob for each in alone.logprobs], abs=1e-4
        )


def test_a_nan_in_the_weights_of_one_token_fails_only_the_request_that_uses_it(
    tmp_path: Path,
) -> None:
    model = save_model(tmp_path, "llama", {"tie_word_embeddings": False})
    with torch.no_grad():
        model.get_input_embeddings().weight[90] = float("nan")
    model.save_pretrained(tmp_path)
    core = engine_for(tmp_path)
    avoid = {90: -100.0}  # the other request must not come upon that token by itself
    sampling = SamplingParams(temperature=0, max_tokens=4, ignore_eos=True, logit_bias=avoid)
    bad, good = LLM(core).generate([[5, 90, 7, 8, 9], [5, 6, 7, 8, 9]], sampling)
    assert "not finite" in (bad.error or "")
    assert len(good.token_ids) == 4
    core.check_integrity()


def test_blocks_of_a_request_that_failed_by_a_nan_serve_the_next_ones(tmp_path: Path) -> None:
    model = save_model(tmp_path, "llama", {"tie_word_embeddings": False})
    with torch.no_grad():
        model.get_input_embeddings().weight[90] = float("nan")
    model.save_pretrained(tmp_path)
    core = engine_for(tmp_path)
    avoid = {90: -100.0}
    sampling = SamplingParams(temperature=0, max_tokens=4, ignore_eos=True, logit_bias=avoid)
    failed = LLM(core).generate([[90] * 30] * 4, sampling)
    assert all(each.error for each in failed)
    later = LLM(core).generate([[5, 6, 7], [8, 9, 10, 11]], sampling)
    assert [each.error for each in later] == [None, None]
    assert [len(each.token_ids) for each in later] == [4, 4]


def test_a_step_reads_no_block_of_another_sequence(tmp_path: Path) -> None:
    save_model(tmp_path, "llama", {})
    core = engine_for(tmp_path, max_num_batched_tokens=64)
    seen: list[SchedulerOutput] = []
    execute = core._executor.execute

    def watch(output: SchedulerOutput) -> Any:
        tables = [set(item.sequence.block_table) for item in output.scheduled]
        assert sum(map(len, tables)) == len(set().union(*tables))
        seen.append(output)
        return execute(output)

    core._executor.execute = watch  # type: ignore[method-assign]
    LLM(core).generate([[5] * 9, [6] * 9, [7] * 9], SamplingParams(temperature=0, max_tokens=3))
    assert seen


def test_an_architecture_with_recurrent_state_is_refused(tmp_path: Path) -> None:
    config = AutoConfig.for_model("mamba", hidden_size=16, num_hidden_layers=1, vocab_size=32)
    AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path)
    with pytest.raises(ModelLoadError):
        engine_for(tmp_path)


def test_an_unreadable_folder_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(ModelLoadError, match="config.json cannot be read"):
        engine_for(tmp_path)
    (tmp_path / "config.json").write_text("{not json")
    with pytest.raises(ModelLoadError, match="config.json cannot be read"):
        engine_for(tmp_path)


def test_damaged_weights_are_a_clear_error(tmp_path: Path) -> None:
    save_model(tmp_path, "llama", {})
    (tmp_path / "model.safetensors").write_bytes(b"\x10\0\0\0\0\0\0\0{broken")
    with pytest.raises(ModelLoadError, match="not a safetensors file"):
        engine_for(tmp_path)
