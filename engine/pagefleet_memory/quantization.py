"""Weight quantization named by a config.json: which modules it packs, and how."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from pagefleet_memory.config_fields import (
    read_bool,
    read_int,
    read_mapping,
    read_str,
    read_str_list,
)
from pagefleet_memory.engine_formats import engine_format
from pagefleet_memory.errors import ShapeError
from pagefleet_memory.matrices import Matrix
from pagefleet_memory.module_patterns import ModulePatterns

_KNOWN = "awq, gptq, auto-round, fp8, fbgemm_fp8, bitsandbytes, mxfp4, compressed-tensors, modelopt"
# Never packed: a router decides on few numbers, and the rest are not matrices of a projection.
_PLAIN_NAMES = ("mlp.gate", "linear_attn.conv1d", "linear_attn.in_proj_ba")


@dataclass(frozen=True, slots=True)
class Quantization:
    """A quantization method and the sizes that parallelism has to respect."""

    method: str  # awq, gptq, fp8, int8, int4, bitsandbytes, mxfp4, nvfp4
    group_size: int | None = None  # inputs that share a scale; None means a whole row
    block_size: int | None = None  # side of an fp8 weight block
    experts_only: bool = False
    engine_format: str = ""  # as pagefleet's engine reads it (engine_formats.py); empty: it cannot
    obstacle: str = ""  # what keeps the engine from reading it


@dataclass(frozen=True, slots=True)
class PackingGroup:
    """Modules that are packed in one way; no patterns means every projection."""

    packing: str
    targets: ModulePatterns | None = None


@dataclass(frozen=True, slots=True)
class QuantizationRules:
    """Which module of a model is packed how."""

    quantization: Quantization
    groups: tuple[PackingGroup, ...]
    plain: ModulePatterns = ModulePatterns()  # what stays in floats

    def packing_of(self, layer: int, matrix: Matrix) -> str:
        """The packing of a layer's matrix; empty where it stays in plain floats."""
        if not _is_projection(matrix):
            return ""
        if self.quantization.experts_only and ".experts." not in matrix.name:
            return ""
        path = f"model.layers.{layer}.{_module(matrix.name)}"
        if self.plain.match(path):
            return ""
        for group in self.groups:
            if group.targets is None or group.targets.match(path):
                return group.packing
        return ""

    @property
    def head_packing(self) -> str:
        """The packing of the output head, which only an explicit target packs."""
        for group in self.groups:
            if group.targets is not None and group.targets.match("lm_head"):
                return "" if self.plain.match("lm_head") else group.packing
        return ""


def read_quantization(config: Mapping[str, object]) -> QuantizationRules | None:
    """The quantization of a config.json; None where its weights are plain floats."""
    section = read_mapping(config, "quantization_config")
    if not section:
        return None
    method = read_str(section, "quant_method", default="").lower().replace("_", "-")
    rules = _read_method(section, method)
    readable, obstacle = engine_format(section, method)
    quantization = replace(rules.quantization, engine_format=readable, obstacle=obstacle)
    return replace(rules, quantization=quantization)


def _read_method(section: Mapping[str, object], method: str) -> QuantizationRules:
    if method in ("awq", "gptq", "auto-round", "gptq-marlin", "awq-marlin"):
        return _grouped(section, method)
    if method in ("fp8", "fbgemm-fp8"):
        return _fp8(section)
    if method == "bitsandbytes":
        return _bitsandbytes(section)
    if method == "mxfp4":
        return _mxfp4(section)
    if method in ("compressed-tensors", "modelopt", "modelopt-mixed"):
        return _config_groups(section)
    raise ShapeError(
        f"{method!r} is not known",
        field="quantization_config.quant_method",
        value=method,
        hint=f"known: {_KNOWN}",
    )


def packed_while_loading(packing: str) -> QuantizationRules:
    """Every projection in one form: what a server makes of a plain checkpoint."""
    return QuantizationRules(_described(packing), (PackingGroup(packing),))


def _grouped(section: Mapping[str, object], method: str) -> QuantizationRules:
    bits = read_int(section, "bits", "w_bit", default=4, maximum=16)
    group = section.get("group_size")
    size = None if group == -1 else read_int(section, "group_size", "q_group_size", default=128)
    symmetric = "awq" not in method and read_bool(section, "sym", default=True)
    return QuantizationRules(
        Quantization(method, group_size=size),
        (PackingGroup(integer_packing(bits, size, zero_points=not symmetric)),),
        ModulePatterns.read(read_str_list(section, "modules_to_not_convert"))
        | _kept_by_auto_round(section),
    )


