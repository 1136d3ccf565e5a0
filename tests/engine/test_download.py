"""Downloads from a hub: complete or not at all, resumed after a break, refused in clear words."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from pagefleet_engine.download import MARKER, DownloadError, choose_files, download, main
from tests.support.hub_server import COMMIT, HubBehaviour, HubServer

REPO = "acme/tiny"
WEIGHTS = bytes(range(256)) * 4096  # 1 MiB


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HubBehaviour]:
    folder = tmp_path / "hub"
    (folder / "onnx").mkdir(parents=True)
    (folder / "config.json").write_text('{"model_type": "llama"}')
    (folder / "tokenizer.json").write_text("{}")
    (folder / "README.md").write_text("not for the engine")
    (folder / "onnx" / "model.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(WEIGHTS)
    (folder / "pytorch_model.bin").write_bytes(b"the same weights again")
    monkeypatch.setenv("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    with HubServer({REPO: folder}) as server:
        monkeypatch.setenv("HF_ENDPOINT", server.endpoint)
        yield server.behaviour


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def transfers(behaviour: HubBehaviour) -> list[tuple[str, str]]:
    """(path, range) of the files that were really sent."""
    return [(path, wanted) for method, path, wanted in behaviour.log if method == "GET"]


def test_folder_gets_what_the_engine_reads(hub: HubBehaviour, tmp_path: Path) -> None:
    destination = tmp_path / "model"
    assert download(REPO, "main", destination) == COMMIT
    found = files_of(destination)
    assert set(found) == {"config.json", "tokenizer.json", "model.safetensors", MARKER}
    assert found["model.safetensors"] == WEIGHTS
    assert json.loads(found[MARKER]) == {"repo": REPO, "commit": COMMIT}


def test_complete_folder_is_not_fetched_again(hub: HubBehaviour, tmp_path: Path) -> None:
    download(REPO, "main", tmp_path / "model")
    hub.log.clear()
    download(REPO, "main", tmp_path / "model")
    assert [path for path, _ in transfers(hub)] == [f"/api/models/{REPO}/revision/main"]


def test_broken_download_goes_on_where_it_stopped(
    hub: HubBehaviour, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.DOWNLOAD_CHUNK_SIZE", 100_000)
    hub.break_after_bytes, hub.num_breaks = 300_000, 2
    download(REPO, COMMIT, tmp_path / "model")
    assert (tmp_path / "model" / "model.safetensors").read_bytes() == WEIGHTS
    ranges = [wanted for path, wanted in transfers(hub) if path.startswith("/blobs/")]
    assert ranges == ["", "bytes=300000-", "bytes=600000-"]


def test_download_that_stays_broken_leaves_no_marker_and_the_next_completes_it(
    hub: HubBehaviour, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("time.sleep", lambda seconds: None)  # between the client's own retries
    hub.break_after_bytes, hub.num_breaks = 1000, 1000
    with pytest.raises(DownloadError) as caught:
        download(REPO, "main", tmp_path / "model")
    assert caught.value.reason == "DownloadInterrupted"
    assert "model.safetensors" not in files_of(tmp_path / "model")
    assert MARKER not in files_of(tmp_path / "model")
    hub.num_breaks = 0
    hub.log.clear()
    download(REPO, "main", tmp_path / "model")
    assert MARKER in files_of(tmp_path / "model")
    assert not [path for path, _ in transfers(hub) if path.endswith("config.json")]


@pytest.mark.parametrize(
    ("repo", "revision", "reason", "words"),
    [
        ("acme/nothing", "main", "ModelNotFound", "acme/nothing"),
        (REPO, "v9", "RevisionNotFound", "v9"),
        ("not a name", "main", "ModelNotFound", "not a name"),
    ],
)
def test_what_does_not_exist_is_named(
    hub: HubBehaviour, tmp_path: Path, repo: str, revision: str, reason: str, words: str
) -> None:
    with pytest.raises(DownloadError, match=words) as caught:
        download(repo, revision, tmp_path / "model")
    assert caught.value.reason == reason


def test_gated_model_is_refused_with_a_record(hub: HubBehaviour, tmp_path: Path) -> None:
    hub.gated.add(REPO)
    log = tmp_path / "log"
    flags = ["--repo", REPO, "--dest", str(tmp_path / "model"), "--termination-log", str(log)]
    assert main(flags) == 1
    record = json.loads(log.read_text())
    assert record["reason"] == "ModelAccessDenied"
    assert "token" in record["message"]


def test_token_opens_a_private_model(
    hub: HubBehaviour, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.token = "hf_secret"
    with pytest.raises(DownloadError) as caught:
        download(REPO, "main", tmp_path / "model")
    assert caught.value.reason == "ModelAccessDenied"
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    assert download(REPO, "main", tmp_path / "model") == COMMIT


def test_unreachable_hub_is_an_interrupted_download(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(DownloadError) as caught:
        download(REPO, "main", tmp_path / "model")
    assert caught.value.reason == "DownloadInterrupted"


@pytest.mark.parametrize(
    ("names", "words"),
    [(["config.json", "pytorch_model.bin"], "safetensors"), (["model.safetensors"], "config.json")],
)
def test_repository_without_what_the_engine_needs_is_refused(names: list[str], words: str) -> None:
    with pytest.raises(DownloadError, match=words):
        choose_files(names)


def test_small_files_come_first() -> None:
    names = ["model-2.safetensors", "vocab.txt", "model-1.safetensors", "config.json"]
    assert choose_files(names) == [
        "config.json",
        "vocab.txt",
        "model-1.safetensors",
        "model-2.safetensors",
    ]
