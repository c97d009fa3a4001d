"""Our tables in the file while a program works on it: it may drop or empty them like any other. Then they are put back
from the copy, for with them every earlier effect would lose its way back."""

from takeback.adapters.sqlite.child.driver import Connection
from takeback.adapters.sqlite.child.log import NAMES
from takeback.adapters.sqlite.child.opening import OURS
from takeback.adapters.sqlite.child.place import Place
from takeback.errors import NoRemedy

PUT_BACK = "The tables in which takeback keeps the way back were damaged by the program, and were put back."
_LOST = "the way back of earlier effects, for the program changed the tables of takeback"


def strangers(place: Place) -> list[str]:
    """Tables and indexes that have a name of ours and are not ours: where they are, there can be no log."""
    return [] if place.log.is_there else sorted(_there(place.connection, "main"))


def refuse_strangers(place: Place) -> None:
    for name in strangers(place):
        raise NoRemedy(
            f"{name} is a name that takeback needs for a table of its own.",
            hint="Nothing was changed. Rename it, or use another file.",
        )


def put_back(place: Place) -> dict[str, list[str]]:
    """For the receipt: what there is to say, and what is lost. `was` is the file as it was, `main` as it is."""
    then, now = (_there(place.connection, schema) for schema in ("was", "main"))
    if not {*NAMES} <= then.keys():
        return {}
    if {*NAMES} <= now.keys():
        if not _ops_without(place.connection, "was", "main"):
            return {}
        if _ops_without(place.connection, "main", "was"):
            return {"lost": [_LOST]}  # others have worked with what is there now
    place.log.remove()
    for name, sql in then.items():
        place.connection.execute(sql)
        if name in NAMES:
            place.connection.execute(f"INSERT INTO main.{name} SELECT * FROM was.{name}")
    place.log.fresh()
    return {"notes": [PUT_BACK]}


def _there(connection: Connection, schema: str) -> dict[str, str]:
    """Names of ours, and how each is made; tables before their indexes."""
    found = connection.execute(
        f"SELECT lower(name), sql FROM {schema}.sqlite_schema WHERE sql IS NOT NULL ORDER BY type DESC, rowid"
    )
    return {name: sql for name, sql in found if name in OURS}


def _ops_without(connection: Connection, one: str, other: str) -> int:
    """How many effects are in the one log and not in the other."""
    mine, theirs = (
        f"SELECT id FROM {schema}.takeback_op UNION ALL SELECT id FROM {schema}.takeback_recent WHERE id IS NOT NULL"
        for schema in (one, other)
    )
    return connection.execute(f"SELECT count(*) FROM ({mine}) WHERE id NOT IN ({theirs})").get
