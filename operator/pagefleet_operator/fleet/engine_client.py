"""What the operator asks of an engine pod: to drain, and how much it still has to do."""

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

import aiohttp

from pagefleet_operator.fleet.drain import EngineLoad
from pagefleet_operator.fleet.replicas import Replica
from pagefleet_operator.manifests.names import ENGINE_PORT

logger = logging.getLogger(__name__)


class Engines(Protocol):
    async def drain(self, replica: Replica) -> EngineLoad | None: ...
    async def cancel_drain(self, replica: Replica) -> bool: ...
    async def loads(self, replicas: Sequence[Replica]) -> Mapping[str, EngineLoad]: ...


class EngineClient:
    """Every call answers within `timeout` or says None: an engine that is gone is no error."""

    def __init__(
        self, session: aiohttp.ClientSession, *, port: int = ENGINE_PORT, timeout: float = 2.0
    ) -> None:
        self._session = session
        self._port = port
        self._timeout = aiohttp.ClientTimeout(total=timeout)

    async def drain(self, replica: Replica) -> EngineLoad | None:
        """Take no new work; safe to repeat. Returns what is still unfinished."""
        return _load(await self._call("POST", replica))

    async def cancel_drain(self, replica: Replica) -> bool:
        return await self._call("DELETE", replica) is not None

    async def loads(self, replicas: Sequence[Replica]) -> Mapping[str, EngineLoad]:
        """Unfinished work of each replica that answers."""
        answers = await asyncio.gather(*(self._call("GET", replica) for replica in replicas))
        return _known(zip(replicas, map(_load, answers), strict=True))

    async def ledger(self, replica: Replica) -> Mapping[str, Any] | None:
        """The memory budget as the engine measured it; None for an answer of another shape."""
        answer = await self._call("GET", replica, "/ledger")
        return answer if answer is not None and {"terms", "kv"} <= answer.keys() else None

    async def _call(
        self, method: str, replica: Replica, path: str = "/drain"
    ) -> Mapping[str, Any] | None:
        if not replica.address:
            return None
        host = f"[{replica.address}]" if ":" in replica.address else replica.address
        url = f"http://{host}:{self._port}{path}"
        try:
            async with self._session.request(method, url, timeout=self._timeout) as response:
                response.raise_for_status()
                body = await response.json()
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            logger.info("%s %s: %r", method, url, error)
            return None
        return body if isinstance(body, dict) else None


def _load(answer: Mapping[str, Any] | None) -> EngineLoad | None:
    """None for an answer without counts: unknown work is never taken for none."""
    if answer is None or not {"running", "waiting"} <= answer.keys():
        return None
    return EngineLoad(
        requests=int(answer["running"]) + int(answer["waiting"]),
        kv_tokens=float(answer.get("kvTokens", 0)),
    )


def _known(pairs: Iterable[tuple[Replica, EngineLoad | None]]) -> dict[str, EngineLoad]:
    return {replica.name: load for replica, load in pairs if load is not None}
