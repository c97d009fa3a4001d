"""A program whose role may write and owns nothing: it is captured as any other, and ended by functions of the owner."""

import json
from typing import TYPE_CHECKING, Any

from takeback.adapters.postgres import definitions, losing
from takeback.adapters.postgres.connecting import ask, run
from takeback.adapters.postgres.ops import Op
from takeback.adapters.postgres.telling import net_counts
from takeback.adapters.postgres.witness import besides_of
from takeback.errors import Refused

if TYPE_CHECKING:
    from takeback.adapters.postgres.connecting import Connection


def is_guest(connection: "Connection") -> bool:
    """Then it is also let see its own effects, as the policies of takeback's tables say."""
    guest = not ask(connection, "select takeback.keeper()")[0][0]
    if guest:
        run(connection, "set row_security = on")
    return guest


def refuse_guest(connection: "Connection") -> None:
    if connection.keeper:
        return
    role, connection.keeper = ask(connection, "select session_user::text, takeback.keeper()")[0]
    if not connection.keeper:
        raise Refused(
            f"Role {role} cannot put rows back: what takeback keeps of them here belongs to another role.",
            hint="Nothing was changed. Have the address of a role that owns the tables and protected them in NAME if "
            "it was env:NAME, else in TAKEBACK_SQL.",
        )


def close(connection: "Connection", op: Op) -> dict[str, Any] | None:
    closed, told, shape = ask(
        connection, "select closed, told, shape from takeback.op where no = %s", [op.no]
    )[0]
    if closed:
        return told
    schema, lost = _compared(connection, shape) if shape is not None else ([], [])
    lost += losing.switched_off(connection, op.no)
    tables = _numbers(connection, op.no)
    besides = besides_of(connection, op.no)
    if not tables and not schema and not lost and not besides.sequences:
        return None
    found: dict[str, Any] = {"tables": tables, "schema": schema + besides.sequences}
    found |= ({"lost": lost} if lost else {}) | ({"notes": besides.notes} if besides.notes else {})
    run(connection, "select takeback.end_program(%s, %s)", [op.no, json.dumps(found)])
    return found


def erase(connection: "Connection", op: Op) -> None:
    """As if it had never been: it changed nothing."""
    run(connection, "select takeback.end_program(%s, null)", [op.no])


def _compared(connection: "Connection", shape: Any) -> tuple[list[str], list[str]]:
    """What became of the things that belong to this role: only those it can have made, altered or dropped. They stay
    when the rows are taken back, for which nobody else has the right."""
    before = {one.key: one for one in definitions.from_json(shape)}
    after = definitions.read(connection)
    role = ask(connection, "select session_user::text")[0][0]
    relations = {key: one for key, one in (before | after).items() if one.kind == "relation"}
    own = {one.oid for one in relations.values() if one.doc.get("owner") == role}
    was, now = ({key: one for key, one in side.items() if one.oid in own} for side in (before, after))
    made = [one.shown for key, one in now.items() if one.kind == "relation" and key not in was]
    said = [f"{name} was made by role {role}, and stays when this is taken back" for name in sorted(made)]
    return said, losing.lost(connection, was, now)


def _numbers(connection: "Connection", op: int) -> dict[str, dict[str, int]]:
    """By row, as far as this role may read them; images else."""
    images = ask(connection, "select log, name, minus, plus from takeback.images(%s)", [op])
    may = {log for log, *_ in images if ask(connection, "select takeback.readable(%s)", [log])[0][0]}
    exact = {log: (name, counts) for log, name, counts in net_counts(connection, op, sorted(may))}
    found: dict[str, dict[str, int]] = {}
    for log, name, minus, plus in images:
        both = min(minus, plus)
        known = (name, {"inserted": plus - both, "updated": both, "deleted": minus - both})
        found.update([exact.get(log, known)])
    return found
