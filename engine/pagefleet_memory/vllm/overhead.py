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
    ranks = run.tensor_parallel_size * run.pipeline_parallel_size
    name = "gpu_context_distributed" if ranks > 1 else "gpu_context"
    return constant(name if run.is_large_card else f"{name}_small_card", "vllm").value


def warm_up(shape: ModelShape) -> int:
    """What requests need beyond the profiled peak, outside the budget."""
    method = shape.quantization.method if shape.quantization else ""
    return constant("warm_up_mxfp4", "vllm").value if method == "mxfp4" else 0


def graphs(shape: ModelShape, run: Run) -> int:
    """The pool of captured graphs: it grows with the layers captured per batch size."""
    if run.enforce_eager:
        return 0
    layers = -(-shape.num_layers // run.pipeline_parallel_size)
    sizes = min(2 * run.max_num_seqs, _LARGEST_CAPTURE)
    first = constant("graph_first_capture", "vllm").value
    full = constant("graph_sizes", "vllm").value
    full += constant("graph_per_layer", "vllm").value * layers
    full += constant("graph_experts", "vllm").value if shape.num_experts else 0
    return first + full * sizes // _LARGEST_CAPTURE


def _kind(run: Run) -> str:
    """Which of the measured growths a run's has to be like."""
    if run.tensor_parallel_size > 1:
        return _tensor_kind(run)
    if run.pipeline_parallel_size > 1:
        return "pipeline"
    if not run.is_large_card:
        return "small_card"
    if run.is_blackwell:
        return "blackwell"
    return "single" if run.release.fuses_all_reduce else "single_before_018"


def _tensor_kind(run: Run) -> str:
    if not run.is_large_card:
        return "tensor_small_card"
    if run.is_blackwell:
        return "tensor_blackwell"
    if not (run.release.fuses_all_reduce and run.is_hopper and run.joined_by_nvlink):
        return "tensor"
    return "fused_pair" if run.tensor_parallel_size == 2 else "fused"
