"""The stages of the check, in their order, and what each may take."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain

from bench.gpu import (
    attention,
    ceilings,
    compiling,
    correctness,
    distribution,
    engine,
    matmuls,
    memory_bound,
    sanitizer,
)
from bench.gpu.cases import Known, checked, timed
from bench.gpu.rows import Row

Rows = Callable[[Known], Iterator[Row]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """Runs in a process of its own; its seconds are its own whatever happens before."""

    name: str
    seconds: float
    rows: Rows


STAGES = (
    Stage(name=ceilings.STAGE, seconds=25, rows=lambda _: ceilings.rows()),
    Stage(name=compiling.STAGE, seconds=60, rows=lambda _: compiling.rows()),
    Stage(
        name="correctness",
        seconds=45,
        rows=lambda known: chain(
            checked("correctness", correctness.checks(), known),
            distribution.rows("correctness", known),
        ),
    ),
    Stage(
        name="decode",
        seconds=65,
        rows=lambda known: timed("decode", attention.decode_cases(), known),
    ),
    Stage(
        name="prefill",
        seconds=25,
        rows=lambda known: timed("prefill", attention.prefill_cases(), known),
    ),
    Stage(
        name="memory-bound",
        seconds=30,
        rows=lambda known: timed("memory-bound", memory_bound.cases(), known),
    ),
    Stage(name=engine.STAGE, seconds=140, rows=lambda _: engine.rows()),
    Stage(
        name="matmul",
        seconds=30,
        rows=lambda known: timed("matmul", matmuls.cases(), known),
    ),
    Stage(
        name="sampling",
        seconds=25,
        rows=lambda known: timed("sampling", memory_bound.sampling_cases(), known),
    ),
    Stage(name=sanitizer.STAGE, seconds=25, rows=lambda _: sanitizer.rows()),
)
