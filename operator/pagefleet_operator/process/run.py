"""The operator's process: health endpoint, election, then one term as leader."""

import asyncio
import logging
import sys
import time

from aiohttp import web
from prometheus_client import CollectorRegistry

from pagefleet_operator.kube.api_errors import KubeError, LeadershipLost
from pagefleet_operator.kube.client import Kube
from pagefleet_operator.kube.credentials import CredentialsError, load_credentials
from pagefleet_operator.kube.leader import LeaderElector
from pagefleet_operator.process.health import Health, build_app
from pagefleet_operator.process.leading import Leading
from pagefleet_operator.process.metrics import OperatorMetrics
from pagefleet_operator.process.settings import Settings, SettingsError
from pagefleet_operator.process.shutdown import stop_on_signals

logger = logging.getLogger("pagefleet_operator")


def run_operator() -> None:
    """Read the settings, run until stopped, exit."""
    try:
        settings = Settings.from_env()
    except SettingsError as error:
        sys.exit(f"pagefleet-operator: {error}")
    logging.basicConfig(
        level=settings.log_level, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    logging.getLogger("kopf").setLevel(logging.WARNING)
    try:
        code = asyncio.run(run(settings))
    except CredentialsError as error:
        sys.exit(f"pagefleet-operator: {error}")
    sys.exit(code)


async def run(settings: Settings) -> int:
    """Returns the exit code: 0 after a stop that was asked for, 1 so that the pod restarts."""
    stop = asyncio.Event()
    stop_on_signals(stop)
    credentials = await load_credentials()
    metrics, health = OperatorMetrics(CollectorRegistry()), Health()
    runner = await _serve(health, metrics, settings.port)
    try:
        async with Kube(credentials, observe=metrics.observe_request) as kube:
            elector = LeaderElector(
                kube,
                identity=settings.identity,
                namespace=settings.namespace,
                clock=time.monotonic,
            )
            kube.set_fence(elector.fence)
            metrics.is_leader.set_function(lambda: float(elector.is_leader))
            leading = Leading(kube, credentials, settings, metrics=metrics, health=health)
            return await _stand_then_lead(elector, leading, stop)
    finally:
        await runner.cleanup()


async def _stand_then_lead(elector: LeaderElector, leading: Leading, stop: asyncio.Event) -> int:
    stopping = asyncio.create_task(stop.wait())
    try:
        acquiring = asyncio.create_task(elector.acquire())
        await asyncio.wait([acquiring, stopping], return_when=asyncio.FIRST_COMPLETED)
        if not acquiring.done():
            acquiring.cancel()
            return 0
        holding = asyncio.create_task(elector.hold())
        term = asyncio.create_task(leading.run(stop))
        await asyncio.wait([holding, term, stopping], return_when=asyncio.FIRST_COMPLETED)
        return await _end_term(elector, holding, term)
    finally:
        stopping.cancel()


async def _end_term(
    elector: LeaderElector, holding: asyncio.Task[None], term: asyncio.Task[None]
) -> int:
    """Stop writing first, then hand the lease over."""
    for task in (term, holding):
        task.cancel()
    outcomes = await asyncio.gather(term, holding, return_exceptions=True)
    failures = [o for o in outcomes if isinstance(o, Exception)]
    for failure in failures:
        logger.error("stopping: %r", failure, exc_info=failure)
    if not any(isinstance(failure, LeadershipLost) for failure in failures):
        try:
            await elector.release()
        except KubeError as error:
            logger.warning("the lease was not handed over: %r", error)
    return 1 if failures else 0


async def _serve(health: Health, metrics: OperatorMetrics, port: int) -> web.AppRunner:
    runner = web.AppRunner(build_app(health, metrics.registry), access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "0.0.0.0", port).start()
    return runner
