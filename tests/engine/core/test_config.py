"""Settings and their command line: defaults, and refusals that name flag, value and remedy."""

from typing import Any

import pytest

from pagefleet_engine.config import EngineConfig
from pagefleet_engine.errors import ConfigError


def test_flags_carry_their_usual_names() -> None:
    config = EngineConfig.from_args(
        "--model /model --served-model-name smol --port 0 --dtype float32 --max-model-len 2048"
        " --max-num-seqs 16 --max-num-batched-tokens 256 --block-size 32 --kv-cache-dtype bfloat16"
        " --gpu-memory-utilization 0.8 --no-enable-prefix-caching --scheduling-policy priority"
        " --device cpu --device-memory-bytes 1073741824 --num-gpu-blocks-override 10"
        " --drain-timeout 10 --propagation-seconds 0 --swap-space 0 --enforce-eager"
        " --tensor-parallel-size 1 --pipeline-parallel-size 1 --seed 3 --host 127.0.0.1".split()
    )
    assert (config.model_name, config.port, config.block_size) == ("smol", 0, 32)
    assert (config.max_model_len, config.enable_prefix_caching) == (2048, False)
    assert (config.gpu_memory_utilization, config.seed, config.enforce_eager) == (0.8, 3, True)


def test_what_is_absent_is_left_to_the_engine() -> None:
    config = EngineConfig.from_args(["--model", "/models/smol"])
    assert config == EngineConfig(model="/models/smol")
    assert config.max_num_seqs is None
    assert config.model_name == "smol"


@pytest.mark.parametrize(
    ("field", "value", "hint"),
    [
        ("dtype", "int3", "one of auto, float32"),
        ("device", "tpu", "one of auto, cpu, cuda"),
        ("kv_cache_dtype", "fp4", "one of auto"),
        ("scheduling_policy", "random", "fcfs, priority"),
        ("max_model_len", 0, "at least 1"),
        ("block_size", -1, "at least 1"),
        ("block_size", 20, "multiple of 8"),
        ("gpu_memory_utilization", 1.2, "at most 1"),
        ("port", 70000, "65535"),
        ("drain_timeout", -1.0, "negative"),
        ("tensor_parallel_size", 0, "at least 1"),
        ("pipeline_parallel_size", 0, "at least 1"),
        ("swap_space", 1024, "0 works"),
    ],
)
def test_a_setting_that_cannot_work_is_refused(field: str, value: Any, hint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        EngineConfig(model="/model", **{field: value})
    assert (caught.value.field, caught.value.value) == (field, value)
    assert hint in str(caught.value)


@pytest.mark.parametrize("argv", [[], ["--model", "/m", "--port", "x"], ["--model", "/m", "--no"]])
def test_a_bad_command_line_is_a_config_error(argv: list[str]) -> None:
    with pytest.raises(ConfigError):
        EngineConfig.from_args(argv)
