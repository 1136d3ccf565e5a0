"""CudaCapture: record CUDA graphs that share one pool of memory."""

from typing import Any

import torch

from pagefleet_engine.decode_graphs import Run


class CudaCapture:
    """A Capture for the current CUDA device."""

    def __init__(self) -> None:
        self._pool: Any = None

    def __call__(self, run: Run) -> Run:
        self._run_before(run)
        graph = torch.cuda.CUDAGraph()
        # Threads that watch collectives go on asking for events meanwhile.
        with torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"):
            run()
        self._pool = graph.pool()
        return graph.replay

    def _run_before(self, run: Run) -> None:
        """What happens once, such as allocating workspaces, is illegal in a capture."""
        stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            run()
        torch.cuda.current_stream().wait_stream(stream)
