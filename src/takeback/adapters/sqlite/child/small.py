"""A transaction that changed a few rows: most do. What is logged of it is gathered first and written at once."""

from collections.abc import Iterable
from json.encoder import encode_basestring
from typing import Any

from takeback.adapters.sqlite.child import became
from takeback.adapters.sqlite.child.log import DELETE, INSERT, LIGHT, UPDATE, encoded
from takeback.adapters.sqlite.child.place import Place
from takeback.adapters.sqlite.child.seen import weight_of
from takeback.adapters.sqlite.child.shapes import Shape

FEW = 16  # rows


def log(
    place: Place, id: str, touched: Iterable[tuple[Shape, Any]], further: dict[str, Any] | None
) -> dict[str, Any] | None:
    """The receipt. None, and nothing was written: it changed nothing, or is not small after all."""
    images: list[tuple[Any, ...]] = []
    numbers: list[int] = []
    tables: dict[str, dict[str, int]] = {}
    weight = 0
    for shape, rows in touched:
        if shape.virtual or 2 * len(shape.columns) > place.log.width:
            return None
        number, counts = 0, {INSERT: 0, UPDATE: 0, DELETE: 0}
        for key, first in rows.items():
            for image in became.changes(place, shape, ((key, first),)):
                number = number or place.log.number(shape)
                counts[image[1]] += 1
                weight += weight_of(image)
                images.append((number, *image))
        if number:
            numbers.append(number)
            tables[shape.name] = {
                "inserted": counts[INSERT], "updated": counts[UPDATE], "deleted": counts[DELETE]
            }  # fmt: skip
    if not images or weight > LIGHT:
        return None
    place.log.add_small(place.log.next_number(), id, _told(tables, numbers, further), images)
    return {"tables": tables, "schema": []}


def _told(tables: dict[str, dict[str, int]], numbers: list[int], further: dict[str, Any] | None) -> str:
    """As JSON, by hand: this is done for each of many."""
    if further:
        return encoded({"tables": tables, "numbers": numbers, **further})
    counts = [
        f'{encode_basestring(name)}:{{"inserted":{one["inserted"]},"updated":{one["updated"]},'
        f'"deleted":{one["deleted"]}}}'
        for name, one in tables.items()
    ]
    return f'{{"tables":{{{",".join(counts)}}},"numbers":{numbers}}}'
