"""Compile one kernel for one architecture and read its resources and instructions."""

import re
import subprocess
import tempfile
from collections import Counter
from importlib import import_module
from typing import Any

from bench.aot_harness.variant import Compiled, KernelSource

RESOURCES = re.compile(r"REG:(\d+) STACK:(\d+)")
# "02:-:-:Y:4 <tab> @!P0 LDG.E.128 R8, ...": scheduling, predicate, opcode.
OPCODE = re.compile(r"\t(?:@!?U?P\w+ )?([A-Z][A-Z0-9_.]+)")


def compile_kernel(source: KernelSource, arch: int) -> Compiled:
    """Needs the Triton wheel and no GPU; must run where TRITON_INTERPRET is not set."""
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource
    from triton.compiler import compile as compile_source

    module, name = source.function.split(":")
    function = getattr(import_module(module), name)
    kernel = compile_source(
        ASTSource(
            fn=function,
            signature=_signature(function, source),
            constexprs=dict(source.constants),
            attrs={
                (function.arg_names.index(name),): [["tt.divisibility", 16]]
                for name in source.aligned
            },
        ),
        target=GPUTarget("cuda", arch, 32),
        options={
            "num_warps": source.num_warps,
            "num_stages": source.num_stages,
            "maxnreg": source.max_registers,
            "enable_fp_fusion": True,  # the default up to Triton 3.9
        },
    )
    registers, spill_bytes = _resources(kernel.asm["cubin"])
    return Compiled(
        arch=arch,
        registers=registers,
        spill_bytes=spill_bytes,
        shared_bytes=kernel.metadata.shared,
        num_warps=kernel.metadata.num_warps,
        instructions=Counter(OPCODE.findall(kernel.asm["sass"])),
    )


def _signature(function: Any, source: KernelSource) -> dict[str, str]:
    missing = set(function.arg_names) - set(source.arguments) - set(source.constants)
    unknown = (set(source.arguments) | set(source.constants)) - set(function.arg_names)
    assert not missing and not unknown, f"{source.function}: {missing=} {unknown=}"
    return {
        name: "constexpr" if name in source.constants else source.arguments[name]
        for name in function.arg_names
    }


def _resources(cubin: bytes) -> tuple[int, int]:
    """Registers and stack bytes of a thread, as the wheel's own cuobjdump reads them."""
    from triton import knobs

    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        said = subprocess.run(
            [knobs.nvidia.cuobjdump.path, "--dump-resource-usage", file.name],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
    found = RESOURCES.search(said)
    assert found, f"cuobjdump named no registers: {said}"
    return int(found[1]), int(found[2])
