"""What a run has to show: objectives met, replica time spent, changes of size."""

from dataclasses import dataclass, field

from bench.autoscaling_sim.replica import Sequence

TTFT_SECONDS = 2.0
SECONDS_PER_TOKEN = 0.15
REVERSAL_SECONDS = 600.0


@dataclass(frozen=True, slots=True)
class Resize:
    at: float
    change: int


@dataclass(slots=True)
class Report:
    """A request meets its objectives with its first token within 2 s and 0.15 s per token.

    One that is not finished at the end, or was killed, has not met them.
    """

    offered: int
    seconds: float
    finished: int = 0
    met: int = 0
    killed: int = 0
    preemptions: int = 0
    replica_seconds: float = 0.0
    resizes: list[Resize] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)

    @property
    def slo_percent(self) -> float:
        return 100 * self.met / self.offered if self.offered else 100.0

    @property
    def replica_hours(self) -> float:
        return self.replica_seconds / 3600

    @property
    def reversals_per_hour(self) -> float:
        pairs = zip(self.resizes, self.resizes[1:], strict=False)
        count = sum(
            1
            for one, two in pairs
            if one.change * two.change < 0 and two.at - one.at < REVERSAL_SECONDS
        )
        return count * 3600 / self.seconds

    @property
    def resizes_per_hour(self) -> float:
        return len(self.resizes) * 3600 / self.seconds

    def count_decision(self, before: int, after: int, now: float) -> None:
        self.sizes.append(after)
        if after != before:
            self.resizes.append(Resize(now, after - before))

    def count_finished(self, sequence: Sequence) -> None:
        self.finished += 1
        assert sequence.first_token_at is not None, "finished without a first token"
        waited = sequence.first_token_at - sequence.request.arrival
        if waited <= TTFT_SECONDS and sequence.seconds_per_token <= SECONDS_PER_TOKEN:
            self.met += 1
