"""A program with its own driver: the writes of its sessions are one effect; unseen losses are reported."""

import json
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from takeback.adapters.database import Tell, quiet
from takeback.adapters.postgres import markers
from takeback.adapters.postgres.connection import Connection, transaction
from takeback.adapters.postgres.counts import by_images, from_images
from takeback.adapters.postgres.ddl import definitions, dropped_tables, trial
from takeback.adapters.postgres.ddl.definitions import Things, differing
from takeback.adapters.postgres.install import capture_again, outdated
from takeback.adapters.postgres.markers import PostgresOp
from takeback.adapters.postgres.row_report import net_counts
from takeback.adapters.postgres.session import close_op, open_op
from takeback.adapters.postgres.unwind import one_way
from takeback.errors import Refused, StoreBusy
from takeback.model.database import FROM_ENVIRONMENT, Database
from takeback.model.effect import Effect
from takeback.model.ids import short

LOST_HINT = (
    "Nothing was changed. Get it from a backup, or by point-in-time recovery. Next time give the address of a "
    "superuser that protected the database (tier full), or send changes of the schema through `takeback sql exec`: "
    "both save the rows first."
)


def unsaved_losses(connection: Connection, before: Things, after: Things) -> list[str]:
    """Losses through dropped or altered objects, if no event trigger reported each command before it ran. A dropped
    table may have been empty, but the last writer is unknown, so it counts."""
    old, new = differing(before, after), differing(after, before)
    gone = {one.oid: one for one in old if one.is_table and one.key not in after}
    found = [f"the rows of table {one.shown}, which was dropped" for one in gone.values()]
    for oid, numbers in trial.losses(connection, old, new).items():
        if oid in gone:
            continue
        table = before[("relation", oid, 0)].shown
        for number in numbers:
            name = before[("column", oid, number)].doc["name"]
            how = "has another type" if ("column", oid, number) in after else "was dropped"
            found.append(f"what was in column {name} of table {table}, which {how}")
    for one in old:
        alone = one.kind == "relation" and one.doc["_kind"] == "S" and one.of not in gone
        if alone and one.key not in after:
            found.append(f"the number that sequence {one.shown} had reached, which was dropped")
    return found


# The server counts transactions: what one wrote that began after the marker is younger than it. Of tables that were
# protected while it ran, the triggers and what they recorded are younger too.
_SWITCHED = """
select format('%%I.%%I', n.nspname, c.relname)
from takeback.op o, takeback.captured k
join pg_class c on c.oid = k.relation join pg_namespace n on n.oid = c.relnamespace
where o.no = %s and age(k.xmin) >= age(o.xmin) and 4 <> (
  select count(*) from pg_trigger g where g.tgrelid = k.relation and g.tgname like 'zz\\_takeback\\__'
    and g.tgenabled = 'A' and age(g.xmin) >= age(o.xmin))
order by 1
"""


def switched_off(connection: Connection, op: int) -> list[str]:
    """Tables whose triggers are not what they were when the program began, if only for a while."""
    return [
        f"what was changed in table {name}, whose capture was switched off"
        for (name,) in connection.ask(_SWITCHED, [op])
    ]


def refuse_lost(op: PostgresOp) -> None:
    if op.lost:
        raise Refused(
            f"Effect {short(op.id)} cannot be taken back, because this is lost: {'; '.join(op.lost)}.",
            hint=LOST_HINT,
            effect=op.id,
        )


# What the server counted while a program ran: things that no trigger sees. Who did them is not known, so each
# sentence says that they happened, and not that the program did them.


UNSEEN_HINT = (
    "takeback recognises a program by PGOPTIONS, by PGAPPNAME or by the address in its variable: let it keep one of "
    "them. What other sessions wrote is not recorded, and no undo takes it back."
)
_LEAVES = 0.5  # seconds that sessions of a program which has ended are given to end as well
_OTHERS = """
select 1 from pg_stat_activity a, takeback.op o where o.no = %s and a.datname = current_database()
  and a.usename = session_user and a.backend_start > o.started
  and not starts_with(a.application_name, 'takeback') limit 1
"""


class Besides(NamedTuple):
    """What happened while a program ran besides rows and definitions, in sentences."""

    notes: list[str]  # of what stays when the effect is taken back
    sequences: list[str]  # that were set back


def besides_of(connection: Connection, op: int) -> Besides:
    """The values of the sequences are kept with the effect."""
    asked = "select sequence, was from takeback.counted_back(%s)"
    rows = [] if outdated(connection) else connection.ask(asked, [op])
    back = [f"sequence {name} was set back (it had reached {was})" for name, was in rows]
    return Besides(notes(connection, op), back)


