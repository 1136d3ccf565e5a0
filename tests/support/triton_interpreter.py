"""Triton's interpreter with right bf16 and fp8 numbers.

The interpreter keeps a bf16 or fp8 tensor as its bit patterns in numpy integers and computes on
those, silently. Here every operation decodes to float32, computes and rounds back as hardware
does: to nearest even, fp8 saturating. `install` is for one process that runs nothing else.
"""

import os
import sys
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

Array = npt.NDArray[Any]

VARIABLE = "TRITON_INTERPRET"
KERNELS = "pagefleet_kernels.gpu."


class CompiledKernels(Exception):
    """Kernels were imported before the interpreter was chosen, which happens at decoration."""


def install() -> None:
    """Interpret every kernel that is imported from now on, with the numbers put right."""
    early = sorted(name for name in sys.modules if name.startswith(KERNELS))
    if early and os.environ.get(VARIABLE) != "1":
        raise CompiledKernels(
            f"{early[0]} was imported without {VARIABLE}=1; give the interpreted tests a process "
            "of their own: make kernels"
        )
    os.environ[VARIABLE] = "1"
    from triton.runtime import interpreter

    if not hasattr(interpreter, "pagefleet_numbers"):
        interpreter.pagefleet_numbers = True
        _patch(interpreter)


class NarrowFloat:
    """One format that numpy lacks: codes to float32 and back."""

    def __init__(self, dtype: torch.dtype) -> None:
        bits = dtype.itemsize * 8
        self._dtype = dtype
        self._codes = torch.uint8 if bits == 8 else torch.uint16
        self._largest = torch.finfo(dtype).max if bits == 8 else None
        signed = torch.arange(1 << bits, dtype=torch.int32).to(self._codes)
        self._meaning = signed.view(dtype).float().numpy()

    def decode(self, codes: Array) -> Array:
        return np.asarray(self._meaning[codes])

    def encode(self, values: Array) -> Array:
        """Round to nearest even; beyond the largest finite fp8 stays the largest, NaN stays NaN."""
        exact = torch.from_numpy(np.array(values, dtype=np.float32))
        if self._largest is not None:
            exact = exact.clamp(-self._largest, self._largest)
        return np.asarray(exact.to(self._dtype).view(self._codes).numpy())


def _patch(interpreter: Any) -> None:
    import triton.language as tl

    formats = {
        tl.bfloat16: NarrowFloat(torch.bfloat16),
        tl.float8e4nv: NarrowFloat(torch.float8_e4m3fn),
        tl.float8e5: NarrowFloat(torch.float8_e5m2),
    }
    numbers = _Numbers(interpreter, formats)
    _patch_casts(interpreter, numbers, tl)
    _patch_arithmetic(interpreter, numbers, tl)
    _patch_reductions(interpreter, numbers, tl)


class _Numbers:
    """Handles of the interpreter as numbers and back."""

    def __init__(self, interpreter: Any, formats: dict[Any, NarrowFloat]) -> None:
        self._interpreter = interpreter
        self._formats = formats

    def is_narrow(self, *dtypes: Any) -> bool:
        return any(dtype.scalar in self._formats for dtype in dtypes)

    def values(self, handle: Any) -> Array:
        known = self._formats.get(handle.dtype.scalar)
        return np.asarray(handle.data) if known is None else known.decode(handle.data)

    def handle(self, values: Array, dtype: Any) -> Any:
        known = self._formats.get(dtype.scalar)
        if known is None:
            data = values.astype(self._interpreter._get_np_dtype(dtype))
        else:
            data = known.encode(values)
        return self._interpreter.TensorHandle(data, dtype.scalar)


def _patch_casts(interpreter: Any, numbers: _Numbers, tl: Any) -> None:
    builder = interpreter.InterpreterBuilder
    plain_cast, plain_fp_to_fp = builder.cast_impl, builder.create_fp_to_fp

    def cast(self: Any, src: Any, dst: Any) -> Any:
        if numbers.is_narrow(src.dtype, dst):
            return numbers.handle(numbers.values(src), dst)
        return plain_cast(self, src, dst)

    def fp_to_fp(self: Any, src: Any, dst: Any, rounding: Any) -> Any:
        if numbers.is_narrow(src.dtype, dst):
            assert rounding != interpreter._ir.ROUNDING_MODE.RTZ, "only rounding to nearest even"
            return numbers.handle(numbers.values(src), dst)
        return plain_fp_to_fp(self, src, dst, rounding)

    def bf16(self: Any, value: float) -> Any:
        return numbers.handle(np.array([value], dtype=np.float32), tl.bfloat16)

    builder.cast_impl = cast
    builder.create_fp_to_fp = fp_to_fp
    builder.get_bf16 = bf16


