"""Load a Transformers model so that its attention goes through the paged cache."""

import logging
from collections.abc import Iterable
from pathlib import Path

import torch
from transformers import AutoConfig, PreTrainedModel
from transformers.utils import logging as transformers_logging

from pagefleet_engine.errors import ModelLoadError
from pagefleet_engine.layers.linear import PackedLinear
from pagefleet_engine.layers.quantized import QuantizedLinear
from pagefleet_engine.models.attention import ATTENTION_NAME
from pagefleet_engine.models.checkpoint import read_json
from pagefleet_engine.models.quantized import read_quantized_linears
from pagefleet_engine.models.rope import freeze_rope
from pagefleet_engine.models.skeleton import build_on_meta, paged_model_class
from pagefleet_engine.parallel.weights import Checkpoint, fill_model
from pagefleet_memory.quantization import Quantization

logger = logging.getLogger(__name__)


def load_model(
    folder: Path,
    *,
    dtype: torch.dtype,
    device: torch.device,
    max_model_len: int,
    quantization: Quantization | None = None,
) -> PreTrainedModel:
    """Build the modules without memory, then fill them from the safetensors files."""
    transformers_logging.disable_progress_bar()
    try:
        if quantization is None:
            model = _load_plain(folder, dtype).to(device)
        else:
            model = _load_quantized(folder, dtype, quantization, device)
    except (OSError, KeyError, ValueError, RuntimeError, ImportError) as error:
        raise ModelLoadError(f"{folder} cannot be loaded: {error}") from error
    model.requires_grad_(False)
    freeze_rope(model, max_model_len=max_model_len)
    return model.eval()


def _load_plain(folder: Path, dtype: torch.dtype) -> PreTrainedModel:
    """By Transformers, which reads shard by shard.

    It ties embeddings and initializes what a checkpoint does not hold (rotary tables), also for
    families whose weights are stored in another form than they run.
    """
    config = AutoConfig.from_pretrained(folder, local_files_only=True)
    return paged_model_class(type(config)).from_pretrained(
        folder, dtype=dtype, attn_implementation=ATTENTION_NAME, local_files_only=True
    )


def _load_quantized(
    folder: Path, dtype: torch.dtype, quantization: Quantization, device: torch.device
) -> PreTrainedModel:
    """By this engine, whose kernels keep the weights as they are stored."""
    model, checkpoint = build_on_meta(folder, dtype=dtype), Checkpoint(folder)
    count = read_quantized_linears(model, checkpoint, {}, quantization, device=device)
    logger.info("%d linear layers hold %s weights", count, quantization.method)
    fill_model(model, checkpoint, {}, device=device)
    return model


def eos_token_ids(folder: Path) -> frozenset[int]:
    """Tokens that end a sequence: generation_config.json decides, else config.json."""
    for name in ("generation_config.json", "config.json"):
        path = folder / name
        value = read_json(path).get("eos_token_id") if path.is_file() else None
        if isinstance(value, int):
            return frozenset([value])
        if isinstance(value, list):
            return frozenset(int(each) for each in value)
    return frozenset()


def weight_bytes(model: PreTrainedModel) -> int:
    """Bytes of all weights; tied ones share their memory and count once."""
    packed = [each for each in model.modules() if isinstance(each, PackedLinear | QuantizedLinear)]
    return _distinct_bytes(model.parameters()) + sum(each.weight_bytes for each in packed)


def buffer_bytes(model: PreTrainedModel) -> int:
    return _distinct_bytes(model.buffers())


def _distinct_bytes(tensors: Iterable[torch.Tensor]) -> int:
    return sum({each.data_ptr(): each.numel() * each.itemsize for each in tensors}.values())
