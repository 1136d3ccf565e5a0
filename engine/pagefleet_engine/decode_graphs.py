"""DecodeGraphs: decoding steps that are replayed from graphs, one for each batch size.

A graph reads its inputs where they were when it was captured, so a step is copied into buffers that
never move, and padded to the next captured size: a padded row has no token in the cache (length 0)
and no slot (-1), and what it computes is thrown away. Prompts run without a graph.

Of several ranks each captures its own part, with the sums over the ranks of its stage. What goes
from stage to stage stays outside, unpadded. All ranks replay or none does, since their collectives
would not fit together otherwise.
"""

import logging
import time
from collections.abc import Callable
from typing import Protocol

import torch

from pagefleet_engine.models.attention import PagedLayers
from pagefleet_engine.step_tensors import StepTensors
from pagefleet_kernels import AttentionMetadata, DeviceLengths
from pagefleet_memory import EngineLimits

logger = logging.getLogger(__name__)

Run = Callable[[], None]
# Records what a function launches, and returns a function that launches it again.
Capture = Callable[[Run], Run]
# From packed tokens, their positions and the rows that are sampled, to those rows' logits.
Forward = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]
# Whether all ranks can go on, from whether this one can.
Agree = Callable[[bool], bool]

SIZES = (1, 2, 4, *range(8, 513, 8))  # what the memory model counts


class CapturedForward(Protocol):
    """A forward that is captured, and what has to happen around each replay."""

    def __call__(
        self, token_ids: torch.Tensor, positions: torch.Tensor, rows: torch.Tensor
    ) -> torch.Tensor: ...

    def receive(self, count: int) -> None:
        """Put hidden states of `count` tokens where the captured forward reads them."""

    def send(self, output: torch.Tensor) -> None:
        """Pass on what came out: [count, width]."""


class WholeForward:
    """The captured forward of a model that is in one stage: nothing comes or goes."""

    def __init__(self, forward: Forward) -> None:
        self._forward = forward

    def __call__(
        self, token_ids: torch.Tensor, positions: torch.Tensor, rows: torch.Tensor
    ) -> torch.Tensor:
        return self._forward(token_ids, positions, rows)

    def receive(self, count: int) -> None:
        pass

    def send(self, output: torch.Tensor) -> None:
        pass


def capture_sizes(max_num_seqs: int) -> tuple[int, ...]:
    """Batch sizes that are captured."""
    return tuple(size for size in SIZES if size <= max_num_seqs)


