"""`sql`: protect a database, see what is covered, run one statement as an effect."""

import sys
from argparse import ArgumentParser, Namespace
from contextlib import contextmanager
from typing import TYPE_CHECKING

from takeback.audit.rows import counts_of
from takeback.errors import Misuse, Refused
from takeback.frontends.cli.command import Asked, Command, Subcommand
from takeback.frontends.cli.output.differences import say_rows
from takeback.frontends.cli.output.screen import answered, clean, counted, warn
from takeback.frontends.cli.session.project import at_terminal, confirmed
from takeback.frontends.cli.session.store import give, opened, session
from takeback.model.effect import Effect, State
from takeback.model.ids import short

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from takeback.adapters.database import Cover, Databases
    from takeback.api import Takeback
    from takeback.model.database import Database
    from takeback.retention.candidates import Verdict
    from takeback.runs.run import Run
    from takeback.runs.sql import SqlResult


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
    "doctor": Subcommand(
        "see what of a database is covered", "takeback sql doctor postgresql:///app", _only_address
    ),
    "protect": Subcommand(
        "protect a database, so that changes of its rows can be undone",
        "takeback sql protect postgresql:///app",
        _protected,
    ),
    "unprotect": Subcommand(
        "remove the protection of a database, and the way back of what was changed there",
        "takeback sql unprotect postgresql:///app orders",
        _tables_to_leave,
    ),
    "exec": Subcommand(
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
            return _execute(asked, tb)
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


def _refuse_unasked(asked: Asked, going: "Sequence[Verdict]") -> None:
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


def _say_given_up(asked: Asked, going: "Sequence[Verdict]", verb: str, say: "Callable[[str], None]") -> None:
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
    from takeback.adapters.database import Attaching

    if options.triggers is None:
        return adapter.protect(database, options.words)
    if not isinstance(adapter, Attaching):
        raise Misuse(
            f"{database.engine} has no choice of when triggers are attached.",
            hint="Leave out --triggers; it is for PostgreSQL.",
        )
    return adapter.attach_when(database, options.words, options.triggers == "always")


def _found(tb: "Takeback", address: str) -> "tuple[Database, Databases]":
    from takeback.adapters.database import Databases
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
    gone: "Sequence[Verdict] | None" = None,
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


COMMAND = Command(_address, _sql, mixed=True, parts=_PARTS, only_looks=_only_looks)


def _execute(asked: Asked, tb: "Takeback") -> int:
    words: list[str] = asked.options.words
    if len(words) != 1:
        raise Misuse("`sql exec` takes one statement.", hint="Put it in quotes, as one word.")
    if not words[0].strip():
        raise Misuse(
            "There is no statement.",
            hint='For example `takeback sql exec env:APP_DB "DELETE FROM t WHERE id = 1"`.',
        )
    reviewed: bool = asked.options.review or asked.options.dry_run
    most = _most(asked.options.most)
    with session(asked, tb) as run, run.sql(asked.options.address, most=most, review=reviewed) as database:
        result = database.execute(words[0])
        effect = result.effect
        if effect and reviewed:
            effect = _decided(asked, tb, run, effect)
    if effect:
        asked.made.append(effect.id)
    _tell(asked, tb, result, effect)
    return 0


def _most(given: str | None) -> int | None:
    if given is None:
        return None
    if not (given.isascii() and given.isdigit()):
        raise Misuse(f"{given!r} is no number of rows.", hint="For example --most 10000000; 0: no limit.")
    return int(given)


def _decided(asked: Asked, tb: "Takeback", run: "Run", effect: Effect) -> Effect | None:
    """None: it was dropped."""
    if not asked.screen.json:
        say_rows(asked.screen, tb, effect)
    if asked.options.dry_run:
        run.discard(effect.id)
        return None
    if effect.phase.reviewed and effect.phase.reviewed.how == "prepared":
        return effect
    if not (sys.stdin and sys.stdin.isatty()):
        run.discard(effect.id)
        raise Misuse(
            "This database cannot hold a transaction for another process now, and there is no terminal to ask at.",
            hint="Nothing was changed. PostgreSQL can with max_prepared_transactions above 0, as long as not all of "
            "them are taken by others that wait (`takeback status`).",
        )
    if answered("Apply it? [y/N]", {"y": "y", "yes": "y", "n": "n", "no": "n"}, "n") == "y":
        run.apply(effect.id)
        return tb.effect(effect.id)
    run.discard(effect.id)
    return None


def _tell(asked: Asked, tb: "Takeback", result: "SqlResult", effect: Effect | None) -> None:
    screen = asked.screen
    rows = [[None if value is None else str(value) for value in row] for row in result.rows]
    told = {"rowcount": result.rowcount, "columns": list(result.columns), "rows": rows}
    held = effect is not None and effect.state is State.PROPOSED
    if result.effect and (asked.options.review or asked.options.dry_run):
        told |= {"held": held, "changes": _changes(tb, result.effect)}
    give(asked, tb, {"effect": effect.id if effect else None} | told)
    _say_answer(asked, result)
    if effect and held:
        screen.say(f"{short(effect.id)}  {clean(effect.change.summary)}: held, not visible yet")
        screen.hint(
            f"`takeback apply {short(effect.id)}` commits it, `takeback discard {short(effect.id)}` drops it"
        )
    elif effect:
        screen.say(f"{short(effect.id)}  {clean(effect.change.summary)}{_amount(effect)}")
        screen.hint(f"`takeback undo {short(effect.id)}` takes it back")
    elif result.effect:
        final = "" if asked.options.dry_run else " This drop is final: the database has rolled it back."
        screen.say(f"It was dropped; nothing was changed.{final}")
    elif not result.columns:
        screen.say("Nothing was changed.")


def _amount(effect: Effect) -> str:
    """Cascades and triggers may have reached other tables too; then each is named."""
    counts = [(table, words) for table, words in counts_of(effect) if words != "nothing"]
    if len(counts) == 1:
        return f": {counts[0][1]}"
    return ": " + "; ".join(f"{clean(table)}: {words}" for table, words in counts) if counts else ""


def _changes(tb: "Takeback", effect: Effect) -> list[dict[str, object]]:
    from takeback.audit.rows import row_json
    from takeback.engine.review import shown_rows

    return [row_json(row) for row in shown_rows(tb.store.blobs, effect)]


def _say_answer(asked: Asked, result: "SqlResult") -> None:
    if not result.columns:
        return
    cells = [list(result.columns), *([_cell(value) for value in row] for row in result.rows)]
    widths = [max(len(row[place]) for row in cells) for place in range(len(result.columns))]
    for row in cells:
        line = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        asked.screen.say(line.rstrip())


def _cell(value: object) -> str:
    return "NULL" if value is None else clean(str(value))
