"""How random histories and killers use takeback on one database: through the adapter, as the engine does."""

from collections import Counter
from collections.abc import Callable
from typing import Any, Protocol

from takeback.adapters.database import Databases, DatabaseSession
from takeback.adapters.protocol import Adapter
from takeback.errors import StatementFailed
from takeback.model.change import Change, OnConflict
from takeback.model.database import Database, resource_of, to_json
from takeback.model.effect import Effect
from takeback.model.effect import State as EffectState
from takeback.model.plan import Standing
from takeback.testing.adapter_suite import Desk
from tests.sql.rows import State
from tests.sql.statements import Dialect, Statement, schema, tables

POSTGRES = Dialect("postgres", "%s", truncate="TRUNCATE")
SQLITE = Dialect(
    "sqlite", "?", options={"score": "WITHOUT ROWID"}, replace=True, hidden={"loose": "rowid"},
    first=("PRAGMA foreign_keys = on",),
)  # fmt: skip
MARIADB = Dialect(
    "mariadb", "%s", text="VARCHAR(200)", unique_text="VARCHAR(100)", replace=True,
    upsert="ON DUPLICATE KEY UPDATE points = VALUES(points)",
)  # fmt: skip


class Plain(Protocol):
    """A connection that takeback knows nothing of."""

    def execute(self, statements: list[Statement]) -> None:
        """One transaction; `StatementFailed` if the database said no."""
        ...

    def rows(self, query: str) -> list[tuple[Any, ...]]: ...


class DatabaseAdapter(Adapter, Databases, Protocol):
    """Both in one."""


class ThroughAdapter:
    """An `Engine` for random histories: one adapter and one session for each, as a run has them. `empty` is called
    before a history, with the tables in place: every row goes. Close it."""

    def __init__(
        self, dialect: Dialect, database: Database, make: Callable[[], DatabaseAdapter], plain: Plain,
        empty: Callable[[], None],
    ) -> None:  # fmt: skip
        self.dialect, self.database, self.plain = dialect, database, plain
        self._make, self._empty = make, empty
        self._adapter: DatabaseAdapter | None = None
        self._session: DatabaseSession | None = None

    @property
    def adapter(self) -> DatabaseAdapter:
        assert self._adapter, "begin first"
        return self._adapter

    @property
    def session(self) -> DatabaseSession:
        assert self._session, "begin first"
        return self._session

    def begin(self) -> None:
        if not self._adapter:
            self.plain.execute([(text, ()) for text in schema(self.dialect)])
            self._make().protect(self.database, ())
        self.close()
        self._empty()
        self._adapter = self._make()
        self._session = self._adapter.connect(self.database)
        for text in self.dialect.first:
            self._session.read(text, ())

    def close(self) -> None:
        if self._session:
            self._session.close()
        self._session = None

    def state(self) -> State:
        return {
            table.name: Counter(self.plain.rows(f"SELECT {', '.join(table.columns)} FROM {table.name}"))
            for table in tables(self.dialect)
        }

    def outside(self, statements: list[Statement]) -> None:
        self.plain.execute(statements)

    def do(self, statements: list[Statement]) -> Effect | None:
        effect = intended(self.adapter, self.session.database, statements[0][0])
        self.session.begin(effect)
        try:
            for text, parameters in statements:
                self.session.execute(text, parameters)
            receipt = self.session.commit()
        except StatementFailed:
            self.session.rollback()
            raise
        self.adapter.tidy(effect)
        return effect._replace(state=EffectState.DONE, receipt=receipt) if receipt is not None else None

    def undo(self, effect: Effect, policy: str) -> Effect:
        return Desk(self.adapter).undo(effect, OnConflict(policy))


def made(
    adapter: DatabaseAdapter, database: Database, *statements: tuple[str, Any], summary: str = ""
) -> Effect | None:
    """As one effect, by a session of its own. None: they changed nothing."""
    session = adapter.connect(database)
    try:
        effect = intended(adapter, session.database, summary or (statements[0][0] if statements else ""))
        session.begin(effect)
        try:
            for text, parameters in statements:
                session.execute(text, parameters)
            receipt = session.commit()
        except BaseException:
            session.rollback()
            raise
    finally:
        session.close()
    if receipt is None:
        adapter.tidy(effect)
        return None
    assert adapter.verify(effect).standing is Standing.AFTER
    adapter.tidy(effect)
    return effect._replace(state=EffectState.DONE, receipt=receipt)


def intended(adapter: DatabaseAdapter, database: Database, summary: str) -> Effect:
    """Up to the intent."""
    change = Change(
        adapter.name, "sql", resource_of(database), summary[:100], {"database": to_json(database)}
    )
    return Desk(adapter).intend(change)
