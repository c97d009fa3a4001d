"""What must hold before a change is made, whichever way it takes into the world, and where a guard has no place."""

from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import NamedTuple

from takeback.adapters.protocol import Assessment
from takeback.engine.parts import Parts
from takeback.errors import Misuse, NoRemedy, PreconditionFailed, Refused, TakebackError
from takeback.model.change import Change
from takeback.model.database import file_of
from takeback.model.remedy import is_gated
from takeback.model.resource import display, overlaps
from takeback.model.ruling import NO_RULE, NOTHING_KNOWN, Known, Ruling


class Safeguard(StrEnum):
    SUSPECT = "the store is not suspect"
    STOP = "an agent or a run that was stopped does nothing more"
    KEY = "a key is used once"
    STORE = "takeback's own store stays out of it"
    LOSS = "a loss is allowed by name, or refused"
    ROOM = "the store's disk has room for the way back"
    APPROVAL = "a person approves what cannot be undone"
    EXPECTS = "the precondition holds right before the intent"
    CHECKS = "staged content passes its checks"
    GIVE_WAY = "a signal that came before anything was begun stops it"
    HELD_BACK = "no signal comes between intent and outcome"
    POLICY = "the policy allows it"


class Door(NamedTuple):
    """A way into the world. Doors differ in who makes the change and in what is known when."""

    name: str
    made_by: str
    without: Mapping[Safeguard, str] = MappingProxyType({})  # each with the reason
    waits: bool = False  # for a person who applies or discards it


_UNSTAGED = "the content is made by a program or a server, so there is nothing staged to look at"
_UNMADE = "nothing is announced and nothing is made"
_FROM_PROPOSAL = "it was asked when the change was proposed"
_THERE = "the change is in the world already; a record of it protects more than a refusal"
_DECIDED = "a person has decided: from the intent on it is made, by recovery if need be"
_FINISHED = "recovery finishes an undo that was begun"
_CODE = "a function is not recorded, so it cannot be asked again; the content is compared instead"

WRITE = Door("write", "the adapter")
UNDO = Door("undo", "the adapter", {
    Safeguard.STOP: "what is stopped can still be taken back; `redo` asks before it comes here",
    Safeguard.KEY: "an effect is undone once: the journal says whether it is",
    Safeguard.ROOM: "the reserve of the store is there for undo",
    Safeguard.APPROVAL: "undo is the way back that was approved",
    Safeguard.EXPECTS: "what undo expects is what the effect left; its adapter compares that",
    Safeguard.CHECKS: "the content was in the world before",
    Safeguard.GIVE_WAY: _FINISHED,
    Safeguard.HELD_BACK: _FINISHED,
    Safeguard.POLICY: "no rule, and no broken file of rules, may keep someone from taking back",
})  # fmt: skip
SQL = Door("sql", "the session of a database", {Safeguard.CHECKS: _UNSTAGED})
REVIEW = Door("review", "no one yet", {Safeguard.CHECKS: _UNSTAGED, Safeguard.GIVE_WAY: _UNMADE}, waits=True)
COMMIT = Door("commit", "the database, which holds the transaction", {
    Safeguard.KEY: _FROM_PROPOSAL,
    Safeguard.STORE: _FROM_PROPOSAL,
    Safeguard.LOSS: _FROM_PROPOSAL,
    Safeguard.ROOM: "the way back is in the database since the transaction was proposed",
    Safeguard.APPROVAL: _FROM_PROPOSAL,
    Safeguard.EXPECTS: _CODE,
    Safeguard.CHECKS: _UNSTAGED,
    Safeguard.GIVE_WAY: _DECIDED,
    Safeguard.POLICY: _FROM_PROPOSAL,
})  # fmt: skip
HOLD = Door("hold", "no one yet", {
    Safeguard.CHECKS: _UNSTAGED,
    Safeguard.GIVE_WAY: _UNMADE,
    Safeguard.HELD_BACK: _UNMADE,
}, waits=True)  # fmt: skip
APPLY = Door("apply", "the adapter", {
    Safeguard.KEY: _FROM_PROPOSAL,
    Safeguard.EXPECTS: _CODE,
    Safeguard.CHECKS: _UNSTAGED,
    Safeguard.GIVE_WAY: _DECIDED,
}, waits=True)  # fmt: skip
DROP = Door("drop", "no one", {
    Safeguard.STOP: "nothing is made, and what the stop interrupted is saved here",
    Safeguard.KEY: "a change that is not made uses no key",
    Safeguard.ROOM: "it was asked before the content was saved; without room the drop is final",
    Safeguard.APPROVAL: "applying the change asks, since it is then that it is made",
    Safeguard.EXPECTS: _UNMADE,
    Safeguard.CHECKS: _UNSTAGED,
    Safeguard.GIVE_WAY: _UNMADE,
    Safeguard.HELD_BACK: _UNMADE,
    Safeguard.POLICY: "applying the change asks the policy, since it is then that it is made",
})  # fmt: skip
WATCH = Door("watch", "someone else", {
    Safeguard.APPROVAL: _THERE,
    Safeguard.CHECKS: _UNSTAGED,
    Safeguard.GIVE_WAY: _THERE,
})  # fmt: skip
DOORS = (WRITE, UNDO, SQL, REVIEW, COMMIT, HOLD, APPLY, DROP, WATCH)


