"""Who the person of this process is, and how that is known."""

import os
import pwd
from typing import TYPE_CHECKING

from takeback.model.person import Account, KnownBy, Person
from takeback.storage.owners import machine

if TYPE_CHECKING:
    from takeback.storage.store import Store


def account_here(store: "Store") -> Account:
    """The real uid: `sudo takeback` opens the store of its owner in the name of that owner."""
    return Account(machine(), os.getuid(), store.role)


def person_here(store: "Store", remark: str = "", agent: Account | None = None) -> Person:
    """The person of this process. `agent`: the account that asked; without it that of the store's owner. The name
    is that of the account, never what was typed."""
    here = account_here(store)
    if here.role:
        # The server says who is connected; another role of the agent's would be a gift of its administrator.
        other = agent is not None and bool(agent.role) and agent.role != here.role
        known_by = KnownBy.USER if other else KnownBy.NOTHING
        return Person(here.role, known_by, here.in_words(), remark, here.role)
    owner = owner_of(store)  # an agent that works as this user may have written another into its proposal
    asked = agent.uid if agent is not None and agent.machine == here.machine else owner.uid
    other = owner.uid != -1 and here.uid not in (owner.uid, asked)
    return Person(_name_of(here.uid), KnownBy.USER if other else KnownBy.NOTHING, here.in_words(), remark)


def owner_of(store: "Store") -> Account:
    """Every process that writes to a store on disk works as its owner."""
    try:
        return Account(machine(), os.stat(store.path).st_uid)
    except OSError:
        return Account()


def _name_of(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid {uid}"