def notes(connection: Connection, op: int) -> list[str]:
    """What happened while the program ran, and stays when its rows are taken back."""
    before, now = _both(connection, op)
    old, new = before.get("shared", {}), now["shared"]
    found = [_shared(name, old.get(name), new.get(name)) for name in {**old, **new}]
    if before and before["large objects"] != now["large objects"]:
        found.append(
            "Large objects were written while the program ran, or just before. takeback does not capture them, so an "
            "undo leaves them as they are."
        )
    return [sentence for sentence in found if sentence]


def _both(connection: Connection, op: int) -> tuple[dict[str, Any], dict[str, Any]]:
    if outdated(connection):
        return {}, {"shared": {}}
    connection.run("select pg_stat_clear_snapshot()")
    rows = connection.ask("select o.witness, takeback.witness() from takeback.op o where o.no = %s", [op])
    return rows[0] if rows and rows[0][0] else ({}, {"shared": {}})


def _shared(name: str, was: str | None, now: str | None) -> str:
    if was == now:
        return ""
    what = "created" if was is None else "dropped" if now is None else "changed"
    return f"The {name} was {what} while the program ran. takeback cannot take that back."


def unseen(connection: Connection, op: int) -> str:
    """Of a program that was seen to change nothing: rows that sessions without its mark wrote to protected tables."""
    deadline = time.monotonic() + _LEAVES
    while connection.ask(_OTHERS, [op]) and time.monotonic() < deadline:
        time.sleep(0.02)
        connection.run("select pg_stat_clear_snapshot()")
    before, now = _both(connection, op)
    names = dict(connection.ask("select no, name from takeback.log"))
    found: list[str] = []
    for log, (plus, minus) in now.get("written", {}).items():
        was = before["written"].get(log, [0, 0])
        rows = max(plus - was[0], minus - was[1])
        if rows > 0:
            found.append(f"{names[int(log)]}: {rows:,} row{'s' if rows != 1 else ''}")
    if not found:
        return ""
    return f"No session of the program was seen, but other sessions wrote to protected tables ({', '.join(found)})."


def is_guest(connection: Connection) -> bool:
    """Then it is also let see its own effects, as the policies of takeback's tables say."""
    guest = not connection.ask("select takeback.keeper()")[0][0]
    if guest:
        connection.run("set row_security = on")
    return guest


def refuse_guest(connection: Connection) -> None:
    if connection.keeper:
        return
    role, connection.keeper = connection.ask("select session_user::text, takeback.keeper()")[0]
    if not connection.keeper:
        raise Refused(
            f"Role {role} cannot put rows back: what takeback keeps of them here belongs to another role.",
            hint="Nothing was changed. Have the address of a role that owns the tables and protected them in NAME if "
            "it was env:NAME, else in TAKEBACK_SQL.",
        )


def close(connection: Connection, op: PostgresOp) -> dict[str, Any] | None:
    closed, told, shape = connection.ask(
        "select closed, told, shape from takeback.op where no = %s", [op.no]
    )[0]
    if closed:
        return told
    schema, lost = _guest_schema(connection, shape) if shape is not None else ([], [])
    lost += switched_off(connection, op.no)
    tables = _guest_numbers(connection, op.no)
    besides = besides_of(connection, op.no)
    if not tables and not schema and not lost and not besides.sequences:
        return None
    found: dict[str, Any] = {"tables": tables, "schema": schema + besides.sequences}
    found |= ({"lost": lost} if lost else {}) | ({"notes": besides.notes} if besides.notes else {})
    connection.run("select takeback.end_program(%s, %s)", [op.no, json.dumps(found)])
    return found


def _guest_schema(connection: Connection, shape: Any) -> tuple[list[str], list[str]]:
    """What became of the things that belong to this role: only those it can have made, altered or dropped. They stay
    when the rows are taken back, because only their owner may remove them."""
    before = {one.key: one for one in definitions.from_json(shape)}
    after = definitions.read(connection)
    role = connection.ask("select session_user::text")[0][0]
    relations = {key: one for key, one in (before | after).items() if one.kind == "relation"}
    own = {one.oid for one in relations.values() if one.doc.get("owner") == role}
    was, now = ({key: one for key, one in side.items() if one.oid in own} for side in (before, after))
    made = [one.shown for key, one in now.items() if one.kind == "relation" and key not in was]
    said = [f"{name} was made by role {role}, and stays when this is taken back" for name in sorted(made)]
    return said, unsaved_losses(connection, was, now)


def _guest_numbers(connection: Connection, op: int) -> dict[str, dict[str, int]]:
    """By row, as far as this role may read them; images else."""
    images = connection.ask("select log, name, minus, plus from takeback.images(%s)", [op])
    may = {log for log, *_ in images if connection.ask("select takeback.readable(%s)", [log])[0][0]}
    exact = {log: (name, counts) for log, name, counts in net_counts(connection, op, sorted(may))}
    found: dict[str, dict[str, int]] = {}
    for log, name, minus, plus in images:
        found.update([exact.get(log, (name, from_images(plus, minus)))])
    return found