def refuse_assessed(parts: Parts, change: Change, assessment: Assessment, door: Door) -> None:
    """By what was found by looking. A change that someone else has made needs no more room."""
    without = door.without
    if Safeguard.STORE not in without:
        refuse_own(parts, *assessment.resources)
    if Safeguard.LOSS not in without:
        _refuse_loss(change, assessment)
    if Safeguard.ROOM not in without and door is not WATCH:
        parts.refuse_without_room(max(offer.cost for offer in assessment.offers))
    if door.waits and is_gated(assessment.offers):
        raise Refused(
            f"{change.summary}: {assessment.offers[0].residue}. It needs an approval, so it cannot be held.",
            hint="Nothing was changed. Ask for it without holding it; then it waits for the approval.",
        )


# Files of a policy, by the end of their names: to look at that costs nothing.
_MAKES = "mkdir"
_RULES = ("/takeback.toml", "/takeback/config.toml")


def policy_says(
    parts: Parts,
    run: str,
    agent: str,
    change: Change,
    assessment: Assessment | None = None,
    known: Known = NOTHING_KNOWN,
) -> Ruling:
    """Where there is no policy, nothing of it is imported."""
    resources = assessment.resources if assessment else known.paths
    around = (change.resource, *resources, known.where)
    is_own = touches_policy(parts, change, resources)
    if parts.rules(run, around) is None and not is_own:
        return NO_RULE
    from takeback.engine.ruling import ruled

    return ruled(parts, run, agent, change, assessment, known, is_own=is_own)


def refuse_command(parts: Parts, run: str, agent: str, change: Change, where: str = "") -> Ruling:
    """Before it runs where it can do no harm yet: what the policy denies; what waits for a person waits at its end."""
    ruling = policy_says(parts, run, agent, change, known=Known(where=where))
    if ruling is not NO_RULE:
        from takeback.engine.ruling import refuse_denied

        refuse_denied(change, ruling, "Nothing was run.")
    return ruling


def touches_policy(parts: Parts, change: Change, resources: Iterable[str]) -> bool:
    """Whether one of them is a file of rules, or a directory that holds one and is not only made."""
    return change.kind != _MAKES and any(
        one.endswith(_RULES) or any(place.startswith(f"{one}/") for place in parts.policy_files)
        for one in resources
    )


def refuse_own(parts: Parts, *resources: str) -> None:
    """The store may have a second name: a bind mount, a filesystem that is mounted twice."""
    names = dict.fromkeys((parts.off_limits, *parts.names())) if parts.off_limits else ()
    for resource in resources:
        file = file_of(resource)
        for name in names:
            if overlaps(name, file):
                raise Refused(
                    f"{display(resource)} is, holds or lies in takeback's own store.",
                    hint="Nothing was changed. takeback does not change its own store as part of an effect."
                    if name == parts.off_limits
                    else f"Nothing was changed. {display(name)} is another name of {display(parts.off_limits)}.",
                )


def _refuse_loss(change: Change, assessment: Assessment) -> None:
    if assessment.lost and not change.facts.allow_inexact:
        raise NoRemedy(
            f"This could not be taken back: {'; '.join(assessment.lost)}.",
            hint="Nothing was changed. Allow it with --allow-inexact if that loss is acceptable.",
            allowable=True,
        )
    if not assessment.offers:
        raise NoRemedy(
            f"There is no way back from: {change.summary}.",
            hint="Nothing was changed. A change that cannot be undone must say so itself.",
        )


def refuse_unstaged(change: Change) -> None:
    raise Misuse(
        f"{change.summary}: its content is not staged, so checks cannot look at it.",
        hint="Nothing was changed. Leave `checks=` out, or say with `expects=` what must hold.",
    )


def refuse_unmet(expects: Callable[[], bool] | None) -> None:
    """A precondition that raises an error counts as false."""
    if expects is None:
        return
    try:
        holds = bool(expects())
    except TakebackError:
        raise
    except Exception as error:
        raise PreconditionFailed(
            f"The precondition of the change could not be checked: {type(error).__name__}: {error}.",
            hint="Nothing was changed.",
        ) from error
    if not holds:
        raise PreconditionFailed(
            f"The precondition of the change is false: {getattr(expects, '__name__', 'expects')}.",
            hint="Nothing was changed. Look again, then decide.",
        )
