"""The conditions that compiled kernels have to meet."""

import re

from bench.aot_harness.variant import ARCHES, Compiled, Gate

REGISTERS_OF_PROCESSOR = 65536
REGISTERS_AT_ONCE = 8  # a thread's registers are handed out in eights
THREADS_OF_WARP = 32
RESERVED_SHARED_BYTES = 1024  # by the driver, per program
# CUDA programming guide, table of technical specifications by compute capability.
SHARED_BYTES_OF_PROGRAM = {80: 163 << 10, 90: 227 << 10, 100: 227 << 10}
SHARED_BYTES_OF_PROCESSOR = {80: 164 << 10, 90: 228 << 10, 100: 228 << 10}


def count(compiled: Compiled, pattern: str) -> int:
    """How many instructions match from their start, e.g. "LDG.*128"."""
    matches = re.compile(pattern).match
    return sum(times for opcode, times in compiled.instructions.items() if matches(opcode))


def programs_at_once(compiled: Compiled) -> int:
    """Programs that fit one processor by registers and shared memory."""
    registers = -(-compiled.registers // REGISTERS_AT_ONCE) * REGISTERS_AT_ONCE
    by_registers = REGISTERS_OF_PROCESSOR // (registers * compiled.num_warps * THREADS_OF_WARP)
    shared = compiled.shared_bytes + RESERVED_SHARED_BYTES
    return min(by_registers, SHARED_BYTES_OF_PROCESSOR[compiled.arch] // shared)


NO_SPILLS = Gate("no_spills", lambda compiled: compiled.spill_bytes == 0)
FITS_SHARED = Gate(
    "fits_shared",
    lambda compiled: compiled.shared_bytes <= SHARED_BYTES_OF_PROGRAM[compiled.arch],
)
WIDE_LOADS = Gate(
    "wide_loads", lambda compiled: count(compiled, r"(LDG|LDGSTS)\..*(128|256)|UTMALDG") > 0
)
WIDE_STORES = Gate("wide_stores", lambda compiled: count(compiled, r"STG\..*(128|256)") > 0)
# Dequantizing by conversion instructions is slower than memory. Division of indices uses I2F.RP.
NO_INT_TO_FLOAT = Gate("no_int_to_float", lambda compiled: count(compiled, r"I2F(?!.*\.RP)") == 0)
WGMMA = Gate("wgmma", lambda compiled: count(compiled, r"[HQ]GMMA") > 0, arches=(90,))
TENSOR_CORES = Gate(
    "tensor_cores",
    lambda compiled: count(compiled, r"[HIQ]G?MMA|UTC[HIQ]MMA") > 0,
)


def resident(programs: int, *, arches: tuple[int, ...] = ARCHES) -> Gate:
    """At least so many programs run on one processor at once, to hide each other's waiting."""
    return Gate(
        f"resident_{programs}",
        lambda compiled: programs_at_once(compiled) >= programs,
        arches=arches,
    )


def judge(gates: tuple[Gate, ...], compiled: Compiled) -> dict[str, bool]:
    """Each gate that applies to this architecture, by name."""
    return {gate.name: gate.holds(compiled) for gate in gates if compiled.arch in gate.arches}
