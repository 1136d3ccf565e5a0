"""What the cluster's nodes offer: in all (for plans) and free (for capacity)."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pagefleet_memory import AcceleratorError, NodeGroup, accelerator_from_labels, cpu_accelerator
from pagefleet_operator.spec import InferenceDeploymentSpec
from pagefleet_operator.spec.quantity import parse_quantity, quantity_bytes

GPU_RESOURCE = "nvidia.com/gpu"
MIG_RESOURCES = "nvidia.com/mig-"
GPU_TAINT = "nvidia.com/gpu"
PRODUCT_LABEL = "nvidia.com/gpu.product"
MEMORY_LABEL = "nvidia.com/gpu.memory"
COUNT_LABEL = "nvidia.com/gpu.count"
BF16_LABELS = (
    "feature.node.kubernetes.io/cpu-cpuid.AVX512BF16",
    "feature.node.kubernetes.io/cpu-cpuid.AMXBF16",
)
_TRANSIENT_TAINTS = "node.kubernetes.io/"  # not-ready, unreachable, pressure, cordoned


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """An amount of what pods ask for."""

    gpus: int = 0
    cpu_millis: int = 0
    memory_bytes: int = 0

    def __add__(self, other: "Resources") -> "Resources":
        return Resources(
            gpus=self.gpus + other.gpus,
            cpu_millis=self.cpu_millis + other.cpu_millis,
            memory_bytes=self.memory_bytes + other.memory_bytes,
        )

    def __sub__(self, other: "Resources") -> "Resources":
        return Resources(
            gpus=self.gpus - other.gpus,
            cpu_millis=self.cpu_millis - other.cpu_millis,
            memory_bytes=self.memory_bytes - other.memory_bytes,
        )

    def at_least(self, other: "Resources") -> "Resources":
        return Resources(
            gpus=max(self.gpus, other.gpus),
            cpu_millis=max(self.cpu_millis, other.cpu_millis),
            memory_bytes=max(self.memory_bytes, other.memory_bytes),
        )

    def times_held_by(self, room: "Resources") -> int:
        """How often this amount fits into `room`."""
        pairs = (
            (self.gpus, room.gpus),
            (self.cpu_millis, room.cpu_millis),
            (self.memory_bytes, room.memory_bytes),
        )
        return max(0, min((have // need for need, have in pairs if need), default=0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One node; `available` says whether it takes new pods now."""

    name: str
    labels: Mapping[str, str]
    taints: frozenset[str]
    available: bool
    total: Resources
    free: Resources
    product: str | None
    gpu_memory_mib: int | None
    mig_resources: tuple[str, ...] = ()  # slices under names of their own: strategy mixed

    @property
    def fast_bf16(self) -> bool:
        return any(self.labels.get(label) == "true" for label in BF16_LABELS)

    def admits(self, *, gpu: bool, selector: Mapping[str, str]) -> bool:
        """Whether taints and labels let our pods in; what passes by itself does not count."""
        tolerated = {GPU_TAINT} if gpu else set()
        return self.taints <= tolerated and all(
            self.labels.get(key) == value for key, value in selector.items()
        )


@dataclass(frozen=True, slots=True)
class Inventory:
    """All nodes, those that are down included: a plan must not change when a node reboots."""

    nodes: tuple[Node, ...] = field(default=())

    def candidates(self, spec: InferenceDeploymentSpec) -> tuple[Node, ...]:
        """Nodes where an engine pod of this spec may run, by name."""
        hardware = spec.hardware_or_default
        gpu = hardware.kind == "GPU"
        selector = hardware.node_selector or {}
        return tuple(
            node
            for node in self.nodes
            if node.admits(gpu=gpu, selector=selector)
            and (not gpu or _has_product(node, hardware.products))
        )

    def node_groups(self, spec: InferenceDeploymentSpec) -> tuple[NodeGroup, ...]:
        """Candidates that are alike, as the planner takes them; sorted by name."""
        nodes = self.candidates(spec)
        if spec.hardware_or_default.kind == "CPU":
            return _cpu_groups(nodes, pinned=spec.hardware_or_default.memory)
        return _gpu_groups(nodes)

    def unusable_gpus(self) -> tuple[str, ...]:
        """Why GPUs of the cluster are left out of every plan, a sentence for each node."""
        return tuple(
            f"node {node.name}: {why}"
            for node in self.nodes
            if (node.total.gpus or node.mig_resources) and (why := _why_unusable(node))
        )


def build_inventory(
    nodes: Sequence[Mapping[str, Any]], pods: Sequence[Mapping[str, Any]]
) -> Inventory:
    used: dict[str, Resources] = {}
    for pod in pods:
        name = pod.get("spec", {}).get("nodeName")
        if name and not is_finished(pod):
            used[name] = used.get(name, Resources()) + pod_requests(pod)
    parsed = (_node(node, used.get(node["metadata"]["name"], Resources())) for node in nodes)
    return Inventory(tuple(sorted(parsed, key=lambda node: node.name)))


def is_finished(pod: Mapping[str, Any]) -> bool:
    return pod.get("status", {}).get("phase") in ("Succeeded", "Failed")


def pod_requests(pod: Mapping[str, Any]) -> Resources:
    """What the scheduler reserves: all containers together, or the largest init container."""
    spec = pod.get("spec", {})
    total = _sum(_requests(container) for container in spec.get("containers", ()))
    for container in spec.get("initContainers") or ():
        if container.get("restartPolicy") == "Always":
            total = total + _requests(container)
    for container in spec.get("initContainers") or ():
        total = total.at_least(_requests(container))
    return total


