"""The ledger: every byte of one rank's budget, term by term."""

from dataclasses import dataclass

from pagefleet_memory.accelerator import Accelerator
from pagefleet_memory.constant_record import Profile
from pagefleet_memory.dtypes import dtype_bytes
from pagefleet_memory.kv_cache import kv_block_bytes
from pagefleet_memory.limits import EngineLimits
from pagefleet_memory.model_shape import ModelShape
from pagefleet_memory.overhead import (
    LedgerTerm,
    communication_term,
    context_term,
    graphs_term,
    reserve_term,
)
from pagefleet_memory.weights import rank_weight_bytes
from pagefleet_memory.workspace import rope_term, sampler_term, workspace_term

TERM_NAMES = (
    "weights",
    "rope_and_buffers",
    "workspace",
    "sampler",
    "communication",
    "context",
    "graphs",
    "kv_pool",
    "reserve",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Bytes an engine measured; each replaces the predicted term, None keeps the prediction."""

    weights_bytes: int | None = None
    rope_and_buffers_bytes: int | None = None
    workspace_bytes: int | None = None
    sampler_bytes: int | None = None
    communication_bytes: int | None = None
    context_bytes: int | None = None
    graphs_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Ledger:
    """One rank of one stage: the terms add up to the budget exactly."""

    stage: int
    budget_bytes: int
    terms: tuple[LedgerTerm, ...]
    profile: Profile = "pagefleet"

    def term(self, name: str) -> LedgerTerm:
        """The term of this name."""
        return next(term for term in self.terms if term.name == name)

    @property
    def kv_pool_bytes(self) -> int:
        """What is left for the KV cache; below zero by as much as the rest exceeds the budget."""
        return self.term("kv_pool").bytes

    @property
    def fixed_bytes(self) -> int:
        """Everything but the KV pool."""
        return self.budget_bytes - self.kv_pool_bytes


def build_ledger(
    shape: ModelShape,
    accelerator: Accelerator,
    limits: EngineLimits,
    *,
    measured: Measured | None = None,
    stage: int | None = None,
) -> Ledger:
    """The ledger of one rank of `stage`; without a stage, of the one that holds fewest blocks."""
    if stage is None:
        ledgers = build_stage_ledgers(shape, accelerator, limits)
        stage = min(ledgers, key=lambda ledger: _blocks(ledger, shape, limits)).stage
    fixed = fixed_terms(shape, accelerator, limits, stage=stage)
    if measured is not None:
        fixed = tuple(_with_measurement(term, measured) for term in fixed)
    budget = budget_bytes(accelerator, limits)
    pool = LedgerTerm(
        "kv_pool",
        budget - sum(term.bytes for term in fixed),
        f"budget less the other terms; {kv_block_bytes(shape, limits, stage=stage)} B a block of"
        f" {limits.block_size} tokens ({limits.resolved_kv_dtype}), full length in every layer",
    )
    return Ledger(stage, budget, (*fixed[:-1], pool, fixed[-1]))


def build_stage_ledgers(
    shape: ModelShape,
    accelerator: Accelerator,
    limits: EngineLimits,
) -> tuple[Ledger, ...]:
    """One ledger per pipeline stage."""
    return tuple(
        build_ledger(shape, accelerator, limits, stage=stage)
        for stage in range(limits.pipeline_parallel_size)
    )


def budget_bytes(accelerator: Accelerator, limits: EngineLimits) -> int:
    """What the process may hold: the utilization's share of the visible memory."""
    return int(accelerator.memory_bytes * limits.gpu_memory_utilization)


def _blocks(ledger: Ledger, shape: ModelShape, limits: EngineLimits) -> int:
    return ledger.kv_pool_bytes // kv_block_bytes(shape, limits, stage=ledger.stage)


def fixed_terms(
    shape: ModelShape,
    accelerator: Accelerator,
    limits: EngineLimits,
    *,
    stage: int,
) -> tuple[LedgerTerm, ...]:
    """Every predicted term but the KV pool, in the order of TERM_NAMES."""
    return (
        _weights_term(shape, accelerator, limits, stage),
        rope_term(shape, limits),
        workspace_term(shape, accelerator, limits, stage=stage),
        sampler_term(shape, limits, stage=stage),
        communication_term(accelerator, limits),
        context_term(accelerator, limits),
        graphs_term(accelerator, limits),
        reserve_term(accelerator),
    )


def _weights_term(
    shape: ModelShape, accelerator: Accelerator, limits: EngineLimits, stage: int
) -> LedgerTerm:
    size = rank_weight_bytes(
        shape,
        limits.dtype,
        tensor_parallel_size=limits.tensor_parallel_size,
        stages=limits.pipeline_parallel_size,
        stage=stage,
    )
    basis = "checkpoint headers" if shape.checkpoint else "shapes in config.json"
    source = f"{basis}, held as {limits.dtype}, one rank's share"
    if accelerator.kind == "CPU" and shape.tie_word_embeddings:
        # Packed linears replace their weights, but the embedding needs its own unpacked.
        size += shape.embedding_parameters * dtype_bytes(limits.dtype)
        source += "; the tied head is packed beside the embedding"
    return LedgerTerm("weights", size, source)


def _with_measurement(term: LedgerTerm, measured: Measured) -> LedgerTerm:
    value = getattr(measured, f"{term.name}_bytes", None)
    return term if value is None else LedgerTerm(term.name, value, "measured")
