"""What must be known of the tables of an undo before it begins, asked for in one trip to the server."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from takeback.adapters.postgres.connecting import Question, ask, ask_all
from takeback.adapters.postgres.tables import (
    Foreign,
    Table,
    about_foreign_keys,
    foreign_keys,
    made_of,
    questions,
)

if TYPE_CHECKING:
    from takeback.adapters.postgres.connecting import Connection

_SIZES = """
select o, coalesce((select sum(pg_relation_size(relid)) from pg_partition_tree(o::oid::regclass)),
  pg_relation_size(o::oid::regclass), 0)::int8
from unnest(%s::int8[]) o
"""


class Layout(NamedTuple):
    tables: dict[int, Table]
    foreign: tuple[Foreign, ...]  # that start or end at one of them
    sizes: dict[int, int]  # in bytes
    full: bool  # we may switch off all triggers of a session, foreign keys included


def layout(connection: "Connection", oids: Sequence[int]) -> Layout:
    """An undo looks twice, before it is announced and when it is carried out: again, for anything may have changed."""
    asked = [
        *questions(oids),
        about_foreign_keys(oids),
        Question(_SIZES, [list(oids)]),
        about_switching_off(connection),
    ]
    *found, foreign, sizes, full = ask_all(connection, asked, again=True)
    known = {one.oid: one for one in made_of(found)}
    return Layout(known, foreign_keys(foreign), dict(sizes), full[0][0])


def more(connection: "Connection", oids: Sequence[int]) -> dict[int, Table]:
    """Tables at the other end of foreign keys."""
    found = ask_all(connection, questions(oids), again=True) if oids else []
    return {one.oid: one for one in made_of(found)} if found else {}


def may_switch_off(connection: "Connection") -> bool:
    """All triggers of a session, foreign keys included."""
    return ask(connection, *about_switching_off(connection))[0][0]


def about_switching_off(connection: "Connection") -> Question:
    version = connection.info.server_version
    grant = " or has_parameter_privilege('session_replication_role', 'set')" if version >= 150000 else ""
    return Question(f"select rolsuper{grant} from pg_roles where rolname = current_user")
