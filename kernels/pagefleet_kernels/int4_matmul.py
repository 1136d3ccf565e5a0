"""Multiply by int4 weights in groups of 128 (AWQ): the format and the reference in plain torch.

AWQ's own tensors keep eight neighbouring outputs in one int32, which a GPU has to shuffle. They
are repacked once, at load, so that 64 bytes in a row hold one group of one output:

codes       [ num_groups, out_features, 64 ]     low nibble: input r of the group, high: r + 64
weight      (code - zero) * scale, scale and zero per group and output
"""

from dataclasses import dataclass

import torch

from pagefleet_kernels.checks import check, check_tensor

GROUP = 128
HALF = GROUP // 2
X_DTYPES = (torch.float16, torch.bfloat16)
# Where AWQ keeps output j of eight: in nibble AWQ_NIBBLES[j] of the int32.
AWQ_NIBBLES = (0, 4, 1, 5, 2, 6, 3, 7)


@dataclass(frozen=True, slots=True, eq=False)
class Int4Weight:
    """One linear layer's weight."""

    codes: torch.Tensor  # [num_groups, out_features, 64] uint8
    scales: torch.Tensor  # [num_groups, out_features], in the type of the layer's input
    zeros: torch.Tensor  # [num_groups, out_features], likewise: 0 to 15

    @property
    def in_features(self) -> int:
        return self.codes.shape[0] * GROUP

    @property
    def out_features(self) -> int:
        return self.codes.shape[1]


def repack_awq(
    qweight: torch.Tensor,  # [in_features, out_features / 8] int32
    qzeros: torch.Tensor,  # [num_groups, out_features / 8] int32
    scales: torch.Tensor,  # [num_groups, out_features]
) -> Int4Weight:
    """From the tensors of an AWQ checkpoint with groups of 128."""
    in_features, out_features = qweight.shape[0], qweight.shape[1] * 8
    check(in_features % GROUP == 0, "qweight.shape[0]", in_features, f"a multiple of {GROUP}")
    num_groups, device = in_features // GROUP, qweight.device
    for name, packed, rows in (("qweight", qweight, in_features), ("qzeros", qzeros, num_groups)):
        shape = (rows, out_features // 8)
        check_tensor(name, packed, shape=shape, dtypes=(torch.int32,), device=device)
    shape = (num_groups, out_features)
    check_tensor("scales", scales, shape=shape, dtypes=X_DTYPES, device=device)
    return pack_int4(_unpack_awq(qweight), scales, _unpack_awq(qzeros).to(scales.dtype))


def pack_int4(
    codes: torch.Tensor,  # [in_features, out_features], 0 to 15
    scales: torch.Tensor,  # [num_groups, out_features]
    zeros: torch.Tensor,  # [num_groups, out_features]
) -> Int4Weight:
    halves = codes.to(torch.uint8).view(-1, 2, HALF, codes.shape[1])  # [groups, low|high, 64, out]
    packed = halves[:, 0] | (halves[:, 1] << 4)
    return Int4Weight(packed.transpose(1, 2).contiguous(), scales.contiguous(), zeros.contiguous())


def dequantize_int4(weight: Int4Weight) -> torch.Tensor:
    """[out_features, in_features] in float32, as `torch.nn.functional.linear` takes it."""
    codes = torch.cat([weight.codes & 0xF, weight.codes >> 4], dim=2).float()
    exact = (codes - weight.zeros.float()[..., None]) * weight.scales.float()[..., None]
    return exact.transpose(0, 1).reshape(weight.out_features, weight.in_features)


def int4_matmul_reference(x: torch.Tensor, weight: Int4Weight) -> torch.Tensor:
    """[num_tokens, in_features] to [num_tokens, out_features], in x's type."""
    check_int4_matmul(x, weight)
    return (x.float() @ dequantize_int4(weight).T).to(x.dtype)


def check_int4_matmul(x: torch.Tensor, weight: Int4Weight) -> None:
    check_tensor(
        "codes", weight.codes, shape=(None, None, HALF), dtypes=(torch.uint8,), device=x.device
    )
    check_tensor("x", x, shape=(None, weight.in_features), dtypes=X_DTYPES, device=x.device)
    shape = (weight.codes.shape[0], weight.out_features)
    for name, tensor in (("scales", weight.scales), ("zeros", weight.zeros)):
        check_tensor(name, tensor, shape=shape, dtypes=(x.dtype,), device=x.device)
    for name, tensor in (
        ("codes", weight.codes),
        ("scales", weight.scales),
        ("zeros", weight.zeros),
    ):
        check(tensor.is_contiguous(), f"{name}.stride()", tensor.stride(), "that of no gaps")


def _unpack_awq(packed: torch.Tensor) -> torch.Tensor:
    """[rows, out_features / 8] int32 to [rows, out_features] codes."""
    shifts = torch.tensor(AWQ_NIBBLES, device=packed.device, dtype=torch.int32) * 4
    return ((packed[:, :, None] >> shifts) & 0xF).flatten(1)
