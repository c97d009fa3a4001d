"""Whether an object of the schema is still what a change made of it."""

from takeback.adapters.postgres.adjusting import REPLACED
from takeback.adapters.postgres.definitions import Thing


def all_names(*things: Thing) -> list[str]:
    return list(dict.fromkeys(name for thing in things for name in thing.core))


def three_way(was: Thing | None, became: Thing) -> list[str]:
    """Which attributes must still be what the change left."""
    if was is not None:
        names = [name for name in all_names(was, became) if was.core.get(name) != became.core.get(name)]
        return [*[name for name in names if name != "type"], *_TYPE] if became.kind == "column" else names
    if became.kind == "column":
        return _TYPE
    return [*REPLACED.get(became.kind, ()), "definition", "labels", "attributes", "base"]


_TYPE = ["_type", "_modifier"]


def changed_since(now: Thing, became: Thing, was: Thing | None, name: str) -> bool:
    value = now.doc.get(name)
    return value != became.doc.get(name) and (was is None or value != was.doc.get(name))
