"""Taking back exactly what one op did, in one transaction: every row that is as the op left it goes back to what it
was; a row that is not is a conflict, named."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import apsw

from takeback.adapters.sqlite.child import conflicts, foreign_keys, put_back
from takeback.adapters.sqlite.child.conflicts import Conflicts
from takeback.adapters.sqlite.child.driver import said
from takeback.adapters.sqlite.child.images_sql import ALREADY, FORCEABLE, MAKE_SKIP, SKIP, Images
from takeback.adapters.sqlite.child.log import (
    DELETE,
    INSERT,
    NOTHING,
    SqliteOp,
    WrittenImages,
    in_force_again,
    refuse_missing,
    taken_back,
)
from takeback.adapters.sqlite.child.open_file import OpenFile
from takeback.adapters.sqlite.child.put_back import Putting
from takeback.adapters.sqlite.child.transaction import told
from takeback.errors import (
    Conflict,
    Drifted,
    Forgotten,
    Refused,
    ResourceUnreachable,
    StoreBusy,
    UndoFailed,
)

# Rows that an undo left out, because a later op depends on them. That op then records, as the state it found, the state
# before the undone op. Otherwise its own undo would bring back the undone row.


def rebase(place: OpenFile, op: SqliteOp, tables: list[Images], policy: str) -> list[int]:
    """Numbers of the images that were rewritten."""
    _put_back(place, op)
    rewritten: list[int] = []
    for images in tables if policy == SKIP_CONFLICTS else ():
        width = images.width
        same = " AND ".join(
            f"j.c{at} COLLATE BINARY IS i.c{width + at} AND typeof(j.c{at}) = typeof(i.c{width + at})"
            for at in range(width)
        )
        pairs = place.connection.execute(
            f"SELECT i.no, min(j.no) FROM {SKIP} s JOIN main.takeback_image i USING (no) "
            "JOIN main.takeback_image j ON j.tbl = i.tbl AND j.k = i.k AND j.no > ? "
            f"WHERE s.kind <> '{ALREADY}' AND +i.tbl = ? AND ((i.did <> 'D') = (j.did <> 'I')) AND {same} "
            "AND (SELECT o.undone_by FROM main.takeback_op o WHERE o.no <= j.no ORDER BY o.no DESC LIMIT 1) = '' "
            "GROUP BY i.no",
            (op.last, images.number),
        ).fetchall()
        for mine, theirs in pairs:
            _give(place, theirs, mine, width, 0)
            rewritten.append(theirs)
    return rewritten


def _put_back(place: OpenFile, op: SqliteOp) -> None:
    """An undo that had rewritten images is taken back itself."""
    for theirs in op.about.get("rebased", ()):
        found = place.connection.execute(
            "SELECT i.no, t.shape FROM main.takeback_op o JOIN main.takeback_image j ON j.no = ? "
            "JOIN main.takeback_image i ON i.tbl = j.tbl AND i.k = j.k AND i.no BETWEEN o.no AND o.last "
            "JOIN main.takeback_table t ON t.no = j.tbl WHERE o.id = ?",
            (theirs, op.undoes),
        ).fetchone()
        if found is not None:
            width = len(json.loads(found[1])["columns"])
            _give(place, theirs, found[0], width, width)


def _give(place: OpenFile, to: int, of: int, width: int, offset: int) -> None:
    """The first half of one image becomes a half of another."""
    there = "i.did <> 'I'" if offset == 0 else "i.did <> 'D'"
    columns = ", ".join(f"c{at} = i.c{offset + at}" for at in range(width))
    place.connection.execute(
        "UPDATE main.takeback_image AS j SET did = CASE WHEN j.did IN ('I', 'U') "
        f"THEN CASE WHEN {there} THEN 'U' ELSE 'I' END WHEN {there} THEN 'D' ELSE '{NOTHING}' END, "
        f"{columns} FROM main.takeback_image AS i WHERE j.no = ? AND i.no = ?",
        (to, of),
    )


REFUSE, SKIP_CONFLICTS, FORCE = "refuse", "skip", "force"
_TRIES = 20  # what is left out may be what something else stands on


def assess_undo(place: OpenFile, id: str, policy: str) -> dict[str, Any]:
    """Plan the undo. If only a trial can show the result, do it and roll back."""
    with _transaction(place):
        op = _op(place, id)
        work = SqliteUndo(place, op, policy, only_look=True)
        work.carry_out(None)
        found, count = [tuple(one) for one in work.conflicts.first], work.conflicts.count
        return {"undone": work.undone, "already": work.already, "conflicts": found, "count": count}


def undo(place: OpenFile, id: str, by: str, policy: str, partial: bool) -> dict[str, Any]:
    """Logged as an op of its own, which can be taken back like any other."""
    with _transaction(place):
        if (done := place.log.op(by)) is not None:
            return told(done.about)  # twice is once
        op = _op(place, id)
        work = SqliteUndo(place, op, policy)
        about = work.carry_out(by)
        _refuse(work.conflicts, policy, partial)
        if not partial:
            taken_back(place.log, op.id, by)
        place.refuse_orphan()
        place.commit()
    return told(about)


def take_back(place: OpenFile, id: str) -> None:
    """Reverse an effect of which a later step failed, and delete its marker."""
    with _transaction(place):
        op = place.log.op(id)
        if op is None:
            return
        refuse_missing(place.connection, op)
        work = SqliteUndo(place, op, REFUSE)
        work.carry_out(None)
        _refuse(work.conflicts, REFUSE, False)
        place.log.remove_op(op)
        if op.undoes:
            in_force_again(place.log, op.undoes)
        place.refuse_orphan()
        place.commit()


@contextmanager
def _transaction(place: OpenFile) -> Iterator[None]:
    """Triggers of the application are off, foreign keys are checked by ourselves."""
    connection = place.connection
    enforced = connection.config(apsw.SQLITE_DBCONFIG_ENABLE_FKEY, -1)
    connection.config(apsw.SQLITE_DBCONFIG_ENABLE_FKEY, 0)
    connection.config(apsw.SQLITE_DBCONFIG_ENABLE_TRIGGER, 0)
    try:
        place.begin()
        with place.as_ours():
            place.log.settle()
            yield
    except apsw.Error as error:
        found = said(error, place.path)
        if isinstance(found, (StoreBusy, ResourceUnreachable)):
            raise found from None
        raise UndoFailed(f"It could not be taken back: {found}", hint="Nothing was changed.") from None
    finally:
        place.rollback()
        connection.config(apsw.SQLITE_DBCONFIG_ENABLE_FKEY, enforced)
        connection.config(apsw.SQLITE_DBCONFIG_ENABLE_TRIGGER, 1)


def _op(place: OpenFile, id: str) -> SqliteOp:
    op = place.log.op(id)
    if op is None:
        raise Refused(
            f"This database knows nothing of effect {id[:8]}.",
            hint="It may be another file of the same name, an older copy, or one that was unprotected since.",
        )
    if op.released:
        raise Forgotten(
            f"Effect {id[:8]} was forgotten: it can no longer be undone.",
            hint=f"`takeback show {id[:8]}` still shows what it did.",
        )
    if op.undone_by:
        raise Refused(
            f"Effect {id[:8]} is already undone (by {op.undone_by[:8]}).",
            hint="There is nothing left to take back.",
        )
    refuse_missing(place.connection, op)
    return op


def _refuse(found: Conflicts, policy: str, partial: bool) -> None:
    if found.count and policy != SKIP_CONFLICTS:
        names = "; ".join(f"{one.table} {one.key} {one.detail}".strip() for one in found.first[:5])
        more = f"; and {found.count - 5} more" if found.count > 5 else ""
        changed = all(one.kind in conflicts.OVERWRITABLE for one in found.first)
        head = "Modified after this effect, so undo would overwrite those changes: " if changed else ""
        raise Conflict(
            f"{head}{names}{more}.",
            hint="Nothing was changed. Undo the later changes first, or skip or force.",
            resources=tuple(f"{one.table}\0{one.key}" for one in found.first),
        )
    if bool(found.count) != partial:
        raise Drifted(
            "Rows were changed while their undo was being prepared.",
            hint="Nothing was changed. Look at it, then try again.",
        )


class SqliteUndo:
    def __init__(self, place: OpenFile, op: SqliteOp, policy: str, *, only_look: bool = False) -> None:
        self._only_look = only_look
        self._place = place
        self._connection = place.connection
        self._op = op
        self._policy = policy
        self.conflicts = Conflicts()
        self.undone = self.already = False
        self._restoring = put_back.Restoring(place, op)
        self._tables: list[Images] = []
        # Rows that cannot be put back, found by trying: by number of the image, the kind of conflict, and the other
        # table or the message of SQLite.
        self._left_out: dict[int, tuple[str, str]] = {}

    def carry_out(self, by: str | None) -> dict[str, Any]:
        """Carry the undo out and return its counts. `by`: log it as this op."""
        self._connection.execute(MAKE_SKIP)
        for _ in range(_TRIES):
            self._connection.execute("SAVEPOINT takeback_attempt")
            about = self._attempt(by)
            if about is not None:
                self._connection.execute("RELEASE takeback_attempt")
                return about
            self._connection.execute("ROLLBACK TO takeback_attempt; RELEASE takeback_attempt")
        raise UndoFailed(
            "These rows depend on each other; they can only be undone together.", hint="Nothing was changed."
        )

    def _attempt(self, by: str | None) -> dict[str, Any] | None:
        """None: there are more rows now that cannot be put back."""
        self._connection.execute(f"DELETE FROM {SKIP}")
        self.conflicts = Conflicts()
        self._restoring.check(self.conflicts, self._policy)
        self._tables = self._guarded()
        for images in self._tables:
            self._connection.execute(images.find_conflicts())
        self._connection.executemany(
            f"INSERT OR REPLACE INTO {SKIP} VALUES (?, ?, 0)",
            ((no, kind) for no, (kind, _) in self._left_out.items()),
        )
        if self._policy == FORCE:
            self._connection.execute(
                f"UPDATE {SKIP} SET forced = 1 WHERE kind IN ({', '.join('?' * len(FORCEABLE))})", FORCEABLE
            )
        if not self._connection.execute(f"SELECT EXISTS (SELECT 1 FROM {SKIP})").get:
            self._tables = [images._replace(all=True) for images in self._tables]
        conflicts.gather(self._place, self._op, self._tables, self._left_out, self.conflicts)
        if conflicts.gather_whole(self._place, self._op, self._left_out, self.conflicts):
            self._restoring.possible = False
        self._look()
        if self.conflicts.count and (
            self._policy not in (SKIP_CONFLICTS, FORCE) or not self._restoring.possible
        ):
            self.undone = self.already = False
            return {}
        # If no row that goes back can be in the way of another, or be missed by one, there is no need to try.
        if self._only_look and self._stand_alone() and not self._keys():
            return {}
        return self._apply(by)

    def _stand_alone(self) -> bool:
        """No row that goes back can be in the way of another."""
        return not self._rebuilds and not any(one.shape.unique for one in self._tables)

    @property
    def _rebuilds(self) -> bool:
        return bool(self._restoring.objects or self._restoring.tables)

    def _look(self) -> None:
        spans = " UNION ALL ".join(
            f"SELECT 1 FROM main.takeback_image i WHERE {one.active}" for one in self._tables
        )
        rows = bool(spans) and self._connection.execute(f"SELECT EXISTS ({spans})").get == 1
        others = bool(self._restoring.objects) or "sequence" in self._op.about or "header" in self._op.about
        self.undone = rows or (self._restoring.possible and others)
        self.already = self.already or not (self.undone or self.conflicts.count)

    def _guarded(self) -> list[Images]:
        """The tables that still look as they did."""
        found: list[Images] = []
        for number, name, sql, _ in self._place.log.tables_of(self._op):
            shape = self._place.shapes.get(name.lower())
            if name.lower() in self._restoring.tables:
                continue
            if shape is None or shape.sql != sql:
                gone = "is not there any more" if shape is None else "was altered since"
                self.conflicts.add(name, "", "schema", f"the table {gone}, so its rows cannot be put back")
                continue
            found.append(Images(number, shape, self._op.no, self._op.last))
        return found

    def _apply(self, by: str | None) -> dict[str, Any] | None:
        place, connection = self._place, self._connection
        no = place.log.next_number()
        written = WrittenImages(place.log, no)
        later = self._restoring.sequence_to_put_back()
        pointing_nowhere: foreign_keys.Before = {}
        if self._rebuilds:
            names = {*self._restoring.tables, *(one.shape.name.lower() for one in self._tables)}
            pointing_nowhere = foreign_keys.before(connection, self._restoring.shapes_now(), names)
        further = no - self._op.no
        putting = Putting(connection, None if by is None else further, self._policy == FORCE, {})
        alone = self._stand_alone()
        logged = putting.in_one_go(self._tables) if alone else putting.log(self._tables)
        last = no + self._op.last - self._op.no
        if by is not None:
            for images in self._tables:
                self._count(images, written, further)
            written.last = last
            self._restoring.log_now(written, DELETE)
        if not alone:
            putting.delete(self._tables)
            self._restoring.drop()
            self._restoring.create()
            putting.insert(self._tables)
        if putting.refused:
            self._left_out |= putting.refused
            return None
        self._restoring.insert()
        tolerated = foreign_keys.LooseEnds(self._op.about.get("loose", ()))
        broken = list(foreign_keys.broken(place, self._keys(), self._images(), tolerated))
        if broken:
            self._left_out |= {no: (kind, other) for no, kind, other in broken}
            return None
        putting.verify([*(() if alone else self._tables), *self._restoring.restored()])
        self._restoring.finish(later)
        if by is None:
            return {}
        self._restoring.log_now(written, INSERT)
        about = {**written.about(), **self._restoring.about(later)}
        about["images"] = logged + written.last - last
        loose = (
            foreign_keys.of_tables(place, pointing_nowhere, no, written.last, written.numbers)
            if self._rebuilds
            else foreign_keys.of_rows(place, no, written.last, written.numbers)
        )
        if loose:
            about["loose"] = loose
        rebased = rebase(place, self._op, self._tables, self._policy)
        if rebased:
            about["rebased"] = rebased
        place.log.add_op(no, by, written.last, self._op.id, about)
        return about

    def _count(self, images: Images, written: WrittenImages, further: int) -> None:
        if images.all and not images.only:
            was = self._op.about["tables"][images.shape.name]
            written.count(
                images.shape, images.number, {"I": was["deleted"], "U": was["updated"], "D": was["inserted"]}
            )
            return
        did = self._connection.execute(
            "SELECT did, count(*) FROM main.takeback_image WHERE no BETWEEN ? AND ? AND +tbl = ? GROUP BY did",
            (images.first + further, images.last + further, images.number),
        ).fetchall()
        if did:
            written.count(images.shape, images.number, dict(did))

    def _images(self) -> dict[str, Images]:
        return {images.shape.name.lower(): images for images in (*self._tables, *self._restoring.restored())}

    def _keys(self) -> list[foreign_keys.ForeignKey]:
        """Foreign keys from or to one of the tables."""
        tables = self._images()
        return [
            key
            for key in foreign_keys.of(self._connection, self._restoring.shapes_now())
            if key.child.name.lower() in tables or key.parent.name.lower() in tables
        ]
