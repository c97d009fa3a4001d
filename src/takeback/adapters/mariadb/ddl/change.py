"""What MariaDB commits by itself: tables are dropped, created, renamed and altered outside of any transaction.

The order is: the plan, durable · the one step that counts · the marker. After a crash the tables themselves tell how
far it got: the plan without that step never happened, the plan with it is completed.
"""

import json
from collections.abc import Collection
from typing import Any

from takeback.adapters.mariadb.ddl import alter, rename
from takeback.adapters.mariadb.ddl.alter import Reshape, UntriedAlter
from takeback.adapters.mariadb.ddl.rename import Moves
from takeback.adapters.mariadb.logs import LOG_MODE, OPS, PLANS
from takeback.adapters.mariadb.protection import keep_up
from takeback.adapters.mariadb.registry import LogRegistry, read
from takeback.adapters.mariadb.statements import ALTER, CREATE, DROP, AskedDefinition
from takeback.adapters.mariadb.wire import Wire, driver, is_lost, quoted, told
from takeback.errors import Conflict, Failed, NoRemedy, Refused

Plan = Moves | Reshape
_TRIAL = "trial"


def planned(registry: LogRegistry, wanted: AskedDefinition, effect: str) -> Plan | UntriedAlter:
    if wanted.what == DROP:
        return rename.plan_drop(registry, wanted, effect)
    if wanted.what == CREATE:
        return rename.plan_create(registry, wanted, effect)
    if wanted.what == ALTER:
        return alter.plan_alter(registry, wanted, effect)
    return rename.plan_rename(registry, wanted)


def carry_out(
    wire: Wire, effect: str, undoes: str, plan: Plan | UntriedAlter, force: bool = False
) -> dict[str, Any]:
    """`Conflict` if something is in the way, `StatementFailed` if the server says no; then nothing was changed."""
    _settle_session(wire)
    step: Plan | None = None
    try:
        if isinstance(plan, UntriedAlter):
            _write(wire, effect, undoes, json.dumps([_TRIAL, plan.scratch]))
            plan = alter.tried(wire, plan)
        _refuse_obstacles(wire, plan, force)
        step = plan
        _write(wire, effect, undoes, json.dumps(step.to_json()))
        step.carry_out(wire, read(wire), force)
    except driver().Error as error:
        if is_lost(error):
            raise
        _settle_session(wire)
        if step is None or not step.is_made(wire):
            _withdraw(wire, effect)
            raise told(error, wire.database) from error
    except (Refused, Failed):
        _settle_session(wire)
        if step is None or not step.is_made(wire):
            _withdraw(wire, effect)
        raise
    return _complete(wire, effect, undoes, step)


def _write(wire: Wire, effect: str, undoes: str, plan: str) -> None:
    wire.run(
        f"REPLACE INTO {PLANS} (op, undoes, plan)"
        f" VALUES ({wire.text(effect)}, {wire.text(undoes)}, {wire.text(plan)})"
    )


def settle(wire: Wire, effect: str) -> None:
    """After a crash: by what the tables are."""
    rows = wire.rows(f"SELECT undoes, plan FROM {PLANS} WHERE op = {wire.text(effect)}")
    if not rows:
        return
    _settle_session(wire)
    plan = _plan(rows[0][1])
    if plan is None or not plan.is_made(wire):
        _withdraw(wire, effect)
        return
    if isinstance(plan, Reshape):
        plan.resume(wire)
    _complete(wire, effect, str(rows[0][0]), plan)


def _withdraw(wire: Wire, effect: str) -> None:
    found = wire.one(f"SELECT plan FROM {PLANS} WHERE op = {wire.text(effect)}")
    if not found:
        return
    plan = _plan(found)
    if plan is None:
        wire.run(f"DROP TABLE IF EXISTS {quoted(json.loads(found)[1])}")
    else:
        plan.withdraw(wire)
        if isinstance(plan, Reshape):
            _recapture(wire)
    wire.run(f"DELETE FROM {PLANS} WHERE op = {wire.text(effect)}")


