"""Scraping engine pods, over real sockets, and reading their text.

Covered: values, labels, histograms, absent and unusable metrics; pods that answer late, wrongly,
too much or not at all; the bound on scrapes at once; counters that restart.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from pagefleet_operator.autoscaling import Counters, EngineSample
from pagefleet_operator.fleet.engine_metrics import MetricsError, parse_metrics
from pagefleet_operator.fleet.observe import ScrapeTarget, scrape

GAUGES = {
    "requests_running": 3.0,
    "requests_waiting": 2.0,
    "waiting_prompt_tokens": 700.0,
    "oldest_waiting_age_seconds": 1.5,
    "kv_cache_used_tokens": 4_096.0,
    "kv_cache_capacity_tokens": 16_384.0,
    "prefill_capacity_tokens_per_second": 0.0,
    "engine_last_step_timestamp_seconds": 1_700_000_000.5,
}
COUNTERS = {
    "kv_cache_token_seconds": 1e6,
    "prompt_tokens_computed": 5_000,
    "generation_tokens": 900,
}


def engine_text(**changes: float | None) -> str:
    """What an engine exports; `None` leaves a gauge out."""
    registry = CollectorRegistry()
    for name, value in {**GAUGES, **changes}.items():
        if value is not None:
            gauge = Gauge(f"pagefleet_{name}", name, ["model_name"], registry=registry)
            gauge.labels("m").set(value)
    for name, value in COUNTERS.items():
        counter = Counter(f"pagefleet_{name}", name, ["model_name"], registry=registry)
        counter.labels("m").inc(value)
    finished = Counter(
        "pagefleet_requests_finished", "f", ["model_name", "reason"], registry=registry
    )
    finished.labels("m", "stop").inc(7)
    finished.labels("m", "length").inc(4)
    Counter("pagefleet_preemptions", "p", ["model_name", "mode"], registry=registry)
    ttft = Histogram(
        "pagefleet_time_to_first_token_seconds",
        "t",
        ["model_name"],
        buckets=(0.5, 2.0),
        registry=registry,
    )
    for seconds in (0.1, 0.2, 1.0, 9.0):
        ttft.labels("m").observe(seconds)
    Gauge("vllm:num_requests_running", "alias", registry=registry).set(99)
    return generate_latest(registry).decode()


def parse(text: str) -> EngineSample:
    return parse_metrics(text, pod="a", scraped_at=100.0)


def test_engine_text_becomes_a_sample() -> None:
    sample = parse(engine_text())
    assert (sample.pod, sample.scraped_at) == ("a", 100.0)
    assert (sample.running, sample.waiting) == (3, 2)
    assert sample.kv_utilization == 0.25
    assert sample.oldest_waiting_seconds == 1.5
    assert sample.last_step_at == 1_700_000_000.5
    assert sample.counters.finished == 11  # over all reasons
    assert sample.counters.arrivals == 16  # finished, running and waiting
    assert sample.counters.preemptions == 0  # declared, not counted yet
    assert sample.counters.time_to_first_token.counts == (2.0, 3.0, 4.0)


def test_prefill_capacity_of_zero_means_not_measured() -> None:
    assert parse(engine_text()).prefill_tokens_per_second is None
    assert (
        parse(engine_text(prefill_capacity_tokens_per_second=512.0)).prefill_tokens_per_second
        == 512
    )


@pytest.mark.parametrize("name", ["requests_waiting", "kv_cache_capacity_tokens"])
def test_absent_metric_is_an_error_and_not_a_zero(name: str) -> None:
    with pytest.raises(MetricsError, match=f"reports no pagefleet_{name}"):
        parse(engine_text(**{name: None}))


def test_absent_counter_is_an_error_and_not_a_zero() -> None:
    text = engine_text().replace("pagefleet_preemptions", "pagefleet_other")
    with pytest.raises(MetricsError, match="reports no pagefleet_preemptions_total"):
        parse(text)


@pytest.mark.parametrize(
    "text",
    [
        "<html>not metrics</html>",
        "pagefleet_requests_running{ 1",
        engine_text(kv_cache_used_tokens=float("nan")),
        engine_text(kv_cache_used_tokens=-1.0),
        engine_text(requests_running=float("inf")),
        "",
    ],
)
def test_unusable_text_is_one_error(text: str) -> None:
    with pytest.raises(MetricsError):
        parse(text)


def test_counter_growth_survives_a_restart_of_the_engine() -> None:
    before = Counters(arrivals=50, finished=40, generation_tokens=900)
    after = Counters(arrivals=5, finished=2, generation_tokens=30)
    assert after.since(before) == after
    assert Counters(arrivals=52, finished=44, generation_tokens=950).since(before) == Counters(
        arrivals=2, finished=4, generation_tokens=50
    )


def test_wobble_of_the_arrivals_is_no_restart() -> None:
    before = Counters(arrivals=50, finished=40, generation_tokens=900)
    growth = Counters(arrivals=49, finished=40, generation_tokens=910).since(before)
    assert (growth.arrivals, growth.generation_tokens) == (0, 10)


# Over the network


Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


async def _good(request: web.Request) -> web.StreamResponse:
    return web.Response(text=engine_text())


async def _slow(request: web.Request) -> web.StreamResponse:
    await asyncio.sleep(30)
    return web.Response(text=engine_text())


async def _failing(request: web.Request) -> web.StreamResponse:
    return web.Response(status=503)


async def _redirecting(request: web.Request) -> web.StreamResponse:
    raise web.HTTPFound("/good")


async def _binary(request: web.Request) -> web.StreamResponse:
    return web.Response(body=b"\xff\xfe\xff")


async def _endless(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse()
    await response.prepare(request)
    try:
        while True:
            await response.write(b"# " + b"x" * 65536 + b"\n")
    except ConnectionError:
        return response


@pytest.fixture
async def server() -> AsyncIterator[TestServer]:
    app = web.Application()
    for name, handler in {
        "good": _good,
        "slow": _slow,
        "failing": _failing,
        "redirecting": _redirecting,
        "binary": _binary,
        "endless": _endless,
    }.items():
        app.router.add_get(f"/{name}", handler)
    running = TestServer(app)
    async with running:
        yield running


async def test_each_pod_is_a_sample_or_a_failure(server: TestServer) -> None:
    names = ["good", "failing", "redirecting", "binary", "endless"]
    targets = [ScrapeTarget(name, str(server.make_url(f"/{name}"))) for name in names]
    targets.append(ScrapeTarget("gone", "http://127.0.0.1:1/metrics"))
    async with aiohttp.ClientSession() as session:
        result = await scrape(session, targets, now=5.0, timeout_seconds=20)
    assert [sample.pod for sample in result.samples] == ["good"]
    assert result.samples[0].scraped_at == 5.0
    messages = {failure.pod: failure.message for failure in result.failures}
    assert messages.keys() == {"failing", "redirecting", "binary", "endless", "gone"}
    assert "503" in messages["failing"]
    assert "302" in messages["redirecting"]
    assert "more than" in messages["endless"]


async def test_slow_pod_does_not_hold_up_the_others(server: TestServer) -> None:
    targets = [
        ScrapeTarget("slow", str(server.make_url("/slow"))),
        ScrapeTarget("good", str(server.make_url("/good"))),
    ]
    async with aiohttp.ClientSession() as session:
        result = await scrape(session, targets, now=0.0, timeout_seconds=0.5)
    assert [failure.pod for failure in result.failures] == ["slow"]
    assert result.failures[0].message == "no answer within 0.5 s"
    assert result.sample_of("good") is not None
    assert result.sample_of("slow") is None


async def test_scrapes_at_once_are_bounded() -> None:
    at_once = most = 0

    async def counting(request: web.Request) -> web.StreamResponse:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        await asyncio.sleep(0.01)
        at_once -= 1
        return web.Response(text=engine_text())

    app = web.Application()
    app.router.add_get("/metrics", counting)
    async with TestServer(app) as running, aiohttp.ClientSession() as session:
        url = str(running.make_url("/metrics"))
        targets = [ScrapeTarget(f"pod-{i}", url) for i in range(12)]
        result = await scrape(session, targets, now=0.0, timeout_seconds=20, at_once=3)
    assert len(result.samples) == 12
    assert most == 3
