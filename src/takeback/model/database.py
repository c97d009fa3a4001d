"""Which database, as plain data: everything but the password; and who has its rows."""

from typing import Any, NamedTuple

from takeback.errors import Misuse, RowsHeld
from takeback.model.ids import short
from takeback.model.resource import SCHEME, quote

ENGINES = {
    "postgresql": "postgres",
    "postgres": "postgres",
    "sqlite": "sqlite",
    "mariadb": "mariadb",
    "mysql": "mariadb",
    "redis": "redis",
    "rediss": "redis",
    "valkey": "redis",
}
FROM_ENVIRONMENT = "env:"


class Database(NamedTuple):
    """`url` has no password; `source` says where the whole one was found, to be asked again when it is needed.
    `identity` is what the server says of itself: an undo must not go to another database of the same name."""

    engine: str  # the name of the adapter
    url: str
    source: str = ""  # "env:APP_DB", or "" for the url itself and what the driver finds (~/.pgpass, a socket)
    identity: str = ""


def to_json(database: Database) -> dict[str, Any]:
    optional = {"source": database.source, "identity": database.identity}
    said = {name: value for name, value in optional.items() if value}
    return {"engine": database.engine, "url": database.url} | said


def from_json(data: dict[str, Any]) -> Database:
    return Database(data["engine"], data["url"], data.get("source", ""), data.get("identity", ""))


def engine_of(url: str) -> str:
    scheme = url.partition("://")[0].partition("+")[0].lower()
    engine = ENGINES.get(scheme) if "://" in url else None
    if engine is None:
        raise Misuse(
            f"{_safe_to_show(url)} names no database that takeback knows.",
            hint="Known are postgresql://…, sqlite:///file.db, mariadb://… and redis://…; an engine that is not known "
            "is never passed through.",
        )
    return engine


def _safe_to_show(address: str) -> str:
    """An address that cannot be parsed may have its password anywhere, so little of it is shown."""
    scheme, separator, _ = address.partition("://")
    if separator:
        return f"{scheme}://…" if scheme.isalnum() else "The address"
    return "The address" if set(address) & set("@=: ") else repr(address)


def refuse_unclear(url: str) -> None:
    """An address whose password could be taken for its host, path or options by one of those who read it."""
    scheme, _, rest = url.partition("://")
    engine = engine_of(url)
    if engine == "sqlite":
        return
    place, _, query = rest.partition("?")
    authority, _, path = place.partition("/")
    port = authority.rpartition("@")[2].rpartition("]")[2].rpartition(":")[2]
    unclear = "@" in path or ("#" in rest and engine != "postgres")
    unclear |= "@" in query and "@" not in authority and ":" in authority and not port.isdigit()
    unclear |= (
        engine == "postgres" and authority.count("@") > 1
    )  # its driver takes the first, others the last
    if unclear:
        raise Misuse(
            f"The address {scheme}://… has a character in its password that means something else there.",
            hint="Write / as %2F, ? as %3F, # as %23, @ as %40 and % as %25 in a user name or password.",
        )


def without_password(url: str) -> str:
    """For people and for the journal. What stands between the first colon of the user part and the last @ goes, and
    whatever a query hands over as a password."""
    scheme, separator, rest = url.partition("://")
    if not separator:
        return url
    rest, mark, query = rest.partition("?")
    authority, slash, path = rest.partition("/")
    user, at, host = authority.rpartition("@")
    if at:
        authority = f"{user.partition(':')[0]}@{host}"
    kept = [
        pair
        for pair in query.split("&")
        if pair and pair.partition("=")[0].lower() not in ("password", "passwd", "sslpassword", "pwd")
    ]
    tail = mark + "&".join(kept) if kept else ""
    return f"{scheme}://{authority}{slash}{path}{tail}"


def resource_of(database: Database, *inner: str) -> str:
    """`postgresql://host:5432/app/public.users/id=42`: without user name and options, so that every address of a
    database gives the same URI."""
    scheme, _, rest = database.url.partition("://")
    rest = rest.partition("?")[0]
    authority, slash, path = rest.partition("/")
    host = authority.rpartition("@")[2]
    return "/".join((f"{scheme}://{host}{slash}{path}".rstrip("/"), *(_inner(one) for one in inner)))


def _inner(name: str) -> str:
    return quote(name.encode()).replace("/", "%2F")


def target_of(database: Database, effect: str) -> str:
    """The one target of an effect on a database. No two effects have the same, because only the database knows which
    rows they share."""
    return resource_of(database, f"effect:{effect}")


def is_of_database(resource: str) -> bool:
    return resource.partition("://")[0] in ENGINES


def file_of(resource: str) -> str:
    """Of a database that is a file, that file; anything else is what it is."""
    scheme, _, path = resource.partition(":///")
    if ENGINES.get(scheme) != "sqlite":
        return resource
    return SCHEME + path.partition("/effect:")[0]  # quoted in the same way


class Holder(NamedTuple):
    effect: str = ""  # which is held for a decision; empty: an ordinary session
    lasting: bool = False  # held by the database; else by a session, which alone can decide
    session: str = ""  # in words

    @property
    def words(self) -> str:
        return f"effect {short(self.effect)}, which is held for a decision" if self.effect else self.session


def busy(holder: Holder, about: str = "") -> RowsHeld:
    """The error, with the way out."""
    before = f"{about}: " if about else ""
    if not holder.effect:
        return RowsHeld(
            f"{before}others are at work on the same rows, and did not end in time: {holder.session}.",
            hint="Nothing was changed. Try again when they have ended; the setting lock_seconds is how long an "
            "undo waits for others.",
        )
    return RowsHeld(
        f"{before}effect {short(holder.effect)} is held for a decision, and has what this would change.",
        hint=f"Nothing was changed. {way_out(holder)}",
        effect=holder.effect,
    )


def way_out(holder: Holder) -> str:
    name = short(holder.effect)
    if holder.lasting:
        return (
            f"`takeback apply {name}` commits it, `takeback discard {name}` drops it, once its run has ended; until "
            "then that run decides. Then try again."
        )
    return "Its session applies or discards it; else it is dropped when its time is over."
