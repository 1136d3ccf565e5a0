"""Start-up: from settings to a running engine core, or a StartupError that says why not."""

import time
from collections.abc import Callable

from pagefleet_engine.config import EngineConfig
from pagefleet_engine.engine_core import EngineCore


def build_engine_core(
    config: EngineConfig, *, clock: Callable[[], float] = time.monotonic
) -> EngineCore:
    """Load the model, size the KV cache and return an engine that can step."""
    from pagefleet_engine.worker import Worker  # imports torch, which takes seconds

    return Worker(config).build_core(clock=clock)
