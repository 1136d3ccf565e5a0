"""Flags that stand for fields of the spec: set for one plan, on top of what the file says."""

import copy
from collections.abc import Callable
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])

# Flag, its field in the spec, how its text is read, and what it does.
_FLAGS: tuple[tuple[str, str, type, str], ...] = (
    ("--max-model-len", "workload.maxModelLen", int, "Longest request, in tokens."),
    ("--concurrency", "workload.concurrency", int, "Requests at once on one replica."),
    ("--request-rate", "workload.requestRate", str, "Requests a second over the fleet."),
    (
        "--shared-prefix-tokens",
        "workload.sharedPrefixTokens",
        int,
        "Tokens that all prompts begin with.",
    ),
    ("--accelerator", "hardware.accelerator", str, "GPU or CPU."),
    ("--dtype", "model.dtype", str, "Number format of weights and computation."),
    ("--kv-dtype", "sizing.kvCache.dtype", str, "Number format of the KV cache."),
    ("--block-size", "sizing.kvCache.blockSize", int, "Tokens in a block of the KV cache."),
    ("--tp", "sizing.parallelism.tensor", int, "GPUs that share each layer."),
    ("--pp", "sizing.parallelism.pipeline", int, "Stages that the layers are cut into."),
    ("--max-gpus", "sizing.limits.maxGPUs", int, "Most GPUs of one replica."),
    ("--min-kv-tokens", "sizing.limits.minKVTokens", int, "Fewest tokens of the KV cache."),
    ("--utilization", "sizing.gpuMemoryUtilization", str, "Share of a GPU's memory."),
    ("--max-num-seqs", "sizing.maxNumSeqs", int, "Most requests in one step."),
    ("--max-num-batched-tokens", "sizing.maxNumBatchedTokens", int, "Most tokens in one step."),
    ("--objective", "sizing.objective", str, "MinGPUs, Throughput or Latency."),
)
_LENGTHS = (
    ("--input-tokens", "workload.inputTokens", "Prompts: median and 95th percentile, as 800,4000."),
    ("--output-tokens", "workload.outputTokens", "Answers, likewise."),
)
_FIELDS = {flag: field for flag, field, *_ in (*_FLAGS, *_LENGTHS)}


class _Lengths(click.ParamType[dict[str, int]]):
    """Two numbers of tokens: P50,P95."""

    name = "P50,P95"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> dict[str, int]:
        parts = str(value).split(",")
        if len(parts) != 2 or not all(part.strip().isdigit() for part in parts):
            self.fail(f"{value!r} is no median and 95th percentile, as 800,4000", param, ctx)
        return {"p50": int(parts[0]), "p95": int(parts[1])}


def what_if_options(command: F) -> F:
    """Put the flags on a command, which reads them with changes_of."""
    for flag, _, text in reversed(_LENGTHS):
        command = _option(flag, _Lengths(), text)(command)
    for flag, _, kind, text in reversed(_FLAGS):
        command = _option(flag, kind, text)(command)
    return command


def changes_of(context: click.Context) -> dict[str, Any]:
    """Fields of the spec that flags of this call set."""
    return dict(context.meta.get(__name__, {}))


def with_changes(document: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """The document with these fields of its spec set."""
    changed = copy.deepcopy(document)
    for field, value in changes.items():
        *parents, last = field.split(".")
        part = changed.setdefault("spec", {})
        for name in parents:
            part = part.setdefault(name, {})
        part[last] = value
    return changed


def _option(flag: str, kind: type | click.ParamType[Any], text: str) -> Callable[[F], F]:
    return click.option(flag, type=kind, help=text, expose_value=False, callback=_keep)


def _keep(context: click.Context, parameter: click.Parameter, value: Any) -> None:
    if value is not None:
        field = _FIELDS[parameter.opts[0]]
        context.meta.setdefault(__name__, {})[field] = value
