"""The generated blocks of the reference documents are what the code makes."""

import re

import pytest

from docs.generate.blocks import BlockError, fill
from docs.generate.documents import DOCUMENTS, FOLDER, render
from tests.docs.markdown import document


@pytest.mark.parametrize("name", DOCUMENTS)
def test_generated_blocks_are_up_to_date(name: str) -> None:
    assert document(name) == render(name), "run `make docs`"


def test_a_document_without_its_block_is_refused() -> None:
    with pytest.raises(BlockError, match="made are"):
        fill("no block", {"plan": "text"})


@pytest.mark.parametrize("name", sorted(path.name for path in FOLDER.glob("*.md")))
def test_links_lead_to_files_that_exist(name: str) -> None:
    links = re.findall(r"\]\(([\w./-]+)\)", document(name))
    assert [link for link in links if not (FOLDER / link).exists()] == []
