"""What one rank holds, measured after its first forwards, and the ledger that follows from it."""

from dataclasses import replace

from pagefleet_engine.models.loader import buffer_bytes, weight_bytes
from pagefleet_engine.worker import Profile, Worker
from pagefleet_memory import (
    Accelerator,
    EngineLimits,
    Ledger,
    Measured,
    ModelShape,
    build_ledger,
)


def measure_rank(
    worker: Worker, profile: Profile, predicted: Ledger, *, own_bytes: int
) -> Measured:
    return Measured(
        weights_bytes=weight_bytes(worker.model),
        rope_and_buffers_bytes=buffer_bytes(worker.model),
        workspace_bytes=profile.workspace_bytes,
        # The prediction also covers the front end, which shares the container.
        context_bytes=max(own_bytes, predicted.term("context").bytes),
    )


def final_ledger(
    shape: ModelShape,
    accelerator: Accelerator,
    limits: EngineLimits,
    *,
    predicted: Ledger,
    measured: Measured,
) -> Ledger:
    # One forward shows less than the worst step holds, so the prediction stays the floor.
    floor = predicted.term("workspace").bytes
    workspace_bytes = max(measured.workspace_bytes or 0, floor)
    measured = replace(measured, workspace_bytes=workspace_bytes)
    return build_ledger(shape, accelerator, limits, measured=measured, stage=predicted.stage)
