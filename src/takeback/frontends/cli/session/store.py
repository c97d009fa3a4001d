"""The store a command works on, and the lasting run that the commands of a person share."""

import os
import sys
from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import takeback.api
from takeback.api import Takeback, now, opened_of
from takeback.api.upkeep import settle_first, stay_within_limits
from takeback.errors import Corrupt, Misuse, Refused
from takeback.frontends.cli.command import Asked
from takeback.frontends.cli.output.errors import printable
from takeback.frontends.cli.output.screen import clean, counted, listed, local_time, seconds_in_words, warn
from takeback.frontends.cli.session.project import LazyScope
from takeback.model.effect import COMMAND, Effect, State
from takeback.model.ids import SHORT, short
from takeback.model.progress import SILENT, Progress
from takeback.model.run import OnDeath, RunInfo
from takeback.model.settings import bytes_in_words
from takeback.runs.selection import id_of
from takeback.storage.owners import myself
from takeback.storage.protocols import Query
from takeback.storage.sqlite.store import (
    default_path,
    exists,
    is_half_made,
    local_path,
    meant_path,
    was_there,
)

if TYPE_CHECKING:
    from takeback.runs.run import Run
    from takeback.storage.notes import GivenUp

SESSION = "command line"
AGENT = "cli"
WAIT_SECONDS = 10  # for another command that is at work in the same run


def is_of_command_line(info: RunInfo) -> bool:
    """Whether it holds the changes of single commands in one directory; it stays open for the next one there."""
    return info.on_death is OnDeath.LEAVE and info.name.startswith(SESSION)


def store_path(asked: Asked) -> str:
    return meant_path(asked.options.store or "") or default_path()


def local_store(options: Namespace) -> str:
    """Where its daemon would be."""
    return local_path(meant_path(options.store or "") or default_path())


def own_directory(asked: Asked) -> str:
    """Of the store, on this machine."""
    return local_path(store_path(asked))


def nothing_yet(asked: Asked) -> bool:
    """Whether there is no store: looking must not make one. One that was removed is not an empty history."""
    path = store_path(asked)
    if is_half_made(path):
        return True
    if exists(path):
        return False
    if removed := was_there(os.path.abspath(path)):
        raise Corrupt(
            removed,
            hint="Restore it from a backup. `takeback store make` starts a new, empty one in its place.",
        )
    if os.path.lexists(path) and (not os.path.isdir(path) or os.listdir(path)):
        raise Misuse(
            f"{clean(printable(path))} is no takeback store.",
            hint="Give the directory of a store, or none for the usual one.",
        )
    return True


def nothing_recorded(asked: Asked) -> str:
    path = store_path(asked)
    if is_half_made(path):
        shown = clean(printable(path))
        return f"Nothing recorded yet: the store at {shown} is half made. The first change completes it."
    return f"Nothing recorded yet: there is no store at {clean(printable(path))}."


def tell_nothing(asked: Asked, empty: object) -> int:
    """There is no store. That is an answer if no one named one; a wrong name is an error."""
    path, named = store_path(asked), "--store" if asked.options.store else "TAKEBACK_STORE"
    if not is_half_made(path) and (asked.options.store or os.environ.get("TAKEBACK_STORE")):
        raise Refused(
            f"There is no store at {clean(printable(path))}.",
            hint=f"Check {named}; the first change, or `takeback store make`, makes one.",
        )
    return done_with_nothing(asked, empty)


def done_with_nothing(asked: Asked, empty: object) -> int:
    """For upkeep: where there is no store, there is nothing to recover or to delete."""
    asked.screen.say(nothing_recorded(asked))
    asked.screen.give(empty)
    return 0


@contextmanager
def opened(asked: Asked, known: Callable[[Takeback], object] | None = None) -> Iterator[Takeback]:
    """The store. For a command that changes something, what a crash left is settled and told first, but only after
    `known` has judged the names it was given. For one that looks nothing is settled."""
    with takeback.api.open(store_path(asked), recover=False) as tb:
        if tb.store.replaces:
            warn(f"{clean(tb.store.replaces)} A new, empty store was made in its place.")
        elif lost := tb.store.lost():
            warn(f"{clean(lost)} If it was restored from a backup: `takeback store trust`.")
        if tb.store.hook_note and os.path.exists(tb.store.hook_note):
            _tell_noticed(tb)
        show_work(asked, tb)
        opened_of(tb).here = LazyScope(asked, tb)
        if known:
            known(tb)
        if not asked.looking:
            settle_first(opened_of(tb), asked.calls)
            tell_recovered(tb)
        try:
            yield tb
        finally:
            # Effects that this command gave up to make room. Those not reported here stay noted for `status`.
            if tb.given_up and asked.screen.speaks:
                from takeback.storage.notes import was_told

                for line in given_up_in_words(tb.given_up):
                    warn(f"takeback: {line}")
                was_told(tb.store.path, [one.effect for one in tb.given_up])


