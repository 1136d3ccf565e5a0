"""Refuse tensors that a kernel would turn into wrong numbers: it reads whatever they point to."""

from collections.abc import Collection

import torch

from pagefleet_kernels.errors import ArgumentError


def check(holds: bool, name: str, found: object, wanted: str) -> None:
    if not holds:
        raise ArgumentError(name, found, f"must be {wanted}")


def check_tensor(
    name: str,
    tensor: torch.Tensor,
    *,
    shape: tuple[int | None, ...],
    dtypes: Collection[torch.dtype],
    device: torch.device,
) -> None:
    """Shape (None: any size), number format, device, and rows without gaps between elements."""
    found = tuple(tensor.shape)
    fits = len(found) == len(shape) and all(
        want is None or size == want for size, want in zip(found, shape, strict=True)
    )
    sizes = ", ".join("any" if size is None else str(size) for size in shape)
    check(fits, f"{name}.shape", found, f"({sizes})")
    check(tensor.dtype in dtypes, f"{name}.dtype", tensor.dtype, _one_of(dtypes))
    check(tensor.device == device, f"{name}.device", tensor.device, str(device))
    if tensor.numel() and tensor.shape[-1] > 1:
        check(tensor.stride(-1) == 1, f"{name}.stride(-1)", tensor.stride(-1), "1")


def _one_of(dtypes: Collection[torch.dtype]) -> str:
    return " or ".join(sorted(map(str, dtypes)))
