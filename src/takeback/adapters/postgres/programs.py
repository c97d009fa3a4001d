"""A program with its own driver: whatever its sessions write belongs to one effect.

They say so by a setting that they inherit from the environment. The marker is there before the program starts; what is
in the logs when it has ended is what it committed, however it ended."""

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from takeback.adapters.database.protocol import Tell, quiet
from takeback.adapters.postgres import definitions, guests, losing, noting, ops, shelf, witness
from takeback.adapters.postgres.connecting import ask, run, transaction
from takeback.adapters.postgres.following import capture_again
from takeback.adapters.postgres.logs import log_name
from takeback.adapters.postgres.session import close_op, open_op
from takeback.adapters.postgres.telling import net_counts
from takeback.adapters.postgres.unwinding import one_way
from takeback.errors import StoreBusy
from takeback.model.database import FROM_ENVIRONMENT, Database
from takeback.model.effect import Effect

if TYPE_CHECKING:
    from takeback.adapters.postgres.connecting import Connection

_PROGRAMS = 1952539243
_PATIENCE = 2.0


def enter(
    connection: "Connection", effect: Effect, database: Database, url: str, options: str
) -> Mapping[str, str]:
    """The variables that the program must be started with. `options` are those that it would have had."""
    with transaction(connection):
        number = ask(connection, "select no from takeback.find(%s)", [effect.id])[0][0]
        if number is None:
            number = open_op(connection, effect)
        if not sees_schema(connection):
            run(connection, "select takeback.begin_program(%s)", [number])
        witness.begin(connection, number)
    setting, name = f"-c takeback.op=p{number}", f"p{number}.takeback"
    found = {"PGOPTIONS": f"{options} {setting}".strip(), "PGAPPNAME": name}
    if database.source.startswith(FROM_ENVIRONMENT):
        # What is in an address wins over the environment.
        found[database.source.removeprefix(FROM_ENVIRONMENT)] = marked(url, setting, name)
    return found


def marked(url: str, setting: str, name: str) -> str:
    """An address by which a session is recognised: by its options, and by its name where a driver is given others."""
    from urllib.parse import quote

    place, _, query = url.partition("?")
    pairs = [pair for pair in query.split("&") if pair]
    for number, pair in enumerate(pairs):
        if pair.startswith("options="):
            pairs[number] = f"{pair}{quote(' ' + setting, safe='')}"
            break
    else:
        pairs.append(f"options={quote(setting, safe='')}")
    if not any(pair.startswith("application_name=") for pair in pairs):
        pairs.append(f"application_name={name}")
    return f"{place}?{'&'.join(pairs)}"


def leave(connection: "Connection", effect: Effect, tell: Tell = quiet) -> dict[str, Any] | None:
    """Closed for good: no session can add to it any more. None if no change was seen, and nothing is left then; what
    the server counted all the same is told."""
    deadline = time.monotonic() + _PATIENCE
    while True:
        with transaction(connection):
            guest = guests.is_guest(connection)
            op = ops.find(connection, effect.id, lock=not guest)
            if op is None:
                return None
            alone = ask(connection, "select pg_try_advisory_xact_lock(%s, %s)", [_PROGRAMS, op.no])[0][0]
            if alone:
                receipt = (guests.close if guest else _close)(connection, op)
                if receipt is None:
                    _tell_unseen(connection, op, tell)
                    guests.erase(connection, op) if guest else ops.erase(connection, op)
                return receipt
        if time.monotonic() > deadline:
            raise StoreBusy(
                "The program is still at work in the database.",
                hint="End it, then try again.",
                effect=effect.id,
            )
        time.sleep(0.02)


def sees_schema(connection: "Connection") -> bool:
    """Event triggers tell what becomes of the schema; only a superuser may have them."""
    return bool(
        ask(
            connection,
            "select 1 from pg_event_trigger where evtname = 'takeback_ddl_command_end' and evtenabled = 'A'",
        )
    )


def _tell_unseen(connection: "Connection", op: ops.Op, tell: Tell) -> None:
    for sentence in witness.notes(connection, op.no):
        tell(sentence, "")
    if sentence := witness.unseen(connection, op.no):
        tell(sentence, witness.HINT)


def _close(connection: "Connection", op: ops.Op) -> dict[str, Any] | None:
    closed, told, shape = ask(
        connection, "select closed, told, shape from takeback.op where no = %s", [op.no]
    )[0]
    if closed:
        return told
    lost = losing.switched_off(connection, op.no)
    if shape is not None:
        lost += _compared(connection, op.no, shape)
    logs = ops.touched(connection, op.no)
    said = noting.told(connection, op.no)
    besides = witness.besides_of(connection, op.no)
    if not logs and not said and not lost and not besides.sequences:
        return None
    noting.mark_again(connection, op.no)
    moves = shelf.marked(connection, noting.settle(connection, op.no))
    capture_again(connection, {oid for move in moves for oid in (move.oid, *move.parts)}, new=True)
    run(connection, "update takeback.op set closed = true, shape = null where no = %s", [op.no])
    told: dict[str, Any] = {"tables": _numbers(connection, op.no, logs), "schema": said + besides.sequences}
    if besides.notes:
        told["notes"] = besides.notes
    if lost:
        told["lost"] = lost
    elif said and (why := one_way(connection, op, moves)):
        told["one_way"] = [why]
    run(connection, *close_op(op.no, logs, told, moves))
    return told


def _compared(connection: "Connection", op: int, shape: Any) -> list[str]:
    """Where no event trigger told of each command: what became of the schema, and what was lost by that."""
    before = {one.key: one for one in definitions.from_json(shape)}
    after = definitions.read(connection)
    lost = losing.lost(connection, before, after)
    step = noting.note(connection, op, before, after, [])
    if step:
        changed = {one.oid for one in (*step.before, *step.after) if one.kind in ("relation", "column")}
        capture_again(connection, changed, new=False)
    return lost


def _numbers(connection: "Connection", op: int, logs: Sequence[int]) -> dict[str, dict[str, int]]:
    """By table, each row once, whatever happened to it on the way; in tables that are gone, images."""
    found = {log: (name, counts) for log, name, counts in net_counts(connection, op, logs)}
    for log in set(logs) - found.keys():
        name, plus, minus = ask(
            connection,
            f"select (select name from takeback.log where no = {log}), count(*) filter (where sign > 0), "
            f"count(*) filter (where sign < 0) from {log_name(log)} where op = {op}",
        )[0]
        both = min(plus, minus)
        found[log] = (name, {"inserted": plus - both, "updated": both, "deleted": minus - both})
    return dict(found[log] for log in logs)
