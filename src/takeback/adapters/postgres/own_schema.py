"""The schema `takeback` itself: made once, and brought up to date by whoever owns it."""

import os
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from takeback.adapters.postgres import attachment, triggers
from takeback.adapters.postgres.connecting import ask, run, transaction, wait_no_longer
from takeback.adapters.postgres.install import ONE_AT_A_TIME, captures, run_all
from takeback.adapters.postgres.tables import SCHEMA, tables
from takeback.errors import Refused

if TYPE_CHECKING:
    from takeback.adapters.postgres.connecting import Connection

_EVENT_TRIGGERS = {
    "takeback_ddl_command_start": ("ddl_command_start", "schema_begins"),
    "takeback_ddl_command_end": ("ddl_command_end", "schema_ended"),
    "takeback_ddl_drop": ("sql_drop", "schema_drops"),
}
# Of what these files make. What an older one made is brought up to date by the next change of its owner.
VERSION = 3
_FILES = ("schema.sql", "definitions.sql", "guests.sql", "programs.sql", "witness.sql", "attachment.sql")
VERSION_SQL = (
    f"(select substr(p.prosrc, 8)::int from pg_proc p where p.pronamespace = to_regnamespace('{SCHEMA}') "
    "and p.proname = 'version')"
)


def installed(connection: "Connection") -> bool:
    return ask(connection, "select to_regnamespace(%s) is not null", [SCHEMA])[0][0]


def _texts() -> Iterator[str]:
    for name in _FILES:
        with open(os.path.join(os.path.dirname(__file__), name), encoding="utf-8") as file:
            yield file.read()


_VERSION = f"create function {SCHEMA}.version() returns int language sql immutable as 'select {VERSION}'"


def outdated(connection: "Connection") -> bool:
    """Was it protected by an older takeback?"""
    return (ask(connection, f"select {VERSION_SQL}")[0][0] or 1) < VERSION


def bring_up_to_date(connection: "Connection") -> None:
    """Functions of now, and columns that are missing; what was kept so far stays. Triggers of the first version had
    another condition. The version comes last: until then all of it is done again."""
    from takeback.adapters.postgres.statements import first_words, split

    if not ask(connection, "select takeback.keeper()")[0][0]:
        raise Refused(
            "An older takeback protected this database for another role, which must bring it up to date.",
            hint="Run `takeback sql protect` as that role, or as a superuser.",
        )
    first = ask(connection, f"select {VERSION_SQL}")[0][0] is None
    with transaction(connection):
        wait_no_longer(connection)
        run(connection, "select pg_advisory_xact_lock(%s)", [ONE_AT_A_TIME])
        for statement in (one for text in _texts() for one in split(text)):
            words = first_words(statement)
            if words[:2] == ["CREATE", "FUNCTION"]:
                run(connection, _replacing(statement))
            elif "if not exists" in statement and words[:2] in (["ALTER", "TABLE"], ["CREATE", "INDEX"]):
                run(connection, statement)
        _create_event_triggers(connection)
        run(
            connection,
            f"update takeback.log set always = true where relation in (select oid from ({OUT_OF_REACH}) o)",
        )
        known = captures(connection)
        owned = [one for one in tables(connection, list(known)) if one.owned]
        for table in owned:
            root = table if table.root == table.oid else tables(connection, [table.root])[0]
            run_all(connection, triggers.functions(known[table.oid].log, table, root))
    for table in owned if first else ():
        attachment.made_anew(connection, attachment.Place(table.oid, table.shown))
    run(connection, _replacing(_VERSION))


def _replacing(statement: str) -> str:
    return re.sub(r"(?i)^create function", "create or replace function", _bare(statement))


def _bare(statement: str) -> str:
    """Without the comments before it."""
    return re.sub(r"\A(\s*--[^\n]*\n)*\s*", "", statement)


def _create_event_triggers(connection: "Connection") -> None:
    if not ask(connection, "select rolsuper from pg_roles where rolname = current_user")[0][0]:
        return
    there = {row[0] for row in ask(connection, "select evtname from pg_event_trigger")}
    for name, (event, what) in _EVENT_TRIGGERS.items():
        if name not in there:
            run(connection, f"create event trigger {name} on {event} execute function {SCHEMA}.{what}()")
            run(connection, f"alter event trigger {name} enable always")


def create_schema(connection: "Connection") -> None:
    may = ask(connection, "select has_database_privilege(current_database(), 'create')")[0][0]
    if not may:
        raise Refused(
            "This role may not create the schema `takeback`.",
            hint="Let the owner of the database run `takeback sql protect`, or grant CREATE on the database.",
        )
    with transaction(connection):
        run(connection, "select pg_advisory_xact_lock(%s)", [ONE_AT_A_TIME])
        if not installed(connection):
            for text in (*_texts(), _VERSION):
                run(connection, text)
            _create_event_triggers(connection)


# The functions that attach and remove triggers for everybody are those of the schema's owner.
OUT_OF_REACH = """
select c.oid::int8 as oid, n.nspowner::regrole::text from pg_class c, pg_namespace n
where n.nspname = 'takeback' and c.relkind in ('r', 'p') and c.relpersistence <> 't'
  and not pg_has_role(n.nspowner, c.relowner, 'usage')
"""


def out_of_reach(connection: "Connection") -> dict[int, str]:
    """Tables whose triggers must stay, and the role that may not attach them when a run begins."""
    return dict(ask(connection, OUT_OF_REACH))


def hold(connection: "Connection") -> None:
    """Before the first change on this connection: the schema is that of now, and the triggers are attached."""
    if outdated(connection):
        bring_up_to_date(connection)
    attachment.hold(connection)
