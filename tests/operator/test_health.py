"""The operator's probes: alive while work moves on, on the leader as on the replica that waits."""

from aiohttp.test_utils import TestClient, TestServer
from prometheus_client import CollectorRegistry

from pagefleet_operator.kube.resources import PODS, Manifest
from pagefleet_operator.process.health import Health, build_app, limit
from pagefleet_operator.process.metrics import OperatorMetrics
from pagefleet_operator.process.watch_lag import WatchLag


async def probe(health: Health, path: str) -> tuple[int, str]:
    metrics = OperatorMetrics(CollectorRegistry())
    async with TestClient(TestServer(build_app(health, metrics.registry))) as client:
        response = await client.get(path)
        return response.status, await response.text()


async def test_a_replica_that_stands_by_is_alive_and_ready() -> None:
    assert (await probe(Health(), "/healthz"))[0] == 200
    assert (await probe(Health(), "/readyz"))[0] == 200


async def test_a_stuck_reconcile_fails_the_liveness_probe_and_says_so() -> None:
    health = Health()
    health.live["reconcile"] = limit(lambda: 400.0, most=300.0, what="a reconcile has been running")
    status, text = await probe(health, "/healthz")
    assert status == 503 and "reconcile: a reconcile has been running for 400 s" in text
    assert (await probe(health, "/readyz"))[0] == 200


async def test_a_heartbeat_in_time_passes() -> None:
    health = Health()
    health.live["reconcile"] = limit(lambda: 3.0, most=300.0, what="a reconcile has been running")
    assert (await probe(health, "/healthz"))[0] == 200


async def test_a_missing_crd_fails_only_readiness() -> None:
    health = Health()
    health.ready["crd"] = lambda: "the CRD is not installed"
    assert (await probe(health, "/readyz")) == (503, "crd: the CRD is not installed\n")
    assert (await probe(health, "/healthz"))[0] == 200


async def test_metrics_carry_the_operators_names() -> None:
    status, text = await probe(Health(), "/metrics")
    assert status == 200
    assert "pagefleet_operator_reconcile_duration_seconds_count 0.0" in text
    assert "pagefleet_operator_leader 0.0" in text


def pod(version: int) -> Manifest:
    return {"metadata": {"name": "a", "resourceVersion": str(version)}}


def test_a_watch_that_follows_its_listings_is_never_behind() -> None:
    now = [0.0]
    lag = WatchLag(clock=lambda: now[0])
    lag.listed(PODS, [pod(5), pod(9)])
    now[0] = 1.0
    lag.saw(PODS, pod(9))
    now[0] = 500.0
    assert lag.seconds_behind() == 0.0
    lag.listed(PODS, [pod(9)])
    assert lag.seconds_behind() == 0.0


def test_a_silent_watch_is_found_by_the_first_listing_that_it_misses() -> None:
    now = [0.0]
    lag = WatchLag(clock=lambda: now[0])
    lag.saw(PODS, pod(5))
    lag.listed(PODS, [pod(7)])
    now[0] = 300.0
    lag.listed(PODS, [pod(8)])
    now[0] = 310.0
    assert lag.seconds_behind() == 310.0
    lag.saw(PODS, pod(8))
    assert lag.seconds_behind() == 0.0


def test_what_was_listed_and_deleted_before_the_watch_began_is_forgotten() -> None:
    now = [0.0]
    lag = WatchLag(clock=lambda: now[0])
    lag.listed(PODS, [pod(5), pod(9)])
    lag.saw(PODS, pod(5))
    now[0] = 300.0
    assert lag.seconds_behind() == 300.0
    lag.listed(PODS, [pod(5)])
    assert lag.seconds_behind() == 0.0
