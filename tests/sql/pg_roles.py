"""Roles of a test's database that are no superusers."""

from contextlib import closing

from tests.servers.postgres import PgDatabase

_PASSWORD = "x"


def _role(database: PgDatabase, name: str) -> str:
    """Roles are the server's: those of an earlier test are still there. The address."""
    with closing(database.connect()) as admin:
        admin.execute(
            f"do $$ begin create role {name} login password '{_PASSWORD}';"
            " exception when duplicate_object then null; end $$"
        )  # pyright: ignore
    return database.server.url(database.name, name, _PASSWORD)


def owner_of(database: PgDatabase) -> str:
    """Of the database and of what is made there."""
    url = _role(database, "tiers_owner")
    with closing(database.connect()) as admin:
        admin.execute(f'alter database "{database.name}" owner to tiers_owner')  # pyright: ignore
        admin.execute("alter schema public owner to tiers_owner")
    return url


def guest_of(database: PgDatabase) -> str:
    """Owns nothing; what it may do is granted by the test."""
    return _role(database, "tiers_guest")
