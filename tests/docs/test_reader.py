"""The reader that runs the examples notices when a page is wrong."""

from pathlib import Path

import pytest

from tests.docs.examples import Reader, commands, fitting, fitting_line
from tests.docs.pages import Block


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


def test_a_command_goes_on_over_continuation_lines_and_ends_where_its_output_begins() -> None:
    block = Block("console", "$ cat <<E\n> one\n> E\none\n$ true\n", 10)
    assert commands(block) == [(10, "cat <<E\none\nE", ["one"]), (14, "true", [])]


def test_a_page_that_promises_other_output_fails(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="it prints"):
        Reader(tmp_path / "you").read(Path("page.md"), Block("console", "$ echo yes\nno\n", 1))


def test_a_page_whose_python_is_wrong_fails_with_the_line_of_the_page(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError) as caught:
        Reader(tmp_path / "you").read(Path("page.md"), Block("python", "1 / 0\n", 7))
    assert caught.traceback[-1].lineno == 6  # counted from 0
