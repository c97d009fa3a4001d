"""Where the whole address of a database is found again: never in the journal."""

import os

from takeback.errors import Misuse, Refused, ResourceUnreachable
from takeback.model.database import (
    FROM_ENVIRONMENT,
    Database,
    engine_of,
    refuse_unclear,
    resource_of,
    without_password,
)


class Keyring:
    """What this process was told, and what the environment says. One for each store that is open."""

    def __init__(self) -> None:
        self._told: dict[str, str] = {}

    def named(self, address: str) -> Database:
        """`postgresql://…`, or `env:APP_DB`: the address is in that variable, now and whenever it is needed again."""
        source = address if address.startswith(FROM_ENVIRONMENT) else ""
        url = _from_environment(source) if source else address
        refuse_unclear(url)
        database = Database(engine_of(url), without_password(url), source)
        if not source:
            self._told[database.url] = url
        return database

    def url(self, database: Database) -> str:
        """With the password, if one is known."""
        if database.source:
            return _of_engine(database, _from_environment(database.source))
        return self._told.get(database.url) or _among_addresses(database) or database.url


def _among_addresses(database: Database) -> str:
    """For an effect that another process made, with an address written out: one of the same database, whoever comes in
    by it, for rows may have to be put back by their owner."""
    for url in os.environ.get("TAKEBACK_SQL", "").split():
        found = Database(engine_of(url), without_password(url))
        if found.engine == database.engine and _place(found) == _place(database):
            return url
    return ""


def _place(database: Database) -> str:
    return resource_of(database).partition("://")[2]


def _of_engine(database: Database, url: str) -> str:
    if engine_of(url) != database.engine:
        raise Refused(
            f"The variable {database.source.removeprefix(FROM_ENVIRONMENT)} now names a database of another kind "
            f"than {database.url}.",
            hint="Nothing was changed. Set it to the address of the database that was changed, and try again.",
        )
    return url


def _from_environment(source: str) -> str:
    name = source.removeprefix(FROM_ENVIRONMENT)
    if not name:
        raise Misuse("`env:` names no variable.", hint="For example env:APP_DB.")
    url = os.environ.get(name, "")
    if not url:
        raise ResourceUnreachable(
            f"The address of the database is in the variable {name}, which is not set.",
            hint=f"Set {name} to the address, such as postgresql://user:password@host/database, and try again.",
        )
    return url
