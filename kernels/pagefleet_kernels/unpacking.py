"""How much of a quantized weight a product unpacks at a time, and what it takes beside its result.

A kernel reads packed weights and needs nothing, but from LARGE_BATCH rows on a library multiplies
by the whole weight in the input's type. Plain torch unpacks some outputs at a time, first in
float32, and multiplies by them before it goes on.
"""

LARGE_BATCH = 256  # rows; from here on a library's product of unpacked weights is faster
UNPACKED_OUTPUTS = 1024
_EXACT_BYTES = 4


def unpacked_outputs(out_features: int, *, has_kernel: bool) -> int:
    """Outputs that are unpacked at a time."""
    return out_features if has_kernel else min(out_features, UNPACKED_OUTPUTS)


def product_bytes(
    *, num_rows: int, in_features: int, out_features: int, itemsize: int, has_kernel: bool
) -> int:
    """The most that a product holds beside its input, weight and result, whose type is `itemsize`.

    Sums of a kernel that divides its inputs are left out: they fit two tiles a processor.
    """
    outputs = unpacked_outputs(out_features, has_kernel=has_kernel)
    elements = outputs * in_features
    if has_kernel:
        return elements * itemsize if num_rows >= LARGE_BATCH else 0
    rounded = elements * itemsize if itemsize < _EXACT_BYTES else 0
    codes = elements // 2  # of int4, taken apart in bytes
    exact = elements * _EXACT_BYTES
    return max(exact + max(rounded, codes), (rounded or exact) + num_rows * outputs * itemsize)
