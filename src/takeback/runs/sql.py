"""A database as a run sees it: what is read is read, what is changed is an effect, perhaps held."""

import hashlib
import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

from takeback.adapters.database import MOST, OPEN, Databases, DatabaseSession, Rows, first_words
from takeback.engine import review, transaction
from takeback.engine.guards import SQL, policy_says
from takeback.engine.held import discard_held
from takeback.engine.parts import adapter_of, named
from takeback.engine.stop import refuse_stopped
from takeback.engine.write import Terms
from takeback.errors import InDoubt, Misuse, RowsHeld, StatementFailed, TakebackError
from takeback.model.change import Change
from takeback.model.database import Database, resource_of, to_json
from takeback.model.effect import Effect, State
from takeback.model.ids import short
from takeback.model.ruling import NO_RULE, Known, PolicyAnswer
from takeback.runs.change import next_key, took_hold
from takeback.runs.core import RunCore
from takeback.runs.verbs import renamed
from takeback.runs.workflows.durable import in_step, once
from takeback.runs.workflows.function import digest_of
from takeback.runs.workflows.replay import STATEMENT, Replay, WorkflowStep
from takeback.storage.protocols import Query

STATEMENTS = "sql"
_LEADS_BACK = ("ROLLBACK TO", "ROLLBACK WORK")


class SqlResult(NamedTuple):
    """The answer to a statement, and its effect; None if it changed nothing."""

    rows: tuple[tuple[Any, ...], ...]
    columns: tuple[str, ...]
    rowcount: int
    effect: Effect | None

    def dicts(self) -> list[dict[str, Any]]:
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]


def open_sql(core: RunCore, address: str, max_rows: int | None, hold: bool, limit: float) -> "Sql":
    if hold:
        core.refuse_in_workflow("A transaction that waits for a person", "Ask first: run.wait.")
    core.refuse_ended()
    if max_rows is None:
        max_rows = core.settings.max_rows
    elif type(max_rows) is not int or max_rows < 0:
        raise Misuse(
            f"{max_rows!r} is no number of rows.", hint="For example max_rows=10_000_000; 0: no limit."
        )
    with core.lock:
        session = _connected(core, address)
        opened = ReviewedSql(core, session, max_rows, limit) if hold else Sql(core, session, max_rows)
        core.databases.append(opened)
        return opened


def _connected(core: RunCore, address: str) -> DatabaseSession:
    if not isinstance(address, str) or not address:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise Misuse("A database is given by its address.", hint='For example run.sql("postgresql:///app").')
    database = core.parts.named(address)
    adapter = adapter_of(core.parts, database.engine)
    if not isinstance(adapter, Databases):
        raise Misuse(f"{database.engine} is no database.", hint="Give the address of one.")
    return adapter.connect(database)


