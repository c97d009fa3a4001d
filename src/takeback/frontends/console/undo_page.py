"""Undo and redo: the plan first, with its choices; then one click that carries the digest of that plan."""

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from takeback.errors import Misuse, Refused
from takeback.frontends.console.agreed_plan import UndoWish, bind, digest_of, drifted, planned
from takeback.frontends.console.jobs import ConsoleJob
from takeback.frontends.console.paper import address
from takeback.frontends.console.signed import hand_of
from takeback.frontends.console.visit import Answer, Redirected, Shown, Visit
from takeback.model.change import OnConflict, on_conflict_named
from takeback.model.plan import Outcome, TargetOutcome, UndoResult
from takeback.model.resource import SCHEME, display

if TYPE_CHECKING:
    from takeback.api import Takeback

_MOST_TARGETS = 500  # listed on one page
_MOST_PATHS = 200  # that can be chosen one by one; a form has to hold them
_CHOICES = (
    (OnConflict.REFUSE, "All or nothing", "Refuse if anyone changed one of the targets since."),
    (OnConflict.MERGE, "Merge", "Take only this edit out and keep later ones; refused where they overlap."),
    (OnConflict.SKIP, "Skip", "Leave the targets that others changed, take the rest back."),
    (OnConflict.MERGE_OR_SKIP, "Merge or skip", "Merge where possible, leave the rest."),
    (OnConflict.FORCE, "Overwrite", "Overwrite later changes. They are saved first, redo brings them back."),
)


def wish_of(visit: Visit) -> UndoWish:
    verb = visit.word("verb") or "undo"
    if verb not in ("undo", "redo"):
        raise Misuse(f"{verb!r} is neither undo nor redo.", hint="Use the links.")
    return UndoWish(
        verb,
        tuple(filter(None, visit.words("effect"))),
        visit.word("run"),
        visit.word("session"),
        visit.word("prompt"),
        on_conflict_named(visit.word("on_conflict") or OnConflict.REFUSE.value),
        bool(visit.word("cascade")),
        bool(visit.word("with_needs")),
        tuple(visit.words("path")),
    )


def page(visit: Visit) -> Answer:
    """The plan. Looking changes nothing."""
    return plan_page(visit, wish_of(visit))


def plan_page(visit: Visit, wish: UndoWish, said: str = "", status: int = 200) -> Shown:
    data: dict[str, Any] = {
        "wish": wish,
        "fields": wish.fields(),
        "choices": _CHOICES,
        "said": said,
        "error": None,
        "plan": None,
        "digest": "",
        "targets": (),
        "more": 0,
        "counts": {},
        "paths": selectable(visit.tb, wish),
    }
    try:
        plan = planned(visit.tb, wish)
    except (Refused, Misuse) as error:
        data["error"] = error
        return Shown("plan.html", data, status if status != 200 else 200)
    counts = Counter(one.outcome.value for one in plan.targets)
    data |= {
        "plan": plan,
        "digest": digest_of(wish, plan),
        "targets": plan.targets[:_MOST_TARGETS],
        "more": max(0, len(plan.targets) - _MOST_TARGETS),
        "counts": counts,
        "merges": merges(plan.targets),
    }
    return Shown("plan.html", data, status)


def selectable(tb: "Takeback", wish: UndoWish) -> Sequence[tuple[str, str, bool]]:
    """The paths of one effect, each with whether it is chosen."""
    if wish.verb != "undo" or len(wish.effects) != 1:
        return ()
    effect = tb.effect(wish.effects[0])
    found = [
        one.resource for one in effect.targets if one.resource.startswith(SCHEME) and "#" not in one.resource
    ]
    if len(found) < 2:
        return ()
    return [(one, display(one), not wish.paths or one in wish.paths) for one in found[:_MOST_PATHS]]


def merges(targets: Sequence[TargetOutcome]) -> list[tuple[str, list[str]]]:
    """What merges would change, as the lines of their diffs."""
    return [(one.resource, one.diff.split("\n")[:400]) for one in targets if one.diff][:20]


def carry_out(visit: Visit) -> Answer:
    """Exactly the plan that was shown; any other is shown first."""
    wish, digest = wish_of(visit), visit.word("digest")
    try:
        plan = planned(visit.tb, wish)
    except (Refused, Misuse):
        return plan_page(visit, wish, str(drifted()), 409)
    if digest_of(wish, plan) != digest:
        return plan_page(visit, wish, str(drifted()), 409)

    def work(job: ConsoleJob) -> UndoResult:
        hand = hand_of(visit.tb, visit.visitor, job.progress, job.said.append)
        bind(hand, plan)
        if wish.session or wish.prompt:
            from takeback.frontends.agents.client import RECORD
            from takeback.storage.daemon_socket import ask

            ask(visit.tb.path, RECORD)  # what processes of the agent did since its last call counts too
        return planned(hand, wish, dry_run=False)

    title = f"{wish.verb.capitalize()} {title_of(plan)}"
    back = address("/undo", **wish.fields())
    return Redirected(f"/job/{visit.console.jobs.start(title, visit.visitor, back, work).id}")


def title_of(plan: UndoResult) -> str:
    if not plan.effects:
        return "nothing"
    first = plan.effects[0].change.summary
    more = len(plan.effects) - 1
    return first if not more else f"{first} and {more:,} more"


def job_page(visit: Visit) -> Answer:
    job = visit.console.jobs.get(visit.path["id"])
    if job is None:
        raise Misuse(
            "This console does not know that job.",
            hint="It was restarted, or the job is long over. The timeline shows what was done.",
        )
    result = job.result if isinstance(job.result, UndoResult) else None
    data: dict[str, Any] = {
        "job": job,
        "result": result,
        "targets": result.targets[:_MOST_TARGETS] if result else (),
        "more": max(0, len(result.targets) - _MOST_TARGETS) if result else 0,
        "counts": Counter(one.outcome.value for one in result.targets) if result else {},
        "left": [one for one in result.targets if one.outcome not in (Outcome.UNDONE, Outcome.ALREADY)]
        if result
        else (),
        "redo": address("/undo", verb="redo", run=result.undo[0].run) if result and result.undo else "",
    }
    return Shown("job_part.html" if visit.is_part else "job.html", data)
