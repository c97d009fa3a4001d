"""The table of `log`: one line an effect, as wide as the terminal, undos folded into what they took back."""

import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from takeback.errors import Misuse
from takeback.frontends.cli.output.screen import (
    Here,
    Screen,
    ago,
    clean,
    counted,
    folded,
    local_time,
    near,
    near_text,
    shown,
    without_secrets,
)
from takeback.model.database import is_of_database
from takeback.model.effect import PERSON, Effect, State, waits_for_approval
from takeback.model.ids import short
from takeback.model.resource import display
from takeback.storage.protocols import Query

if TYPE_CHECKING:
    from takeback.adapters.tree.targets import Rename
    from takeback.api import Takeback
    from takeback.audit.runs import RunNow
    from takeback.model.remedy import Target
    from takeback.model.run import RunInfo, UnderPrompt

FIELDS = (
    "ref", "id", "at", "ago", "state", "agent", "run", "prompt", "summary", "what", "where", "resource",
)  # fmt: skip
_NARROWEST = 20  # columns of a summary, however small the terminal
_MOST = 10  # paths that --stat lists
_MANY = 20_000  # paths of an effect; of more a list does not find the renames
_STYLES = {
    "undone": "dim",
    "aborted": "dim",
    "dropped": "dim",
    "stuck": "red",
    "held": "yellow",
    "waiting for approval": "yellow",
    "approved": "yellow",
    "proposed": "yellow",
    "intended": "yellow",
}


class TableContext(NamedTuple):
    here: Here
    now: int
    runs: "Mapping[str, RunInfo]"
    agent: str  # the reader's own
    numbered: bool  # whether the first one is @
    parted: Mapping[str, Sequence[str]] = {}  # by effect that is partly undone: what was taken back
    asked_for: Mapping[str, str] = {}  # by call that needs an approval: how it stands
    under: "Mapping[str, UnderPrompt]" = {}  # by effect of a coding agent: its prompt


def is_folded(effect: Effect) -> bool:
    """A finished undo or redo is seen in the state of what it took back."""
    return effect.is_undo and effect.state in (State.DONE, State.UNDONE)


def refs(effects: Sequence[Effect], numbered: bool) -> dict[str, str]:
    """`@`, `@~1` … by id, as `undo @~1` would count them."""
    if not numbered:
        return {}
    unmade = (State.ABORTED, State.DROPPED)
    counts = [one.id for one in effects if not one.is_undo and one.state not in unmade]
    return {id: "@" if not place else f"@~{place}" for place, id in enumerate(counts)}


class _Row(NamedTuple):
    ref: str
    id: str
    when: str
    summary: str
    what: str
    marks: str  # the state and what else must be seen; a long summary gives way to it
    beside: str  # shown where there is room
    state: str


def lines(screen: Screen, effects: Sequence[Effect], told: TableContext, width: int) -> list[str]:
    """One for each. `width`: 0 for as wide as it gets."""
    named = refs(effects, told.numbered)
    rows = [_cells(one, named, told) for one in effects]
    ref, when, what, marks, room = (
        max((len(getattr(row, name)) for row in rows), default=0)
        for name in ("ref", "when", "what", "marks", "summary")
    )
    if width:
        left = width - (ref + 2 * bool(ref) + 8 + 2 + when + 2) - (marks + 4 if marks else 0)
        if left - (what + 2) < _NARROWEST:
            what = 0
        room = max(_NARROWEST, min(room, left - (what + 2 if what else 0)))
    return [_line(screen, row, (ref, when, room, what), width) for row in rows]


def _cells(effect: Effect, named: Mapping[str, str], told: TableContext) -> _Row:
    state = _shown_state(effect, told)
    must = (
        state if state != "done" else "",
        "pinned" if effect.pinned else "",
        "forgotten" if effect.forgotten else "",
        effect.not_by_agent if effect.id in told.under else "",
        "outside" if effect.is_elsewhere else "",
        "no way back" if "database" in effect.change.args and effect.receipt.get("lost") else "",
    )
    return _Row(
        named.get(effect.id, ""), short(effect.id), ago(effect.at, told.now),
        near_text(clean(effect.change.summary), told.here), amount(effect),
        ", ".join(mark for mark in must if mark), _beside(effect, told), state,
    )  # fmt: skip


