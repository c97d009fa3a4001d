"""`show diff`: one effect, closely."""

import os
import sys
from argparse import ArgumentParser
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from takeback.adapters.protocol import traits_of
from takeback.api import now
from takeback.audit.diff import DiffPart, difference, in_words, quoted
from takeback.audit.views import effect_json, record_json
from takeback.frontends.cli.commands import Asked, Command, Does
from takeback.frontends.cli.log import partly_undone
from takeback.frontends.cli.output.attention import call_json, facts_of_call, standing_of
from takeback.frontends.cli.output.screen import (
    Here,
    Screen,
    clean,
    clean_line,
    counted,
    here,
    local_time,
    near_text,
    printing,
    put,
    shown,
    when,
)
from takeback.frontends.cli.session.store import existing, give
from takeback.model.effect import COMMAND, PERSON, Effect, State, waits_for_approval
from takeback.model.ids import short
from takeback.model.record import Record
from takeback.model.resource import path_of
from takeback.runs.selection import overwriting

if TYPE_CHECKING:
    from takeback.api import Takeback
    from takeback.model.run import RunInfo

_MOST_TARGETS = 20


def _show_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("id", metavar="ID", help="an effect: its id, the beginning of it, @, @~2; or a run")


def _show(asked: Asked) -> int:
    screen, place, today = asked.screen, here(), now()
    with existing(asked) as tb:
        if run := _run_named(tb, asked.options.id):
            from takeback.frontends.cli.output.attention import show_run

            show_run(asked, tb, run)
            return 0
        effect = tb.effect(asked.options.id)
        records = tuple(tb.store.journal.records(effect=effect.id))
        blockers = _blockers(tb, effect)
        undone = partly_undone(tb, [effect]).get(effect.id, ())
        run = next(tb.store.journal.runs((effect.run,)), None)
        give(
            asked,
            tb,
            {
                **effect_json(effect, undone),
                "run_name": run.name if run else "",
                "receipt": effect.receipt,
                **call_json(effect),
                "records": [record_json(record) for record in records],
                "blocked_by": [one.id for one in blockers],
            },
        )
        where = f"{short(effect.run)} {clean(run.name)} ({run.state.value})" if run else short(effect.run)
        facts = [
            ("Effect", screen.paint(effect.id, "cyan")),
            ("What", near_text(clean(effect.change.summary), place)),
            ("Where", shown(effect.change.resource, place) if "argv" in effect.change.args else ""),
            ("Ended", _ended(effect)),
            ("Covered", clean(str(effect.change.args.get("coverage", "")))),
            ("State", _state(tb, screen, effect, undone)),
            ("Run", where + (f", agent {clean(effect.agent)}" if effect.agent else "")),
            ("When", when(effect.at, today)),
            ("Way back", _way_back(effect)),
            ("Leaves", clean(effect.remedy.residue) if effect.remedy else ""),
            ("Undoes", short(effect.undoes)),
            ("Saved", _overwritten(tb, effect)),
            ("Needs", ", ".join(short(id) for id in effect.needs)),
            ("Key", clean(effect.key)),
            *facts_of_call(effect),
        ]
        for name, fact in facts:
            if fact:
                screen.say(f"{name:<9}{fact}")
        _say_targets(screen, effect, place, undone)
        screen.say("History")
        for record in records:
            screen.say(f"  {record.seq:>6}  {local_time(record.at, today)}  {_record(record)}")
        if blockers:
            screen.say("Blocked by later effects that stand on it (undo --cascade takes them too)")
            for one in blockers:
                screen.say(
                    f"  {screen.paint(short(one.id), 'cyan')}  {near_text(clean(one.change.summary), place)}"
                )
    return 0


def _run_named(tb: "Takeback", name: str) -> "RunInfo | None":
    """If it is one, and no effect. By id, its beginning, or its name (the newest of that name)."""
    return None if name.startswith("@") else tb.run_meant(name)


def _blockers(tb: "Takeback", effect: Effect) -> tuple[Effect, ...]:
    from takeback.engine.dependents import dependents
    from takeback.engine.portion import standing

    if effect.state is not State.DONE or effect.forgotten:
        return ()
    found = {one.id: one for one in dependents(tb.parts, standing(tb.parts, effect))}
    return tuple(sorted(found.values(), key=lambda one: -one.order))


def _overwritten(tb: "Takeback", effect: Effect) -> str:
    """What a redo with force found there."""
    redos = overwriting(tb.store.journal, effect)
    first = "" if effect.state is State.DONE else f"`takeback redo {short(effect.id)}`, then "
    return "; ".join(
        f"what redo {short(one.id)} overwrote: {first}`takeback undo {short(one.id)}` brings it back"
        for one in redos
    )


