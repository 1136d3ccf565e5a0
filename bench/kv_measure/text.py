"""The predictions of a model over a text, with the keys and values of each KV mode.

All modes go through the text side by side, in chunks as a prompt does in the engine: each chunk is
written to the mode's cache and reads everything before it from there.
"""

import sys
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from transformers import AutoTokenizer, PreTrainedModel

from pagefleet_engine.model_runner import run_model
from pagefleet_engine.models.attention import PagedLayers, UseRecorder, attach
from pagefleet_engine.models.checkpoint import read_shape
from pagefleet_engine.models.loader import load_model
from pagefleet_kernels import KV_MODES, AttentionMetadata, KVLayout, KVPool, open_backend

TEXT = Path(__file__).with_name("alice.txt")
BASELINE = "bfloat16"
BLOCK_SIZE = 16
CHUNK = 256  # tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class TextRow:
    """One mode beside the baseline; perplexity_change is a fraction, 0.003 is 0.3 %."""

    mode: str
    perplexity: float
    perplexity_change: float
    kl: float  # nats per token, of the mode's predictions from the baseline's
    top1_agreement: float  # share of tokens whose most probable successor is the same
    bytes_per_token: int  # of all layers, scales included


@dataclass(slots=True)
class _Sums:
    """Over the tokens so far."""

    loss: float = 0.0
    kl: float = 0.0
    agreed: int = 0
    count: int = 0

    def add(self, logprobs: torch.Tensor, baseline: torch.Tensor, following: torch.Tensor) -> None:
        """Rows [num_tokens, vocab_size], and the tokens that really follow."""
        self.loss -= float(logprobs.gather(1, following[:, None]).sum())
        self.kl += float(F.kl_div(logprobs, baseline, log_target=True, reduction="sum"))
        self.agreed += int((logprobs.argmax(-1) == baseline.argmax(-1)).sum())
        self.count += len(following)


class _Reader:
    """A model that reads one sequence with the cache of one mode."""

    def __init__(self, model: PreTrainedModel, pool: KVPool) -> None:
        self._model = model
        self._layers = PagedLayers(pool, open_backend("torch", pool.layout, pool.records.device))

    @torch.inference_mode()
    def read(self, token_ids: torch.Tensor, start: int) -> torch.Tensor:
        """Log-probabilities after each of the tokens from `start` on: [num_tokens, vocab_size]."""
        count, stop = len(token_ids), start + len(token_ids)
        positions = torch.arange(start, stop)
        attach(self._model, self._layers)
        self._layers.begin(
            AttentionMetadata(
                query_starts=(0, count),
                seq_lens=(stop,),
                block_tables=torch.arange(-(-stop // BLOCK_SIZE))[None],
                slot_mapping=positions,
            )
        )
        logits = run_model(self._model, token_ids, positions, torch.arange(count))
        return torch.log_softmax(logits.float(), dim=-1)


def measure_text(folder: Path) -> tuple[list[TextRow], int]:
    """A row per mode, computed in float32, and the number of tokens that were predicted."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    token_ids = torch.tensor(tokenizer(TEXT.read_text(encoding="utf-8"))["input_ids"])
    model = load_model(
        folder, dtype=torch.float32, device=token_ids.device, max_model_len=len(token_ids)
    )
    layouts = {mode: _layout(model, mode) for mode in KV_MODES}
    num_blocks = -(-len(token_ids) // BLOCK_SIZE)
    readers = {
        mode: _Reader(model, KVPool(layout, num_blocks=num_blocks, device=token_ids.device))
        for mode, layout in layouts.items()
    }
    sums = _read_text(readers, token_ids)
    _check_bytes(folder, layouts)
    rows = [_row(layouts[mode], sums[mode], sums[BASELINE]) for mode in KV_MODES]
    return rows, sums[BASELINE].count


def _read_text(readers: dict[str, _Reader], token_ids: torch.Tensor) -> dict[str, _Sums]:
    sums = {mode: _Sums() for mode in readers}
    for start in range(0, len(token_ids) - 1, CHUNK):
        following = token_ids[start + 1 : start + 1 + CHUNK]
        chunk = token_ids[start : start + len(following)]
        baseline = readers[BASELINE].read(chunk, start)
        for mode, reader in readers.items():
            again = baseline if mode == BASELINE else reader.read(chunk, start)
            sums[mode].add(again, baseline, following)
        print(f"{start + len(chunk)} of {len(token_ids) - 1} tokens", file=sys.stderr)
    return sums


@torch.inference_mode()
def _layout(model: PreTrainedModel, mode: str) -> KVLayout:
    recorder = UseRecorder()
    attach(model, recorder)
    first = torch.tensor([0])
    run_model(model, first, first, first)
    layers = tuple(recorder.layers[index].shape for index in sorted(recorder.layers))
    return KVLayout(mode=mode, block_size=BLOCK_SIZE, layers=layers)


def _check_bytes(folder: Path, layouts: dict[str, KVLayout]) -> None:
    """What is measured is what plans are made with."""
    shape = read_shape(folder)
    for mode, layout in layouts.items():
        planned = shape.kv_bytes_per_token(mode, dtype=mode)
        assert layout.record_bytes == planned * BLOCK_SIZE, (mode, planned)


def _row(layout: KVLayout, sums: _Sums, baseline: _Sums) -> TextRow:
    perplexity, before = (_perplexity(each) for each in (sums, baseline))
    return TextRow(
        mode=layout.mode,
        perplexity=perplexity,
        perplexity_change=perplexity / before - 1,
        kl=sums.kl / sums.count,
        top1_agreement=sums.agreed / sums.count,
        bytes_per_token=layout.record_bytes // BLOCK_SIZE,
    )


def _perplexity(sums: _Sums) -> float:
    return float(torch.tensor(sums.loss / sums.count, dtype=torch.float64).exp())
