"""`sql exec`: one statement as an effect, at once or after a person has seen what it changes."""

import sys
from typing import TYPE_CHECKING

from takeback.audit.rows import counts_of
from takeback.errors import Misuse
from takeback.frontends.cli.commands import Asked
from takeback.frontends.cli.opening import give, session
from takeback.frontends.cli.output import answered, clean
from takeback.frontends.cli.show import say_rows
from takeback.model.effect import REVIEWED, Effect, State
from takeback.model.ids import short

if TYPE_CHECKING:
    from takeback.api import Takeback
    from takeback.runs.run import Run
    from takeback.runs.sql import SqlResult


def carry_out(asked: Asked, tb: "Takeback") -> int:
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
    if effect.change.args[REVIEWED]["how"] == "prepared":
        return effect
    if not (sys.stdin and sys.stdin.isatty()):
        run.discard(effect.id)
        raise Misuse(
            "This database cannot hold a transaction for another process now, and there is no terminal to ask at.",
            hint="Nothing was changed. PostgreSQL can with max_prepared_transactions above 0, as long as not all of "
            "them are taken by others that wait (`takeback status`). In Python, run.sql(…, review=True) holds it until "
            "run.apply or run.discard.",
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
