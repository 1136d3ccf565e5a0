"""Build a model's modules without memory for their weights."""

from pathlib import Path

import torch
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from pagefleet_engine.errors import ModelLoadError
from pagefleet_engine.models.attention import ATTENTION_NAME


def build_on_meta(folder: Path, *, dtype: torch.dtype) -> PreTrainedModel:
    """All modules in plain floats, also of a quantized checkpoint, which others may not read."""
    config = AutoConfig.from_pretrained(folder, local_files_only=True)
    if getattr(config, "quantization_config", None) is not None:
        del config.quantization_config
    model_class = paged_model_class(type(config))
    with torch.device("meta"):
        model = model_class._from_config(config, dtype=dtype, attn_implementation=ATTENTION_NAME)
    assert isinstance(model, PreTrainedModel)
    return model


def paged_model_class(config_class: type) -> type[PreTrainedModel]:
    """The causal language model of a config; KeyError where Transformers has none."""
    model_class: type[PreTrainedModel] = AutoModelForCausalLM._model_mapping[config_class]
    if not model_class._supports_attention_backend:
        raise ModelLoadError(
            f"{model_class.__name__} computes its attention itself, so it cannot use a paged "
            "cache; models that support Transformers' attention interface work"
        )
    return model_class
