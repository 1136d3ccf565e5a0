"""Tiny random models whose layers are fused, and forwards of them over a paged cache."""

from array import array
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from pagefleet_engine.executor import StepInputs
from pagefleet_engine.layers.fuse_decoder import FusedDecoder, fuse_decoder, trial_positions
from pagefleet_engine.model_runner import run_model
from pagefleet_engine.models.attention import (
    ATTENTION_NAME,
    LayerUse,
    PagedLayers,
    UseRecorder,
    attach,
)
from pagefleet_engine.step_tensors import StepTensors
from pagefleet_kernels import KernelBackend, KVLayout, KVPool

CPU = torch.device("cpu")
BLOCK_SIZE, NUM_BLOCKS = 16, 6
TABLES = (array("q", [4, 1]), array("q", [2, 5]))


@dataclass(frozen=True, slots=True)
class Part:
    """One sequence of a step: tokens in the cache before, and tokens that it computes."""

    start: int
    count: int


def step(*parts: Part) -> StepInputs:
    counts = [each.count for each in parts]
    return StepInputs(
        token_ids=[(3 * index + 5) % 64 for index in range(sum(counts))],
        num_computed=[each.start for each in parts],
        num_tokens=counts,
        block_tables=list(TABLES[: len(parts)]),
        rows=list(range(sum(counts))),
    )


# Prompts, then a chunk beside a token, then a token each.
STEPS = (
    step(Part(0, 13), Part(0, 3)),
    step(Part(13, 1), Part(3, 11)),
    step(Part(14, 1), Part(14, 1)),
)


def random_model(
    family: str, dtype: torch.dtype = torch.float32, **settings: Any
) -> PreTrainedModel:
    """Weights so large that every part of a layer shows in its output, norms among them."""
    torch.manual_seed(0)
    config = AutoConfig.for_model(family, **settings)
    model = AutoModelForCausalLM.from_config(
        config, attn_implementation=ATTENTION_NAME, dtype=dtype
    )
    assert isinstance(model, PreTrainedModel)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    return model.requires_grad_(False).eval()


def fuse(
    model: PreTrainedModel, backend: KernelBackend, *, max_model_len: int = 32
) -> FusedDecoder:
    attach(model, UseRecorder())
    run = partial(_run, model, trial_positions(max_model_len, CPU))
    return fuse_decoder(model, backend, run)


def uses_of(model: PreTrainedModel) -> list[LayerUse]:
    recorder = UseRecorder()
    attach(model, recorder)
    _run(model, torch.arange(2))
    return [recorder.layers[index] for index in sorted(recorder.layers)]


@torch.inference_mode()
def _run(model: PreTrainedModel, positions: torch.Tensor) -> None:
    first = torch.zeros(1, dtype=torch.int64)
    run_model(model, torch.zeros_like(positions), positions, first)


def paged(
    model: PreTrainedModel, backend: KernelBackend, *, mode: str, uses: list[LayerUse] | None = None
) -> PagedLayers:
    """An empty cache for the model's layers."""
    shapes = tuple(each.shape for each in uses or uses_of(model))
    layout = KVLayout(mode=mode, block_size=BLOCK_SIZE, layers=shapes)
    return PagedLayers(KVPool(layout, num_blocks=NUM_BLOCKS, device=CPU), backend)


@torch.inference_mode()
def forward(model: PreTrainedModel, layers: PagedLayers, inputs: StepInputs) -> torch.Tensor:
    attach(model, layers)
    made = StepTensors.of(inputs, block_size=BLOCK_SIZE)
    layers.begin(made.metadata)
    return run_model(model, made.token_ids, made.positions, made.rows)


def logits(
    model: PreTrainedModel, backend: KernelBackend, *, mode: str = "float32"
) -> torch.Tensor:
    """Of all STEPS through one cache: [num_tokens, vocab_size]."""
    layers = paged(model, backend, mode=mode)
    return torch.cat([forward(model, layers, each) for each in STEPS])
