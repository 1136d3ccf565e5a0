"""Models by name and by file, short product names, and the what-if flags of the command line."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from pagefleet_memory.catalogue import catalogue
from pagefleet_memory.ledger import TERM_NAMES
from pagefleet_memory.products import PRODUCTS
from pagefleet_operator.cli import main
from pagefleet_operator.commands.what_if import with_changes
from pagefleet_operator.planning.ledger_bar import MARKS, ledger_bar, widths
from tests.operator.builders import body, gpu_plan, llama_config

ROOT = Path(__file__).resolve().parents[2]
LLAMA_8B = "meta-llama/Llama-3.1-8B-Instruct"
LLAMA_70B = "meta-llama/Llama-3.3-70B-Instruct"


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(main, list(arguments))


def planned(*arguments: str) -> dict[str, Any]:
    result = invoke("plan", *arguments, "-o", "json")
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.output)
    return found


def test_a_catalogued_model_needs_neither_file_nor_network() -> None:
    plan = planned("--model", LLAMA_8B, "--gpu", "L4")
    assert plan["accelerator"]["product"] == "NVIDIA-L4"
    assert any("catalogue" in note for note in plan["notes"])


def test_the_example_of_a_70b_plans_by_its_repository_alone() -> None:
    example = str(ROOT / "examples/llama-70b.yaml")
    plan = planned(example, "--gpu", "H100-80GB", "--count", "8", "--nodes", "2")
    assert plan["chosen"]["tensorParallelSize"] == 2
    assert plan == planned("-f", example, "--gpu", "H100-80GB", "--count", "8", "--nodes", "2")


@pytest.mark.parametrize("name", ["config.json", "."])
def test_a_config_file_or_its_folder_is_enough(tmp_path: Path, name: str) -> None:
    (tmp_path / "config.json").write_text(json.dumps(llama_config()))
    plan = planned("--model", str(tmp_path / name), "--gpu", "L4")
    assert plan["kvTokens"] > 0


@pytest.mark.parametrize(
    ("flags", "chosen"),
    [
        (("--kv-dtype", "int8"), {"kvCacheDtype": "int8"}),
        (("--tp", "4", "--pp", "2"), {"tensorParallelSize": 4, "pipelineParallelSize": 2}),
        (("--max-model-len", "1024"), {"maxModelLen": 1024}),
        (("--max-num-seqs", "7"), {"maxNumSeqs": 7}),
        (("--max-num-batched-tokens", "4096"), {"maxNumBatchedTokens": 4096}),
        (("--utilization", "0.8"), {"gpuMemoryUtilization": "0.8"}),
        (("--dtype", "float16"), {"dtype": "float16"}),
        (("--block-size", "32"), {"blockSize": 32}),
        (("--concurrency", "10"), {"maxNumSeqs": 12}),
    ],
)
def test_what_if_flags_pin_their_fields(flags: tuple[str, ...], chosen: dict[str, Any]) -> None:
    plan = planned("--model", LLAMA_8B, "--gpu", "H100-80GB", *flags)
    assert chosen.items() <= plan["chosen"].items()


def test_a_cpu_node_is_planned_by_its_memory() -> None:
    model = ("--model", "SmolLM2-135M-Instruct", "--accelerator", "CPU")
    plan = planned(*model, "--node-memory", "8Gi", "--min-kv-tokens", "50000")
    assert plan["accelerator"]["kind"] == "CPU" and plan["kvTokens"] >= 50_000


def test_a_file_is_named_once() -> None:
    example = str(ROOT / "examples/llama-70b.yaml")
    result = invoke("plan", example, "-f", example)
    assert result.exit_code == 2 and "name one file" in result.output


def test_lengths_and_rate_reach_the_planner() -> None:
    base = ("--model", LLAMA_8B, "--gpu", "L4", "--count", "1", "--max-model-len", "8192")
    short = planned(*base, "--input-tokens", "100,200", "--output-tokens", "10,20")
    rare = planned(*base, "--request-rate", "0.1")
    assert short["chosen"]["maxNumSeqs"] > planned(*base)["chosen"]["maxNumSeqs"]
    assert rare["chosen"]["maxNumSeqs"] < planned(*base)["chosen"]["maxNumSeqs"]


def test_flags_change_a_copy_of_the_document() -> None:
    document = body(sizing={"maxNumSeqs": 3})
    changed = with_changes(document, {"sizing.parallelism.tensor": 2, "model.dtype": "float16"})
    assert changed["spec"]["sizing"] == {"maxNumSeqs": 3, "parallelism": {"tensor": 2}}
    assert changed["spec"]["model"]["dtype"] == "float16"
    assert document == body(sizing={"maxNumSeqs": 3})


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["plan"], "name a FILE"),
        (["capacity"], "name a model with --model"),
        (["plan", "--model", "meta-llama/Llama-3.1-8B-Instrct", "--gpu", "L4"], LLAMA_8B),
        (["plan", "--model", LLAMA_8B, "--gpu", "H100"], "NVIDIA-H100-PCIe"),
        (["plan", "--model", LLAMA_8B, "--gpu", "L4-SHARED"], "no known product"),
        (["plan", "--model", LLAMA_8B, "--gpu", "NVIDIA-L4-SHARED"], "time-shared"),
        (["plan", "--model", LLAMA_8B, "--gpu", "L4", "--kv-dtype", "int7"], "int8k_int4v"),
        (["plan", "--model", LLAMA_8B, "--gpu", "L4", "--max-num-seqs", "-1"], "maxNumSeqs"),
        (["plan", "--model", LLAMA_8B, "--gpu", "L4", "--input-tokens", "9"], "800,4000"),
        (["plan", "--model", LLAMA_8B, "--gpu", "L4", "--input-tokens", "9,3"], "p95"),
        (["plan", "--model", LLAMA_8B, "--node-memory", "lots"], "--node-memory"),
    ],
)
def test_a_mistake_is_said_in_a_line(arguments: list[str], said: str) -> None:
    result = invoke(*arguments)
    assert result.exit_code in (1, 2)
    assert said in result.output
    assert result.exception is None or isinstance(result.exception, SystemExit)


def test_a_refusal_lists_changes_that_were_tried() -> None:
    one_l4 = ("--gpu", "L4", "--count", "1", "--max-model-len", "8192")
    result = invoke("plan", "--model", LLAMA_70B, *one_l4, "-o", "json")
    refusal = json.loads(result.output)["refusal"]
    assert "8x NVIDIA-L4 (TP=8, PP=1) fits" in refusal["nearest"]
    assert all(change in refusal["message"] for change in refusal["nearest"])


def test_the_bar_of_a_ledger_is_as_wide_as_its_budget() -> None:
    for stage in gpu_plan().to_status()["ledger"]:
        bar = ledger_bar(stage).plain
        assert len(bar) == 82 and bar.count("█") > 10 and bar.count("░") > 10
        assert sum(widths(stage)) == 80
    assert tuple(MARKS) == TERM_NAMES
    shares = widths({"budgetBytes": 100, "terms": [{"bytes": 50}, {"bytes": 25}, {"bytes": 25}]})
    assert shares == [40, 20, 20]


def test_capacity_has_a_row_for_every_product() -> None:
    result = invoke("capacity", "--model", LLAMA_70B, "--max-model-len", "8192", "-o", "json")
    rows = json.loads(result.output)
    assert [row["product"] for row in rows] == [product.label for product in PRODUCTS]
    by_product = {row["product"]: row for row in rows}
    assert by_product["Tesla-T4"]["refusal"]["reason"] == "DoesNotFit"
    assert by_product["NVIDIA-B200"]["gpusPerReplica"] == 1
    plan = planned(
        "--model", LLAMA_70B, "--max-model-len", "8192", "--gpu", "NVIDIA-H100-80GB-HBM3"
    )
    h100 = by_product["NVIDIA-H100-80GB-HBM3"]
    assert h100["kvTokens"] == plan["kvTokens"]
    assert h100["predictedDecodeTokensPerSecond"] == plan["predictedDecodeTokensPerSecond"]


def test_capacity_of_named_products_is_a_table_of_them() -> None:
    result = invoke("capacity", "--model", LLAMA_8B, "--gpu", "L4", "--gpu", "T4", "--count", "1")
    assert "L4" in result.output and "T4" in result.output and "H100" not in result.output
    whole = invoke("capacity", "--model", LLAMA_8B, "--gpu", "L4", "--all-gpus")
    assert "H100" in whole.output


def test_models_lists_the_catalogue() -> None:
    table = invoke("models").output
    listed = yaml.safe_load(invoke("models", "-o", "yaml").output)
    assert [row["name"] for row in listed] == [model.name for model in catalogue()]
    assert all(row["source"] and row["parameters"] > 0 for row in listed)
    assert LLAMA_8B in table and "8.03 B" in table
    unsupported = {row["name"] for row in listed if "unsupported" in row}
    assert "deepseek-ai/DeepSeek-V3" in unsupported and LLAMA_8B not in unsupported


def test_a_model_that_the_engine_cannot_run_is_refused_by_name() -> None:
    result = invoke("plan", "--model", "deepseek-ai/DeepSeek-V3", "--gpu", "H200", "-o", "json")
    assert result.exit_code == 1
    assert "'deepseek_v3' caches a latent" in json.loads(result.output)["refusal"]["message"]
