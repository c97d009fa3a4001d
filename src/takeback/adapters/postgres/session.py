"""One connection on which whatever is changed belongs to an effect."""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from itertools import islice
from typing import Any

from takeback.adapters.database import (
    OPEN,
    PREPARED,
    Reviewed,
    Rows,
    most_of,
    refuse_too_many,
    summary,
)
from takeback.adapters.postgres import attachment, markers, transactions
from takeback.adapters.postgres.connection import Connection, Question, driver, translated, understood, unfit
from takeback.adapters.postgres.counts import (
    ABOUT_WRITTEN,
    Counted,
    Netting,
    WrittenTally,
    as_written,
    counted,
    refuse_schema,
)
from takeback.adapters.postgres.ddl import dropped_tables, trial
from takeback.adapters.postgres.ddl.definitions import steps_of
from takeback.adapters.postgres.ddl.dropped_tables import TableMove
from takeback.adapters.postgres.ddl.trial import MAY_CHANGE_SCHEMA, run_it
from takeback.adapters.postgres.install import hold
from takeback.adapters.postgres.logs import is_wide
from takeback.adapters.postgres.row_report import effect_rows
from takeback.adapters.postgres.statements import WRITES, first_words, refuse_impossible, split
from takeback.adapters.postgres.unwind import one_way
from takeback.errors import InDoubt, Misuse, NoRemedy, StatementFailed
from takeback.model.database import Database
from takeback.model.effect import Effect

_OPEN = "select no, set_config('takeback.op', no::text, true) from takeback.open(%s, %s, %s, %s, %s, %s) no"
# Each transaction that writes has a number of its own at this point. Raise an error, so that the commit sent with it is
# not carried out.
_NOTHING_WRITTEN = "select 1 / (pg_current_xact_id_if_assigned() is null)::int"
SHOWN = 1_001  # rows of one that waits, at most


def open_op(connection: Connection, effect: Effect) -> int:
    """The marker, first in the transaction; what is changed from now on belongs to it."""
    return connection.ask(*_opening(effect))[0][0]


def _opening(effect: Effect) -> Question:
    summary, undoes = effect.change.summary, effect.undoes or None
    return Question(_OPEN, [effect.id, effect.run, effect.agent, summary, undoes, effect.change.undo.partial])


def close_op(op: int, logs: Sequence[int], told: dict[str, Any], moves: Sequence[TableMove] = ()) -> Question:
    """The receipt is stored with the marker, to be found after a crash."""
    values = [op, list(logs), json.dumps(told), json.dumps(dropped_tables.to_json(moves))]
    return Question("select takeback.close(%s, %s, %s, %s)", values)


