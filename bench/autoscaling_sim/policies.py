"""The policies compared: pagefleet's, a HorizontalPodAutoscaler on the KV ratio, a fixed size,
and one that knows the next minutes."""

import math
from collections import deque
from collections.abc import Callable, Sequence

from bench.autoscaling_sim.replica import EngineModel
from bench.autoscaling_sim.requests import Request
from pagefleet_operator.autoscaling import (
    AutoscalerState,
    Decision,
    FleetSnapshot,
    PodState,
    decide,
)


class Pagefleet:
    """The shipped decide(), with its state; `restart()` is a new leader without one."""

    def __init__(self) -> None:
        self._state = AutoscalerState()
        self.last: Decision | None = None

    def desired(self, snapshot: FleetSnapshot, now: float) -> int:
        self.last = decide(snapshot, self._state, now)
        self._state = self.last.state
        return self.last.desired_replicas

    def restart(self) -> None:
        self._state = AutoscalerState()


class HpaOnKvRatio:
    """ceil(current * usage / target), tolerance 10%, 100% or 4 pods per 15 s up, 300 s down."""

    def __init__(self, *, target: float = 0.8) -> None:
        self._target = target
        self._recent: deque[tuple[float, int]] = deque()

    def desired(self, snapshot: FleetSnapshot, now: float) -> int:
        current = snapshot.current_replicas
        wanted = self._recommend(snapshot)
        self._recent.append((now, wanted))
        while self._recent[0][0] < now - 300:
            self._recent.popleft()
        if wanted < current:
            wanted = min(current, max(size for _, size in self._recent))
        wanted = min(wanted, max(2 * current, current + 4))
        settings = snapshot.settings
        return max(settings.min_replicas, min(settings.max_replicas, wanted))

    def _recommend(self, snapshot: FleetSnapshot) -> int:
        samples = [
            pod.sample for pod in snapshot.pods if pod.sample and pod.state is PodState.READY
        ]
        if not samples:
            return snapshot.current_replicas
        ratio = sum(sample.kv_utilization for sample in samples) / len(samples) / self._target
        if abs(ratio - 1) <= 0.1:
            return snapshot.current_replicas
        # As the HPA does, pods that are not ready yet do not multiply the ratio.
        return math.ceil(len(samples) * ratio)


class Fixed:
    def __init__(self, replicas: int) -> None:
        self._replicas = replicas

    def desired(self, snapshot: FleetSnapshot, now: float) -> int:
        return self._replicas


class Clairvoyant:
    """The same demand, read from the requests to come: no reactive policy can match it."""

    def __init__(
        self, requests: Sequence[Request], model: EngineModel, *, look_ahead: float
    ) -> None:
        self._model = model
        self._ahead = look_ahead
        self._tokens = _per_minute(requests, lambda request: _token_seconds(request, model))
        self._prompts = _per_minute(requests, lambda request: request.prompt_tokens)

    def desired(self, snapshot: FleetSnapshot, now: float) -> int:
        settings = snapshot.settings
        first, last = int(now // 60), int((now + self._ahead) // 60)
        minutes = range(max(0, first - 1), last + 1)
        tokens = max(self._tokens.get(minute, 0.0) for minute in minutes) / 60
        prompts = max(self._prompts.get(minute, 0.0) for minute in minutes) / 60
        need = max(
            tokens / (0.7 * self._model.kv_tokens),
            prompts / (0.6 * self._model.prefill_tokens_per_second),
        )
        return max(settings.min_replicas, min(settings.max_replicas, math.ceil(need)))


def _token_seconds(request: Request, model: EngineModel) -> float:
    seconds_per_token = 1.7 * model.base
    held = request.prompt_tokens + request.output_tokens / 2
    return held * request.output_tokens * seconds_per_token


def _per_minute(requests: Sequence[Request], cost: Callable[[Request], float]) -> dict[int, float]:
    sums: dict[int, float] = {}
    for request in requests:
        minute = int(request.arrival // 60)
        sums[minute] = sums.get(minute, 0.0) + cost(request)
    return sums
