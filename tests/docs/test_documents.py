"""The generated blocks of the reference documents are what the code makes."""

import re
from xml.etree import ElementTree

import pytest

from docs.generate.blocks import BlockError, fill
from docs.generate.documents import DOCUMENTS, FOLDER, PICTURES, render
from tests.docs.markdown import document


@pytest.mark.parametrize("name", DOCUMENTS)
def test_generated_blocks_are_up_to_date(name: str) -> None:
    assert document(name) == render(name), "run `make docs`"


@pytest.mark.parametrize("name", PICTURES)
def test_pictures_are_up_to_date_and_shown(name: str) -> None:
    drawn = PICTURES[name]()
    assert (FOLDER / name).read_text() == drawn, "run `make docs`"
    assert ElementTree.fromstring(drawn).tag.endswith("svg")
    assert any(f"]({name})" in path.read_text() for path in FOLDER.glob("*.md"))


def test_a_document_without_its_block_is_refused() -> None:
    with pytest.raises(BlockError, match="made are"):
        fill("no block", {"plan": "text"})


@pytest.mark.parametrize("name", sorted(path.name for path in FOLDER.glob("*.md")))
def test_links_lead_to_files_that_exist(name: str) -> None:
    links = re.findall(r"\]\(([\w./-]+)\)", document(name))
    assert [link for link in links if not (FOLDER / link).exists()] == []
