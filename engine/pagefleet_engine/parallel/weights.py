"""Fill a rank's modules from the safetensors files, reading no more than the rank's share."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import nn
from transformers import PreTrainedModel
from transformers.conversion_mapping import get_model_conversion_mapping

from pagefleet_engine.errors import ModelLoadError
from pagefleet_engine.parallel.pieces import Piece

Ranges = tuple[tuple[int, int], ...]


class Checkpoint:
    """The tensors of a model folder by name; files are mapped, so reading a slice is cheap."""

    def __init__(self, folder: Path) -> None:
        self._files: dict[str, Any] = {}
        for path in sorted(folder.glob("*.safetensors")):
            file = safe_open(path, framework="pt")
            names: list[str] = file.keys()  # type: ignore[no-untyped-call]
            self._files.update(dict.fromkeys(names, file))

    def __contains__(self, name: str) -> bool:
        return name in self._files

    def read(self, name: str, dim: int, ranges: Ranges | None) -> torch.Tensor:
        """The ranges of one dimension side by side, or everything."""
        stored = self._files[name].get_slice(name)
        if ranges is None:
            whole: torch.Tensor = stored[:]
            return whole
        before = (slice(None),) * dim
        parts = [stored[(*before, slice(*each))] for each in ranges if each[0] < each[1]]
        return torch.cat(parts, dim=dim) if parts else stored[(*before, slice(0, 0))]


class _Experts:
    """Names of the per-expert matrices that a model holds as one tensor."""

    def __init__(self, model: PreTrainedModel, checkpoint: Checkpoint) -> None:
        self._checkpoint = checkpoint
        self._renamings: list[tuple[str, str]] = []
        self._sources: dict[str, list[str]] = {}
        for each in get_model_conversion_mapping(model):
            if getattr(each, "operations", None):
                self._sources[each.target_patterns[0]] = list(each.source_patterns)
            else:
                self._renamings.append((each.target_patterns[0], each.source_patterns[0]))

    def read(self, piece: Piece, num_experts: int) -> torch.Tensor | None:
        """[num_experts, outputs, inputs], or None where the checkpoint has no such matrices."""
        for target, sources in self._sources.items():
            if not piece.source.endswith(target):
                continue
            prefix = piece.source.removesuffix(target)
            for candidate in self._spellings(prefix, sources):
                if candidate[0].replace("*", "0") in self._checkpoint:
                    experts = range(num_experts)
                    return torch.stack([self._read_one(candidate, piece, e) for e in experts])
        return None

    def _spellings(self, prefix: str, sources: list[str]) -> list[list[str]]:
        names = [prefix + source for source in sources]
        renamed = [[n.replace(new, old) for n in names] for new, old in self._renamings]
        return [names, *renamed]

    def _read_one(self, names: list[str], piece: Piece, expert: int) -> torch.Tensor:
        """One expert's matrix: its sources lie behind one another in the first dimension."""
        dim = max(0, piece.dim - 1)
        parts = []
        for index, name in enumerate(names):
            ranges = piece.ranges
            if ranges is not None and len(names) > 1:  # one range per source, counted over both
                size = ranges[1][0] - ranges[0][0]
                start, stop = ranges[index]
                ranges = ((start - index * size, stop - index * size),)
            parts.append(self._checkpoint.read(name.replace("*", str(expert)), dim, ranges))
        return torch.cat(parts)


@torch.no_grad()
def fill_model(
    model: PreTrainedModel, folder: Path, pieces: Mapping[str, Piece], *, device: torch.device
) -> None:
    """Give every parameter and buffer on meta its memory and its values."""
    checkpoint = Checkpoint(folder)
    experts = _Experts(model, checkpoint)
    filled: dict[Piece, nn.Parameter | torch.Tensor] = {}
    for name, tensor in list(_stored_tensors(model)):
        piece = _locate(model, checkpoint, pieces.get(name) or Piece(name))
        if piece not in filled:
            values = _read(checkpoint, experts, piece, tensor)
            if values.shape != tensor.shape:
                raise ModelLoadError(f"{name} is {list(values.shape)}, not {list(tensor.shape)}")
            values = values.to(device=device, dtype=tensor.dtype)
            is_parameter = isinstance(tensor, nn.Parameter)
            filled[piece] = nn.Parameter(values, requires_grad=False) if is_parameter else values
        parent, _, attribute = name.rpartition(".")
        setattr(model.get_submodule(parent), attribute, filled[piece])
    _compute_buffers(model, device)


def _stored_tensors(model: PreTrainedModel) -> list[tuple[str, torch.Tensor]]:
    """Parameters and persistent buffers by name, tied ones under each of their names."""
    parameters = dict(model.named_parameters(remove_duplicate=False))
    stored = model.state_dict().keys()
    buffers = {name: each for name, each in model.named_buffers() if name in stored}
    return list({**parameters, **buffers}.items())


def _locate(model: PreTrainedModel, checkpoint: Checkpoint, piece: Piece) -> Piece:
    """The piece under the name that the checkpoint has; a tied one is its original."""
    tied = model._tied_weights_keys if model.config.tie_word_embeddings else None
    source = (tied or {}).get(piece.source, piece.source)
    without_base = source.removeprefix(f"{model.base_model_prefix}.")
    if source not in checkpoint and without_base in checkpoint:
        source = without_base
    return Piece(source, piece.dim, piece.ranges, piece.padded_size)


def _read(
    checkpoint: Checkpoint, experts: _Experts, piece: Piece, tensor: torch.Tensor
) -> torch.Tensor:
    if piece.source in checkpoint:
        values = checkpoint.read(piece.source, piece.dim, piece.ranges)
    else:
        found = experts.read(piece, tensor.shape[0]) if tensor.dim() == 3 else None
        if found is None:
            raise ModelLoadError(
                f"the checkpoint has no {piece.source}, and a model in several ranks is read "
                "under the names of its modules; one rank can load other forms"
            )
        values = found
    missing = (piece.padded_size or 0) - values.shape[0]
    if missing > 0:
        values = torch.cat([values, values.new_zeros(missing, *values.shape[1:])])
    return values


def _compute_buffers(model: PreTrainedModel, device: torch.device) -> None:
    """Buffers that no checkpoint holds (rotary tables) are what their modules initialize."""
    for module in model.modules():
        own = [each for each in module.buffers(recurse=False) if each.is_meta]
        if own:
            module.to_empty(device=device, recurse=False)
            model._init_weights(module)
