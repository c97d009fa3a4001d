"""FLUSHDB and FLUSHALL: every key that is there is put aside in one step, and captured from there."""

from takeback.adapters.redis.link import Link
from takeback.adapters.redis.marks import OWN
from takeback.errors import Refused


def refuse_flush(link: Link, name: str) -> None:
    if name == "flushall":
        _refuse_other_databases(link)


def _refuse_other_databases(link: Link) -> None:
    told: bytes = link.one("INFO", "keyspace")
    filled = [line for line in told.decode().splitlines() if line.startswith("db")]
    if len(filled) > 1:
        raise Refused(
            f"FLUSHALL is refused: {len(filled)} databases of this server hold keys, and only the one in the address "
            "is captured.",
            hint="Nothing was changed. Use FLUSHDB in each of them.",
        )


def count(link: Link, most: int) -> int:
    """How many keys would go; not more exactly than it takes to see that they are more than `most`."""
    if not most or int(link.one("DBSIZE")) <= most:
        return 0
    cursor, found = b"0", set[bytes]()
    while True:
        cursor, keys = link.one("SCAN", cursor, "COUNT", 1000)
        found.update(key for key in keys if not key.startswith(OWN))
        if cursor == b"0" or len(found) > most:
            return len(found)
