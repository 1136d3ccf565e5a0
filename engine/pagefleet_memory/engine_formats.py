"""Quantized weights that pagefleet's engine reads: its loader and all plans go by this list."""

from collections.abc import Iterator, Mapping
from typing import Any

from pagefleet_memory.config_fields import read_bool, read_int, read_mapping, read_str

# How tensors lie in a checkpoint, as the engine tells them apart.
AWQ = "awq"
GPTQ = "gptq"  # zeros are stored less one
GPTQ_V2 = "gptq-v2"
FP8 = "fp8"
FP8_BLOCK = "fp8-block"

READ = (
    "awq (version gemm) and gptq (desc_act false) of 4 bits in groups of 32, 64 or 128, and "
    "fp8 e4m3 (fp8, fbgemm_fp8, modelopt FP8, compressed-tensors float-quantized) work, each on "
    "linear layers"
)
_GROUPS = (32, 64, 128)
_BLOCKS = ([128, 128], "128x128")
_SCALES = ("channel", "tensor", "block")

Section = Mapping[str, object]


def engine_format(section: Section, method: str) -> tuple[str, str]:
    """The format of a quantization section and what of it the engine does not read.

    One of them is empty. `method` is the section's quant_method, in lower case with dashes.
    """
    if method == "awq":
        return _first(AWQ, _awq_obstacles(section))
    if method == "gptq":
        is_v2 = read_str(section, "checkpoint_format", default="gptq") == "gptq_v2"
        return _first(GPTQ_V2 if is_v2 else GPTQ, _gptq_obstacles(section))
    if method in ("fp8", "fbgemm-fp8"):
        blocks = section.get("weight_block_size") is not None
        return _first(FP8_BLOCK if blocks else FP8, _fp8_obstacles(section))
    if method == "modelopt":
        return _first(FP8, _modelopt_obstacles(section))
    if method == "compressed-tensors":
        blocks = any(each.get("strategy") == "block" for each in _group_weights(section))
        return _first(FP8_BLOCK if blocks else FP8, _compressed_obstacles(section))
    return "", method


def _first(name: str, obstacles: Iterator[str]) -> tuple[str, str]:
    obstacle = next(obstacles, "")
    return ("", obstacle) if obstacle else (name, "")


def _awq_obstacles(section: Section) -> Iterator[str]:
    yield from _integer_obstacles("awq", section)
    version = read_str(section, "version", default="gemm").lower()
    if version != "gemm":
        yield f"awq version {version}"
    if not read_bool(section, "zero_point", default=True):
        yield "awq zero_point false"


def _gptq_obstacles(section: Section) -> Iterator[str]:
    yield from _integer_obstacles("gptq", section)
    if read_bool(section, "desc_act", default=False):
        yield "gptq desc_act true"
    form = read_str(section, "checkpoint_format", default="gptq")
    if form not in ("gptq", "gptq_v2"):
        yield f"gptq checkpoint_format {form}"
    if section.get("dynamic"):
        yield "gptq dynamic"


def _integer_obstacles(method: str, section: Section) -> Iterator[str]:
    bits = read_int(section, "bits", "w_bit", default=4, maximum=16)
    if bits != 4:
        yield f"{method} {bits}-bit"
    group = section.get("group_size", section.get("q_group_size", 128))
    if group not in _GROUPS:
        yield f"{method} group_size {group}"


def _fp8_obstacles(section: Section) -> Iterator[str]:
    block = section.get("weight_block_size")
    if block is not None and block not in _BLOCKS:
        yield f"fp8 weight_block_size {block}"
    number = read_str(section, "fmt", default="e4m3")
    if number not in ("e4m3", "float8_e4m3fn"):
        yield f"fp8 {number}"


def _modelopt_obstacles(section: Section) -> Iterator[str]:
    algorithm = read_str(section, "quant_algo", default="")
    if algorithm.upper() != "FP8":
        yield f"modelopt {algorithm}".strip()


def _compressed_obstacles(section: Section) -> Iterator[str]:
    form = read_str(section, "format", default="")
    if form != "float-quantized":
        yield f"compressed-tensors {form}".strip()
    for weights in _group_weights(section):
        if weights.get("num_bits") != 8 or weights.get("type") != "float":
            yield f"compressed-tensors {weights.get('num_bits')}-bit {weights.get('type')}"
        strategy = weights.get("strategy")
        if strategy not in _SCALES:
            yield f"compressed-tensors strategy {strategy}"
        block = weights.get("block_structure")
        if strategy == "block" and block not in _BLOCKS:
            yield f"compressed-tensors block_structure {block}"
    for name in ("transform_config", "sparsity_config"):
        if _is_set(read_mapping(section, name)):
            yield f"compressed-tensors {name}"


def _is_set(part: Mapping[str, Any] | None) -> bool:
    """Whether a section beside the weights' own says anything; one of dense weights does not."""
    return bool(part) and part is not None and part.get("format") != "dense"


def _group_weights(section: Section) -> list[Mapping[str, Any]]:
    groups = (read_mapping(section, "config_groups") or {}).values()
    found = [each.get("weights") for each in groups if isinstance(each, Mapping)]
    return [each for each in found if isinstance(each, Mapping)]
