"""Replace the linear layers whose weights a checkpoint holds quantized, and read those weights.

The checkpoint itself says which layers these are, by the tensors that it has for them; a layer that
the quantizer was told to leave alone has an ordinary weight and stays an `nn.Linear`.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import nn
from transformers import PreTrainedModel

from pagefleet_engine.errors import ConfigError, ModelLoadError
from pagefleet_engine.layers.quantized import QuantizedLinear
from pagefleet_engine.parallel.pieces import Piece
from pagefleet_engine.parallel.weights import Checkpoint, Names, Ranges
from pagefleet_kernels import (
    ArgumentError,
    Fp8BlockWeight,
    Fp8Weight,
    QuantizedWeight,
    repack_awq,
    repack_gptq,
)
from pagefleet_memory import engine_formats as formats
from pagefleet_memory.quantization import Quantization

_FP8_BLOCK = 128
_WORD = 8  # numbers of 4 bits in an int32
_SCALE_NAMES = ("weight_scale", "weight_scale_inv")


@torch.no_grad()
def read_quantized_linears(
    model: PreTrainedModel,
    checkpoint: Checkpoint,
    pieces: Mapping[str, Piece],
    quantization: Quantization,
    *,
    device: torch.device,
) -> int:
    """Replace in place, on meta but for the weights that are read; returns how many.

    `pieces` say which part of a weight a rank holds, by the names of the model's parameters.
    """
    names, count = Names(model), 0
    for name, module in list(model.named_modules()):
        if type(module) is not nn.Linear:
            continue
        piece = pieces.get(f"{name}.weight") or Piece(f"{name}.weight")
        stored = _Stored(names, checkpoint, piece, model.dtype, device)
        if stored.has(_marker(quantization)):
            weight = _read(stored, quantization)
            _check_size(name, module, weight)
            model.set_submodule(name, QuantizedLinear(weight, module.bias))
            count += 1
    return count


@dataclass(frozen=True, slots=True)
class _Stored:
    """The tensors of one module, cut to the piece of its weight that is wanted."""

    names: Names
    checkpoint: Checkpoint
    piece: Piece  # of the weight [outputs, inputs]
    dtype: torch.dtype
    device: torch.device

    @property
    def path(self) -> str:
        return self.piece.source.removesuffix(".weight")

    def has(self, tensor: str) -> bool:
        """Whether the module has this tensor, and for a weight whether it is in fp8."""
        name = self._find(tensor)
        if name is None:
            return False
        return tensor != "weight" or self.checkpoint.dtype(name).startswith("F8_")

    def whole(self, tensor: str) -> torch.Tensor:
        return self.checkpoint.read(self._name(tensor)).to(self.device)

    def cut(
        self, tensor: str, *, outputs: tuple[int, int], inputs: tuple[int, int]
    ) -> torch.Tensor:
        """The part of a tensor that belongs to the piece.

        `outputs` and `inputs` are the dimension of the tensor that counts them, and how many of
        them one element of it covers.
        """
        if self.piece.padded_size is not None:
            raise ModelLoadError(f"{self.path} is quantized: an output head is read in one rank")
        if self.piece.ranges is None:
            return self.whole(tensor)
        dim, covered = outputs if self.piece.dim == 0 else inputs
        ranges = self._divided(self.piece.ranges, covered)
        return self.checkpoint.read(self._name(tensor), dim, ranges).to(self.device)

    def _divided(self, ranges: Ranges, covered: int) -> Ranges:
        if any(bound % covered for each in ranges for bound in each):
            first, last = ranges[0]
            raise ConfigError(
                "tensor_parallel_size",
                f"{self.path}: {first}..{last}",
                f"a rank's part must start and end at a multiple of {covered}, which share "
                "numbers of a quantized weight; a smaller size works",
            )
        return tuple((start // covered, stop // covered) for start, stop in ranges)

    def _name(self, tensor: str) -> str:
        found = self._find(tensor)
        if found is None:
            raise ModelLoadError(f"the checkpoint has no {self.path}.{tensor}")
        return found

    def _find(self, tensor: str) -> str | None:
        return self.names.find(f"{self.path}.{tensor}", self.checkpoint)


def _marker(quantization: Quantization) -> str:
    """The tensor that tells a quantized module from a plain one."""
    is_fp8 = quantization.engine_format in (formats.FP8, formats.FP8_BLOCK)
    return "weight" if is_fp8 else "qweight"


def _read(stored: _Stored, quantization: Quantization) -> QuantizedWeight:
    try:
        if quantization.engine_format == formats.FP8_BLOCK:
            return _read_fp8_blocks(stored)
        if quantization.engine_format == formats.FP8:
            return _read_fp8(stored)
        return _read_int4(stored, quantization)
    except ArgumentError as error:
        raise ModelLoadError(f"{stored.path} cannot be read: {error}") from error


def _read_int4(stored: _Stored, quantization: Quantization) -> QuantizedWeight:
    group = quantization.group_size
    assert group is not None, "formats without groups are refused"
    scales = stored.cut("scales", outputs=(1, 1), inputs=(0, group)).to(stored.dtype)
    qzeros = stored.cut("qzeros", outputs=(1, _WORD), inputs=(0, group))
    if quantization.engine_format == formats.AWQ:
        qweight = stored.cut("qweight", outputs=(1, _WORD), inputs=(0, 1))
        return repack_awq(qweight, qzeros, scales)
    _check_order(stored, group)
    qweight = stored.cut("qweight", outputs=(1, 1), inputs=(0, _WORD))
    less_one = quantization.engine_format == formats.GPTQ
    return repack_gptq(qweight, qzeros, scales, zeros_less_one=less_one)


def _check_order(stored: _Stored, group: int) -> None:
    """GPTQ may assign inputs to groups in any order; only neighbours are read."""
    if not stored.has("g_idx"):
        return
    order = stored.whole("g_idx")
    neighbours = torch.arange(len(order), device=order.device, dtype=order.dtype) // group
    if not torch.equal(order, neighbours):
        raise ModelLoadError(
            f"{stored.path}.g_idx orders inputs by activation, which this version does not read; "
            "quantization_config.desc_act false works"
        )


def _read_fp8(stored: _Stored) -> QuantizedWeight:
    codes = _read_codes(stored)
    name = _scale_name(stored)
    scales = stored.whole(name).float().flatten()
    if len(scales) == 1:
        return Fp8Weight(codes, scales.repeat(codes.shape[0]))
    if stored.piece.dim == 0:
        scales = stored.cut(name, outputs=(0, 1), inputs=(1, 1)).float().flatten()
    if len(scales) != codes.shape[0]:
        raise ModelLoadError(
            f"{stored.path}.{name} has {len(scales)} scales for {codes.shape[0]} outputs; one of "
            "all, or one per output, works"
        )
    return Fp8Weight(codes, scales.contiguous())


def _read_fp8_blocks(stored: _Stored) -> QuantizedWeight:
    block = _FP8_BLOCK
    scales = stored.cut(_scale_name(stored), outputs=(0, block), inputs=(1, block))
    return Fp8BlockWeight(_read_codes(stored), scales.float())


def _read_codes(stored: _Stored) -> torch.Tensor:
    codes = stored.cut("weight", outputs=(0, 1), inputs=(1, 1))
    if codes.dtype is not torch.float8_e4m3fn:
        raise ModelLoadError(f"{stored.path}.weight is {codes.dtype}; torch.float8_e4m3fn works")
    return codes.contiguous()


def _scale_name(stored: _Stored) -> str:
    return next((each for each in _SCALE_NAMES if stored.has(each)), _SCALE_NAMES[0])


def _check_size(name: str, linear: nn.Linear, weight: QuantizedWeight) -> None:
    found = [weight.out_features, weight.in_features]
    expected = [linear.out_features, linear.in_features]
    if found != expected:
        raise ModelLoadError(f"{name} is {found}, not {expected}")
