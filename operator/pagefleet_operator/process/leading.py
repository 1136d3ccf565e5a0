"""What runs on the replica that leads: first a full listing, then watches, workers and resync."""

import asyncio
import logging
import random
import time
from collections.abc import AsyncIterator, Coroutine, Iterable
from contextlib import asynccontextmanager

import aiohttp
import kopf

from pagefleet_operator.fleet.drainer import Drainer
from pagefleet_operator.fleet.engine_client import EngineClient
from pagefleet_operator.fleet.fleet import Fleet
from pagefleet_operator.fleet.measure import LedgerReader
from pagefleet_operator.fleet.scaler import Scaler
from pagefleet_operator.kube.api_errors import KubeError
from pagefleet_operator.kube.client import Kube
from pagefleet_operator.kube.cluster import Cluster
from pagefleet_operator.kube.credentials import Credentials
from pagefleet_operator.kube.events import EventRecorder
from pagefleet_operator.kube.resources import INFERENCE_DEPLOYMENTS, Key
from pagefleet_operator.model.inspector import Inspector
from pagefleet_operator.planning.inventory_cache import InventoryCache
from pagefleet_operator.process.handlers import WatchRouter, build_registry, build_settings
from pagefleet_operator.process.health import Health, limit
from pagefleet_operator.process.metrics import OperatorMetrics
from pagefleet_operator.process.settings import Settings
from pagefleet_operator.process.shutdown import stop_on_signals
from pagefleet_operator.process.watch_lag import WatchLag
from pagefleet_operator.process.workqueue import WorkQueue
from pagefleet_operator.reconcile import Parts, Reconciler

logger = logging.getLogger(__name__)
_CRD_POLL_SECONDS = 5.0
_STUCK_SECONDS = 300.0
# Keys of one resync are spread over this share of its period.
_SPREAD = 0.5


class Leading:
    """One term as leader. `run` ends when `stop` is set, or raises what went wrong."""

    def __init__(
        self,
        kube: Kube,
        credentials: Credentials,
        settings: Settings,
        *,
        metrics: OperatorMetrics,
        health: Health,
    ) -> None:
        self._credentials = credentials
        self._settings = settings
        self._metrics = metrics
        self._health = health
        self._lag = WatchLag(clock=time.monotonic)
        self._cluster = Cluster(kube, namespace=settings.watch_namespace, lag=self._lag)
        self._router = WatchRouter(self._cluster.store, look_at=self._look_at, lag=self._lag)
        self._queue: WorkQueue[Key] | None = None
        self._listed_at = time.monotonic()

    async def run(self, stop: asyncio.Event) -> None:
        await self._wait_for_crd()
        await self._list()
        async with aiohttp.ClientSession() as session:
            self._queue = self._build_queue(session)
            self._watch_health(self._queue)
            for key in self._cluster.store.keys():
                self._look_at(key)
            async with _tasks(
                [
                    self._watch(stop),
                    self._resync(),
                    *(self._queue.work() for _ in range(self._settings.workers)),
                ]
            ) as running:
                await _first_end(running, stop)

    def _build_queue(self, session: aiohttp.ClientSession) -> WorkQueue[Key]:
        cluster, settings = self._cluster, self._settings
        engines = EngineClient(session)
        scaler = Scaler(session, interval=settings.autoscale_seconds, now=time.time)
        parts = Parts(
            cluster=cluster,
            images=settings.images,
            inspector=Inspector(cluster, settings.images, clock=time.monotonic),
            inventory=InventoryCache(cluster.store, clock=time.monotonic).get,
            fleet=Fleet(
                cluster,
                settings.images,
                drainer=Drainer(cluster, engines, now=time.time),
                scaler=scaler,
                ledgers=LedgerReader(engines, now=time.time),
                autoscale_seconds=settings.autoscale_seconds,
            ),
            events=EventRecorder(cluster.kube, instance=settings.identity, clock=time.monotonic),
            metrics=self._metrics,
            waiting=self._router.waiting,
        )
        return WorkQueue(
            Reconciler(parts), clock=time.monotonic, observe=self._metrics.observe_reconcile
        )

    def _watch_health(self, queue: WorkQueue[Key]) -> None:
        self._metrics.queue_depth.set_function(lambda: float(len(queue)))
        self._health.live["reconcile"] = limit(
            queue.longest_running, most=_STUCK_SECONDS, what="a reconcile has been running"
        )
        self._health.live["queue"] = limit(
            queue.oldest_overdue, most=_STUCK_SECONDS, what="a key has been waiting"
        )
        self._health.live["watches"] = limit(
            self._lag.seconds_behind,
            most=self._settings.resync_seconds + _STUCK_SECONDS,
            what="a watch has been silent",
        )
        self._health.live["listing"] = limit(
            lambda: time.monotonic() - self._listed_at,
            most=3 * self._settings.resync_seconds + _STUCK_SECONDS,
            what="no full listing has succeeded",
        )

    def _look_at(self, key: Key) -> None:
        if self._queue is not None:
            self._queue.add(key)

    async def _wait_for_crd(self) -> None:
        problem = "the CRD inferencedeployments.pagefleet.io is not installed"
        self._health.ready["crd"] = lambda: problem
        while not await self._cluster.kube.serves(INFERENCE_DEPLOYMENTS):
            logger.warning("%s; apply crds/ of the release", problem)
            await asyncio.sleep(_CRD_POLL_SECONDS)
        del self._health.ready["crd"]

    async def _list(self) -> int:
        missed = await self._cluster.sync()
        await self._cluster.probe()
        self._listed_at = time.monotonic()
        return missed

    async def _resync(self) -> None:
        """The net under the watches: list all, correct the store, look at every key once."""
        period = self._settings.resync_seconds
        while True:
            await asyncio.sleep(period)
            try:
                missed = await self._list()
            except KubeError as error:
                logger.warning("listing for the resync failed: %r", error)
                continue
            self._metrics.missed_events.inc(missed)
            assert self._queue is not None, "the queue exists before the first resync"
            for key in self._cluster.store.keys():
                self._queue.add(key, delay=random.uniform(0.0, period * _SPREAD))

    async def _watch(self, stop: asyncio.Event) -> None:
        namespace = self._settings.watch_namespace
        started = asyncio.Event()
        watching = asyncio.create_task(
            kopf.operator(
                registry=build_registry(self._router, self._credentials),
                settings=build_settings(),
                standalone=True,
                clusterwide=not namespace,
                namespaces=[namespace] if namespace else [],
                stop_flag=stop,
                ready_flag=started,
            )
        )
        try:
            await _either(watching, started)
            stop_on_signals(stop)  # kopf has put its own handlers in the place of ours
            await watching
        finally:
            watching.cancel()
        if not stop.is_set():
            raise RuntimeError("the watches ended by themselves")


@asynccontextmanager
async def _tasks(
    coroutines: Iterable[Coroutine[None, None, None]],
) -> AsyncIterator[list[asyncio.Task[None]]]:
    tasks = [asyncio.create_task(coroutine) for coroutine in coroutines]
    try:
        yield tasks
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _either(task: asyncio.Task[None], event: asyncio.Event) -> None:
    setting = asyncio.create_task(event.wait())
    await asyncio.wait([task, setting], return_when=asyncio.FIRST_COMPLETED)
    setting.cancel()


async def _first_end(tasks: list[asyncio.Task[None]], stop: asyncio.Event) -> None:
    """Until stopped; a task that ends before that has failed, and so has this term."""
    stopping = asyncio.create_task(stop.wait())
    try:
        done, _ = await asyncio.wait([*tasks, stopping], return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        stopping.cancel()