def _kept_by_auto_round(section: Mapping[str, object]) -> ModulePatterns:
    """Modules whose own entry of `extra_config` keeps 16 bits."""
    extra = read_mapping(section, "extra_config") or {}
    kept = [name for name, entry in extra.items() if isinstance(entry, Mapping) and _sixteen(entry)]
    return ModulePatterns.read(kept)


def _sixteen(entry: Mapping[str, object]) -> bool:
    return read_int(entry, "bits", default=4) >= 16


def _fp8(section: Mapping[str, object]) -> QuantizationRules:
    blocks = section.get("weight_block_size") is not None
    return QuantizationRules(
        Quantization("fp8", block_size=128 if blocks else None),
        (PackingGroup("fp8-block" if blocks else "fp8"),),
        ModulePatterns.read(read_str_list(section, "modules_to_not_convert")),
    )


def _bitsandbytes(section: Mapping[str, object]) -> QuantizationRules:
    plain = ModulePatterns.read(read_str_list(section, "llm_int8_skip_modules"))
    if read_bool(section, "load_in_8bit", default=False):
        return QuantizationRules(Quantization("bitsandbytes"), (PackingGroup("int8"),), plain)
    double = read_bool(section, "bnb_4bit_use_double_quant", default=False)
    packing = "nf4-dq" if double else "nf4"
    return QuantizationRules(
        Quantization("bitsandbytes", group_size=64), (PackingGroup(packing),), plain
    )


def _mxfp4(section: Mapping[str, object]) -> QuantizationRules:
    return QuantizationRules(
        Quantization("mxfp4", group_size=32, experts_only=True),
        (PackingGroup("mxfp4"),),
        ModulePatterns.read(read_str_list(section, "modules_to_not_convert")),
    )


def _config_groups(section: Mapping[str, object]) -> QuantizationRules:
    groups = [
        group
        for group in (read_mapping(section, "config_groups") or {}).values()
        if isinstance(group, Mapping)
    ]
    if not groups:
        return _named_algorithm(section)
    packed = tuple(
        PackingGroup(_weights_packing(group), _targets(group))
        for group in groups
        if read_mapping(group, "weights")
    )
    if not packed:
        raise ShapeError("has no weights", field="quantization_config.config_groups")
    return QuantizationRules(
        _described(packed[0].packing),
        packed,
        ModulePatterns.read(read_str_list(section, "ignore")),
    )


def _named_algorithm(section: Mapping[str, object]) -> QuantizationRules:
    """An export that names its algorithm and no groups: every projection is packed alike."""
    name = read_str(section, "quant_algo", default="FP8").upper()
    packing = "nvfp4" if "NVFP4" in name else "fp8"
    ignore = ModulePatterns.read(
        (*read_str_list(section, "ignore"), *read_str_list(section, "exclude_modules"))
    )
    return QuantizationRules(_described(packing), (PackingGroup(packing),), ignore)


def _weights_packing(group: Mapping[str, object]) -> str:
    weights = read_mapping(group, "weights") or {}
    bits = read_int(weights, "num_bits", default=8, maximum=16)
    floats = read_str(weights, "type", default="int") == "float"
    if floats:
        blocks = read_str(weights, "strategy", default="tensor") == "block"
        return "nvfp4" if bits == 4 else "fp8-block" if blocks else "fp8"
    size = weights.get("group_size")
    grouped = isinstance(size, int) and not isinstance(size, bool) and size > 0
    symmetric = read_bool(weights, "symmetric", default=True)
    return integer_packing(bits, int(str(size)) if grouped else None, zero_points=not symmetric)


def _targets(group: Mapping[str, object]) -> ModulePatterns | None:
    names = read_str_list(group, "targets")
    return None if not names or "Linear" in names else ModulePatterns.read(names)


def _described(packing: str) -> Quantization:
    if packing == "nvfp4":
        return Quantization("nvfp4", group_size=16)
    if packing == "fp8-block":
        return Quantization("fp8", block_size=128)
    method, _, group = packing.removesuffix("-zp").partition("-g")
    return Quantization(method, group_size=int(group) if group else None)


def integer_packing(bits: int, group: int | None, *, zero_points: bool) -> str:
    """The code of an integer packing."""
    size = f"-g{group}" if group else ""
    return f"int{bits}{size}{'-zp' if zero_points else ''}"


def _is_projection(matrix: Matrix) -> bool:
    return matrix.columns > 1 and matrix.name not in _PLAIN_NAMES


def _module(name: str) -> str:
    """The checkpoint's own name of the first part of a fused matrix."""
    return (
        name.replace("qkv_proj", "q_proj").replace("gate_up_proj", "gate_proj")
        if "linear_attn" not in name
        else name
    ).replace(".experts.", ".experts.0.")
