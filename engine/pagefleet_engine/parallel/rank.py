"""One rank on its device: the steps that the leader and every other rank take alike."""

import os
from dataclasses import replace
from functools import partial

import torch
from torch.distributed import Store  # type: ignore[attr-defined]
from transformers import PreTrainedModel

from pagefleet_engine.config import EngineConfig
from pagefleet_engine.device import Device, open_device
from pagefleet_engine.errors import ConfigError
from pagefleet_engine.measure import measure_rank
from pagefleet_engine.model_runner import run_model
from pagefleet_engine.parallel.group import RankGroup
from pagefleet_engine.parallel.messages import Measurement
from pagefleet_engine.parallel.part import load_part
from pagefleet_engine.parallel.pipeline import StageForward
from pagefleet_engine.parallel.placement import Place
from pagefleet_engine.worker import Profile, RankForward, Worker, torch_dtype
from pagefleet_memory import EngineLimits, ModelShape, build_ledger


class Rank:
    """Loads, measures; ranks call the same methods at the same time."""

    def __init__(self, config: EngineConfig, place: Place, shape: ModelShape) -> None:
        self.place = place
        self.shape = shape
        self.device = open_rank_device(config, place)
        self._config = config
        self._own_bytes = self.device.meter.used_bytes()
        self._group: RankGroup | None = None

    def load(self, limits: EngineLimits, store: Store) -> Worker:
        """Join the group and load this rank's part."""
        self._group = group = RankGroup(self.place, store, self.device.torch_device)
        model = load_part(
            self._config.model_path,
            group,
            dtype=torch_dtype(limits.dtype),
            device=self.device.torch_device,
            max_model_len=limits.max_model_len,
            quantization=self.shape.quantization,
        )
        return Worker(
            model,
            device=self.device,
            shape=self.shape,
            limits=limits,
            stage=self.place.stage,
            forward=_forward(model, group),
            attention_backend=self._config.attention_backend,
        )

    def leave(self) -> None:
        """Leave the group, so that this process can join another."""
        if self._group is not None:
            self._group.close()

    def measure(self, worker: Worker, profile: Profile, limits: EngineLimits) -> Measurement:
        accelerator, stage = self.device.accelerator, self.place.stage
        predicted = build_ledger(self.shape, accelerator, limits, stage=stage)
        measured = measure_rank(worker, profile, predicted, own_bytes=self._own_bytes)
        return Measurement(
            stage=stage,
            device_memory_bytes=accelerator.memory_bytes,
            weights_bytes=measured.weights_bytes or 0,
            rope_and_buffers_bytes=measured.rope_and_buffers_bytes or 0,
            workspace_bytes=measured.workspace_bytes or 0,
            context_bytes=measured.context_bytes or 0,
        )


def _forward(model: PreTrainedModel, group: RankGroup) -> RankForward:
    if group.place.num_stages == 1:
        return RankForward.whole(partial(run_model, model), agree=group.all_agree)
    stage = StageForward(model, group)
    return RankForward(run=stage, captured=stage.captured, agree=group.all_agree)


def open_rank_device(config: EngineConfig, place: Place) -> Device:
    """A GPU of its own, or a share of the pod's processors and memory."""
    if torch.cuda.is_available() and config.device != "cpu":
        _choose_gpu(config, place)
    device = open_device(config.device, memory_bytes=config.device_memory_bytes)
    if device.torch_device.type == "cuda":
        return device
    if not os.environ.get("OMP_NUM_THREADS"):
        torch.set_num_threads(max(1, torch.get_num_threads() // place.ranks_per_node))
    memory = device.accelerator.memory_bytes // place.ranks_per_node
    return replace(device, accelerator=replace(device.accelerator, memory_bytes=memory))


def _choose_gpu(config: EngineConfig, place: Place) -> None:
    visible = torch.cuda.device_count()
    if visible < place.ranks_per_node:
        raise ConfigError(
            "tensor_parallel_size",
            config.tensor_parallel_size,
            f"{place.ranks_per_node} ranks run on this node and {visible} GPUs are visible here; "
            f"tensor_parallel_size x pipeline_parallel_size = {visible * place.node.count} works",
        )
    torch.cuda.set_device(place.local_rank)
