"""What is read from a compiled kernel and judged, without compiling one.

Covered: opcodes of a disassembly, programs that fit a processor, every gate both ways, results.
Left out: the compiler (tests/kernels_triton/test_ahead_of_time.py).
"""

import json
from pathlib import Path

import pytest

from bench.aot_harness import gates, registry
from bench.aot_harness.compile import OPCODE
from bench.aot_harness.report import Row, make_row, write
from bench.aot_harness.variant import Compiled, Gate, KernelSource, Variant

SASS = """Function:kernel
--:-:-:-:8\tLDC R1, c[0x0][0x28];
--:-:2:-:4\t@!P1 LDG.E.128 R12, desc[UR8][R26.64+0x1000];
--:-:2:-:4\t@P0 LDGSTS.E.BYPASS.128 [R3], desc[UR8][R26.64];
04:0:-:-:4\t@!UPT STG.E.64 desc[UR8][R20.64], R12;
--:-:-:Y:d\tI2F.U32.RP R4, R5;
"""


def compiled(**given: object) -> Compiled:
    facts: dict[str, object] = {
        "arch": 90,
        "registers": 64,
        "spill_bytes": 0,
        "shared_bytes": 1 << 10,
        "num_warps": 4,
        "instructions": {},
    }
    return Compiled(**{**facts, **given})  # type: ignore[arg-type]


def test_opcodes_are_found_behind_their_predicates() -> None:
    found = OPCODE.findall(SASS)
    assert found == ["LDC", "LDG.E.128", "LDGSTS.E.BYPASS.128", "STG.E.64", "I2F.U32.RP"]


@pytest.mark.parametrize(
    ("registers", "num_warps", "shared_bytes", "programs"),
    [
        (128, 4, 0, 4),
        (129, 4, 0, 3),  # as 136
        (255, 4, 0, 2),
        (128, 8, 0, 2),
        (32, 4, 113 << 10, 2),
        (32, 4, 114 << 10, 1),
    ],
)
def test_programs_share_registers_and_memory(
    registers: int, num_warps: int, shared_bytes: int, programs: int
) -> None:
    kernel = compiled(registers=registers, num_warps=num_warps, shared_bytes=shared_bytes)
    assert gates.programs_at_once(kernel) == programs


@pytest.mark.parametrize(
    ("gate", "good", "bad"),
    [
        (gates.NO_SPILLS, {"spill_bytes": 0}, {"spill_bytes": 8}),
        (gates.FITS_SHARED, {"shared_bytes": 227 << 10}, {"shared_bytes": (227 << 10) + 1}),
        (gates.FITS_SHARED, {"arch": 80}, {"arch": 80, "shared_bytes": 164 << 10}),
        (
            gates.WIDE_LOADS,
            {"instructions": {"LDGSTS.E.BYPASS.128": 1}},
            {"instructions": {"LDG.E.64": 9, "STG.E.128": 1}},
        ),
        (
            gates.WIDE_STORES,
            {"instructions": {"STG.E.128": 1}},
            {"instructions": {"STG.E": 1, "LDG.E.128": 1}},
        ),
        (
            gates.NO_INT_TO_FLOAT,
            {"instructions": {"I2F.U32.RP": 3, "FADD": 1}},
            {"instructions": {"I2FP.F32.S32": 1}},
        ),
        (gates.WGMMA, {"instructions": {"HGMMA.64x64x16.F32": 1}}, {"instructions": {"HMMA": 1}}),
        (
            gates.TENSOR_CORES,
            {"instructions": {"HMMA.16816.F32": 1}},
            {"instructions": {"FFMA": 1}},
        ),
        (gates.resident(2), {"registers": 255}, {"registers": 255, "num_warps": 8}),
    ],
)
def test_a_gate_holds_and_fails(
    gate: Gate, good: dict[str, object], bad: dict[str, object]
) -> None:
    assert gates.judge((gate,), compiled(**good)) == {gate.name: True}
    assert gates.judge((gate,), compiled(**bad)) == {gate.name: False}


def test_a_gate_is_left_out_where_it_means_nothing() -> None:
    assert gates.judge((gates.WGMMA, gates.NO_SPILLS), compiled(arch=80)) == {"no_spills": True}


def test_results_name_what_fails(tmp_path: Path) -> None:
    source = KernelSource(function="m:f", arguments={}, constants={})
    variant = Variant(kernel="k", variant="v", source=source, gates=(gates.NO_SPILLS,))
    row = make_row(variant, compiled(spill_bytes=16))
    assert row.failed == ["no_spills"]
    write([row], tmp_path, triton_version="3.9.0")
    (found,) = json.loads((tmp_path / "aot.json").read_text())
    assert Row(**found) == row
    assert "**no_spills FAILS**" in (tmp_path / "aot.md").read_text()


def test_names_of_variants_stand_once() -> None:
    names = [(each.kernel, each.variant) for each in registry.all_variants()]
    assert len(names) == len(set(names)) > 0
