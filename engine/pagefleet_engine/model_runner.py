"""ModelRunner: turns a scheduled step into tensors, runs the model and samples."""

from array import array
from collections.abc import Callable, Sequence

import torch
from transformers import PreTrainedModel

from pagefleet_engine.executor import (
    ModelRunnerOutput,
    SchedulerOutput,
    StepInputs,
    describe_step,
)
from pagefleet_engine.models.attention import PagedLayers
from pagefleet_engine.sampler import Sampler
from pagefleet_kernels import AttentionMetadata

# From packed tokens, their positions and the rows that are sampled, to those rows' logits.
Forward = Callable[[torch.Tensor, torch.Tensor, list[int]], torch.Tensor]


class ModelRunner:
    """The executor of one rank in this process."""

    def __init__(
        self, *, forward: Forward, layers: PagedLayers, sampler: Sampler, device: torch.device
    ) -> None:
        self._forward = forward
        self._layers = layers
        self._sampler = sampler
        self._block_size = layers.pool.layout.block_size
        self._device = device

    @property
    def kv_cache_bytes(self) -> int:
        return self._layers.pool.num_bytes

    def forget(self, request_id: str) -> None:
        self._sampler.forget(request_id)

    def stop(self) -> None:
        """There is no other process."""

    def close(self) -> None:
        """There is no other process."""

    def execute(self, output: SchedulerOutput) -> ModelRunnerOutput:
        """Compute the step's tokens, and the next token where a sequence is caught up."""
        return self.sample(self.compute(describe_step(output.scheduled)), output)

    @torch.inference_mode()
    def compute(self, inputs: StepInputs) -> torch.Tensor:
        """Logits of the rows that are sampled: [num_rows, vocab_size]."""
        input_ids, positions = self._tokens(inputs)
        self._layers.begin(self._metadata(inputs, positions))
        return self._forward(input_ids, positions, inputs.rows)

    @torch.inference_mode()
    def sample(self, logits: torch.Tensor, output: SchedulerOutput) -> ModelRunnerOutput:
        sequences = [item.sequence for item in output.scheduled if item.needs_token]
        return ModelRunnerOutput(self._sampler.sample(logits, sequences))

    def _tokens(self, inputs: StepInputs) -> tuple[torch.Tensor, torch.Tensor]:
        """The packed tokens and their positions, [num_tokens] each."""
        positions: list[int] = []
        for start, count in zip(inputs.num_computed, inputs.num_tokens, strict=True):
            positions += range(start, start + count)
        return (
            torch.tensor(inputs.token_ids, device=self._device),
            torch.tensor(positions, device=self._device),
        )

    def _metadata(self, inputs: StepInputs, positions: torch.Tensor) -> AttentionMetadata:
        query_starts = [0]
        for count in inputs.num_tokens:
            query_starts.append(query_starts[-1] + count)
        tables = self._block_tables(inputs.block_tables)
        counts = torch.tensor(inputs.num_tokens, device=self._device)
        rows = torch.arange(len(inputs.num_tokens), device=self._device).repeat_interleave(counts)
        blocks = tables[rows, positions // self._block_size]
        return AttentionMetadata(
            query_starts=tuple(query_starts),
            seq_lens=tuple(map(sum, zip(inputs.num_computed, inputs.num_tokens, strict=True))),
            block_tables=tables,
            slot_mapping=blocks * self._block_size + positions % self._block_size,
        )

    def _block_tables(self, block_tables: "Sequence[array[int]]") -> torch.Tensor:
        """All tables as rows of one tensor, padded with block 0: [num_seqs, max_blocks]."""
        longest = max(map(len, block_tables))
        tables = torch.zeros(len(block_tables), longest, dtype=torch.int64)
        for row, table in zip(tables, block_tables, strict=True):
            row[: len(table)] = torch.frombuffer(table, dtype=torch.int64)
        return tables.to(self._device)


def run_model(
    model: PreTrainedModel, input_ids: torch.Tensor, positions: torch.Tensor, rows: list[int]
) -> torch.Tensor:
    """Run a packed batch; the output head sees only `rows`: [len(rows), vocab_size]."""
    result = model(
        input_ids=input_ids[None],
        position_ids=positions[None],
        use_cache=False,
        logits_to_keep=torch.tensor(rows, dtype=torch.int64, device=input_ids.device),
    )
    logits: torch.Tensor = result.logits[0]
    return logits