def _patch_arithmetic(interpreter: Any, numbers: _Numbers, tl: Any) -> None:
    builder = interpreter.InterpreterBuilder
    plain = {name: getattr(builder, f"{name}_op") for name in ("unary", "binary", "ternary")}
    plain_fma, plain_dot = builder.create_fma, builder.create_dot

    def result(values: Array, dtype: Any) -> Any:
        return numbers.handle(values, tl.int1 if values.dtype == np.bool_ else dtype)

    def unary(self: Any, arg: Any, op: Any) -> Any:
        if numbers.is_narrow(arg.dtype):
            return result(op(numbers.values(arg)), arg.dtype)
        return plain["unary"](self, arg, op)

    def binary(self: Any, lhs: Any, rhs: Any, op: Any) -> Any:
        if numbers.is_narrow(lhs.dtype):
            return result(op(numbers.values(lhs), numbers.values(rhs)), lhs.dtype)
        return plain["binary"](self, lhs, rhs, op)

    def ternary(self: Any, lhs: Any, rhs: Any, other: Any, op: Any) -> Any:
        if numbers.is_narrow(other.dtype) and op is not np.where:  # where moves codes as they are
            values = op(numbers.values(lhs), numbers.values(rhs), numbers.values(other))
            return result(values, other.dtype)
        return plain["ternary"](self, lhs, rhs, other, op)

    def fma(self: Any, x: Any, y: Any, z: Any) -> Any:
        if numbers.is_narrow(z.dtype):
            product = numbers.values(x).astype(np.float64) * numbers.values(y)
            return result(product + numbers.values(z), z.dtype)
        return plain_fma(self, x, y, z)

    def dot(self: Any, a: Any, b: Any, d: Any, *precision: Any) -> Any:
        if numbers.is_narrow(a.dtype, b.dtype):
            product = np.matmul(numbers.values(a), numbers.values(b), dtype=np.float32)
            return result(product + numbers.values(d), d.dtype)
        return plain_dot(self, a, b, d, *precision)

    builder.unary_op, builder.binary_op, builder.ternary_op = unary, binary, ternary
    builder.create_fma, builder.create_dot = fma, dot


def _patch_reductions(interpreter: Any, numbers: _Numbers, tl: Any) -> None:
    """Sums, extremes and running sums; a combining function of one's own goes through `binary`."""

    def as_float32(tensor: Any) -> Any:
        handle = interpreter.TensorHandle(numbers.values(tensor.handle), tl.float32)
        return tl.core.tensor(handle, tl.block_type(tl.float32, list(tensor.shape)))

    def rounded(outcome: Any, dtype: Any) -> Any:
        if isinstance(outcome, tuple | list):
            return type(outcome)(rounded(each, dtype) for each in outcome)
        if outcome.dtype != tl.float32:
            return outcome  # an index
        handle = numbers.handle(outcome.handle.data, dtype)
        shape = [int(size) for size in outcome.shape]
        return tl.core.tensor(handle, tl.block_type(dtype, shape) if shape else dtype)

    def wrap(owner: Any, name: str) -> None:
        plain = getattr(owner, name)

        def patched(self: Any, given: Any, *args: Any, **kwargs: Any) -> Any:
            tensor = given[0] if isinstance(given, tuple) else given
            if not numbers.is_narrow(tensor.dtype):
                return plain(self, given, *args, **kwargs)
            return rounded(plain(self, as_float32(tensor), *args, **kwargs), tensor.dtype)

        setattr(owner, name, patched)

    wrap(interpreter.ReduceOps, "sum")
    wrap(interpreter.ReduceOps, "min_max")
    wrap(interpreter.ScanOps, "cumsum")
