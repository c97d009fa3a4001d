"""`undo --to` and `undo --since`: everything of this project after a point. Shows the plan, asks, carries it out."""

import time
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from takeback.api import now, opened_of
from takeback.api.undo import undo_span
from takeback.errors import Misuse, Refused, TakebackError
from takeback.frontends.cli.command import Asked
from takeback.frontends.cli.output.screen import (
    ago,
    clean,
    counted,
    from_here,
    listed,
    local_time,
    say_first,
    warn,
)
from takeback.frontends.cli.output.undo_hints import WantedUndo, typed, with_a_way_out
from takeback.frontends.cli.output.undo_report import tell_result
from takeback.frontends.cli.session.project import at_terminal, confirmed, named
from takeback.model.effect import Effect
from takeback.model.ids import short
from takeback.model.plan import Outcome, UndoResult
from takeback.model.words import is_of_yesterday, point_in_time
from takeback.runs.scope import Span, other_projects, scope_of_run, stuck_since

if TYPE_CHECKING:
    from takeback.api import Takeback
    from takeback.model.run import Checkpoint

_MOST_LISTED = 20


class Asking(NamedTuple):
    span: Span
    words: str  # as it would be typed again
    title: str
    point: "Checkpoint | None" = None


def take_back_to(asked: Asked, tb: "Takeback", wishes: dict[str, Any]) -> int:
    asking = _asking(asked, tb)
    left_out = stuck_since(tb.store.journal, asking.span)
    wanted = WantedUndo(
        "undo", asking.words, partial(undo_span, opened_of(tb), asking.span), left_out, listed=True
    )
    try:
        plan = undo_span(opened_of(tb), asking.span, None, **{**wishes, "dry_run": True})
        if asked.options.since and is_of_yesterday(asked.options.since, now()):
            told = f"{asking.title}, yesterday: {asked.options.since.strip()} has not come yet today."
            asked.screen.say(told)
        if plan.effects and not asked.options.dry_run:
            _refuse_unasked(asked, tb, asking, plan)
        started = time.perf_counter()
        if asked.options.dry_run:
            result = plan
        else:
            seen = [*(one.id for one in plan.effects), *(one.effect for one in plan.targets)]
            result = undo_span(opened_of(tb), asking.span, seen, **wishes)
    except TakebackError as error:
        raise with_a_way_out(tb, wanted, wishes, error) from error
    if asking.point:
        from takeback.runs.checkpoints import state_of

        result = result._replace(state=state_of(tb.store.blobs, asking.point))
    if asked.options.dry_run:
        _show(asked, tb, asking, plan, asked.screen.say)
    return tell_result(asked, tb, wanted, result, started)


def _asking(asked: Asked, tb: "Takeback") -> Asking:
    options = asked.options
    run = tb.find_run(options.run) if options.run else None
    narrowed = f" --run {typed(options.run, run.id)}" if run else ""
    if options.since:
        at = point_in_time(options.since, now())
        span = Span(None if run else opened_of(tb).here(), run.id if run else "", at=at)
        return Asking(span, f"--since {typed(options.since)}{narrowed}", f"Since {local_time(at, now())}")
    from takeback.runs.checkpoints import find

    if not options.to.strip():
        raise Misuse("A checkpoint needs a name.", hint="`takeback checkpoints` lists them.")
    journal = tb.store.journal
    scope = opened_of(tb).here() if not run else None
    point = find(journal, options.to, scope=scope)
    if scope and point.label != options.to:  # by its id, which may be one of another project
        scope = scope_of_run(journal, point.run) or scope
    span = Span(scope, run.id if run else "", seq=point.seq, began=point.at)
    title = f"Back to '{clean(point.label)}' ({short(point.id)}, {ago(point.at, now())})"
    return Asking(span, f"--to {typed(options.to, point.id)}{narrowed}", title, point)


def _refuse_unasked(asked: Asked, tb: "Takeback", asking: Asking, plan: UndoResult) -> None:
    """On a terminal a person is asked. Without one it is refused where it is not only one's own."""
    if asked.options.yes:
        return
    others = _others(asked, plan)
    scope = asking.span.scope
    beside = other_projects(tb.store.journal, plan.effects, scope) if scope else ()
    if at_terminal(asked):
        _show(asked, tb, asking, plan, warn)
        if not confirmed(f"Take back {counted(len(plan.effects), 'effect')}?"):
            raise Refused(
                "Nothing was changed.", hint=f"`takeback undo {asking.words} --dry-run` shows the plan."
            )
        return
    if not others and not beside:
        return
    by = ("someone else" if one.change.facts.others else one.agent or "an unnamed agent" for one in others)
    names = listed([f"{short(one.id)} by {clean(who)}" for one, who in zip(others, by, strict=True)])
    what = f"This takes back what others did: {names}." if others else f"This also touches {named(beside)}."
    raise Refused(
        what,
        hint=f"Nothing was changed. `takeback undo {asking.words} --dry-run` shows the plan; --yes carries it out.",
        effect=others[0].id if others else None,
    )


def _others(asked: Asked, plan: UndoResult) -> list[Effect]:
    """Effects of other agents, and of people that a watch saw."""
    from takeback.frontends.cli.session.store import agent_of

    mine = agent_of(asked)
    return [one for one in plan.effects if one.agent != mine or one.change.facts.others]


def _show(asked: Asked, tb: "Takeback", asking: Asking, plan: UndoResult, say: Any) -> None:
    if not plan.effects:
        return
    say(f"{asking.title}: {counted(len(plan.effects), 'effect')} to take back")
    today = now()
    lines: list[str] = []
    for effect in plan.effects:
        marks = ["accepted"] if effect.accepted else []
        marks += ["brings back"] if effect.is_undo else []
        marks += ["by someone else"] if effect.change.facts.others else []
        told = f"  ({', '.join(marks)})" if marks else ""
        lines.append(
            f"{asked.screen.id(effect.id)}  {ago(effect.at, today)}  "
            f"{clean(effect.agent)}  {from_here(effect.change.summary)}{told}"
        )
    say_first(say, lines, _MOST_LISTED, "  ")
    scope = asking.span.scope
    if beside := other_projects(tb.store.journal, plan.effects, scope) if scope else ():
        say(f"  also touches {named(beside)}")
    for one in plan.targets:
        if one.outcome in (Outcome.EXCLUDED, Outcome.FAILED):
            say(f"  stays: {short(one.effect)} {from_here(one.detail)}")
