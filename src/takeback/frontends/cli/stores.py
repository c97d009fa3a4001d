"""`store`: make a store, or copy one to another place."""

from argparse import ArgumentParser

import takeback.api
from takeback.errors import Misuse
from takeback.frontends.cli.commands import Asked, Command
from takeback.frontends.cli.ending import printable
from takeback.frontends.cli.opening import store_path
from takeback.frontends.cli.output import clean, counted
from takeback.storage.store import exists


def _arguments(parser: ArgumentParser) -> None:
    parser.add_argument("action", choices=("make", "copy"))
    parser.add_argument(
        "places", nargs="*", metavar="PLACE", help="for copy: FROM and TO; each a directory or postgresql://…"
    )
    parser.add_argument(
        "--blobs",
        metavar="URL",
        default="",
        help="s3://bucket/prefix: where a store in PostgreSQL keeps its large blobs; said once, the store knows it",
    )


def _store(asked: Asked) -> int:
    return _make(asked) if asked.options.action == "make" else _copy(asked)


def _make(asked: Asked) -> int:
    if asked.options.places:
        raise Misuse("`store make` takes no places.", hint="--store or TAKEBACK_STORE name the store.")
    path = store_path(asked)
    new = not exists(path)
    with takeback.api.open(path, blobs=asked.options.blobs) as tb:
        asked.screen.give({"store": tb.store.name, "made": new})
        asked.screen.say(f"{'Made the store' if new else 'There is a store already'}: {clean(tb.store.name)}")
    return 0


def _copy(asked: Asked) -> int:
    if len(asked.options.places) != 2:
        raise Misuse(
            "`store copy` takes two places.",
            hint="takeback store copy ~/.local/state/takeback postgresql://host/name",
        )
    source, target = asked.options.places
    if not exists(source):
        raise Misuse(f"There is no store at {clean(printable(source))}.", hint="Name one that is there.")
    with takeback.api.open(source, recover=False) as tb:
        copied = tb.copy_to(target, blobs=asked.options.blobs)
    screen = asked.screen
    screen.give({"from": printable(source), "to": printable(target), **copied._asdict()})
    screen.say(
        f"Copied {counted(copied.records, 'record')}, {counted(copied.blobs, 'blob')} and {counted(copied.runs, 'run')}"
        f" to {clean(printable(target))}; every hash is the same."
    )
    for sentence in copied.left:
        screen.say(clean(sentence))
    return 0


COMMANDS = {"store": Command(_arguments, _store, mixed=True)}