def _line(screen: Screen, row: _Row, widths: tuple[int, int, int, int], width: int) -> str:
    ref_width, when_width, room, what_width = widths
    summary = row.summary if len(row.summary) <= room else row.summary[: room - 1] + "…"
    head = f"{row.ref:<{ref_width}}  " if ref_width else ""
    rest = f"{summary:<{room}}" + (f"  {row.what:<{what_width}}" if what_width else "")
    told = ", ".join(filter(None, (row.marks, row.beside)))
    left = width - (len(head) + 8 + 2 + when_width + 2 + len(rest)) - 4 if width else len(told)
    if len(told) > left:
        told = f"{told[: left - 1]}…" if left > len(row.marks) + 2 else row.marks
    end = f"  ({told})" if told else ""
    style = _STYLES.get(row.state, "")
    painted = screen.paint(row.id, "cyan") if style != "dim" else screen.paint(row.id, style)
    rest = screen.paint(rest.rstrip() if not end else rest, style)
    text = f"{head}{painted}  {row.when:<{when_width}}  {rest}"
    return f"{text}{screen.paint(end, style or 'dim')}".rstrip()


def _shown_state(effect: Effect, told: TableContext) -> str:
    if effect.id in told.parted:
        return "partly undone"
    if effect.id in told.asked_for:
        return told.asked_for[effect.id]
    return "held" if effect.waits_for == PERSON and effect.state is State.PROPOSED else effect.state.value


def amount(effect: Effect) -> str:
    """How much it changed, where its summary does not say."""
    if "database" in effect.change.args:
        tables: dict[str, Any] = effect.receipt.get("tables", {})
        rows = sum(sum(counts.values()) for counts in tables.values())
        schema = len(effect.receipt.get("schema", ()))
        told = [counted(rows, "row")] if rows else []
        return ", ".join([*told, counted(schema, "schema change")] if schema else told)
    if "argv" not in effect.change.args and "roots" not in effect.change.args:
        return ""
    moves = moves_in(effect)
    moved = {path for move in moves for path in move.paths}
    kinds = {"moved": len(moves), "added": 0, "modified": 0, "deleted": 0}
    for target in effect.targets:
        if target.resource not in moved:
            before, after = target.before.get("type"), target.after.get("type")
            kinds["added" if before == "absent" else "deleted" if after == "absent" else "modified"] += 1
    return ", ".join(f"{count:,} {kind}" for kind, count in kinds.items() if count)


def moves_in(effect: Effect) -> "Sequence[Rename]":
    """What it moved: by `takeback mv`, or by a command."""
    if effect.change.kind != "move":
        return moves_of(effect.targets) if len(effect.targets) <= _MANY else ()
    from takeback.adapters.tree.targets import Rename

    old, new = effect.change.resource, effect.change.args["to"]
    replaced = any(one.resource == new and one.before.get("type") != "absent" for one in effect.targets)
    return (Rename(old, new, (old, new), replaced),)


def named_move(move: "Rename", place: Here) -> str:
    return f"{shown(move.old, place)} → {shown(move.new, place)}"


def moves_of(targets: "Sequence[Target]") -> "Sequence[Rename]":
    """The renames that a command did."""
    gone = [one for one in targets if one.after.get("type") == "absent"]
    if not gone or len(gone) == len(targets):
        return ()
    from takeback.adapters.tree.targets import renames

    return renames(targets)


def _where(effect: Effect, told: TableContext) -> str:
    if "argv" not in effect.change.args or is_of_database(effect.change.resource):
        return ""
    place = near(display(effect.change.resource), told.here)
    return "" if place == "." else place


def _beside(effect: Effect, told: TableContext) -> str:
    """Where and why, and who did it where that is not the reader."""
    run = told.runs.get(effect.run)
    name = clean(run.name) if run else ""
    summary = clean(effect.change.summary)
    agent = clean(effect.agent) if effect.agent and effect.agent != told.agent else ""
    under = told.under.get(effect.id)
    # Of a store of before: today the calls of a subagent are below a line of their own.
    member = effect.change.args.get("member") if not (under and under.member) else ""
    if effect.id in told.under:  # its prompt was named above it
        name = agent = ""
    if name in summary or summary.startswith(name[:20]) or name.startswith("command line"):
        name = ""
    marks = [_where(effect, told), f"{agent}: {name}" if agent and name else name or agent]
    marks += [f"subagent {clean(str(member))}"] if member else []
    if effect.state in (State.STUCK, State.ABORTED):
        marks.append(near_text(clean(effect.note), told.here))
    if effect.dropped and effect.state is State.DROPPED:
        marks.append(f"until {local_time(effect.dropped.until, told.now)}")
    return ", ".join(filter(None, marks))


