"""Fill modules from the safetensors files, reading no more than a rank's share."""

from collections.abc import Mapping
from dataclasses import replace
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

_FLOATS = (torch.float64, torch.float32, torch.float16, torch.bfloat16)


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

    def dtype(self, name: str) -> str:
        """As safetensors names it: "BF16", "F8_E4M3"."""
        return str(self._files[name].get_slice(name).get_dtype())

    def read(self, name: str, dim: int = 0, ranges: Ranges | None = None) -> torch.Tensor:
        """The ranges of one dimension side by side, or everything."""
        if ranges is None:
            whole: torch.Tensor = self._files[name].get_tensor(name)
            return whole
        stored = self._files[name].get_slice(name)
        before = (slice(None),) * dim
        parts = [stored[(*before, slice(*each))] for each in ranges if each[0] < each[1]]
        if len(parts) > 1:
            return torch.cat(parts, dim=dim)
        one: torch.Tensor = parts[0] if parts else stored[(*before, slice(0, 0))]
        return one


class Names:
    """Under which names a checkpoint may hold what a model's module is called."""

    def __init__(self, model: PreTrainedModel) -> None:
        self._base = f"{model.base_model_prefix}."
        is_tied = model.config.tie_word_embeddings
        self._tied: dict[str, str] = (model._tied_weights_keys or {}) if is_tied else {}
        self._renamings: list[tuple[str, str]] = []
        self.merged: dict[str, list[str]] = {}  # a weight of all experts: those of each expert
        for each in get_model_conversion_mapping(model):
            if getattr(each, "operations", None):
                self.merged[each.target_patterns[0]] = list(each.source_patterns)
            else:
                self._renamings.append((each.target_patterns[0], each.source_patterns[0]))

    def original(self, name: str) -> str:
        """The weight that this one is tied to, else itself."""
        return self._tied.get(name, name)

    def find(self, name: str, checkpoint: Checkpoint) -> str | None:
        """The name that the checkpoint has for it, a tied weight's original for instance."""
        spellings = self.spellings(self.original(name))
        return next((each for each in spellings if each in checkpoint), None)

    def spellings(self, name: str) -> list[str]:
        """As the model says it, without its base's name, and in older forms."""
        renamed = [name.replace(new, old) for new, old in self._renamings]
        return [name, name.removeprefix(self._base), *renamed]


class _Experts:
    """Reads what a model holds as one tensor from the per-expert matrices of a checkpoint."""

    def __init__(self, names: Names, checkpoint: Checkpoint) -> None:
        self._names = names
        self._checkpoint = checkpoint

    def read(self, piece: Piece, num_experts: int) -> torch.Tensor | None:
        """[num_experts, outputs, inputs], or None where the checkpoint has no such matrices."""
        for target, sources in self._names.merged.items():
            if not piece.source.endswith(target):
                continue
            prefix = piece.source.removesuffix(target)
            spellings = [self._names.spellings(prefix + source) for source in sources]
            for names in zip(*spellings, strict=True):
                if names[0].replace("*", "0") in self._checkpoint:
                    experts = range(num_experts)
                    return torch.stack([self._read_one(names, piece, each) for each in experts])
        return None

    def _read_one(self, names: tuple[str, ...], piece: Piece, expert: int) -> torch.Tensor:
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
    model: PreTrainedModel,
    checkpoint: Checkpoint,
    pieces: Mapping[str, Piece],
    *,
    device: torch.device,
) -> None:
    """Give every parameter and buffer on meta its memory and its values."""
    _compute_buffers(model, device)
    names = Names(model)
    experts = _Experts(names, checkpoint)
    filled: dict[Piece, nn.Parameter | torch.Tensor] = {}
    for name, tensor in list(_stored_tensors(model)):
        piece = _locate(names, checkpoint, pieces.get(name) or Piece(name))
        if piece not in filled:
            values = _read(checkpoint, experts, piece, tensor)
            if values.shape != tensor.shape:
                raise ModelLoadError(f"{name} is {list(values.shape)}, not {list(tensor.shape)}")
            if tensor.is_floating_point() and values.dtype not in _FLOATS:
                raise ModelLoadError(
                    f"{name} is stored as {values.dtype}, which this version reads for the "
                    "weights of linear layers only"
                )
            values = values.to(device=device, dtype=tensor.dtype)
            is_parameter = isinstance(tensor, nn.Parameter)
            filled[piece] = nn.Parameter(values, requires_grad=False) if is_parameter else values
        parent, _, attribute = name.rpartition(".")
        setattr(model.get_submodule(parent), attribute, filled[piece])


def _stored_tensors(model: PreTrainedModel) -> list[tuple[str, torch.Tensor]]:
    """Parameters and persistent buffers by name, tied ones under each of their names."""
    parameters = dict(model.named_parameters(remove_duplicate=False))
    stored = model.state_dict().keys()
    buffers = {name: each for name, each in model.named_buffers() if name in stored}
    return list({**parameters, **buffers}.items())


def _locate(names: Names, checkpoint: Checkpoint, piece: Piece) -> Piece:
    """The piece under the name that the checkpoint has; a tied one is its original."""
    found = names.find(piece.source, checkpoint)
    return replace(piece, source=found or names.original(piece.source))


def _read(
    checkpoint: Checkpoint, experts: _Experts, piece: Piece, tensor: torch.Tensor
) -> torch.Tensor:
    if piece.source in checkpoint:
        values = checkpoint.read(piece.source, piece.dim, piece.ranges)
    else:
        found = experts.read(piece, tensor.shape[0]) if tensor.dim() == 3 else None
        if found is None:
            raise ModelLoadError(
                f"the checkpoint has no {piece.source}: a model in several ranks or with quantized "
                "weights is read under the names of its modules; other forms load in one rank"
            )
        values = found
    missing = (piece.padded_size or 0) - values.shape[0]
    if missing > 0:
        values = torch.cat([values, values.new_zeros(missing, *values.shape[1:])])
    return values


def _compute_buffers(model: PreTrainedModel, device: torch.device) -> None:
    """Buffers that no checkpoint holds (rotary tables) are what their modules initialize.

    Weights are still on meta, where initializing them does nothing.
    """
    for module in model.modules():
        own = dict(module.named_buffers(recurse=False))
        for name, buffer in own.items():
            setattr(module, name, torch.empty_like(buffer, device=device))
        if own:
            model._init_weights(module)
