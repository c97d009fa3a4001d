"""Databases that others change while we watch: told in rows, not put back as files that are open."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from takeback.adapters.database import Databases, Programs, Tell, found_with, quiet
from takeback.adapters.protocol import FoundChange
from takeback.engine.guards import refuse_own
from takeback.engine.parts import adapter_of
from takeback.engine.settle import abort
from takeback.engine.watch import NOTHING, begin, finish
from takeback.engine.write import Terms
from takeback.errors import NoRemedy, TakebackError
from takeback.model.change import Change
from takeback.model.database import Database, resource_of, to_json
from takeback.model.effect import Effect
from takeback.model.ids import short
from takeback.model.remedy import Target
from takeback.model.resource import display, path_of, quote
from takeback.runs.change import next_key, took_hold
from takeback.runs.core import RunCore

if TYPE_CHECKING:
    from takeback.adapters.sqlite.adapter import SqliteAdapter


PROGRAM = "program"


class SeenProgram(NamedTuple):
    """A program that is being watched: what it must be started with, and what became of it when it has ended."""

    environment: Mapping[str, str]
    effects: list[Effect]
    unchanged: list[str]  # databases where no change of it was seen


class Watched(NamedTuple):
    adapter: Programs
    effect: Effect


@contextmanager
def program(core: RunCore, addresses: Sequence[str], says: str, tell: Tell = quiet) -> Iterator[SeenProgram]:
    """Whether the block ends well or not, what the program changed is recorded."""
    watched: list[Watched] = []
    seen = SeenProgram({}, [], [])
    environment: dict[str, str] = {}
    try:
        for address in addresses:
            one, variables = _entered(core, address, says, tell)
            watched.append(one)
            environment.update(variables)
        yield seen._replace(environment=environment)
    finally:
        for one in watched:
            with core.uninterrupted():
                effect = finish(core.parts, core.lease, one.effect, partial(_found, *one))
            if effect:
                seen.effects.append(effect)
                took_hold(core, effect)
            else:
                seen.unchanged.append(one.effect.change.resource)


def _entered(core: RunCore, address: str, says: str, tell: Tell) -> tuple[Watched, Mapping[str, str]]:
    database = core.parts.named(address)
    adapter = adapter_of(core.parts, database.engine)
    if not isinstance(adapter, Programs) or not isinstance(adapter, Databases):
        raise NoRemedy(
            f"Changes of a program in {database.engine} by itself cannot be captured.",
            hint="Send the statements through `takeback sql exec`.",
        )
    session = adapter.connect(database)
    database = session.database
    session.close()
    refuse_own(core.parts, resource_of(database))
    change = Change(database.engine, PROGRAM, resource_of(database), says, {"database": to_json(database)})
    effect = begin(core.parts, core.lease, change, Terms(key=next_key(core, change), agent=core.agent))
    try:
        return Watched(adapter, effect), adapter.enter(effect, tell)
    except BaseException:
        abort(core.parts, core.lease, adapter_of(core.parts, database.engine), effect, NOTHING)
        raise


def _found(adapter: Programs, effect: Effect) -> FoundChange | None:
    return found_with(effect, adapter.leave(effect))


# Databases in a watched tree that a process has open: restored as files they would break for that process. So the
# changes are found row by row, with the copy of the watch, and are an effect on a database.


_ENDS = ("", "-wal", "-shm", "-journal")
_KEPT = ("", "-wal", "-journal")  # the index of the log is made again


class FoundDatabases(NamedTuple):
    resources: frozenset[str]  # files that are reported as databases
    effects: tuple[Effect, ...] = ()
    sentence: str = ""


def record(core: RunCore, says: str, targets: Sequence[Target], used: Mapping[str, str]) -> FoundDatabases:
    """Record the databases of these files that are `used` (by whom, in words). What has no row changes stays a file."""
    by_name = {one.resource: one for one in targets}
    resources: set[str] = set()
    effects: list[Effect] = []
    told: list[str] = []
    for base in sorted({_base(one) for one in used}):
        if not _is_the_same_file(by_name.get(base)):
            continue
        try:
            effect = _recorded(core, base, by_name, says)
        except TakebackError:
            continue  # it stays a file
        resources |= {base + end for end in _ENDS}
        if effect:
            effects.append(effect)
            why = used.get(base) or next(used[base + end] for end in _ENDS if base + end in used)
            told.append(
                f"{display(base)} {why}: the change of its rows is effect {short(effect.id)}, which stays "
                f"until `takeback undo {short(effect.id)}`."
            )
    return FoundDatabases(frozenset(resources), tuple(effects), " ".join(told))


def _base(resource: str) -> str:
    for end in _ENDS[1:]:
        resource = resource.removesuffix(end)
    return resource


def _is_the_same_file(target: Target | None) -> bool:
    """Changed where it is, and all of it is kept."""
    if target is None or "digest" not in target.before or "digest" not in target.after:
        return False
    odd = ("holes", "excluded", "meta")
    return target.before.get("ino") == target.after.get("ino") and not any(
        one in target.before for one in odd
    )


def _recorded(core: RunCore, base: str, by_name: dict[str, Target], says: str) -> Effect | None:
    database = Database("sqlite", f"sqlite:///{quote(path_of(base))}")
    adapter: SqliteAdapter = adapter_of(core.parts, database.engine)  # pyright: ignore[reportAssignmentType]
    change = Change(database.engine, PROGRAM, resource_of(database), says, {"database": to_json(database)})
    effect = begin(core.parts, core.lease, change, Terms(agent=core.agent, happened=True))
    then = {
        end: core.parts.blobs.read(by_name[base + end].before["digest"])
        for end in _KEPT
        if base + end in by_name and "digest" in by_name[base + end].before
    }

    try:
        adapter.recall(effect, then)
        done = finish(core.parts, core.lease, effect, partial(_found, adapter, effect))
    except TakebackError:
        abort(core.parts, core.lease, adapter, effect, NOTHING)
        raise
    if done:
        took_hold(core, done)
    return done
