"""The typed messages between the front end and the engine core's process."""

from dataclasses import dataclass

from pagefleet_engine.request import (
    AdmissionLimits,
    EngineLedger,
    EngineOutput,
    EngineRequest,
    EngineStats,
)


@dataclass(frozen=True, slots=True)
class AddRequests:
    requests: tuple[EngineRequest, ...]


@dataclass(frozen=True, slots=True)
class AbortRequests:
    request_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StopCore:
    """End now, in the middle of a step too."""


CoreCommand = AddRequests | AbortRequests | StopCore


@dataclass(frozen=True, slots=True)
class CoreReady:
    """The model is loaded and the KV pool is sized."""

    limits: AdmissionLimits
    ledger: EngineLedger
    stats: EngineStats


@dataclass(frozen=True, slots=True)
class StepDone:
    """One step's outputs and the state after it."""

    outputs: tuple[EngineOutput, ...]
    stats: EngineStats


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """The state of a core that has nothing to do, pushed after every change and periodically."""

    stats: EngineStats
    ledger: EngineLedger


@dataclass(frozen=True, slots=True)
class CoreFailed:
    """The core cannot start or go on; `reason` goes to the termination record."""

    reason: str
    message: str


CoreMessage = CoreReady | StepDone | Heartbeat | CoreFailed
