"""The part of a run that works on databases."""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from takeback.errors import Misuse
from takeback.model.ids import short

if TYPE_CHECKING:
    from takeback.adapters.database.protocol import Tell
    from takeback.engine.parts import Parts
    from takeback.model.effect import Effect
    from takeback.model.run import Lease
    from takeback.runs.programs import Seen
    from takeback.runs.sql import Hand, Sql


class Querying(ABC):
    _parts: "Parts"
    _lease: "Lease"
    _databases: "list[Sql]"

    @abstractmethod
    def _refuse_in_workflow(self, what: str, instead: str) -> None: ...

    @abstractmethod
    def _hand(self) -> "Hand":
        """What a database needs of this run, which has not ended."""

    def sql(
        self, address: str, *, most: int | None = None, review: bool = False, limit: float = 300
    ) -> "Sql":
        """A database: `postgresql://…`, `sqlite:///file.db`, `mariadb://…`, `redis://…`, or `env:NAME` for an address
        that is in an environment variable. Each statement that changes something is an effect. `most` is how
        many rows one may change (0: any number; else the setting max_rows holds). With `review` it is held until
        `apply` or `discard`; where only an open session can hold it, for `limit` seconds at most."""
        from takeback.runs.sql import Sql, connected

        if review:
            self._refuse_in_workflow("A transaction that waits for a person", "Ask first: run.wait.")
        hand = self._hand()
        if most is not None:
            if type(most) is not int or most < 0:
                raise Misuse(
                    f"{most!r} is no number of rows.", hint="For example most=10_000_000; 0: no limit."
                )
            hand = hand._replace(most=most)
        with hand.lock:
            session = connected(hand, address)
            if review:
                from takeback.runs.review import ReviewedSql

                opened = ReviewedSql(hand, session, limit)
            else:
                opened = Sql(hand, session)
            self._databases.append(opened)
            return opened

    def program(
        self, *addresses: str, says: str = "a program", tell: "Tell | None" = None
    ) -> "AbstractContextManager[Seen]":
        """Start a program with a database driver of its own in the block, with the variables in `.environment`, and
        wait for its end there. What it changed in these databases is one effect each, in `.effects` after the block.
        `tell(sentence, hint)` is called, by another thread, when the program is kept from something."""
        from takeback.adapters.database.protocol import quiet
        from takeback.runs.programs import program

        self._refuse_in_workflow("A program with a driver of its own", "Use run.call with an action.")
        return program(self._hand(), addresses, says, tell or quiet)

    def refuse_in_transaction(self, effects: "Iterable[Effect]") -> None:
        """Before an undo: it would wait for the transaction in which it is asked for."""
        from takeback.model.database import resource_of

        busy = {resource_of(one.database) for one in self._databases if one.in_transaction_here}
        for one in effects:
            if one.change.resource in busy:
                raise Misuse(
                    f"Effect {short(one.id)} cannot be taken back in the middle of a transaction on the same database.",
                    hint="Nothing was changed. Undo it before or after the `with db.transaction():` block.",
                    effect=one.id,
                )

    def _close_databases(self) -> None:
        for database in self._databases:
            database.close()
        self._databases.clear()

    def _drop_reviewed(self) -> int:
        """How many changes it held."""
        if not self._databases:
            return 0
        from takeback.engine.review import drop_all

        return drop_all(self._parts, self._lease)
