"""No room where a SQLite file is: that is said, and nothing is lost or half-made."""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from takeback.errors import ResourceUnreachable
from takeback.testing.adapter_suite import Desk
from tests.crash.mounts import tmpfs
from tests.sql.sqlite_world import World, done
from tests.sql.test_sqlite_programs import begun

pytestmark = pytest.mark.root


@pytest.fixture
def small(tmp_path: Path) -> Iterator[World]:
    """On a filesystem of 1 MB, of which it has 600 kB."""
    with tmpfs(tmp_path / "disk", "size=1m") as place:
        world = World(place / "app.db", "delete")
        world.make("CREATE TABLE t (id INTEGER PRIMARY KEY, a)")
        with closing(sqlite3.connect(world.file)) as connection:
            connection.executemany("INSERT INTO t (a) VALUES (?)", [("x" * 6000,)] * 100)
            connection.commit()
        yield world
        world.adapter.close()


def test_no_room_for_a_change_is_said(small: World) -> None:
    before = small.state()
    with pytest.raises(
        ResourceUnreachable, match=r"There is no room left on the disk for .*app.db"
    ) as caught:
        done(small, "UPDATE t SET a = a || 'y'")
    assert "Make room" in caught.value.hint
    assert small.state() == before
    Desk(small.adapter).undo(done(small, "UPDATE t SET a = 'y' WHERE id = 1"))
    assert small.state() == before


def test_no_room_for_the_copy_is_said_before_a_program_starts(small: World) -> None:
    with pytest.raises(ResourceUnreachable, match=r"could not be copied .* no room left on its disk"):
        begun(small)
    assert os.listdir(small.file.parent) == ["app.db"]
