"""What was compiled with each version, as a Markdown table."""

from collections.abc import Mapping, Sequence

from bench.aot_harness.report import Row

KERNELS = ("decode", "prefill")  # those short of registers
HEAD = (
    "# Kernels, compiled with each version of Triton",
    "",
    "`python bench/triton_versions.py --full`, without a GPU: every variant of [aot.md](aot.md), "
    "with its gates. Registers are the most of a thread, spill the most bytes of its stack.",
    "",
    "| Triton | variants | a gate fails | decode registers | prefill | others | spill B |",
    "|---|---:|---:|---:|---:|---:|---:|",
)


def table(rows_of: Mapping[str, Sequence[Row]]) -> str:
    """Rows of bench/aot.py by version."""
    lines = [*HEAD, *(_line(version, rows) for version, rows in sorted(rows_of.items()))]
    failed = [
        f"- Triton {version}: {row.kernel} {row.variant} {row.arch}: {', '.join(row.failed)} "
        f"({row.registers} registers, {row.spill_bytes} B)"
        for version, rows in sorted(rows_of.items())
        for row in rows
        if row.failed
    ]
    return "\n".join([*lines, *([""] if failed else []), *failed]) + "\n"


def _line(version: str, rows: Sequence[Row]) -> str:
    failed = sum(1 for row in rows if row.failed)
    most = [_most_registers([row for row in rows if row.kernel == name]) for name in KERNELS]
    most.append(_most_registers([row for row in rows if row.kernel not in KERNELS]))
    spill = max(row.spill_bytes for row in rows)
    return f"| {version} | {len(rows)} | {failed} | {' | '.join(map(str, most))} | {spill} |"


def _most_registers(rows: Sequence[Row]) -> int:
    return max((row.registers for row in rows), default=0)
