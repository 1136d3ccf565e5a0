"""The table of errors, as printed and as the documents show it."""

from collections.abc import Callable, Sequence

from bench.memory_scoring.figures import (
    FigureError,
    FitError,
    figure_errors,
    fit_errors,
    quantile,
)
from bench.memory_scoring.observations import ScoredRow

_TITLES = {
    "kv_bytes_per_token": "KV bytes per token",
    "weights_gib": "weights per rank",
    "kv_cache_gib": "KV pool",
    "kv_tokens": "KV tokens",
    "max_model_len": "longest request",
}


def report(rows: Sequence[ScoredRow]) -> str:
    """Count, median, p90 and worst per kind of figure, then the rows left out."""
    lines = [table(rows), ""]
    lines += [f"row {row.index} left out: {row.skipped}" for row in rows if row.skipped]
    lines += [
        f"row {row.index} without pool and verdict: the memory of its GPU is not known"
        for row in rows
        if row.predicted and row.predicted["fits"] is None
    ]
    return "\n".join(lines)


def table(rows: Sequence[ScoredRow]) -> str:
    """The errors as a Markdown table."""
    lines = [
        "| figure | rows | median % | p90 % | worst % | worst row |",
        "|---|---|---|---|---|---|",
    ]
    models = {row.index: str(row.row.get("config") or row.row.get("model")) for row in rows}
    for name, errors in figure_errors(rows).items():
        lines.append(_figure_line(_TITLES[name], errors, models, lambda each: each.error))
        if any(each.rounding for each in errors):
            title = f"{_TITLES[name]}, beyond rounding"
            lines.append(_figure_line(title, errors, models, lambda each: each.unexplained))
    lines.append(_fit_line(fit_errors(rows)))
    return "\n".join(lines)


def _figure_line(
    title: str,
    errors: Sequence[FigureError],
    models: dict[int, str],
    measure: Callable[[FigureError], float],
) -> str:
    if not errors:
        return f"| {title} | 0 | | | | |"
    values = [measure(each) for each in errors]
    worst = max(errors, key=measure)
    return (
        f"| {title} | {len(errors)} | {100 * quantile(values, 0.5):.3f} |"
        f" {100 * quantile(values, 0.9):.2f} | {100 * measure(worst):.1f} |"
        f" {worst.row} {models[worst.row]} |"
    )


def _fit_line(errors: Sequence[FitError]) -> str:
    right = sum(each.predicted == each.started for each in errors)
    wrong = [str(each.row) for each in errors if each.predicted != each.started]
    share = 100 * right / max(1, len(errors))
    return f"| fit or no fit | {len(errors)} | {share:.1f} % right | | | wrong: {' '.join(wrong)} |"
