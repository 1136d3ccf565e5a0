"""Load a Transformers model so that its attention goes through the paged cache."""

from collections.abc import Iterable
from pathlib import Path

import torch
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel
from transformers.utils import logging as transformers_logging

from pagefleet_engine.errors import ModelLoadError
from pagefleet_engine.layers.linear import PackedLinear
from pagefleet_engine.models.attention import ATTENTION_NAME
from pagefleet_engine.models.checkpoint import read_json
from pagefleet_engine.models.rope import freeze_rope


def load_model(
    folder: Path, *, dtype: torch.dtype, device: torch.device, max_model_len: int
) -> PreTrainedModel:
    """Build the modules without memory, then fill them from the safetensors files.

    Transformers reads shard by shard, ties embeddings and initializes what a checkpoint does not
    hold (rotary tables), also for families whose weights are stored in another form than they run.
    """
    transformers_logging.disable_progress_bar()
    try:
        config = AutoConfig.from_pretrained(folder, local_files_only=True)
        model_class = AutoModelForCausalLM._model_mapping[type(config)]
        if not model_class._supports_attention_backend:
            raise ModelLoadError(
                f"{model_class.__name__} computes its attention itself, so it cannot use a paged "
                "cache; models that support Transformers' attention interface work"
            )
        model = model_class.from_pretrained(
            folder, dtype=dtype, attn_implementation=ATTENTION_NAME, local_files_only=True
        )
    except (OSError, KeyError, ValueError, RuntimeError, ImportError) as error:
        raise ModelLoadError(f"{folder} cannot be loaded: {error}") from error
    model.requires_grad_(False)
    model.to(device)
    freeze_rope(model, max_model_len=max_model_len)
    assert isinstance(model, PreTrainedModel)
    return model.eval()


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
    packed = [each for each in model.modules() if isinstance(each, PackedLinear)]
    return _distinct_bytes(model.parameters()) + sum(each.weight_bytes for each in packed)


def buffer_bytes(model: PreTrainedModel) -> int:
    return _distinct_bytes(model.buffers())


def _distinct_bytes(tensors: Iterable[torch.Tensor]) -> int:
    return sum({each.data_ptr(): each.numel() * each.itemsize for each in tensors}.values())
