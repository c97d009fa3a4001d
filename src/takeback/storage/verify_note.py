"""A note outside a store: when it was last verified, and what was found. Of this machine, and only a note; verifying
changes nothing in the store."""

import json
from typing import NamedTuple

from takeback.storage.notes import write_outside


class LastVerified(NamedTuple):
    at: int  # microseconds since 1970
    findings: int
    first: str = ""  # of these
    read_data: bool = False  # every blob was read, too


def last_verified(note: str) -> LastVerified | None:
    try:
        with open(note, encoding="utf-8") as file:
            at, findings, first, read_data = json.load(file)
            return LastVerified(int(at), int(findings), str(first), bool(read_data))
    except (OSError, ValueError, TypeError):
        return None


def note_verified(note: str, found: LastVerified) -> None:
    """Nothing fails because it cannot be noted."""
    write_outside(note, json.dumps(found).encode() + b"\n")
