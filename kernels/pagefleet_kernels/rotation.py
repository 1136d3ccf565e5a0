"""The rotation of the 4-bit mode: each group of a row times a Hadamard matrix of its size.

A value that stands out is spread over its group, which then fits 16 steps better. The matrix is
orthonormal and symmetric, so rotating twice gives the row back, and the product of a rotated query
with a rotated key is that of the plain ones: attention reads stored keys as they are, rotates the
query before and its output after.
"""

import torch


def rotate(rows: torch.Tensor, group: int) -> torch.Tensor:
    """Rows [..., width] with every `group` neighbours rotated, in float32.

    Sums of two, log2(group) times: a row's bits depend on that row alone, which a matrix product
    (summed in an order that depends on the batch) does not promise.
    """
    rotated, shape = rows.float(), rows.shape
    distance = 1
    while distance < group:
        pairs = rotated.reshape(*shape[:-1], shape[-1] // (2 * distance), 2, distance)
        low, high = pairs[..., 0, :], pairs[..., 1, :]
        rotated = torch.stack([low + high, low - high], dim=-2).reshape(shape)
        distance *= 2
    return rotated.mul(group**-0.5)
