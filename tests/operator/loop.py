"""One reconciler over the fake API server, and a hand that plays kubelet and controllers."""

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp
from prometheus_client import CollectorRegistry

from pagefleet_memory import ModelShape
from pagefleet_operator.fleet.drain import EngineLoad
from pagefleet_operator.fleet.drainer import Drainer
from pagefleet_operator.fleet.fleet import Fleet
from pagefleet_operator.fleet.measure import LedgerReader
from pagefleet_operator.fleet.replicas import Replica
from pagefleet_operator.fleet.scaler import Scaler
from pagefleet_operator.kube.client import Kube
from pagefleet_operator.kube.cluster import Cluster
from pagefleet_operator.kube.events import EventRecorder
from pagefleet_operator.kube.resources import (
    DEPLOYMENTS,
    EVENTS,
    INFERENCE_DEPLOYMENTS,
    NODES,
    PODS,
    Key,
    Manifest,
)
from pagefleet_operator.model.inspector import Inspector
from pagefleet_operator.planning.images import Images
from pagefleet_operator.planning.inventory import build_inventory
from pagefleet_operator.process.metrics import OperatorMetrics
from pagefleet_operator.process.workqueue import Result
from pagefleet_operator.reconcile import Parts, Reconciler
from tests.operator.fake_api import FakeApi, Write

IMAGES = Images(engine="engine:1", operator="operator:1")
KEY = Key("ns", "chat")
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 576,
    "intermediate_size": 1536,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "num_hidden_layers": 30,
    "vocab_size": 49152,
    "max_position_embeddings": 8192,
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
}


class FakeEngines:
    """Engines that answer with the number of requests they are told to have."""

    def __init__(self) -> None:
        self.requests: dict[str, int] = {}
        self.draining: set[str] = set()
        self.ledgers: dict[str, Mapping[str, Any]] = {}

    async def drain(self, replica: Replica) -> EngineLoad | None:
        self.draining.add(replica.name)
        return EngineLoad(self.requests.get(replica.name, 0))

    async def cancel_drain(self, replica: Replica) -> bool:
        self.draining.discard(replica.name)
        return True

    async def ledger(self, replica: Replica) -> Mapping[str, Any] | None:
        return self.ledgers.get(replica.plan_hash)

    async def loads(self, replicas: Sequence[Replica]) -> Mapping[str, EngineLoad]:
        return {r.name: EngineLoad(self.requests.get(r.name, 0)) for r in replicas}


@dataclass(slots=True)
class Loop:
    api: FakeApi
    cluster: Cluster
    reconciler: Reconciler
    engines: FakeEngines
    clock: list[float]

    async def look(self, key: Key = KEY, *, times: int = 1) -> Result:
        """As the queue would: the store has seen everything, then one reconcile."""
        result = Result()
        for _ in range(times):
            await self.cluster.sync()
            result = await self.reconciler(key)
        return result

    async def resolve(self, key: Key = KEY) -> None:
        """Two looks with the inspection pod's answer in between."""
        await self.look(key)
        self.answer_inspection()
        await self.look(key)

    def answer_inspection(self, answer: Mapping[str, Any] | None = None) -> None:
        shape = ModelShape.from_config(CONFIG).to_summary()
        message = json.dumps(answer or {"shape": shape, "revision": "r1"})
        for name in self.inspections():
            pod = self.api.get(PODS, "ns", name)
            assert pod is not None
            phase = "Failed" if answer and "error" in answer else "Succeeded"
            ended = {"name": "inspect", "state": {"terminated": {"message": message}}}
            self.api.put(PODS, {**pod, "status": {"phase": phase, "containerStatuses": [ended]}})

    def inspections(self) -> list[str]:
        return [name for name in self.api.names(PODS) if "-inspect-" in name]

    def run_pods(self, *, ready: bool = True) -> None:
        """Play the deployment controller and the kubelet: as many pods as wanted, on node n1."""
        for deployment in list(self.api.objects[DEPLOYMENTS].values()):
            name, wanted = deployment["metadata"]["name"], deployment["spec"]["replicas"]
            pods = [p for p in self.api.objects[PODS].values() if _owner(p) == name]
            pods.sort(key=_deletion_order)
            for pod in pods[: max(0, len(pods) - wanted)]:
                self.api.remove(PODS, "ns", pod["metadata"]["name"])
            for number in range(len(pods), wanted):
                self.api.put(PODS, _pod(deployment, self._free_name(name, number)))
        for pod in self.engine_pods():
            self.set_ready(pod["metadata"]["name"], ready=ready)

    def _free_name(self, name: str, number: int) -> str:
        while f"{name}-{number}" in self.api.names(PODS):
            number += 1
        return f"{name}-{number}"

    def set_ready(self, name: str, *, ready: bool) -> None:
        pod = self.api.get(PODS, "ns", name)
        assert pod is not None
        drained = name in self.engines.draining
        answer = "True" if ready and not drained else "False"
        conditions = [{"type": "Ready", "status": answer}]
        status = {"phase": "Running", "conditions": conditions, "podIP": "127.0.0.1"}
        self.api.put(PODS, {**pod, "status": status})

    def engine_pods(self) -> list[Manifest]:
        return [p for p in self.api.objects[PODS].values() if _owner(p)]

    @property
    def status(self) -> Manifest:
        body = self.api.get(INFERENCE_DEPLOYMENTS, "ns", "chat")
        assert body is not None
        found: Manifest = body["status"]
        return found

    def condition(self, kind: str) -> tuple[str, str, str]:
        found = {entry["type"]: entry for entry in self.status["conditions"]}[kind]
        return found["status"], found["reason"], found["message"]

    def edit(self, **spec: Any) -> None:
        body = self.api.get(INFERENCE_DEPLOYMENTS, "ns", "chat")
        assert body is not None
        self.api.put(INFERENCE_DEPLOYMENTS, {**body, "spec": {**body["spec"], **spec}})

    def writes(self) -> list[Write]:
        """Since the last call; events are not counted."""
        found = self.api.writes_to(but=EVENTS)
        self.api.writes.clear()
        return found


