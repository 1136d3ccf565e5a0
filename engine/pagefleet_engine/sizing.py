"""Size the KV cache with the memory model's own arithmetic, and report the ledger."""

from dataclasses import asdict, dataclass, replace

from pagefleet_engine.errors import DoesNotFitError
from pagefleet_engine.request import EngineLedger, EngineLedgerTerm
from pagefleet_memory import (
    EngineLimits,
    Ledger,
    Measured,
    ModelShape,
    blocks_for_tokens,
    kv_block_bytes,
    num_kv_blocks,
)


@dataclass(frozen=True, slots=True)
class KVSizing:
    """How many blocks the cache gets, and the limits that hold with it."""

    num_blocks: int
    limits: EngineLimits


def size_kv_cache(
    shape: ModelShape,
    limits: EngineLimits,
    ledger: Ledger,
    *,
    length_is_stated: bool,
    num_blocks_override: int | None = None,
) -> KVSizing:
    """The number of blocks; a derived max_model_len shrinks to what fits, a stated one does not."""
    if num_blocks_override is not None:
        return KVSizing(num_blocks_override, limits)
    num_blocks = num_kv_blocks(ledger, shape, limits)
    if blocks_for_tokens(shape, limits, limits.max_model_len) <= num_blocks:
        return KVSizing(num_blocks, limits)
    if length_is_stated or num_blocks == 0:
        raise DoesNotFitError(_shortfall(shape, limits, ledger, num_blocks))
    return KVSizing(num_blocks, replace(limits, max_model_len=num_blocks * limits.block_size))


def refuse_hopeless_weights(ledger: Ledger, limits: EngineLimits) -> None:
    """Stop before loading weights that are larger than everything the engine may use."""
    weights = ledger.term("weights").bytes
    if weights > ledger.budget_bytes:
        raise DoesNotFitError(
            f"the weights take {_mib(weights)} as {limits.dtype}, and the engine may use "
            f"{_mib(ledger.budget_bytes)}; give it more memory or a smaller model"
        )


def _shortfall(shape: ModelShape, limits: EngineLimits, ledger: Ledger, num_blocks: int) -> str:
    needed = blocks_for_tokens(shape, limits, limits.max_model_len)
    block = kv_block_bytes(shape, limits)
    message = (
        f"one request of max_model_len={limits.max_model_len} needs {needed} KV blocks "
        f"({_mib(needed * block)}), but {_mib(max(0, ledger.kv_pool_bytes))} are left for the KV "
        f"cache of a budget of {_mib(ledger.budget_bytes)}"
    )
    if num_blocks == 0:
        return f"{message}; not one block fits, so give the engine more memory"
    return f"{message}; the largest max_model_len that fits is {num_blocks * limits.block_size}"


def _mib(size: int) -> str:
    return f"{size / 2**20:.1f} MiB"


def describe_ledger(
    predicted: Ledger, final: Ledger, measured: Measured, sizing: KVSizing, *, pool_bytes: int
) -> EngineLedger:
    """What was predicted beside what was measured, for the operator."""
    values: dict[str, int | None] = {
        name.removesuffix("_bytes"): value for name, value in asdict(measured).items()
    }
    values["kv_pool"] = pool_bytes
    if measured.context_bytes == predicted.term("context").bytes:
        values["context"] = None  # the prediction itself: no measurement exceeded it
    return EngineLedger(
        profile=final.profile,
        budget_bytes=final.budget_bytes,
        terms=tuple(
            EngineLedgerTerm(term.name, term.bytes, values.get(term.name))
            for term in predicted.terms
        ),
        block_size=sizing.limits.block_size,
        num_blocks=sizing.num_blocks,
        limits=asdict(sizing.limits),
        peak_bytes=0,
    )
