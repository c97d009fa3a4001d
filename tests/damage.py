"""What a failing disk or a hostile hand does to records, behind the store's back."""

import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from takeback.storage import notes
from takeback.storage.bodies import shortened, whole

Kept = str | bytes


def rewrite_records(
    store: str | Path, where: str, values: tuple[object, ...], change: Callable[[Kept], Kept]
) -> None:
    with closing(sqlite3.connect(os.path.join(store, "journal.db"), isolation_level=None)) as connection:
        rows = connection.execute(f"SELECT seq, body FROM records WHERE {where}", values).fetchall()
        assert rows
        with unguarded(connection):
            for seq, body in rows:
                connection.execute("UPDATE records SET body = ? WHERE seq = ?", (change(body), seq))


@contextmanager
def unguarded(connection: sqlite3.Connection) -> Iterator[None]:
    """Without the triggers of the records, which are there again afterwards."""
    found = connection.execute("SELECT name, sql FROM sqlite_schema WHERE type = 'trigger'").fetchall()
    guards = [row for row in found if row[0] in ("records_are_final", "records_stay")]
    for name, _ in guards:
        connection.execute(f"DROP TRIGGER {name}")
    yield
    for _, sql in guards:
        connection.execute(sql)


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


def save_store(store: Path, template: Path) -> None:
    """With what is known of it outside."""
    shutil.copytree(store, template)
    if known().exists():
        shutil.copytree(known(), _beside(template))


def put_back_store(template: Path, store: Path) -> None:
    """The older copy is meant: nothing outside may remember the newer one."""
    shutil.rmtree(store, ignore_errors=True)
    shutil.rmtree(known(), ignore_errors=True)
    shutil.copytree(template, store)
    if _beside(template).exists():
        shutil.copytree(_beside(template), known())


def known() -> Path:
    """Where this user remembers stores."""
    return Path(os.environ["XDG_STATE_HOME"], notes.DIRECTORY)


def _beside(template: Path) -> Path:
    return template.with_name(f"{template.name}-known")
