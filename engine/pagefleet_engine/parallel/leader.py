"""The leading rank: it has the engine core, starts its node's other ranks and drives them all."""

import logging
import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from multiprocessing.process import BaseProcess

from torch.distributed import TCPStore  # type: ignore[attr-defined]

from pagefleet_engine.assembly import LoadedModel, assemble_core
from pagefleet_engine.config import EngineConfig
from pagefleet_engine.engine_core import EngineCore
from pagefleet_engine.errors import RankError
from pagefleet_engine.limits import resolve_limits
from pagefleet_engine.measure import final_ledger
from pagefleet_engine.models.checkpoint import read_shape
from pagefleet_engine.models.loader import eos_token_ids
from pagefleet_engine.parallel.executor import ParallelExecutor
from pagefleet_engine.parallel.links import OnLost, RankLinks
from pagefleet_engine.parallel.messages import (
    Allocate,
    Allocated,
    Load,
    Loaded,
    Measurement,
    RunProfile,
)
from pagefleet_engine.parallel.placement import node_places, read_node
from pagefleet_engine.parallel.rank import Rank
from pagefleet_engine.parallel.rank_process import end_ranks, spawn_ranks
from pagefleet_engine.parallel.rendezvous import accept_ranks, open_store
from pagefleet_engine.request import EngineLedger
from pagefleet_engine.sampler import Sampler
from pagefleet_engine.sampling.draw import open_draw
from pagefleet_engine.sizing import (
    KVSizing,
    describe_ledger,
    refuse_hopeless_weights,
    size_kv_cache,
)
from pagefleet_memory import (
    EngineLimits,
    Ledger,
    Measured,
    build_ledger,
    num_kv_blocks,
)

logger = logging.getLogger(__name__)


def build_parallel_core(
    config: EngineConfig,
    *,
    on_lost: OnLost | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> EngineCore:
    """Load the model into all ranks and return an engine that can step.

    `on_lost` is called, in a thread of its own, when a rank ends before it was told to.
    """
    node = read_node(config, os.environ)
    shape = read_shape(config.model_path)
    rank = Rank(config, node_places(config, node)[0], shape)
    accelerator = rank.device.accelerator
    limits = resolve_limits(config, shape=shape, accelerator=accelerator)
    refuse_hopeless_weights(build_ledger(shape, accelerator, limits), limits)

    store = open_store(node)
    node = replace(node, master_port=store.port)
    places = node_places(config, node)[1:]
    children = spawn_ranks(config, places)
    try:
        sockets = accept_ranks(store, rank.place, check_local=lambda: _check_alive(children))
    except RankError:
        end_ranks(children, seconds=0)
        raise
    links = RankLinks(sockets, on_lost=on_lost)
    try:
        return _load(config, rank, limits, links, store, children, clock)
    except Exception as error:
        failure = links.explain(error) if isinstance(error, RuntimeError) else error
        links.stop()
        end_ranks(children)
        links.close()
        rank.leave()
        raise failure from error


def _check_alive(children: list[BaseProcess]) -> None:
    for child in children:
        if child.exitcode is not None:
            raise RankError("RankDied", f"{child.name} exited with {child.exitcode} at its start")


def _load(
    config: EngineConfig,
    rank: Rank,
    limits: EngineLimits,
    links: RankLinks,
    store: TCPStore,
    children: list[BaseProcess],
    clock: Callable[[], float],
) -> EngineCore:
    links.send(Load(asdict(limits)))
    worker = rank.load(limits, store)
    links.collect(Loaded)

    links.send(RunProfile())
    profile = worker.profile()
    measurements = [rank.measure(worker, profile, limits), *links.collect(Measurement)]
    tightest = _tightest(rank, limits, measurements)
    sizing = size_kv_cache(
        rank.shape,
        limits,
        tightest.final,
        length_is_stated=config.max_model_len is not None,
        num_blocks_override=config.num_gpu_blocks_override,
    )
    logger.info("KV cache: %d blocks of %d tokens", sizing.num_blocks, config.block_size)

    links.send(Allocate(sizing.num_blocks))
    eos = eos_token_ids(config.model_path)
    sampler = Sampler(open_draw(rank.device.torch_device, seed=config.seed), eos_token_ids=eos)
    runner = worker.make_runner(profile, num_blocks=sizing.num_blocks, sampler=sampler)
    links.collect(Allocated)
    worker.prepare(runner, profile)
    loaded = LoadedModel(
        executor=ParallelExecutor(runner, links, rank, store, children),
        sizing=sizing,
        ledger=tightest.describe(sizing, pool_bytes=runner.kv_cache_bytes),
        vocab_size=rank.shape.vocab_size,
        eos_token_ids=eos,
        peak_bytes=rank.device.meter.peak_bytes,
        tokens_per_second=profile.tokens_per_second,
    )
    return assemble_core(config, loaded, clock=clock)


@dataclass(frozen=True, slots=True)
class _RankLedger:
    """One rank's ledger, as predicted and with what it measured."""

    predicted: Ledger
    final: Ledger
    measured: Measured

    def describe(self, sizing: KVSizing, *, pool_bytes: int) -> EngineLedger:
        return describe_ledger(
            self.predicted, self.final, self.measured, sizing, pool_bytes=pool_bytes
        )


def _tightest(rank: Rank, limits: EngineLimits, measurements: list[Measurement]) -> _RankLedger:
    """The rank that holds fewest blocks: all hold as many."""
    ledgers = [_rank_ledger(rank, limits, each) for each in measurements]
    return min(ledgers, key=lambda each: num_kv_blocks(each.final, rank.shape, limits))


def _rank_ledger(rank: Rank, limits: EngineLimits, measurement: Measurement) -> _RankLedger:
    memory = measurement.device_memory_bytes
    accelerator = replace(rank.device.accelerator, memory_bytes=memory)
    predicted = build_ledger(rank.shape, accelerator, limits, stage=measurement.stage)
    measured = Measured(
        weights_bytes=measurement.weights_bytes,
        rope_and_buffers_bytes=measurement.rope_and_buffers_bytes,
        workspace_bytes=measurement.workspace_bytes,
        context_bytes=measurement.context_bytes,
    )
    final = final_ledger(rank.shape, accelerator, limits, predicted=predicted, measured=measured)
    return _RankLedger(predicted, final, measured)
