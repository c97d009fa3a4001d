"""Which file an address means: `sqlite:///relative.db`, `sqlite:////absolute.db`."""

import os
import re

from takeback.errors import Misuse
from takeback.model.database import Database
from takeback.model.resource import quote

_START = "sqlite:///"
_QUOTED = re.compile(rb"%([0-9A-Fa-f]{2})")


def resolved(database: Database) -> Database:
    """By the absolute path, links followed: two ways to one file are one database."""
    return database._replace(url=_START + quote(os.fsencode(os.path.realpath(path_of(database)))))


def path_of(database: Database) -> str:
    scheme, _, rest = database.url.partition("://")
    rest, _, query = rest.partition("?")
    path = rest[1:]
    if scheme.lower().partition("+")[0] != "sqlite" or not rest.startswith("/"):
        raise Misuse(
            f"{database.url!r} names no file.",
            hint="sqlite:///app.db is a file in this directory, sqlite:////srv/app.db an absolute path.",
        )
    if not path or path.startswith(":memory:"):
        raise Misuse(
            "A SQLite database in memory cannot be taken back later: it ends with its process.",
            hint="Name a file: sqlite:///app.db.",
        )
    if query:
        raise Misuse(f"Options in a SQLite address are not known: {query}.", hint="Name the file alone.")
    return os.fsdecode(_QUOTED.sub(lambda found: bytes.fromhex(found[1].decode()), os.fsencode(path)))