class Sql:
    """Each statement that changes something, or each `transaction()`, is one effect."""

    _holds = False  # a person applies what it makes

    def __init__(self, core: RunCore, session: DatabaseSession, most: int) -> None:
        """`most`: rows that an effect may change; 0: any number."""
        self._core = core
        self._session = session
        self._most = most
        self._effect: Effect | None = None  # of the transaction that is open
        self._thread = 0  # which has it open
        self._failed = ""  # what went wrong in it
        self._is_closed = False
        self._asked = NO_RULE  # of the policy, for what a person will apply

    def _refuse_closed(self) -> None:
        if self._is_closed:
            raise Misuse("This database handle is closed.", hint="Open it again with run.sql(…).")

    def _refuse_undecided(self) -> None:
        """While a transaction waits for a person in this session, no other statement can run."""

    @property
    def database(self) -> Database:
        return self._session.database

    @property
    def in_transaction(self) -> bool:
        return self._effect is not None

    @property
    def in_transaction_here(self) -> bool:
        """Whether this thread has a transaction open here: waiting for its end would never end."""
        return self.in_transaction and self._thread == threading.get_ident()

    def execute(
        self,
        statement: str,
        parameters: Any = (),
        *,
        key: str = "",
        needs: Sequence[str] = (),
    ) -> SqlResult:
        """Run a statement. Parameters as the driver takes them: `%s` for PostgreSQL and MariaDB, `?` for SQLite; they
        are not recorded."""
        return self._execute(statement, parameters, False, key, needs)

    def executemany(
        self, statement: str, parameters: Sequence[Any], *, key: str = "", needs: Sequence[str] = ()
    ) -> SqlResult:
        """Run a statement once for each of these parameters, as one effect."""
        return self._execute(statement, parameters, True, key, needs)

    def _execute(
        self, statement: str, parameters: Any, many: bool, key: str, needs: Sequence[str]
    ) -> SqlResult:
        if not isinstance(statement, str) or not statement.strip():  # pyright: ignore[reportUnnecessaryIsInstance]
            raise Misuse(
                "There is no statement.", hint='For example db.execute("DELETE FROM t WHERE id = %s", [1]).'
            )
        with self._core.lock:
            self._core.refuse_ended()
            self._refuse_closed()
            self._refuse_undecided()
            if self._effect:
                return self._within(statement, parameters, many, self._effect)
            if not many and not key and (found := self._session.read(statement, parameters)) is not None:
                return _result(found, None)
            says = self._session.summary(statement, parameters)
            replay = self._core.replay
            if replay is None:
                return self._carry_out(says, statement, parameters, many, key, needs)
            asked = digest_of(resource_of(self.database), statement, repr(parameters), many, key)
            make = partial(self._carry_out, says, statement, parameters, many, key, needs)
            return _step(self._core, replay, says, asked, make)

    def _carry_out(
        self, says: str, statement: str, parameters: Any, many: bool, key: str, needs: Sequence[str]
    ) -> SqlResult:
        rows = Rows()
        digest = _digest(key, statement, parameters)
        with self._stretch(says, key, needs, digest, statement) as made:
            if not made.before:
                rows = self._session.execute(statement, parameters, many)
                self._judge(made.effect, statement, rows.rowcount)
        if not made.before and self._session.answers:
            rows = self._session.answers[-1]
        return _result(rows, made.effect if made.effect.state is not State.ABORTED else None)

    def _within(self, statement: str, parameters: Any, many: bool, effect: Effect) -> SqlResult:
        """All or none: after one that failed, only what goes back to a savepoint before it is of use."""
        if self._failed and first_words(statement, 2) not in _LEADS_BACK:
            raise _failed_before(self._failed)
        try:
            refuse_stopped(self._core.parts, self._core.agent, self._core.id)
            self._judge(effect, statement)
            rows = self._session.execute(statement, parameters, many)
            self._judge(effect, statement, rows.rowcount)
        except BaseException as error:
            self._failed = self._failed or str(error)
            raise
        self._failed = ""
        return _result(rows, effect)

    def _judge(self, effect: Effect, statement: str, rows: int | None = None) -> None:
        """A statement of a transaction, before it is made; and by the rows that it changed, while it can be rolled
        back."""
        found = rows if rows is None or rows >= 0 else None
        known = Known(statement=statement, rows=found)
        ruling = policy_says(self._core.parts, effect.run, effect.agent, effect.change, None, known)
        if ruling is not NO_RULE:
            from takeback.engine.ruling import refuse_denied, refuse_unheld

            refuse_denied(effect.change, ruling)
            if self._holds:
                self._asked = max(self._asked, ruling, key=lambda one: list(PolicyAnswer).index(one.answer))
            else:
                refuse_unheld(effect.change, ruling, SQL.name)

    @renamed(says="summary")
    @contextmanager
    def transaction(
        self, summary: str = "", *, key: str = "", needs: Sequence[str] = ()
    ) -> "Iterator[MadeTransaction]":
        """Several statements as one effect, all of them or none, also after an error that was swallowed. The
        block gets an object with `.effect`: done at the end, or aborted if nothing was changed."""
        with self._core.lock:
            self._core.refuse_ended()
            self._refuse_closed()
            self._refuse_undecided()
            if self._effect:
                raise Misuse(
                    "There is a transaction open on this database already.",
                    hint="One effect cannot be part of another; use a savepoint, or another `run.sql(…)`.",
                )
            if self._core.replay is not None:
                raise Misuse(
                    "A transaction cannot be a step of a workflow.",
                    hint="Nothing was changed. Use single statements, executemany, or run.call with an action.",
                )
            with self._stretch(summary or "transaction", key, needs, _digest(key, summary, ())) as made:
                if made.before:
                    raise Misuse(
                        f"The transaction with key {key!r} was made before.",
                        hint="Look at `tb.effects()` first, or give it another key.",
                    )
                self._effect, self._failed = made.effect, ""
                self._thread = threading.get_ident()
                try:
                    yield made
                    if self._failed:
                        raise _failed_before(self._failed)
                finally:
                    self._effect = None

    @contextmanager
    def _stretch(
        self, says: str, key: str, needs: Sequence[str], digest: str, statement: str = ""
    ) -> "Iterator[MadeTransaction]":
        """From the intent to the outcome. Until the commit a signal may stop it: then it is rolled back."""
        core = self._core
        args: dict[str, Any] = {"database": to_json(self.database)} | ({"digest": digest} if digest else {})
        if self._most:
            args[MOST] = self._most
        change = Change(self.database.engine, STATEMENTS, resource_of(self.database), says, args)
        step, asked = core.part_of or (0, "")
        terms = Terms(key or next_key(core, change), tuple(needs), agent=core.agent, step=step, asked=asked)
        known = Known(statement=statement)
        terms = terms._replace(held_back=core.uninterrupted, give_way=core.give_way, known=known)
        terms = terms._replace(asked_at=core.now(), patience=core.settings.approval_seconds * 1_000_000)
        with self._made(change, terms) as made:
            yield made

    @contextmanager
    def _made(self, change: Change, terms: Terms) -> "Iterator[MadeTransaction]":
        core = self._core
        made = MadeTransaction(transaction.begin(core.parts, core.lease, change, terms))
        if made.before:
            yield made
            return
        try:
            self._session.begin(made.effect)
            yield made
            with core.uninterrupted():
                receipt = self._session.commit()
        except InDoubt as error:
            with core.uninterrupted():
                made.effect = transaction.doubted(core.parts, core.lease, made.effect, error)
        except BaseException as error:
            # Not what the database said: that may quote somebody's row.
            said = f"It was rolled back ({type(error).__name__})."
            with core.uninterrupted():
                self._session.rollback()
                made.effect = transaction.give_up(core.parts, core.lease, made.effect, said)
            self._refuse_held(error)
            raise
        else:
            with core.uninterrupted():
                done = transaction.end(core.parts, core.lease, made.effect, receipt)
            made.effect = done or made.effect._replace(state=State.ABORTED)
            made.answers = tuple(_result(rows, made.effect) for rows in self._session.answers)
        if made.effect.state is State.DONE:
            took_hold(core, made.effect)

    def _refuse_held(self, error: BaseException) -> None:
        """The record of an error, after which there is no effect."""
        if isinstance(error, RowsHeld):
            raise named(self._core.parts, resource_of(self.database), error) from error
        if isinstance(error, TakebackError):
            error.effect = None

    def close(self) -> None:
        with self._core.lock:
            self._is_closed = True
            self._session.close()

    def __enter__(self) -> "Sql":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class MadeTransaction:
    """The outcome of a transaction; its effect is intended until it has ended."""

    def __init__(self, effect: Effect) -> None:
        self.effect = effect
        self.answers: tuple[SqlResult, ...] = ()  # of an engine that answers only at the end (Redis)
        # Made, or held, under this key; one that a rule lets wait has no record yet.
        self.before = effect.state is State.DONE or bool(effect.waits_for and effect.seq)


