"""Carry out an undo in a run of its own; and undo what a coding agent did, in a session or since a prompt."""

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, cast

from takeback.api.store import OpenStore, now
from takeback.api.upkeep import before_change
from takeback.api.workflows import wake_settled
from takeback.errors import Misuse
from takeback.model.effect import Effect
from takeback.model.ids import short
from takeback.model.run import OnDeath
from takeback.runs.scope import as_those_of
from takeback.storage.owners import myself
from takeback.storage.protocols import Journal

if TYPE_CHECKING:
    from takeback.engine.plan import Wishes
    from takeback.engine.portion import Chosen
    from takeback.engine.undo import Undoer
    from takeback.model.plan import Plan, UndoResult
    from takeback.runs.prompt_span import SessionPart
    from takeback.runs.verbs import Path


def carry_out(
    opened: OpenStore,
    wanted: Sequence[Effect],
    dry_run: bool = False,
    cascade: bool = False,
    with_needs: bool = False,
    on_conflict: str = "refuse",
    agent: str = "",
    to_a_point: bool = False,
    only: frozenset[str] | None = None,
) -> "UndoResult":
    from takeback.engine.plan import Wishes
    from takeback.engine.stop import refuse_stopped
    from takeback.engine.undo import undo
    from takeback.model.change import on_conflict_named

    wishes = Wishes(cascade, with_needs, on_conflict_named(on_conflict), only)
    for core in tuple(opened.runs_here.values()):
        core.refuse_in_transaction(wanted)
    if not dry_run and any(one.is_undo for one in wanted):  # then this is a redo
        refuse_stopped(opened.parts, agent, "")
    begin = partial(_run_of_undo, opened, wishes, agent)
    result = undo(opened.parts, wanted, wishes, begin, dry_run=dry_run, to_a_point=to_a_point)
    if result.settled:
        from takeback.engine.ladder import chosen

        chosen(opened.store.journal, result.settled, f"undo, on_conflict={on_conflict}", result.outcome)
    return result


@contextmanager
def _run_of_undo(
    opened: OpenStore, wishes: "Wishes", agent: str, plan: "Plan"
) -> "Generator[Undoer, None, None]":
    """A run of its own, that a crash finishes."""
    from takeback.engine.stuck import Taker
    from takeback.engine.undo import Undoer
    from takeback.runs.end import ClosingJournal
    from takeback.runs.lease import held_back
    from takeback.runs.run import Run

    opened.agree(plan)
    first, *others = plan.effects
    name = f"undo {short(first.id)}" + (f" and {len(others)} more" if others else "")
    # Held back before the run is opened: its first record says what is to be undone, and that is carried out.
    with held_back():
        core = opened.open_run(
            name,
            agent,
            OnDeath.FINISH,
            as_those_of(opened.belonging.projects_of(one.run for one in plan.effects)),
            [one.id for one in plan.effects],
            wishes.on_conflict.value,
            wishes.only,
        )
        with Run(core):
            closes = not others and core.parts.at_once is not None
            journal = cast(Journal, ClosingJournal(core)) if closes else core.parts.journal
            yield Undoer(core.lease, agent, Taker(myself(), now(), opened.lease_lasts), journal)


def undo_session(
    opened: OpenStore,
    part: "SessionPart",
    dry_run: bool,
    cascade: bool,
    with_needs: bool,
    on_conflict: str,
    agent: str,
    paths: "Sequence[Path] | None",
) -> "UndoResult":
    """In one plan. Changes by others stay; they are in the way only where they are about the same."""
    from takeback.model.plan import Outcome, TargetOutcome, UndoResult
    from takeback.runs.prompt_span import done_since, nothing_left

    if not dry_run:
        opened.store.use_spare()
        before_change(opened)
    since = done_since(opened.store.journal, part)
    if not (since.done or since.held or since.stuck):
        raise nothing_left(part)
    done, only, along = since.done, None, ()
    if paths is not None:
        done, only, along = _chosen_among(opened, since.done, paths, cascade or with_needs)
    result = UndoResult("done", (), ())
    if done:
        result = carry_out(opened, done, dry_run, cascade, with_needs, on_conflict, agent, only=only)
        result = result._replace(along=along)
        if result.settled:
            wake_settled(opened)
    if paths is not None:
        return result
    stays = list(since.forgotten)
    for one in since.held:
        if opened.store.leases.free(one.run, now()):
            from takeback.runs.held import discard_all

            dropped = discard_all(opened.parts, (one,), dry_run, opened.leased)
            result = result._replace(
                effects=result.effects + dropped.effects, targets=result.targets + dropped.targets
            )
            continue
        why = f"is held; `takeback discard {short(one.id)}` drops it"
        stays.append(TargetOutcome(one.change.resource, Outcome.EXCLUDED, why, one.id))
    if stays:
        outcome = "partial" if result.outcome == "done" else result.outcome
        result = result._replace(outcome=outcome, targets=(*result.targets, *stays))
    return result._replace(outcome="stuck", effects=result.effects + since.stuck) if since.stuck else result


def _chosen_among(
    opened: OpenStore, effects: Sequence[Effect], paths: "Sequence[Path]", more: bool
) -> "Chosen":
    from takeback.engine.portion import chosen_among
    from takeback.runs.scope import resources_named

    if more:
        raise Misuse(
            "Paths cannot be combined with --cascade or --with-needs, which take back whole effects.",
            hint="Undo the later effects first, or merge.",
        )
    if not paths:
        raise Misuse("No path was named.", hint="Name the paths to take back, or leave the list out.")
    return chosen_among(opened.parts, effects, resources_named(paths))
