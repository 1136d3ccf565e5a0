"""Everything below this folder runs in Triton's interpreter, in a process of its own."""

from collections.abc import Iterator

import numpy as np
import pytest

from tests.support import triton_interpreter

try:
    triton_interpreter.install()
except triton_interpreter.CompiledKernels as error:
    raise pytest.UsageError(str(error)) from error


@pytest.fixture(autouse=True)
def numpy_like_hardware() -> Iterator[None]:
    """A kernel's overflow or 0/0 gives Inf or NaN, not a warning."""
    with np.errstate(all="ignore"):
        yield
