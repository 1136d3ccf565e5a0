"""Start-up: from settings to a running engine core, or a StartupError that says why not."""

import logging
import time
from collections.abc import Callable
from dataclasses import replace

from pagefleet_engine.config import EngineConfig
from pagefleet_engine.device import open_device
from pagefleet_engine.engine_core import EngineCore
from pagefleet_engine.kv_cache.block_manager import BlockManager
from pagefleet_engine.limits import resolve_limits
from pagefleet_engine.models.checkpoint import read_shape
from pagefleet_engine.models.loader import buffer_bytes, eos_token_ids, weight_bytes
from pagefleet_engine.request import AdmissionLimits
from pagefleet_engine.sampler import Sampler
from pagefleet_engine.scheduler import Scheduler, SchedulerLimits
from pagefleet_engine.sizing import (
    KVSizing,
    describe_ledger,
    refuse_hopeless_weights,
    size_kv_cache,
)
from pagefleet_engine.worker import Profile, Worker
from pagefleet_memory import Ledger, Measured, build_ledger

logger = logging.getLogger(__name__)


def build_engine_core(
    config: EngineConfig, *, clock: Callable[[], float] = time.monotonic
) -> EngineCore:
    """Load the model, size the KV cache and return an engine that can step."""
    device = open_device(config.device, memory_bytes=config.device_memory_bytes)
    shape = read_shape(config.model_path)
    limits = resolve_limits(config, shape=shape, accelerator=device.accelerator)
    predicted = build_ledger(shape, device.accelerator, limits)
    refuse_hopeless_weights(predicted, limits)

    own_bytes = device.meter.used_bytes()
    worker = Worker(config.model_path, device=device, shape=shape, limits=limits)
    profile = worker.profile()
    measured = _measure(worker, profile, predicted, own_bytes=own_bytes)
    # One forward shows less than the worst step holds, so the prediction stays the floor.
    workspace_bytes = max(profile.workspace_bytes, predicted.term("workspace").bytes)
    final = build_ledger(
        shape,
        device.accelerator,
        limits,
        measured=replace(measured, workspace_bytes=workspace_bytes),
    )
    sizing = size_kv_cache(
        shape,
        limits,
        final,
        length_is_stated=config.max_model_len is not None,
        num_blocks_override=config.num_gpu_blocks_override,
    )

    logger.info("KV cache: %d blocks of %d tokens", sizing.num_blocks, config.block_size)
    eos = eos_token_ids(config.model_path)
    sampler = Sampler(seed=config.seed, eos_token_ids=eos)
    runner = worker.make_runner(profile, num_blocks=sizing.num_blocks, sampler=sampler)
    pool_bytes = runner.kv_cache_bytes
    return EngineCore(
        executor=runner,
        scheduler=_build_scheduler(config, sizing, eos, clock),
        limits=_admission_limits(sizing, vocab_size=shape.vocab_size),
        ledger=describe_ledger(predicted, final, measured, sizing, pool_bytes=pool_bytes),
        peak_bytes=device.meter.peak_bytes,
        prefill_tokens_per_second=profile.tokens_per_second,
        clock=clock,
    )


def _measure(worker: Worker, profile: Profile, predicted: Ledger, *, own_bytes: int) -> Measured:
    return Measured(
        weights_bytes=weight_bytes(worker.model),
        rope_and_buffers_bytes=buffer_bytes(worker.model),
        workspace_bytes=profile.workspace_bytes,
        # The prediction also covers the front end, which shares the container.
        context_bytes=max(own_bytes, predicted.term("context").bytes),
    )


def _admission_limits(sizing: KVSizing, *, vocab_size: int) -> AdmissionLimits:
    return AdmissionLimits(
        max_model_len=sizing.limits.max_model_len,
        kv_capacity_tokens=sizing.num_blocks * sizing.limits.block_size,
        vocab_size=vocab_size,
    )


def _build_scheduler(
    config: EngineConfig, sizing: KVSizing, eos: frozenset[int], clock: Callable[[], float]
) -> Scheduler:
    return Scheduler(
        limits=SchedulerLimits(
            max_num_seqs=sizing.limits.max_num_seqs,
            max_num_batched_tokens=sizing.limits.max_num_batched_tokens,
            max_model_len=sizing.limits.max_model_len,
        ),
        block_manager=BlockManager(
            num_blocks=sizing.num_blocks,
            block_size=sizing.limits.block_size,
            enable_prefix_caching=config.enable_prefix_caching,
        ),
        eos_token_ids=eos,
        by_priority=config.scheduling_policy == "priority",
        clock=clock,
    )
