"""Quantized checkpoints through the whole engine, against the same rounded weights in floats.

Covered: every form that the engine reads, in one rank and cut to parts of ranks, with biases, an
ignore list, measured against predicted bytes, refusals. Left out: the GPU's kernels, which have
tests of their own (`tests/kernels_triton/`), and expert weights, which are refused.
"""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from pagefleet_engine.errors import ConfigError, ModelLoadError
from pagefleet_engine.layers.quantized import QuantizedLinear
from pagefleet_engine.models.checkpoint import read_shape
from pagefleet_engine.models.quantized import read_quantized_linears
from pagefleet_engine.models.skeleton import build_on_meta
from pagefleet_engine.parallel.pieces import Piece
from pagefleet_engine.parallel.weights import Checkpoint
from tests.support.parallel_engine import assert_same, generate, open_llm, save_model
from tests.support.quantized_checkpoint import Form, save_quantized
from tests.support.quantized_forms import BLOCKS, FORMS, SIZES, awq, compressed, gptq

# One of each way to read; the others differ from these in their names.
THROUGH_THE_ENGINE = (
    "awq-32",
    "gptq-symmetric",
    "gptq-asymmetric",
    "fp8-tensor",
    "fp8-block",
    "channel",
)


@pytest.fixture(scope="module")
def floats(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model before rounding; qwen2 has biases at queries, keys and values."""
    return save_model(tmp_path_factory.mktemp("floats"), "qwen2", **SIZES)


@pytest.mark.parametrize("name", THROUGH_THE_ENGINE)
def test_a_quantized_model_gives_the_tokens_of_its_rounded_weights(
    name: str, floats: Path, tmp_path: Path
) -> None:
    save_quantized(floats, tmp_path, FORMS[name])
    with open_llm(tmp_path / "plain") as plain:
        expected = generate(plain)
    with open_llm(tmp_path / "packed") as packed:
        assert_same(generate(packed), expected)
        weights = next(each for each in packed.core.ledger().terms if each.name == "weights")
    assert weights.measured_bytes is not None and weights.predicted_bytes is not None
    assert weights.measured_bytes == weights.predicted_bytes + _held_beyond(tmp_path / "packed")


def _held_beyond(folder: Path) -> int:
    """What the engine holds beyond the files: no constant tensors of GPTQ, a scale per output."""
    section = json.loads((folder / "config.json").read_text())["quantization_config"]
    constant = ("g_idx", "qzeros") if section.get("sym") else ("g_idx",)
    tensors, beyond = load_file(folder / "model.safetensors"), 0
    for name, tensor in tensors.items():
        if name.endswith(constant):
            beyond -= tensor.numel() * tensor.itemsize
        elif name.endswith("weight_scale") and tensor.numel() == 1:
            outputs = tensors[name.removesuffix("_scale")].shape[0]
            beyond += 4 * (outputs - 1)
    return beyond


def test_modules_of_the_ignore_list_stay_in_floats(floats: Path, tmp_path: Path) -> None:
    form = FORMS["awq-32"]
    ignored = {**form.section, "modules_to_not_convert": ["down_proj", "layers.1.self_attn.o_proj"]}
    plain = ("down_proj", "1.self_attn.o_proj")
    save_quantized(floats, tmp_path, Form(ignored, form.quantize, plain))
    with open_llm(tmp_path / "plain") as one:
        expected = generate(one)
    with open_llm(tmp_path / "packed") as other:
        assert_same(generate(other), expected)
    linears = _read(tmp_path / "packed", {})
    assert len(linears) == 2 * 7 - 3
    assert not any(name.endswith(plain) for name in linears)


@pytest.mark.parametrize("name", FORMS)
def test_a_rank_reads_the_part_of_its_piece(name: str, floats: Path, tmp_path: Path) -> None:
    save_quantized(floats, tmp_path, FORMS[name])
    plain = load_file(tmp_path / "plain" / "model.safetensors")
    columns, rows = "model.layers.1.self_attn.q_proj", "model.layers.1.mlp.down_proj"
    pieces = {
        f"{columns}.weight": Piece(f"{columns}.weight", 0, ((128, 256),)),
        f"{rows}.weight": Piece(f"{rows}.weight", 1, ((128, 256),)),
    }
    found = _read(tmp_path / "packed", pieces, halved=(columns, rows))
    for path, expected in (
        (columns, plain[f"{columns}.weight"][128:]),
        (rows, plain[f"{rows}.weight"][:, 128:]),
    ):
        weight = found[path].weight
        torch.testing.assert_close(weight.rows(0, weight.out_features), expected)


def _read(
    folder: Path, pieces: dict[str, Piece], *, halved: tuple[str, ...] = ()
) -> dict[str, QuantizedLinear]:
    """The quantized modules by name; `halved` ones are built for half of one dimension."""
    shape, model = read_shape(folder), build_on_meta(folder, dtype=torch.float32)
    for name in halved:
        linear = model.get_submodule(name)
        assert isinstance(linear, torch.nn.Linear)
        inputs, outputs = linear.in_features, linear.out_features
        if pieces[f"{name}.weight"].dim == 0:
            outputs //= 2
        else:
            inputs //= 2
        model.set_submodule(name, torch.nn.Linear(inputs, outputs, device="meta"))
    assert shape.quantization is not None
    checkpoint, device = Checkpoint(folder), torch.device("cpu")
    read_quantized_linears(model, checkpoint, pieces, shape.quantization, device=device)
    modules = model.named_modules()
    return {name: each for name, each in modules if isinstance(each, QuantizedLinear)}


@pytest.mark.parametrize(
    ("name", "piece", "covered"),
    [
        ("awq-128", Piece("model.layers.0.mlp.down_proj.weight", 1, ((64, 256),)), 128),
        ("awq-32", Piece("model.layers.0.mlp.up_proj.weight", 0, ((0, 4),)), 8),
        ("fp8-block", Piece("model.layers.0.mlp.up_proj.weight", 0, ((0, 64),)), 128),
    ],
)
def test_a_part_that_cuts_through_a_group_is_refused(
    name: str, piece: Piece, covered: int, floats: Path, tmp_path: Path
) -> None:
    save_quantized(floats, tmp_path, FORMS[name])
    with pytest.raises(ConfigError, match=f"a multiple of {covered}") as caught:
        _read(tmp_path / "packed", {piece.source: piece})
    assert caught.value.field == "tensor_parallel_size"


@pytest.mark.parametrize(
    ("section", "words"),
    [
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, "bitsandbytes weights"),
        ({"quant_method": "mxfp4"}, "mxfp4 weights"),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, "modelopt NVFP4 weights"),
        (gptq(128, symmetric=True, desc_act=True).section, "gptq desc_act true weights"),
        (gptq(128, symmetric=True, bits=8).section, "gptq 8-bit weights"),
        (awq(128, version="gemv").section, "awq version gemv weights"),
        (awq(-1).section, "awq group_size -1 weights"),
        ({**BLOCKS, "weight_block_size": [64, 64]}, r"fp8 weight_block_size \[64, 64\] weights"),
        (
            {**compressed("channel", type="int"), "format": "int-quantized"},
            "compressed-tensors int-quantized weights",
        ),
    ],
)
def test_what_the_engine_does_not_read_is_refused_by_its_field(
    section: dict[str, object], words: str, floats: Path, tmp_path: Path
) -> None:
    config = json.loads((floats / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "quantization_config": section}))
    (tmp_path / "model.safetensors").symlink_to(floats / "model.safetensors")
    named = f"quantization_config.quant_method: .* does not read {words}; awq .* work"
    with pytest.raises(ModelLoadError, match=named):
        read_shape(tmp_path)


def _damaged(folder: Path, name: str, tensor: torch.Tensor) -> None:
    path = folder / "model.safetensors"
    save_file({**load_file(path), name: tensor}, path, metadata={"format": "pt"})


@pytest.mark.parametrize(
    ("name", "tensor", "value", "named"),
    [
        ("gptq-symmetric", "q_proj.g_idx", torch.arange(128).int() % 2, "q_proj.g_idx orders"),
        ("awq-32", "q_proj.scales", torch.ones(3, 256).half(), "q_proj cannot be read: qzeros"),
        ("channel", "q_proj.weight_scale", torch.ones(2), "q_proj.weight_scale has 2 scales"),
        ("fp8-block", "q_proj.weight_scale_inv", torch.ones(1, 1), "q_proj cannot be read: scales"),
        ("fp8-tensor", "q_proj.weight", torch.zeros(8, 8).to(torch.float8_e5m2), "float8_e5m2"),
        ("fp8-tensor", "q_proj.bias", torch.zeros(256).to(torch.float8_e4m3fn), "q_proj.bias is"),
    ],
)
def test_tensors_that_cannot_be_right_are_refused_by_name(
    name: str, tensor: str, value: torch.Tensor, named: str, floats: Path, tmp_path: Path
) -> None:
    save_quantized(floats, tmp_path, FORMS[name])
    _damaged(tmp_path / "packed", f"model.layers.0.self_attn.{tensor}", value)
    with pytest.raises(ModelLoadError, match=named), open_llm(tmp_path / "packed"):
        pass
