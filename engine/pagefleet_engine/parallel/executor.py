"""ParallelExecutor: the leading rank's executor, which every step takes all ranks through."""

from multiprocessing.process import BaseProcess

import torch
from torch.distributed import Store  # type: ignore[attr-defined]

from pagefleet_engine.executor import ModelRunnerOutput, SchedulerOutput, StepInputs, describe_step
from pagefleet_engine.model_runner import ModelRunner
from pagefleet_engine.parallel.links import RankLinks
from pagefleet_engine.parallel.messages import Step
from pagefleet_engine.parallel.rank import Rank
from pagefleet_engine.parallel.rank_process import end_ranks


class ParallelExecutor:
    """A failure on any rank is final: the others would wait in the step for it."""

    def __init__(
        self,
        runner: ModelRunner,
        links: RankLinks,
        rank: Rank,
        store: Store,
        children: list[BaseProcess],
    ) -> None:
        self._runner = runner
        self._links = links
        self._rank = rank
        self._store = store  # lives here: the ranks' collectives need it until the end
        self._children = children

    def execute(self, output: SchedulerOutput) -> ModelRunnerOutput:
        logits = self._compute(describe_step(output.scheduled))
        return self._runner.sample(logits, output)

    def _compute(self, inputs: StepInputs) -> torch.Tensor:
        self._links.send(Step(inputs))
        try:
            return self._runner.compute(inputs)
        except RuntimeError as error:
            raise self._links.explain(error) from error

    def forget(self, request_id: str) -> None:
        self._runner.forget(request_id)

    def stop(self) -> None:
        self._links.stop()

    def close(self) -> None:
        """Stop, and leave this process as it was before."""
        self.stop()
        end_ranks(self._children)
        self._links.close()
        self._rank.leave()
