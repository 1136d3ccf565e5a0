"""What a worker measures before the KV cache is sized.

Covered: that memory which attention keeps is added to the peak, for a backend that reserves it and
for one that gathers; that a quantized layer runs with the most rows of any step. Left out: meters.
"""

from dataclasses import dataclass, field, replace
from typing import Any

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from pagefleet_engine.device import Device
from pagefleet_engine.layers import quantized
from pagefleet_engine.measure import final_ledger, measure_rank
from pagefleet_engine.models.attention import ATTENTION_NAME
from pagefleet_engine.worker import Profile, Worker
from pagefleet_kernels import KernelBackend, quantized_matmul, store_kv
from pagefleet_kernels.backend import torch_backend
from pagefleet_kernels.fp8_matmul import quantize_fp8_weight
from pagefleet_kernels.reference import paged_attention_reference
from pagefleet_memory import EngineLimits, ModelShape, build_ledger, cpu_accelerator

CPU = torch.device("cpu")
SIZES = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "vocab_size": 64,
    "max_position_embeddings": 4096,
}
LIMITS = EngineLimits(
    dtype="float32", max_model_len=4096, max_num_seqs=8, max_num_batched_tokens=300
)
ACCELERATOR = cpu_accelerator(1 << 31, bf16=False)
SHAPE = ModelShape.from_config({"model_type": "llama", "torch_dtype": "float32", **SIZES})
GROWTH, RESERVED = 1 << 30, 12345


@dataclass
class GrowingMemory:
    """Holds nothing, and a gibibyte at its peak."""

    resets: list[int] = field(default_factory=list)

    def used_bytes(self) -> int:
        return 0

    def peak_bytes(self) -> int:
        return GROWTH

    def reset_peak(self) -> None:
        self.resets.append(0)


def worker() -> Worker:
    torch.manual_seed(0)
    config = LlamaConfig(**SIZES, attn_implementation=ATTENTION_NAME)
    model = LlamaForCausalLM(config).eval()
    projection = model.model.layers[0].mlp.down_proj
    packed = quantized.QuantizedLinear(quantize_fp8_weight(projection.weight.detach()), None)
    model.set_submodule("model.layers.0.mlp.down_proj", packed)
    device = Device(CPU, ACCELERATOR, GrowingMemory())
    return Worker(model, device=device, shape=SHAPE, limits=LIMITS)


def profile(monkeypatch: pytest.MonkeyPatch, *, gathers: bool) -> tuple[Worker, Profile]:
    def opened(*arguments: Any, scratch_bytes: int | None) -> KernelBackend:
        assert scratch_bytes is None, "a processor splits no keys"
        return replace(
            torch_backend(),
            name="reference",
            store_kv=store_kv,
            paged_attention=paged_attention_reference,
            gathers=gathers,
            scratch_bytes=RESERVED,
        )

    monkeypatch.setattr("pagefleet_engine.worker.open_backend", opened)
    made = worker()
    return made, made.profile()


def test_what_attention_reserved_is_part_of_the_workspace(monkeypatch: pytest.MonkeyPatch) -> None:
    made, found = profile(monkeypatch, gathers=False)
    assert found.workspace_bytes == GROWTH + RESERVED
    predicted = build_ledger(SHAPE, ACCELERATOR, LIMITS)
    measured = measure_rank(made, found, predicted, own_bytes=0)
    final = final_ledger(SHAPE, ACCELERATOR, LIMITS, predicted=predicted, measured=measured)
    assert final.term("workspace").bytes == GROWTH + RESERVED
    assert sum(term.bytes for term in final.terms) == final.budget_bytes


def test_a_backend_that_gathers_keeps_the_longest_request(monkeypatch: pytest.MonkeyPatch) -> None:
    _, found = profile(monkeypatch, gathers=True)
    assert found.workspace_bytes == GROWTH + 8192 * 64 * 4  # keys and values of 32 floats each


def test_quantized_layers_run_with_the_tokens_of_the_largest_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows: list[int] = []

    def multiply(x: torch.Tensor, weight: Any) -> torch.Tensor:
        rows.append(x.shape[0])
        return quantized_matmul(x, weight)

    monkeypatch.setattr(quantized, "quantized_matmul", multiply)
    profile(monkeypatch, gathers=False)
    assert max(rows) == LIMITS.max_num_batched_tokens
