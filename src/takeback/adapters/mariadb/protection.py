"""Install the capture in a database, remove it, and say what it covers."""

import json
from collections.abc import Sequence

from takeback.adapters.database import Cover, GiveUp
from takeback.adapters.mariadb.logs import BASE, LOG_MODE, META, TABLES, log_table, reached
from takeback.adapters.mariadb.registry import LogRegistry, RegisteredTable, read
from takeback.adapters.mariadb.shapes import LoggedTable, Schema, cascading_out, fingerprint, strangers
from takeback.adapters.mariadb.wire import Wire, code_of, driver, quoted
from takeback.errors import Misuse, ResourceUnreachable

_NOT_ASKED = "it was not asked for"
_LIKE_OURS = (
    "its name begins with _tb_, as those of takeback's own tables; statements that name it are refused"
)
_BINLOG_TRUST = 1419


def protect(wire: Wire, tables: Sequence[str]) -> Cover:
    wire.run(f"SET SESSION sql_mode = '{LOG_MODE}', lock_wait_timeout = 60")
    registry = read(wire)
    _refuse_unknown(registry.schema, tables)
    for statement in BASE:
        wire.run(statement)
    if not registry.identity:
        wire.run(f"INSERT IGNORE INTO {META} VALUES ('version', '1'), ('identity', UUID())")
    wanted = _wanted(registry, tables)
    why = _reasons(wire, registry.schema)
    for name in registry.schema.shapes:
        if name in wanted and name not in why:
            if problem := _give_log(wire, registry, name):
                why[name] = problem
    _with_parents(registry.schema, wanted, why)
    for name in registry.schema.shapes:
        if name not in wanted or name in why:
            _give_number(wire, registry, name, captured=False)
    renew_triggers(wire)
    return cover(wire, why)


def unprotect(wire: Wire, tables: Sequence[str], give_up: GiveUp) -> Cover:
    """Every statement here commits by itself: `give_up` is called before the first of them."""
    registry = read(wire)
    _refuse_unknown(registry.schema, tables)
    left = [one for one in registry.walked() if one not in tables]
    give_up()
    if tables and left:
        for name in tables:
            _give_number(wire, registry, name, captured=False)
        wire.run(f"SET SESSION sql_mode = '{LOG_MODE}', lock_wait_timeout = 60")
        renew_triggers(wire)
        return cover(wire)
    for name in {one.table for one in registry.triggers}:
        registry.drop_triggers(wire, name)
    ours = wire.rows(
        "SELECT TABLE_NAME FROM information_schema.TABLES"
        " WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME LIKE '\\_tb\\_%'"
    )
    # Killed in between, it can be done again: the mark of the protection goes first, what numbers the logs last.
    for name in sorted((name for (name,) in ours), key=lambda name: (name != META, name == TABLES)):
        wire.run(f"DROP TABLE IF EXISTS {quoted(name)}")
    return cover(wire)


def cover(wire: Wire, reasons: dict[str, str] | None = None) -> Cover:
    registry = read(wire)
    why = _reasons(wire, registry.schema) | (reasons or {})
    protected: list[str] = []
    unprotected: list[tuple[str, str]] = []
    for name in registry.schema.shapes:
        trouble = registry.trouble_with(name) if registry.identity else "the database is not protected"
        if not trouble and registry.entries[registry.numbers[name]].captured:
            protected.append(name)
        else:
            unprotected.append((name, why.get(name) or trouble or _NOT_ASKED))
    unprotected += [(name, _LIKE_OURS) for name in strangers(wire)]
    return Cover("", tuple(protected), tuple(unprotected), tuple(_says(wire, registry)))


def _says(wire: Wire, registry: LogRegistry) -> list[str]:
    says = [
        "INSERT, REPLACE, UPDATE, DELETE and LOAD DATA are captured, with the rows that foreign keys change along.",
        "CREATE, ALTER, DROP and RENAME TABLE, CREATE and DROP INDEX can be taken back; each is an effect of its own, "
        "outside of any transaction. TRUNCATE is made as a DELETE.",
        "Other definitions commit by themselves, so they are refused.",
        "The next AUTO_INCREMENT value and sequences are not put back.",
    ]
    if registry.identity:
        says.append("A change of a table that is not protected is refused, by a trigger on it.")
        says.append(
            "After altering the columns of a protected table, or making a new one, run `takeback sql protect` "
            "afterwards; until then what could change that table is refused."
        )
    fired = [name for name in registry.schema.shapes if registry.app_triggers(name)]
    if fired:
        says.append(
            f"Triggers of your own fire again while an undo changes their tables: {', '.join(fired)}."
        )
    own = wire.one("SELECT DATABASE()")
    systems = ("information_schema", "performance_schema", "sys")
    databases = [name for (name,) in wire.rows("SHOW DATABASES") if name != own]
    if others := [name for name in databases if name.lower() not in systems]:
        says.append(
            f"This account sees other databases too ({', '.join(others[:5])}): what a view, a routine or a trigger "
            "changes there is not captured. Better is an account with rights for this database only."
        )
    return says


