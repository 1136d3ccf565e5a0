"""Ledger terms that do not come from the model: context, communication, graphs, reserve."""

from dataclasses import dataclass

from pagefleet_memory.accelerator import Accelerator
from pagefleet_memory.constants import constant
from pagefleet_memory.limits import EngineLimits


@dataclass(frozen=True, slots=True)
class LedgerTerm:
    """One line of a ledger: bytes, and in words where they come from."""

    name: str
    bytes: int
    source: str


def context_term(accelerator: Accelerator, limits: EngineLimits) -> LedgerTerm:
    """What the process holds before any weight: driver context, or interpreter and libraries."""
    names: tuple[str, ...] = ("gpu_context",)
    if accelerator.kind == "CPU":
        names = ("cpu_context", "cpu_server_process")
    elif limits.world_size > 1:
        names = ("gpu_context", "gpu_context_distributed")
    return _sum_term("context", names)


def communication_term(accelerator: Accelerator, limits: EngineLimits) -> LedgerTerm:
    """Buffers of collectives, and what the runtime grows by at the first forward."""
    if accelerator.kind == "CPU":
        return LedgerTerm("communication", 0, "none on CPU")
    if limits.tensor_parallel_size > 1:
        return _sum_term("communication", ("communication_tensor",))
    kind = "pipeline" if limits.pipeline_parallel_size > 1 else "single"
    return _sum_term("communication", (f"communication_{kind}",))


def graphs_term(accelerator: Accelerator, limits: EngineLimits) -> LedgerTerm:
    """The pool that captured CUDA graphs share."""
    if accelerator.kind == "CPU" or limits.enforce_eager:
        return LedgerTerm("graphs", 0, "nothing is captured")
    sizes = num_capture_sizes(limits.max_num_seqs)
    first = constant("graph_first_capture")
    further = constant("graph_per_size")
    return LedgerTerm(
        "graphs",
        first.value + sizes * further.value,
        f"{first.source}; {sizes} sizes: {further.source}",
    )


def reserve_term(accelerator: Accelerator) -> LedgerTerm:
    """What stays free inside the budget."""
    return _sum_term("reserve", (f"{accelerator.kind.lower()}_reserve",))


def num_capture_sizes(max_num_seqs: int) -> int:
    """Batch sizes captured as graphs: 1, 2, 4, then every eighth up to 512."""
    return sum(size <= max_num_seqs for size in (1, 2, 4)) + min(max_num_seqs, 512) // 8


def _sum_term(name: str, constants: tuple[str, ...]) -> LedgerTerm:
    records = [constant(key) for key in constants]
    return LedgerTerm(
        name, sum(record.value for record in records), "; ".join(r.source for r in records)
    )