def infd(name: str = "chat", **spec: Any) -> Manifest:
    model = {"uri": "oci://models/smol:1"}
    hardware = {"accelerator": "CPU", "cpu": "1", "memory": "4Gi"}
    return {
        "metadata": {"name": name, "namespace": "ns"},
        "spec": {"model": model, "hardware": hardware, **spec},
    }


def node(name: str = "n1", *, cpu: str = "8", memory: str = "64Gi", **labels: str) -> Manifest:
    return {
        "metadata": {"name": name, "labels": labels},
        "spec": {},
        "status": {
            "allocatable": {"cpu": cpu, "memory": memory},
            "capacity": {"cpu": cpu, "memory": memory},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


@asynccontextmanager
async def loop_over(
    api: FakeApi, images: Images = IMAGES, *, engine_port: int = 1
) -> AsyncIterator[Loop]:
    clock = [1000.0]
    async with (
        api.serve() as credentials,
        Kube(credentials) as kube,
        aiohttp.ClientSession() as session,
    ):
        cluster, engines = Cluster(kube), FakeEngines()
        parts = Parts(
            cluster=cluster,
            images=images,
            inspector=Inspector(cluster, images, clock=lambda: clock[0]),
            inventory=lambda: build_inventory(cluster.store.all(NODES), cluster.store.all(PODS)),
            fleet=Fleet(
                cluster,
                images,
                drainer=Drainer(cluster, engines, now=lambda: clock[0]),
                ledgers=LedgerReader(engines, now=lambda: clock[0]),
                scaler=Scaler(session, interval=15.0, now=lambda: clock[0], port=engine_port),
                autoscale_seconds=15.0,
            ),
            events=EventRecorder(kube, instance="test", clock=lambda: clock[0]),
            metrics=OperatorMetrics(CollectorRegistry()),
            waiting=set(),
        )
        yield Loop(api, cluster, Reconciler(parts), engines, clock)


def _owner(pod: Manifest) -> str:
    return str(pod["metadata"].get("annotations", {}).get("test/owner", ""))


def _deletion_order(pod: Manifest) -> tuple[bool, int]:
    """As the ReplicaSet's: those that are not ready, then the cheapest."""
    cost = pod["metadata"]["annotations"].get("controller.kubernetes.io/pod-deletion-cost", "0")
    conditions = (pod.get("status") or {}).get("conditions") or [{"status": "False"}]
    return conditions[0]["status"] == "True", int(cost)


def _pod(deployment: Manifest, name: str) -> Manifest:
    template = deployment["spec"]["template"]
    return {
        "metadata": {
            "name": name,
            "namespace": "ns",
            "labels": dict(template["metadata"]["labels"]),
            "annotations": {"test/owner": deployment["metadata"]["name"]},
        },
        "spec": {**template["spec"], "nodeName": "n1"},
    }
