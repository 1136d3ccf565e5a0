"""What a rank other than the leading one does from its start to its end."""

import contextlib
import logging
import signal
import sys
from typing import NoReturn

from torch.distributed import Store  # type: ignore[attr-defined]

from pagefleet_engine.config import EngineConfig
from pagefleet_engine.failure import name_failure
from pagefleet_engine.models.checkpoint import read_shape
from pagefleet_engine.parallel.links import LeaderLink
from pagefleet_engine.parallel.messages import (
    Allocate,
    Allocated,
    Failed,
    Load,
    Loaded,
    RunProfile,
    Step,
)
from pagefleet_engine.parallel.placement import Place
from pagefleet_engine.parallel.rank import Rank
from pagefleet_engine.parallel.rendezvous import connect_to_leader, join_store
from pagefleet_engine.sampler import Sampler
from pagefleet_engine.sampling.torch_draw import TorchDraw
from pagefleet_memory import EngineLimits

logger = logging.getLogger(__name__)


def serve_rank(config: EngineConfig, place: Place) -> NoReturn:
    """Body of the process: it ends with the leader, or with exit code 1 when it fails."""
    store = join_store(place.node)
    connection = connect_to_leader(store, place)
    # From here on a signal to the pod must not end requests: the leader drains, then says stop.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    link = LeaderLink(connection)
    try:
        _serve(config, place, store, link)
    except Exception as error:
        logger.exception("%s failed", place.describe())
        with contextlib.suppress(OSError):
            link.send(Failed(*name_failure(error)))
        sys.exit(1)


def _serve(config: EngineConfig, place: Place, store: Store, link: LeaderLink) -> NoReturn:
    limits = EngineLimits(**link.receive(Load).limits)  # type: ignore[arg-type]  # from JSON
    rank = Rank(config, place, read_shape(config.model_path))
    worker = rank.load(limits, store)
    link.send(Loaded())

    link.receive(RunProfile)
    profile = worker.profile()
    link.send(rank.measure(worker, profile, limits))

    num_blocks = link.receive(Allocate).num_blocks
    unused = Sampler(TorchDraw(seed=0), eos_token_ids=frozenset())
    runner = worker.make_runner(profile, num_blocks=num_blocks, sampler=unused)
    link.send(Allocated())
    worker.prepare(runner, profile)
    while True:
        runner.compute(link.receive(Step).inputs)
