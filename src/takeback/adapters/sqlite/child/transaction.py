"""A transaction whose changes belong to one effect: the hook sees the first values, the last ones are read at the end,
and both are written in the same transaction."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import apsw

from takeback.adapters.database import refuse_too_many
from takeback.adapters.sqlite.child import foreign_keys, schema_change, touched_rows
from takeback.adapters.sqlite.child.driver import Cursor, not_utf8, said
from takeback.adapters.sqlite.child.log import WrittenImages
from takeback.adapters.sqlite.child.open_file import OpenFile
from takeback.adapters.sqlite.child.touched_rows import SeenRows
from takeback.errors import Misuse, NoRemedy, StatementFailed, TakebackError


class Recording:
    _failed = ""
    _is_logged = False
    _sequence: Mapping[str, Any] = MappingProxyType({})
    _header: Mapping[str, int] = MappingProxyType({})

    def __init__(self, place: OpenFile, id: str, most: int) -> None:
        self._place = place
        self._connection = place.connection
        self._id = id
        self._most = most  # rows; 0: any number
        place.begin()
        if not place.watchman.is_content:
            place.watchman.fresh()
        if place.counts_rows:
            self._sequence = place.sequence()
        seen = self._seen = SeenRows(place.shapes)
        place.connection.preupdate_hook(seen.see)

    def execute(self, statement: str, parameters: Any, many: bool) -> tuple[list[Any], list[str], int]:
        place = self._place
        if self._failed:
            raise StatementFailed(
                f"An earlier statement of this transaction failed: {self._failed}",
                hint="Roll it back and begin again.",
            )
        if self._is_logged:
            raise Misuse("This transaction waits for a decision.", hint="Keep it or drop it first.")
        try:
            if many or statement not in place.harmless:
                return self._execute(statement, parameters, many)
            place.cursor.execute(statement, parameters or None)
            return [], [], self._connection.changes()
        except (apsw.Error, TypeError, ValueError, OverflowError) as error:
            raise self._trouble(error) from None

    def _trouble(self, error: Exception) -> TakebackError:
        """What to say of it. Nothing of this transaction is committed any more."""
        if isinstance(error, apsw.Error):
            found = self._place.trouble(error)
        elif isinstance(error, UnicodeDecodeError):
            found = not_utf8()
        else:
            self._failed = f"{type(error).__name__}: {error}"
            return StatementFailed(f"A parameter does not fit: {error}.", hint="Nothing was changed.")
        self._failed = str(found)
        return found

    def _execute(self, statement: str, parameters: Any, many: bool) -> tuple[list[Any], list[str], int]:
        place, connection = self._place, self._connection
        columns: list[str] = []
        rows: list[Any] = []
        cursor = connection.cursor()
        texts: list[str] = []
        writes, count = False, 0

        def before_each(cursor: Cursor, text: str, bindings: Any) -> bool:
            nonlocal writes, count
            if writes:
                count += connection.changes()  # of the one before
            if not many:
                rows.clear()  # the answer is that of the last one
            columns[:] = [one[0] for one in cursor.get_description()]
            writes = not (cursor.is_readonly or cursor.is_explain)
            texts.append(text)
            # Right before it runs, when it is known what it would do.
            if place.watchman.schema:
                place.keep_before_readable()
            for name in place.watchman.header - self._header.keys():
                self._header = {**self._header, name: place.ours(f"PRAGMA {name}").get}
            return True

        cursor.exec_trace = before_each
        # Not from the cache: each statement is to be asked about.
        if many:
            rows.extend(cursor.executemany(statement, parameters, can_cache=False))
        else:
            rows.extend(cursor.execute(statement, parameters or None, can_cache=False))
        if writes:
            count += connection.changes()
        if len(texts) == 1 and writes and not columns and place.watchman.is_content:
            place.know(statement)
        return rows, columns, count if writes else len(rows)

    def commit(self) -> dict[str, Any] | None:
        receipt = self.log()
        self.finish()
        return receipt

    def log(self) -> dict[str, Any] | None:
        """All that is needed to take it back, in the transaction, which stays open. None: it changed nothing."""
        if self._failed:
            raise StatementFailed(
                f"A statement of this transaction failed: {self._failed}", hint="Nothing was changed."
            )
        self._is_logged = True
        try:
            receipt = self._log_few() or self._log()
        except apsw.Error as error:
            raise said(error, self._place.path) from None
        if receipt and self._most:
            refuse_too_many(self._most, receipt["tables"])
        return receipt

    def _log_few(self) -> dict[str, Any] | None:
        """Most transactions change a few rows; None for the others."""
        place, seen = self._place, self._seen
        log, watchman, held = place.log, place.watchman, seen.held
        if (
            held > touched_rows.FEW
            or place.has_virtual
            or not (seen.is_all and watchman.is_content and log.is_there)
        ):
            return None
        self._connection.preupdate_hook(None)
        watchman.ours += 1
        try:
            if foreign_keys.may_be(place, seen.tables):
                return None
            further = self._about(schema_change.NONE) if place.counts_rows else None
            if held == 1 and not further and (receipt := touched_rows.log_one(log, self._id, seen)):
                return receipt
            return touched_rows.log_few(place, self._id, seen.tables.values(), further)
        finally:
            watchman.ours -= 1

    def finish(self) -> None:
        self._place.refuse_orphan()
        if not self._seen.is_all:
            self._seen.close()
        try:
            self._place.commit()
        except apsw.Error as error:
            raise said(error, self._place.path) from None

    def _log(self) -> dict[str, Any] | None:
        place, log = self._place, self._place.log
        if place.has_virtual or place.watchman.schema:
            place.ours("SAVEPOINT takeback_flush; RELEASE takeback_flush")  # FTS5 writes its pages now
        self._connection.preupdate_hook(None)
        for name, why in self._seen.troubles.items():
            raise NoRemedy(
                f"What changes in {name} cannot be captured: {why}.",
                hint="Nothing was changed: the transaction was rolled back.",
            )
        change = schema_change.found(place) if place.watchman.schema else schema_change.NONE
        no = log.next_number() if log.is_there else 1
        written = WrittenImages(log, no)
        with place.as_ours():
            for shape, rows in self._seen.touched():
                if shape.name.lower() not in change.tables:
                    written.add(shape, touched_rows.changes(place, shape, rows))
            for shape, rows in schema_change.rows(place, change):
                written.add(shape, rows)
            about = {**written.about(), **self._about(change)}
            if loose := self._loose(change, no, written):
                about["loose"] = loose
            if about:
                if not log.is_there:
                    log.make()
                log.add_op(no, self._id, written.last, "", about)
        return told(about) if about else None

    def _loose(self, change: schema_change.SchemaChange, no: int, written: WrittenImages) -> list[Any]:
        """Foreign keys that pointed nowhere before this."""
        place = self._place
        if not change.objects and not change.tables:
            return foreign_keys.of_rows(place, no, written.last, written.numbers)
        names = {*change.before, *(name.lower() for name in written.counts)}
        found = foreign_keys.before(place.as_before, place.shapes, names)
        return foreign_keys.of_tables(place, found, no, written.last, written.numbers)

    def _about(self, change: schema_change.SchemaChange) -> dict[str, Any]:
        about = change.about()
        if sequence := schema_change.moved(self._sequence, self._place.sequence()):
            about["sequence"] = sequence
        now = {name: self._place.ours(f"PRAGMA {name}").get for name in self._header}
        if header := schema_change.moved(self._header, now):
            about["header"] = header
        return about

    def rollback(self) -> None:
        self._connection.preupdate_hook(None)
        self._seen.close()
        self._place.rollback()


def told(about: dict[str, Any]) -> dict[str, Any]:
    """The receipt: numbers and names, no contents."""
    schema = schema_change.sentences(about.get("schema", ()))
    schema += [f"{name} is {pair[1]}, was {pair[0]}" for name, pair in about.get("header", {}).items()]
    further = {name: about[name] for name in ("lost", "notes") if name in about}
    return {"tables": about.get("tables", {}), "schema": schema, **further}
