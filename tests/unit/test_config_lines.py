"""Lines of one change are taken back while later changes of other lines stay."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from takeback.adapters.config.lines import taken_back

lines = st.lists(st.sampled_from(["a\n", "b\n", "c\n", "d\n", "\n"]), max_size=8).map("".join)


@given(lines, lines)
def test_what_nobody_touched_since_comes_back_whole(before, after):
    assert taken_back(before, after, after) == before


@given(lines, lines, lines, lines)
def test_a_change_far_away_stays(before, after, top, other_top):
    wall = "".join(f"wall {n}\n" for n in range(5))

    assert (
        taken_back(top + wall + before, top + wall + after, other_top + wall + after)
        == other_top + wall + before
    )
    assert (
        taken_back(before + wall + top, after + wall + top, after + wall + other_top)
        == before + wall + other_top
    )


@pytest.mark.parametrize(
    ("before", "after", "now", "expected"),
    [
        ("1\n2\n3\n", "1\nx\n3\n", "1\ny\n3\n", None),
        ("1\n2\n3\n", "1\n3\n", "1\nnew\n3\n", "1\n2\nnew\n3\n"),
        ("1\n3\n", "1\n2\n3\n", "0\n1\n2\n3\n4\n", "0\n1\n3\n4\n"),
        ("1\n2\n3\n", "3\n", "3\n4\n", "1\n2\n3\n4\n"),
        ("1\n2\n3\n", "1\n", "0\n1\n", "0\n1\n2\n3\n"),
        ("1\n2\n3\n", "1\n3\n", "x\ny\n", None),
        ("1\n2\n", "1\nx\ny\n", "1\nx\nbetween\ny\n", None),
        ("", "a\n", "a\nb\n", "b\n"),
    ],
)
def test_lines_come_back_where_they_were_or_not_at_all(before, after, now, expected):
    assert taken_back(before, after, now) == expected
