"""What an undo or redo did, and what it did not do, in files and in databases."""

from collections.abc import Collection, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from takeback.adapters.protocol import traits_of
from takeback.audit.rows import counts_of, receipt_of
from takeback.audit.views import undo_json
from takeback.errors import Blocked, Conflict, Failed, InDoubt, Refused, Stuck, TakebackError
from takeback.frontends.cli.command import Asked
from takeback.frontends.cli.output.errors import as_field, told_trouble, worst_first
from takeback.frontends.cli.output.log_table import moves_in, moves_of, partly_undone
from takeback.frontends.cli.output.screen import (
    clean,
    counted,
    folded,
    for_reader,
    from_here,
    here,
    listed,
    near,
    nearest_first,
    say_first,
    took,
)
from takeback.frontends.cli.output.undo_hints import (
    WantedUndo,
    by_hand,
    earlier,
    named_whole,
    unsettled_error,
    ways_out,
    with_those_on_it,
)
from takeback.frontends.cli.session.store import give
from takeback.model.change import OnConflict
from takeback.model.database import is_of_database
from takeback.model.effect import OPEN_STATES, Effect, State
from takeback.model.ids import short
from takeback.model.plan import (
    Bond,
    Companion,
    Obstacle,
    Outcome,
    TargetOutcome,
    UndoResult,
    nothing_to_do,
    out_of_the_way,
    way_to_both,
    without_companions,
)
from takeback.model.remedy import Target, doubt_of
from takeback.model.resource import display, path_of, shell_word
from takeback.runs.selection import overwriting, overwritten
from takeback.storage.protocols import Query

if TYPE_CHECKING:
    from takeback.api import Takeback


_MARK = "/effect:"


def is_whole(target: TargetOutcome) -> bool:
    """An effect on a database has one target, which stands for all its rows."""
    return is_of_database(target.resource) and _MARK in target.resource


def named(target: TargetOutcome) -> str:
    return display(target.resource.rpartition(_MARK)[0] if is_whole(target) else target.resource)


def detail_of(target: TargetOutcome, result: UndoResult) -> str:
    """The changes by table; of a plan the opposite of the effect."""
    if not is_whole(target) or target.detail:
        return target.detail
    made = next((one for one in result.undo if _of(one) == target.effect), None)
    effect = made or next((one for one in result.effects if _of(one) == target.effect), None)
    if effect is None:
        return ""
    counts = counts_of(effect, turned=made is None)
    told = [f"{table}: {words}" for table, words in counts if words != "nothing"]
    schema: list[str] = receipt_of(effect).get("schema", [])
    return "; ".join((*told, *(schema if made else [f"takes back: {one}" for one in schema])))


def _of(effect: Effect) -> str:
    return effect.undoes or effect.id


def amounts_of(result: UndoResult) -> list[str]:
    """Of rows that changed; empty if no database had a part in it."""
    receipts = [receipt_of(one) for one in result.undo if is_of_database(one.change.resource)]
    rows = sum(sum(counts.values()) for one in receipts for counts in one.get("tables", {}).values())
    schema = sum(len(one.get("schema", ())) for one in receipts)
    told = [counted(rows, "row")] if rows else []
    if schema:
        told.append(counted(schema, "schema change"))
    whole = sum(1 for one in result.targets if is_whole(one) and one.outcome is Outcome.UNDONE)
    return told or ([counted(whole, "effect")] if whole else [])


_MOST_LISTED = 10
_FIRST_LISTED = 5
_GOOD = (Outcome.UNDONE, Outcome.ALREADY)
_UNSETTLED = (State.STUCK, State.INTENDED)


class Words(NamedTuple):
    past: str
    passive: str
    present: str
    of_a_target: str
    already: str


_WORDS = {
    "undo": Words("Took back", "taken back", "take back", "undone", "already in the state before the effect"),
    "redo": Words(
        "Brought back", "brought back", "bring back", "redone", "already in the state before the undo"
    ),
}


