"""From a row of observations to a run's settings: what is stated, else the release's default.

Only settings are read, never an outcome. Of the free-text notes, words that state a setting count:
an approximate version, data, expert or context parallelism, draft tokens, and text-only serving.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bench.memory_scoring.gpus import read_gpu
from pagefleet_memory.config_fields import read_mapping, read_number
from pagefleet_memory.model_shape import ModelShape
from pagefleet_memory.quantization import QuantizationRules, packed_while_loading
from pagefleet_memory.shape_reader import read_shape
from pagefleet_memory.vllm.release import Release
from pagefleet_memory.vllm.run import Run, default_batch

# Where neither the row nor its notes say: the release of most rows, or one that knows the model.
_COMMON_RELEASE = Release(0, 19)
_RELEASES_OF_MODELS = {
    "gemma4_text": Release(0, 24),
    "qwen3_5_text": Release(0, 24),
    "qwen3_5_moe_text": Release(0, 24),
    "glm_moe_dsa": Release(0, 24),
}
_MOST_RANKS = 8
# Packed while a plain checkpoint is loaded.
_WHILE_LOADING = {
    "fp8": packed_while_loading("fp8"),
    "bitsandbytes": packed_while_loading("nf4"),
}
_DTYPES = {
    "half": "float16",
    "fp16": "float16",
    "bf16": "bfloat16",
    "float": "float32",
    "fp32": "float32",
}
_VERSION_NOTE = re.compile(r"(?:version about|vLLM) (\d+\.\d+)(?![\dx])")
_DATA_PARALLEL = re.compile(r"\bDP ?(\d+)", re.IGNORECASE)
_DRAFTS = re.compile(r"\b(?:MTP|drafts|speculative tokens)[ =:n]*(\d+)", re.IGNORECASE)
_CONTEXT_PARALLEL = re.compile(r"decode context parallel (\d+)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Scored:
    """A row's model and settings."""

    shape: ModelShape
    run: Run


def read_settings(row: Mapping[str, Any], config: Mapping[str, Any]) -> Scored:
    """The model and the run of a row; raises MemoryModelError where they cannot be read."""
    notes = str(row.get("notes") or "")
    shape = read_shape(config, quantization=_packed_while_loading(row))
    release = _release(row, notes, shape)
    gpu = read_gpu(row.get("gpu"), row.get("gpu_mem_gib"))
    seqs, batched = default_batch(release, gpu.memory_bytes, gpu.compute_capability)
    seqs = row.get("max_num_seqs") or seqs
    utilization = row.get("gpu_memory_utilization") or release.default_utilization
    ranks, stages = _split(row, shape, usable=int((gpu.memory_bytes or 0) * utilization))
    run = Run(
        release=release,
        max_model_len=row.get("max_model_len") or longest_context(config, shape),
        memory_bytes=gpu.memory_bytes,
        compute_capability=gpu.compute_capability,
        joined_by_nvlink=gpu.nvlink,
        tensor_parallel_size=ranks,
        pipeline_parallel_size=stages,
        data_parallel_size=_number(_DATA_PARALLEL, notes),
        expert_parallel="expert parallel" in notes.lower() or "+ EP" in notes,
        decode_context_parallel_size=_number(_CONTEXT_PARALLEL, notes),
        gpu_memory_utilization=utilization,
        max_num_seqs=seqs,
        max_num_batched_tokens=row.get("max_num_batched_tokens") or max(batched, seqs),
        dtype=_dtype(row, shape),
        kv_cache_dtype=_kv_dtype(row, config),
        block_size=row.get("block_size") or 16,
        enforce_eager=bool(row.get("enforce_eager")),
        draft_tokens=_number(_DRAFTS, notes, default=0),
        text_only="language-model-only" in notes,
    )
    return Scored(shape, run)


def longest_context(config: Mapping[str, Any], shape: ModelShape) -> int:
    """What a server derives where no length is stated: positions, times a linear stretch."""
    scaling = read_mapping(config, "rope_scaling") or {}
    if "linear" in (scaling.get("rope_type"), scaling.get("type")):
        return int(shape.max_position_embeddings * read_number(scaling, "factor", default=1.0))
    return shape.max_position_embeddings


def _release(row: Mapping[str, Any], notes: str, shape: ModelShape) -> Release:
    if re.match(r"v?\d+\.\d+", str(row.get("version"))):
        return Release.parse(str(row["version"]))
    about = _VERSION_NOTE.search(notes)
    if about:
        return Release.parse(about[1])
    return _RELEASES_OF_MODELS.get(shape.model_type, _COMMON_RELEASE)


def _split(row: Mapping[str, Any], shape: ModelShape, *, usable: int) -> tuple[int, int]:
    """TP and PP; what is not stated is as many GPUs, by powers of two, as hold the weights.

    Tensor parallelism takes the GPUs of one node, and the rest are pipeline stages.
    """
    ranks = row.get("tp") or 0
    stages = row.get("pp") or 0
    gpus = (ranks or 1) * (stages or 1)
    if usable and not (ranks and stages):
        while shape.weight_bytes(_dtype(row, shape)) > gpus * usable:
            gpus *= 2
    ranks = ranks or min(gpus, _MOST_RANKS)
    return ranks, stages or max(1, gpus // ranks)


def _packed_while_loading(row: Mapping[str, Any]) -> QuantizationRules | None:
    named = str(row.get("quantization") or "")
    return next((rules for name, rules in _WHILE_LOADING.items() if named.startswith(name)), None)


def _dtype(row: Mapping[str, Any], shape: ModelShape) -> str:
    """A stated compute dtype, else the stored one; float32 is loaded with 16 bits."""
    stated = row.get("dtype")
    if stated and stated != "auto":
        name = str(stated).removeprefix("torch.")
        return _DTYPES.get(name, name)
    return "bfloat16" if shape.dtype == "float32" else shape.dtype


def _kv_dtype(row: Mapping[str, Any], config: Mapping[str, Any]) -> str:
    stated = str(row.get("kv_cache_dtype") or "auto")
    if stated != "auto":
        return _DTYPES.get(stated, stated)
    section = read_mapping(config, "quantization_config") or {}
    scheme = read_mapping(section, "kv_cache_scheme") or {}
    return "fp8_e4m3" if scheme.get("num_bits") == 8 else "auto"


def _number(pattern: re.Pattern[str], notes: str, *, default: int = 1) -> int:
    found = pattern.search(notes)
    return int(found[1]) if found else default
