"""What the Dockerfile promises: stages, users, no torch for the operator, a lean context."""

import re

from e2e.images.dockerfile import ROOT, stages

TEXT = (ROOT / "Dockerfile").read_text()
STAGES = stages(TEXT)


def test_stages_are_split_by_name_and_without_comments() -> None:
    text = "ARG A=b\nFROM ${A} AS one\nRUN x\n# why\nFROM one AS two\nRUN y\n"
    assert stages(text) == {"one": "FROM ${A} AS one\nRUN x", "two": "FROM one AS two\nRUN y"}


def test_every_stage_is_known_by_name() -> None:
    assert len(STAGES) == len(re.findall(r"^FROM ", TEXT, re.MULTILINE))


def test_no_frontend_image_is_needed() -> None:
    assert not re.search(r"^#\s*syntax", TEXT, re.MULTILINE)


def test_images_run_as_an_ordinary_user() -> None:
    for name in ("operator", "engine", "model-smollm2"):
        assert re.findall(r"^USER (\S+)$", STAGES[name], re.MULTILINE) == ["65532:65532"]


def test_operator_stages_install_only_the_operator_extra() -> None:
    assert "/tmp/operator.txt" in STAGES["operator-deps"]
    assert "engine.txt" not in STAGES["operator-deps"]
    assert "rm -r pagefleet_engine pagefleet_kernels" in STAGES["operator"]


def test_dependencies_do_not_see_the_code() -> None:
    for name in ("operator-deps", "engine-deps"):
        assert "from=wheel" not in STAGES[name]
        assert "COPY" not in STAGES[name]


def test_build_context_starts_from_nothing() -> None:
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    assert lines[0] == "*"
    allowed = {line[1:] for line in lines if line.startswith("!")}
    copied = {"pyproject.toml", "README.md", "LICENSE", "operator", "engine", "kernels"}
    assert allowed == copied | {"requirements.lock"}
