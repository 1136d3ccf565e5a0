"""The command `pagefleet-engine`: parse the arguments, serve, report how it ended."""

import argparse
import asyncio
import logging
import os
import signal
import sys
from collections.abc import Sequence

from pagefleet_engine.config import EngineConfig
from pagefleet_engine.errors import ConfigError
from pagefleet_engine.parallel.node import NodeRanks
from pagefleet_engine.parallel.placement import Node, read_node
from pagefleet_engine.termination import write_record
from pagefleet_engine.tokenizer import keep_torch_out

EXIT_BAD_ARGUMENTS = 2


def main(argv: Sequence[str] | None = None) -> int:
    # Before the slow imports: as process 1 of a container, Python would ignore SIGTERM.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    arguments = list(sys.argv[1:] if argv is None else argv)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    try:
        config = EngineConfig.from_args(arguments)
        node = read_node(config, os.environ) if config.num_ranks > 1 else Node()
    except ConfigError as error:
        print(f"pagefleet-engine: {error}", file=sys.stderr)
        write_record(_termination_log(arguments), reason="BadArguments", message=str(error))
        return EXIT_BAD_ARGUMENTS
    keep_torch_out()
    if node.rank > 0:
        return NodeRanks(config, node).wait()
    from pagefleet_engine.server import serve  # after the handler above is in place

    return asyncio.run(serve(config))


def _termination_log(arguments: Sequence[str]) -> str | None:
    """Where to write the record although the arguments as a whole are bad."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    parser.add_argument("--termination-log")
    try:
        found: str | None = parser.parse_known_args(arguments)[0].termination_log
    except argparse.ArgumentError:
        return None
    return found


if __name__ == "__main__":
    sys.exit(main())
