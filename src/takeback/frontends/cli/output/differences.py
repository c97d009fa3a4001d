"""What a command or an effect changed: before to after, and the outcome of a command in words and as JSON."""

import os
import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from takeback.adapters.protocol import traits_of
from takeback.api import opened_of
from takeback.api.store import now
from takeback.audit.diff import DiffPart, difference
from takeback.audit.diff import quoted as quoted_name
from takeback.audit.views import effect_json
from takeback.errors import Misuse
from takeback.frontends.cli.command import Asked
from takeback.frontends.cli.output.log_table import moves_in, named_move
from takeback.frontends.cli.output.screen import (
    Here,
    Screen,
    clean,
    clean_line,
    folded,
    for_reader,
    here,
    local_time,
    printing,
    put,
    quoted,
    say_first,
    shown,
    warn,
)
from takeback.model.effect import Effect
from takeback.model.ids import short
from takeback.model.remedy import surprises
from takeback.model.resource import path_of
from takeback.model.settings import bytes_in_words
from takeback.runs.commands.outcome import Changed, CommandOutcome, in_numbers

if TYPE_CHECKING:
    from takeback.adapters.tree.targets import Rename
    from takeback.api import Takeback
    from takeback.runs.boxes.command import BoxOutcome


_LISTED = 10

_FEW = 4

_OF_A_SHELL = frozenset(" \t\n|&;<>$`*")

_BUILT_IN = ("cd", "export", "source", ".", "alias", "set", "unset", "ulimit", "umask")


def hint_at_shell(argv: Sequence[str], exit_code: int) -> str:
    """For who wrote a line of shell as one word, or named a word that only a shell knows."""
    line = argv[0] if len(argv) == 1 else " ".join(map(quoted, argv))
    meant = (len(argv) == 1 and not _OF_A_SHELL.isdisjoint(line)) or argv[0] in _BUILT_IN
    hint = f"To use the shell: `takeback run -- sh -c {quoted(line)}`."
    return hint if exit_code in (126, 127) and meant else ""


def seconds(text: str | None) -> float:
    if text is None:
        return 0
    try:
        value = float(text)
    except ValueError:
        value = -1
    if not 0 < value < float("inf"):
        raise Misuse(f"{text!r} is no time limit.", hint="Give seconds greater than 0, such as 60.")
    return value


def outcome_json(tb: "Takeback", outcome: CommandOutcome) -> dict[str, Any]:
    conflicts = [{"resource": one.resource, "detail": one.detail} for one in outcome.conflicts]
    return command_json(
        tb, outcome, outcome.dropped, outcome.effect, conflicts=conflicts, coverage=outcome.coverage
    )


def command_json(
    tb: "Takeback",
    outcome: "CommandOutcome | BoxOutcome",
    dropped: Effect | None,
    effect: Effect | None,
    **more: Any,
) -> dict[str, Any]:
    """Also of a command in a box; `more` comes before the text."""
    return {
        "exit_code": outcome.exit_code,
        "stopped": outcome.stopped,
        "stdout": outcome.stdout.decode("utf-8", "backslashreplace"),
        "stderr": outcome.stderr.decode("utf-8", "backslashreplace"),
        "held": outcome.held,
        "dropped": effect_json(tb.effect(dropped.id)) if dropped else None,
        "final": outcome.final.value if outcome.final else None,
        "effect": effect_json(tb.effect(effect.id)) if effect else None,
        "changes": changes_json(outcome.changes),
        **more,
        "text": outcome.text,
    }


def changes_json(changes: Iterable[Changed]) -> list[dict[str, Any]]:
    return [{"kind": one.kind, "resource": one.resource, "size": one.size} for one in changes]


def until(dropped: Effect) -> str:
    return f", until {local_time(dropped.dropped.until, now())}" if dropped.dropped else ""


def sizes(changes: Iterable[Changed]) -> str:
    """How much is there now, and how much went."""
    written = deleted = 0
    kinds: set[str] = set()
    for one in changes:
        kinds.add(one.kind)
        if one.kind == "deleted":
            deleted += one.size
        else:
            written += one.size
    if "deleted" not in kinds:
        return bytes_in_words(written)
    gone = f"{bytes_in_words(deleted)} deleted"
    return bytes_in_words(deleted) if kinds == {"deleted"} else f"{bytes_in_words(written)} written, {gone}"


def say_changes(changes: Sequence[Changed]) -> None:
    """What lies below the reader comes first. Of many, a directory stands for what is in it."""
    place = here()
    most = _FEW if len(changes) > _LISTED else _LISTED
    for kind, sign in (("added", "+"), ("modified", "~"), ("deleted", "-")):
        for line in folded((clean(one.path) for one in changes if one.kind == kind), most, place):
            warn(f"  {sign} {line}")


def say_changes_of(outcome: CommandOutcome) -> None:
    """What a command changed: what it moved first."""
    moves, rest = _moves_and_rest(outcome)
    say_first(warn, [named_move(move, here()) for move in moves], _LISTED, "  > ")
    say_changes(rest)


def numbers_of(outcome: CommandOutcome) -> str:
    """`1 moved, 2 added`; empty if there is nothing."""
    moves, rest = _moves_and_rest(outcome)
    return ", ".join(filter(None, (f"{len(moves):,} moved" if moves else "", in_numbers(rest))))


def _moves_and_rest(outcome: CommandOutcome) -> "tuple[Sequence[Rename], list[Changed]]":
    effect = outcome.effect or outcome.dropped
    moves = moves_in(effect) if effect else outcome.moves
    moved = {path for move in moves for path in move.paths}
    return moves, [one for one in outcome.changes if one.resource not in moved]


