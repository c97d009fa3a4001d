"""A store in PostgreSQL that an older version made becomes what a new one is: the same tables and functions."""

from contextlib import closing
from typing import Any

import pytest

from takeback.storage.postgres.connection import SCHEMA, address_of, connect
from takeback.storage.postgres.store import appending, bring_up_to_date, steps

_FUNCTIONS = """
select p.proname, pg_get_functiondef(p.oid) from pg_proc p join pg_namespace n on n.oid = p.pronamespace
where n.nspname = %s order by 1, 2"""
_COLUMNS = """
select table_name, column_name, data_type, column_default, is_nullable from information_schema.columns
where table_schema = %s order by 1, 2"""
_RULES = """
select c.conname, pg_get_constraintdef(c.oid) from pg_constraint c join pg_namespace n on n.oid = c.connamespace
where n.nspname = %s order by 1, 2"""


def picture(connection: Any, schema: str) -> list[list[tuple[str, ...]]]:
    return [
        [
            tuple(str(cell).replace(f"{schema}.", "") for cell in row)
            for row in connection.execute(sql, (schema,))
        ]
        for sql in (_FUNCTIONS, _COLUMNS, _RULES)
    ]


@pytest.mark.parametrize("version", range(1, len(steps())))
def test_a_store_of_each_version_becomes_what_a_new_one_is(pg_database: Any, version: int) -> None:
    fresh, older = (address_of(f"{pg_database.url}?schema={name}") for name in ("fresh_one", "older_one"))
    with closing(connect(fresh)) as connection:
        bring_up_to_date(connection, fresh)
    with closing(connect(older)) as connection:
        connection.execute("create schema older_one")
        for step in (*steps()[:version], appending()):
            connection.execute(step.replace(f"{SCHEMA}.", "older_one.").encode())
        connection.execute(f"update older_one.store set version = {version}".encode())
        connection.execute(
            "create or replace function older_one.moved(state text, event text, seq bigint) returns text"
            " language sql as $$ select 'as it was once' $$"
        )

        bring_up_to_date(connection, older)

        assert picture(connection, "older_one") == picture(connection, "fresh_one")
