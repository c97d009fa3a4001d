"""Times as people write them."""

import time

import pytest

from takeback.errors import Misuse
from takeback.model.words import point_in_time

SECOND = 1_000_000
NOW = 1_795_000_000 * SECOND  # 2026-11-18 13:46:40 in UTC, which tests use


def at(text: str) -> int:
    return (point_in_time(text, NOW) - NOW) // SECOND


@pytest.mark.parametrize(
    ("text", "ago"),
    [
        ("45s", 45),
        ("10m", 600),
        ("2h", 7200),
        ("3d", 259200),
        ("1w", 604800),
        ("1h30m", 5400),
        (" 10m ", 600),
    ],
)
def test_a_while_ago(text: str, ago: int) -> None:
    assert at(text) == -ago


def test_a_clock_time_is_the_last_one_that_has_passed() -> None:
    midnight = NOW // SECOND % 86400
    assert at("00:00") == -midnight
    assert at("23:59:59") == -midnight - 1
    assert at("00:00:10") == 10 - midnight


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1970-01-02", 86400),
        ("1970-01-02 01:00", 90000),
        ("1970-01-02T01:00:30", 90030),
        ("1970-01-02T01:00:00Z", 90000),
        ("1970-01-02 01:00:00+01:00", 86400),
    ],
)
def test_a_date_is_local_unless_it_names_a_zone(text: str, seconds: int) -> None:
    time.tzset()
    assert point_in_time(text, NOW) == seconds * SECOND


@pytest.mark.parametrize(
    "text", ["", "10", "10x", "m", "-10m", "25:00", "12:60", "yesterday", "2026-13-01", "1.5h"]
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(Misuse, match="is not a time"):
        point_in_time(text, NOW)
