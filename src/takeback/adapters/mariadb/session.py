"""A connection on which whatever is changed belongs to an effect."""

from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from takeback.adapters.database import (
    PREPARED,
    Reviewed,
    Rows,
    first_words,
    most_of,
    refuse_too_many,
    summary,
)
from takeback.adapters.mariadb import markers
from takeback.adapters.mariadb.ddl import change, rename
from takeback.adapters.mariadb.ddl.alter import UntriedAlter
from takeback.adapters.mariadb.ddl.rename import Moves
from takeback.adapters.mariadb.logs import GATE, reached
from takeback.adapters.mariadb.net import Numbers, cancels_out, count, counted, recording
from takeback.adapters.mariadb.net import asked as asked_numbers
from takeback.adapters.mariadb.registry import LogRegistry, read, refuse_reaching, refuse_unprotected
from takeback.adapters.mariadb.row_report import changes_so_far
from takeback.adapters.mariadb.statements import (
    TRUNCATE,
    WRITES,
    AskedDefinition,
    asked,
    fit_many,
    misfits,
    refuse_elsewhere,
    refuse_own,
    refuse_unfit,
    unfit_definition,
    written_out,
)
from takeback.adapters.mariadb.undo import touched
from takeback.adapters.mariadb.wire import (
    COMMITS_IMPLICITLY,
    DUPLICATE,
    OVERDUE,
    READ_ONLY_TRANSACTION,
    SIGNALLED,
    Wire,
    code_of,
    driver,
    is_lost,
    quoted,
    told,
    words,
)
from takeback.errors import InDoubt, KeyReused, Misuse, NoRemedy, Refused, ResourceUnreachable, StoreBusy
from takeback.model.database import Database, Holder, busy
from takeback.model.effect import Effect

# Whether anybody has defined anything on the server: cheaper to ask than what.
_STATEMENTS = (
    "alter_table", "create_table", "drop_table", "rename_table", "create_trigger", "drop_trigger", "create_index",
    "drop_index", "create_db", "drop_db", "alter_db", "truncate",
)  # fmt: skip
DDL_COUNTERS = "SHOW GLOBAL STATUS WHERE Variable_name IN ({})".format(
    ", ".join(f"'Com_{name}'" for name in _STATEMENTS)
)


