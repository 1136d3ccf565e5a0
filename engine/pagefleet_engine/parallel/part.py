"""Load one rank's part of a model."""

from pathlib import Path

import torch
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from pagefleet_engine.errors import ConfigError, ModelLoadError
from pagefleet_engine.models.attention import ATTENTION_NAME
from pagefleet_engine.models.rope import freeze_rope
from pagefleet_engine.parallel.group import RankGroup
from pagefleet_engine.parallel.pipeline import cut_to_stage
from pagefleet_engine.parallel.tensor_split import split_tensors
from pagefleet_engine.parallel.weights import fill_model


def load_part(
    folder: Path,
    group: RankGroup,
    *,
    dtype: torch.dtype,
    device: torch.device,
    max_model_len: int,
) -> PreTrainedModel:
    """Build the modules without memory, cut and split them, then read what is left."""
    try:
        model = _build(folder, group, dtype)
        cut_to_stage(model, group.place)
        fill_model(model, folder, split_tensors(model, group), device=device)
    except (OSError, KeyError, ValueError, RuntimeError, ImportError) as error:
        raise ModelLoadError(f"{folder} cannot be loaded in parts: {error}") from error
    model.requires_grad_(False)
    freeze_rope(model, max_model_len=max_model_len)
    return model.eval()


def _build(folder: Path, group: RankGroup, dtype: torch.dtype) -> PreTrainedModel:
    config = AutoConfig.from_pretrained(folder, local_files_only=True)
    if getattr(config, "quantization_config", None) is not None:
        name = "tensor_parallel_size" if group.place.tensor_size > 1 else "pipeline_parallel_size"
        size = max(group.place.tensor_size, group.place.num_stages)
        raise ConfigError(name, size, "quantized weights cannot be split yet; 1 works")
    model_class = AutoModelForCausalLM._model_mapping[type(config)]
    if not model_class._supports_attention_backend:
        raise ModelLoadError(
            f"{model_class.__name__} computes its attention itself, so it cannot use a paged cache"
        )
    with torch.device("meta"):
        model = model_class._from_config(config, dtype=dtype, attn_implementation=ATTENTION_NAME)
    assert isinstance(model, PreTrainedModel)
    return model
