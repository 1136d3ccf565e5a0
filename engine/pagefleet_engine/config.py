"""EngineConfig: every setting of the engine, and its command line."""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import NoReturn, Self

from pagefleet_engine.errors import ConfigError
from pagefleet_memory import KV_CACHE_DTYPES

DEVICES = ("auto", "cpu", "cuda")
DTYPES = ("auto", "float32", "bfloat16", "float16")
POLICIES = ("fcfs", "priority")
ATTENTION_BACKENDS = ("auto", "torch", "triton")


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """What was asked for; None means that the engine derives the value when it starts."""

    model: str
    served_model_name: str | None = None
    host: str = "0.0.0.0"
    port: int = 8000
    device: str = "auto"
    dtype: str = "auto"
    max_model_len: int | None = None
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    block_size: int = 16
    kv_cache_dtype: str = "auto"
    gpu_memory_utilization: float = 0.90
    tensor_parallel_size: int = 1
    pipeline_parallel_size: int = 1
    swap_space: int = 0
    enforce_eager: bool = False
    attention_backend: str = "auto"
    seed: int = 0
    enable_prefix_caching: bool = True
    scheduling_policy: str = "fcfs"
    device_memory_bytes: int | None = None
    num_gpu_blocks_override: int | None = None
    drain_timeout: float = 300.0
    propagation_seconds: float = 5.0
    termination_log: str | None = None

    def __post_init__(self) -> None:
        self._check_choices()
        self._check_numbers()
        self._check_served()

    def _check_choices(self) -> None:
        for name, choices in (
            ("device", DEVICES),
            ("dtype", DTYPES),
            ("kv_cache_dtype", KV_CACHE_DTYPES),
            ("scheduling_policy", POLICIES),
            ("attention_backend", ATTENTION_BACKENDS),
        ):
            value = getattr(self, name)
            if value not in choices:
                raise ConfigError(name, value, f"must be one of {', '.join(choices)}")

    def _check_numbers(self) -> None:
        for name in (
            "max_model_len",
            "max_num_seqs",
            "max_num_batched_tokens",
            "block_size",
            "tensor_parallel_size",
            "pipeline_parallel_size",
            "device_memory_bytes",
            "num_gpu_blocks_override",
        ):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(name, value, "must be at least 1")
        if self.block_size % 8:
            hint = "must be a multiple of 8, such as 16"
            raise ConfigError("block_size", self.block_size, hint)
        for name in ("drain_timeout", "propagation_seconds"):
            if getattr(self, name) < 0:
                raise ConfigError(name, getattr(self, name), "must not be negative")
        if not 0.0 < self.gpu_memory_utilization <= 1.0:
            raise ConfigError(
                "gpu_memory_utilization",
                self.gpu_memory_utilization,
                "must be above 0 and at most 1",
            )
        if not 0 <= self.port <= 65535:
            raise ConfigError("port", self.port, "must be between 0 and 65535")

    def _check_served(self) -> None:
        """Settings that are understood but that this version cannot honour."""
        if self.swap_space != 0:
            raise ConfigError(
                "swap_space", self.swap_space, "this version preempts by recompute only; 0 works"
            )

    @property
    def num_ranks(self) -> int:
        """Processes that hold a part of the model each."""
        return self.tensor_parallel_size * self.pipeline_parallel_size

    @property
    def model_path(self) -> Path:
        return Path(self.model)

    @property
    def model_name(self) -> str:
        """The name that requests use: the served name, else the folder's."""
        return self.served_model_name or self.model_path.name or self.model

    @classmethod
    def from_args(cls, argv: Sequence[str]) -> Self:
        """Parse a command line; a bad one raises ConfigError, `--help` prints and exits."""
        return cls.from_namespace(build_parser().parse_args(argv))

    @classmethod
    def from_namespace(cls, namespace: argparse.Namespace) -> Self:
        given = vars(namespace)
        names = {item.name for item in fields(cls)}
        return cls(**{name: value for name, value in given.items() if name in names})


class _Parser(argparse.ArgumentParser):
    """An argument parser that reports a bad command line as ConfigError."""

    def error(self, message: str) -> NoReturn:
        raise ConfigError("arguments", message, "run with --help for the list of flags")


def build_parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="pagefleet-engine",
        description="Serve one model with an OpenAI-compatible API and a paged KV cache.",
        allow_abbrev=False,  # an abbreviation of today can be ambiguous tomorrow
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    add_arguments(parser)
    return parser


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the engine's flags; their names are those that vLLM uses."""
    _add_server_arguments(parser)
    _add_model_arguments(parser)
    _add_memory_arguments(parser)
    _add_scheduler_arguments(parser)


def _add_server_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("server")
    group.add_argument("--served-model-name", help="name in the API (default: the folder's name)")
    group.add_argument("--host", default="0.0.0.0", help="address to listen on")
    group.add_argument("--port", type=int, default=8000, help="port to listen on")
    group.add_argument(
        "--drain-timeout", type=float, default=300.0, help="seconds to finish running requests"
    )
    group.add_argument(
        "--propagation-seconds",
        type=float,
        default=5.0,
        help="seconds to keep accepting after SIGTERM, while endpoints are withdrawn",
    )
    group.add_argument("--termination-log", help="file for the record of a fatal error")


def _add_model_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("model")
    group.add_argument("--model", required=True, help="folder with config.json and safetensors")
    group.add_argument("--device", default="auto", help="one of " + ", ".join(DEVICES))
    group.add_argument("--dtype", default="auto", help="one of " + ", ".join(DTYPES))
    group.add_argument("--max-model-len", type=int, help="longest prompt plus output, in tokens")
    group.add_argument("--seed", type=int, default=0, help="seed of requests that bring none")
    group.add_argument("--tensor-parallel-size", type=int, default=1, help="ranks per stage")
    group.add_argument("--pipeline-parallel-size", type=int, default=1, help="stages")
    group.add_argument("--enforce-eager", action="store_true", help="never capture CUDA graphs")
    group.add_argument(
        "--attention-backend",
        default="auto",
        help=f"one of {', '.join(ATTENTION_BACKENDS)}; auto is triton on a GPU, torch on a CPU",
    )


def _add_memory_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("memory")
    group.add_argument("--block-size", type=int, default=16, help="tokens in one KV block")
    group.add_argument(
        "--kv-cache-dtype", default="auto", help="one of " + ", ".join(KV_CACHE_DTYPES)
    )
    group.add_argument(
        "--gpu-memory-utilization",
        type=float,
        default=0.90,
        help="share of the device memory that the engine may use, everything included",
    )
    group.add_argument(
        "--device-memory-bytes",
        type=int,
        help="memory of the device (CPU default: the container's limit, else physical memory)",
    )
    group.add_argument("--swap-space", type=int, default=0, help="bytes of CPU memory for swap")
    group.add_argument(
        "--num-gpu-blocks-override", type=int, help="number of KV blocks, instead of deriving it"
    )


def _add_scheduler_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("scheduler")
    group.add_argument("--max-num-seqs", type=int, help="most requests running at once")
    group.add_argument("--max-num-batched-tokens", type=int, help="most tokens in one step")
    group.add_argument(
        "--enable-prefix-caching",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="reuse the KV blocks of equal prompt beginnings",
    )
    group.add_argument("--scheduling-policy", default="fcfs", help="one of " + ", ".join(POLICIES))
