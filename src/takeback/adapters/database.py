"""The protocol of database adapters beyond `Adapter`, and the keyring that finds addresses again."""

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

from takeback.adapters.protocol import FoundChange
from takeback.errors import Misuse, Refused, ResourceUnreachable
from takeback.model.change import Change, Staged
from takeback.model.database import (
    FROM_ENVIRONMENT,
    Database,
    engine_of,
    from_json,
    refuse_unclear,
    resource_of,
    target_of,
    to_json,
    without_password,
)
from takeback.model.effect import Effect
from takeback.model.plan import Obstacle, Outcome, Sighting, Standing, TargetOutcome, TargetSighting
from takeback.model.remedy import Offer, Remedy, Strategy, Target

DATABASE = "database"  # in the arguments of a change, and in the payload of a remedy
MOST = "most"  # in the arguments of a change
NO_SOCKET = "a sandbox cannot reach the socket of a server"


class DatabaseAdapter:
    """What every database has in common: one target for each effect, which is there or not."""

    name: str
    version = 1

    def stage(self, effect: Effect, named: bool) -> tuple[Staged, ...]:
        return ()

    def capture(self, effect: Effect, offer: Offer) -> Remedy:
        database = database_of(effect)
        target = Target(target_of(database, effect.id), {"there": False}, {"there": True})
        payload = {DATABASE: to_json(database)}
        return Remedy(self.name, self.version, Strategy.SNAPSHOT, (target,), payload)


def database_of(effect: Effect) -> Database:
    if effect.remedy and DATABASE in effect.remedy.payload:
        return from_json(effect.remedy.payload[DATABASE])
    return asked_for(effect.change, effect.of)


def asked_for(change: Change, of: Effect | None) -> Database:
    """An undo goes where the effect was made."""
    if of is not None:
        return database_of(of)
    if DATABASE in change.args:
        return from_json(change.args[DATABASE])
    raise Misuse("This change names no database.", hint="Its arguments must say which one it is.")


def sighted(effect: Effect, receipt: dict[str, Any] | None, held: bool = False) -> Sighting:
    """The standing by the marker. `receipt`: what the marker holds, None without a marker. `held`: it waits for a
    decision."""
    there = receipt is not None
    standing = Standing.AFTER if there else Standing.BETWEEN if held else Standing.BEFORE
    target = TargetSighting(target_of(database_of(effect), effect.id), standing, {"there": there})
    return Sighting(standing, targets=(target,), receipt=receipt or {})


def obstructed(
    database: Database, why: str, *inner: str, what: Obstacle = Obstacle.OTHER, effect: str = ""
) -> TargetOutcome:
    """Of an undo; `inner` names the table, and the row if it is one."""
    resource = resource_of(database, *filter(None, inner))
    return TargetOutcome(resource, Outcome.CONFLICT, why, effect, obstacle=what)


def found_with(effect: Effect, receipt: dict[str, Any] | None) -> FoundChange | None:
    """Of a program that has ended. None: it changed nothing."""
    return None if receipt is None else FoundChange(effect.change, receipt)


def frozen(data: Any) -> Any:
    """Read from JSON, with tuples for lists."""
    return tuple(map(frozen, data)) if isinstance(data, list) else data  # pyright: ignore


def most_of(effect: Effect) -> int:
    """0: no limit."""
    return effect.change.args.get(MOST, 0)


def refuse_too_many(most: int, tables: Mapping[str, Mapping[str, int]]) -> None:
    rows = sum(sum(counts.values()) for counts in tables.values())
    if most and rows > most:
        raise _too_many(
            f"It changed {rows:,} rows", most, "Nothing was changed: the transaction was rolled back."
        )


def refuse_too_many_keys(most: int, keys: int) -> None:
    """Before it is made: where nothing can be rolled back."""
    if most and keys > most:
        raise _too_many(f"It may change {keys:,} keys", most, "Nothing was changed.")


def _too_many(what: str, most: int, state: str) -> Refused:
    return Refused(
        f"{what}, and no more than {most:,} were declared.",
        hint=f"{state} If that many are meant, say so first: `takeback sql exec --max-rows N`, or "
        "`takeback config set max_rows N` (0: no limit).",
    )