def say_made(asked: Asked, outcome: CommandOutcome, why: str) -> None:
    """What a command did that is an effect now; `why` it failed, if it did."""
    effect = outcome.effect
    assert effect
    if asked.screen.terminal:
        say_changes_of(outcome)
    moves, rest = _moves_and_rest(outcome)
    told = [f"{len(moves):,} moved"] if moves else []
    told += [f"{in_numbers(rest)} ({sizes(rest)})"] if rest or not moves else []
    though = f", though it failed ({why})" if outcome.exit_code else ""
    warn(f"takeback: {', '.join(told)}: {short(effect.id)}{though}")
    if effect.remedy and surprises(effect.remedy):
        warn(f"takeback: undo would leave this behind: {clean(effect.remedy.residue)}")


def say_rows(screen: Screen, tb: "Takeback", effect: Effect) -> None:
    from takeback.audit.rows import as_parts, changed_rows

    say_parts(screen, as_parts(effect, changed_rows(opened_of(tb).parts, effect)))


def parts_of(tb: "Takeback", effect: Effect, only: str) -> tuple[DiffPart, ...]:
    if not traits_of(effect.change).boxes:
        return difference(tb.store.blobs, effect, only)
    from takeback.audit.diff import step_difference
    from takeback.model.resource import overlaps

    found = step_difference(tb.store.layers(), tb.store.blobs, effect)
    return tuple(part for part in found if not only or overlaps(only, part.resource))


def say_changed(screen: Screen, tb: "Takeback", effect: Effect) -> None:
    if "database" in effect.change.args:
        say_rows(screen, tb, effect)
    elif effect.targets:
        say_parts(screen, parts_of(tb, effect, ""), effect)


def say_parts(screen: Screen, parts: tuple[DiffPart, ...], effect: Effect | None = None) -> None:
    """What `effect` moved is one line, not something that went here and came there. A move onto a file stays two parts:
    they show what was overwritten."""
    moves = [one for one in moves_in(effect) if not one.replaced] if effect else []
    targets = effect.targets if effect else ()
    moved = {path for move in moves for path in move.paths}
    parts = tuple(part for part in parts if part.resource not in moved)
    if not parts and not moves:
        screen.say("It touched nothing that can be compared.")
    place = here()
    below = os.fsencode(place.directory) + b"/"
    # For `patch`, the paths of one answer all begin in the current directory or all at the root.
    paths = [path_of(one) for one in (*(part.resource for part in parts), *moved)]
    near = screen.terminal or all(path.startswith(below) for path in paths)
    for part in parts:
        _say_part(screen, _from_here(part, below) if near else part, place)
    states = [(one.resource, {one.before.get("type"), one.after.get("type")}) for one in targets]
    files = {resource for resource, types in states if types == {"file", "absent"}}
    # Last, because `patch` takes lines after such a head as part of it.
    for move in moves:
        screen.say(f"{screen.paint(named_move(move, place), 'bold')}: moved")
        if not (screen.terminal or screen.colour):
            _put_lines(screen, _as_git(move, files, below if near else b"/"))


def _from_here(part: DiffPart, below: bytes) -> DiffPart:
    """With the names above its lines as they are seen from the current directory."""
    path = path_of(part.resource)
    if not part.lines or not path.startswith(below):
        return part
    names = {
        sign + quoted_name(side + path): sign + quoted_name(side + b"/" + path[len(below) :])
        for sign, side in ((b"--- ", b"a"), (b"+++ ", b"b"))
    }
    return part._replace(lines=(*(names.get(one, one) for one in part.lines[:2]), *part.lines[2:]))


def _as_git(move: "Rename", files: Collection[str], root: bytes) -> Iterator[bytes]:
    """As `patch` and `git apply` understand it: each file by itself."""
    old, new = path_of(move.old), path_of(move.new)
    for path in [path_of(one) for one in move.paths if one in files]:
        if path == old or path.startswith(old + b"/"):
            went, came = (one.removeprefix(root) for one in (path, new + path[len(old) :]))
            yield b"diff --git " + quoted_name(b"a/" + went) + b" " + quoted_name(b"b/" + came)
            yield b"similarity index 100%"
            yield b"rename from " + quoted_name(went)
            yield b"rename to " + quoted_name(came)


def _put_lines(screen: Screen, lines: Iterable[bytes]) -> None:
    """For a program: the bytes as they are."""
    if not screen.speaks:
        return
    with printing():
        put("", end="")
        sys.stdout.flush()
        sys.stdout.buffer.writelines(line + b"\n" for line in _masked(lines))


def _masked(lines: Iterable[bytes]) -> list[bytes]:
    """Without secrets, unless they were asked for: then `patch` can use them."""
    texts = [line.decode("utf-8", "surrogateescape") for line in lines]
    return [line.encode("utf-8", "surrogateescape") for line in for_reader(texts)]


def _say_part(screen: Screen, part: DiffPart, place: Here) -> None:
    for words in part.words:
        screen.say(f"{screen.paint(shown(part.resource, place), 'bold')}: {clean(words)}")
    if not screen.speaks:
        return
    if not (screen.terminal or screen.colour):
        _put_lines(screen, part.lines)
        return
    styles = {b"+": "green", b"-": "red", b"@": "cyan"}
    for number, line in enumerate(_masked(part.lines)):
        style = "bold" if number < 2 else styles.get(line[:1], "")
        screen.say(screen.paint(clean_line(line), style))
