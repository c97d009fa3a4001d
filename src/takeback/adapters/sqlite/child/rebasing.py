"""Rows that an undo left out, because a later op stands on them: that op is given, as what it found, what was there
before the one that is undone. Otherwise its own undo would bring back what was to be gone."""

from takeback.adapters.sqlite.child.images_sql import ALREADY, SKIP, Images
from takeback.adapters.sqlite.child.log import NOTHING, Op
from takeback.adapters.sqlite.child.place import Place


def rebase(place: Place, op: Op, tables: list[Images], policy: str) -> list[int]:
    """Numbers of the images that were rewritten."""
    back = _put_back(place, op)
    if policy != "skip":
        return back
    rewritten: list[int] = []
    for images in tables:
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


def _put_back(place: Place, op: Op) -> list[int]:
    """An undo that had rewritten images is taken back itself."""
    for theirs in op.about.get("rebased", ()):
        found = place.connection.execute(
            "SELECT i.no, t.shape FROM main.takeback_op o JOIN main.takeback_image j ON j.no = ? "
            "JOIN main.takeback_image i ON i.tbl = j.tbl AND i.k = j.k AND i.no BETWEEN o.no AND o.last "
            "JOIN main.takeback_table t ON t.no = j.tbl WHERE o.id = ?",
            (theirs, op.undoes),
        ).fetchone()
        if found is not None:
            import json

            width = len(json.loads(found[1])["columns"])
            _give(place, theirs, found[0], width, width)
    return []


def _give(place: Place, to: int, of: int, width: int, offset: int) -> None:
    """The first half of one image becomes a half of another."""
    there = "i.did <> 'I'" if offset == 0 else "i.did <> 'D'"
    columns = ", ".join(f"c{at} = i.c{offset + at}" for at in range(width))
    place.connection.execute(
        "UPDATE main.takeback_image AS j SET did = CASE WHEN j.did IN ('I', 'U') "
        f"THEN CASE WHEN {there} THEN 'U' ELSE 'I' END WHEN {there} THEN 'D' ELSE '{NOTHING}' END, "
        f"{columns} FROM main.takeback_image AS i WHERE j.no = ? AND i.no = ?",
        (to, of),
    )
