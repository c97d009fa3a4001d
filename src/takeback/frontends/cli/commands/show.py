"""`show`: everything that is known of one effect, or of a run."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from takeback.adapters.protocol import traits_of
from takeback.api import now, opened_of
from takeback.audit.diff import in_words
from takeback.audit.views import climb_json, effect_json, record_json
from takeback.engine.redacted import redacted_by
from takeback.frontends.cli.command import SECRETS, Asked, Command, Does, positional
from takeback.frontends.cli.output.attention import call_json, facts_of_call, standing_of
from takeback.frontends.cli.output.log_table import moves_in, named_move, partly_undone
from takeback.frontends.cli.output.screen import (
    Here,
    Screen,
    clean,
    counted,
    from_here,
    here,
    local_time,
    shown,
    when,
)
from takeback.frontends.cli.session.store import existing, give
from takeback.model.effect import COMMAND as ITS_COMMAND
from takeback.model.effect import PERSON, Effect, State, waits_for_approval
from takeback.model.ids import short
from takeback.model.record import Record
from takeback.runs.selection import overwriting
from takeback.storage.protocols import Query

if TYPE_CHECKING:
    from takeback.api import Takeback
    from takeback.engine.ladder import Climb


_MOST_TARGETS = 20


def _show(asked: Asked) -> int:
    screen, place, today = asked.screen, here(), now()
    with existing(asked) as tb:
        if run := opened_of(tb).run_meant(asked.options.id):
            from takeback.frontends.cli.output.attention import show_run

            show_run(asked, tb, run)
            return 0
        effect = tb.effect(asked.options.id)
        records = tuple(tb.store.journal.records(effect=effect.id))
        climbed = _climbed(tb, effect)
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
                "ladder": [climb_json(one) for one in climbed],
                "blocked_by": [one.id for one in blockers],
            },
        )
        where = f"{short(effect.run)} {clean(run.name)} ({run.state.value})" if run else short(effect.run)
        facts = [
            ("Effect", screen.paint(effect.id, "cyan")),
            ("What", from_here(effect.change.summary)),
            ("Where", shown(effect.change.resource, place) if "argv" in effect.change.args else ""),
            ("Ended", _ended(effect)),
            ("Covered", clean(str(effect.change.args.get("coverage", "")))),
            ("State", _state(tb, screen, effect, undone)),
            ("Run", where + (f", agent {clean(effect.agent)}" if effect.agent else "")),
            ("When", when(effect.at, today)),
            ("Way back", _way_back(effect)),
            ("Leaves", clean(effect.remedy.residue) if effect.remedy else ""),
            ("Outside", clean(", ".join(effect.outside))),
            ("Undoes", short(effect.undoes)),
            ("Because", clean(effect.change.undo.why)),
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
        _say_ladder(screen, climbed, effect, today)
        if blockers:
            screen.say("Blocked by later effects that stand on it (undo --cascade takes them too)")
            for one in blockers:
                screen.say(f"  {screen.effect(one)}")
    return 0


def _climbed(tb: "Takeback", effect: Effect) -> "tuple[Climb, ...]":
    """Of it and of its undos."""
    from takeback.engine.ladder import climbs

    undos = tb.store.journal.effects(Query(undoing=(effect.id,)))
    return climbs(tb.store.journal, (effect.id, *(one.id for one in undos)))


def _say_ladder(screen: Screen, climbed: "tuple[Climb, ...]", effect: Effect, today: int) -> None:
    from takeback.engine.ladder import RESET

    if climbed:
        screen.say("Tried, because it was stuck")
        for one in climbed:
            whose = f"undo {short(one.effect)}: " if one.effect != effect.id else ""
            screen.say(f"  {local_time(one.at, today)}  {whose}{clean(one.words)}")
    if effect.state is State.STUCK:
        name = short(effect.id)
        screen.hint(f"`takeback settle {name} --accept-residue --why TEXT` leaves it as it is. {RESET}")


def _blockers(tb: "Takeback", effect: Effect) -> tuple[Effect, ...]:
    from takeback.engine.dependents import dependents
    from takeback.engine.portion import standing

    if effect.state is not State.DONE or effect.forgotten:
        return ()
    found = {one.id: one for one in dependents(opened_of(tb).parts, standing(opened_of(tb).parts, effect))}
    return tuple(sorted(found.values(), key=lambda one: -one.order))


def _overwritten(tb: "Takeback", effect: Effect) -> str:
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
    if effect.waits_for == ITS_COMMAND:
        told += ", its command has not been seen to end"
    if effect.undone_by:
        told += f", by {short(effect.undone_by)}"
    if effect.accepted:
        told += ", accepted" + (" with its run" if effect.accepted_by == "run" else "")
    if effect.redacted:
        told += f", redacted{redacted_by(tb.store.journal, effect)}: what it did is not known any more"
    elif effect.forgotten:
        told += ", forgotten: it can no longer be undone"
    return f"{told}: {clean(effect.note)}" if effect.note else told


def _approval(tb: "Takeback", effect: Effect) -> str:
    from takeback.api.store import now
    from takeback.engine.approval import as_it_stands

    one = as_it_stands(tb.store, effect, now())
    if one.decision is None and not one.never:
        return "until someone approves or denies it"
    word = "" if one.decision is None else "approved " if one.decision.approved else "denied "
    return f"{word}{clean(standing_of(one))}"


def _ended(effect: Effect) -> str:
    code = effect.change.args.get("exit_code")
    return "" if code is None else f"with exit code {code}"


def _way_back(effect: Effect) -> str:
    if effect.is_elsewhere:
        return "none: nothing that was watched was changed"
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
    # One of which a name was taken back without the other is listed by its names.
    moves = [one for one in moves_in(effect) if gone.isdisjoint(one.paths) or gone.issuperset(one.paths)]
    moved = {path for one in moves for path in one.paths}
    told = [("Moved", named_move(one, place), one.old) for one in moves]
    for target in effect.targets:
        if target.resource not in moved:
            before, after = in_words(effect, target.before), in_words(effect, target.after)
            words = f"{shown(target.resource, place)}: {clean(before)} → {clean(after)}"
            told.append(("Target", words, target.resource))
    for name, words, resource in told[:_MOST_TARGETS]:
        taken = screen.paint(" (undone)", "dim") if resource in gone else ""
        screen.say(f"{name:<9}{words}{taken}")
    if len(told) > _MOST_TARGETS:
        screen.say(f"         and {len(told) - _MOST_TARGETS:,} more")


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


_ID = positional("id", "ID", "an effect or a run; none: the newest effect", nargs="?", default="@")
COMMAND = Command(_show, (_ID, SECRETS), does=Does.LOOKS, long=True)
