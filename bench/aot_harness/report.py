"""What was compiled and which gates hold, as JSON and as a Markdown table."""

import json
from dataclasses import dataclass
from pathlib import Path

from bench.aot_harness.gates import judge
from bench.aot_harness.variant import Compiled, Variant


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One compiled variant."""

    kernel: str
    variant: str
    arch: str
    registers: int
    spill_bytes: int
    shared_bytes: int
    gates: dict[str, bool]

    @property
    def failed(self) -> list[str]:
        return [name for name, holds in self.gates.items() if not holds]


def make_row(variant: Variant, compiled: Compiled) -> Row:
    return Row(
        kernel=variant.kernel,
        variant=variant.variant,
        arch=f"sm_{compiled.arch}",
        registers=compiled.registers,
        spill_bytes=compiled.spill_bytes,
        shared_bytes=compiled.shared_bytes,
        gates=judge(variant.gates, compiled),
    )


def write(rows: list[Row], folder: Path, *, triton_version: str) -> None:
    """`aot.json` and `aot.md` in this folder."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = ",\n".join(json.dumps(_plain(row)) for row in rows)
    (folder / "aot.json").write_text(f"[\n{lines}\n]\n")
    (folder / "aot.md").write_text(markdown(rows, triton_version=triton_version))


def read(folder: Path) -> list[Row]:
    """The rows that `write` left in this folder; none, if nothing was written."""
    path = folder / "aot.json"
    return [Row(**row) for row in json.loads(path.read_text())] if path.exists() else []


def markdown(rows: list[Row], *, triton_version: str) -> str:
    failed = [row for row in rows if row.failed]
    head = [
        "# Kernels, compiled ahead of time",
        "",
        f"`python bench/aot.py` with Triton {triton_version}, without a GPU: {len(rows)} compiled "
        f"variants, {len(failed)} with a gate that does not hold. Registers and spill are those of "
        "a thread, shared memory that of a program.",
        "",
        "| kernel | variant | arch | registers | spill B | shared B | gates |",
        "|---|---|---|---:|---:|---:|---|",
    ]
    return "\n".join([*head, *map(_line, rows)]) + "\n"


def _line(row: Row) -> str:
    gates = ", ".join(name if holds else f"**{name} FAILS**" for name, holds in row.gates.items())
    return (
        f"| {row.kernel} | {row.variant} | {row.arch} | {row.registers} | {row.spill_bytes} "
        f"| {row.shared_bytes} | {gates} |"
    )


def _plain(row: Row) -> dict[str, object]:
    return {name: getattr(row, name) for name in row.__dataclass_fields__}
