"""The engine's forward over the Triton kernels, in the interpreter, against plain torch.

Covered: prompts, chunks and decoding of a tiny model through the engine's own tensors, warm-up with
what its layers ask for, and decoding by replay with padded rows. Left out: real captures.
"""

from array import array
from functools import partial

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from pagefleet_engine.decode_graphs import DecodeBuffers, DecodeGraphs, Run, WholeForward
from pagefleet_engine.executor import StepInputs
from pagefleet_engine.model_runner import run_model
from pagefleet_engine.models.attention import ATTENTION_NAME, PagedLayers, UseRecorder, attach
from pagefleet_engine.step_tensors import StepTensors
from pagefleet_engine.warm_up import compile_attention
from pagefleet_kernels import AttentionBackend, KVLayout, KVPool, open_backend
from pagefleet_kernels.gpu.attention import paged_attention
from pagefleet_kernels.gpu.store import store_kv
from pagefleet_memory import EngineLimits

CPU = torch.device("cpu")
BLOCK_SIZE, NUM_BLOCKS = 16, 6
TRITON = AttentionBackend(
    name="triton", store_kv=store_kv, paged_attention=paged_attention, gathers=False
)
LIMITS = EngineLimits(dtype="float32", max_model_len=32, max_num_seqs=2, max_num_batched_tokens=16)
TABLES = (array("q", [4, 1]), array("q", [2, 5]))


@pytest.fixture(scope="module")
def model() -> PreTrainedModel:
    """A window and a softcap in one layer, the softcap alone in the other."""
    torch.manual_seed(0)
    config = AutoConfig.for_model(
        "gemma2",
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=64,
        vocab_size=64,
        sliding_window=9,
        max_position_embeddings=64,
    )
    made = AutoModelForCausalLM.from_config(config, attn_implementation=ATTENTION_NAME).eval()
    assert isinstance(made, PreTrainedModel)
    return made


def layers_of(model: PreTrainedModel, mode: str, *, on_triton: bool) -> PagedLayers:
    recorder, first = UseRecorder(), torch.tensor([0])
    attach(model, recorder)
    with torch.inference_mode():
        run_model(model, first, first, first)
    uses = [recorder.layers[index] for index in sorted(recorder.layers)]
    shapes = tuple(each.shape for each in uses)
    layout = KVLayout(mode=mode, block_size=BLOCK_SIZE, layers=shapes)
    pool = KVPool(layout, num_blocks=NUM_BLOCKS, device=CPU)
    if not on_triton:
        return PagedLayers(pool, open_backend("torch", layout, CPU))
    pool.records.fill_(0xFF)  # a GPU's cache is never cleared
    compile_attention(uses, pool, TRITON, LIMITS, dtype=torch.float32)
    return PagedLayers(pool, TRITON)


@torch.inference_mode()
def forward(model: PreTrainedModel, layers: PagedLayers, inputs: StepInputs) -> torch.Tensor:
    attach(model, layers)
    step = StepTensors.of(inputs, block_size=BLOCK_SIZE)
    layers.begin(step.metadata)
    return run_model(model, step.token_ids, step.positions, step.rows)


def step(*parts: tuple[int, int]) -> StepInputs:
    """For each sequence, tokens in the cache before, and tokens of the step."""
    counts = [count for _, count in parts]
    return StepInputs(
        token_ids=[(3 * index + 5) % 64 for index in range(sum(counts))],
        num_computed=[start for start, _ in parts],
        num_tokens=counts,
        block_tables=list(TABLES[: len(parts)]),
        rows=list(range(sum(counts))),
    )


STEPS = (step((0, 13), (0, 3)), step((13, 1), (3, 11)), step((14, 1), (14, 1)))


@pytest.mark.parametrize("mode", ["float32", "int8", "int4"])
def test_logits_are_those_of_plain_torch(mode: str, model: PreTrainedModel) -> None:
    triton = layers_of(model, mode, on_triton=True)
    plain = layers_of(model, mode, on_triton=False)
    for inputs in STEPS:
        torch.testing.assert_close(
            forward(model, triton, inputs),
            forward(model, plain, inputs),
            # a sum in another order can move a value over a rounding boundary of one code
            atol=1e-4 if mode == "float32" else 2e-2,
            rtol=0,
        )


def run_again(run: Run) -> Run:
    """Stands in for a capture: run once, and again when replayed."""
    run()
    return run


def test_replayed_decoding_pads_without_a_trace(model: PreTrainedModel) -> None:
    layers = layers_of(model, "int8", on_triton=True)
    for inputs in STEPS[:2]:
        forward(model, layers, inputs)
    before = layers.pool.records.clone()
    expected = forward(model, layers, STEPS[2])
    layers.pool.records.copy_(before)

    buffers = DecodeBuffers(most=4, max_model_len=32, block_size=BLOCK_SIZE, device=CPU)
    graphs = DecodeGraphs(WholeForward(partial(run_model, model)), layers, buffers)
    graphs.capture((4,), run_again)
    assert torch.equal(layers.pool.records, before), "rows of padding are written nowhere"
    found = graphs.replay(StepTensors.of(STEPS[2], block_size=BLOCK_SIZE), 4)
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=0)