def _failed_before(why: str) -> StatementFailed:
    return StatementFailed(
        f"A statement of this transaction failed: {why}",
        hint="All of it is rolled back: nothing was changed.",
    )


def _result(rows: Rows, effect: Effect | None) -> SqlResult:
    return SqlResult(rows.rows, rows.columns, rows.rowcount, effect)


def _digest(key: str, statement: str, parameters: Any) -> str:
    """So that one key is not used for two things. Cut short, and with the key in it: it is no way to guess what the
    parameters were."""
    if not key:
        return ""
    return hashlib.sha256(repr((key, statement, parameters)).encode()).hexdigest()[:8]


LIMIT = 300.0  # seconds


class ReviewedSql(Sql):
    """Each statement that changes something, or each `transaction()`, is an effect that is held: `run.apply` commits
    it, `run.discard` drops it. It holds the locks of its rows until then."""

    _holds = True

    def __init__(self, core: RunCore, session: DatabaseSession, most: int, limit: float) -> None:
        super().__init__(core, session, most)
        reviewing = review.refuse_unshowable(session)
        if not limit > 0:
            session.close()
            raise Misuse("The limit is a number of seconds.", hint="For example limit=60.")
        self._reviewing = reviewing
        self._limit = limit
        self._open = ""  # the effect whose transaction this session holds

    def _refuse_undecided(self) -> None:
        if self._open and self._held(self._open):
            name = short(self._open)
            raise Misuse(
                f"Effect {name} is held in this session and waits for a decision.",
                hint=f'run.apply("{name}") commits it, run.discard("{name}") drops it.',
                effect=self._open,
            )
        self._open = ""

    def _held(self, id: str) -> Effect | None:
        (effect,) = self._core.parts.journal.effects(Query(ids=(id,)))
        return effect if effect.waits_for else None

    @contextmanager
    def _made(self, change: Change, terms: Terms) -> Iterator[MadeTransaction]:
        core = self._core
        made = MadeTransaction(review.begin(core.parts, core.lease, change, terms))
        if made.before:
            yield made
            return
        try:
            self._session.begin(made.effect)
            yield made
            with core.uninterrupted():
                made.effect = self._proposed(made.effect)
        except BaseException as error:
            with core.uninterrupted():
                self._session.rollback()
            self._refuse_held(error)
            raise
        if made.effect.state is State.PROPOSED:
            took_hold(core, made.effect)

    def _proposed(self, effect: Effect) -> Effect:
        core = self._core
        shown = self._reviewing.review()
        if shown.receipt is None:
            return effect._replace(state=State.ABORTED)
        until = time.time_ns() + int(self._limit * 1e9) if shown.how == OPEN else 0
        if self._asked is not NO_RULE:
            from takeback.engine.gate import TermsOfAsking, asked_by_rule

            asking = TermsOfAsking(core.now(), core.settings.approval_seconds * 1_000_000, self._asked)
            effect, self._asked = asked_by_rule(core.parts, effect, asking), NO_RULE
        effect = review.propose(core.parts, core.lease, effect, shown, until)
        try:
            self._reviewing.hold(effect, self._limit)
        except BaseException:
            self._session.rollback()
            discard_held(core.parts, core.lease, effect)
            raise
        if shown.how == OPEN:
            self._open = effect.id
        return effect

    def close(self) -> None:
        """What only this session holds is dropped with it."""
        with self._core.lock:
            held = self._held(self._open) if self._open else None
            if held:
                discard_held(self._core.parts, self._core.lease, held)
            self._open = ""
            super().close()