LENGTH = 100
# What is in quotes, single or double: what is a name for one engine is a text for another. Where engines do not agree
# even about its end (a backslash in it, an odd apostrophe in brackets), all the rest of the statement is hidden.
_HIDDEN = re.compile(
    r"""(?P<string>[EeNnXxBb]?'(?:[^'\\]|'')*(?:'|\Z))"""
    r"""|(?P<name>"(?:[^"\\]|"")*(?:"|\Z))"""
    r"""|(?P<rest>(?:'(?:[^'\\]|'')*|"(?:[^"\\]|"")*)\\.*\Z|\[[^\]']*'(?:[^\]']*'[^\]']*')*[^\]']*\].*\Z)"""
    r"""|(?P<tick>`[^`]*(?:`|\Z))"""
    r"""|(?P<dollar>\$(\w*)\$.*?(?:\$\6\$|\Z))"""
    r"""|(?P<comment>--[^\n]*|/\*.*?(?:\*/|\Z))""",
    re.DOTALL,
)
_MOST = 100_000  # characters that are looked at: no more of it would be shown
_BLANK = re.compile(r"\s+")


def summary(statement: str) -> str:
    shown = _BLANK.sub(" ", _HIDDEN.sub(_stand_in, statement[:_MOST])).strip().rstrip(";").strip()
    return shown if len(shown) <= LENGTH else f"{shown[: LENGTH - 1]}…"


def first_words(statement: str, count: int = 1) -> str:
    """In capitals, comments left out: what kind of statement it seems to be. Good for messages and for the order in
    which things are tried, never for what may be done."""
    plain = _HIDDEN.sub(lambda found: " " if found["comment"] else found[0], statement[:_MOST])
    return " ".join(re.findall(r"[A-Za-z_]+", plain[:400])[:count]).upper()


def _stand_in(found: re.Match[str]) -> str:
    if found["comment"]:
        return " "
    if found["tick"]:
        return found[0] if "'" not in found[0] and '"' not in found[0] else "`…`"
    return '"…"' if found["name"] else "'…'"


SECONDS = 10


def _silently(words: str) -> None:
    """Report to no one."""


class Waiting(NamedTuple):
    """How long a statement waits for locks of changes that takeback holds for a decision, because these may never end.
    For others it waits as any client does. An undo never waits longer than this."""

    seconds: int = SECONDS  # 0: no limit
    tell: Callable[[str], None] = _silently  # for a person, while it waits


USUAL = Waiting()


class Keyring:
    """Addresses with passwords: those given to this process, and those of the environment. One for each open store."""

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
    """For an effect of another process with a written-out address: one in TAKEBACK_SQL of the same database, with any
    user, because undo may need the owner of the rows."""
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


Tell = Callable[[str, str], None]  # what happened, and what to do about it; by any thread


GiveUp = Callable[[], None]  # records that ways back go


def quiet(sentence: str, hint: str) -> None:
    """Report to no one."""


def nothing_to_give_up() -> None:
    """There is no way back that could go."""


class Rows(NamedTuple):
    rows: tuple[tuple[Any, ...], ...] = ()
    columns: tuple[str, ...] = ()
    rowcount: int = -1


class RowChange(NamedTuple):
    """One row of an effect, for people: what it was and what it became. None: it was not there."""

    table: str  # "public.users"; for Redis the type of the key
    key: str  # "id=42"; "" for a table without a key
    before: dict[str, str | None] | None  # column to text; None in it is NULL
    after: dict[str, str | None] | None


class Attachment(NamedTuple):
    """When the triggers of protected tables are attached, for engines that choose."""

    always: tuple[str, ...] = ()  # tables that have them whether a run works or not
    now: tuple[str, ...] = ()  # tables that have them only for now
    # Who needs those, in words; empty: they were left, and the next change removes them.
    users: tuple[str, ...] = ()


class Cover(NamedTuple):
    """How a database is protected, as `takeback sql doctor` shows it."""

    tier: str  # full | owner | guest; "" where an engine knows no tiers
    protected: tuple[str, ...]
    unprotected: tuple[tuple[str, str], ...]  # name, and why
    says: tuple[str, ...] = ()  # what is and is not covered, one sentence each
    attachment: Attachment | None = None