def tell_refused(asked: Asked, tb: "Takeback", error: TakebackError) -> int:
    """As an undo result too, so that a script need not know two shapes."""
    if not asked.screen.json:
        raise error
    resources = error.resources if isinstance(error, Conflict) else ()
    told: dict[str, Any] = {
        "outcome": "stuck" if isinstance(error, (InDoubt, Stuck)) else "refused",
        "effects": [],
        "targets": [
            {"resource": one, "outcome": Outcome.CONFLICT.value, "detail": str(error), "effect": error.effect}
            for one in resources
        ],
        "undo": [],
        **as_field(asked.screen, [error]),
    }
    if isinstance(error, Blocked):
        told["blocked_by"] = list(error.blockers)
    give(asked, tb, told)
    return error.exit_code


def tell_result(asked: Asked, tb: "Takeback", wanted: WantedUndo, result: UndoResult, started: float) -> int:
    asked.made.extend(effect.id for effect in result.undo)
    screen, words = asked.screen, _WORDS[wanted.verb]
    errors = _troubles(tb, wanted, result)
    passed: dict[str, Any] = {"passed_over": [one.id for one in wanted.passed]} if wanted.passed else {}
    passed |= {"own_call": [one.id for one in wanted.around]} if wanted.around else {}
    made = result.effects if wanted.verb == "undo" else [tb.effect(one.undoes) for one in result.effects]
    undone = partly_undone(tb, made) if result.undo else {}
    moves = _moves(asked, wanted, result, made)
    give(asked, tb, undo_json(result, undone) | passed | dict(wanted.of) | as_field(screen, errors))
    _say_before(asked, wanted)
    if not result.targets and result.outcome == "done":
        screen.say("Nothing to take back: nothing has happened since.")
    elif nothing_to_do(result.targets):
        screen.say(f"Nothing to {words.present}: {_named_already(result.targets, words)}.")
    elif result.outcome == "planned":
        if not wanted.listed:
            screen.say(f"Would {words.present} {counted(len(result.effects), 'effect')}:")
        for effect in () if wanted.listed else result.effects:
            screen.say(f"  {screen.effect(effect)}")
        _list_targets(asked, result, f"would {wanted.verb}", moves)
        _show_merges(asked, result)
    elif any(one.outcome in _GOOD for one in result.targets):
        if any(one.outcome is Outcome.UNDONE for one in result.targets):
            screen.say(f"{words.past} {_amount(result, moves)} in {took(started)}.")
        _list_targets(asked, result, words.of_a_target, moves)
    _say_along(asked, result.along)
    _say_elsewhere(asked, wanted, result)
    for id, paths in undone.items():
        whole = len(tb.effect(id).targets)
        stand = f"{whole - len(paths):,} of {counted(whole, 'path')} still stand"
        screen.say(f"{screen.id(id)} is partly undone: {stand}.")
    for id in result.settled:
        screen.say(f"{screen.id(id)} is no longer stuck.")
    if result.state is not None:
        import json

        screen.say(f"The agent's state at that point: {clean(json.dumps(result.state))}")
    if result.outcome == "done" and any(not traits_of(one.change).calls for one in result.undo):
        left = undone if wanted.verb == "undo" else ()
        rest = "".join(f" `takeback undo {short(id)}` takes back the rest." for id in left)
        screen.hint(_way_on(tb, result, wanted.verb) + rest)
    return told_trouble(screen, errors)


_BONDS = {
    Bond.MOVE: "it is the other name of {} in a move",
    Bond.LINK: "it is the same file as {}",
    Bond.DATABASE: "it belongs to the database of {}",
    Bond.REF: "it belongs to the ref of {}",
    Bond.DIRECTORY: "{} comes back into it",
    Bond.INSIDE: "it is in {}, which goes",
    Bond.WHOLE: "the effect changed it as one, with {} in it",
}


