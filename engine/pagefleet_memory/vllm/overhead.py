"""What vLLM holds beside weights, activations and KV: context, collectives, captured graphs."""

from pagefleet_memory.constants import constant
from pagefleet_memory.model_shape import ModelShape
from pagefleet_memory.vllm.run import Run

_LARGEST_CAPTURE = 512


def non_torch(run: Run) -> int:
    """Growth outside PyTorch that the budget counts."""
    return constant(f"communication_{_kind(run)}", "vllm").value


def context(run: Run) -> int:
    """What the process holds before loading, outside the budget."""
    distributed = run.tensor_parallel_size * run.pipeline_parallel_size > 1
    name = "gpu_context_distributed" if distributed else "gpu_context"
    return constant(name, "vllm").value


def graphs(shape: ModelShape, run: Run) -> int:
    """The pool of captured graphs: it grows with the layers captured per batch size."""
    if run.enforce_eager:
        return 0
    layers = -(-shape.num_layers // run.pipeline_parallel_size)
    sizes = min(2 * run.max_num_seqs, _LARGEST_CAPTURE)
    first = constant("graph_first_capture", "vllm").value
    full = constant("graph_per_layer", "vllm").value * layers
    experts = constant("graph_experts", "vllm").value if shape.num_experts else 0
    return first + (full + experts) * sizes // _LARGEST_CAPTURE


def _kind(run: Run) -> str:
    if run.tensor_parallel_size > 1:
        hopper = 9.0 <= run.compute_capability < 10.0
        fused = run.release.fuses_all_reduce and hopper and run.joined_by_nvlink
        return "fused" if fused else "tensor"
    if run.pipeline_parallel_size > 1:
        return "pipeline"
    if not run.is_large_card:
        return "small_card"
    return "single" if run.release.fuses_all_reduce else "single_before_018"
