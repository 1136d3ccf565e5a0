"""Multiply by int4 weights in groups (AWQ, GPTQ): the format and the reference in plain torch.

Checkpoints keep eight neighbouring numbers in one int32, which a GPU has to shuffle. They are
repacked once, at load, so that half a group's bytes in a row hold one group of one output:

codes       [ num_groups, out_features, group / 2 ]  low nibble: input r, high: r + group / 2
zeros       [ num_groups, out_features / 2 ]         low nibble: even output, high: the odd one
weight      (code - zero) * scale, scale and zero per group and output
"""

from dataclasses import dataclass

import torch

from pagefleet_kernels.checks import check, check_tensor

GROUPS = (32, 64, 128)
X_DTYPES = (torch.float16, torch.bfloat16)
MIDDLE = 8  # the zero of a weight that has none of its own
# Where AWQ keeps output j of eight: in nibble AWQ_NIBBLES[j] of the int32.
AWQ_NIBBLES = (0, 4, 1, 5, 2, 6, 3, 7)
# GPTQ keeps number j of eight, inputs of codes and outputs of zeros, in nibble j.
GPTQ_NIBBLES = (0, 1, 2, 3, 4, 5, 6, 7)


@dataclass(frozen=True, slots=True, eq=False)
class Int4Weight:
    """One linear layer's weight."""

    codes: torch.Tensor  # [num_groups, out_features, group / 2] uint8
    scales: torch.Tensor  # [num_groups, out_features], in the type of the layer's input
    zeros: torch.Tensor | None  # [num_groups, out_features / 2] uint8; None: all are 8

    @property
    def group(self) -> int:
        return 2 * self.codes.shape[2]

    @property
    def in_features(self) -> int:
        return self.codes.shape[0] * self.group

    @property
    def out_features(self) -> int:
        return self.codes.shape[1]

    @property
    def num_bytes(self) -> int:
        tensors = (self.codes, self.scales, *(() if self.zeros is None else (self.zeros,)))
        return sum(each.numel() * each.itemsize for each in tensors)

    def rows(self, start: int, stop: int) -> torch.Tensor:
        """Outputs of an even `start` to `stop`: [stop - start, in_features] in float32."""
        codes = self.codes[:, start:stop].transpose(0, 1)
        outputs, num_groups, half = codes.shape
        exact = codes.new_empty(outputs, num_groups, self.group, dtype=torch.float32)
        exact[..., :half] = codes & 0xF
        exact[..., half:] = codes >> 4
        exact -= MIDDLE if self.zeros is None else self._zeros(start, stop).transpose(0, 1)
        exact *= self.scales[:, start:stop].float().T[..., None]
        return exact.flatten(1)

    def _zeros(self, start: int, stop: int) -> torch.Tensor:
        """[num_groups, stop - start, 1] in float32."""
        assert self.zeros is not None
        pairs = self.zeros[:, start // 2 : stop // 2]
        return torch.stack([pairs & 0xF, pairs >> 4], dim=2).flatten(1).float()[..., None]


def repack_awq(
    qweight: torch.Tensor,  # [in_features, out_features / 8] int32
    qzeros: torch.Tensor,  # [num_groups, out_features / 8] int32
    scales: torch.Tensor,  # [num_groups, out_features]
) -> Int4Weight:
    """From the tensors of an AWQ checkpoint; how many scales there are tells its group."""
    _check_packed(qweight, qzeros, scales, codes_shape=(None, qweight.shape[1]))
    codes = _unpack(qweight, AWQ_NIBBLES).flatten(1)
    return pack_int4(codes, scales, _unpack(qzeros, AWQ_NIBBLES).flatten(1))


def repack_gptq(
    qweight: torch.Tensor,  # [in_features / 8, out_features] int32
    qzeros: torch.Tensor,  # [num_groups, out_features / 8] int32
    scales: torch.Tensor,  # [num_groups, out_features]
    *,
    zeros_less_one: bool,
) -> Int4Weight:
    """From a GPTQ checkpoint whose groups are neighbours; its first form stores zeros less one."""
    _check_packed(qweight, qzeros, scales, codes_shape=(None, scales.shape[1]))
    codes = _unpack(qweight, GPTQ_NIBBLES).transpose(1, 2).flatten(0, 1)
    zeros = _unpack(qzeros, GPTQ_NIBBLES).flatten(1)
    zeros = (zeros + 1) & 0xF if zeros_less_one else zeros
    return pack_int4(codes, scales, None if bool((zeros == MIDDLE).all()) else zeros)


def pack_int4(
    codes: torch.Tensor,  # [in_features, out_features], 0 to 15
    scales: torch.Tensor,  # [num_groups, out_features]
    zeros: torch.Tensor | None,  # [num_groups, out_features], 0 to 15
) -> Int4Weight:
    (in_features, width), num_groups = codes.shape, scales.shape[0]
    group = in_features // num_groups
    found = (in_features, num_groups)
    wanted = f"a number of inputs, and of groups of {', '.join(map(str, GROUPS))} that fill them"
    check(group in GROUPS and group * num_groups == in_features, "codes, scales", found, wanted)
    check(width % 2 == 0, "codes.shape[1]", width, "even")
    halves = codes.to(torch.uint8).view(num_groups, 2, group // 2, width)
    packed = halves[:, 0] | (halves[:, 1] << 4)  # [num_groups, group / 2, out_features]
    if zeros is not None:
        pairs = zeros.to(torch.uint8).view(num_groups, -1, 2)
        zeros = pairs[:, :, 0] | (pairs[:, :, 1] << 4)
    return Int4Weight(packed.transpose(1, 2).contiguous(), scales.contiguous(), zeros)


def dequantize_int4(weight: Int4Weight) -> torch.Tensor:
    """[out_features, in_features] in float32, as `torch.nn.functional.linear` takes it."""
    return weight.rows(0, weight.out_features)


def int4_matmul_reference(x: torch.Tensor, weight: Int4Weight) -> torch.Tensor:
    """[num_tokens, in_features] to [num_tokens, out_features], in x's type."""
    check_int4_matmul(x, weight)
    return (x.float() @ dequantize_int4(weight).T).to(x.dtype)


def check_int4_matmul(x: torch.Tensor, weight: Int4Weight) -> None:
    codes, device = weight.codes, x.device
    check_tensor("codes", codes, shape=(None, None, None), dtypes=(torch.uint8,), device=device)
    check(weight.group in GROUPS, "codes.shape[2]", codes.shape[2], "half of 32, 64 or 128")
    check(codes.shape[1] % 2 == 0, "codes.shape[1]", codes.shape[1], "even")
    check_tensor("x", x, shape=(None, weight.in_features), dtypes=X_DTYPES, device=device)
    shape = (codes.shape[0], codes.shape[1])
    check_tensor("scales", weight.scales, shape=shape, dtypes=(x.dtype,), device=device)
    named = [("codes", codes), ("scales", weight.scales)]
    if weight.zeros is not None:
        pairs = (codes.shape[0], codes.shape[1] // 2)
        check_tensor("zeros", weight.zeros, shape=pairs, dtypes=(torch.uint8,), device=device)
        named.append(("zeros", weight.zeros))
    for name, tensor in named:
        check(tensor.is_contiguous(), f"{name}.stride()", tensor.stride(), "that of no gaps")


def _check_packed(
    qweight: torch.Tensor,
    qzeros: torch.Tensor,
    scales: torch.Tensor,
    *,
    codes_shape: tuple[int | None, ...],
) -> None:
    words, device = (torch.int32,), qweight.device
    check_tensor("qweight", qweight, shape=codes_shape, dtypes=words, device=device)
    floats = (*X_DTYPES, torch.float32)
    check_tensor("scales", scales, shape=(None, None), dtypes=floats, device=device)
    packed = (scales.shape[0], scales.shape[1] // 8)
    check_tensor("qzeros", qzeros, shape=packed, dtypes=words, device=device)


def _unpack(words: torch.Tensor, nibbles: tuple[int, ...]) -> torch.Tensor:
    """[rows, columns] int32 to [rows, columns, 8] numbers of 0 to 15."""
    shifts = torch.tensor(nibbles, device=words.device, dtype=torch.int32) * 4
    return ((words[:, :, None] >> shifts) & 0xF).to(torch.uint8)
