"""Variant: one way to compile a kernel, and what has to be true of the result."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

ARCHES = (80, 90, 100)  # A100, H100 and H200, B200

Constant = int | float | bool | str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelSource:
    """What the compiler needs to know; a plain value, so that it can go to another process."""

    function: str  # "package.module:name" of the jit function
    arguments: Mapping[str, str]  # name -> "*bf16", "*i8", "*fp8e4nv", "i32", "i64", "fp32"
    constants: Mapping[str, Constant]
    aligned: tuple[str, ...] = ()  # pointers and strides that are multiples of 16
    num_warps: int = 4
    num_stages: int = 3
    max_registers: int | None = None  # of a thread; None: as the assembler likes


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiled:
    """What can be read from a compiled kernel without running it."""

    arch: int
    registers: int  # of one thread
    spill_bytes: int  # stack of one thread; these kernels keep nothing else there
    shared_bytes: int  # of one program
    num_warps: int
    instructions: Mapping[str, int]  # SASS opcode with its modifiers -> how often


@dataclass(frozen=True, slots=True)
class Gate:
    """A named condition on the compiled kernel, for some architectures."""

    name: str
    holds: Callable[[Compiled], bool]
    arches: tuple[int, ...] = ARCHES


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """`kernel` and `variant` together name it in the results; no two may be alike."""

    kernel: str
    variant: str
    source: KernelSource
    gates: tuple[Gate, ...]
    arches: tuple[int, ...] = field(default=ARCHES)
    tested: tuple[int, ...] | None = None  # of the arches, those that each test run compiles

    @property
    def tested_arches(self) -> tuple[int, ...]:
        return self.arches if self.tested is None else self.tested
