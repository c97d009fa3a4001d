"""What content is called, and that a hole is neither read nor kept."""

import hashlib
import os
from itertools import pairwise
from pathlib import Path

import pytest

import takeback
from takeback.model import content
from takeback.model.content import PIECE, Naming, name_of, read_pieces, zeros

BODIES = {
    "nothing": b"",
    "a word": b"word",
    "one empty piece": bytes(PIECE),
    "two empty pieces": bytes(2 * PIECE),
    "two and a bit": bytes(2 * PIECE + 1),
    "data at the end": bytes(2 * PIECE) + b"end",
    "data at the start": b"start" + bytes(3 * PIECE - 5),
    "the same a piece later": bytes(PIECE) + b"start" + bytes(2 * PIECE - 5),
    "a last piece": bytes(PIECE) + b"x" * PIECE,
    "no empty piece": b"x" * (PIECE + 3),
    "ones and nothing": (b"x" * PIECE) + bytes(PIECE),
}


def _added(content: bytes) -> bytes:
    naming = Naming()
    for start in range(0, len(content), PIECE):
        naming.add(content[start : start + PIECE])
    return naming.digest()


def test_every_content_has_one_name_of_its_own() -> None:
    names = {body: name_of(held) for body, held in BODIES.items()}
    assert len(set(names.values())) == len(BODIES)
    for body, held in BODIES.items():
        assert _added(held) == names[body], body


def test_without_empty_pieces_it_is_the_sha256() -> None:
    for body in ("nothing", "a word", "one empty piece", "no empty piece"):
        assert name_of(BODIES[body]) == hashlib.sha256(BODIES[body]).digest(), body


@pytest.mark.parametrize("body", BODIES)
def test_holes_make_no_difference_to_the_name(tmp_path: Path, body: str) -> None:
    content = BODIES[body]
    full, sparse = tmp_path / "full", tmp_path / "sparse"
    full.write_bytes(content)
    with open(sparse, "wb") as file:
        file.truncate(len(content))
        for start in range(0, len(content), 1 << 16):
            if (part := content[start : start + (1 << 16)]).strip(b"\0"):
                file.seek(start)
                file.write(part)
    for path in (full, sparse):
        with open(path, "rb") as file:
            pieces = list(read_pieces(file.fileno()))
        assert b"".join(pieces) == content
        assert all(len(piece) == PIECE for piece, _ in pairwise(pieces))


def test_a_hole_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "disk.img"
    with open(place, "wb") as file:
        file.truncate(50_000_000_000)
        file.seek(20_000_000_000)
        file.write(b"data")
    read: list[int] = []
    pread = os.pread
    monkeypatch.setattr(content.os, "pread", lambda fd, count, at: read.append(at) or pread(fd, count, at))
    with open(place, "rb") as file:
        empty = sum(piece is zeros() for piece in read_pieces(file.fileno()))
    assert empty >= 50_000_000_000 // PIECE - 2
    assert len(read) <= 6


def test_a_huge_file_of_holes_is_captured_removed_and_brought_back(tmp_path: Path) -> None:
    place = tmp_path / "disk.img"
    with open(place, "wb") as file:
        file.truncate(10_000_000_000)
        file.seek(5_000_000_000)
        file.write(b"data")
    before = place.stat()
    with takeback.open(tmp_path / "store") as tb:
        with tb.run("holes") as run:
            effect = run.delete(place)
        assert effect and not place.exists()
        tb.undo(effect.id)
        assert tb.verify(read_data=True).findings == ()
        kept = sum(path.stat().st_size for path in (tmp_path / "store").rglob("*") if path.is_file())
    after = place.stat()
    assert (after.st_size, after.st_blocks) == (before.st_size, before.st_blocks)
    with open(place, "rb") as file:
        file.seek(4_999_999_999)
        assert file.read(6) == b"\0data\0"
    assert kept < 4_000_000