class DecodeBuffers:
    """Inputs and output of the graphs, for up to `most` sequences."""

    def __init__(self, *, most: int, max_model_len: int, block_size: int, device: torch.device):
        self.max_model_len = max_model_len
        self.token_ids = torch.zeros(most, dtype=torch.int64, device=device)
        self.positions = torch.zeros(most, dtype=torch.int64, device=device)
        self.rows = torch.arange(most, device=device)
        self.slots = torch.full((most,), -1, dtype=torch.int64, device=device)
        self.seq_lens = torch.zeros(most, dtype=torch.int32, device=device)
        self.query_starts = torch.arange(most + 1, dtype=torch.int32, device=device)
        max_blocks = -(-max_model_len // block_size)
        self.block_tables = torch.zeros(most, max_blocks, dtype=torch.int32, device=device)
        # [most, vocab_size], of a stage before the last [most, hidden_size]; once a forward has run
        self.output: torch.Tensor | None = None

    def metadata(self, size: int) -> AttentionMetadata:
        return AttentionMetadata(
            query_starts=(),
            seq_lens=(),
            block_tables=self.block_tables[:size],
            slot_mapping=self.slots[:size],
            device_lengths=DeviceLengths(
                query_starts=self.query_starts[: size + 1],
                seq_lens=self.seq_lens[:size],
                max_query_len=1,
                max_seq_len=self.max_model_len,
            ),
        )

    def fill(self, step: StepTensors, size: int) -> None:
        """Copy a step of the host's memory in, padded to `size` rows."""
        metadata, count = step.metadata, step.metadata.num_seqs
        for room, values, padding in (
            (self.token_ids, step.token_ids, 0),
            (self.positions, step.positions, 0),
            (self.slots, metadata.slot_mapping, -1),
            (self.seq_lens, torch.tensor(metadata.seq_lens, dtype=torch.int32), 0),
        ):
            padded = values.new_full((size,), padding)
            padded[:count] = values
            room[:size].copy_(padded)
        width = metadata.block_tables.shape[1]
        self.block_tables[:count, :width].copy_(metadata.block_tables)

    def keep(self, output: torch.Tensor) -> None:
        """Graphs share one output, which the largest of them, the first to run, allocates."""
        if self.output is None:
            self.output = torch.empty_like(output)
        self.output[: output.shape[0]].copy_(output)


class DecodeGraphs:
    """Captures once, then answers steps in which every sequence computes one token."""

    def __init__(
        self, forward: CapturedForward, layers: PagedLayers, buffers: DecodeBuffers
    ) -> None:
        self._forward = forward
        self._layers = layers
        self._buffers = buffers
        self._graphs: dict[int, Run] = {}

    def capture(self, sizes: tuple[int, ...], capture: Capture, agree: Agree = bool) -> bool:
        """Whether every rank could; the ranks take sizes in step.

        The largest comes first, since smaller ones then fit into the memory that it took.
        """
        started = time.perf_counter()
        for size in sorted(sizes, reverse=True):
            try:
                self._graphs[size] = capture(self._run_of(size))
            except RuntimeError as error:
                logger.warning("this model cannot be captured in CUDA graphs: %s", error)
            if not agree(size in self._graphs):
                self._graphs.clear()
                return False
        seconds = time.perf_counter() - started
        logger.info("captured decoding of %d batch sizes in %.1f s", len(sizes), seconds)
        return True

    @torch.inference_mode()
    def _run(self, size: int, metadata: AttentionMetadata) -> None:
        buffers = self._buffers
        self._layers.begin(metadata)
        output = self._forward(
            buffers.token_ids[:size], buffers.positions[:size], buffers.rows[:size]
        )
        buffers.keep(output)

    def _run_of(self, size: int) -> Run:
        metadata = self._buffers.metadata(size)
        return lambda: self._run(size, metadata)

    def size_for(self, step: StepTensors) -> int | None:
        """The captured size that a step is padded to; None: it runs without a graph."""
        count = step.metadata.num_seqs
        if len(step.token_ids) != count:
            return None
        return min((size for size in self._graphs if size >= count), default=None)

    def replay(self, step: StepTensors, size: int) -> torch.Tensor:
        """Logits of the rows that are sampled, which the next replay overwrites."""
        count = step.metadata.num_seqs
        self._buffers.fill(step, size)
        self._forward.receive(count)
        self._graphs[size]()
        output = self._buffers.output
        assert output is not None, "a graph has run"
        self._forward.send(output[:count])
        if len(step.rows) == count:
            return output[:count]
        return output[step.rows.to(output.device)]


def capture_decoding(
    forward: Callable[[int], CapturedForward],
    layers: PagedLayers,
    limits: EngineLimits,
    *,
    device: torch.device,
    capture: Capture,
    agree: Agree = bool,
) -> DecodeGraphs | None:
    """Graphs of all sizes; None where decoding has to run without.

    `forward` is told the largest size.
    """
    if limits.enforce_eager:
        return None
    sizes = capture_sizes(limits.max_num_seqs)
    buffers = DecodeBuffers(
        most=sizes[-1],
        max_model_len=limits.max_model_len,
        block_size=limits.block_size,
        device=device,
    )
    graphs = DecodeGraphs(forward(sizes[-1]), layers, buffers)
    if not graphs.capture(sizes, capture, agree):
        logger.warning("decoding runs without CUDA graphs")
        return None
    return graphs
