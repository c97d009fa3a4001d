"""A program with its own driver: it is given an account of its own, and whatever that account writes is one effect.

The triggers know the account by its name, which the program cannot change; it may read and write rows of the tables
that are captured, and nothing else. The marker is there before the program starts; what is in the logs when its account
is gone is what it committed, however it ended."""

import re
import secrets
import time
from collections.abc import Mapping, Sequence
from typing import Any

from takeback.adapters.mariadb import markers
from takeback.adapters.mariadb.logs import OPS, PROGRAM
from takeback.adapters.mariadb.net import cancels_out, count, record
from takeback.adapters.mariadb.registry import Bare, LogRegistry, leading, op_number, read, refuse_unprotected
from takeback.adapters.mariadb.wire import Wire, code_of, driver, quoted
from takeback.errors import NoRemedy, StoreBusy
from takeback.model.database import FROM_ENVIRONMENT, Database
from takeback.model.effect import Effect

_PATIENCE = 2.0
_STEP = 0.02
_NO_RIGHT = (1044, 1142, 1227, 1410, 1698)
_SEES_ALL = re.compile(r"GRANT .*\b(?:PROCESS|ALL PRIVILEGES)\b.* ON \*\.\*")
_RIGHTS = "SELECT, INSERT, UPDATE, DELETE"


def enter(wire: Wire, effect: Effect, database: Database, url: str) -> Mapping[str, str]:
    """The variable that the program must be started with."""
    if not database.source.startswith(FROM_ENVIRONMENT):
        raise NoRemedy(
            "How the program finds the database is not known, so it cannot be given an account of its own.",
            hint="Give the address as env:NAME, and let the program take it from the variable NAME.",
        )
    if not any(_SEES_ALL.search(str(grant)) for (grant,) in wire.rows("SHOW GRANTS")):
        raise _no_right("to see the sessions of other accounts (PROCESS)")
    registry = read(wire)
    refuse_unprotected(registry)
    if missed := _uncaptured(wire, registry):
        raise NoRemedy(missed.told(), hint="`takeback sql protect URL` brings the capture up to date.")
    found = op_number(wire, effect.id)
    if found is None:
        wire.run(f"INSERT INTO {OPS} (op) VALUES ({wire.text(effect.id)})")
    number = found[0] if found else wire.last_number()
    account, password = f"'{_name(number, effect)}'@'%'", secrets.token_urlsafe(24)
    try:
        wire.run(f"DROP USER IF EXISTS {account}")
        wire.run(f"CREATE USER {account} IDENTIFIED BY '{password}'")
        for statement in _grants(wire, registry, account):
            wire.run(statement)
    except driver().Error as error:
        wire.attempt(f"DROP USER IF EXISTS {account}")  # who may not drop it could not make it
        _erase(wire, registry, number)
        if code_of(error) in _NO_RIGHT:
            raise _no_right("to make an account with rights for this database") from error
        raise
    name = database.source.removeprefix(FROM_ENVIRONMENT)
    return {name: with_account(url, _name(number, effect), password)}


def _no_right(what: str) -> NoRemedy:
    return NoRemedy(
        "takeback can capture the changes of a program only under a separate account, and this account has no "
        f"right {what}.",
        hint="Use an administrator's address for `run --sql`, or send the statements through `takeback sql exec`.",
    )


def _name(number: int, effect: Effect) -> str:
    """Accounts are the server's, numbers each database's."""
    return f"{PROGRAM}{number}_{effect.id}"


def _grants(wire: Wire, registry: LogRegistry, account: str) -> Sequence[str]:
    """Rows of what is captured; the rest can be read, so that what could not be taken back fails."""
    database = quoted(str(wire.one("SELECT DATABASE()")))
    captured = set(registry.walked())
    views = wire.rows("SELECT TABLE_NAME FROM information_schema.VIEWS WHERE TABLE_SCHEMA = DATABASE()")
    names = [*registry.schema.shapes, *(str(name) for (name,) in views)]
    found = [
        f"GRANT {_RIGHTS if name in captured else 'SELECT'} ON {database}.{quoted(name)} TO {account}"
        for name in names
    ]
    return [*found, f"GRANT CREATE TEMPORARY TABLES, LOCK TABLES ON {database}.* TO {account}"]


def with_account(url: str, user: str, password: str) -> str:
    from urllib.parse import quote

    scheme, _, rest = url.partition("://")
    place, slash, tail = rest.partition("/")
    host = place.rpartition("@")[2]
    return f"{scheme}://{user}:{quote(password, safe='')}@{host}{slash}{tail}"


def leave(wire: Wire, effect: Effect) -> dict[str, Any] | None:
    """Closed for good: no session can add to it any more. None if nothing was changed, and nothing is left then."""
    found = op_number(wire, effect.id)
    if found is None:
        return None
    number = found[0]
    wire.run(f"DROP USER IF EXISTS '{_name(number, effect)}'@'%'")
    deadline = time.monotonic() + _PATIENCE
    while wire.rows(
        f"SELECT 1 FROM information_schema.PROCESSLIST WHERE USER = {wire.text(_name(number, effect))}"
    ):
        if time.monotonic() > deadline:
            raise StoreBusy(
                "The program is still at work in the database.",
                hint="End it, then try again.",
                effect=effect.id,
            )
        time.sleep(_STEP)
    if told := markers.receipt_of(wire, effect.id):
        return told
    registry = read(wire)
    numbers = count(wire, registry, number)
    missed: list[str] = []
    if bare := _uncaptured(
        wire, registry
    ):  # the capture was changed behind our back while the program was at work
        missed = [f"Not all of it was captured, and that part cannot be taken back: {bare.told()}"]
    if not missed and (not numbers or cancels_out(wire, registry, number, numbers)):
        _erase(wire, registry, number)
        return None
    wire.run("START TRANSACTION")
    receipt = record(wire, registry, number, numbers, missed)
    wire.run("COMMIT")
    return receipt


def _uncaptured(wire: Wire, registry: LogRegistry) -> Bare | None:
    """Tables that the program may write and whose capture is incomplete. It may only read new tables, unless a table it
    may write leads there."""
    captured = registry.walked()
    return next(
        (bare for name, bare in leading(wire, registry, registry.troubles()).items() if name in captured),
        None,
    )


def _erase(wire: Wire, registry: LogRegistry, number: int) -> None:
    for walked in registry.walked().values():
        wire.run(f"DELETE FROM {walked.log} WHERE tb_op = {number}")
    wire.run(f"DELETE FROM {OPS} WHERE no = {number}")
