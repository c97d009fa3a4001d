"""`store`: make a store, copy one to another place, or use one again that was copied."""

import takeback.api
from takeback.api import Takeback, now
from takeback.errors import Misuse
from takeback.frontends.cli.command import Asked, Command, Subcommand, flag, option, positional
from takeback.frontends.cli.output.errors import printable
from takeback.frontends.cli.output.screen import clean, counted
from takeback.frontends.cli.session.store import show_work, store_path
from takeback.storage.sqlite.store import exists, open_store

_DRY = flag("--dry-run", "only say what it would do")
_BLOBS = option(
    "--blobs",
    "URL",
    "s3://bucket/prefix: where a store in PostgreSQL keeps its large blobs; said once, the store knows it",
    default="",
)


_PARTS = {
    "make": Subcommand(
        "make a store, where --store or TAKEBACK_STORE say", "takeback store make", (_DRY, _BLOBS)
    ),
    "copy": Subcommand(
        "copy a store to another place and use the copy from then on",
        "takeback store copy ~/.local/state/takeback postgresql://host/agents",
        (
            positional("source", "FROM", "a store: a directory or postgresql://…"),
            positional("target", "TO", "where there is none yet: a directory or postgresql://…"),
            flag("--backup", "the first store stays in use, not the copy"),
            _DRY,
            _BLOBS,
        ),
    ),
    "reopen": Subcommand(
        "use a store again that was copied",
        "takeback store reopen ~/.local/state/takeback",
        (positional("place", "STORE", "a directory or postgresql://…"), _DRY),
    ),
    "trust": Subcommand(
        "say that a store is yours: made on another machine, or restored from a backup",
        "takeback store trust",
        (positional("place", "STORE", "a directory; the usual store if none is given", nargs="?"), _DRY),
    ),
}


def _store(asked: Asked) -> int:
    return {"make": _make, "copy": _copy, "reopen": _reopen, "trust": _trust}[asked.options.action](asked)


def _refuse_missing(place: str) -> None:
    if not exists(place):
        raise Misuse(f"There is no store at {clean(printable(place))}.", hint="Name one that is there.")


def _make(asked: Asked) -> int:
    path = store_path(asked)
    new = not exists(path)
    if asked.options.dry_run:
        said = f"Would make the store {clean(printable(path))}."
        return asked.would({"store": path, "made": new}, said if new else "There is a store already.")
    with takeback.api.open(path, recover=False, blobs=asked.options.blobs) as tb:
        asked.screen.give({"store": tb.store.name, "made": new})
        asked.screen.say(f"{'Made the store' if new else 'There is a store already'}: {clean(tb.store.name)}")
    return 0


def _copy(asked: Asked) -> int:
    source, target = asked.options.source, asked.options.target
    _refuse_missing(source)
    with takeback.api.open(source, recover=False) as tb:
        show_work(asked, tb)
        if asked.options.dry_run:
            return _would_copy(asked, tb)
        copied = tb.copy_to(target, blobs=asked.options.blobs, backup=asked.options.backup)
    screen = asked.screen
    screen.give({"from": printable(source), "to": printable(target), **copied._asdict()})
    screen.say(
        f"Copied {counted(copied.records, 'record')}, {counted(copied.blobs, 'blob')} and {counted(copied.runs, 'run')}"
        f" to {clean(printable(target))}; every hash is the same."
    )
    retired, used = (target, source) if asked.options.backup else (source, target)
    screen.say(
        f"{clean(printable(used))} is used from now on; {clean(printable(retired))} takes nothing new."
    )
    for sentence in copied.left:
        screen.say(clean(sentence))
    return 0


def _would_copy(asked: Asked, tb: Takeback) -> int:
    source, target = (clean(printable(one)) for one in (asked.options.source, asked.options.target))
    if not asked.options.backup:
        tb.store.refuse_if_retired()
    if exists(asked.options.target):  # one that an interrupted copy left; another one is refused
        open_store(asked.options.target, now, asked.options.blobs, copying=tb.store.name).close()
    tally = tb.store.journal.tally()
    found = {"records": tally["records"], "runs": sum(1 for _ in tb.store.journal.runs())}
    used = source if asked.options.backup else target
    return asked.would(
        {"from": source, "to": target, **found},
        f"Would copy {counted(found['records'], 'record')} and {counted(found['runs'], 'run')} of {source} to "
        f"{target}, and use {used} from then on.",
    )


def _reopen(asked: Asked) -> int:
    place: str = asked.options.place
    _refuse_missing(place)
    with takeback.api.open(place, recover=False) as tb:
        words = tb.store.retired
        if asked.options.dry_run:
            said = f"Would use {clean(tb.store.name)} again ({clean(words)})." if words else "It is in use."
            return asked.would({"store": tb.store.name, "was": words}, said)
        tb.store.reopen()
        asked.screen.give({"store": tb.store.name, "was": words})
    shown = clean(printable(place))
    asked.screen.say(
        f"{shown} is in use again ({clean(words)})." if words else f"{shown} was in use all the time."
    )
    return 0


def _trust(asked: Asked) -> int:
    """The store is one's own, as it is: made on another machine, or restored from a backup."""
    place = asked.options.place or store_path(asked)
    _refuse_missing(place)
    with takeback.api.open(place, recover=False) as tb:
        lost = tb.store.lost()
        if asked.options.dry_run:
            said = f"Would trust {clean(tb.store.name)}: modules that it names are imported for undo and recovery."
            return asked.would({"store": tb.store.name, "lost": lost}, f"{said} {clean(lost)}".rstrip())
        tb.store.trust()
        asked.screen.give({"store": tb.store.name, "lost": lost})
    asked.screen.say(
        f"{clean(printable(place))} is trusted: modules that it names are imported for undo and recovery."
    )
    if lost:
        asked.screen.say(f"It stays as it is. {clean(lost)}")
    return 0


COMMAND = Command(_store, mixed=True, parts=_PARTS)
