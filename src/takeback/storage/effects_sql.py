"""From a query to SQL."""

from typing import Any

from takeback.model.change import Change
from takeback.model.effect import OPEN_STATES, Effect, State
from takeback.model.project import Scope
from takeback.model.resource import ancestors
from takeback.storage.protocols import Query
from takeback.storage.scopes import effects_of

_COLUMNS = """
  e.id, coalesce(r.id, ''), e.state, e.seq, e.told, e.ended, e.undoes, e.partial, e.undone_by, e.accepted_by,
  e.forgotten, e.pinned,
  coalesce(r.agent, ''),
  i.seq, i.kind, i.run, i.effect, i.at, i.body, i.hash,
  p.hash,
  o.seq, o.kind, o.run, o.effect, o.at, o.body, o.hash,
  q.hash
FROM effects e
LEFT JOIN runs r ON r.number = e.run
LEFT JOIN records i ON i.seq = e.told
LEFT JOIN records p ON p.seq = e.told - 1
LEFT JOIN records o ON o.seq = e.ended
LEFT JOIN records q ON q.seq = e.ended - 1
"""

# Spelled out, and in the words of the schema, so that SQLite sees its index of those in flight applies.
IN_FLIGHT = "(e.state = 'proposed' OR e.state = 'intended' OR e.state = 'stuck')"

# Stands in listings for an effect whose record cannot be trusted; asking for it by id raises.
DAMAGED = Effect(
    id="",
    run="",
    agent="",
    seq=0,
    state=State.STUCK,
    change=Change("", "damaged", "", "(its journal record is damaged)"),
    note="The journal record is damaged.",
)


def select_effects(query: Query, beyond: int = 0, in_flight: str = IN_FLIGHT) -> tuple[str, list[Any]]:
    """`beyond` is where the page before ended: in the order asked for, what comes after it. `in_flight`: what those
    have in common, so that they are found among many."""
    where, values = _narrowed(query, in_flight)
    if beyond:
        where.append("e.seq < ?" if query.newest else "e.seq > ?")
        values.append(beyond)
    return "SELECT" + _COLUMNS + _where(where) + _in_order(query), values


def count_effects(query: Query, in_flight: str = IN_FLIGHT) -> tuple[str, list[Any]]:
    where, values = _narrowed(query, in_flight)
    limit = f" LIMIT {query.limit}" if query.limit else ""
    found = f"SELECT 1 FROM effects e LEFT JOIN runs r ON r.number = e.run {_where(where)}{limit}"
    return f"SELECT count(*) FROM ({found}) AS found", values


def _where(conditions: list[str]) -> str:
    return "WHERE " + " AND ".join(conditions) if conditions else ""


def _narrowed(query: Query, in_flight: str) -> tuple[list[str], list[Any]]:
    where: list[str] = []
    values: list[Any] = []

    def narrow(sql: str, *given: Any) -> None:
        where.append(sql)
        values.extend(given)

    if query.ids:
        narrow(f"e.id IN ({_marks(query.ids)})", *query.ids)
    if query.undoing:
        # Spelled out, so that the partial index of undos applies.
        narrow(f"e.undoes <> '' AND e.undoes IN ({_marks(query.undoing)})", *query.undoing)
    for sql, value in (
        ("e.run = (SELECT number FROM runs WHERE id = ?)", query.run),
        ("r.agent = ?", query.agent),
        ("e.key = ? AND e.key <> '' AND e.state <> 'aborted'", query.key),
        ("e.seq IN (SELECT effect FROM needs WHERE needed = ?)", query.needing),
        ("e.seq > ?", query.after),
        ("e.seq < ?", query.before),
        # By the records since, which are few: `told` has no index, and nearly all effects are older.
        (
            "e.id IN (SELECT effect FROM records WHERE seq > ?) AND e.told > ?",
            0 if query.scope else query.told_after,
        ),
    ):
        if value:
            narrow(sql, *[value] * sql.count("?"))
    if query.scope:
        sql, given = _belonging(query.scope, query)
        narrow(sql, *given)
    if query.states:
        narrow(_in_states(query.states, in_flight))
    if query.resource:
        sql, given = _overlapping(query.resource)
        narrow(f"e.seq IN ({sql})", *given)
    for sql, asked in (
        ("e.undoes <> ''", query.undos),
        ("e.undoes = ''", query.made),
        ("e.accepted_by <> '' AND e.forgotten = 0", query.forgettable),
        ("e.pinned = 1", query.pinned),
        ("e.forgotten = 0", query.remembered),
    ):
        if asked:
            narrow(sql)
    return where, values


def _belonging(scope: Scope, query: Query) -> tuple[str, list[Any]]:
    """With `told_after` those of the scope that took hold later: by its own index, however old it is."""
    sql, values = effects_of(scope)
    if not query.told_after:
        return f"e.seq IN ({sql})", values
    if query.before and query.before <= query.told_after:
        late = f"{sql} AND told <> effect AND told > ? AND effect < ?"
        return f"e.seq IN ({late})", [*values, query.told_after, query.before]
    return f"e.seq IN ({sql} AND told > ?)", [*values, query.told_after]


def _in_states(states: tuple[State, ...], in_flight: str) -> str:
    sql = "e.state IN (" + ", ".join(f"'{state.value}'" for state in states) + ")"
    if states == (
        State.DROPPED,
    ):  # few: found by their records, of which there is an index without the plain ones
        rare = "effect <> '' AND kind NOT IN ('intent', 'done') AND kind = 'drop'"
        return f"{sql} AND e.id IN (SELECT effect FROM records WHERE {rare})"
    return f"{sql} AND {in_flight}" if set(states).issubset(OPEN_STATES) else sql


def _in_order(query: Query) -> str:
    order = " ORDER BY e.seq DESC" if query.newest else " ORDER BY e.seq"
    return f"{order} LIMIT {query.limit}" if query.limit else order


def _overlapping(resource: str) -> tuple[str, list[str]]:
    around = (resource, *ancestors(resource))
    sql = [f"SELECT effect FROM targets WHERE resource IN ({_marks(around)})"]
    values = list(around)
    inside = ("", "0") if resource.endswith("/") else ("/", "0")
    # '/' is followed by '0' and '#' by '$': everything inside sorts between them.
    for first, last in (inside, ("#", "$")):
        sql.append("SELECT effect FROM targets WHERE resource >= ? AND resource < ?")
        values += [
            resource + first,
            (resource.rstrip("/") if inside[0] == "" and last == "0" else resource) + last,
        ]
    return " UNION ".join(sql), values


def _marks(values: tuple[str, ...]) -> str:
    return ",".join("?" * len(values))
