"""The operator's HTTP side: /healthz, /readyz and /metrics."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from aiohttp import web
from prometheus_client import CollectorRegistry, generate_latest

# Returns what is wrong, None when all is well.
Check = Callable[[], str | None]


@dataclass(slots=True)
class Health:
    """Named checks, asked at each probe. A replica that only stands by has none that can fail."""

    live: dict[str, Check] = field(default_factory=dict)
    ready: dict[str, Check] = field(default_factory=dict)


def limit(value: Callable[[], float], *, most: float, what: str) -> Check:
    """A check that fails while `value` seconds are above `most`."""

    def check() -> str | None:
        seconds = value()
        return f"{what} for {seconds:.0f} s" if seconds > most else None

    return check


def build_app(health: Health, registry: CollectorRegistry) -> web.Application:
    async def healthz(_: web.Request) -> web.Response:
        return _answer(health.live)

    async def readyz(_: web.Request) -> web.Response:
        return _answer(health.ready)

    async def metrics(_: web.Request) -> web.Response:
        return web.Response(body=generate_latest(registry), content_type="text/plain")

    app = web.Application()
    app.add_routes(
        [web.get("/healthz", healthz), web.get("/readyz", readyz), web.get("/metrics", metrics)]
    )
    return app


def _answer(checks: Mapping[str, Check]) -> web.Response:
    problems = {name: problem for name, check in checks.items() if (problem := check())}
    if not problems:
        return web.Response(text="ok\n")
    lines = "".join(f"{name}: {problem}\n" for name, problem in problems.items())
    return web.Response(text=lines, status=503)
