"""`sql`: protect a database, see what is covered, run one statement as an effect."""

from argparse import Namespace
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

from takeback.adapters.database import PREPARED
from takeback.api import opened_of
from takeback.audit.rows import counts_of
from takeback.errors import Misuse, Refused
from takeback.frontends.cli.command import (
    AGENT,
    RUN,
    YES,
    Asked,
    Command,
    Subcommand,
    flag,
    option,
    positional,
)
from takeback.frontends.cli.output.differences import say_parts, say_rows
from takeback.frontends.cli.output.screen import clean, counted, from_here, listed, say_first, warn
from takeback.frontends.cli.session.project import at_terminal, confirmed, refuse_unaskable
from takeback.frontends.cli.session.store import dry_store, give, opened, session
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


_ADDRESS = positional(
    "address", "URL", "postgresql://…, sqlite:///file.db, mariadb://…, redis://…, or env:NAME"
)
_TABLES = (
    _ADDRESS,
    positional("words", "TABLE", "only these tables (else all)", nargs="*"),
    flag("--dry-run", "say what would be protected or not, and change nothing"),
)


_PARTS = {
    "doctor": Subcommand(
        "show which tables of a database are covered", "takeback sql doctor postgresql:///app", (_ADDRESS,)
    ),
    "protect": Subcommand(
        "protect a database, so that changes of its rows can be undone",
        "takeback sql protect postgresql:///app",
        (
            *_TABLES,
            option(
                "--triggers",
                "WHEN",
                "attach triggers only during runs (at first), or always, which slows the application down",
                choices=("runs", "always"),
            ),
        ),
    ),
    "unprotect": Subcommand(
        "remove the protection of a database, and the undo data of its effects",
        "takeback sql unprotect postgresql:///app orders",
        (*_TABLES, YES),
    ),
    "exec": Subcommand(
        "run a statement as an effect",
        "takeback sql exec sqlite:///shop.db \"UPDATE users SET role = 'admin' WHERE id = 42\"",
        (
            _ADDRESS,
            positional("words", "STATEMENT", "the statement, as one word", nargs="*"),
            RUN,
            AGENT,
            option("--max-rows", "N", "how many rows it may change (else the setting max_rows)"),
            flag("--hold", "hold its changes for `apply` or `discard`"),
            flag("--ask", "show its changes and ask whether to apply them"),
            flag("--dry-run", "make it, say what it would change, and roll it back"),
        ),
    ),
}


def _only_looks(options: Namespace) -> bool:
    return options.action == "doctor" or options.dry_run


def _sql(asked: Asked) -> int:
    action: str = asked.options.action
    looks = _only_looks(asked.options)
    with dry_store(asked) if looks else opened(asked, lambda tb: _named(tb, asked.options.address)) as tb:
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
    database = _named(tb, options.address)
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
            f"`takeback sql doctor {database.source or database.url}` shows what is protected now"
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
    names = listed([short(one.effect.id) for one in going])
    raise Refused(
        f"This gives up the way back of {counted(len(going), 'effect')}: {names}.",
        hint="Nothing was changed. --dry-run lists them; --yes gives them up.",
        effect=going[0].effect.id,
    )


def _say_given_up(asked: Asked, going: "Sequence[Verdict]", verb: str, say: "Callable[[str], None]") -> None:
    if not going:
        return
    say(f"{verb} the way back of {counted(len(going), 'effect')}:")
    effects = [one.effect for one in going]
    states = ["" if one.state is State.DONE else f"  ({one.state.value})" for one in effects]
    lines = [f"{asked.screen.effect(one)}{state}" for one, state in zip(effects, states, strict=True)]
    say_first(say, lines, _MOST_LISTED, "  ")


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


def _named(tb: "Takeback", address: str) -> "Database":
    return opened_of(tb).parts.named(address)


def _found(tb: "Takeback", address: str) -> "tuple[Database, Databases]":
    from takeback.adapters.database import Databases
    from takeback.engine.parts import adapter_of

    database = _named(tb, address)
    adapter = adapter_of(opened_of(tb).parts, database.engine)
    assert isinstance(adapter, Databases)
    return database, adapter


