"""Images that are no longer there: what is left of them must not be taken for the whole."""

from takeback.adapters.sqlite.child.driver import Connection
from takeback.adapters.sqlite.child.log import Op
from takeback.errors import Corrupt, Refused

_HINT = (
    "Nothing was changed. Someone changed what takeback keeps in the tables takeback_…; a backup of the database may "
    "have it."
)


def refuse_missing(connection: Connection, op: Op) -> None:
    """An op has as many images as numbers, but for an undo, which says how many: it may have left some out."""
    if lost := op.about.get("lost"):
        raise Refused(
            f"Effect {op.id[:8]} cannot be taken back, because this is lost: {'; '.join(lost)}.",
            hint="Nothing was changed. A backup of the database may have it.",
        )
    wanted = op.about.get("images", None if op.undoes else op.last - op.no)
    if wanted is None or op.released:
        return
    where = "takeback_recent" if op.recent else "takeback_image"
    there = connection.execute(
        f"SELECT count(*) FROM main.{where} WHERE no BETWEEN ? AND ?", (op.no, op.last)
    ).get
    if there != wanted:
        raise Corrupt(
            f"Effect {op.id[:8]} cannot be taken back: of the {wanted} images of rows that were kept in {where}, "
            f"{there} are there.",
            hint=_HINT,
        )
    for number in op.about.get("numbers", ()):
        if not connection.execute("SELECT count(*) FROM main.takeback_table WHERE no = ?", (number,)).get:
            raise Corrupt(
                f"Effect {op.id[:8]} cannot be taken back: what one of its tables looked like is not in "
                "takeback_table any more.",
                hint=_HINT,
            )
