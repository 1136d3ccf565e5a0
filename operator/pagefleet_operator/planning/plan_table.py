"""A plan for a reader: what was chosen, where the bytes go, what was passed over."""

from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from pagefleet_operator.planning.ledger_bar import MARKS, ledger_bar

_GIB = 1 << 30


def plan_table(plan: dict[str, Any], *, title: str) -> RenderableType:
    """From status.plan, so that it shows a plan of a cluster as well as one made here."""
    parts: list[RenderableType] = [Text(title, style="bold"), _settings(plan)]
    for stage in plan["ledger"]:
        parts += [_ledger(stage, stages=len(plan["ledger"])), ledger_bar(stage)]
    parts += [Text(f"note: {note}") for note in plan["notes"]]
    parts += [
        Text(f"passed over: {entry['option']}: {entry['message']}", style="dim")
        for entry in plan["rejected"]
    ]
    return Group(*parts)


def _settings(plan: dict[str, Any]) -> Table:
    accelerator, chosen = plan["accelerator"], plan["chosen"]
    device = f"{accelerator['perReplica']} x {accelerator['product']}"
    rows = {
        "accelerator": f"{device}, {_gib(accelerator['memoryBytes'])} each",
        "parallelism": f"tensor {chosen['tensorParallelSize']}, "
        f"pipeline {chosen['pipelineParallelSize']}, pods {accelerator['podsPerReplica']}",
        "number formats": f"{chosen['dtype']}, KV cache {chosen['kvCacheDtype']}",
        "longest request": f"{chosen['maxModelLen']} tokens",
        "batch": f"{chosen['maxNumSeqs']} requests, {chosen['maxNumBatchedTokens']} tokens a step",
        "KV cache": f"{plan['kvTokens']} tokens in {plan['kvBlocks']} blocks, "
        f"{plan['maxFullLengthSequences']} longest requests",
        **_speed(plan),
        "pod": f"{_gib(plan['hostMemoryBytes'])} memory, {_gib(plan['shmBytes'])} /dev/shm, "
        f"start within {plan['startupSeconds']} s",
        "plan hash": plan["hash"],
    }
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    for name, value in rows.items():
        table.add_row(name, str(value))
    return table


def _speed(plan: dict[str, Any]) -> dict[str, str]:
    """Absent where it could not be predicted."""
    if "predictedDecodeTokensPerSecond" not in plan:
        return {}
    decode, prefill = (plan[f"predicted{kind}TokensPerSecond"] for kind in ("Decode", "Prefill"))
    step = plan["predictedStepMilliseconds"]
    text = f"{decode} answer tokens/s at a full batch ({step} ms a step), {prefill} prompt tokens/s"
    return {"predicted speed": text}


def _ledger(stage: dict[str, Any], *, stages: int) -> Table:
    which = f", stage {stage['stage']}" if stages > 1 else ""
    table = Table(title=f"memory of one device{which}", title_justify="left")
    table.add_column("")
    table.add_column("term")
    table.add_column("GiB", justify="right")
    table.add_column("share", justify="right")
    for term in stage["terms"]:
        share = 100 * term["bytes"] / stage["budgetBytes"]
        mark = MARKS[term["name"]]
        table.add_row(mark.text(), term["name"], f"{term['bytes'] / _GIB:.3f}", f"{share:.1f} %")
    table.add_section()
    table.add_row("", "budget", f"{stage['budgetBytes'] / _GIB:.3f}", "100.0 %")
    return table


def _gib(count: int) -> str:
    return f"{count / _GIB:.1f} GiB"