def _sum(amounts: Iterable[Resources]) -> Resources:
    total = Resources()
    for amount in amounts:
        total = total + amount
    return total


def _requests(container: Mapping[str, Any]) -> Resources:
    resources = container.get("resources") or {}
    return _resources({**(resources.get("limits") or {}), **(resources.get("requests") or {})})


def _resources(amounts: Mapping[str, Any]) -> Resources:
    return Resources(
        gpus=int(amounts.get(GPU_RESOURCE, 0)),
        cpu_millis=int(parse_quantity(str(amounts.get("cpu", 0))) * 1000),
        memory_bytes=int(parse_quantity(str(amounts.get("memory", 0)))),
    )


def _node(body: Mapping[str, Any], used: Resources) -> Node:
    labels = body["metadata"].get("labels") or {}
    status = body.get("status", {})
    capacity = status.get("capacity") or {}
    allocatable = _resources(status.get("allocatable") or status.get("capacity") or {})
    return Node(
        name=body["metadata"]["name"],
        labels=labels,
        taints=_lasting_taints(body),
        available=_is_ready(status) and not body.get("spec", {}).get("unschedulable", False),
        total=_total(allocatable, capacity, labels),
        free=allocatable - used,
        product=labels.get(PRODUCT_LABEL) or None,
        gpu_memory_mib=_integer(labels.get(MEMORY_LABEL)),
        mig_resources=_mig_resources(capacity),
    )


def _total(
    allocatable: Resources, capacity: Mapping[str, Any], labels: Mapping[str, str]
) -> Resources:
    gpus = int(capacity.get(GPU_RESOURCE, 0))
    if not gpus and not _mig_resources(capacity):
        # A device plugin that restarts reports no GPUs for a moment; the label stays.
        gpus = _integer(labels.get(COUNT_LABEL)) or 0
    return Resources(
        gpus=gpus, cpu_millis=allocatable.cpu_millis, memory_bytes=allocatable.memory_bytes
    )


def _mig_resources(capacity: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(sorted(name for name in capacity if name.startswith(MIG_RESOURCES)))


def _integer(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdigit() else None


def _lasting_taints(body: Mapping[str, Any]) -> frozenset[str]:
    taints = body.get("spec", {}).get("taints") or ()
    return frozenset(
        taint["key"]
        for taint in taints
        if taint.get("effect") in ("NoSchedule", "NoExecute")
        and not taint["key"].startswith(_TRANSIENT_TAINTS)
    )


def _is_ready(status: Mapping[str, Any]) -> bool:
    return any(
        condition.get("type") == "Ready" and condition.get("status") == "True"
        for condition in status.get("conditions") or ()
    )


def _has_product(node: Node, products: Sequence[str] | None) -> bool:
    if not node.total.gpus or _why_unusable(node):
        return False
    return products is None or node.product in products


def _why_unusable(node: Node) -> str:
    if node.mig_resources and not node.total.gpus:
        slices = ", ".join(node.mig_resources)
        return f"offers {slices}; set MIG strategy single, so that slices are {GPU_RESOURCE}"
    if node.product is None:
        return f"no label {PRODUCT_LABEL}; is GPU feature discovery installed?"
    try:
        accelerator_from_labels(node.product, node.gpu_memory_mib)
    except AcceleratorError as error:
        return str(error)
    return ""


def _gpu_groups(nodes: Sequence[Node]) -> tuple[NodeGroup, ...]:
    alike: dict[tuple[str, int, int | None], int] = {}
    for node in nodes:
        assert node.product is not None, "candidates with GPUs have a product"
        key = (node.product, node.total.gpus, node.gpu_memory_mib)
        alike[key] = alike.get(key, 0) + 1
    return tuple(
        gpu_group(product, gpus=gpus, nodes=count, memory_mib=memory)
        for (product, gpus, memory), count in sorted(
            alike.items(), key=lambda item: (item[0][0], item[0][1], item[0][2] or 0)
        )
    )


def gpu_group(product: str, *, gpus: int, nodes: int, memory_mib: int | None = None) -> NodeGroup:
    accelerator = accelerator_from_labels(product, memory_mib)
    return NodeGroup(
        name=f"{product} x{gpus}",
        accelerator=accelerator,
        accelerators_per_node=gpus,
        nodes=nodes,
        nvlink=accelerator.nvlink_gbps > 0,
    )


def _cpu_groups(nodes: Sequence[Node], *, pinned: str | None) -> tuple[NodeGroup, ...]:
    if not nodes:
        return ()
    memory = max(node.total.memory_bytes for node in nodes)
    # Memory that no node has is no question of the plan: it lacks a place, as capacity says.
    memory = max(memory, quantity_bytes(pinned) if pinned else 0)
    # Pods may land on any candidate, so bfloat16 must be fast on all of them.
    return (cpu_group(memory, nodes=len(nodes), bf16=all(node.fast_bf16 for node in nodes)),)


def cpu_group(memory_bytes: int, *, nodes: int, bf16: bool) -> NodeGroup:
    return NodeGroup(
        name="CPU",
        accelerator=cpu_accelerator(memory_bytes, bf16=bf16),
        accelerators_per_node=1,
        nodes=nodes,
        nvlink=False,
    )
