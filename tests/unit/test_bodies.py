"""Record bodies as they are kept."""

import hashlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import takeback
from takeback.model.record import canonical
from takeback.storage.bodies import LONG, USUAL, shortened, whole
from tests.bench.measure import bytes_below


@given(st.recursive(st.text() | st.integers() | st.booleans(), st.lists))
def test_a_body_comes_back_as_it_was(value: object) -> None:
    body = canonical(value)
    assert whole(shortened(body)) == body


@pytest.mark.parametrize("length", [0, LONG - 1, LONG, 4096, 4097, 1_000_000])
def test_a_body_of_any_length_comes_back_as_it_was(length: int) -> None:
    body = (os.urandom(length).hex()[: length // 2] + "a" * length)[:length].encode()
    assert whole(shortened(body)) == body


def test_the_usual_words_never_change() -> None:
    """Every store that was ever written needs them to be read."""
    assert (
        hashlib.sha256(USUAL).hexdigest()
        == "218b7177e44941a7b347c00cbe77591c15af3cdefcc0ee8a26d030b0e62c1d2a"
    )


@pytest.mark.parametrize("keep", [0, 1, -1])
def test_a_cut_body_is_an_error_and_not_another_body(keep: int) -> None:
    kept = shortened(canonical({"content": "0123456789abcdef" * 8}))
    assert isinstance(kept, bytes)
    with pytest.raises(ValueError, match=r"ends|invalid|incomplete"):
        whole(kept[:keep])


@pytest.fixture
def place() -> Iterator[Path]:
    """With a name of usual length: paths are part of records."""
    with tempfile.TemporaryDirectory(prefix="a-usual-project-") as made:
        yield Path(made)


def test_fifty_one_line_edits_make_the_whole_store_grow_by_at_most_40_kb(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(place)  # a run in its own project, as usual
    path = place / "settings.txt"
    lines = [
        f"option_{number:03} = {hashlib.sha256(bytes((number % 256,))).hexdigest()[:20]}"
        for number in range(290)
    ]
    path.write_text("\n".join(lines))
    store = str(place / "store")
    takeback.open(store).close()
    empty = bytes_below(store)
    with takeback.open(store) as tb, tb.run("edits") as run:
        for edit in range(50):
            lines[edit * 5] = f"edited_{edit:03} = {hashlib.sha256(b'x%d' % edit).hexdigest()[:20]}"
            run.write(path, "\n".join(lines))
    assert bytes_below(store) - empty <= 40 << 10
    assert sum(one.stat().st_size for one in (place / "store" / "spare").iterdir()) == 1 << 20
