"""The program in the inspection pod reads headers only, and answers every failure in JSON."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pagefleet_memory import ModelShape
from pagefleet_operator.inspect import main
from tests.operator.builders import llama_config
from tests.support.hub_server import COMMIT, HubServer

REPO = "example/model"


def tensors(*, start: int = 0, count: int = 3) -> dict[str, Any]:
    return {
        f"layer.{number}.weight": {
            "dtype": "BF16",
            "shape": [8, 16],
            "data_offsets": [256 * index, 256 * (index + 1)],
        }
        for index, number in enumerate(range(start, start + count))
    }


def write_weights(path: Path, header: dict[str, Any], *, data: int) -> None:
    text = json.dumps({"__metadata__": {"format": "pt"}, **header}).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + bytes(data))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text(json.dumps(llama_config()))
    write_weights(model / "model.safetensors", tensors(), data=768)
    return model


@pytest.fixture
def hub(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HubServer]:
    with HubServer({REPO: folder}) as server:
        monkeypatch.setenv("HF_ENDPOINT", server.endpoint)
        monkeypatch.delenv("HF_TOKEN", raising=False)
        yield server


def ask(tmp_path: Path, *arguments: str) -> dict[str, Any]:
    log = tmp_path / "termination-log"
    code = main([*arguments, "--termination-log", str(log)])
    text = log.read_text()
    assert len(text) < 4096
    answer: dict[str, Any] = json.loads(text)
    assert code == (1 if "error" in answer else 0)
    return answer


def reason(answer: dict[str, Any]) -> str:
    return str(answer["error"]["reason"])


def test_folder_gives_exact_sizes(folder: Path, tmp_path: Path) -> None:
    answer = ask(tmp_path, "--path", str(folder))
    checkpoint = ModelShape.from_summary(answer["shape"]).checkpoint
    assert checkpoint is not None
    assert (checkpoint.total_bytes, checkpoint.num_parameters) == (768, 384)
    assert checkpoint.bytes_by_dtype == {"BF16": 768}
    assert answer["revision"].startswith("sha256:")


def test_shards_are_added_up(folder: Path, tmp_path: Path) -> None:
    write_weights(folder / "b.safetensors", tensors(start=3), data=768)
    (folder / "model.safetensors").rename(folder / "a.safetensors")
    index = {"weight_map": {"x": "a.safetensors", "y": "b.safetensors", "z": "a.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    shape = ModelShape.from_summary(ask(tmp_path, "--path", str(folder))["shape"])
    assert shape.checkpoint is not None and shape.checkpoint.total_bytes == 1536


def test_changed_weights_are_another_revision(folder: Path, tmp_path: Path) -> None:
    before = ask(tmp_path, "--path", str(folder))["revision"]
    write_weights(folder / "model.safetensors", tensors(count=2), data=512)
    assert ask(tmp_path, "--path", str(folder))["revision"] != before


def test_download_that_was_cut_off_is_told(folder: Path, tmp_path: Path) -> None:
    write_weights(folder / "model.safetensors", tensors(), data=700)
    answer = ask(tmp_path, "--path", str(folder))
    assert reason(answer) == "CheckpointIncomplete"
    assert "error" not in ask(tmp_path, "--path", str(folder), "--headers-only")


def test_missing_shard_is_told(folder: Path, tmp_path: Path) -> None:
    index = {"weight_map": {"x": "gone.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    assert reason(ask(tmp_path, "--path", str(folder))) == "CheckpointIncomplete"


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("config.json", b"{not json", "ConfigUnreadable"),
        ("config.json", b"[1]", "ConfigUnreadable"),
        ("config.json", json.dumps(llama_config(model_type="mamba")).encode(), "UnsupportedModel"),
        ("config.json", json.dumps(llama_config(hidden_size="x")).encode(), "ConfigInvalid"),
        ("model.safetensors", b"", "WeightsUnreadable"),
        ("model.safetensors", b"version https://git-lfs.github.com/spec/v1", "WeightsUnreadable"),
        ("model.safetensors", (4).to_bytes(8, "little") + b"nope", "WeightsUnreadable"),
        ("model.safetensors", (8).to_bytes(8, "little") + b'{"a": 1}', "WeightsUnreadable"),
    ],
)
def test_broken_file_is_told(
    folder: Path, tmp_path: Path, name: str, content: bytes, expected: str
) -> None:
    (folder / name).write_bytes(content)
    assert reason(ask(tmp_path, "--path", str(folder))) == expected


@pytest.mark.parametrize(
    ("name", "expected"), [("config.json", "ModelNotFound"), ("model.safetensors", "NoSafetensors")]
)
def test_missing_file_is_told(folder: Path, tmp_path: Path, name: str, expected: str) -> None:
    (folder / name).unlink()
    assert reason(ask(tmp_path, "--path", str(folder))) == expected


def test_folder_that_is_not_there(tmp_path: Path) -> None:
    assert reason(ask(tmp_path, "--path", str(tmp_path / "none"))) == "ModelNotFound"


def test_hub_is_asked_for_headers_only(hub: HubServer, folder: Path, tmp_path: Path) -> None:
    write_weights(folder / "model.safetensors", tensors(), data=5_000_000)
    answer = ask(tmp_path, "--uri", f"hf://{REPO}")
    shape = ModelShape.from_summary(answer["shape"])
    assert shape.checkpoint is not None and shape.checkpoint.total_bytes == 768
    assert answer["revision"] == COMMIT
    ranges = [asked for _, path, asked in hub.behaviour.log if path.endswith(".safetensors")]
    assert ranges and set(ranges) == {"bytes=0-65535"}


def test_long_header_is_fetched_in_full(hub: HubServer, folder: Path, tmp_path: Path) -> None:
    write_weights(folder / "model.safetensors", tensors(count=2000), data=512_000)
    answer = ask(tmp_path, "--uri", f"hf://{REPO}")
    shape = ModelShape.from_summary(answer["shape"])
    assert shape.checkpoint is not None and shape.checkpoint.total_bytes == 512_000


def test_private_model_needs_the_token(
    hub: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.behaviour.token = "hf_right"
    refused = ask(tmp_path, "--uri", f"hf://{REPO}")
    assert reason(refused) == "ModelAccessDenied"
    assert "secretName" in refused["error"]["message"]
    monkeypatch.setenv("HF_TOKEN", "hf_right")
    assert "error" not in ask(tmp_path, "--uri", f"hf://{REPO}")


@pytest.mark.parametrize(
    ("uri", "revision", "expected"),
    [
        ("hf://example/none", "main", "ModelNotFound"),
        (f"hf://{REPO}", "no-such-branch", "ModelNotFound"),
        ("oci://image", "main", "InvalidSpec"),
    ],
)
def test_unknown_model_or_revision(
    hub: HubServer, tmp_path: Path, uri: str, revision: str, expected: str
) -> None:
    assert reason(ask(tmp_path, "--uri", uri, "--revision", revision)) == expected


def test_hub_without_safetensors(hub: HubServer, folder: Path, tmp_path: Path) -> None:
    (folder / "model.safetensors").unlink()
    assert reason(ask(tmp_path, "--uri", f"hf://{REPO}")) == "NoSafetensors"


def test_hub_out_of_reach(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pagefleet_operator.model.hub.RETRY_SECONDS", 0.0)
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    answer = ask(tmp_path, "--uri", f"hf://{REPO}")
    assert reason(answer) == "HubUnreachable"
    assert "127.0.0.1:9" in answer["error"]["message"]
