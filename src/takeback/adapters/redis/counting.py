"""What an effect changed, in numbers."""

from collections.abc import Iterable
from typing import Any

from takeback.adapters.redis.content import type_of
from takeback.adapters.redis.images import Image, same


def receipt_of(pairs: Iterable[tuple[Image, Image]]) -> dict[str, Any]:
    return {"tables": counted(pairs), "schema": []}


def counted(pairs: Iterable[tuple[Image, Image]]) -> dict[str, dict[str, int]]:
    """`{"hash": {"inserted": 1, "updated": 0, "deleted": 0}}`, by the type that the key has or had."""
    tables: dict[str, dict[str, int]] = {}
    for before, after in pairs:
        if same(before, after):
            continue
        verb = "inserted" if before.dump is None else "deleted" if after.dump is None else "updated"
        dump = before.dump if after.dump is None else after.dump
        kind = type_of(dump) if dump else "none"
        numbers = tables.setdefault(kind, {"inserted": 0, "updated": 0, "deleted": 0})
        numbers[verb] += 1
    return tables
