"""The termination record: complete where it fits, cut where Kubernetes would cut it."""

import json
from pathlib import Path

import pytest

from pagefleet_engine.__main__ import main
from pagefleet_engine.termination import MAX_BYTES, format_record, write_record


def test_record_is_one_json_object(tmp_path: Path) -> None:
    log = tmp_path / "log"
    write_record(str(log), reason="DoesNotFit", message="needs 4 GiB")
    assert json.loads(log.read_text()) == {"reason": "DoesNotFit", "message": "needs 4 GiB"}


@pytest.mark.parametrize("character", ["x", "é", "😀", '"'])
def test_long_message_is_cut_to_what_kubernetes_reads(character: str) -> None:
    record = format_record(reason="OutOfMemory", message=character * 5000)
    assert len(record.encode()) <= MAX_BYTES
    assert json.loads(record)["message"].endswith("...")


def test_record_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    write_record(str(tmp_path / "missing" / "log"), reason="OutOfMemory", message="x")


@pytest.mark.parametrize(
    "flags", [["--port", "many"], ["--model", "m", "--block-size", "0"], ["--nonsense"]]
)
def test_bad_arguments_exit_with_2_and_a_record(flags: list[str], tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert main(["--termination-log", str(log), *flags]) == 2
    assert json.loads(log.read_text())["reason"] == "BadArguments"
