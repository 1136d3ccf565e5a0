"""The interpreter's bf16 and fp8 numbers, as patched for these tests, against torch.

Covered: every code of bf16, e4m3 and e5m2, casts, arithmetic, extremes, comparisons, constants,
select, dot, sum, maximum, index of the maximum, running sums, a reduction of one's own.
Left out: rounding towards zero, which no kernel asks for.
"""

from collections.abc import Callable

import pytest
import torch
import triton
import triton.language as tl

BF16, E4M3, E5M2 = torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2
NARROW = (BF16, E4M3, E5M2)


@triton.jit
def cast_kernel(source, target, count, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < count
    tl.store(target + at, tl.load(source + at, mask=inside).to(target.dtype.element_ty), inside)


@triton.jit
def binary_kernel(left, right, target, OPERATION: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    x, y = tl.load(left + at), tl.load(right + at)
    if OPERATION == "add":
        z = x + y
    elif OPERATION == "subtract":
        z = x - y
    elif OPERATION == "multiply":
        z = x * y
    elif OPERATION == "maximum":
        z = tl.maximum(x, y)
    elif OPERATION == "minimum":
        z = tl.minimum(x, y)
    elif OPERATION == "less":
        z = x < y
    elif OPERATION == "equal":
        z = x == y
    elif OPERATION == "both":
        z = (x < y) & (x > -y)
    elif OPERATION == "select":
        z = tl.where(x < y, x, y)
    elif OPERATION == "constant":
        z = x * 0.3 + 136.0
    elif OPERATION == "negate":
        z = -x
    else:
        z = tl.fma(x, y, x)
    tl.store(target + at, z)


@triton.jit
def dot_kernel(a, b, target, M: tl.constexpr, K: tl.constexpr, N: tl.constexpr):
    rows, depth, columns = tl.arange(0, M), tl.arange(0, K), tl.arange(0, N)
    left = tl.load(a + rows[:, None] * K + depth[None, :])
    right = tl.load(b + depth[:, None] * N + columns[None, :])
    tl.store(target + rows[:, None] * N + columns[None, :], tl.dot(left, right))


@triton.jit
def add_both(x, y):
    return x + y


@triton.jit
def reduce_kernel(source, values, index, running, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    rows, columns = tl.arange(0, ROWS), tl.arange(0, COLUMNS)
    x = tl.load(source + rows[:, None] * COLUMNS + columns[None, :])
    largest, where = tl.max(x, axis=1, return_indices=True)
    tl.store(values + rows, tl.sum(x, axis=1))
    tl.store(values + ROWS + rows, tl.max(x, axis=1))
    tl.store(values + 2 * ROWS + rows, tl.min(x, axis=1))
    tl.store(values + 3 * ROWS + rows, largest)
    tl.store(values + 4 * ROWS + rows, tl.reduce(x, 1, add_both))
    tl.store(index + rows, where)
    tl.store(running + rows[:, None] * COLUMNS + columns[None, :], tl.cumsum(x, axis=1))


def cast(source: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    target = torch.empty(source.shape, dtype=dtype)
    cast_kernel[(triton.cdiv(source.numel(), 65536),)](source, target, source.numel(), BLOCK=65536)
    return target


def every_code(dtype: torch.dtype) -> torch.Tensor:
    bits = 8 * dtype.itemsize
    codes = torch.arange(1 << bits, dtype=torch.int32)
    return codes.to(torch.uint8 if bits == 8 else torch.uint16).view(dtype)


def reals(count: int, *, scale: float = 1.0, seed: int = 0) -> torch.Tensor:
    """Numbers over many exponents, and those that formats treat in their own way."""
    generator = torch.Generator().manual_seed(seed)
    spread = torch.randn(count, generator=generator) * 4
    numbers = torch.randn(count, generator=generator) * torch.exp2(spread) * scale
    special = [0.0, -0.0, 1.0, float("nan"), float("inf"), -float("inf"), 1e-30, 3.0e38]
    numbers[: len(special)] = torch.tensor(special)
    return numbers


def rounded(values: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """What hardware makes of float32: to nearest even, fp8 saturating."""
    if dtype is not BF16:
        largest = torch.finfo(dtype).max
        values = values.clamp(-largest, largest)
    return values.to(dtype)


def assert_same(found: torch.Tensor, expected: torch.Tensor) -> None:
    assert found.dtype == expected.dtype
    torch.testing.assert_close(found.float(), expected.float(), rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("dtype", NARROW, ids=str)
def test_every_code_means_what_torch_says(dtype: torch.dtype) -> None:
    codes = every_code(dtype)
    assert_same(cast(codes, torch.float32), codes.float())
    if dtype is not BF16:
        assert_same(cast(codes, torch.float16), codes.half())
        assert_same(cast(codes, BF16), codes.bfloat16())


@pytest.mark.parametrize("dtype", NARROW, ids=str)
@pytest.mark.parametrize("source", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_casts_round_to_nearest_even_and_saturate(source: torch.dtype, dtype: torch.dtype) -> None:
    if source == dtype:
        values = every_code(dtype)
    else:
        values = reals(200_000, scale=1.0 if dtype is BF16 else 8.0).to(source)
    assert_same(cast(values, dtype), rounded(values.float(), dtype))


@pytest.mark.parametrize("dtype", NARROW, ids=str)
def test_halfway_between_two_codes_goes_to_the_even_one(dtype: torch.dtype) -> None:
    codes = every_code(dtype).float()
    finite = codes[torch.isfinite(codes) & (codes >= 0)].sort().values
    middles = (finite[1:].double() + finite[:-1].double()).div(2).float()
    codes_found = cast(middles, dtype).view(torch.uint8 if dtype.itemsize == 1 else torch.int16)
    assert (codes_found % 2 == 0).all()


@pytest.mark.parametrize("source", [torch.int8, torch.int32], ids=str)
@pytest.mark.parametrize("dtype", [BF16, torch.float32], ids=str)
def test_integers_become_floats(source: torch.dtype, dtype: torch.dtype) -> None:
    numbers = torch.arange(-128, 128).to(source)
    assert_same(cast(numbers, dtype), numbers.to(dtype))


def test_floats_become_integers_by_truncation() -> None:
    values = torch.tensor([-2.75, -0.5, 0.0, 0.99, 3.5, 100.0, 7.0, 1.5], dtype=BF16)
    assert_same(cast(values, torch.int32), values.to(torch.int32))


OPERATIONS: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "add": torch.add,
    "subtract": torch.sub,
    "multiply": torch.mul,
    "maximum": torch.fmax,
    "minimum": torch.fmin,
    "negate": lambda x, y: -x,
    "select": lambda x, y: torch.where(x < y, x, y),
    "fused": lambda x, y: (x.double() * y.double() + x.double()).float(),
}


CASES = [
    (dtype, operation)
    for dtype in NARROW
    for operation in OPERATIONS
    if dtype is BF16 or operation != "fused"  # there is no fused multiplication of fp8
]


@pytest.mark.parametrize(("dtype", "operation"), CASES, ids=str)
def test_arithmetic_is_rounded_once(dtype: torch.dtype, operation: str) -> None:
    x, y = (rounded(reals(256, seed=seed), dtype) for seed in (1, 2))
    found = torch.empty(256, dtype=dtype)
    binary_kernel[(1,)](x, y, found, OPERATION=operation, BLOCK=256)
    assert_same(found, rounded(OPERATIONS[operation](x.float(), y.float()), dtype))


def test_constants_are_rounded_to_the_tensors_type() -> None:
    x = reals(256, seed=3).to(BF16)
    found = torch.empty(256, dtype=BF16)
    binary_kernel[(1,)](x, x, found, OPERATION="constant", BLOCK=256)
    assert_same(found, x * torch.tensor(0.3, dtype=BF16) + torch.tensor(136.0, dtype=BF16))


@pytest.mark.parametrize("operation", ["less", "equal", "both"])
@pytest.mark.parametrize("dtype", NARROW, ids=str)
def test_comparisons_are_those_of_the_numbers(operation: str, dtype: torch.dtype) -> None:
    x, y = (rounded(reals(256, seed=seed), dtype) for seed in (4, 5))
    y[::3] = x[::3]
    found = torch.empty(256, dtype=torch.bool)
    binary_kernel[(1,)](x, y, found, OPERATION=operation, BLOCK=256)
    a, b = x.float(), y.float()
    expected = {"less": a < b, "equal": a == b, "both": (a < b) & (a > -b)}
    assert torch.equal(found, expected[operation])


@pytest.mark.parametrize("dtype", NARROW, ids=str)
def test_dot_is_the_product_of_the_numbers(dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(0)
    a = rounded(torch.randn(16, 64, generator=generator), dtype)
    b = rounded(torch.randn(64, 32, generator=generator), dtype)
    found = torch.full((16, 32), float("nan"))
    dot_kernel[(1,)](a, b, found, M=16, K=64, N=32)
    exact = a.double() @ b.double()
    assert float((found - exact).norm() / exact.norm()) < 1e-6


def test_reductions_are_those_of_the_numbers() -> None:
    x = torch.randn(8, 16, generator=torch.Generator().manual_seed(0)).to(BF16)
    values = torch.empty(5, 8, dtype=BF16)
    index = torch.empty(8, dtype=torch.int32)
    running = torch.empty(8, 16, dtype=BF16)
    reduce_kernel[(1,)](x, values, index, running, ROWS=8, COLUMNS=16)
    assert_same(values[0], x.float().sum(dim=1).to(BF16))
    assert_same(values[1], x.amax(dim=1))
    assert_same(values[2], x.amin(dim=1))
    assert_same(values[3], x.amax(dim=1))
    one_by_one = x[:, 0].clone()
    for column in x.T[1:]:
        one_by_one = one_by_one + column
    assert_same(values[4], one_by_one)
    assert torch.equal(index.long(), x.float().argmax(dim=1))
    assert_same(running, x.float().cumsum(dim=1).to(BF16))
