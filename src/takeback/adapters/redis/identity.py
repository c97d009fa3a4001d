"""Which database it is: a number of one may name another one tomorrow, and a server has no name of its own."""

from takeback.adapters.redis.link import Link
from takeback.adapters.redis.marks import ID
from takeback.errors import Refused, TakebackError
from takeback.model.database import Database, without_password
from takeback.model.ids import new_id


def identity(link: Link) -> str:
    """Written before takeback changes something there first. "" where nothing may be written: then nothing is
    changed either."""
    if link.identity is None:
        try:
            found = _read(link)
            if not found:
                link.one("SET", ID, new_id(), "NX")
                found = _read(link)
            link.identity = found
        except TakebackError:
            return ""
    return link.identity


def refuse_another(link: Link, database: Database, url: str) -> None:
    """A server that crashed may have lost the key with all else: then the address must do."""
    if not database.identity or link.identity == database.identity:
        return
    found = _read(link)
    if found == database.identity:
        link.identity = found
    elif found or without_password(url) != database.url:
        raise Refused(
            f"{database.url} is another database than the one that was changed.",
            hint="Nothing was changed. Give the address of the first one (the variable, the host or the port may have "
            "changed), if it was not emptied since.",
        )


def _read(link: Link) -> str:
    return (link.one("GET", ID) or b"").decode("utf-8", "replace")
