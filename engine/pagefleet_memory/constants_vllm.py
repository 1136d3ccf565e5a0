"""Constants of vLLM's releases, read off public start-up logs, for scoring against them."""

from pagefleet_memory.constant_record import Constant, gib
from pagefleet_memory.units import MIB


def _vllm(name: str, value: int, unit: str, source: str) -> Constant:
    return Constant(name, value, unit, source, "2026-11", "vllm")


VLLM: tuple[Constant, ...] = (
    _vllm("gpu_context", gib(0.51), "bytes", "held before loading on one H100, 0.19 logs"),
    _vllm(
        "gpu_context_small_card",
        gib(0.35),
        "bytes",
        "the same on cards below 70 GiB; believed, no log prints it",
    ),
    _vllm(
        "gpu_context_distributed",
        gib(1.55),
        "bytes",
        "held before loading at TP2 and TP4 on H100: 1.43-2.07 GiB, 0.19 logs",
    ),
    _vllm(
        "gpu_context_distributed_small_card",
        gib(1.1),
        "bytes",
        "held before loading at TP2 on cards below 70 GiB; believed, no log prints it",
    ),
    _vllm(
        "warm_up_mxfp4",
        gib(2.4),
        "bytes",
        "graphs and warm-up of gpt-oss beyond other models: with 4.0 GiB outside the budget runs"
        " died, with 7.9 GiB they started (H100, 0.19)",
    ),
    _vllm(
        "communication_single",
        gib(0.25),
        "bytes",
        "growth outside torch on one H100 since 0.18: 0.24-0.27 GiB",
    ),
    _vllm(
        "communication_single_before_018",
        gib(0.13),
        "bytes",
        "the same until 0.17: 0.13 GiB in 0.11 to 0.17",
    ),
    _vllm(
        "communication_blackwell",
        gib(0.07),
        "bytes",
        "growth outside torch on one B200: 0.07 GiB",
    ),
    _vllm(
        "communication_tensor_blackwell",
        gib(0.95),
        "bytes",
        "collectives at TP4 on GB200: 0.95 GiB (GLM-5.2)",
    ),
    _vllm(
        "communication_small_card",
        gib(0.06),
        "bytes",
        "growth outside torch on T4, A10G, L40S, V100 and A100-40GB: 0.01-0.10 GiB",
    ),
    _vllm(
        "communication_pipeline",
        gib(0.07),
        "bytes",
        "growth outside torch per pipeline stage of one GPU, H100, 0.19",
    ),
    _vllm(
        "communication_tensor",
        gib(0.50),
        "bytes",
        "collectives without fused buffers: 0.54 GiB at TP2 (H100, 0.11)",
    ),
    _vllm(
        "communication_tensor_small_card",
        gib(0.33),
        "bytes",
        "the same on cards below 70 GiB: 0.34-0.43 GiB on A100-40GB, 0.20-0.25 on 24 GB cards",
    ),
    _vllm(
        "communication_fused_pair",
        gib(2.07),
        "bytes",
        "custom and fused all-reduce buffers at TP2 on H100 since 0.18: 2.06-2.09 GiB",
    ),
    _vllm(
        "communication_fused",
        gib(2.19),
        "bytes",
        "the same at TP4: 2.17-2.21 GiB",
    ),
    _vllm(
        "gpu_forward_floor",
        gib(0.14),
        "bytes",
        "intercept of the forward law: CodeLlama, granite, un-chunked prompts on RTX 3090",
    ),
    _vllm(
        "sampler_sorted_millibytes_per_logit",
        38_350,
        "bytes/1000",
        "peak of the dummy sampler run until 0.16, which sorts rows: 256 to 1024 sequences",
    ),
    _vllm("sampler_sorted_floor", 0, "bytes", "the same fit needs no intercept"),
    _vllm(
        "sampler_unsorted_millibytes_per_logit",
        14_450,
        "bytes/1000",
        "peak of the dummy sampler run over max_num_seqs rows, 0.17 to 0.19",
    ),
    _vllm(
        "sampler_unsorted_floor",
        gib(0.06),
        "bytes",
        "intercept of the same fit, beside one tensor of hidden states: 13 models on H100",
    ),
    _vllm(
        "graph_first_capture",
        gib(0.10),
        "bytes",
        "the smallest models of the logs: 0.10-0.17 GiB",
    ),
    _vllm(
        "graph_sizes",
        gib(0.30),
        "bytes",
        "rest of the intercept over layers at the 51 sizes up to 512: 0.51 GiB at 8 layers, 0.91"
        " at 32, 1.6 at 80 (H100)",
    ),
    _vllm(
        "graph_per_layer",
        16 * MIB,
        "bytes",
        "slope of the same fit, at the 51 sizes up to 512",
    ),
    _vllm(
        "graph_experts",
        gib(0.35),
        "bytes",
        "what models with routed experts capture beyond it: 0.3-1.0 GiB",
    ),
)
