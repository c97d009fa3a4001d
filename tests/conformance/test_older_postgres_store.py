"""A store in PostgreSQL that an older takeback made, before effects belonged to projects."""

from contextlib import closing
from pathlib import Path

import pytest

from takeback.model.resource import file_resource
from takeback.storage.postgres import store
from takeback.storage.postgres.connection import Address, connect
from tests.servers.postgres import PgDatabase

_EARLIER = 6  # steps of its schema


def test_effects_of_an_older_store_belong_to_the_projects_they_touched(
    pg_database: PgDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "project" / ".git").mkdir(parents=True)
    touched = file_resource(str(tmp_path / "project" / "a"))
    address, steps = Address(pg_database.url), store.steps()
    with closing(connect(address)) as connection:
        with monkeypatch.context() as earlier:
            earlier.setattr(store, "steps", lambda: steps[:_EARLIER])
            store.bring_up_to_date(connection, address)
        connection.execute(
            "insert into runs (opened_at, id, state, on_death, name, agent) values (1, 'r', 'open', 'undo', 'n', 'a');"
            "insert into effects (seq, run, ordinal, nth, told, id, state, key) "
            "select 1, number, 1, 1, 2, 'e', 'done', '' from runs"
        )
        connection.execute("insert into targets values (%s, 1)", (touched,))

        store.bring_up_to_date(connection, address)

        found = connection.execute(
            "select p.root, p.marked, s.effect, s.told from scopes s join projects p on p.number = s.project"
        ).fetchall()
    assert found == [(file_resource(str(tmp_path / "project")), 1, 1, 2)]
