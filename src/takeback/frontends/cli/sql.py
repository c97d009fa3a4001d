"""`sql`: protect a database, see what is covered, run one statement as an effect."""

from argparse import ArgumentParser, Namespace
from contextlib import contextmanager
from typing import TYPE_CHECKING

from takeback.errors import Misuse, Refused
from takeback.frontends.cli.commands import Asked, Command
from takeback.frontends.cli.opening import give, opened
from takeback.frontends.cli.output import clean, counted, warn
from takeback.frontends.cli.project import at_terminal, confirmed
from takeback.frontends.cli.usage import Part
from takeback.model.effect import State
from takeback.model.ids import short

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from takeback.adapters.database.protocol import Cover, Databases
    from takeback.api import Takeback
    from takeback.model.database import Database
    from takeback.retention.tiers import Decision

_MOST_LISTED = 50
_FEW = 5


def _address(parser: ArgumentParser) -> None:
    parser.add_argument(
        "address",
        metavar="URL",
        help="postgresql://…, sqlite:///file.db, mariadb://…, redis://…, or env:NAME",
    )


def _only_address(parser: ArgumentParser) -> None:
    _address(parser)
    parser.set_defaults(words=[], dry_run=False)


def _tables(parser: ArgumentParser) -> None:
    _address(parser)
    parser.add_argument("words", nargs="*", metavar="TABLE", help="only these tables (else all)")
    parser.add_argument("--dry-run", action="store_true", help="tell what is covered now, and change nothing")


def _tables_to_leave(parser: ArgumentParser) -> None:
    _tables(parser)
    parser.add_argument("--yes", action="store_true", help="do not ask")


def _statement(parser: ArgumentParser) -> None:
    _address(parser)
    parser.add_argument("words", nargs="*", metavar="STATEMENT", help="the statement, as one word")
    parser.add_argument("--run", metavar="R", help="the run it belongs to")
    parser.add_argument("--agent", metavar="A", help="whose change it is (else TAKEBACK_AGENT, else cli)")
    parser.add_argument(
        "--most", metavar="N", help="how many rows it may change (else max_rows in settings.json)"
    )
    parser.add_argument(
        "--review", action="store_true", help="show what it changed before it is committed, and ask"
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="show what it would change, and change nothing"
    )


def _protected(parser: ArgumentParser) -> None:
    _tables(parser)
    parser.add_argument(
        "--triggers",
        choices=("runs", "always"),
        help="attach triggers while a run works (at first), or always, which costs the application time",
    )


_PARTS = {
    "doctor": Part(
        "see what of a database is covered", "takeback sql doctor postgresql:///app", _only_address
    ),
    "protect": Part(
        "protect a database, so that changes of its rows can be undone",
        "takeback sql protect postgresql:///app",
        _protected,
    ),
    "unprotect": Part(
        "remove the protection of a database, and the way back of what was changed there",
        "takeback sql unprotect postgresql:///app orders",
        _tables_to_leave,
    ),
    "exec": Part(
        "run a statement as an effect",
        "takeback sql exec sqlite:///shop.db \"UPDATE users SET role = 'admin' WHERE id = 42\"",
        _statement,
    ),
}


def _only_looks(options: Namespace) -> bool:
    return options.dry_run or options.action == "doctor"


def _sql(asked: Asked) -> int:
    action: str = asked.options.action
    with opened(asked, lambda tb: tb.parts.named(asked.options.address)) as tb:
        if action == "exec":
            from takeback.frontends.cli.sql_exec import carry_out

            return carry_out(asked, tb)
        if action == "unprotect":
            return _unprotect(asked, tb)
        database, adapter = _found(tb, asked.options.address)
        if action == "doctor" or asked.options.dry_run:
            cover = adapter.cover(database)
        else:
            with _doctor_tells(database):
                cover = _protect(adapter, database, asked.options)
        _say_cover(asked, tb, database, cover)
    return 0


def _unprotect(asked: Asked, tb: "Takeback") -> int:
    options = asked.options
    _, going = tb.unprotect(options.address, options.words, dry_run=True)
    if not options.dry_run and not options.yes:
        _refuse_unasked(asked, going)
    database = tb.parts.named(options.address)
    with _doctor_tells(database):
        cover, gone = tb.unprotect(options.address, options.words, dry_run=options.dry_run)
    _say_cover(asked, tb, database, cover, gone)
    _say_given_up(asked, gone, "Would give up" if options.dry_run else "Gave up", asked.screen.say)
    return 0