def _settle_session(wire: Wire) -> None:
    wire.run("SET SESSION lock_wait_timeout = 10, foreign_key_checks = 0")


def _complete(wire: Wire, effect: str, undoes: str, plan: Plan) -> dict[str, Any]:
    from takeback.adapters.mariadb.undo import swap

    plan = plan.finish(wire)
    _recapture(wire)
    receipt: dict[str, Any] = {"tables": {}, "schema": plan.says()}
    wire.run("START TRANSACTION")
    wire.run(
        f"INSERT INTO {OPS} (op, undoes, receipt, plan) VALUES ({wire.text(effect)}, {wire.text(undoes)},"
        f" {wire.text(json.dumps(receipt))}, {wire.text(json.dumps(plan.to_json()))})"
    )
    if undoes:
        swap(wire, undoes, effect)
    wire.run(f"DELETE FROM {PLANS} WHERE op = {wire.text(effect)}")
    wire.run("COMMIT")
    return receipt


def _recapture(wire: Wire) -> None:
    """A table that is new or another gets its log, and triggers that look for its rows follow."""
    try:
        wire.run(f"SET @takeback_mode = @@sql_mode, SESSION sql_mode = '{LOG_MODE}'")
        keep_up(wire)
        wire.run("SET SESSION sql_mode = @takeback_mode")
    except (driver().Error, Refused):
        pass  # the next change of rows there reports that the capture must be updated


def plan_of(wire: Wire, effect: str) -> Plan | None:
    """Of an effect that was made in this way."""
    found = wire.one(f"SELECT plan FROM {OPS} WHERE op = {wire.text(effect)}")
    return _plan(found) if found else None


def later_on(wire: Wire, tables: Collection[str], op: int) -> set[int]:
    """Numbers of later operations that made, changed or dropped one of these tables."""
    later = wire.rows(f"SELECT no, plan FROM {OPS} WHERE no > {op} AND plan <> ''")
    return {int(no) for no, text in later if (plan := _plan(text)) and not set(tables).isdisjoint(plan.names)}


def take_out(wire: Wire, effect: str, plan: Plan) -> None:
    """Remove it without a trace. A process that died on the way has left a plan, and the tables show the rest."""
    from takeback.adapters.mariadb.undo import swap

    _settle_session(wire)
    key = wire.text(f"{effect}:out")
    rows = wire.rows(f"SELECT plan FROM {PLANS} WHERE op = {key}")
    back = (_plan(rows[0][0]) if rows else None) or plan.inverse(f"{effect}o")
    if not (rows and back.is_made(wire)):
        _refuse_obstacles(wire, back, False)
        _write(wire, f"{effect}:out", "", json.dumps(back.to_json()))
        back.carry_out(wire, read(wire), False)
    elif isinstance(back, Reshape):
        back.resume(wire)
    if isinstance(back, Moves):
        back.finish(wire)
    _recapture(wire)
    for one in (plan, back):
        if isinstance(one, Reshape):
            one.throw_away(wire, False)
    wire.run("START TRANSACTION")
    swap(wire, effect, effect)
    wire.run(f"DELETE FROM {OPS} WHERE op = {wire.text(effect)}")
    wire.run(f"DELETE FROM {PLANS} WHERE op = {key}")
    wire.run("COMMIT")


def _refuse_obstacles(wire: Wire, plan: Plan, force: bool) -> None:
    if bad := plan.obstacles(wire, read(wire), force):
        raise Conflict(f"{bad[0][0]} {bad[0][1]}.", hint="Nothing was changed.")


def _plan(text: str) -> Plan | None:
    """None: it was only tried."""
    data = json.loads(text)
    if data[0] == _TRIAL:
        return None
    return alter.from_json(data) if data[0] == alter.ALTERED else rename.from_json(data)


def refuse_mixed() -> Refused:
    return NoRemedy(
        "A definition cannot be part of a transaction: MariaDB commits it by itself.",
        hint="Nothing was changed. Make it an effect of its own, outside of a transaction.",
    )
