"""Constants of pagefleet's own engine, for plans and for its ledger."""

from pagefleet_memory.constant_record import Constant, gib
from pagefleet_memory.units import GIB, MIB

PAGEFLEET: tuple[Constant, ...] = (
    Constant(
        "gpu_context",
        gib(0.55),
        "bytes",
        "CUDA context before loading, 0.51 GiB in H100 logs of vLLM 0.19",
        "2026-11",
    ),
    Constant(
        "gpu_context_distributed",
        gib(1.0),
        "bytes",
        "added to the context of each rank once NCCL starts: 1.43-2.07 GiB in all, same logs",
        "2026-11",
    ),
    Constant(
        "communication_single",
        gib(0.25),
        "bytes",
        "growth outside torch during the first forward: 0.24-0.27 GiB on one GPU, same logs",
        "2026-11",
    ),
    Constant(
        "communication_pipeline",
        gib(0.10),
        "bytes",
        "pipeline stages of one GPU grow 0.07 GiB, same logs",
        "2026-11",
    ),
    Constant(
        "communication_tensor",
        gib(0.60),
        "bytes",
        "NCCL rings without custom all-reduce: 0.55 GiB at TP2",
        "2026-11",
    ),
    Constant(
        "gpu_forward_floor",
        64 * MIB,
        "bytes",
        "cuBLAS workspaces of two streams, for steps and for captures: 32 MiB each is what NVIDIA"
        " recommends on Hopper (pytorch#120925)",
        "2026-11",
    ),
    Constant(
        "graph_first_capture",
        gib(0.40),
        "bytes",
        "first CUDA graph capture, 0.25-0.4 GiB in vLLM logs",
        "2026-11",
    ),
    Constant(
        "graph_per_size",
        5 * MIB,
        "bytes",
        "each further captured batch size: 4 MiB full plus 1 MiB piecewise (Llama PP4 logs)",
        "2026-11",
    ),
    Constant(
        "sampler_rows",
        64,
        "rows",
        "the sampler copies this many rows of logits at a time: a choice of the engine",
        "2026-11",
    ),
    Constant(
        "sampler_bytes_per_logit",
        16,
        "bytes",
        "8 for a copy and its log-probabilities in fp32, 8 for penalties (25 per distinct token "
        "seen) and for the search of the most probable tokens",
        "2026-11",
    ),
    Constant(
        "gpu_reserve",
        256 * MIB,
        "bytes",
        "allocator fragmentation: segments of 2 and 20 MiB that stay partly used",
        "2026-11",
    ),
    Constant(
        "cpu_context",
        900 * MIB,
        "bytes",
        "resident set of Python 3.11 with torch 2.15, transformers 5.24 and the server's libraries"
        " after one generate call: 425 MiB anonymous and 468 MiB of mapped libraries",
        "2026-11",
    ),
    Constant(
        "cpu_server_process",
        128 * MIB,
        "bytes",
        "anonymous memory of the HTTP front end beside the engine core, 109 MiB with SmolLM2's"
        " tokenizer; its mapped libraries are shared with the core",
        "2026-11",
    ),
    Constant(
        "cpu_forward_floor",
        64 * MIB,
        "bytes",
        "oneDNN scratchpads and thread arenas that do not scale with the batch",
        "2026-11",
    ),
    Constant(
        "cpu_reserve",
        96 * MIB,
        "bytes",
        "malloc fragmentation and request bodies",
        "2026-11",
    ),
    # Beside the accelerator: the pod's own requests.
    Constant(
        "host_base",
        2 * GIB,
        "bytes",
        "server process, tokenizer and the pinned buffers that weights pass through",
        "2026-11",
    ),
    Constant(
        "host_per_rank",
        3 * GIB,
        "bytes",
        "interpreter, torch and CUDA libraries of one rank (2-3 GiB resident)",
        "2026-11",
    ),
    Constant("shm_single", 64 * MIB, "bytes", "the container default", "2026-11"),
    Constant("shm_base", GIB, "bytes", "NCCL's shared segments in one pod", "2026-11"),
    Constant("shm_per_rank", 256 * MIB, "bytes", "NCCL channels of one rank", "2026-11"),
    Constant(
        "load_bytes_per_second",
        200 * MIB,
        "bytes/s",
        "a slow network volume; local disks read 1-5 GB/s",
        "2026-11",
    ),
    Constant(
        "startup_base_seconds",
        120,
        "s",
        "imports, tokenizer and warm-up on a busy 2-core node, with a margin",
        "2026-11",
    ),
    Constant("startup_graph_seconds", 120, "s", "graph capture, 10-60 s in logs", "2026-11"),
)
