"""ModelRunner: turns a scheduled step into tensors, runs the model and samples."""

import logging
import time

import torch
from transformers import PreTrainedModel

from pagefleet_engine.decode_graphs import DecodeGraphs, Forward
from pagefleet_engine.executor import (
    ModelRunnerOutput,
    SchedulerOutput,
    StepInputs,
    describe_step,
)
from pagefleet_engine.models.attention import PagedLayers
from pagefleet_engine.sampler import Sampler
from pagefleet_engine.step_tensors import StepTensors

logger = logging.getLogger(__name__)


class ModelRunner:
    """The executor of one rank in this process."""

    def __init__(
        self, *, forward: Forward, layers: PagedLayers, sampler: Sampler, device: torch.device
    ) -> None:
        self._forward = forward
        self.layers = layers
        self._sampler = sampler
        self._block_size = layers.pool.layout.block_size
        self._device = device
        self._graphs: DecodeGraphs | None = None

    @property
    def kv_cache_bytes(self) -> int:
        return self.layers.pool.num_bytes

    def forget(self, request_id: str) -> None:
        self._sampler.forget(request_id)

    def stop(self) -> None:
        """There is no other process."""

    def close(self) -> None:
        """There is no other process."""

    def use_graphs(self, graphs: DecodeGraphs | None) -> None:
        """Replay decoding steps from now on, where a captured size holds them."""
        self._graphs = graphs

    def warm_up_sampler(self, logits: torch.Tensor) -> None:
        """Compile what sampling from such logits needs."""
        started = time.perf_counter()
        if ways := self._sampler.warm_up(logits):
            seconds = time.perf_counter() - started
            logger.info("compiled and ran %d ways to sample in %.1f s", ways, seconds)

    def execute(self, output: SchedulerOutput) -> ModelRunnerOutput:
        """Compute the step's tokens, and the next token where a sequence is caught up."""
        return self.sample(self.compute(describe_step(output.scheduled)), output)

    @torch.inference_mode()
    def compute(self, inputs: StepInputs) -> torch.Tensor:
        """Logits of the rows that are sampled: [num_rows, vocab_size]."""
        step = StepTensors.of(inputs, block_size=self._block_size)
        size = None if self._graphs is None else self._graphs.size_for(step)
        if self._graphs is not None and size is not None:
            return self._graphs.replay(step, size)
        step = step.to(self._device)
        self.layers.begin(step.metadata)
        return self._forward(step.token_ids, step.positions, step.rows)

    @torch.inference_mode()
    def sample(self, logits: torch.Tensor, output: SchedulerOutput) -> ModelRunnerOutput:
        sequences = [item.sequence for item in output.scheduled if item.needs_token]
        return ModelRunnerOutput(self._sampler.sample(logits, sequences))


def run_model(
    model: PreTrainedModel, input_ids: torch.Tensor, positions: torch.Tensor, rows: torch.Tensor
) -> torch.Tensor:
    """Run a packed batch; the output head sees only `rows`: [len(rows), vocab_size]."""
    result = model(
        input_ids=input_ids[None],
        position_ids=positions[None],
        use_cache=False,
        logits_to_keep=rows,
    )
    logits: torch.Tensor = result.logits[0]
    return logits
