"""What commands in a box have exported. Variables often hold secrets, and records are for ever: so a record names only
a blob, which goes when the effect is forgotten and the box stands elsewhere."""

import json
import os
from collections.abc import Mapping

from takeback.errors import Corrupt
from takeback.model.resource import quote, unquote
from takeback.storage.protocols import Blobs

Variables = Mapping[str, str | None]  # None: taken away


def put_variables(blobs: Blobs, found: Variables) -> str:
    """The digest under which they are found again; empty for none. Salted: nobody can guess a value and compare."""
    if not found:
        return ""
    told = {_told(name): None if value is None else _told(value) for name, value in sorted(found.items())}
    return blobs.put(json.dumps({"salt": os.urandom(16).hex(), "env": told}).encode("ascii"))


def read_variables(blobs: Blobs, digest: str) -> dict[str, str | None]:
    if not digest:
        return {}
    try:
        told: dict[str, str | None] = json.loads(b"".join(blobs.read(digest)))["env"]
        return {_meant(name): None if value is None else _meant(value) for name, value in told.items()}
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise Corrupt(
            "The variables of a box are not readable.", hint="`takeback verify` shows the extent."
        ) from error


def _told(text: str) -> str:
    return quote(os.fsencode(text))


def _meant(text: str) -> str:
    return os.fsdecode(unquote(text))
