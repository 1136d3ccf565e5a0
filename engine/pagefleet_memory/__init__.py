"""The memory model: how a model's weights, workspace and KV cache fill an accelerator."""

from pagefleet_memory.accelerator import Accelerator, accelerator_from_labels, cpu_accelerator
from pagefleet_memory.checkpoint import CheckpointSummary
from pagefleet_memory.dtypes import KV_CACHE_DTYPES
from pagefleet_memory.errors import AcceleratorError, LimitError, MemoryModelError, ShapeError
from pagefleet_memory.kv_cache import blocks_for_tokens, kv_block_bytes, num_kv_blocks
from pagefleet_memory.ledger import Ledger, Measured, build_ledger, build_stage_ledgers
from pagefleet_memory.limits import EngineLimits
from pagefleet_memory.model_shape import ModelShape
from pagefleet_memory.overhead import LedgerTerm
from pagefleet_memory.plan import plan_serving
from pagefleet_memory.plan_types import Change, MemoryPlan, PlanResult, Refusal, Rejection
from pagefleet_memory.precision import check_kv_dtype, resolve_dtype
from pagefleet_memory.product_names import resolve_product
from pagefleet_memory.speed import Speed
from pagefleet_memory.workload import NodeGroup, Pins, TokenDistribution, Workload

__all__ = [
    "KV_CACHE_DTYPES",
    "Accelerator",
    "AcceleratorError",
    "Change",
    "CheckpointSummary",
    "EngineLimits",
    "Ledger",
    "LedgerTerm",
    "LimitError",
    "Measured",
    "MemoryModelError",
    "MemoryPlan",
    "ModelShape",
    "NodeGroup",
    "Pins",
    "PlanResult",
    "Refusal",
    "Rejection",
    "ShapeError",
    "Speed",
    "TokenDistribution",
    "Workload",
    "accelerator_from_labels",
    "blocks_for_tokens",
    "build_ledger",
    "build_stage_ledgers",
    "check_kv_dtype",
    "cpu_accelerator",
    "kv_block_bytes",
    "num_kv_blocks",
    "plan_serving",
    "resolve_dtype",
    "resolve_product",
]
