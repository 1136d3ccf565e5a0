"""The processes of all ranks but the leading one."""

import logging
import multiprocessing
from multiprocessing.process import BaseProcess

from pagefleet_engine.config import EngineConfig
from pagefleet_engine.parallel.placement import Place

END_SECONDS = 10.0


def spawn_ranks(config: EngineConfig, places: list[Place]) -> list[BaseProcess]:
    """Start a process for each of these places."""
    # The server imports once for all ranks and touches no GPU, since CUDA cannot be forked.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["pagefleet_engine.parallel.serve_rank"])
    processes: list[BaseProcess] = []
    for place in places:
        name = f"pagefleet-rank-{place.rank}"
        process = context.Process(target=_run_rank, args=(config, place), name=name, daemon=True)
        process.start()
        processes.append(process)
    return processes


def end_ranks(processes: list[BaseProcess], *, seconds: float = END_SECONDS) -> None:
    """Wait for processes that were told to end, and kill those that do not."""
    for process in processes:
        process.join(seconds)
        process.kill()
        process.join()


def _run_rank(config: EngineConfig, place: Place) -> None:
    # Imported here: whoever only starts ranks stays free of torch.
    from pagefleet_engine.parallel.serve_rank import serve_rank

    logging.basicConfig(
        level=logging.INFO, format=f"%(asctime)s %(levelname)s rank {place.rank}: %(message)s"
    )
    serve_rank(config, place)
