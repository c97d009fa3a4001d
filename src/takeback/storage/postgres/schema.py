"""The tables and functions of a store, in numbered steps: each is applied once, in order, alone. The functions that
append are made anew after the last of them."""

import os
from functools import cache
from typing import Any

from takeback.errors import Corrupt, FormatTooNew
from takeback.storage.postgres.connecting import SCHEMA, Address

_STEPS = "schema"
_PROJECTS = 7  # the step since which effects belong to projects


@cache
def steps() -> tuple[str, ...]:
    directory = os.path.join(os.path.dirname(__file__), _STEPS)
    found: list[str] = []
    for name in sorted(os.listdir(directory)):
        with open(os.path.join(directory, name), encoding="utf-8") as file:
            found.append(file.read())
    return tuple(found)


@cache
def appending() -> str:
    with open(os.path.join(os.path.dirname(__file__), "append.sql"), encoding="utf-8") as file:
        return file.read()


def version_of(connection: Any, address: Address) -> int | None:
    """None: there is no store."""
    found = connection.execute("select to_regclass(%s)", (f"{address.schema}.store",)).fetchone()
    if found[0] is None:
        return None
    row = connection.execute(f"select version from {address.schema}.store".encode()).fetchone()
    if row is None:
        raise Corrupt(
            f"The store at {address.shown} does not say which version it is.",
            hint="Restore it from a backup.",
        )
    return row[0]


def bring_up_to_date(connection: Any, address: Address) -> None:
    """Makes the store if there is none."""
    refuse_newer(version_of(connection, address), address)
    if version_of(connection, address) == len(steps()):
        return
    connection.execute(b"begin")
    try:
        # Of several that open it at once one makes it and the others wait.
        connection.execute(
            "select pg_advisory_xact_lock(hashtext('takeback store'), hashtext(%s))", (address.schema,)
        )
        version = version_of(connection, address)
        refuse_newer(version, address)
        if version is None:
            connection.execute(f"create schema if not exists {address.schema}".encode())
        for step in (*steps()[version or 0 :], appending()):
            connection.execute(step.replace(f"{SCHEMA}.", f"{address.schema}.").encode())
        if version is not None and version < _PROJECTS:
            _derive_projects(connection, address)
        connection.execute(f"update {address.schema}.store set version = {len(steps())}".encode())
        connection.execute(b"commit")
    except BaseException:
        if not connection.closed:
            connection.execute(b"rollback")
        raise


def _derive_projects(connection: Any, address: Address) -> None:
    """For effects of before: by what they touched. All of them are listed first."""
    from takeback.storage.postgres.database import Session
    from takeback.storage.scopes import derive

    connection.execute(f"set local search_path = {address.schema}, pg_catalog".encode())
    connection.execute(b"select list_all(false)")
    derive(Session(connection))


def refuse_newer(version: int | None, address: Address) -> None:
    if version is not None and version > len(steps()):
        raise FormatTooNew(
            f"The store at {address.shown} was written by a newer takeback (version {version}, this one knows "
            f"{len(steps())}).",
            hint="Upgrade takeback; nothing was touched.",
        )
