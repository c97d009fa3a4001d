"""Every Python and shell example in the documents runs, and prints what the page says."""

import os
import re
from pathlib import Path

import pytest

from tests.docs.examples import IDS, Reader
from tests.docs.pages import DOCS, ROOT, blocks, name_of, outputs, pages

RUNNABLE = ("python", "sh")
DATABASE = "APP_DB"  # where a page names it, the reader has an empty database in a PostgreSQL of the tests
WITH_EXAMPLES = [
    page
    for page in pages()
    if any(block.language in RUNNABLE and not block.not_run for block in blocks(page))
]


@pytest.mark.parametrize("page", WITH_EXAMPLES, ids=name_of)
def test_the_examples_of_a_page_work_one_after_the_other(
    page: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    reader = Reader(tmp_path / "you")
    if any(DATABASE in block.text for block in blocks(page) if block.language in RUNNABLE):
        os.environ[DATABASE] = request.getfixturevalue("pg_database").url

    printed = outputs(page)
    for block in blocks(page):
        reader.read(page, block, printed.get(block.line))


@pytest.mark.parametrize("page", pages(), ids=name_of)
def test_every_shell_block_can_be_pasted_as_it_is(page: Path) -> None:
    """No prompts, no output among the commands, no ids to be replaced by hand."""
    for block in blocks(page):
        if block.language == "sh":
            assert not re.search(r"(?m)^[$>] ", block.text), block.text
            assert not IDS.search(block.text), block.text


@pytest.mark.parametrize(
    "page", [ROOT / "README.md", DOCS / "tutorial.md", DOCS / "reference" / "python.md"], ids=name_of
)
def test_the_pages_a_new_user_reads_have_examples_that_run(page: Path) -> None:
    assert page in WITH_EXAMPLES


@pytest.mark.parametrize("page", pages(), ids=name_of)
def test_every_code_block_says_what_it_is(page: Path) -> None:
    """Only blocks of these kinds: what looks like an example and is not run would rot."""
    assert {block.language for block in blocks(page)} <= {*RUNNABLE, "text", "json", "sql", "toml"}


def test_every_make_target_that_a_page_names_exists() -> None:
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    for page in pages():
        named = set(re.findall(r"`make ([a-z-]+)", page.read_text()))
        for block in blocks(page):
            if block.language == "sh":
                named |= set(re.findall(r"^make ([a-z-]+)", block.text, re.MULTILINE))
        assert named <= targets, f"{name_of(page)} names {sorted(named - targets)}"
