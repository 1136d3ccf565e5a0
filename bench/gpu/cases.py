"""Case: work to time, with what it cannot do without; Check: a result to compare."""

import math
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import torch

from bench.gpu.rows import Row
from bench.gpu.timing import Call, Timing, measure


@dataclass(frozen=True, slots=True)
class Ceilings:
    """What this machine itself reaches."""

    copy_bytes_per_second: float
    matmul_flops_per_second: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """`prepare` makes calls that do the same work on different data."""

    name: str
    prepare: Callable[[torch.device], Sequence[Call]]
    num_bytes: float = 0.0
    flops: float = 0.0  # if it is this that limits the kernel
    mark: float | None = None
    base: str | None = None  # the case whose time this one is compared with
    most_ratio: float | None = None
    kernel: str = ""  # cases that share it launch the same compiled code


@dataclass(frozen=True, slots=True, eq=False)
class Compared:
    """What a kernel gave and what is right."""

    found: torch.Tensor
    exact: torch.Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """`reference` needs no GPU; `compare` runs the kernel beside it."""

    name: str
    compare: Callable[[torch.device], Compared]
    reference: Callable[[torch.device], torch.Tensor]
    tolerance: float
    is_share: bool = False  # the error is the share of numbers that differ


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What was measured before a stage: by others, and by itself if it is begun again."""

    ceilings: Ceilings | None = None
    rows: Mapping[str, Row] = field(default_factory=dict)  # this stage's, by name


class ContextLostError(Exception):
    """An error of the device after which this process can launch nothing."""


def timed(stage: str, cases: Iterable[Case], known: Known) -> Iterator[Row]:
    """A row for every case that has none, whatever happens to the ones before it."""
    seconds = {row.name: row.microseconds / 1e6 for row in known.rows.values() if row.microseconds}
    for case in cases:
        if case.name in known.rows:
            continue
        try:
            timing = measure(case.prepare(torch.device("cuda")))
        except Exception as error:
            yield Row(stage=stage, name=case.name, failed=reason(error))
            check_context()
        else:
            seconds[case.name] = timing.seconds
            base = seconds.get(case.base or "")
            yield timed_row(stage, case, timing, known.ceilings, base=base)
        torch.cuda.empty_cache()


def check_context() -> None:
    """An address that does not exist, once read, fails every later call of the process."""
    if not torch.cuda.is_available():
        return
    try:
        torch.cuda.synchronize()
    except RuntimeError as error:
        raise ContextLostError from error


def timed_row(
    stage: str, case: Case, timing: Timing, ceilings: Ceilings | None, *, base: float | None
) -> Row:
    """Without ceilings no share can be told, and a case that has a mark does not pass."""
    rate = (case.flops or case.num_bytes) / timing.seconds
    ceiling = None
    if ceilings is not None:
        by_bytes, by_flops = ceilings.copy_bytes_per_second, ceilings.matmul_flops_per_second
        ceiling = by_flops if case.flops else by_bytes
    return Row(
        stage=stage,
        name=case.name,
        microseconds=timing.seconds * 1e6,
        spread=timing.spread,
        rate=rate / (1e12 if case.flops else 1e9),
        unit="TFLOP/s" if case.flops else "GB/s",
        share=None if ceiling is None else rate / ceiling,
        mark=case.mark,
        ratio=None if base is None else timing.seconds / base,
        most_ratio=case.most_ratio,
    )


def checked(stage: str, checks: Iterable[Check], known: Known) -> Iterator[Row]:
    for check in checks:
        if check.name in known.rows:
            continue
        try:
            error = distance(check.compare(torch.device("cuda")), is_share=check.is_share)
        except Exception as problem:
            yield Row(stage=stage, name=check.name, failed=reason(problem))
            check_context()
        else:
            if math.isfinite(error):
                yield Row(stage=stage, name=check.name, error=error, tolerance=check.tolerance)
            else:
                yield Row(stage=stage, name=check.name, failed="NaN, Inf or another shape")


def distance(compared: Compared, *, is_share: bool) -> float:
    """The share of numbers that differ, or || found - exact || / || exact ||; NaN is infinite."""
    found, exact = compared.found, compared.exact
    if found.shape != exact.shape:
        return float("inf")
    if is_share:
        return float((found != exact).double().mean())
    found, exact = found.double(), exact.double()
    if not bool(torch.isfinite(found).all()):
        return float("inf")
    return float((found - exact).norm() / exact.norm().clamp_min(1e-300))


def reason(error: Exception) -> str:
    """One line that finds the place."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {error} ({last.filename.rsplit('/', 1)[-1]}:{last.lineno})"
