"""A token bucket: how fast this client may ask, whatever the reconcilers want."""

import asyncio
from collections.abc import Awaitable, Callable


class TokenBucket:
    """`rate` requests a second on average, `burst` at once. Waiters are served in order."""

    def __init__(
        self,
        *,
        rate: float,
        burst: float,
        clock: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._rate, self._burst = rate, burst
        self._clock, self._sleep = clock, sleep
        self._tokens = burst
        self._updated = clock()

    async def take(self) -> None:
        now = self._clock()
        self._tokens = min(self._burst, self._tokens + (now - self._updated) * self._rate)
        self._updated = now
        self._tokens -= 1
        if self._tokens < 0:
            await self._sleep(-self._tokens / self._rate)