def _tell_noticed(tb: Takeback) -> None:
    """What someone did to the store, to the hooks or to their daemon, as far as it shows."""
    from takeback.frontends.agents.evidence import daemon_trouble, kept, settings_troubles

    found = kept(tb.store.hook_note)
    with suppress(OSError):  # the current directory does not exist any more
        told = [
            *tb.store.altered(),
            *settings_troubles(found, os.getcwd(), os.environ),
            daemon_trouble(found, tb.store.path),
        ]
        told += [
            f"{one.words} (noticed {local_time(one.at, now())})"
            for one in found.noticed
            if one.words not in told
        ]
        lost = tb.store.lost()
        for words in filter(None, told):
            if not lost or not words.startswith(lost):
                warn(f"takeback: {clean(words)}")


def show_work(asked: Asked, tb: Takeback) -> None:
    """Show waits and the progress of long work; drawn only for a person at a terminal."""
    progress: Progress = SILENT
    shown = bool(sys.stderr and sys.stderr.isatty()) and os.environ.get("TERM") not in (None, "", "dumb")
    if shown and asked.screen.speaks:
        from takeback.frontends.cli.output.terminal import Meter

        progress = Meter(sys.stderr)

    def tell(words: str) -> None:
        progress.aside()
        warn(f"takeback: {clean(words)}")

    opened_of(tb).progress, tb.tell = progress, tell


@contextmanager
def existing(asked: Asked, known: Callable[[Takeback], object] | None = None) -> Iterator[Takeback]:
    """For commands that name an effect, which cannot be in a store that is not there."""
    if nothing_yet(asked):
        raise Misuse(nothing_recorded(asked), hint="--store or TAKEBACK_STORE name another store.")
    with opened(asked, known) as tb:
        yield tb


def known_effects(names: Iterable[str], run: str = "") -> Callable[[Takeback], object]:
    """That there are effects, or runs, of these names, and that run."""

    def known(tb: Takeback) -> None:
        if run:
            tb.find_run(run)
        for name in names:
            if name.startswith("@"):
                tb.effect(name)  # as it is counted here
            elif all(info.name != name for info in tb.runs()):
                id_of(tb.store.journal, name)

    return known


def given_up_in_words(given_up: "Sequence[GivenUp]") -> Iterator[str]:
    """A sentence for each bound that was reached, with the setting that moves it."""
    from takeback.storage.notes import Bound

    for bound in Bound:
        these = [one for one in given_up if one.bound is bound]
        if not these:
            continue
        limit = these[-1].limit
        reached = {
            Bound.TIME: f"accepted more than {seconds_in_words(limit)} ago",
            Bound.STORE: f"the store is over its {bytes_in_words(limit)}",
            Bound.DISK: f"less than {bytes_in_words(limit)} of the disk was free",
            Bound.VERSIONS: f"more than {counted(limit, 'version')} of a file",
            Bound.DROPS: f"more than {counted(limit, 'drop')} of a project",
            Bound.DROPPED: f"the drops of a project take more than {bytes_in_words(limit)}",
        }[bound]
        names = listed([short(one.effect) for one in these])
        since = local_time(min(one.at for one in these), now())
        gone = f"the way back of {counted(len(these), 'effect')} from {since} on was given up"
        pin = "; `takeback pin` keeps a way back for ever"
        if bound in (Bound.DROPS, Bound.DROPPED):
            gone, pin = f"{counted(len(these), 'drop')} from {since} on cannot be applied any more", ""
        yield f"{reached}: {gone} ({names}). `{bound.setting}` in the settings moves the limit{pin}."


def tell_recovered(tb: Takeback) -> None:
    if tb.unrecovered:
        warn(f"Recovery after a crash is not finished: {clean(tb.unrecovered)}")
    if tb.recovered:
        from takeback.engine.settled import Cause, in_words

        said: set[str] = set()
        for one in tb.recovered:
            if one.cause is Cause.IN_DOUBT:
                if one.detail not in said:
                    _tell_doubt(tb, one.detail)
                said.add(one.detail)
                continue
            open_still = tb.effect(one.effect).waits_for == COMMAND
            warn(f"{'Not recorded yet' if open_still else 'Recovered from a crash'}: {clean(in_words(one))}")