def _step(core: RunCore, replay: Replay, says: str, asked: str, make: Callable[[], SqlResult]) -> SqlResult:
    """In a workflow a statement is a step; what it answered is recorded, too, as JSON has it."""

    def again(step: WorkflowStep) -> SqlResult:
        if "answer" in step.body:
            told = json.loads(step.body["answer"])
            rows = tuple(tuple(row) for row in told["rows"])
            return SqlResult(rows, tuple(told["columns"]), told["count"], step.effect)
        # Its worker was killed before it could record the answer, which is not known.
        lost = SqlResult((), (), -1, step.effect)
        core.append(replay.draft(STATEMENT, says, asked, _as_json(lost)))
        return lost

    def run_it() -> SqlResult:
        with in_step(core, replay, asked):
            return _kept(make())

    return once(core, replay, STATEMENT, says, asked, run_it, _as_json, again)


def _kept(result: SqlResult) -> SqlResult:
    """As JSON has it, what it has no word for as text: the first time it is answered as it will be the next time."""
    rows: list[list[Any]] = json.loads(json.dumps([list(row) for row in result.rows], default=str))
    return result._replace(rows=tuple(tuple(row) for row in rows), columns=tuple(result.columns))


def _as_json(result: SqlResult) -> dict[str, Any]:
    told = {
        "rows": [list(row) for row in result.rows],
        "columns": list(result.columns),
        "count": result.rowcount,
    }
    effect = {"effect": result.effect.id} if result.effect else {}
    return {"answer": json.dumps(told), **effect}
