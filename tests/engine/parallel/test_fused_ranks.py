"""Fused layers in two tensor ranks: both give the logits of the whole model.

The ranks are threads here, which add up what they hold; what processes need to find each other is
tested in test_parallel_models.py, where layers are not fused because they run on a CPU.
"""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest
import torch
from transformers import PreTrainedModel

from pagefleet_engine.models.checkpoint import read_shape
from pagefleet_engine.parallel.part import load_part
from pagefleet_engine.parallel.placement import Node, Place
from pagefleet_kernels.backend import torch_backend
from tests.support.fused_models import CPU, fuse, logits
from tests.support.parallel_engine import save_model
from tests.support.quantized_checkpoint import save_quantized
from tests.support.quantized_forms import FORMS, SIZES

NUM_RANKS = 2
SECONDS = 60  # a rank that fails must not leave the other one waiting


@dataclass
class Exchange:
    """What the ranks have put down."""

    barrier: Barrier = field(default_factory=lambda: Barrier(NUM_RANKS, timeout=SECONDS))
    tensors: list[torch.Tensor] = field(default_factory=lambda: [torch.empty(0)] * NUM_RANKS)


class ThreadGroup:
    """A rank's collectives among threads."""

    def __init__(self, rank: int, num_ranks: int, exchange: Exchange) -> None:
        self.place = Place(rank=rank, node=Node(), tensor_size=num_ranks, num_stages=1)
        self._exchange = exchange
        self.reductions = 0

    def _all(self, tensor: torch.Tensor) -> list[torch.Tensor]:
        self._exchange.tensors[self.place.rank] = tensor.clone()
        self._exchange.barrier.wait()
        tensors = list(self._exchange.tensors)
        self._exchange.barrier.wait()
        return tensors

    def all_reduce(self, tensor: torch.Tensor) -> torch.Tensor:
        self.reductions += 1
        return torch.stack(self._all(tensor)).sum(0)

    def gather_columns(self, tensor: torch.Tensor) -> torch.Tensor:
        return torch.cat(self._all(tensor), dim=-1)


def load(folder: Path, group: Any) -> PreTrainedModel:
    return load_part(
        folder,
        group,
        dtype=torch.float32,
        device=CPU,
        max_model_len=64,
        quantization=read_shape(folder).quantization,
    )


def fused_logits(model: PreTrainedModel) -> torch.Tensor:
    assert fuse(model, torch_backend()).layers == 2
    return logits(model, torch_backend())


@pytest.mark.parametrize(
    ("family", "extra", "form"),
    [
        ("llama", {}, ""),
        ("llama", {"num_key_value_heads": 1}, ""),  # which both ranks hold
        ("qwen2", {}, ""),
        ("qwen3", {}, ""),
        ("mixtral", {"num_local_experts": 4}, ""),
        ("qwen2", {**SIZES, "vocab_size": 192}, "awq-32"),
        ("qwen2", {**SIZES, "vocab_size": 192}, "fp8-block"),
    ],
)
def test_both_ranks_give_the_logits_of_the_whole_model(
    family: str, extra: dict[str, Any], form: str, tmp_path: Path
) -> None:
    folder = save_model(tmp_path / "model", family, **{"num_hidden_layers": 2, **extra})
    if form:
        folder = save_quantized(folder, tmp_path, FORMS[form]) / "packed"
    expected = logits(load(folder, ThreadGroup(0, 1, Exchange())), torch_backend())
    exchange = Exchange()
    groups = [ThreadGroup(rank, NUM_RANKS, exchange) for rank in range(NUM_RANKS)]
    parts = [load(folder, group) for group in groups]
    with ThreadPoolExecutor(NUM_RANKS) as ranks:
        found = list(ranks.map(fused_logits, parts))
    for each in found:
        torch.testing.assert_close(each, expected, atol=2e-4, rtol=2e-4)
    assert groups[0].reductions == groups[1].reductions > 0
