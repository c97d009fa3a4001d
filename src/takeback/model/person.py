"""Who decides, and how that is known."""

from enum import StrEnum
from typing import NamedTuple


class KnownBy(StrEnum):
    KEY = "key"  # a signature with a key that the agent's user cannot read
    USER = "user"  # the kernel or the database says that it is another user than the agent's
    LOGIN = "login"  # a login at the console
    HOST = "host"  # the agent's host says that its user said so
    NOTHING = "not proven"  # the agent runs as the same user, so it could have said so itself


class Person(NamedTuple):
    name: str  # one name for one person: of a user, an account or a key
    known_by: KnownBy = KnownBy.NOTHING
    detail: str = ""  # for a reader: "uid 1000", the fingerprint of a key
    remark: str = ""  # what was typed with --by

    @property
    def is_proven(self) -> bool:
        return self.known_by in (KnownBy.KEY, KnownBy.USER, KnownBy.LOGIN)