def _say_along(asked: Asked, along: Sequence[Companion]) -> None:
    """Paths that were not named and go with those that were."""
    place = here()
    whys = [_BONDS[one.bond].format(near(display(one.goes_with), place)) for one in along]
    lines = [f"{near(display(one.resource), place)}: {why}" for one, why in zip(along, whys, strict=True)]
    say_first(asked.screen.say, lines, _MOST_LISTED, "  with it   ")


def _say_elsewhere(asked: Asked, wanted: WantedUndo, result: UndoResult) -> None:
    """What a command changed outside of what was watched is in no effect."""
    names = dict.fromkeys((*result.outside, *(path for one in wanted.passed for path in one.outside)))
    if names and wanted.verb == "undo":
        told = listed([near(one, here()) for one in names], _MOST_LISTED)
        verb = "was" if len(names) == 1 else "were"
        asked.screen.say(f"Not covered: {told} {verb} changed outside of what was watched.")


def _say_before(asked: Asked, wanted: WantedUndo) -> None:
    """What is meant, and what was passed over."""
    if wanted.title:
        asked.screen.say(wanted.title)
    passed = wanted.passed
    for effect in passed[:_MOST_LISTED]:
        what = from_here(effect.change.summary)
        told = f"{asked.screen.id(effect.id)} ({what})"
        why = (
            "it changed nothing that was watched"
            if effect.is_elsewhere
            else "its targets are already in the earlier state"
        )
        asked.screen.say(f"Skipped {told}: {why}.")
    if len(passed) > _MOST_LISTED:
        asked.screen.say(f"Skipped {len(passed) - _MOST_LISTED:,} more.")
    for effect in wanted.around:
        asked.screen.say(f"Left out {asked.screen.effect(effect)}: this command is part of that call.")


def _named(targets: Sequence[TargetOutcome]) -> str:
    first = near(named(targets[0]), here())
    return f"{first} is" if len(targets) == 1 else f"{first} and {len(targets) - 1:,} more are"


def _named_already(targets: Sequence[TargetOutcome], words: Words) -> str:
    """Why nothing is left to do. Of what stays the detail tells it."""
    stays = next((one for one in targets if one.obstacle is Obstacle.OTHER), None)
    if stays is None:
        return f"{_named(targets)} {words.already}"
    return f"{near(named(stays), here())} {from_here(stays.detail)}"


def _troubles(tb: "Takeback", wanted: WantedUndo, result: UndoResult) -> list[TakebackError]:
    """Why not all that was asked for happened, worst first; empty if it did."""
    of = {effect.id for effect in result.effects}
    open_undos = (
        [one for one in tb.store.journal.effects(Query(states=_UNSETTLED)) if one.undoes in of]
        if result.outcome == "stuck" or result.postponed
        else []
    )
    so = ", so it would be left out" if result.outcome == "planned" else ", so it was left out"
    errors = [unsettled_error(tb, one, ours=True) for one in open_undos]
    # Asked again: taking back the run of a dead worker settles what that left open.
    now = [tb.effect(one.id) for one in wanted.left_out]
    errors += [unsettled_error(tb, one, so) for one in now if one.state in OPEN_STATES]
    told = {one.undoes for one in open_undos}
    bad = [one for one in result.targets if one.outcome not in _GOOD and one.effect not in told]
    if bad:
        errors.append(_not_all(tb, wanted, result, bad))
    return worst_first(errors)


def _not_all(
    tb: "Takeback", wanted: WantedUndo, result: UndoResult, bad: list[TargetOutcome]
) -> TakebackError:
    why = without_companions(bad)
    alike: dict[str, list[str]] = {}
    for one in why:
        alike.setdefault(one.detail.removeprefix("it "), []).append(named(one))
    each = {detail: f"each of {listed(those)}" if those[1:] else those[0] for detail, those in alike.items()}
    names = listed([f"{one} {detail}".rstrip(" .") for detail, one in each.items()], sign="; ")
    some = any(one.outcome in _GOOD for one in result.targets)
    was = "would be" if result.outcome == "planned" else "was"
    kind, what = (Failed, f"Not all of it {was}") if some else (Refused, f"Nothing {was}")
    sentence = f"{what} {_WORDS[wanted.verb].passive}: {names}."
    return kind(sentence, hint=_what_now(tb, wanted, result, bad), effect=bad[0].effect)