def _state(tb: "Takeback", screen: Screen, effect: Effect, undone: Sequence[str]) -> str:
    told = screen.state("partly undone" if undone else effect.state.value)
    if undone:
        told += f": {len(undone):,} of {counted(len(effect.targets), 'path')} taken back"
    if traits_of(effect.change).calls and effect.state is State.STUCK:
        told += ", in doubt" if not effect.is_undo else ""
    if waits_for_approval(effect):
        told += f", {_approval(tb, effect)}"
    elif effect.waits_for == PERSON:
        told += ", held until someone applies or discards it"
    if effect.waits_for == COMMAND:
        told += ", its command has not been seen to end"
    if effect.undone_by:
        told += f", by {short(effect.undone_by)}"
    if effect.accepted:
        told += ", accepted" + (" with its run" if effect.accepted_by == "run" else "")
    if effect.forgotten:
        told += ", forgotten: it can no longer be undone"
    return f"{told}: {clean(effect.note)}" if effect.note else told


def _approval(tb: "Takeback", effect: Effect) -> str:
    from takeback.engine.approval import as_it_stands
    from takeback.upkeep import now

    one = as_it_stands(tb.store, effect, now())
    if one.decision is None and not one.never:
        return "until someone approves or denies it"
    word = "" if one.decision is None else "approved " if one.decision.approved else "denied "
    return f"{word}{clean(standing_of(one))}"


def _ended(effect: Effect) -> str:
    code = effect.change.args.get("exit_code")
    return "" if code is None else f"with exit code {code}"


def _way_back(effect: Effect) -> str:
    if not effect.remedy:
        return ""
    if effect.forgotten:
        return "none any more"
    if effect.receipt.get("lost") and "database" in effect.change.args:
        return "none: not all that it did was captured"
    exact = "exact" if effect.remedy.exact else "not exact"
    return f"{clean(effect.reason) or effect.remedy.strategy.value} ({exact})"


def _say_targets(screen: Screen, effect: Effect, place: Here, undone: Sequence[str]) -> None:
    if traits_of(effect.change).calls:
        return  # what it was given and what it returned are all there is to see of it here
    if "database" in effect.change.args:
        _say_tables(screen, effect)
        return
    gone = set(undone)
    for target in effect.targets[:_MOST_TARGETS]:
        before, after = in_words(effect, target.before), in_words(effect, target.after)
        taken = screen.paint(" (undone)", "dim") if target.resource in gone else ""
        screen.say(f"Target   {shown(target.resource, place)}: {clean(before)} → {clean(after)}{taken}")
    if len(effect.targets) > _MOST_TARGETS:
        screen.say(f"         and {counted(len(effect.targets) - _MOST_TARGETS, 'target')} more")


def _say_tables(screen: Screen, effect: Effect) -> None:
    from takeback.audit.rows import counts_of, no_way_back

    for table, counts in counts_of(effect)[:_MOST_TARGETS]:
        screen.say(f"Table    {clean(table)}: {counts}")
    for sentence in effect.receipt.get("schema", []):
        screen.say(f"Schema   {clean(sentence)}")
    for sentence in no_way_back(effect):
        screen.say(f"Lost     {clean(sentence)}")


def _record(record: Record) -> str:
    why = record.body.get("why")
    return f"{record.kind.value}: {clean(str(why))}" if why else record.kind.value


def _diff_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "id", metavar="ID", help="an effect: its id, the beginning of it, @, @~2; or a run by id or name"
    )
    parser.add_argument("path", nargs="?", metavar="PATH", help="only this path, or this table of a database")


def _diff(asked: Asked) -> int:
    from takeback.runs.scope import resource_of

    options, screen = asked.options, asked.screen
    with existing(asked) as tb:
        only = resource_of(options.path) if options.path else ""
        if run := _run_named(tb, options.id):
            id, parts = run.id, _parts_of_run(tb, run, only)
        else:
            effect = tb.effect(options.id)
            if "database" in effect.change.args:
                return _diff_rows(asked, tb, effect)
            id, parts = effect.id, _parts(tb, effect, only)
        give(asked, tb, {"id": id, "parts": [_part_json(part) for part in parts]})
        _say_parts(screen, parts)
    return 0


def _part_json(part: DiffPart) -> dict[str, Any]:
    lines = (f"{line.decode('utf-8', 'backslashreplace')}\n" for line in part.lines)
    return {"resource": part.resource, "words": list(part.words), "diff": "".join(lines)}


