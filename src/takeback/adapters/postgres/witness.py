"""What the server counted while a program ran: things that no trigger sees. Who did them is not known, so each sentence
says that they happened, and not that the program did them."""

import time
from typing import TYPE_CHECKING, Any, NamedTuple

from takeback.adapters.postgres.connecting import ask, run
from takeback.adapters.postgres.own_schema import outdated

if TYPE_CHECKING:
    from takeback.adapters.postgres.connecting import Connection

HINT = (
    "takeback recognises a program by PGOPTIONS, by PGAPPNAME or by the address in its variable: let it keep one of "
    "them. What other sessions wrote is not recorded, and no undo takes it back."
)
_LEAVES = 0.5  # seconds that sessions of a program which has ended are given to end as well
_OTHERS = """
select 1 from pg_stat_activity a, takeback.op o where o.no = %s and a.datname = current_database()
  and a.usename = session_user and a.backend_start > o.started
  and not starts_with(a.application_name, 'takeback') limit 1
"""


def begin(connection: "Connection", op: int) -> None:
    run(connection, "select takeback.begin_watch(%s)", [op])


class Besides(NamedTuple):
    """What happened while a program ran besides rows and definitions, in sentences."""

    notes: list[str]  # of what stays when the effect is taken back
    sequences: list[str]  # that were set back


def besides_of(connection: "Connection", op: int) -> Besides:
    return Besides(notes(connection, op), _sequences(connection, op))


def _sequences(connection: "Connection", op: int) -> list[str]:
    """What they had reached is kept with the effect."""
    if outdated(connection):
        return []
    rows = ask(connection, "select sequence, was from takeback.counted_back(%s)", [op])
    return [f"sequence {name} was set back (it had reached {was})" for name, was in rows]


def notes(connection: "Connection", op: int) -> list[str]:
    """What happened while the program ran, and stays when its rows are taken back."""
    before, now = _both(connection, op)
    found = [_shared(name, was, now["shared"].get(name)) for name, was in before.get("shared", {}).items()]
    found += [
        _shared(name, None, new)
        for name, new in now["shared"].items()
        if name not in before.get("shared", {})
    ]
    if before and before["large objects"] != now["large objects"]:
        found.append(
            "Large objects were written while the program ran, or just before. takeback does not capture them, so an "
            "undo leaves them as they are."
        )
    return [sentence for sentence in found if sentence]


def _both(connection: "Connection", op: int) -> tuple[dict[str, Any], dict[str, Any]]:
    if outdated(connection):
        return {}, {"shared": {}}
    run(connection, "select pg_stat_clear_snapshot()")
    rows = ask(connection, "select o.witness, takeback.witness() from takeback.op o where o.no = %s", [op])
    if not rows or not rows[0][0]:
        return {}, {"shared": {}}
    return rows[0]


def _shared(name: str, was: str | None, now: str | None) -> str:
    if was == now:
        return ""
    what = "created" if was is None else "dropped" if now is None else "changed"
    return f"The {name} was {what} while the program ran. takeback cannot take that back."


def unseen(connection: "Connection", op: int) -> str:
    """Of a program that was seen to change nothing: rows that sessions without its mark wrote to protected tables."""
    deadline = time.monotonic() + _LEAVES
    while ask(connection, _OTHERS, [op]) and time.monotonic() < deadline:
        time.sleep(0.02)
        run(connection, "select pg_stat_clear_snapshot()")
    before, now = _both(connection, op)
    names = dict(ask(connection, "select no, name from takeback.log"))
    found: list[str] = []
    for log, (plus, minus) in now.get("written", {}).items():
        was = before["written"].get(log, [0, 0])
        rows = max(plus - was[0], minus - was[1])
        if rows > 0:
            found.append(f"{names[int(log)]}: {rows:,} row{'s' if rows != 1 else ''}")
    if not found:
        return ""
    return f"No session of the program was seen, but other sessions wrote to protected tables ({', '.join(found)})."
