"""How long one plan takes over a large inventory: python -m bench.plan_search.

Fifty node groups of different products, eight GPUs a node and four nodes each; a model with sixty-
four heads, so that eight tensor sizes and every number of stages are looked at.
"""

import statistics
import time

from pagefleet_memory import ModelShape, NodeGroup, Pins, Workload, accelerator_from_labels
from pagefleet_memory.plan import plan_serving

RUNS = 30
LLAMA_70B = {
    "model_type": "llama",
    "hidden_size": 8192,
    "num_hidden_layers": 80,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "intermediate_size": 28672,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "torch_dtype": "bfloat16",
}
CASES = {
    "fits on two GPUs": (Workload(max_model_len=8192), Pins()),
    "concurrency and rate": (
        Workload(max_model_len=8192, concurrency=64, request_rate=2.0),
        Pins(),
    ),
    "fits nowhere": (Workload(max_model_len=131072), Pins(max_gpus=1)),
}


def groups() -> list[NodeGroup]:
    """Fifty products that no table knows, each with a little more memory than the last."""
    return [
        NodeGroup(f"g{i}", accelerator_from_labels(f"NVIDIA-X{i}", 40960 + 200 * i), 8, 4, True)
        for i in range(50)
    ]


def main() -> None:
    shape, inventory = ModelShape.from_config(LLAMA_70B), groups()
    for name, (workload, pins) in CASES.items():
        seconds = []
        for _ in range(RUNS):
            start = time.perf_counter()
            plan_serving(shape, workload, inventory, pins)
            seconds.append(time.perf_counter() - start)
        median, worst = statistics.median(seconds), max(seconds)
        print(f"{name}: median {1000 * median:.1f} ms, worst {1000 * worst:.1f} ms of {RUNS}")


if __name__ == "__main__":
    main()