def _what_now(tb: "Takeback", wanted: WantedUndo, result: UndoResult, bad: list[TargetOutcome]) -> str:
    found = {one.outcome for one in bad}
    left = list(dict.fromkeys(one.effect for one in bad if one.outcome is not Outcome.EXCLUDED))
    hints: list[str] = []
    if left and len(left) <= (_MOST_LISTED if wanted.verb == "undo" else 1):
        again = partial(tb.undo, left) if wanted.verb == "undo" else partial(tb.redo, left[0])
        rest = WantedUndo(wanted.verb, " ".join(short(id) for id in left), again)
        if wanted.paths:
            rest = _paths_left(tb, left[0], [one for one in bad if one.outcome is not Outcome.EXCLUDED])
        if result.postponed:
            hints.append(f"Something could not be reached; `{rest.command()}` tries again.")
        if Outcome.CONFLICT in found:
            known = {one.resource: one.obstacle for one in bad if one.outcome is Outcome.CONFLICT}
            planned = result.outcome == "planned" and not wanted.paths
            back = sum(
                planned and one.outcome is Outcome.UNDONE and one.effect in left for one in result.targets
            )
            ways = ways_out(tb, rest, {"on_conflict": "skip"}, known.values(), back)
            ways = ways or out_of_the_way(known, f"{wanted.verb} again")
            hints.append(ways or with_those_on_it(tb, rest, {"on_conflict": "merge"}) or by_hand(wanted))
    failed = {one.resource: one.obstacle for one in bad if one.outcome is Outcome.FAILED}
    hints.append(out_of_the_way(failed, f"{wanted.verb} again"))
    # What cannot be captured as it is now says nothing of the store.
    uncaptured = (Obstacle.UNREADABLE, Obstacle.UNCAPTURED)
    if any(why not in uncaptured for why in failed.values()) and not result.postponed:
        hints.append("`takeback verify --read-data` checks whether the store is sound.")
    if Outcome.EXCLUDED in found:
        hints.append(
            named_whole(tb, wanted, {"on_conflict": OnConflict.REFUSE}) or _why_excluded(result, bad)
        )
    if wanted.newest and not result.undo:
        hints.append(earlier(tb, wanted.newest))
    return " ".join(hint for hint in hints if hint) or "`takeback log` shows how things stand."


def _paths_left(tb: "Takeback", effect: str, bad: Sequence[TargetOutcome]) -> WantedUndo:
    """An undo of those paths that the last one left."""
    resources = list(dict.fromkeys(one.resource for one in bad))
    names = " ".join(map(shell_word, resources))
    return WantedUndo(
        "undo", short(effect), partial(tb.undo, effect, paths=[*map(path_of, resources)]), paths=names
    )


def _why_excluded(result: UndoResult, bad: list[TargetOutcome]) -> str:
    # What others changed too has a way of its own.
    left = {one.resource for one in bad if one.outcome is Outcome.EXCLUDED}
    for effect in result.effects:
        if way := way_to_both(effect, left):
            return way
    if all(one.resource.startswith("call://") for one in bad):
        return "Effects that cannot be undone need a person."
    return "Content that was not captured cannot come back."


