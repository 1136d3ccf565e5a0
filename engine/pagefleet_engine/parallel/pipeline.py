"""Pipeline parallelism: cut a model to the layers of one stage, and run it between its neighbours.

The model's own forward runs on every stage, with layers of other stages passing through. Stages
take turns at one step after the other; several steps at a time are not kept in flight.
"""

import torch
from torch import nn
from transformers import PreTrainedModel

from pagefleet_engine.errors import ConfigError
from pagefleet_engine.model_runner import run_model
from pagefleet_engine.parallel.group import RankGroup
from pagefleet_engine.parallel.placement import Place
from pagefleet_memory.parallelism import stage_bounds


class PassedLayer(nn.Module):
    """Stands for a layer of another stage; before the first own one it hands over `received`."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        for name, value in vars(layer).items():  # model code asks layers what kind they are
            if isinstance(value, str) and not name.startswith("_"):
                setattr(self, name, value)
        self.received: torch.Tensor | None = None

    def forward(self, hidden: torch.Tensor, *_: object, **__: object) -> torch.Tensor:
        return hidden if self.received is None else self.received


class AbsentEmbedding(nn.Module):
    """Stands for the embedding of the first stage: the right shape, and nothing else."""

    def __init__(self, hidden_size: int, dtype: torch.dtype) -> None:
        super().__init__()
        self._hidden_size = hidden_size
        self._dtype = dtype

    def forward(self, token_ids: torch.Tensor) -> torch.Tensor:
        shape = (*token_ids.shape, self._hidden_size)
        return torch.zeros(shape, dtype=self._dtype, device=token_ids.device)


def cut_to_stage(model: PreTrainedModel, place: Place) -> None:
    """Take out, on meta, what other stages hold; the layers that stay are counted from 0."""
    if place.num_stages == 1:
        return
    layers = _layers(model, place)
    start, end = stage_bounds(len(layers), place.num_stages)[place.stage]
    for index, layer in enumerate(layers):
        if start <= index < end:
            _renumber(layer, start)
        else:
            layers[index] = PassedLayer(layer)
    if not place.is_first_stage:
        embedding = AbsentEmbedding(model.config.hidden_size, model.dtype)
        model.set_input_embeddings(embedding)
    if not place.is_last_stage:
        model.base_model.norm = nn.Identity()
        model.set_output_embeddings(nn.Identity())


def _layers(model: PreTrainedModel, place: Place) -> nn.ModuleList:
    plan = getattr(model.base_model, "_pp_plan", None) or {}
    layers = getattr(model.base_model, "layers", None)
    if not {"layers", "norm"} <= {name.rpartition(".")[2] for name in plan} or layers is None:
        raise ConfigError(
            "pipeline_parallel_size",
            place.num_stages,
            f"{type(model).__name__} brings no plan for stages of layers; 1 works",
        )
    assert isinstance(layers, nn.ModuleList)
    return layers


def _renumber(layer: nn.Module, start: int) -> None:
    for module in layer.modules():
        index = getattr(module, "layer_idx", None)
        if isinstance(index, int):
            module.layer_idx = index - start  # type: ignore[assignment]  # an int attribute


class StageForward:
    """A forward of one stage: receive, compute, send; logits come out of the last one only."""

    def __init__(self, model: PreTrainedModel, group: RankGroup) -> None:
        self._model = model
        self._group = group
        layers = model.base_model.layers
        start, end = stage_bounds(len(layers), group.place.num_stages)[group.place.stage]
        self._entrance = layers[start - 1] if start > 0 else None
        self._computed: torch.Tensor | None = None
        layers[end - 1].register_forward_hook(self._keep)

    def __call__(
        self, input_ids: torch.Tensor, positions: torch.Tensor, rows: torch.Tensor
    ) -> torch.Tensor:
        received = self.make_room(len(positions))
        self.receive(received)
        output = self.compute(received, input_ids, positions, rows)
        self.send(output)
        return output

    def make_room(self, num_tokens: int) -> torch.Tensor:
        """For hidden states of the stage before, if there is one: [1, num_tokens, hidden_size]."""
        size = (1, 0 if self._entrance is None else num_tokens, self._model.config.hidden_size)
        return torch.empty(size, dtype=self._model.dtype, device=self._group.device)

    def receive(self, room: torch.Tensor) -> None:
        if self._entrance is not None:
            self._group.receive_from_previous(room)

    def compute(
        self,
        received: torch.Tensor,
        input_ids: torch.Tensor,
        positions: torch.Tensor,
        rows: torch.Tensor,
    ) -> torch.Tensor:
        """Logits of `rows`, before the last stage the hidden states: [num_tokens, hidden_size]."""
        if self._entrance is not None:
            self._entrance.received = received
        if self._group.place.is_last_stage:
            return run_model(self._model, input_ids, positions, rows)
        self._model.base_model(
            input_ids=input_ids[None], position_ids=positions[None], use_cache=False
        )
        assert self._computed is not None, "the stage's last layer has run"
        return self._computed[0]

    def send(self, output: torch.Tensor) -> None:
        if not self._group.place.is_last_stage:
            self._group.send_to_next(output)

    def captured(self, most: int) -> "CapturedStage":
        """The same for graphs of up to `most` tokens."""
        return CapturedStage(self, self.make_room(most))

    def _keep(self, _module: nn.Module, _args: object, output: torch.Tensor) -> None:
        self._computed = output


class CapturedStage:
    """What a stage computes, on received hidden states that lie where they lay when captured."""

    def __init__(self, stage: StageForward, room: torch.Tensor) -> None:
        self._stage = stage
        self._room = room

    def __call__(
        self, token_ids: torch.Tensor, positions: torch.Tensor, rows: torch.Tensor
    ) -> torch.Tensor:
        received = self._room[:, : len(positions)]
        return self._stage.compute(received, token_ids, positions, rows)

    def receive(self, count: int) -> None:
        self._stage.receive(self._room[:, :count])

    def send(self, output: torch.Tensor) -> None:
        self._stage.send(output)