def _parts_of_run(tb: "Takeback", run: "RunInfo", only: str) -> tuple[DiffPart, ...]:
    """Everything that it changed and that still holds."""
    from takeback.audit.diff import difference_of_all
    from takeback.audit.rows import as_parts, changed_rows
    from takeback.engine.portion import standing

    done = [one for one in tb.effects(run=run, state=State.DONE) if not one.is_undo]
    done.sort(key=lambda one: one.order)
    done = [standing(tb.parts, one) for one in done]
    rows = [one for one in done if "database" in one.change.args] if not only else []
    of_rows = (part for one in rows for part in as_parts(one, changed_rows(tb.parts, one)))
    return (*difference_of_all(tb.store.blobs, [one for one in done if one not in rows], only), *of_rows)


def _diff_rows(asked: Asked, tb: "Takeback", effect: Effect) -> int:
    from takeback.audit.rows import as_parts, changed_rows, no_way_back, receipt_of, row_json

    changed = changed_rows(tb.parts, effect, asked.options.path or "")
    rows = [row_json(row) for row in changed.rows]
    give(
        asked,
        tb,
        {
            "id": effect.id,
            "rows": rows,
            "more": changed.more,
            "schema": receipt_of(effect).get("schema", []),
            "no_way_back": list(no_way_back(effect)),
        },
    )
    _say_parts(asked.screen, as_parts(effect, changed))
    return 0


def say_rows(screen: Screen, tb: "Takeback", effect: Effect) -> None:
    from takeback.audit.rows import as_parts, changed_rows

    _say_parts(screen, as_parts(effect, changed_rows(tb.parts, effect)))


def _parts(tb: "Takeback", effect: Effect, only: str) -> tuple[DiffPart, ...]:
    if not traits_of(effect.change).boxes:
        return difference(tb.store.blobs, effect, only)
    from takeback.audit.diff import step_difference
    from takeback.model.resource import overlaps

    found = step_difference(tb.store.layers(), tb.store.blobs, effect)
    return tuple(part for part in found if not only or overlaps(only, part.resource))


def say_changed(screen: Screen, tb: "Takeback", effect: Effect) -> None:
    """Of any effect, for `log -p`."""
    if "database" in effect.change.args:
        say_rows(screen, tb, effect)
    elif effect.targets:
        _say_parts(screen, _parts(tb, effect, ""))


def say_difference(screen: Screen, tb: "Takeback", effect: Effect) -> None:
    _say_parts(screen, difference(tb.store.blobs, effect))


def _say_parts(screen: Screen, parts: tuple[DiffPart, ...]) -> None:
    if not parts:
        screen.say("It touched nothing that can be compared.")
    place = here()
    below = os.fsencode(place.directory) + b"/"
    # For `patch`, the paths of one answer all begin in the current directory or all at the root.
    if screen.terminal or all(path_of(part.resource).startswith(below) for part in parts):
        parts = tuple(_from_here(part, below) for part in parts)
    for part in parts:
        _say_part(screen, part, place)


def _from_here(part: DiffPart, below: bytes) -> DiffPart:
    """With the names above its lines as they are seen from the current directory."""
    path = path_of(part.resource)
    if not part.lines or not path.startswith(below):
        return part
    names = {
        sign + quoted(side + path): sign + quoted(side + b"/" + path[len(below) :])
        for sign, side in ((b"--- ", b"a"), (b"+++ ", b"b"))
    }
    return part._replace(lines=(*(names.get(one, one) for one in part.lines[:2]), *part.lines[2:]))


def _say_part(screen: Screen, part: DiffPart, place: Here) -> None:
    for words in part.words:
        screen.say(f"{screen.paint(shown(part.resource, place), 'bold')}: {clean(words)}")
    if screen.json or screen.quiet:
        return
    if not (screen.terminal or screen.colour):
        # For a program: the bytes as they are, so that `patch` can use them.
        with printing():
            put("", end="")
            sys.stdout.flush()
            sys.stdout.buffer.writelines(line + b"\n" for line in part.lines)
        return
    styles = {b"+": "green", b"-": "red", b"@": "cyan"}
    for number, line in enumerate(part.lines):
        style = "bold" if number < 2 else styles.get(line[:1], "")
        screen.say(screen.paint(clean_line(line), style))


COMMANDS = {
    "show": Command(_show_arguments, _show, does=Does.LOOKS, long=True),
    "diff": Command(_diff_arguments, _diff, does=Does.LOOKS, long=True),
}
