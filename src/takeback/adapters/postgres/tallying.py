"""What was written on a connection since a transaction began, apart from what takeback itself wrote on the side."""

from typing import TYPE_CHECKING

from takeback.adapters.postgres.counting import Written, since, written

if TYPE_CHECKING:
    from takeback.adapters.postgres.connecting import Connection


class Tally:
    def __init__(self, connection: "Connection", before: dict[int, Written]) -> None:
        self._connection = connection
        # The server counts for a session, and forgets it at most once a second.
        self.before = before
        self._asked = before

    def catalogs(self) -> set[str]:
        """Which of the server's own tables were written to since this was asked last."""
        now = written(self._connection)
        found = {one.name for one in since(now, self._asked) if one.schema == "pg_catalog"}
        self._asked = now
        return found

    def mark(self) -> dict[int, Written]:
        return written(self._connection)

    def forget_since(self, mark: dict[int, Written]) -> None:
        """What was written since then does not count."""
        for one in since(written(self._connection), mark):
            self._forget(one)

    def known(self, new: frozenset[int]) -> None:
        """The schema was changed, and it is known how. What a new table was made with is part of its making."""
        for one in since(written(self._connection), self.before):
            if one.schema == "pg_catalog" or one.oid in new:
                self._forget(one)

    def _forget(self, one: Written) -> None:
        earlier = self.before.get(one.oid, one._replace(inserted=0, updated=0, deleted=0))
        self.before = {
            **self.before,
            one.oid: one._replace(
                inserted=earlier.inserted + one.inserted,
                updated=earlier.updated + one.updated,
                deleted=earlier.deleted + one.deleted,
            ),
        }