def _say_cover(
    asked: Asked,
    tb: "Takeback",
    database: "Database",
    cover: "Cover",
    gone: "Sequence[Verdict] | None" = None,
) -> None:
    screen, options = asked.screen, asked.options
    given_up = {} if gone is None else {"given_up": [one.effect.id for one in gone]}
    would = _would(options, cover) if options.action != "doctor" and options.dry_run else {}
    unprotected = [{"table": name, "reason": why} for name, why in cover.unprotected]
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
            **would,
            "triggers": cover.attachment._asdict() if cover.attachment else None,
        },
    )
    if would:
        screen.say(_in_words(options, would["tables"]))
    screen.say(f"{clean(database.url)}: {database.engine}" + (f", tier {cover.tier}" if cover.tier else ""))
    for sentence in cover.says:
        screen.say(f"  {from_here(sentence)}")
    if cover.protected == ("*",):  # of Redis, which has no tables
        screen.say("Protected: every key")
        return
    # A file of SQLite is protected by the statement that changes it, so it is again with the next one.
    again = options.action == "unprotect" and not options.dry_run and not options.words and cover.protected
    head = "No longer protected. The next statement through takeback protects again" if again else "Protected"
    screen.say(f"{head}: {counted(len(cover.protected), 'table')}")
    say_first(screen.say, [clean(name) for name in cover.protected], _MOST_LISTED, "  ")
    if cover.unprotected:
        screen.say(f"Not protected: {counted(len(cover.unprotected), 'table')}")
    for name, why in cover.unprotected:
        screen.say(f"  {clean(name)}: {from_here(why)}")


def _would(options: Namespace, cover: "Cover") -> dict[str, Any]:
    """The tables that a dry run is about: of those named, or of all, what is protected, or is not."""
    now = cover.protected if options.action == "unprotect" else [name for name, _ in cover.unprotected]
    words: list[str] = options.words
    tables = [one for one in now if not words or one in words or one.rpartition(".")[2] in words]
    return {"dry_run": True, "tables": tables}


def _in_words(options: Namespace, tables: list[str]) -> str:
    # Whether a table can be protected shows only when it is tried.
    verb = "remove the protection of" if options.action == "unprotect" else "try to protect"
    what = "every key" if tables == ["*"] else counted(len(tables), "table")
    names = f": {listed([clean(one) for one in tables], _MOST_LISTED)}" if tables and tables != ["*"] else ""
    return f"Would {verb} {what}{names}."


COMMAND = Command(_sql, mixed=True, parts=_PARTS, only_looks=_only_looks)


def _execute(asked: Asked, tb: "Takeback") -> int:
    words: list[str] = asked.options.words
    if len(words) != 1:
        raise Misuse("`sql exec` takes one statement.", hint="Put it in quotes, as one word.")
    if not words[0].strip():
        raise Misuse(
            "There is no statement.",
            hint='For example `takeback sql exec env:APP_DB "DELETE FROM t WHERE id = 1"`.',
        )
    options = asked.options
    refuse_unaskable(options)
    most = _most(options.max_rows)
    if options.dry_run:
        return _tell_tried(asked, tb, most)
    waits = options.hold or options.ask
    with session(asked, tb) as run, run.sql(options.address, max_rows=most, hold=waits) as database:
        result = database.execute(words[0])
        effect = result.effect
        if effect and waits:
            effect = _decided(asked, tb, run, effect)
    if effect:
        asked.made.append(effect.id)
    _tell(asked, tb, result, effect)
    return 0


def _tell_tried(asked: Asked, tb: "Takeback", most: int | None) -> int:
    """Show what a statement would do: run it, roll it back, and record nothing."""
    from takeback.adapters.database import MOST
    from takeback.audit.rows import ChangedRows, as_parts, row_json
    from takeback.engine.review import MOST_ROWS, tried
    from takeback.model.change import Change
    from takeback.model.database import resource_of, to_json
    from takeback.runs.sql import STATEMENTS, SqlResult

    (statement,) = asked.options.words
    named, adapter = _found(tb, asked.options.address)
    with closing(adapter.connect(named)) as connected:
        found, effect, rows = connected.read(statement, ()), None, ()
        if found is None:
            database, says = connected.database, connected.summary(statement, ())
            args = {"database": to_json(database), MOST: tb.store.settings.max_rows if most is None else most}
            change = Change(database.engine, STATEMENTS, resource_of(database), says, args)
            found, effect, rows = tried(opened_of(tb).parts, connected, change, statement)
    shown = ChangedRows(rows[:MOST_ROWS], len(rows) > MOST_ROWS)
    if effect and not asked.screen.json:
        say_parts(asked.screen, as_parts(effect, shown))
    result = SqlResult(found.rows, found.columns, found.rowcount, None)
    changes = [row_json(row) for row in shown.rows]
    give(asked, tb, {"dry_run": True, **_answer_json(result, None), "held": False, "changes": changes})
    _say_answer(asked, result)
    if effect:
        asked.screen.say(
            f"Would run {from_here(effect.change.summary)}{_amount(effect)}. It was rolled back."
        )
    elif not result.columns:
        asked.screen.say("Would change nothing.")
    return 0