def stat_lines(effect: Effect, place: Here, undone: Sequence[str] = ()) -> list[str]:
    """The paths that it changed, for --stat; `undone` are those that were taken back."""
    if "database" in effect.change.args and not undone:
        return [f"  {clean(table)}" for table in effect.receipt.get("tables", {})][:_MOST]
    paths = {one.resource for one in effect.targets if not one.resource.startswith("call://")}
    gone = paths.intersection(undone)
    return [f"  {line}{end}" for some, end in ((paths - gone, ""), (gone, " (undone)"))
            for line in _stat_of(effect, some, place)]  # fmt: skip


def _stat_of(effect: Effect, paths: set[str], place: Here) -> list[str]:
    """A move with both its names among these paths is one line."""
    moves = [move for move in moves_in(effect) if paths.issuperset(move.paths)]
    lines = [named_move(move, place) for move in moves[:_MOST]]
    more = [f"and {len(moves) - _MOST:,} more moves"] if len(moves) > _MOST else []
    moved = {path for move in moves for path in move.paths}
    rest = (display(one.resource) for one in effect.targets if one.resource in paths - moved)
    return [*lines, *more, *(clean(line) for line in folded(rest, _MOST, place))]


def formatted(pattern: str, effects: Sequence[Effect], told: TableContext) -> Iterator[str]:
    """One line for each effect, by --format."""
    if pattern == "json":
        from takeback.audit.views import effect_json, prompt_fields

        for one in effects:
            fields = prompt_fields(one, told.under)
            yield json.dumps(without_secrets(effect_json(one, told.parted.get(one.id, ())) | fields))
        return
    _refuse_unknown(pattern)
    named = refs(effects, told.numbered)
    for effect in effects:
        yield _filled(pattern, _values(effect, named, told))


def _values(effect: Effect, named: Mapping[str, str], told: TableContext) -> dict[str, str]:
    run, mine = told.runs.get(effect.run), told.under.get(effect.id)
    moment = time.localtime(effect.at // 1_000_000)
    return {
        "ref": named.get(effect.id, ""),
        "id": short(effect.id),
        "at": time.strftime("%Y-%m-%dT%H:%M:%S%z", moment) if effect.at else "",
        "ago": ago(effect.at, told.now),
        "state": _shown_state(effect, told),
        "agent": clean(effect.agent),
        "run": clean(run.name) if run else "",
        "prompt": clean(mine.point.label.removeprefix("prompt ")) if mine and mine.point else "",
        "summary": clean(effect.change.summary),
        "what": amount(effect),
        "where": _where(effect, told),
        "resource": effect.change.resource,
    }


def _filled(pattern: str, values: Mapping[str, str]) -> str:
    """In one pass: a value that looks like a field is none."""
    pieces = pattern.replace("\\t", "\t").split("{")
    filled = pieces[0]
    for piece in pieces[1:]:
        name, _, rest = piece.partition("}")
        filled += values[name] + rest
    return filled


def _refuse_unknown(pattern: str) -> None:
    from takeback.model.words import did_you_mean

    known = "Fields: " + ", ".join(f"{{{field}}}" for field in FIELDS) + "; or json."
    for piece in pattern.split("{")[1:]:
        name, closed, _ = piece.partition("}")
        if not closed or name not in FIELDS:
            raise Misuse(
                f"--format knows no field {{{name}}}.",
                hint=did_you_mean(name, FIELDS, known) if closed else known,
            )
    if "{" not in pattern:
        raise Misuse(f"--format {pattern!r} names no field.", hint=known)


def width_of(screen: Screen) -> int:
    """Of the terminal; 0 where there is none."""
    if not screen.terminal:
        return 0
    try:
        return os.get_terminal_size(1).columns
    except OSError:
        return 0


def partly_undone(tb: "Takeback", effects: Sequence[Effect]) -> dict[str, tuple[str, ...]]:
    """By effect that is partly undone: the paths that were taken back."""
    ids = tuple(one.id for one in effects if not one.is_undo and one.state in (State.DONE, State.UNDONE))
    if not ids or not tb.store.journal.count(Query(undoing=ids)):
        return {}
    from takeback.engine.portion import undone_paths

    return undone_paths(tb.store.journal, effects)


def asked_for(tb: "Takeback", effects: Sequence[Effect], now: int) -> dict[str, str]:
    """By call that needs an approval: how it stands."""
    asked = [one for one in effects if waits_for_approval(one)]
    if not asked:
        return {}
    from takeback.engine.approval import as_it_stands

    return {one.id: as_it_stands(tb.store, one, now).word for one in asked}


def state_shown(run: "RunNow") -> str:
    """One that ended by itself and left a note of how it failed is no success."""
    return "failed" if run.failed else run.state.value


def done_in(run: "RunNow") -> str:
    """How much a run did; one that only took back tells how much of that."""
    return counted(run.undos, "undo") if run.undos and not run.effects else counted(run.effects, "effect")