# A program with its own driver: whatever its sessions write belongs to one effect.
#
# They say so by a setting that they inherit from the environment. The marker is there before the program
# starts; what is in the logs when it has ended is what it committed, however it ended.


_PROGRAMS = 1952539243
_PATIENCE = 2.0


def enter(
    connection: Connection, effect: Effect, database: Database, url: str, options: str
) -> Mapping[str, str]:
    """The variables that the program must be started with. `options` are those that it would have had."""
    with transaction(connection):
        number = connection.ask("select no from takeback.find(%s)", [effect.id])[0][0]
        if number is None:
            number = open_op(connection, effect)
        if not sees_schema(connection):
            connection.run("select takeback.begin_program(%s)", [number])
        connection.run("select takeback.begin_watch(%s)", [number])
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


def leave(connection: Connection, effect: Effect, tell: Tell = quiet) -> dict[str, Any] | None:
    """Close the record for good: no session can add to it any more. None if no change was seen, and nothing is left
    then; changes that only the server counted are reported."""
    deadline = time.monotonic() + _PATIENCE
    while True:
        with transaction(connection):
            guest = is_guest(connection)
            op = markers.find(connection, effect.id, lock=not guest)
            if op is None:
                return None
            alone = connection.ask("select pg_try_advisory_xact_lock(%s, %s)", [_PROGRAMS, op.no])[0][0]
            if alone:
                receipt = (close if guest else _close)(connection, op)
                if receipt is None:
                    _tell_unseen(connection, op, tell)
                    if guest:
                        connection.run("select takeback.end_program(%s, null)", [op.no])
                    else:
                        markers.erase(connection, op)
                return receipt
        if time.monotonic() > deadline:
            raise StoreBusy(
                "The program is still at work in the database.",
                hint="End it, then try again.",
                effect=effect.id,
            )
        time.sleep(0.02)


def sees_schema(connection: Connection) -> bool:
    """Event triggers report changes of the schema; only a superuser may have them."""
    return bool(
        connection.ask(
            "select 1 from pg_event_trigger where evtname = 'takeback_ddl_command_end' and evtenabled = 'A'"
        )
    )


def _tell_unseen(connection: Connection, op: markers.PostgresOp, tell: Tell) -> None:
    for sentence in notes(connection, op.no):
        tell(sentence, "")
    if sentence := unseen(connection, op.no):
        tell(sentence, UNSEEN_HINT)


def _close(connection: Connection, op: markers.PostgresOp) -> dict[str, Any] | None:
    closed, told, shape = connection.ask(
        "select closed, told, shape from takeback.op where no = %s", [op.no]
    )[0]
    if closed:
        return told
    lost = switched_off(connection, op.no)
    if shape is not None:
        lost += _compared(connection, op.no, shape)
    logs = markers.touched(connection, op.no)
    said = trial.told(connection, op.no)
    besides = besides_of(connection, op.no)
    if not logs and not said and not lost and not besides.sequences:
        return None
    trial.mark_again(connection, op.no)
    moves = dropped_tables.marked(connection, trial.settle(connection, op.no))
    capture_again(connection, {oid for move in moves for oid in (move.oid, *move.parts)}, new=True)
    connection.run("update takeback.op set closed = true, shape = null where no = %s", [op.no])
    told: dict[str, Any] = {"tables": _numbers(connection, op.no, logs), "schema": said + besides.sequences}
    if besides.notes:
        told["notes"] = besides.notes
    if lost:
        told["lost"] = lost
    elif said and (why := one_way(connection, op, moves)):
        told["one_way"] = [why]
    connection.run(*close_op(op.no, logs, told, moves))
    return told


def _compared(connection: Connection, op: int, shape: Any) -> list[str]:
    """Without an event trigger: how the schema changed, and what was lost by that."""
    before = {one.key: one for one in definitions.from_json(shape)}
    after = definitions.read(connection)
    lost = unsaved_losses(connection, before, after)
    step = trial.note(connection, op, before, after, [])
    if step:
        changed = {one.oid for one in (*step.before, *step.after) if one.kind in ("relation", "column")}
        capture_again(connection, changed, new=False)
    return lost


def _numbers(connection: Connection, op: int, logs: Sequence[int]) -> dict[str, dict[str, int]]:
    """By table, each row once, whatever happened to it on the way; in tables that are gone, images."""
    found = {log: (name, counts) for log, name, counts in net_counts(connection, op, logs)}
    for log in set(logs) - found.keys():
        name = connection.ask("select name from takeback.log where no = %s", [log])[0][0]
        found[log] = (name, by_images(connection, log, f"op = {op}"))
    return dict(found[log] for log in logs)
