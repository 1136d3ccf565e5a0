"""The stages of the check, in their order, and what each may take."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain

from bench.gpu import attention, ceilings, correctness, distribution, engine, matmuls, memory_bound
from bench.gpu.cases import Ceilings, checked, timed
from bench.gpu.rows import Row

Rows = Callable[[Ceilings | None], Iterator[Row]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """Runs in a process of its own, which ends when its seconds are over."""

    name: str
    seconds: float
    rows: Rows


STAGES = (
    Stage(name=ceilings.STAGE, seconds=40, rows=lambda _: ceilings.rows()),
    Stage(
        name="correctness",
        seconds=100,
        rows=lambda _: chain(
            checked("correctness", correctness.checks()), distribution.rows("correctness")
        ),
    ),
    Stage(
        name="decode",
        seconds=120,
        rows=lambda known: timed("decode", attention.decode_cases(), known),
    ),
    Stage(
        name="prefill",
        seconds=45,
        rows=lambda known: timed("prefill", attention.prefill_cases(), known),
    ),
    Stage(
        name="memory-bound",
        seconds=45,
        rows=lambda known: timed("memory-bound", memory_bound.cases(), known),
    ),
    Stage(name=engine.STAGE, seconds=210, rows=lambda _: engine.rows()),
    Stage(
        name="matmul",
        seconds=45,
        rows=lambda known: timed("matmul", matmuls.cases(), known),
    ),
    Stage(
        name="sampling",
        seconds=45,
        rows=lambda known: timed("sampling", memory_bound.sampling_cases(), known),
    ),
)