def _refuse_unknown(schema: Schema, tables: Sequence[str]) -> None:
    for name in tables:
        if name not in schema.shapes:
            raise Misuse(f"There is no table {name!r} in the database.", hint="Write it as SHOW TABLES does.")


def _wanted(registry: LogRegistry, tables: Sequence[str]) -> set[str]:
    """All, or those named with those whose rows go with theirs, and what was protected before."""
    if not tables:
        return set(registry.schema.shapes)
    wanted = set(tables) | set(registry.walked())
    for name in tuple(wanted):
        wanted |= reached(name, registry.schema.links)
    return wanted


def _reasons(wire: Wire, schema: Schema) -> dict[str, str]:
    """Tables that cannot be protected, and why."""
    found: dict[str, str] = {}
    out = cascading_out(wire)
    for name, shape in schema.shapes.items():
        if shape.engine.lower() != "innodb":
            found[name] = (
                f"{shape.engine or 'its engine'} has no transactions: a change of it cannot be rolled back"
            )
        elif shape.kind != "BASE TABLE":
            found[name] = f"it is a {shape.kind.lower()} table, which keeps rows of its own"
        elif _refers_by_computed(schema, name):
            found[name] = "a foreign key of it is on a computed column"
        elif name in out:
            found[name] = f"its foreign keys change rows in another database ({out[name]})"
    _with_parents(schema, set(schema.shapes), found)
    return found


def _refers_by_computed(schema: Schema, name: str) -> bool:
    computed = {column.name for column in schema.shapes[name].columns if column.generated}
    return any(
        computed.intersection(link.columns if link.child == name else link.refers)
        for link in schema.links
        if name in (link.child, link.parent)
    )


def _with_parents(schema: Schema, wanted: set[str], why: dict[str, str]) -> None:
    """A table cannot be protected if rows that go with its rows are not."""
    for name in schema.shapes:
        lost = sorted(child for child in reached(name, schema.links) if child not in wanted or child in why)
        if lost and name not in why:
            why[name] = f"rows of {lost[0]} go with its rows, and {lost[0]} is not protected"


def _give_log(wire: Wire, registry: LogRegistry, name: str) -> str:
    """Why it cannot be; "" if the table has its log."""
    n = _give_number(wire, registry, name, captured=True)
    try:
        wire.run(log_table(LoggedTable(n, registry.schema.shapes[name])))
    except driver().Error as error:
        wire.run(f"DELETE FROM {TABLES} WHERE n = {n}")
        return f"no log could be made for it ({error.args[1] if len(error.args) > 1 else error})"
    return ""


def _give_number(wire: Wire, registry: LogRegistry, name: str, captured: bool) -> int:
    """The one it has, if it still is the same table; else a new one: what was logged of the old stays readable."""
    shape = registry.schema.shapes[name]
    has = registry.entries.get(registry.numbers.get(name, 0))
    if has and has.captured == captured and (not captured or has.shape == fingerprint(shape)):
        return has.n
    registry.drop_triggers(wire, name)
    for entry in sorted(registry.entries.values(), reverse=True):
        free = entry.n not in registry.numbers.values()
        if free and entry.name == name and entry.captured == captured and entry.shape == fingerprint(shape):
            registry.numbers[name] = entry.n
            return entry.n
    wire.run(
        f"INSERT INTO {TABLES} (name, shape, described, captured) VALUES ({wire.text(name)},"
        f" '{fingerprint(shape)}', {wire.text(json.dumps(shape))}, {int(captured)})"
    )
    n = int(wire.one("SELECT LAST_INSERT_ID()"))
    registry.entries[n] = RegisteredTable(n, name, fingerprint(shape), captured, shape)
    registry.numbers[name] = n
    return n


def keep_up(wire: Wire) -> None:
    """A table that is new gets its log, and one that was captured and is another now gets another."""
    registry = read(wire)
    why = _reasons(wire, registry.schema)
    for name in registry.schema.shapes:
        has = registry.entries.get(registry.numbers.get(name, 0))
        wanted = has is None or (has.captured and registry.trouble_with(name))
        if wanted and (name in why or _give_log(wire, registry, name)):
            _give_number(wire, registry, name, captured=False)
    renew_triggers(wire)


def renew_triggers(wire: Wire) -> None:
    """Those that are missing or not as they must be."""
    before = read(wire)
    numbers = dict(before.numbers)
    for entry in sorted(before.entries.values()):
        if entry.name in before.schema.shapes and entry.name not in before.numbers:
            if not entry.captured or entry.shape == fingerprint(before.schema.shapes[entry.name]):
                numbers[entry.name] = entry.n
    registry = before._replace(numbers=numbers)
    for name in registry.schema.shapes:
        if not registry.trouble_with(name):
            continue
        registry.drop_triggers(wire, name)
        for statement in registry.wanted_triggers(name).values():
            _create_trigger(wire, statement)


def _create_trigger(wire: Wire, statement: str) -> None:
    try:
        wire.run(statement)
    except driver().Error as error:
        if code_of(error) != _BINLOG_TRUST:
            raise
        raise ResourceUnreachable(
            "The server lets only administrators make triggers while it writes a binary log.",
            hint="Let one set log_bin_trust_function_creators=1, or protect with an account that has SUPER.",
        ) from error
