"""Values that Python has no room for: a date of infinity, or before the year 1, is read as the server writes it."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from takeback.adapters.postgres.connecting import Connection

_TIMES = ("date", "timestamp", "timestamptz")


def read_all_times(connection: "Connection") -> None:
    from psycopg import DataError, adapters
    from psycopg.abc import AdaptContext, Buffer, Loader
    from psycopg.pq import Format

    def or_text(usual: type[Loader]) -> type[Loader]:
        class OrText:
            format = Format.TEXT

            def __init__(self, oid: int, context: AdaptContext | None = None) -> None:
                self._usual = usual(oid, context)

            def load(self, data: Buffer) -> Any:
                try:
                    return self._usual.load(data)
                except DataError:
                    return bytes(data).decode()

        return OrText

    for name in _TIMES:
        oid = adapters.types[name].oid
        usual = adapters.get_loader(oid, Format.TEXT)
        assert usual
        connection.adapters.register_loader(oid, or_text(usual))
