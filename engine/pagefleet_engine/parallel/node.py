"""A pod that computes a part of a replica and answers no requests: it starts ranks and waits."""

import logging
import multiprocessing.connection
import signal
from multiprocessing.process import BaseProcess

from pagefleet_engine.config import EngineConfig
from pagefleet_engine.parallel.placement import Node, node_places
from pagefleet_engine.parallel.rank_process import spawn_ranks
from pagefleet_engine.termination import write_record

logger = logging.getLogger(__name__)


class NodeRanks:
    """The ranks of this pod; they end together."""

    def __init__(self, config: EngineConfig, node: Node) -> None:
        self._config = config
        self._ranks: list[BaseProcess] = []
        self._is_stopping = False
        signal.signal(signal.SIGTERM, self._stop)
        signal.signal(signal.SIGINT, self._stop)
        self._ranks += spawn_ranks(config, node_places(config, node))

    def _stop(self, *_: object) -> None:
        """Ranks that have joined go on until the leader stops them, those that wait for it end."""
        self._is_stopping = True
        for rank in self._ranks:
            rank.terminate()

    def wait(self) -> int:
        """Wait for all ranks; returns the exit code, after a record where a rank failed."""
        running = list(self._ranks)
        failed: BaseProcess | None = None
        while running:
            multiprocessing.connection.wait([each.sentinel for each in running])
            ended = [each for each in running if each.exitcode is not None]
            running = [each for each in running if each.exitcode is None]
            failed = failed or next((each for each in ended if each.exitcode), None)
            if failed is not None:
                for each in running:
                    each.kill()
        if failed is None or self._is_stopping:
            return 0
        message = f"{failed.name} exited with {failed.exitcode}; the leading pod knows why"
        logger.error(message)
        write_record(self._config.termination_log, reason="RankDied", message=message)
        return 1