class MariaSession:
    def __init__(self, wire: Wire, patience: int, holder: Callable[[], Holder]) -> None:
        """`patience`: seconds to wait for what takeback holds; `holder` finds out who has what it waited for."""
        self._wire = wire
        self._patience = patience
        self._holder = holder
        self._limited = False
        with words(wire.database):
            # Asked before looking: what is counted later may have been missed.
            self._seen = wire.rows(DDL_COUNTERS)
            self._known(read(wire))
            refuse_unprotected(self._registry)
            self._name: str = wire.one("SELECT DATABASE()")
            self._others = frozenset(name for (name,) in wire.rows("SHOW DATABASES") if name != self._name)
            self.connection_id = int(wire.one("SELECT CONNECTION_ID()"))
        self.database: Database = wire.database._replace(identity=self._registry.identity)
        self.answers: tuple[Rows, ...] = ()
        self._effect = ""
        self._op = 0
        self._most = 0
        self._made: list[str] = []  # statements of the transaction that is open
        self._plan: change.Plan | UntriedAlter | None = None

    def summary(self, statement: str, parameters: Any) -> str:
        return summary(statement)

    def read(self, statement: str, parameters: Any) -> Rows | None:
        if asked(statement):
            return None
        refuse_unfit(statement)
        if first_words(statement) in WRITES:
            return None
        wire = self._wire
        with words(self.database):
            markers.start_reading(wire)
        try:
            return self._run(statement, parameters, False)
        except (driver().Error, OSError) as error:
            if code_of(error) in (READ_ONLY_TRANSACTION, COMMITS_IMPLICITLY):
                return None
            raise told(error, self.database) from error
        finally:
            markers.end_reading(wire)

    def begin(self, effect: Effect) -> None:
        if self._effect:
            raise Misuse(
                "There is an effect open on this connection already.", hint="Commit it, or roll it back."
            )
        self._effect, self._made, self._plan = effect.id, [], None
        self._most = most_of(effect)
        try:
            self._op, held = markers.begin(self._wire, effect.id, effect.undoes)
            # Else as long as any client: what an application holds ends by itself.
            limit = self._patience if held else 0
            if limit or self._limited:
                markers.limit(self._wire, limit)
            self._limited = held
        except StoreBusy:
            self.rollback()
            raise
        except (driver().Error, OSError) as error:
            self.rollback()
            if code_of(error) == DUPLICATE:
                said = "The database has the marker of this effect already: it was made before."
                raise KeyReused(said) from error
            raise told(error, self.database) from error

    def execute(self, statement: str, parameters: Any, many: bool = False) -> Rows:
        if self._plan:
            raise change.refuse_mixed()
        wanted = asked(statement)
        if not wanted:
            self._made.append(statement)
            refuse_unfit(statement)
        refuse_own(statement)
        refuse_elsewhere(statement, self._others)
        if self._uncovered:
            with words(self.database):
                self._known(read(self._wire))  # someone may have protected it in between
                refuse_reaching(self._wire, self._registry, [statement])
        if wanted:
            return self._define(wanted, parameters)
        try:
            return self._run(statement, parameters, many)
        except (driver().Error, OSError) as error:
            self._refused(error)

    def _define(self, wanted: AskedDefinition, parameters: Any) -> Rows:
        """TRUNCATE is made as a DELETE, which is part of the transaction. Others are made at the end, alone."""
        with words(self.database):
            registry = read(self._wire)
        if wanted.what != TRUNCATE:
            if self._made:
                raise change.refuse_mixed()
            if parameters:
                with self._wire.connection.cursor() as cursor:
                    wanted = wanted._replace(tail=written_out(cursor, wanted.tail, parameters))
            self._plan = change.planned(registry, wanted, self._effect)
            return Rows(rowcount=0)
        (name,) = wanted.names
        rename.refuse_referred(registry, wanted.names)
        if any(one.event.endswith("DELETE") for one in registry.app_triggers(name)):
            raise NoRemedy(
                f"TRUNCATE of {name} would be made as a DELETE, and the triggers of the table would fire.",
                hint="Nothing was changed. Use DELETE, if that is meant.",
            )
        return self.execute(f"DELETE FROM {quoted(name)}", None)

    def _refused(self, error: Exception) -> NoReturn:
        says = str(error.args[1]) if len(error.args) > 1 else ""
        if code_of(error) == OVERDUE:
            raise busy(self._holder()) from error
        if code_of(error) == COMMITS_IMPLICITLY:
            raise unfit_definition("That") from error
        if code_of(error) == SIGNALLED and says.startswith("takeback: "):
            raise NoRemedy(
                f"{says.removeprefix('takeback: ').capitalize()}.",
                hint="`takeback sql doctor URL` says which tables are protected.",
            ) from error
        raise told(error, self.database) from error

    def _run(self, statement: str, parameters: Any, many: bool) -> Rows:
        with self._wire.connection.cursor() as cursor:
            if many:
                rows = fit_many(statement, parameters)
                self._made += [statement] if len(rows) > 1 else []  # it may write to a row more than once
                with misfits():
                    count = cursor.executemany(statement, rows)
                return Rows(rowcount=count or 0)
            cursor.execute(written_out(cursor, statement, parameters))
            found = Rows(rowcount=cursor.rowcount)
            while True:
                if cursor.description:
                    columns = tuple(str(one[0]) for one in cursor.description)
                    found = Rows(tuple(cursor.fetchall()), columns, cursor.rowcount)
                if not cursor.nextset():
                    return found

    def commit(self) -> dict[str, Any] | None:
        wire, effect = self._wire, self._effect
        if isinstance(self._plan, Moves) and not self._plan.tables:
            self._plan = None  # IF EXISTS, IF NOT EXISTS
        if self._plan:
            return self._commit_plan(self._plan)
        receipt = self._receipt((f"XA END {markers.xid(effect)}",))
        if receipt is None:
            return None
        try:
            wire.together([f"XA COMMIT {markers.xid(effect)} ONE PHASE", markers.letting_go(wire, effect)])
        except (driver().Error, OSError) as error:
            if is_lost(error):
                self._end()
                raise InDoubt(
                    "The connection was lost before the database said whether it has committed.",
                    hint="It is found out by looking for the marker.",
                ) from error
            self.rollback()
            raise told(error, self.database) from error
        self._effect, self._op = "", 0
        return receipt

    def _receipt(self, then: Sequence[str] = ()) -> dict[str, Any] | None:
        """Everything was captured, and counted. None: nothing was changed, and it is rolled back."""
        wire = self._wire
        try:
            found = self._counted()
            if not found or cancels_out(wire, self._registry, self._op, found):
                self.rollback()
                return None
            receipt, statements = recording(wire, self._registry, self._op, found, once=len(self._made) == 1)
            refuse_too_many(self._most, receipt["tables"])
            wire.together([*statements, f"SET {GATE} = NULL", *then])
            return receipt
        except (driver().Error, OSError) as error:
            self.rollback()
            raise told(error, self.database) from error
        except Refused:
            self.rollback()
            raise

    def review(self) -> Reviewed:
        if self._plan:
            self.rollback()
            raise NoRemedy(
                "A definition cannot be shown before it is made: MariaDB commits it by itself.",
                hint="Nothing was changed. Made at once (without --dry-run, --hold or --ask), it can be taken back.",
            )
        receipt = self._receipt()
        if receipt is None:
            return Reviewed(None)
        with words(self.database):
            parts, _ = touched(self._wire, self._registry, self._op)
        return Reviewed(receipt, changes_so_far(self._wire, parts, self._op), PREPARED)

    def hold(self, effect: Effect, seconds: float) -> None:
        """Prepared: the server holds it until someone decides, and this session is free."""
        with words(self.database):
            markers.prepare(self._wire, effect.id)
            self.connection_id = int(self._wire.one("SELECT CONNECTION_ID()"))
        self._effect, self._op = "", 0

    def _commit_plan(self, plan: change.Plan | UntriedAlter) -> dict[str, Any]:
        wire, effect = self._wire, self._effect
        markers.unmark(wire)
        markers.roll_back(wire, effect)
        try:
            return change.carry_out(wire, effect, "", plan)
        except (driver().Error, OSError) as error:
            why = "The connection was lost before the database said whether it has made the definition."
            if code_of(error) == OVERDUE:
                why = str(busy(self._holder()))
            raise InDoubt(why, hint="It is found out by looking at the tables.") from error
        finally:
            wire.attempt("SET SESSION foreign_key_checks = DEFAULT")
            self._end()

    def _counted(self) -> dict[str, Numbers]:
        """Check that every change was captured: the gate was open, and every table had its triggers. To change the
        triggers of a table that this transaction has touched, others must wait for it."""
        wire = self._wire
        ((op, name, *pending),), seen, numbers = wire.together(
            [
                f"SELECT {', '.join([GATE, 'DATABASE()', *self._pending])}",
                DDL_COUNTERS,
                asked_numbers(self._registry, self._op),
            ]
        )
        if op != self._op or name != self._name:
            raise NoRemedy(
                "The capture was switched off while the effect was being made, so it was rolled back.",
                hint="Statements must leave @takeback_op and the database of the session alone.",
            )
        if seen != self._seen:
            self._known(read(wire))
            refuse_unprotected(self._registry)
            refuse_reaching(wire, self._registry, self._made)
            self._seen = seen
        elif not any(one is not None for one in pending):
            return counted(self._registry, numbers)
        self._drop_what_stayed()
        return count(wire, self._registry, self._op)

    def _known(self, registry: LogRegistry) -> None:
        self._registry = registry
        self._uncovered = bool(registry.troubles())
        walked = registry.walked()
        # The variables of walks that are not over, and the logs where they have put something.
        self._pending: dict[str, list[str]] = {}
        for name, one in walked.items():
            if children := reached(name, registry.schema.links):
                logs = [walked[child].log for child in children if child in walked]
                self._pending[f"@takeback_d{one.n}"] = logs

    def _drop_what_stayed(self) -> None:
        """Drop log entries for cascaded rows that were not deleted after all (DELETE IGNORE)."""
        for variable, logs in self._pending.items():
            pending = self._wire.one(f"SELECT {variable}")
            if pending is None:
                continue
            for log in logs:
                self._wire.run(f"DELETE FROM {log} WHERE tb_op = {self._op} AND tb_c = {int(pending)}")
            self._wire.run(f"SET {variable} = NULL")

    def rollback(self) -> None:
        if self._effect:
            self._wire.attempt(f"SET {GATE} = NULL")
            markers.roll_back(self._wire, self._effect)
            self._end()

    def _end(self) -> None:
        effect, self._effect, self._op = self._effect, "", 0
        self._wire.attempt(markers.letting_go(self._wire, effect))

    def close(self) -> None:
        self.rollback()
        self._wire.close()


def refuse_other(database: Database, identity: str) -> None:
    """An undo must not go to another database of the same name."""
    if database.identity and identity != database.identity:
        raise ResourceUnreachable(
            "The database at this address is not the one that the effect changed, or is no longer protected.",
            hint="Check the address, and whether the database was created again or restored.",
        )
