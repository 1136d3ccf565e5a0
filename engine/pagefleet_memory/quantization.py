"""Weight quantization named by a config.json, and the bits it leaves per quantized weight."""

from collections.abc import Mapping
from dataclasses import dataclass

from pagefleet_memory.config_fields import read_bool, read_int, read_mapping, read_str
from pagefleet_memory.errors import ShapeError

_FP16_BITS = 16


@dataclass(frozen=True, slots=True)
class Quantization:
    """A quantization method and its parameters."""

    method: str  # awq, gptq, fp8, int8, int4, bitsandbytes, mxfp4, nvfp4
    bits_per_weight: float  # payload plus scales and zero points
    group_size: int | None = None  # inputs that share a scale; None means a whole row
    block_size: int | None = None  # side of an fp8 weight block
    experts_only: bool = False


def read_quantization(config: Mapping[str, object]) -> Quantization | None:
    """The quantization of a config.json; None where its weights are plain floats."""
    section = read_mapping(config, "quantization_config")
    if not section:
        return None
    method = read_str(section, "quant_method", default="").lower().replace("_", "-")
    if method in ("awq", "gptq"):
        return _grouped(section, method)
    if method in ("fp8", "fbgemm-fp8"):
        return _fp8(section)
    if method == "bitsandbytes":
        return _bitsandbytes(section)
    if method == "mxfp4":
        return Quantization("mxfp4", bits_per_weight=4.25, group_size=32, experts_only=True)
    if method == "compressed-tensors":
        return _compressed_tensors(section)
    if method == "modelopt" and "NVFP4" in str(section.get("quant_algo")):
        return Quantization("nvfp4", bits_per_weight=4.5, group_size=16)
    if method == "modelopt":
        return Quantization("fp8", bits_per_weight=8.0)
    raise ShapeError(
        f"{method!r} is not known",
        field="quantization_config.quant_method",
        value=method,
        hint="known: awq, gptq, fp8, bitsandbytes, mxfp4, compressed-tensors, modelopt",
    )


def _grouped(section: Mapping[str, object], method: str) -> Quantization:
    bits = read_int(section, "bits", "w_bit", default=4)
    group = section.get("group_size")
    group = None if group == -1 else read_int(section, "group_size", "q_group_size", default=128)
    symmetric = method == "gptq" and read_bool(section, "sym", default=True)
    scale = _FP16_BITS if symmetric else _FP16_BITS + bits
    return Quantization(method, bits + scale / (group or 4096), group_size=group)


def _fp8(section: Mapping[str, object]) -> Quantization:
    if section.get("weight_block_size") is None:
        return Quantization("fp8", bits_per_weight=8.0)
    return Quantization("fp8", bits_per_weight=8.0 + 32 / (128 * 128), block_size=128)


def _bitsandbytes(section: Mapping[str, object]) -> Quantization:
    if read_bool(section, "load_in_8bit", default=False):
        return Quantization("bitsandbytes", bits_per_weight=8.0)
    double = read_bool(section, "bnb_4bit_use_double_quant", default=False)
    return Quantization("bitsandbytes", bits_per_weight=4.127 if double else 4.5, group_size=64)


def _compressed_tensors(section: Mapping[str, object]) -> Quantization:
    groups = read_mapping(section, "config_groups") or {}
    first = next((group for group in groups.values() if isinstance(group, Mapping)), {})
    weights = read_mapping(first, "weights") or {}
    bits = read_int(weights, "num_bits", default=8)
    if bits >= 8:
        kind = read_str(weights, "type", default="int")
        return Quantization("fp8" if kind == "float" else "int8", bits_per_weight=float(bits))
    size = weights.get("group_size")
    group = size if isinstance(size, int) and not isinstance(size, bool) and size > 0 else 128
    return Quantization("int4", bits + _FP16_BITS / group, group_size=group)
