"""Logs follow what they are about: a table that was made again has another number, and so has a column."""

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING

from takeback.adapters.postgres import triggers
from takeback.adapters.postgres.connecting import ask, run
from takeback.adapters.postgres.install import captures, install
from takeback.adapters.postgres.logs import log_name
from takeback.adapters.postgres.tables import tables

if TYPE_CHECKING:
    from takeback.adapters.postgres.connecting import Connection


def follow(connection: "Connection", old: int, new: int) -> None:
    """A table; its columns have the numbers that they had."""
    run(connection, "update takeback.log set relation = %s where relation = %s", [new, old])
    run(connection, "delete from takeback.captured where relation = %s", [old])
    for statement in triggers.drop_functions(old):
        run(connection, statement)


def renumber(connection: "Connection", relation: int, old: int, new: int) -> None:
    """A column, of a table and all its partitions; they share one log."""
    rows = ask(connection, "select no from takeback.log where relation = %s", [relation])
    for (log,) in rows:
        name = log_name(log)
        here = ask(
            connection,
            "select attname from pg_attribute where attrelid = %s::regclass and not attisdropped and attname ~ %s",
            [name, f"^c{old}(_|$)"],
        )
        for (place,) in here:
            run(
                connection,
                f"alter table {name} rename column {place} to c{new}{place.removeprefix(f'c{old}')}",
            )
        for since, shape in ask(connection, "select since, shape from takeback.form where log = %s", [log]):
            moved = sorted([new, *one[1:]] if one[0] == old else one for one in shape)
            run(
                connection,
                "update takeback.form set shape = %s where log = %s and since = %s",
                [json.dumps(moved), log, since],
            )


def capture_again(connection: "Connection", oids: Iterable[int], new: bool) -> None:
    """After a change of the schema: what is written from now on is captured as the tables are now. `new`: those too
    that were not captured so far. Somebody works here, so the triggers are attached."""
    known = captures(connection)
    logs = {row[0] for row in ask(connection, "select relation::int8 from takeback.log")}
    found = [
        one
        for one in tables(connection, sorted(oids))
        if one.owned and (new or one.oid in known or one.oid in logs or one.root in logs)
    ]
    roots = {one.oid: one for one in tables(connection, [one.root for one in found])} if found else {}
    for one in sorted(found, key=lambda one: (one.root, one.oid != one.root, one.oid)):
        if one.root in roots:
            install(connection, one, roots[one.root])
            before = known.get(one.oid)
            if one.kind != "f" and not (before and before.attached and before.by_row == one.by_row):
                run(connection, "select takeback.make_triggers(%s, null)", [one.oid])
