"""Images that are no longer there: what is left of them must not be taken for the whole."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from takeback.adapters.postgres.connecting import ask
from takeback.adapters.postgres.logs import log_name
from takeback.adapters.postgres.ops import Op
from takeback.errors import Corrupt
from takeback.model.ids import short

if TYPE_CHECKING:
    from takeback.adapters.postgres.connecting import Connection


def refuse_missing(op: Op, found: Mapping[int, list[int]]) -> None:
    """`found`: how many images each log has, before and after."""
    for log, wanted in (op.images or {}).items():
        have = found.get(int(log), [0, 0])
        if have != wanted:
            raise Corrupt(
                f"Effect {short(op.id)} cannot be taken back: of the {sum(wanted)} images of rows that were kept in "
                f"{log_name(int(log))}, {sum(have)} are there.",
                hint="Nothing was changed. Someone changed what takeback keeps in the schema `takeback`; a backup of "
                "the database may have it.",
                effect=op.id,
            )


def look_for_missing(connection: "Connection", op: Op) -> None:
    if op.images:
        rows = ask(
            connection,
            "select l, takeback.numbers(%s, l) from unnest(%s::int[]) l",
            [op.source, [*map(int, op.images)]],
        )
        refuse_missing(op, dict(rows))