class DatabaseSession(Protocol):
    """One connection, on which whatever is changed belongs to an effect. Not thread-safe; the run has a lock."""

    answers: tuple[Rows, ...]  # of each execute, where an engine tells only when it commits; else empty

    @property
    def database(self) -> Database:
        """As found: with identity."""
        ...

    def summary(self, statement: str, parameters: Any) -> str:
        """One line without any data of users."""
        ...

    def read(self, statement: str, parameters: Any) -> Rows | None:
        """Run it where nothing can be changed. None: it would change something, and nothing has happened."""
        ...

    def begin(self, effect: Effect) -> None:
        """A transaction, the marker of the effect first in it."""
        ...

    def execute(self, statement: str, parameters: Any, many: bool = False) -> Rows:
        """Inside the transaction; `many`: once for each of the parameters. An error of the database is raised as
        `StatementFailed` and leaves the transaction to be rolled back."""
        ...

    def commit(self) -> dict[str, Any] | None:
        """Checked first that everything was captured; else rolled back and `NoRemedy`. The receipt: what was changed,
        in numbers. None: nothing was, and the marker went with the rollback. Raises `InDoubt` when the answer of the
        database was lost."""
        ...

    def rollback(self) -> None: ...

    def close(self) -> None: ...


PREPARED = "prepared"
OPEN = "open"


class Reviewed(NamedTuple):
    """The changes of an open transaction, before others see them."""

    # What `commit` would tell; None: nothing was changed, and it was rolled back.
    receipt: dict[str, Any] | None
    rows: Iterable[RowChange] = ()  # they cannot be read later, until the change is kept
    how: str = OPEN  # "prepared": held by the database, also after our end; "open": by this session


@runtime_checkable
class Reviewing(Protocol):
    """A session whose transactions can wait for a person. For an effect that waits so, the adapter's `verify` says
    between, `apply` commits it, and `tidy` (as long as it is proposed) and `undo` roll it back."""

    def review(self) -> Reviewed:
        """Instead of `commit`, and with the same checks."""
        ...

    def hold(self, effect: Effect, seconds: float) -> None:
        """Let it wait; an open one is rolled back after so many seconds, whatever becomes of this process."""
        ...


@runtime_checkable
class Databases(Protocol):
    """An adapter for databases; it is `Relating` too."""

    def connect(self, database: Database) -> DatabaseSession:
        """Raises `Refused` if changes could not be captured, `ResourceUnreachable` if the server does not answer."""
        ...

    def rows(self, effect: Effect) -> Iterator[RowChange]: ...

    def cover(self, database: Database) -> Cover: ...

    def protect(self, database: Database, tables: Sequence[str]) -> Cover:
        """Install the capture for these tables, or for all when none is named. Twice is once."""
        ...

    def unprotect(
        self, database: Database, tables: Sequence[str], give_up: GiveUp = nothing_to_give_up
    ) -> Cover:
        """Remove the capture. The log is removed only if all tables are unprotected. `give_up` is called at the last
        moment at which every way back still exists; if it raises, they stay."""
        ...

    def lost_by_unprotect(
        self, database: Database, tables: Sequence[str], effects: Sequence[Effect]
    ) -> Sequence[Effect]:
        """Of these effects, those whose way back would go. Effects of other databases are among them."""
        ...


@runtime_checkable
class Attaching(Protocol):
    """An adapter whose triggers are attached while a run works, or always."""

    def attach_when(self, database: Database, tables: Sequence[str], always: bool) -> Cover:
        """Protect these tables, or all, and choose when they have their triggers."""
        ...


@runtime_checkable
class Programs(Protocol):
    """An adapter that records what a program with its own driver changes. It is a `Watcher` too: after a crash, `found`
    of an effect of kind "program" does what `leave` would have done."""

    def enter(self, effect: Effect, tell: Tell = quiet) -> Mapping[str, str]:
        """From now on, durably, changes of the program belong to this effect. Returns the variables to start the
        program with; without them it cannot be distinguished from other programs. `tell` reports, while it runs, what
        it was kept from."""
        ...

    def leave(self, effect: Effect) -> dict[str, Any] | None:
        """The program has ended: none of its sessions lives any more, nor can one begin. The receipt; None if nothing
        was changed. Twice is once. `Unavailable` while it is still at work."""
        ...

    def out_of_reach(self, database: Database) -> str:
        """Why a program in a sandbox could not work in this database; empty if it could."""
        ...
