"""The ledger of one rank of a vLLM server: the same terms as of pagefleet's own engine."""

from pagefleet_memory.ledger import Ledger
from pagefleet_memory.model_shape import ModelShape
from pagefleet_memory.overhead import LedgerTerm
from pagefleet_memory.vllm.activation import forward_bytes, sampler_bytes
from pagefleet_memory.vllm.overhead import graphs, non_torch
from pagefleet_memory.vllm.run import Run
from pagefleet_memory.vllm.weights import rank_weights, rope_bytes


def stage_ledger(shape: ModelShape, run: Run, stage: int) -> Ledger:
    """What one rank of a stage holds; needs a run whose GPU memory is known."""
    assert run.memory_bytes is not None, "a ledger needs the GPU's memory"
    budget = int(run.memory_bytes * run.gpu_memory_utilization)
    captured = graphs(shape, run) if run.release.counts_graphs else 0
    fixed = (
        LedgerTerm("weights", rank_weights(shape, run, stage), "shapes, one rank's share"),
        LedgerTerm("rope_and_buffers", rope_bytes(shape, run), "positions x rotary width"),
        LedgerTerm("workspace", forward_bytes(shape, run), "profiled forward"),
        LedgerTerm("sampler", sampler_bytes(shape, run, stage), "profiled sampling beyond it"),
        LedgerTerm("communication", non_torch(run), "growth outside PyTorch"),
        LedgerTerm("context", 0, "outside the budget"),
        LedgerTerm("graphs", captured, "counted from 0.21 on, before that outside the budget"),
    )
    pool = LedgerTerm("kv_pool", budget - sum(t.bytes for t in fixed), "budget less the others")
    reserve = LedgerTerm("reserve", 0, "none is kept")
    return Ledger(stage, budget, (*fixed, pool, reserve), "vllm")
