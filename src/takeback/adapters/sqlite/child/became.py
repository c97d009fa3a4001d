"""What became of the rows that a transaction touched: read at its end, and compared with what they were."""

from collections.abc import Iterable, Iterator
from typing import Any

from takeback.adapters.sqlite.child.log import DELETE, INSERT, UPDATE
from takeback.adapters.sqlite.child.place import Place
from takeback.adapters.sqlite.child.seen import UNSEEN
from takeback.adapters.sqlite.child.shapes import Shape
from takeback.adapters.sqlite.wire import plain


def changes(place: Place, shape: Shape, rows: Iterable[tuple[Any, Any]]) -> Iterator[tuple[Any, ...]]:
    """Key, what was done, the row before and after; what came back to what it was is left out."""
    cursor = place.connection.cursor()
    now_by = place.reading(shape)
    nothing = (None,) * len(shape.columns)
    for key, first in rows:
        before: tuple[Any, ...] | None
        if shape.rowid:
            before = place.before(shape, key) if first == UNSEEN else first
            at: tuple[Any, ...] = (key,)
        else:
            before = first[1:] if first[0] else None
            at = tuple(first[1 + one] for one in shape.key) if first[0] else first[1:]
        after = cursor.execute(now_by, at).fetchone()
        if before is None:
            if after is not None:
                yield key, INSERT, *nothing, *after
        elif after is None:
            yield key, DELETE, *before, *nothing
        elif before != after or plain(before) != plain(after):
            yield key, UPDATE, *before, *after
