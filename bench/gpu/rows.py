"""Row: one thing that was measured or compared, and whether it is good enough."""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass

FAILED, PASSED, REPORTED = "FAIL", "pass", "-"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A rate is compared with the machine's own, an error with its tolerance."""

    stage: str
    name: str
    microseconds: float | None = None
    spread: float | None = None  # between two runs, a fraction
    rate: float | None = None
    unit: str = ""  # of the rate: GB/s, TFLOP/s, tokens/s
    share: float | None = None  # of the measured copy bandwidth or matmul rate
    mark: float | None = None  # the least share that passes
    ratio: float | None = None  # of the time of the same work in bf16
    most_ratio: float | None = None
    error: float | None = None
    tolerance: float | None = None
    failed: str | None = None  # why there is no result
    note: str = ""

    @property
    def verdict(self) -> str:
        if self.failed is not None:
            return FAILED
        held = []
        if self.mark is not None:
            held.append(self.share is not None and self.share >= self.mark)
        if self.error is not None and self.tolerance is not None:
            held.append(self.error <= self.tolerance)
        if self.ratio is not None and self.most_ratio is not None:
            held.append(self.ratio <= self.most_ratio)
        if not held:
            return REPORTED
        return PASSED if all(held) else FAILED


def to_json(row: Row) -> str:
    return json.dumps({name: value for name, value in asdict(row).items() if value is not None})


def from_json(line: str) -> Row:
    return Row(**json.loads(line))


def markdown(rows: Iterable[Row], *, title: str, machine: str) -> str:
    """All stages, one table each."""
    rows = list(rows)
    verdicts = [row.verdict for row in rows]
    lines = [
        f"# {title}",
        "",
        machine,
        "",
        f"{verdicts.count(PASSED)} passed, {verdicts.count(FAILED)} failed, "
        f"{verdicts.count(REPORTED)} only reported.",
    ]
    for stage in dict.fromkeys(row.stage for row in rows):
        lines += ["", f"## {stage}", "", *_table([row for row in rows if row.stage == stage])]
    return "\n".join(lines) + "\n"


def _table(rows: list[Row]) -> list[str]:
    return [
        "| what | time us | spread | rate | share | mark | error | verdict | note |",
        "|---|---:|---:|---:|---:|---:|---:|---|---|",
        *(_line(row) for row in rows),
    ]


def _line(row: Row) -> str:
    error = "" if row.error is None else f"{row.error:.1e} of {row.tolerance or 0:.0e}"
    note = row.failed or row.note
    if row.ratio is not None:
        bound = "" if row.most_ratio is None else f", at most {row.most_ratio}"
        note = f"{row.ratio:.2f} of the bf16 time{bound}; {note}".rstrip("; ")
    cells = (
        row.name,
        _number(row.microseconds, ".1f"),
        _number(row.spread, ".1%"),
        f"{_number(row.rate, '.1f')} {row.unit}".strip(),
        _number(row.share, ".1%"),
        _number(row.mark, ".0%"),
        error,
        row.verdict,
        " ".join(note.split())[:160].replace("|", "/"),
    )
    return f"| {' | '.join(cells)} |"


def _number(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)
