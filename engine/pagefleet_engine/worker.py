"""Worker: one rank's model, packed and measured."""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Self

import torch
from transformers import PreTrainedModel

from pagefleet_engine.attention_limits import attention_scratch_bytes
from pagefleet_engine.cuda_capture import CudaCapture
from pagefleet_engine.decode_graphs import (
    Agree,
    Capture,
    CapturedForward,
    Forward,
    WholeForward,
    capture_decoding,
)
from pagefleet_engine.device import Device
from pagefleet_engine.errors import ConfigError, ModelLoadError, OutOfMemoryError
from pagefleet_engine.layers.fuse_decoder import fuse_decoder, trial_positions
from pagefleet_engine.layers.fused import fuse_linears
from pagefleet_engine.layers.linear import pack_linears, packing_works
from pagefleet_engine.layers.quantized import warm_up_quantized
from pagefleet_engine.model_runner import ModelRunner, run_model
from pagefleet_engine.models.attention import LayerUse, PagedLayers, UseRecorder, attach
from pagefleet_engine.sampler import Sampler
from pagefleet_engine.warm_up import compile_attention, warm_up_steps
from pagefleet_kernels import (
    ArgumentError,
    KernelBackend,
    KVLayout,
    KVPool,
    open_backend,
)
from pagefleet_kernels.decode_groups import MOST_GROUPED_TOKENS
from pagefleet_memory import EngineLimits, ModelShape, kv_block_bytes
from pagefleet_memory.parallelism import layers_per_stage

logger = logging.getLogger(__name__)

PROBE_TOKENS = 2


@dataclass(frozen=True, slots=True)
class Profile:
    """What a first forward of the largest step showed."""

    layers: tuple[LayerUse, ...]
    layout: KVLayout
    backend: KernelBackend
    workspace_bytes: int
    tokens_per_second: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RankForward:
    """How a rank runs its part of the model with the other ranks."""

    run: Forward
    captured: Callable[[int], CapturedForward]  # for graphs of up to so many tokens
    agree: Agree = bool

    @classmethod
    def whole(cls, run: Forward, agree: Agree = bool) -> Self:
        """Of a model that is in one stage."""
        return cls(run=run, captured=lambda _: WholeForward(run), agree=agree)


