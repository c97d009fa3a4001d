"""Who decides, and how that is known."""

from enum import StrEnum
from typing import NamedTuple


class KnownBy(StrEnum):
    KEY = "key"  # a signature with a key that the agent's user cannot read
    USER = "user"  # the kernel or the database says that it is another user than the agent's
    LOGIN = "login"  # a login at the console
    HOST = "host"  # the agent's host says that its user said so
    NOTHING = "not proven"  # the agent runs as the same user, so it could have said so itself


class Account(NamedTuple):
    """Under which account a process works: what its kernel and its database say."""

    machine: str = ""
    uid: int = -1
    role: str = ""  # of a database that holds the store

    def in_words(self) -> str:
        return f"PostgreSQL role {self.role}" if self.role else f"uid {self.uid}"


class Person(NamedTuple):
    name: str  # one name for one person: of a user, an account or a key
    known_by: KnownBy = KnownBy.NOTHING
    detail: str = ""  # for a reader: "uid 1000", the fingerprint of a key
    remark: str = ""  # what was typed with --by
    role: str = ""  # of the database that holds the store, where that is the account

    @property
    def is_proven(self) -> bool:
        return self.known_by in (KnownBy.KEY, KnownBy.USER, KnownBy.LOGIN)

    def in_words(self) -> str:
        """For a reader: the name, and what it rests on."""
        if self.is_proven:
            return self.name
        said = f"{self.known_by.value}, gave the name {self.remark}" if self.remark else self.known_by.value
        return f"{self.name} ({said})" if self.name else self.remark or "someone"


def recorded(person: Person) -> dict[str, str]:
    """As records have it."""
    told = {
        "by": person.name,
        "known_by": person.known_by.value,
        "detail": person.detail,
        "remark": person.remark,
        "role": person.role,
    }
    return {name: value for name, value in told.items() if value}


def person_recorded(body: dict[str, str]) -> Person:
    """From a record of any age; of old ones only the typed name is known."""
    known = body.get("known_by", KnownBy.NOTHING.value)
    known_by = KnownBy(known) if known in set(KnownBy) else KnownBy.NOTHING
    return Person(
        body.get("by", ""), known_by, body.get("detail", ""), body.get("remark", ""), body.get("role", "")
    )
