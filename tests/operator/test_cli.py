"""`pagefleet plan` and `pagefleet run`: the operator's parser and planner without a cluster."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from pagefleet_operator.cli import main
from pagefleet_operator.local_run import engine_command, run_engine
from pagefleet_operator.model.folder import inspect_folder
from pagefleet_operator.planning.inventory import gpu_group
from pagefleet_operator.planning.serving_plan import ServingPlan, plan_on_groups
from pagefleet_operator.spec import InferenceDeployment
from tests.operator.builders import IMAGES, L4, body, cpu_plan, llama_config
from tests.operator.test_inspection_program import tensors, write_weights

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.yaml"))


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    small = {"hidden_size": 576, "num_hidden_layers": 4, "num_attention_heads": 9}
    config = llama_config(**small, num_key_value_heads=3, intermediate_size=1536)
    (folder / "config.json").write_text(json.dumps(config))
    write_weights(folder / "model.safetensors", tensors(), data=768)
    return folder


def invoke(tmp_path: Path, document: dict[str, Any], *arguments: str) -> Result:
    file = tmp_path / "infd.yaml"
    file.write_text(yaml.safe_dump(document))
    command, *rest = arguments
    return CliRunner().invoke(main, [command, "-f", str(file), *rest])


def test_json_is_the_plan_that_status_shows(tmp_path: Path, model: Path) -> None:
    result = invoke(tmp_path, body(), "plan", "--model", str(model), "--gpu", L4, "-o", "json")
    assert result.exit_code == 0, result.output
    printed = json.loads(result.output)
    assert printed["accelerator"]["product"] == L4
    assert (
        yaml.safe_load(
            invoke(
                tmp_path, body(), "plan", "--model", str(model), "--gpu", L4, "-o", "yaml"
            ).output
        )
        == printed
    )


def test_table_shows_the_ledger(tmp_path: Path, model: Path) -> None:
    result = invoke(tmp_path, body(), "plan", "--model", str(model), "--gpu", L4)
    assert result.exit_code == 0, result.output
    assert "weights" in result.output and "kv_pool" in result.output and "budget" in result.output


def test_file_uri_is_a_folder_of_this_machine(tmp_path: Path, model: Path) -> None:
    wanted = body(model={"uri": f"file://{model}"}, hardware={"accelerator": "CPU"})
    result = invoke(tmp_path, wanted, "plan", "--node-memory", "8Gi", "-o", "json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.output)["accelerator"]["kind"] == "CPU"


def test_refusal_is_printed_and_fails(tmp_path: Path, model: Path) -> None:
    wanted = body(sizing={"limits": {"minKVTokens": 2_000_000_000}})
    result = invoke(tmp_path, wanted, "plan", "--model", str(model), "--gpu", L4, "-o", "json")
    assert result.exit_code == 1
    refusal = json.loads(result.output)["refusal"]
    assert refusal["reason"] == "DoesNotFit" and refusal["rejected"]
    table = invoke(tmp_path, wanted, "plan", "--model", str(model), "--gpu", L4)
    assert table.exit_code == 1 and "no plan (DoesNotFit)" in table.output


@pytest.mark.parametrize(
    ("document", "arguments", "said"),
    [
        ({"kind": "Pod"}, ["plan"], "holds no InferenceDeployment"),
        ({**body(), "spec": {"model": {"uri": "hf://a/b"}, "replicas": -1}}, ["plan"], "replicas"),
        ({**body(), "spec": {"model": {"uri": "oci://a/b:1"}}}, ["run"], "--model FOLDER"),
        ({**body(), "spec": {"model": {"uri": "file:///nowhere"}}}, ["run"], "ModelNotFound"),
    ],
)
def test_mistake_is_one_clear_line(
    tmp_path: Path, document: dict[str, Any], arguments: list[str], said: str
) -> None:
    result = invoke(tmp_path, document, *arguments)
    assert result.exit_code == 1
    assert said in result.output
    assert "Traceback" not in result.output


def test_unknown_gpu_asks_for_its_memory(tmp_path: Path, model: Path) -> None:
    result = invoke(tmp_path, body(), "plan", "--model", str(model), "--gpu", "Unheard-Of")
    assert result.exit_code == 1 and "nvidia.com/gpu.memory" in result.output
    known = invoke(
        tmp_path,
        body(),
        "plan",
        "--model",
        str(model),
        "--gpu",
        "Unheard-Of",
        "--gpu-memory",
        "24000",
    )
    assert known.exit_code == 0, known.output


def test_local_engine_gets_the_plans_flags(tmp_path: Path) -> None:
    plan = cpu_plan()
    command = engine_command(plan, folder=tmp_path, host="127.0.0.1", port=9000)
    assert command[:3] == [sys.executable, "-m", "pagefleet_engine"]
    changed = [
        word for word, planned in zip(command[3:], plan.engine_args, strict=True) if word != planned
    ]
    assert changed == [str(tmp_path), "127.0.0.1", "9000"]


def test_engines_exit_code_is_handed_on() -> None:
    assert run_engine([sys.executable, "-c", "raise SystemExit(3)"], {}) == 3


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_examples_parse(example: Path) -> None:
    document = yaml.safe_load(example.read_text())
    assert InferenceDeployment.parse(document).name == document["metadata"]["name"]


def test_cluster_and_command_line_give_the_same_plan(tmp_path: Path, model: Path) -> None:
    found = inspect_folder(model)
    wanted = InferenceDeployment.parse(body())
    group = gpu_group(L4, gpus=8, nodes=1)
    plan = plan_on_groups(wanted, found.shape, found.revision, [group], IMAGES)
    assert isinstance(plan, ServingPlan)
    result = invoke(tmp_path, body(), "plan", "--model", str(model), "--gpu", L4, "-o", "json")
    printed, expected = json.loads(result.output), plan.to_status()
    del printed["hash"], expected["hash"]  # the image is part of it
    assert printed == expected
