"""What a failing disk or a hostile hand does to records, behind the store's back."""

import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from takeback.storage.bodies import shortened, whole

Kept = str | bytes


def rewrite_records(
    store: str | Path, where: str, values: tuple[object, ...], change: Callable[[Kept], Kept]
) -> None:
    with closing(sqlite3.connect(os.path.join(store, "journal.db"), isolation_level=None)) as connection:
        connection.execute("DROP TRIGGER IF EXISTS records_are_final")
        rows = connection.execute(f"SELECT seq, body FROM records WHERE {where}", values).fetchall()
        assert rows
        for seq, body in rows:
            connection.execute("UPDATE records SET body = ? WHERE seq = ?", (change(body), seq))


def another_byte(kept: Kept) -> Kept:
    """One byte in the middle is not what it was."""
    assert isinstance(kept, bytes)
    return kept[:40] + bytes((kept[40] ^ 0xFF,)) + kept[41:]


def saying(old: str, new: str) -> Callable[[Kept], Kept]:
    """A record that can be read, and says something else."""
    return lambda kept: shortened(whole(kept).replace(old.encode(), new.encode()))


def effect_that_says(store: str | Path, text: str) -> str:
    """The id of the effect whose intent has this text in it."""
    with closing(sqlite3.connect(os.path.join(store, "journal.db"))) as connection:
        rows = connection.execute("SELECT effect, body FROM records WHERE kind = 'intent'").fetchall()
    (found,) = [effect for effect, body in rows if text.encode() in whole(body)]
    return found