def _way_on(tb: "Takeback", result: UndoResult, verb: str) -> str:
    from takeback.engine.portion import takes

    several = len(result.undo) > 1
    if verb == "undo":
        again = f"`takeback redo {short(result.undo[0].id)}` brings it back."
        back = "`takeback redo` brings them back." if several else again
        return f"{back}{_still_saved(tb, result)}{_no_longer_held(result)}"
    undos = {one.id: one for one in result.effects}
    over = [one for one in result.undo if one.undoes in undos and overwritten(one, undos[one.undoes])]
    if over and len(result.undo) <= _MOST_LISTED:
        redos = " ".join(short(one.id) for one in result.undo)
        names = " ".join(short(one.undoes) for one in result.effects)
        return (
            f"`takeback undo {redos}` restores the overwritten content. `takeback undo {names}` returns to the state "
            f"before the {'effects' if several else 'effect'}."
        )
    # What was overwritten or merged when it was undone is there again, so that undo would be a conflict again.
    asked = {effect.change.undo.on_conflict for effect in result.effects}
    how = {one.removesuffix("-or-skip") for one in asked} & {"force", "merge"}
    named = [effect.undoes for effect in result.effects]
    made = tb.store.journal.effects(Query(ids=tuple(named)))
    doubted = any(doubt_of(target) for effect in made for target in effect.targets)
    if doubted or any(takes(effect) is not None for effect in result.effects):
        # They took back some paths. The effects themselves have more, so what brought these back is named. Of effects
        # in which others may have had a part, only named paths go back.
        named, how = [effect.id for effect in result.undo], set[str]()
    names = " ".join(map(short, named))
    if len(result.effects) > _MOST_LISTED:
        return "`takeback log` lists them; `takeback undo ID…` takes them back again."
    options = "".join(f" --{one}" for one in sorted(how)[:1])
    return f"`takeback undo {names}{options}` takes {'them' if several else 'it'} back again."


def _still_saved(tb: "Takeback", result: UndoResult) -> str:
    """This undo does not restore content that an earlier redo with force had overwritten."""
    taken = [one for one in result.effects[:_MOST_LISTED] if not one.is_undo and one.state is State.UNDONE]
    redos = [one for effect in taken for one in overwriting(tb.store.journal, effect)]
    return "".join(
        f" Redo {short(one.id)} had overwritten something: after that, `takeback undo {short(one.id)}` brings it back."
        for one in redos[:_FIRST_LISTED]
    )


def _no_longer_held(result: UndoResult) -> str:
    """A held change was not made, so nothing of it went back, and redo does not make it."""
    dropped = [one for one in result.effects if one.state is State.DROPPED]
    ways = (
        f"`takeback apply {'--force ' * bool(one.change.facts.conflicts)}{short(one.id)}`" for one in dropped
    )
    return f" A held change is dropped: {' and '.join(ways)} would make it." if dropped else ""


class _Move(NamedTuple):
    """Of a move that was taken back or brought back whole."""

    line: str  # from where to where
    effect: str
    paths: Collection[str]  # what the line stands for


def _moves(asked: Asked, wanted: WantedUndo, result: UndoResult, made: Sequence[Effect]) -> list[_Move]:
    """A move is one line. So is a rename by a command, but not with --force, which tells what it overwrites."""
    undone: dict[str, set[str]] = {}
    for one in result.targets:
        if one.outcome is Outcome.UNDONE and one.exact:
            undone.setdefault(one.effect, set()).add(one.resource)
    told: list[_Move] = []
    for effect, original in zip(result.effects, made, strict=True):
        for old, new, paths, replaced in _renames(asked, wanted, effect, original):
            if undone.get(effect.id, set[str]()).issuperset(paths):
                names = [near(display(one), here()) for one in (old, new)]
                first, then = reversed(names) if wanted.verb == "undo" else names
                again = f"; {first} is again what it was" if replaced and wanted.verb == "undo" else ""
                told.append(_Move(f"{first} → {then}{again}", effect.id, paths))
    return told


def _renames(
    asked: Asked, wanted: WantedUndo, effect: Effect, made: Effect
) -> Iterable[tuple[str, str, Collection[str], bool]]:
    """Those that `made` did; of a redo, those that `effect`, its undo, took back."""
    if made.change.kind == "move":
        return moves_in(made)
    if asked.options.force:
        return ()
    turned = [Target(one.resource, one.after, one.before) for one in effect.targets]
    return moves_of(effect.targets if wanted.verb == "undo" else turned)


