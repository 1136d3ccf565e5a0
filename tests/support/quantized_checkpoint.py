"""Round a saved model's projections to 4 or 8 bits, and save it in a quantizer's own form."""

import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch.nn.functional import max_pool2d

Tensors = dict[str, torch.Tensor]
# Of a weight [outputs, inputs]: the module's tensors, and the weight that they stand for.
Quantizer = Callable[[torch.Tensor], tuple[Tensors, torch.Tensor]]

AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)  # the output whose code is in nibble 0, 1, ... of an int32
FP8_LARGEST = 448.0


@dataclass(frozen=True, slots=True)
class Form:
    """A quantizer's form: the section of config.json, and how it stores a weight."""

    section: Mapping[str, Any]
    quantize: Quantizer
    plain: tuple[str, ...] = field(default=())  # endings of modules that keep floats


def save_quantized(source: Path, target: Path, form: Form) -> Path:
    """The rounded model in `target/packed`, and in plain floats in `target/plain`."""
    packed: Tensors = {}
    plain: Tensors = {}
    for name, weight in load_file(source / "model.safetensors").items():
        module = name.removesuffix(".weight")
        if not name.endswith("_proj.weight") or module.endswith(form.plain or ("nothing",)):
            packed[name] = plain[name] = weight
            continue
        tensors, plain[name] = form.quantize(weight)
        packed |= {f"{module}.{each}": tensor for each, tensor in tensors.items()}
    for folder, tensors, extra in (
        ("packed", packed, {"quantization_config": dict(form.section)}),
        ("plain", plain, {}),
    ):
        shutil.copytree(source, target / folder)
        save_file(tensors, target / folder / "model.safetensors", metadata={"format": "pt"})
        path = target / folder / "config.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **extra}), encoding="utf-8")
    return target


def int4(group: int, *, symmetric: bool, layout: str) -> Quantizer:
    """`layout` is awq, gptq (zeros less one) or gptq-v2."""

    def quantize(weight: torch.Tensor) -> tuple[Tensors, torch.Tensor]:
        grouped = weight.view(weight.shape[0], -1, group)  # [outputs, groups, group]
        if symmetric:
            scales = (grouped.abs().amax(2) / 7).half()
            zeros = torch.full(scales.shape, 8)
        else:
            low, high = grouped.amin(2).clamp_max(0), grouped.amax(2).clamp_min(0)
            scales = ((high - low) / 15).half()
            zeros = (-low / scales.float()).round().clamp(0, 15).int()
        wide = scales.float()[..., None]
        codes = ((grouped / wide).round() + zeros[..., None]).clamp(0, 15).int()
        exact = ((codes - zeros[..., None]) * wide).view_as(weight)
        stored = _awq if layout == "awq" else _gptq
        if layout == "gptq":
            zeros = (zeros - 1) & 0xF
        return stored(codes.view_as(weight).T, zeros.T, scales.T.contiguous(), group), exact

    return quantize


def _awq(codes: torch.Tensor, zeros: torch.Tensor, scales: torch.Tensor, _group: int) -> Tensors:
    order = torch.tensor(AWQ_ORDER)
    words = [_words(each.reshape(len(each), -1, 8)[:, :, order]) for each in (codes, zeros)]
    return {"qweight": words[0], "qzeros": words[1], "scales": scales}


def _gptq(codes: torch.Tensor, zeros: torch.Tensor, scales: torch.Tensor, group: int) -> Tensors:
    eights = codes.reshape(-1, 8, codes.shape[1]).transpose(1, 2)  # [inputs / 8, outputs, 8]
    return {
        "qweight": _words(eights),
        "qzeros": _words(zeros.reshape(len(zeros), -1, 8)),
        "scales": scales,
        "g_idx": (torch.arange(len(codes)) // group).int(),
    }


def _words(eights: torch.Tensor) -> torch.Tensor:
    """[..., 8] numbers of 0 to 15 to [...] int32, the first in the lowest bits."""
    return (eights.long() << (4 * torch.arange(8))).sum(-1).to(torch.int32).contiguous()


def fp8(strategy: str, *, scale_name: str = "weight_scale") -> Quantizer:
    """`strategy` is tensor, channel or block (of 128 x 128)."""

    def quantize(weight: torch.Tensor) -> tuple[Tensors, torch.Tensor]:
        scales = _fp8_scales(weight, strategy)
        wide = scales
        if strategy == "block":
            wide = scales.repeat_interleave(128, 0).repeat_interleave(128, 1)
            wide = wide[: weight.shape[0], : weight.shape[1]]
        codes = (weight / wide).to(torch.float8_e4m3fn)
        return {"weight": codes, scale_name: scales}, codes.float() * wide

    return quantize


def _fp8_scales(weight: torch.Tensor, strategy: str) -> torch.Tensor:
    if strategy == "tensor":
        return weight.abs().amax() / FP8_LARGEST
    if strategy == "channel":
        return weight.abs().amax(1, keepdim=True) / FP8_LARGEST
    largest = max_pool2d(weight.abs()[None], 128, ceil_mode=True)[0]
    return largest / FP8_LARGEST