def _most(given: str | None) -> int | None:
    if given is None:
        return None
    if not (given.isascii() and given.isdigit()):
        raise Misuse(f"{given!r} is no number of rows.", hint="For example --max-rows 10000000; 0: no limit.")
    return int(given)


def _decided(asked: Asked, tb: "Takeback", run: "Run", effect: Effect) -> Effect | None:
    """None: it was dropped."""
    if not asked.screen.json:
        say_rows(asked.screen, tb, effect)
    lasts = effect.phase.reviewed is not None and effect.phase.reviewed.how == PREPARED
    if not asked.options.ask and lasts:
        return effect
    if not asked.options.ask:
        run.discard(effect.id)
        raise Misuse(
            "This database cannot hold a transaction for another process now.",
            hint="Nothing was changed. --ask shows the change and asks at the terminal. PostgreSQL can hold it with "
            "max_prepared_transactions above 0, as long as not all of them are taken by others that wait "
            "(`takeback status`).",
        )
    if confirmed("Apply it?"):
        run.apply(effect.id)
        return tb.effect(effect.id)
    run.discard(effect.id)
    return None


def _tell(asked: Asked, tb: "Takeback", result: "SqlResult", effect: Effect | None) -> None:
    screen = asked.screen
    told = _answer_json(result, effect)
    held = effect is not None and effect.state is State.PROPOSED
    if result.effect and (asked.options.hold or asked.options.ask):
        from takeback.audit.rows import row_json
        from takeback.engine.review import shown_rows

        rows = shown_rows(tb.store.blobs, result.effect)
        told |= {"held": held, "changes": [row_json(row) for row in rows]}
    give(asked, tb, told)
    _say_answer(asked, result)
    if effect and held:
        screen.say(f"{short(effect.id)}  {from_here(effect.change.summary)}: held, not visible yet")
        screen.hint(
            f"`takeback apply {short(effect.id)}` commits it, `takeback discard {short(effect.id)}` drops it"
        )
    elif effect:
        screen.say(f"{short(effect.id)}  {from_here(effect.change.summary)}{_amount(effect)}")
        screen.hint(f"`takeback undo {short(effect.id)}` takes it back")
    elif result.effect:
        screen.say(
            "It was dropped; nothing was changed. This drop is final: the database has rolled it back."
        )
    elif not result.columns:
        screen.say("Nothing was changed.")


def _answer_json(result: "SqlResult", effect: Effect | None) -> dict[str, object]:
    rows = [[None if value is None else str(value) for value in row] for row in result.rows]
    told = {"rowcount": result.rowcount, "columns": list(result.columns), "rows": rows}
    return {"effect": effect.id if effect else None, **told}


def _amount(effect: Effect) -> str:
    """Cascades and triggers may have reached other tables too; then each is named."""
    counts = [(table, words) for table, words in counts_of(effect) if words != "nothing"]
    if len(counts) == 1:
        return f": {counts[0][1]}"
    return ": " + "; ".join(f"{clean(table)}: {words}" for table, words in counts) if counts else ""


def _say_answer(asked: Asked, result: "SqlResult") -> None:
    if not result.columns:
        return
    rows = (["NULL" if one is None else clean(str(one)) for one in row] for row in result.rows)
    cells = [list(result.columns), *rows]
    widths = [max(len(row[place]) for row in cells) for place in range(len(result.columns))]
    for row in cells:
        line = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        asked.screen.say(line.rstrip())