class PostgresSession:
    answers: tuple[Rows, ...] = ()

    def __init__(
        self,
        connection: Connection,
        database: Database,
        again: Callable[[], Connection],
        held: dict[str, "PostgresSession"],
    ) -> None:
        """`held`: which session holds which effect, for a later decision."""
        self.database = database
        self._again = again
        self._connection = connection
        self._op = 0
        self._effect = ""
        self._most = 0
        self._tally: WrittenTally | None = None
        self._schema = False  # it may have been changed
        self._moves: list[TableMove] = []
        self._held = held
        self._attached: Connection | None = None  # by which the triggers are kept attached
        self._netting = Netting()
        self._statements = 0

    def read(self, statement: str, parameters: Any) -> Rows | None:
        statements = _possible(statement)
        if any(WRITES.intersection(first_words(one, 1)) for one in statements):
            return None
        self._begin("begin read only")
        try:
            rows = self._all(statements, parameters)
            if not self._read_only():
                self._connection.give_up()
                return None
        except driver().errors.ReadOnlySqlTransaction:
            self._connection.give_up()
            return None
        except driver().Error as error:
            self._connection.give_up()
            raise translated(error) from None
        except BaseException:
            self._connection.give_up()
            raise
        return rows

    def _read_only(self) -> bool:
        """Commit if nothing was written; in one trip. PostgreSQL 15 and older let large objects be written in a
        transaction that only reads."""
        try:
            self._connection.ask_all([Question(_NOTHING_WRITTEN), Question("commit")])
        except driver().errors.DivisionByZero:
            return False
        return True

    def _begin(self, how: str) -> None:
        """Open the connection again if the server has closed it: nothing was begun on it."""
        try:
            self._connection.run(how)
        except driver().OperationalError:
            self._connection.close()
            self._connection = self._again()
            with understood():
                self._connection.run(how)

    def summary(self, statement: str, parameters: Any) -> str:
        return summary(statement)

    def begin(self, effect: Effect) -> None:
        with understood():
            self._begin("begin")
            self._attach()
            self._moves = []
            self._schema = False
            self._statements = 0
            try:
                before, opened = self._connection.ask_all([ABOUT_WRITTEN, _opening(effect)])
                self._tally = WrittenTally(self._connection, as_written(before))
                self._op, self._effect = opened[0][0], effect.id
                self._most = most_of(effect)
            except BaseException:
                self.rollback()
                raise

    def _attach(self) -> None:
        """Once for a connection: what only reads needs no triggers."""
        if self._attached is self._connection:
            return
        self._connection.run("rollback")
        hold(self._connection)
        self._attached = self._connection
        self._connection.run("begin")

    def execute(self, statement: str, parameters: Any, many: bool = False) -> Rows:
        statements = _possible(statement)
        try:
            if not many:
                return self._all(statements, parameters)
            if len(statements) != 1:
                raise Misuse("executemany takes one statement.", hint="Nothing was changed.")
            self._statements += len(parameters)
            with self._connection.cursor() as cursor, _fitting():
                cursor.executemany(statements[0].encode(), list(parameters))
                return Rows(rowcount=cursor.rowcount)
        except driver().Error as error:
            raise translated(error) from None
        finally:
            self._refuse_left()

    def _all(self, statements: list[str], parameters: Any) -> Rows:
        """One at a time, so that none of them can bring along a COMMIT; the answer is that of the last."""
        given = parameters if parameters else None
        if given is not None and len(statements) > 1:
            raise Misuse(
                "Parameters belong to one statement, and here are several.", hint="Give them one by one."
            )
        rows = Rows()
        self._statements += len(statements)
        for one in statements:
            words = first_words(one)
            tally = self._tally
            if not self._op or tally is None or not MAY_CHANGE_SCHEMA.intersection(words[:1]):
                rows = self._one(one, given)
            elif words[:2] == ["DROP", "TABLE"] and self._dropped(one, tally):
                rows = Rows()
            else:
                refuse_schema(self._connection, tally.before)
                self._schema = True
                self._netting.forget()
                rows = run_it(self._connection, self._op, words, partial(self._one, one, given), tally)
        return rows

    def _dropped(self, statement: str, tally: WrittenTally) -> bool:
        """Put aside instead. False: it is another statement, or other things hang on the table."""
        refuse_schema(self._connection, tally.before)
        start = tally.mark()
        moves = dropped_tables.drop(self._connection, statement, self._op)
        tally.forget_since(start)
        if moves is None:
            return False
        step = self._connection.ask("select nextval('takeback.step')")[0][0]
        self._moves += [move._replace(step=step) for move in moves]
        return True

    def _one(self, statement: str, parameters: Any) -> Rows:
        with self._connection.cursor() as cursor, _fitting():
            if parameters is None:
                # In a pipeline the server takes one statement in one message, and refuses a text with more.
                with self._connection.pipeline():
                    cursor.execute(statement.encode())
            else:
                cursor.execute(statement.encode(), parameters)
            if cursor.description is None:
                return Rows(rowcount=cursor.rowcount)
            columns = tuple(column.name for column in cursor.description)
            return Rows(tuple(cursor.fetchall()), columns, cursor.rowcount)

    def _refuse_left(self) -> None:
        """Are we still where we began?"""
        status = self._connection.info.transaction_status
        if status == driver().pq.TransactionStatus.IDLE:
            self._op = 0
            raise StatementFailed(
                "The statement ended the transaction of its effect.",
                hint="`takeback show` says what became of it.",
            )

    def commit(self) -> dict[str, Any] | None:
        if (found := self._counted()) is None:
            return None
        told = self._close_op(found)
        commit(self._connection)
        self._op = 0
        return told

    def _counted(self) -> Counted | None:
        """Nothing is left of the transaction if not all of it was captured, or if it changed nothing."""
        try:
            assert self._tally
            found = counted(self._connection, self._op, self._tally.before)
        except driver().Error as error:
            self.rollback()
            raise translated(error) from None
        except BaseException as error:
            self.rollback()
            if isinstance(error, NoRemedy):
                self._attached = None  # looked at again next time
            raise
        ours = "select 1 from takeback.ddl where op = %s limit 1"
        if found.logs or self._moves or (self._schema and self._connection.ask(ours, [self._op])):
            return found
        self.rollback()
        return None

    def _close_op(self, found: Counted) -> dict[str, Any]:
        with understood():
            found = self._netting.netted(self._connection, self._op, found, self._statements)
        told: dict[str, Any] = {"tables": found.tables, "schema": [move.sentence for move in self._moves]}
        try:
            refuse_too_many(self._most, found.tables)
            moves = list(self._moves)
            if self._schema:
                told["schema"] += trial.told(self._connection, self._op)
                moves += trial.settle(self._connection, self._op)
            moves = dropped_tables.marked(self._connection, moves)
            self._refuse_one_way(moves)
            self._connection.run(*close_op(self._op, found.logs, told, moves))
        except driver().Error as error:
            self.rollback()
            raise translated(error) from None
        return told

    def _refuse_one_way(self, moves: list[TableMove]) -> None:
        """Each change of the schema was seen to have a way back; several must have one together."""
        if not self._schema and not self._moves:
            return
        op = markers.find(self._connection, self._effect)
        if op is None or len(moves) + len(steps_of(self._connection, op.no)) < 2:
            return
        if why := one_way(self._connection, op, moves):
            self.rollback()
            raise NoRemedy(
                f"Together these statements cannot be taken back: {why}.",
                hint="They were rolled back; nothing was changed. Send them one by one, each as an effect of its own.",
            )

    # -- for a person to decide

    def review(self) -> Reviewed:
        if (found := self._counted()) is None:
            return Reviewed(None)
        told = self._close_op(found)
        with understood():
            wide = is_wide(self._connection, self._op)
            found_rows = effect_rows(self._connection, self._op, found.logs, wide=wide)
            rows = tuple(islice(found_rows, SHOWN))
            found_rows.close()
            how = PREPARED if transactions.preparable(self._connection) else OPEN
        return Reviewed(told, rows, how)

    def hold(self, effect: Effect, seconds: float) -> None:
        with understood():
            if effect.phase.reviewed and effect.phase.reviewed.how == PREPARED:
                transactions.prepare(self._connection, effect.id)
                self._op = 0
                return
            limit = max(1, round(seconds * 1000))
            self._connection.run(f"set local idle_in_transaction_session_timeout = {limit}")
            transactions.name_session(self._connection, effect.id)
            self._held[effect.id] = self

    def keep(self, effect: str) -> None:
        """Commit what this session holds."""
        self._held.pop(effect, None)
        try:
            self._connection.run("select 1")
        except driver().Error:
            self._connection.close()
            raise transactions.gone(effect) from None
        commit(self._connection)
        self._op = 0

    def holds(self, witness: Connection) -> bool:
        """Has the server not ended it?"""
        there = "select 1 from pg_stat_activity where pid = %s and state = 'idle in transaction'"
        return bool(witness.ask(there, [self._connection.info.backend_pid]))

    def rollback(self) -> None:
        self._connection.give_up()
        self._op = 0
        self._let_go()

    def _let_go(self) -> None:
        for effect in [effect for effect, session in self._held.items() if session is self]:
            del self._held[effect]

    def close(self) -> None:
        self._let_go()
        if self._attached is self._connection and not self._connection.closed:
            with suppress(driver().Error):  # what is left attached is removed by the next command
                self._connection.give_up()
                attachment.let_go(self._connection)
        self._connection.close()


def _possible(statement: str) -> list[str]:
    """The statements in it, if they can be part of an effect."""
    statements = split(statement)
    for one in statements:
        refuse_impossible(one)
    return statements


@contextmanager
def _fitting() -> Iterator[None]:
    """The driver reports values that cannot be parameters, or text that cannot be sent, with errors of Python."""
    try:
        yield
    except (TypeError, ValueError, OverflowError) as error:
        raise unfit(error) from None


def commit(connection: Connection) -> None:
    try:
        connection.run("commit")
    except driver().Error as error:
        if error.sqlstate and error.sqlstate[:2] not in ("08", "57"):
            connection.give_up()  # it said no: nothing happened
            raise translated(error) from None
        connection.close()
        raise InDoubt(
            "The connection was lost while the transaction was being committed.",
            hint="Whether it happened is found out by asking the database again.",
        ) from None