class Worker:
    """Owns the model of one rank; `profile` it before a runner is made of it."""

    def __init__(
        self,
        model: PreTrainedModel,
        *,
        device: Device,
        shape: ModelShape,
        limits: EngineLimits,
        stage: int = 0,
        forward: RankForward | None = None,
        attention_backend: str = "auto",
    ) -> None:
        self.model = model
        self._device = device
        self._shape = shape
        self._limits = limits
        self._stage = stage
        self._num_layers = layers_per_stage(shape.num_layers, limits.pipeline_parallel_size)[stage]
        self._forward = forward or RankForward.whole(partial(run_model, model))
        self._attention_backend = attention_backend
        _pack(model, device.torch_device)
        if products := warm_up_quantized(model, torch_dtype(limits.dtype)):
            logger.info("compiled and ran %d products with quantized weights", products)

    def profile(self) -> Profile:
        """Run the largest step once: which keys and values a layer stores, memory and speed."""
        layers = self._layers()
        layout = self._layout(layers)
        backend = self._backend(layout, layers)
        if not backend.gathers:
            positions = trial_positions(self._limits.max_model_len, self._device.torch_device)
            fuse_decoder(self.model, backend, partial(self._run_at, positions, 1))
            layers = self._layers()  # what they ask for now
        num_tokens = self._limits.max_num_batched_tokens
        rows = min(self._limits.max_num_seqs, num_tokens)
        self._device.meter.reset_peak()
        before = self._device.meter.used_bytes()
        started = time.perf_counter()
        self._run_any(num_tokens, rows)
        seconds = time.perf_counter() - started
        growth = max(0, self._device.meter.peak_bytes() - before)
        # What attention keeps for good is not in the peak: gathered blocks, or partial results.
        kept = self._gather_bytes(layout) if backend.gathers else backend.scratch_bytes
        return Profile(layers, layout, backend, growth + kept, num_tokens / seconds)

    def _layers(self) -> tuple[LayerUse, ...]:
        recorder = UseRecorder()
        attach(self.model, recorder)
        self._run_any(PROBE_TOKENS, 1)
        if sorted(recorder.layers) != list(range(self._num_layers)):
            raise ModelLoadError(
                f"{self._shape.architecture} keeps state beside keys and values in some of its "
                f"{self._shape.num_layers} layers, which this version cannot serve"
            )
        return tuple(recorder.layers[index] for index in range(self._num_layers))

    def _layout(self, layers: tuple[LayerUse, ...]) -> KVLayout:
        """The plan was made with the memory model's block; the real one must have its size."""
        mode = self._limits.resolved_kv_dtype
        shapes = tuple(each.shape for each in layers)
        try:
            layout = KVLayout(mode=mode, block_size=self._limits.block_size, layers=shapes)
        except ArgumentError as error:
            raise ConfigError("kv_cache_dtype", mode, str(error)) from error
        expected = kv_block_bytes(self._shape, self._limits, stage=self._stage)
        if layout.record_bytes != expected:
            raise ModelLoadError(
                f"a KV block of {self._shape.architecture} takes {layout.record_bytes} bytes and "
                f"the memory model counts {expected}: this version cannot size its cache"
            )
        return layout

    def _backend(self, layout: KVLayout, layers: tuple[LayerUse, ...]) -> KernelBackend:
        device = self._device.torch_device
        scratch = None
        if device.type == "cuda":
            scratch = attention_scratch_bytes(layers, self._limits, device)
        try:
            return open_backend(self._attention_backend, layout, device, scratch_bytes=scratch)
        except ArgumentError as error:
            raise ConfigError(error.field, error.value, error.hint) from error

    def _run_any(self, num_tokens: int, num_rows: int) -> None:
        """A forward of any tokens, with logits of the last rows."""
        positions = torch.arange(num_tokens, device=self._device.torch_device)
        self._run_at(positions % self._limits.max_model_len, num_rows)

    @torch.inference_mode()
    def _run_at(self, positions: torch.Tensor, num_rows: int) -> None:
        rows = torch.arange(len(positions) - num_rows, len(positions), device=positions.device)
        self._forward.run(torch.zeros_like(positions), positions, rows)
        if positions.is_cuda:
            torch.cuda.synchronize()

    def _gather_bytes(self, layout: KVLayout) -> int:
        """The attention's gather buffers, for the longest sequence or a group of short ones."""
        widest = max(each.elements_per_token for each in layout.layers)
        tokens = max(self._limits.max_model_len, MOST_GROUPED_TOKENS)
        return tokens * widest * torch_dtype(self._limits.dtype).itemsize

    def make_runner(self, profile: Profile, *, num_blocks: int, sampler: Sampler) -> ModelRunner:
        """Allocate the cache and connect the model to it."""
        pool = self._allocate(profile.layout, num_blocks)
        layers = PagedLayers(pool, profile.backend)
        attach(self.model, layers)
        device = self._device.torch_device
        run = self._forward.run
        return ModelRunner(forward=run, layers=layers, sampler=sampler, device=device)

    def prepare(self, runner: ModelRunner, profile: Profile) -> None:
        """On a GPU compile, run once and capture before requests wait for it.

        Ranks do it at the same time, when all of them have their cache.
        """
        limits, device, pool = self._limits, self._device.torch_device, runner.layers.pool
        if device.type != "cuda":
            return
        if not profile.backend.gathers:
            dtype = torch_dtype(limits.dtype)
            compile_attention(profile.layers, pool, profile.backend, limits, dtype=dtype)
        for step in warm_up_steps(limits, num_blocks=pool.num_blocks):
            logits = runner.compute(step)
        runner.warm_up_sampler(logits)
        torch.cuda.synchronize()
        if not profile.backend.gathers:
            self.capture_decoding(runner, CudaCapture())

    def capture_decoding(self, runner: ModelRunner, capture: Capture) -> None:
        """Let decoding steps be replayed from now on, if all ranks can."""
        graphs = capture_decoding(
            self._forward.captured,
            runner.layers,
            self._limits,
            device=self._device.torch_device,
            capture=capture,
            agree=self._forward.agree,
        )
        runner.use_graphs(graphs)

    def _allocate(self, layout: KVLayout, num_blocks: int) -> KVPool:
        try:
            return KVPool(layout, num_blocks=num_blocks, device=self._device.torch_device)
        except RuntimeError as error:  # both of torch's allocators raise it
            raise OutOfMemoryError(
                f"{num_blocks} KV blocks could not be allocated: {error}; lower "
                "gpu_memory_utilization or free memory on the device"
            ) from error


def torch_dtype(name: str) -> torch.dtype:
    """The torch dtype of a compute dtype's name."""
    dtype = getattr(torch, name)
    assert isinstance(dtype, torch.dtype), name
    return dtype


def _pack(model: PreTrainedModel, device: torch.device) -> None:
    if device.type != "cpu":
        return
    if packing_works(model.dtype):
        fused = fuse_linears(model)
        alone = pack_linears(model)
        logger.info("packed %d linear layers for oneDNN, %d of them fused", fused + alone, fused)
    else:
        logger.info("linear layers use F.linear: packed ones do not work for %s", model.dtype)
