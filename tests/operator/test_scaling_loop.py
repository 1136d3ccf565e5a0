"""Autoscaling through the whole loop: scraped engines in, sizes, drains and status out."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web
from aiohttp.test_utils import TestServer

from pagefleet_operator.autoscaling.rivals import find_rivals
from pagefleet_operator.kube.resources import (
    AUTOSCALERS,
    DEPLOYMENTS,
    INFERENCE_DEPLOYMENTS,
    NODES,
    Key,
    Manifest,
)
from tests.operator.fake_api import FakeApi, Fault
from tests.operator.loop import Loop, infd, loop_over, node

COUNTERS = (
    "requests_finished_total",
    "prompt_tokens_computed_total",
    "generation_tokens_total",
    "kv_cache_token_seconds_total",
    "preemptions_total",
)
DOWN = {
    "stabilizationWindowSeconds": 60,
    "policies": [{"type": "Pods", "value": 4, "periodSeconds": 15}],
}
SCALING = {"minReplicas": 1, "maxReplicas": 4, "behavior": {"scaleDown": DOWN}}


class Engines:
    """Every pod's /metrics, told by one KV usage."""

    def __init__(self) -> None:
        self.usage = 0.0
        self.broken = False

    async def metrics(self, request: web.Request) -> web.Response:
        if self.broken:
            return web.Response(status=500)
        capacity = 100_000
        gauges = {
            "requests_running": 4 if self.usage else 0,
            "requests_waiting": 0,
            "waiting_prompt_tokens": 0,
            "oldest_waiting_age_seconds": 0,
            "kv_cache_usage_ratio": self.usage,
            "kv_cache_capacity_tokens": capacity,
            "kv_cache_used_tokens": capacity * self.usage,
        }
        lines = [f'pagefleet_{name}{{model_name="m"}} {value}' for name, value in gauges.items()]
        lines += [f"# TYPE pagefleet_{name} counter" for name in COUNTERS]
        return web.Response(text="\n".join(lines) + "\n")


@asynccontextmanager
async def scaled_loop(engines: Engines) -> AsyncIterator[Loop]:
    api = FakeApi()
    api.put(NODES, node(cpu="32", memory="256Gi"))
    app = web.Application()
    app.add_routes([web.get("/metrics", engines.metrics)])
    async with TestServer(app) as server, loop_over(api, engine_port=server.port or 1) as loop:
        api.put(INFERENCE_DEPLOYMENTS, infd(autoscaling=SCALING))
        await loop.resolve()
        loop.run_pods()
        await rounds(loop, 2)
        yield loop


async def rounds(loop: Loop, count: int) -> None:
    """So many autoscaling intervals, with the cluster following each."""
    for _ in range(count):
        loop.clock[0] += 15.0
        await loop.look()
        loop.run_pods()
        await loop.look()


def size(loop: Loop) -> int:
    found = next(iter(loop.api.objects[DEPLOYMENTS].values()))["spec"]["replicas"]
    assert isinstance(found, int)
    return found


async def test_full_caches_bring_more_replicas_and_the_status_says_why() -> None:
    engines = Engines()
    async with scaled_loop(engines) as loop:
        assert size(loop) == 1
        engines.usage = 0.95
        await rounds(loop, 4)
        assert size(loop) > 1
        assert loop.status["autoscaling"]["desiredReplicas"] == size(loop)
        assert loop.status["autoscaling"]["history"][-1]["from"] == 1
        assert loop.condition("ScalingActive")[0] == "True"


async def test_idle_engines_are_drained_after_the_window_and_never_below_the_least() -> None:
    engines = Engines()
    async with scaled_loop(engines) as loop:
        engines.usage = 0.95
        await rounds(loop, 4)
        grown = size(loop)
        engines.usage = 0.0
        await rounds(loop, 3)
        assert size(loop) == grown
        await rounds(loop, 15)
        assert size(loop) == 1
        assert len(loop.engines.draining) >= grown - 1


async def test_engines_that_tell_nothing_change_nothing() -> None:
    engines = Engines()
    async with scaled_loop(engines) as loop:
        engines.usage = 0.95
        await rounds(loop, 4)
        grown = size(loop)
        engines.broken = True
        await rounds(loop, 12)
        assert size(loop) == grown
        assert loop.condition("ScalingActive")[:2] == ("False", "MetricsUnavailable")


async def test_a_new_leader_keeps_the_size_and_does_not_shrink_at_once() -> None:
    engines = Engines()
    async with scaled_loop(engines) as loop:
        engines.usage = 0.95
        await rounds(loop, 4)
        grown = size(loop)
        engines.usage = 0.0
        async with loop_over(loop.api, engine_port=1) as successor:
            successor.clock[0] = loop.clock[0]
            await rounds(successor, 3)
            assert size(successor) == grown


async def test_between_two_decisions_engines_are_left_alone() -> None:
    engines = Engines()
    async with scaled_loop(engines) as loop:
        engines.usage = 0.95
        loop.clock[0] += 5.0
        await loop.look(times=3)
        assert size(loop) == 1


async def test_another_autoscaler_is_named_and_the_size_still_follows() -> None:
    engines = Engines()
    async with scaled_loop(engines) as loop:
        target = {"apiVersion": "pagefleet.io/v1alpha1", "kind": "InferenceDeployment"}
        loop.api.put(AUTOSCALERS, autoscaler("mine", {**target, "name": "chat"}))
        await loop.cluster.probe()
        await rounds(loop, 1)
        status, reason, message = loop.condition("ScalingActive")
        assert (status, reason) == ("False", "AutoscalerConflict")
        assert "HorizontalPodAutoscaler mine" in message
        engines.usage = 0.95
        await rounds(loop, 4)
        assert loop.status["autoscaling"]["desiredReplicas"] > 1
        loop.api.remove(AUTOSCALERS, "ns", "mine")
        await loop.cluster.probe()
        await rounds(loop, 1)
        assert loop.condition("ScalingActive")[:2] == ("True", "ValidMetricFound")


async def test_autoscalers_that_may_not_be_read_stop_nothing() -> None:
    async with scaled_loop(Engines()) as loop:
        loop.api.faults = [Fault("GET", "horizontalpodautoscalers", 403)]
        await loop.cluster.probe()
        assert loop.api.faults == [] and loop.cluster.autoscalers == []


def test_only_autoscalers_of_our_kind_are_rivals() -> None:
    ours = {"apiVersion": "pagefleet.io/v1alpha1", "kind": "InferenceDeployment", "name": "chat"}
    deployment = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "other"}
    by_keda = autoscaler("keda-hpa-chat", ours)
    by_keda["metadata"]["ownerReferences"] = [{"kind": "ScaledObject", "name": "chat-load"}]
    found = find_rivals([by_keda, autoscaler("web", deployment)])
    assert found == {Key("ns", "chat"): "ScaledObject chat-load"}


def autoscaler(name: str, target: dict[str, str]) -> Manifest:
    return {
        "metadata": {"name": name, "namespace": "ns"},
        "spec": {"scaleTargetRef": target, "maxReplicas": 9},
    }