def _tell_doubt(tb: Takeback, why: str) -> None:
    """Once, however many effects wait for the same server."""
    same = [one for one in tb.recovered if one.detail == why]
    what = f"{listed([short(one.effect) for one in same])} are"
    if len(same) == 1:
        what = f"{short(same[0].effect)} {same[0].summary} is"
    warn(f"Not settled yet: {clean(what)} in doubt: {clean(why)}")


def give(asked: Asked, tb: Takeback, data: "dict[str, Any] | list[dict[str, Any]]") -> None:
    """The JSON answer, with what was recovered on the way; a list has no room for it, stderr has it anyway."""
    if asked.screen.json and tb.recovered and isinstance(data, dict):
        from takeback.audit.views import settled_json

        data = {**data, "recovered": [settled_json(one) for one in tb.recovered]}
    asked.screen.give(data)


def agent_of(asked: Asked) -> str:
    given: str = getattr(asked.options, "agent", None) or os.environ.get("TAKEBACK_AGENT") or AGENT
    return given


@contextmanager
def session(asked: Asked, tb: Takeback) -> "Iterator[Run]":
    """The run that commands join one after the other. It is left open at the end, also when a command fails:
    what other commands did in it stays. A signal leaves it suspended, at a checkpoint."""
    started = now()
    with _joined(asked, tb) as run:
        try:
            yield run
        except (KeyboardInterrupt, SystemExit) as signal:
            asked.made[:] = made_since(tb, started)
            run.suspend(f"interrupted: {type(signal).__name__}")
            raise
        stay_within_limits(opened_of(tb))


def made_since(tb: Takeback, started: int) -> list[str]:
    """The effects that this process has made since, if a signal came before they were reported."""
    return [one.id for one in ours_since(tb, started, State.DONE)]


def ours_since(tb: Takeback, started: int, *states: State) -> list[Effect]:
    """Of the effects that this process has begun since, those in one of these states."""
    me = myself()
    found: list[Effect] = []
    for effect in tb.store.journal.effects(Query(states=states, newest=True)):
        if effect.at < started:
            break
        lease = tb.store.leases.holder(effect.run)
        # One that was let go of has no pid any more, but still tells when its process began.
        if lease and lease.owner._replace(pid=me.pid) == me:
            found.append(effect)
    return found[::-1]


def _joined(asked: Asked, tb: Takeback) -> "Run":
    """The run named by --run (or a new one of that name), else the one of this agent."""
    agent = agent_of(asked)
    given: str = asked.options.run or ""
    if not given:
        return tb.session(SESSION if agent == AGENT else f"{SESSION} of {agent}", agent, project=".")
    named = [info for info in tb.store.journal.runs(unfinished=True) if info.name == given]
    ids = tb.store.journal.resolve(given.lower()) if not named and len(given) >= SHORT // 2 else ()
    for info in named or (tb.store.journal.runs(ids) if ids else ()):
        if info.on_death is OnDeath.LEAVE:
            return tb.resume(info, wait=WAIT_SECONDS)
        raise Refused(
            f"Run {short(info.id)} ({info.name}) belongs to a program, so commands cannot join it.",
            hint="Give another name to --run, or none.",
        )
    return tb.session(given, agent)


@contextmanager
def dry_store(asked: Asked) -> Iterator[Takeback]:
    """For a dry run: a store that is not there yet is not made, a temporary one does."""
    if not nothing_yet(asked):
        with opened(asked) as tb:
            yield tb
        return
    from tempfile import TemporaryDirectory

    with TemporaryDirectory(prefix="takeback-dry-run-") as place, takeback.api.open(place) as tb:
        yield tb


@contextmanager
def thrown_away(asked: Asked) -> Iterator[Takeback]:
    """An empty store for a dry run that has to record something. It lies inside the store, which a command in a sandbox
    cannot reach, and is removed at the end."""
    from takeback.model.resource import file_resource
    from takeback.runs.boxes.setting import remove_layer
    from takeback.runs.commands.scratch import workshop

    with dry_store(asked) as around, workshop(os.path.join(around.path, "commands")) as place:
        hidden = os.path.realpath(around.path)
        with takeback.api.open(os.path.join(place, "store")) as tb:
            show_work(asked, tb)
            opened_of(tb).parts = opened_of(tb).parts._replace(off_limits=file_resource(hidden))
            layers = tb.store.layers()
            try:
                yield tb
            finally:
                for box in layers.boxes():
                    with suppress(OSError):
                        remove_layer(os.path.dirname(layers.place_of(f"{box}/layer")), layers.base_of(box))
