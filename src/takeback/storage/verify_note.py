"""A note beside a store: when it was last verified, and what was found. Of this machine, and only a note."""

import json
import os
from contextlib import suppress
from typing import NamedTuple

from takeback.errors import TakebackError
from takeback.storage import disk

NAME = "VERIFIED"


class LastVerified(NamedTuple):
    at: int  # microseconds since 1970
    findings: int
    first: str = ""  # of these
    read_data: bool = False  # every blob was read, too


def last_verified(path: str) -> LastVerified | None:
    try:
        with open(os.path.join(path, NAME), encoding="utf-8") as file:
            at, findings, first, read_data = json.load(file)
            return LastVerified(int(at), int(findings), str(first), bool(read_data))
    except (OSError, ValueError, TypeError):
        return None


def note_verified(path: str, found: LastVerified) -> None:
    """Nothing fails because it cannot be noted."""
    with suppress(OSError, TakebackError):
        disk.write_file(os.path.join(path, NAME), json.dumps(found).encode() + b"\n")
