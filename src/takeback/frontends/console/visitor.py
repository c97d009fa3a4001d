"""Who is signed in at the console, and what that role may do."""

from enum import StrEnum
from typing import NamedTuple

from takeback.model.person import Person, recorded


class Role(StrEnum):
    """Each may do what those before it may."""

    VIEWER = "viewer"  # looks
    APPROVER = "approver"  # approves, denies and stops
    OPERATOR = "operator"  # takes back, brings back, settles, recovers

    def may(self, needed: "Role") -> bool:
        ranks = list(Role)
        return ranks.index(self) >= ranks.index(needed)


class Visitor(NamedTuple):
    person: Person
    role: Role
    session: str  # digest of the cookie
    csrf: str  # comes back with each form

    @property
    def said(self) -> dict[str, str]:
        """As a record keeps it."""
        return {**recorded(self.person), "role": self.role.value}
