"""After rows were left out of an undo: a later operation that found what this one had left must find what was before.

Row r: the first made A into B, the second B into C. Undo of the first leaves r out, since it is C. Undo of the second
must then lead to A and not to B, or it would bring back what was taken back.
"""

from collections.abc import Sequence

from takeback.adapters.mariadb.images import logged_image, logged_names, same_logged_key
from takeback.adapters.mariadb.logs import OPS, TOUCHED
from takeback.adapters.mariadb.net import CONFLICTS, Part
from takeback.adapters.mariadb.wire import Wire


def rebase(wire: Wire, parts: Sequence[Part], op: int) -> None:
    """The tables of the session tell what was left out."""
    for part in parts:
        if part.shape.key:
            _rebase(wire, part, op)


def _rebase(wire: Wire, part: Part, op: int) -> None:
    shape = part.shape
    states = ", ".join(f"'{state}'" for state in CONFLICTS)
    # The first image that a later operation, still in force, found for the row, if it is what this one had left.
    later = wire.rows(
        f"SELECT s.id, s.pre, s.post, MIN(l.tb_no) FROM {part.net} s STRAIGHT_JOIN {part.log} a ON a.tb_no = s.some"
        f" LEFT JOIN {part.log} q ON q.tb_no = s.post"
        f" STRAIGHT_JOIN {part.log} l ON {same_logged_key(shape, 'l', 'a')} AND l.tb_no > a.tb_no AND l.tb_op <> {op}"
        f" JOIN {OPS} o ON o.no = l.tb_op AND o.undone_by = ''"
        f" WHERE s.state IN ({states}) AND (s.post IS NULL AND l.tb_sign > 0 OR s.post IS NOT NULL AND l.tb_sign < 0"
        f" AND {logged_image(shape, 'l')} = {logged_image(shape, 'q')}) GROUP BY s.id"
    )
    names = logged_names(shape)
    for _, pre, post, no in later:
        if post is None:
            # This one deleted the row, and a later one made it anew: now that one replaced it.
            wire.run(
                f"INSERT INTO {part.log} (tb_op, tb_c, tb_sign, {', '.join(names)}) SELECT l.tb_op, 0, -1,"
                f" {', '.join(f'p.{name}' for name in names)} FROM {part.log} l JOIN {part.log} p ON p.tb_no = {pre}"
                f" WHERE l.tb_no = {no}"
            )
            _another_number(wire, part, no, "+ 1")
        elif pre is None:
            # This one made the row: to the later one it was never there.
            _another_number(wire, part, no, "- 1")
            wire.run(f"DELETE FROM {part.log} WHERE tb_no = {no}")
        else:
            values = ", ".join(f"l.{name} = p.{name}" for name in names)
            wire.run(
                f"UPDATE {part.log} l JOIN {part.log} p ON p.tb_no = {pre} SET {values} WHERE l.tb_no = {no}"
            )


def _another_number(wire: Wire, part: Part, no: int, by: str) -> None:
    """Of images, for whoever looks whether they are all there."""
    wire.run(
        f"UPDATE {TOUCHED} t JOIN {part.log} l ON l.tb_op = t.op SET t.images = t.images {by}"
        f" WHERE l.tb_no = {no} AND t.n = {part.n}"
    )
