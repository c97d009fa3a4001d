"""The page of findings: every number has a test that carries it, where the page says."""

import re
from pathlib import Path

import pytest

TOP = Path(__file__).parents[2]
ROWS = [
    [cell.strip() for cell in line.strip("|\n").split("|")]
    for line in (TOP / "docs" / "internals" / "findings.md").read_text().splitlines()
    if re.match(r"\| R?\d+ \|", line)
]
NUMBERS = [*map(str, range(1, 39)), *(f"R{number}" for number in range(1, 9))]


def test_every_finding_has_a_row() -> None:
    assert [row[0] for row in ROWS] == NUMBERS


@pytest.mark.parametrize(
    ("number", "file"), [(row[0], file) for row in ROWS for file in re.findall(r"`(\S+\.py)`", row[2])]
)
def test_the_test_that_carries_the_number_is_there(number: str, file: str) -> None:
    assert f"def test_finding_{number.lower()}_" in (TOP / "tests" / file).read_text()
