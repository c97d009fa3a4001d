"""The reader that runs the examples notices when a page is wrong."""

from pathlib import Path

import pytest

from tests.docs.examples import Reader, fitting, fitting_line
from tests.docs.pages import Block, blocks, outputs


def test_a_line_that_differs_does_not_fit() -> None:
    assert fitting(["one"], ["two"], {}) is None
    assert fitting(["one"], ["one", "more"], {}) is None
    assert fitting(["one", "more"], ["one"], {}) is None


def test_an_ellipsis_stands_for_a_part_of_a_line_or_for_several_lines() -> None:
    assert fitting(["took … ms"], ["took 12 ms"], {}) == {}
    assert fitting(["took … ms."], ["took 1.3 s."], {}) == {}
    assert fitting(["first", "…", "last"], ["first", "a", "b", "last"], {}) == {}
    assert fitting(["first", "…", "last"], ["first", "a"], {}) is None


def test_an_id_must_be_the_same_one_each_time_a_page_writes_it() -> None:
    known = fitting_line("undo k3f9a2bq", "undo 7zyxw543", {})
    assert known == {"k3f9a2bq": "7zyxw543"}
    assert fitting_line("k3f9a2bq again", "7zyxw543 again", known) is not None
    assert fitting_line("k3f9a2bq again", "8zyxw543 again", known) is None


def test_the_output_of_a_shell_block_is_the_block_of_text_right_after_it(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "```sh\necho one\n```\n\n```text\none\n```\n\n```sh\ntrue\n```\n\nsaid\n\n```text\ntwo\n```\n"
    )
    assert outputs(page) == {2: Block("text", "one\n", 6)}


def test_a_comment_right_above_a_block_says_why_it_is_not_run(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("<!-- not run: a server -->\n\n```sh\nfalse\n```\n\n```sh\ntrue\n```\n")
    assert [block.not_run for block in blocks(page)] == ["a server", ""]


def test_a_page_that_promises_other_output_fails(tmp_path: Path) -> None:
    reader = Reader(tmp_path / "you")
    with pytest.raises(AssertionError, match="it prints"):
        reader.read(Path("page.md"), Block("sh", "echo yes\n", 1), Block("text", "no\n", 5))
    with pytest.raises(AssertionError, match="it prints"):
        reader.read(Path("page.md"), Block("sh", "echo yes\n", 1))
    reader.read(Path("page.md"), Block("sh", "echo yes\n", 1, "a server"))


def test_a_page_whose_python_is_wrong_fails_with_the_line_of_the_page(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError) as caught:
        Reader(tmp_path / "you").read(Path("page.md"), Block("python", "1 / 0\n", 7))
    assert caught.traceback[-1].lineno == 6  # counted from 0
