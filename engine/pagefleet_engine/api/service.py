"""Service: what the handlers share, from the spawn of the engine core to its end."""

import asyncio
import logging
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from aiohttp import web
from prometheus_client import CollectorRegistry
from pydantic import BaseModel

from pagefleet_engine.api.errors import RETRY_WHILE_STOPPING, ApiError, unavailable
from pagefleet_engine.async_engine import STALL_SECONDS, AsyncEngine
from pagefleet_engine.config import EngineConfig
from pagefleet_engine.engine_state import EngineDeadError
from pagefleet_engine.errors import ModelLoadError
from pagefleet_engine.lifecycle import Lifecycle
from pagefleet_engine.metrics import EngineCollector
from pagefleet_engine.request import EngineRequest, SamplingParams
from pagefleet_engine.request_metrics import RequestMetrics
from pagefleet_engine.tokenizer import Tokenizer

RETRY_WHILE_STARTING = 5

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Service:
    """State behind one server; `start` returns at once and readiness comes later."""

    config: EngineConfig
    lifecycle: Lifecycle = field(default_factory=Lifecycle)
    requests: RequestMetrics = field(default_factory=RequestMetrics)
    registry: CollectorRegistry = field(default_factory=CollectorRegistry)
    stall_seconds: float = STALL_SECONDS
    created: int = field(default_factory=lambda: int(time.time()))
    engine: AsyncEngine = field(init=False)
    _tokenizer: Tokenizer | None = None
    _tasks: list[asyncio.Task[None]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.engine = AsyncEngine(self.requests, stall_seconds=self.stall_seconds)
        self.registry.register(
            EngineCollector(
                model_name=self.config.model_name,
                requests=self.requests,
                lifecycle=self.lifecycle,
                view=lambda: self.engine.latest_view,
            )
        )

    @property
    def tokenizer(self) -> Tokenizer:
        assert self._tokenizer is not None, "a started service has a tokenizer"
        return self._tokenizer

    def start(self) -> None:
        """Begin to load the model; the server can already answer probes."""
        self.engine.start(self.config)
        self._tasks = [
            asyncio.create_task(self._become_ready()),
            asyncio.create_task(self.engine.watch()),
        ]

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.engine.close()
        if self._tokenizer is not None:
            self._tokenizer.close()

    async def _become_ready(self) -> None:
        try:
            self._tokenizer = await asyncio.to_thread(Tokenizer.load, Path(self.config.model_path))
            await self.engine.wait_loaded()
            await self._warm_up()
        except ModelLoadError as error:
            self.engine.fail(EngineDeadError(error.reason, str(error)))
        except EngineDeadError as error:
            log.error("the engine did not start: %s", error)
        else:
            self.lifecycle.started()
            log.info("ready to serve %s", self.config.model_name)

    async def _warm_up(self) -> None:
        """Generate one token the way requests do, so that `ready` means that it works."""
        prompt = await self.tokenizer.encode("Hello", add_special_tokens=True)
        request = EngineRequest(
            request_id="warm-up",
            prompt_token_ids=prompt[: self.engine.view.limits.max_model_len - 1] or (0,),
            sampling=SamplingParams(temperature=0.0, max_tokens=1),
            arrival_time=time.monotonic(),
        )
        async for output in self.engine.submit([request], is_counted=False):
            if output.error is not None:
                raise EngineDeadError("WarmUpFailed", f"the warm-up failed: {output.error}")

    def check_serving(self) -> None:
        """Raise the ApiError of a server that takes no requests now."""
        if self.engine.is_dead:
            raise ApiError(500, "the engine has failed", code="engine_failed")
        if self.lifecycle.is_refusing:
            raise unavailable(
                "the server is stopping", code="draining", retry_after=RETRY_WHILE_STOPPING
            )
        if not self.lifecycle.has_started:
            raise unavailable(
                "the model is being loaded", code="starting", retry_after=RETRY_WHILE_STARTING
            )

    def check_model(self, name: str | None) -> None:
        """Raise a 404 unless the request means the model that is served."""
        served = self.config.model_name
        if name is not None and name != served:
            raise ApiError(
                404,
                f"the model {name!r} does not exist; this server serves {served!r}",
                param="model",
                code="model_not_found",
            )


SERVICE = web.AppKey("service", Service)


BodyType = TypeVar("BodyType", bound=BaseModel)


async def parse_body(request: web.Request, schema: type[BodyType]) -> BodyType:
    """Read and validate a body, after checking that the server takes requests at all."""
    request.app[SERVICE].check_serving()
    return schema.model_validate_json(await request.read())
