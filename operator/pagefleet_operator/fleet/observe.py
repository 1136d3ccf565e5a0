"""Read the metrics of engine pods: bounded in time, in number at once, and in size."""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass

import aiohttp

from pagefleet_operator.autoscaling.sample import EngineSample
from pagefleet_operator.fleet.engine_metrics import MetricsError, parse_metrics

SCRAPE_TIMEOUT_SECONDS = 1.0
MAX_SCRAPES_AT_ONCE = 32
MAX_BODY_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class ScrapeTarget:
    pod: str
    url: str


@dataclass(frozen=True, slots=True)
class ScrapeFailure:
    pod: str
    message: str


@dataclass(frozen=True, slots=True)
class Scrape:
    """One round over the pods: a pod is in exactly one of the two."""

    samples: tuple[EngineSample, ...]
    failures: tuple[ScrapeFailure, ...]

    def sample_of(self, pod: str) -> EngineSample | None:
        return next((sample for sample in self.samples if sample.pod == pod), None)


async def scrape(
    session: aiohttp.ClientSession,
    targets: Iterable[ScrapeTarget],
    *,
    now: float,
    timeout_seconds: float = SCRAPE_TIMEOUT_SECONDS,
    at_once: int = MAX_SCRAPES_AT_ONCE,
) -> Scrape:
    """Ask every pod once. `now` stamps all samples of the round, so their spans line up."""
    gate = asyncio.Semaphore(at_once)

    async def ask(target: ScrapeTarget) -> EngineSample | ScrapeFailure:
        async with gate:
            return await _scrape_one(session, target, now=now, timeout_seconds=timeout_seconds)

    answers = await asyncio.gather(*(ask(target) for target in targets))
    return Scrape(
        samples=tuple(answer for answer in answers if isinstance(answer, EngineSample)),
        failures=tuple(answer for answer in answers if isinstance(answer, ScrapeFailure)),
    )


async def _scrape_one(
    session: aiohttp.ClientSession, target: ScrapeTarget, *, now: float, timeout_seconds: float
) -> EngineSample | ScrapeFailure:
    try:
        text = await asyncio.wait_for(_fetch(session, target.url), timeout_seconds)
        return parse_metrics(text, pod=target.pod, scraped_at=now)
    except TimeoutError:
        return ScrapeFailure(target.pod, f"no answer within {timeout_seconds:g} s")
    except (aiohttp.ClientError, OSError, UnicodeDecodeError, MetricsError) as error:
        return ScrapeFailure(target.pod, str(error) or type(error).__name__)


async def _fetch(session: aiohttp.ClientSession, url: str) -> str:
    async with session.get(url, allow_redirects=False) as response:
        if response.status != 200:
            raise MetricsError(f"{url} answered {response.status}")
        body = bytearray()
        async for chunk in response.content.iter_chunked(65536):
            body += chunk
            if len(body) > MAX_BODY_BYTES:
                raise MetricsError(f"{url} answered more than {MAX_BODY_BYTES} bytes")
        return body.decode()
