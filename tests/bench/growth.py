"""How much a store grows: many small edits, a huge file, a mixed project."""

import os
import random
from collections.abc import Iterator

import takeback
from takeback.api import Takeback
from takeback.storage.protocols import Query
from tests.bench.measure import Line, Table, Wishes, bytes_below

KB, MB, GB = 1000, 1000 * 1000, 1000 * 1000 * 1000
PIECE = 1 << 20


def measure(wishes: Wishes) -> Table:
    lines = [*_edits(os.path.join(wishes.directory, "edits"))]
    sizes = [8 * MB] if wishes.quick else [64 * MB, GB] if wishes.full else [64 * MB]
    for size in sizes:
        lines += _versions(
            os.path.join(wishes.directory, f"versions-{size}"), size, 5 if wishes.quick else 30
        )
    lines += _project(os.path.join(wishes.directory, "project"), wishes.quick)
    notes = (
        "content: the bytes of blobs as they are kept; whole store: every file, the write-ahead log folded in",
        "the journal's own records (two for each effect, kept for audit) are in the whole store and not in the content",
        "unique bytes: the first version of every file edited, whole, and of later versions only the bytes that differ",
    ) + (() if wishes.full else ("the 1 GB file is measured with --full only",))
    return Table("Store growth (ratio to what is allowed; lower is better)", tuple(lines), notes)


def _edits(directory: str) -> Iterator[Line]:
    """Fifty one-line edits of a text file of 10 KB."""
    os.mkdir(directory)
    path = os.path.join(directory, "settings.txt")
    text = [f"option_{number:03} = {random.Random(number).getrandbits(60):020}" for number in range(300)]
    _put(path, "\n".join(text).encode()[: 10 * KB])
    lines = _get(path).decode().split("\n")
    with takeback.open(os.path.join(directory, "store")) as tb:
        content, whole = _content(tb), _whole(tb)
        with tb.run("edits") as run:
            for edit in range(50):
                lines[edit * 5] = f"edited_{edit:03} = {random.Random(edit).getrandbits(60):020}"
                run.write(path, "\n".join(lines))
        grown, all_of_it = _content(tb) - content, _whole(tb) - whole
        yield Line("50 edits of 10 KB, content, before sweep", grown, "B", "allowed", 40 * KB, 1.0, "cost")
        tb.sweep(grace=0)
        swept = _content(tb) - content
        yield Line("50 edits of 10 KB, content, after sweep", swept, "B", "allowed", 10 * KB, 1.0, "cost")
        yield Line("  whole store, before sweep", all_of_it, "B")
        yield Line("  whole store, after sweep", _whole(tb) - whole, "B")
        yield Line("  of it records of the journal", _records(tb), "B")


def _versions(directory: str, size: int, versions: int) -> Iterator[Line]:
    """Versions of a file that does not compress, 4 KB different each."""
    os.mkdir(directory)
    source, target = os.path.join(directory, "source.bin"), os.path.join(directory, "target.bin")
    chance = random.Random(1)
    with open(source, "wb") as file:
        for start in range(0, size, PIECE):
            file.write(chance.randbytes(min(PIECE, size - start)))
    with takeback.open(os.path.join(directory, "store")) as tb:
        with tb.run("versions") as run:
            for version in range(versions):
                if version:
                    with open(source, "r+b") as file:
                        file.seek(chance.randrange(size - 4096))
                        file.write(chance.randbytes(4096))
                run.write(target, _read(source))
        allowed = size * 1.3
        name = f"{versions} versions of {size // MB:,} MB, 4 KB apart"
        yield Line(f"{name}, whole store", _whole(tb), "B", "allowed", allowed, 1.0, "cost")


def _project(directory: str, quick: bool) -> Iterator[Line]:
    """250 edits over 2,000 small files and 20 random ones of 5 MB."""
    chance = random.Random(2)
    small, large, edits = (200, 4, 50) if quick else (2000, 20, 250)
    files = [_small_file(directory, number, chance) for number in range(small)]
    heavy = [os.path.join(directory, f"heavy-{number}.bin") for number in range(large)]
    for path in heavy:
        _put(path, chance.randbytes(5 * MB))
    unique, met = 0, set[str]()
    with takeback.open(os.path.join(directory, "store")) as tb:
        with tb.run("project") as run:
            for edit in range(edits):
                path = chance.choice(heavy if edit % 5 == 0 else files)
                before = _get(path)
                # A line of a small file, a page of a large one.
                length = min(len(before), 4096 if path in heavy else 40)
                at = chance.randrange(len(before) - length + 1)
                run.write(
                    path, before[:at] + chance.randbytes(length // 2).hex().encode() + before[at + length :]
                )
                unique += length + (0 if path in met else len(before))
                met.add(path)
        name = f"{edits} edits over {small:,} small and {large} random 5 MB files"
        allowed = unique * 1.15 + MB
        yield Line(f"{name}, whole store", _whole(tb), "B", "allowed", allowed, 1.0, "cost")
        yield Line("  unique bytes", unique, "B")


def _small_file(directory: str, number: int, chance: random.Random) -> str:
    place = os.path.join(directory, f"{number % 50:02}")
    os.makedirs(place, exist_ok=True)
    path = os.path.join(place, f"{number}.txt")
    _put(
        path, "\n".join(f"line {chance.getrandbits(64):x}" for _ in range(chance.randrange(5, 200))).encode()
    )
    return path


def _put(path: str, content: bytes) -> None:
    with open(path, "wb") as file:
        file.write(content)


def _get(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def _read(path: str) -> Iterator[bytes]:
    with open(path, "rb") as file:
        while piece := file.read(PIECE):
            yield piece


def _content(tb: Takeback) -> int:
    return sum(info.stored for info in tb.store.blobs.info())


def _whole(tb: Takeback) -> int:
    tb.store.database.read("PRAGMA wal_checkpoint(TRUNCATE)")
    return bytes_below(tb.path)


def _records(tb: Takeback) -> int:
    assert any(tb.store.journal.effects(Query(limit=1)))
    return tb.store.database.read("SELECT sum(length(CAST(body AS BLOB)) + 100) FROM records")[0][0]
