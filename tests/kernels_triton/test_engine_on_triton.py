"""The engine's forward over the Triton kernels, in the interpreter, against plain torch.

Covered: prompts, chunks and decoding of tiny models through the engine's own tensors, warm-up with
what their layers ask for, and decoding by replay with padded rows: once with layers as Transformers
wrote them, once with fused ones, whose plain side is not fused. Left out: real captures.
"""

from functools import partial
from typing import Any

import pytest
import torch
from transformers import PreTrainedModel

from pagefleet_engine.decode_graphs import DecodeBuffers, DecodeGraphs, Run, WholeForward
from pagefleet_engine.layers.fused_layer import FusedLayer
from pagefleet_engine.model_runner import run_model
from pagefleet_engine.models.attention import PagedLayers, attach
from pagefleet_engine.step_tensors import StepTensors
from pagefleet_engine.warm_up import compile_attention
from pagefleet_kernels.backend import torch_backend, triton_backend
from pagefleet_memory import EngineLimits
from tests.support.fused_models import (
    BLOCK_SIZE,
    CPU,
    STEPS,
    forward,
    fuse,
    paged,
    random_model,
    uses_of,
)
from tests.support.kernel_error import relative_error

TRITON = triton_backend(CPU)
LIMITS = EngineLimits(dtype="float32", max_model_len=32, max_num_seqs=2, max_num_batched_tokens=16)
SMALL: dict[str, Any] = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 64,
    "vocab_size": 64,
    "max_position_embeddings": 64,
}
# A sum in another order can move a value over a rounding boundary of one code, or of bf16.
TOLERANCES = {"float32": 1e-5, "int4": 3e-2, "bfloat16": 2e-2}
# Of two layers: a window and a softcap, none fused; norms of heads; biases and experts.
FAMILIES: dict[str, tuple[dict[str, Any], int]] = {
    "gemma2": ({"sliding_window": 9}, 0),
    "qwen3": ({}, 2),
    "qwen2_moe": (
        {
            "num_experts": 2,
            "num_experts_per_tok": 1,
            "moe_intermediate_size": 16,
            "shared_expert_intermediate_size": 16,
            "decoder_sparse_step": 2,
        },
        2,
    ),
}


def make(family: str, *, on_triton: bool, dtype: torch.dtype = torch.float32) -> PreTrainedModel:
    extra, fused = FAMILIES[family]
    model = random_model(family, dtype, **{**SMALL, **extra})
    if on_triton:
        assert fuse(model, TRITON).layers == fused
    return model


def layers_of(model: PreTrainedModel, mode: str, *, on_triton: bool) -> PagedLayers:
    uses = uses_of(model)
    if not on_triton:
        return paged(model, torch_backend(), mode=mode, uses=uses)
    layers = paged(model, TRITON, mode=mode, uses=uses)
    layers.pool.records.fill_(0xFF)  # a GPU's cache is never cleared
    compile_attention(uses, layers.pool, TRITON, LIMITS, dtype=model.dtype)
    return layers


@pytest.mark.parametrize(
    ("family", "mode"),
    [
        ("gemma2", "float32"),
        ("gemma2", "int4"),
        ("qwen3", "float32"),
        ("qwen3", "int4"),
        ("qwen2_moe", "float32"),
    ],
)
def test_logits_are_those_of_plain_torch(family: str, mode: str) -> None:
    on_triton, on_torch = (make(family, on_triton=each) for each in (True, False))
    triton = layers_of(on_triton, mode, on_triton=True)
    plain = layers_of(on_torch, mode, on_triton=False)
    for inputs in STEPS:
        found, expected = forward(on_triton, triton, inputs), forward(on_torch, plain, inputs)
        assert relative_error(found, expected) < TOLERANCES[mode]


def run_again(run: Run) -> Run:
    """Stands in for a capture: run once, and again when replayed."""
    run()
    return run


@pytest.mark.parametrize("family", ["gemma2", "qwen3"])
def test_replayed_decoding_pads_without_a_trace(family: str) -> None:
    model = make(family, on_triton=True)
    layers = layers_of(model, "int8", on_triton=True)
    for inputs in STEPS[:2]:
        forward(model, layers, inputs)
    before = layers.pool.records.clone()
    expected = forward(model, layers, STEPS[2])
    layers.pool.records.copy_(before)

    attach(model, layers)
    buffers = DecodeBuffers(most=4, max_model_len=32, block_size=BLOCK_SIZE, device=CPU)
    graphs = DecodeGraphs(WholeForward(partial(run_model, model)), layers, buffers)
    graphs.capture((4,), run_again)
    assert torch.equal(layers.pool.records, before), "rows of padding are written nowhere"
    found = graphs.replay(StepTensors.of(STEPS[2], block_size=BLOCK_SIZE), 4)
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=0)


def test_fused_layers_run_in_bf16_as_the_plain_ones_do() -> None:
    on_triton, on_torch = (
        make("qwen3", on_triton=each, dtype=torch.bfloat16) for each in (True, False)
    )
    assert all(
        isinstance(vars(each)["forward"], FusedLayer) for each in on_triton.base_model.layers
    )
    triton = layers_of(on_triton, "bfloat16", on_triton=True)
    plain = layers_of(on_torch, "bfloat16", on_triton=False)
    for inputs in STEPS[:2]:
        found, expected = forward(on_triton, triton, inputs), forward(on_torch, plain, inputs)
        assert relative_error(found, expected) < TOLERANCES["bfloat16"]
