"""ModelRunner: turns a scheduled step into tensors, runs the model and samples."""

import torch
from transformers import PreTrainedModel

from pagefleet_engine.executor import ModelRunnerOutput, ScheduledSequence, SchedulerOutput
from pagefleet_engine.models.attention import PagedLayers
from pagefleet_engine.sampler import Sampler
from pagefleet_kernels import AttentionMetadata


class ModelRunner:
    """The executor of one rank in this process."""

    def __init__(self, *, model: PreTrainedModel, layers: PagedLayers, sampler: Sampler) -> None:
        self._model = model
        self._layers = layers
        self._sampler = sampler
        self._block_size = layers.storage.block_size
        self._device = model.device

    @property
    def kv_cache_bytes(self) -> int:
        return self._layers.storage.num_bytes

    def forget(self, request_id: str) -> None:
        self._sampler.forget(request_id)

    @torch.inference_mode()
    def execute(self, output: SchedulerOutput) -> ModelRunnerOutput:
        """Compute the step's tokens, and the next token where a sequence is caught up."""
        scheduled = output.scheduled
        input_ids, positions = self._inputs(scheduled)
        self._layers.metadata = metadata = self._metadata(scheduled, positions)
        wanted = [index for index, item in enumerate(scheduled) if item.needs_token]
        last_rows = [metadata.query_starts[index + 1] - 1 for index in wanted]
        logits = run_model(self._model, input_ids, positions, last_rows)
        sequences = [scheduled[index].sequence for index in wanted]
        return ModelRunnerOutput(self._sampler.sample(logits, sequences))

    def _inputs(
        self, scheduled: tuple[ScheduledSequence, ...]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The packed tokens and their positions, [num_tokens] each."""
        token_ids: list[int] = []
        positions: list[int] = []
        for item in scheduled:
            start = item.sequence.num_computed_tokens
            stop = start + item.num_tokens
            token_ids += item.sequence.token_ids[start:stop]
            positions += range(start, stop)
        return (
            torch.tensor(token_ids, device=self._device),
            torch.tensor(positions, device=self._device),
        )

    def _metadata(
        self, scheduled: tuple[ScheduledSequence, ...], positions: torch.Tensor
    ) -> AttentionMetadata:
        query_starts = [0]
        for item in scheduled:
            query_starts.append(query_starts[-1] + item.num_tokens)
        tables = self._block_tables(scheduled)
        counts = torch.tensor([item.num_tokens for item in scheduled], device=self._device)
        rows = torch.arange(len(scheduled), device=self._device).repeat_interleave(counts)
        blocks = tables[rows, positions // self._block_size]
        return AttentionMetadata(
            query_starts=tuple(query_starts),
            seq_lens=tuple(
                item.sequence.num_computed_tokens + item.num_tokens for item in scheduled
            ),
            block_tables=tables,
            slot_mapping=blocks * self._block_size + positions % self._block_size,
        )

    def _block_tables(self, scheduled: tuple[ScheduledSequence, ...]) -> torch.Tensor:
        """All tables as rows of one tensor, padded with block 0: [num_seqs, max_blocks]."""
        longest = max(len(item.sequence.block_table) for item in scheduled)
        tables = torch.zeros(len(scheduled), longest, dtype=torch.int64)
        for row, item in zip(tables, scheduled, strict=True):
            table = item.sequence.block_table
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
