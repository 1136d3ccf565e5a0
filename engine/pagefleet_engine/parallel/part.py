"""Load one rank's part of a model."""

from pathlib import Path

import torch
from transformers import PreTrainedModel

from pagefleet_engine.errors import ModelLoadError
from pagefleet_engine.models.quantized import read_quantized_linears
from pagefleet_engine.models.rope import freeze_rope
from pagefleet_engine.models.skeleton import build_on_meta
from pagefleet_engine.parallel.group import RankGroup
from pagefleet_engine.parallel.pipeline import cut_to_stage
from pagefleet_engine.parallel.tensor_split import split_tensors
from pagefleet_engine.parallel.weights import Checkpoint, fill_model
from pagefleet_memory.quantization import Quantization


def load_part(
    folder: Path,
    group: RankGroup,
    *,
    dtype: torch.dtype,
    device: torch.device,
    max_model_len: int,
    quantization: Quantization | None,
) -> PreTrainedModel:
    """Build the modules without memory, cut and split them, then read what is left."""
    try:
        model, checkpoint = build_on_meta(folder, dtype=dtype), Checkpoint(folder)
        cut_to_stage(model, group.place)
        pieces = split_tensors(model, group)
        if quantization is not None:
            read_quantized_linears(model, checkpoint, pieces, quantization, device=device)
        fill_model(model, checkpoint, pieces, device=device)
    except (OSError, KeyError, ValueError, RuntimeError, ImportError) as error:
        raise ModelLoadError(f"{folder} cannot be loaded in parts: {error}") from error
    model.requires_grad_(False)
    freeze_rope(model, max_model_len=max_model_len)
    return model.eval()
