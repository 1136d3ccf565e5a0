"""Start-up: from settings to a running engine core, or a StartupError that says why not."""

import logging
import time
from collections.abc import Callable

from pagefleet_engine.assembly import LoadedModel, assemble_core
from pagefleet_engine.config import EngineConfig
from pagefleet_engine.device import open_device
from pagefleet_engine.engine_core import EngineCore
from pagefleet_engine.limits import resolve_limits
from pagefleet_engine.measure import final_ledger, measure_rank
from pagefleet_engine.models.checkpoint import read_shape
from pagefleet_engine.models.loader import eos_token_ids, load_model
from pagefleet_engine.sampler import Sampler
from pagefleet_engine.sampling.draw import open_draw
from pagefleet_engine.sizing import (
    describe_ledger,
    refuse_hopeless_weights,
    size_kv_cache,
)
from pagefleet_engine.worker import Worker, torch_dtype
from pagefleet_memory import build_ledger

logger = logging.getLogger(__name__)


def build_engine_core(
    config: EngineConfig, *, clock: Callable[[], float] = time.monotonic
) -> EngineCore:
    """Load the model into this process, size the KV cache and return an engine that can step."""
    device = open_device(config.device, memory_bytes=config.device_memory_bytes)
    shape = read_shape(config.model_path)
    limits = resolve_limits(config, shape=shape, accelerator=device.accelerator)
    predicted = build_ledger(shape, device.accelerator, limits)
    refuse_hopeless_weights(predicted, limits)

    own_bytes = device.meter.used_bytes()
    model = load_model(
        config.model_path,
        dtype=torch_dtype(limits.dtype),
        device=device.torch_device,
        max_model_len=limits.max_model_len,
        quantization=shape.quantization,
    )
    worker = Worker(
        model,
        device=device,
        shape=shape,
        limits=limits,
        attention_backend=config.attention_backend,
    )
    profile = worker.profile()
    measured = measure_rank(worker, profile, predicted, own_bytes=own_bytes)
    final = final_ledger(shape, device.accelerator, limits, predicted=predicted, measured=measured)
    sizing = size_kv_cache(
        shape,
        limits,
        final,
        length_is_stated=config.max_model_len is not None,
        num_blocks_override=config.num_gpu_blocks_override,
    )

    logger.info("KV cache: %d blocks of %d tokens", sizing.num_blocks, config.block_size)
    eos = eos_token_ids(config.model_path)
    sampler = Sampler(open_draw(device.torch_device, seed=config.seed), eos_token_ids=eos)
    runner = worker.make_runner(profile, num_blocks=sizing.num_blocks, sampler=sampler)
    worker.prepare(runner, profile)
    pool_bytes = runner.kv_cache_bytes
    loaded = LoadedModel(
        executor=runner,
        sizing=sizing,
        ledger=describe_ledger(predicted, final, measured, sizing, pool_bytes=pool_bytes),
        vocab_size=shape.vocab_size,
        eos_token_ids=eos,
        peak_bytes=device.meter.peak_bytes,
        tokens_per_second=profile.tokens_per_second,
    )
    return assemble_core(config, loaded, clock=clock)