@contextmanager
def _doctor_tells(database: "Database") -> "Iterator[None]":
    """Each table has a transaction of its own, so an interrupt may leave some protected and others not."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit) as signal:
        signal.add_note(
            f"`takeback sql doctor {database.source or database.url}` tells what is protected now"
        )
        raise


def _refuse_unasked(asked: Asked, going: "Sequence[Decision]") -> None:
    """On a terminal a person is asked. Without one it is refused where a way back would go."""
    if not going:
        return
    if at_terminal(asked):
        _say_given_up(asked, going, "This gives up", warn)
        if not confirmed("Remove the protection?"):
            raise Refused("Nothing was changed.", hint="Undo first what must not stay.")
        return
    names = ", ".join(short(one.effect.id) for one in going[:_FEW])
    more = f" and {len(going) - _FEW:,} more" if len(going) > _FEW else ""
    raise Refused(
        f"This gives up the way back of {counted(len(going), 'effect')}: {names}{more}.",
        hint="Nothing was changed. --dry-run lists them; --yes gives them up.",
        effect=going[0].effect.id,
    )


def _say_given_up(asked: Asked, going: "Sequence[Decision]", verb: str, say: "Callable[[str], None]") -> None:
    if not going:
        return
    say(f"{verb} the way back of {counted(len(going), 'effect')}:")
    for one in going[:_MOST_LISTED]:
        state = "" if one.effect.state is State.DONE else f"  ({one.effect.state.value})"
        id = asked.screen.paint(short(one.effect.id), "cyan")
        say(f"  {id}  {clean(one.effect.change.summary)}{state}")
    if len(going) > _MOST_LISTED:
        say(f"  and {len(going) - _MOST_LISTED:,} more")


def _protect(adapter: "Databases", database: "Database", options: Namespace) -> "Cover":
    from takeback.adapters.database.protocol import Attaching

    if options.triggers is None:
        return adapter.protect(database, options.words)
    if not isinstance(adapter, Attaching):
        raise Misuse(
            f"{database.engine} has no choice of when triggers are attached.",
            hint="Leave out --triggers; it is for PostgreSQL.",
        )
    return adapter.attach_when(database, options.words, options.triggers == "always")


def _found(tb: "Takeback", address: str) -> "tuple[Database, Databases]":
    from takeback.adapters.database.protocol import Databases
    from takeback.engine.parts import adapter_of

    database = tb.parts.named(address)
    adapter = adapter_of(tb.parts, database.engine)
    assert isinstance(adapter, Databases)
    return database, adapter


def _say_cover(
    asked: Asked,
    tb: "Takeback",
    database: "Database",
    cover: "Cover",
    gone: "Sequence[Decision] | None" = None,
) -> None:
    screen = asked.screen
    given_up = {} if gone is None else {"given_up": [one.effect.id for one in gone]}
    unprotected = [{"table": name, "why": why} for name, why in cover.unprotected]
    give(
        asked,
        tb,
        {
            "database": database.url,
            "engine": database.engine,
            "tier": cover.tier,
            "protected": list(cover.protected),
            "unprotected": unprotected,
            "says": list(cover.says),
            **given_up,
            "triggers": cover.attachment._asdict() if cover.attachment else None,
        },
    )
    screen.say(f"{clean(database.url)}: {database.engine}" + (f", tier {cover.tier}" if cover.tier else ""))
    for sentence in cover.says:
        screen.say(f"  {clean(sentence)}")
    if cover.protected == ("*",):  # of Redis, which has no tables
        screen.say("Protected: every key")
        return
    screen.say(f"Protected: {counted(len(cover.protected), 'table')}")
    for name in cover.protected[:_MOST_LISTED]:
        screen.say(f"  {clean(name)}")
    if len(cover.protected) > _MOST_LISTED:
        screen.say(f"  and {len(cover.protected) - _MOST_LISTED:,} more")
    if cover.unprotected:
        screen.say(f"Not protected: {counted(len(cover.unprotected), 'table')}")
    for name, why in cover.unprotected:
        screen.say(f"  {clean(name)}: {clean(why)}")


COMMANDS = {"sql": Command(_address, _sql, mixed=True, parts=_PARTS, only_looks=_only_looks)}
