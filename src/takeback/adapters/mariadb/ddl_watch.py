"""Whether anybody has defined anything on the server: cheaper to ask than what."""

from collections.abc import Sequence
from typing import Any

from takeback.adapters.mariadb.wire import Wire

_STATEMENTS = [
    "alter_table",
    "create_table",
    "drop_table",
    "rename_table",
    "create_trigger",
    "drop_trigger",
    "create_index",
    "drop_index",
    "create_db",
    "drop_db",
    "alter_db",
    "truncate",
]
ASKED = "SHOW GLOBAL STATUS WHERE Variable_name IN ({})".format(
    ", ".join(f"'Com_{name}'" for name in _STATEMENTS)
)


def defined(wire: Wire) -> tuple[tuple[str, str], ...]:
    """How often such statements were begun, ever. Asked before looking: what is counted later may have been missed."""
    return told(wire.rows(ASKED))


def told(rows: Sequence[Sequence[Any]]) -> tuple[tuple[str, str], ...]:
    return tuple((str(name), str(count)) for name, count in rows)