def _amount(result: UndoResult, moves: Sequence[_Move]) -> str:
    """Counts of the changes, calls first: they reach furthest. Targets that were already right do not count."""
    of_files = [one for one in result.targets if not is_of_database(one.resource)]
    in_moves = {(move.effect, path) for move in moves for path in move.paths}
    rest = [one for one in of_files if (one.effect, one.resource) not in in_moves]
    calls = [one for one in rest if one.resource.startswith("call://")]
    paths = [one for one in rest if not one.resource.startswith("call://")]
    kind = "key" if paths and all("#" in one.resource for one in paths) else "path"
    files = [effect for effect in result.effects if not is_of_database(effect.change.resource)]
    changed = [
        one
        for effect in files
        for one in (() if traits_of(effect.change).calls else effect.targets)
        if (effect.id, one.resource) not in in_moves
    ]
    kinds = {one.get("type") for target in changed for one in (target.before, target.after)}
    if kind == "path" and kinds <= {"file", "absent"}:
        kind = "file"
    moved = counted(len(moves), "move") if moves else ""
    told = [_counted(calls, "call"), moved, _counted(paths, kind), *amounts_of(result)]
    names = _names_of_calls(result, calls)
    if told[0] and names:
        told[0] += f" ({names})"
    return ", ".join(filter(None, told))


def _counted(targets: Sequence[TargetOutcome], kind: str) -> str:
    """Each once, however many effects changed it."""
    undone = {one.resource for one in targets if one.outcome is Outcome.UNDONE}
    left = {one.resource for one in targets if one.outcome not in _GOOD}
    changed, wanted = len(undone), len(undone | left)
    if not wanted:
        return ""
    if changed == wanted:
        return f"{'part of ' if left else ''}{counted(changed, kind)}"
    return f"{changed:,} of {wanted:,} {kind}s"


def _names_of_calls(result: UndoResult, calls: Sequence[TargetOutcome]) -> str:
    """Each once, by the name of its function."""
    undone = {one.effect for one in calls if one.outcome is Outcome.UNDONE}
    found = [one for one in result.effects if undone & {one.id, one.undoes}]
    called = (one.change.resource.removeprefix("call://").rpartition(":")[2] for one in found)
    names = list(dict.fromkeys(map(clean, called)))
    return ", ".join(names[:3]) + (", …" if len(names) > 3 else "")


def _show_merges(asked: Asked, result: UndoResult) -> None:
    styles = {"+": "green", "-": "red", "@": "cyan"}
    for line in for_reader([line for one in result.targets for line in one.diff.splitlines()]):
        asked.screen.say(asked.screen.paint(clean(line), styles.get(line[:1], "dim")))


def _list_targets(asked: Asked, result: UndoResult, word: str, moves: Sequence[_Move]) -> None:
    """What lies below the reader comes first. Of many only some of those that went well are listed, by directory."""
    screen, place = asked.screen, here()
    styles = {"undone": "green", "already": "dim", "conflict": "red", "failed": "red", "excluded": "yellow"}
    whole = moves if len(moves) <= _MOST_LISTED else ()
    in_moves = {(move.effect, path) for move in whole for path in move.paths}
    shown = [
        one
        for one in nearest_first(result.targets, named, place)
        if (one.effect, one.resource) not in in_moves
    ]
    lines = [move.line for move in whole]
    if len(shown) > _MOST_LISTED:
        undone = [one for one in shown if one.outcome is Outcome.UNDONE]
        shown = [one for one in shown if one.outcome is not Outcome.UNDONE]
        lines += folded((named(one) for one in undone), _FIRST_LISTED, place)
    for line in lines:
        screen.say(f"  {screen.paint(f'{word:<8}', 'green')}  {clean(line)}")
    for one in shown:
        detail = detail_of(one, result)
        detail = f"  {from_here(detail)}" if detail else ""
        outcome = word if one.outcome is Outcome.UNDONE else one.outcome.value
        name = near(named(one), place)
        screen.say(f"  {screen.paint(f'{outcome:<8}', styles[one.outcome])}  {name}{detail}")
