"""fp8 weights with one scale per block of 128 x 128; no kernel reads them, they are unpacked."""

from dataclasses import dataclass

import torch

from pagefleet_kernels.checks import check_tensor

BLOCK = 128


@dataclass(frozen=True, slots=True, eq=False)
class Fp8BlockWeight:
    """One linear layer's weight: code * the scale of its block; blocks at the edges are cut."""

    codes: torch.Tensor  # [out_features, in_features] float8_e4m3fn
    scales: torch.Tensor  # [ceil(out_features / 128), ceil(in_features / 128)] float32

    def __post_init__(self) -> None:
        blocks = tuple(-(-size // BLOCK) for size in self.codes.shape)
        device = self.codes.device
        check_tensor("scales", self.scales, shape=blocks, dtypes=(torch.float32,), device=device)

    @property
    def in_features(self) -> int:
        return self.codes.shape[1]

    @property
    def out_features(self) -> int:
        return self.codes.shape[0]

    @property
    def num_bytes(self) -> int:
        return self.codes.numel() + self.scales.numel() * self.scales.itemsize

    def rows(self, start: int, stop: int) -> torch.Tensor:
        """Outputs of `start`, a multiple of 128, to `stop`: [stop - start, in_features] float32."""
        scales = self.scales[start // BLOCK : -(-stop // BLOCK)]
        wide = scales.repeat_interleave(BLOCK, dim=1)[:, : self.in_features]
        exact = self.codes[start:stop].float()
        for block, scale in zip(torch.split(exact, BLOCK), wide, strict=True):
            block *= scale
        return exact
