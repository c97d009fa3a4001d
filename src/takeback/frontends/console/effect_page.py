"""The page of one effect: what it changed, how it can be taken back, what stands on it, and what a person can do."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from takeback.adapters.protocol import traits_of
from takeback.errors import Misuse
from takeback.frontends.cli.output.log_table import partly_undone
from takeback.frontends.console.agreed_plan import is_out_of_reach
from takeback.frontends.console.graph import neighbours_of, picture
from takeback.frontends.console.sides import parts_or_why
from takeback.frontends.console.signed import hand_of
from takeback.frontends.console.timeline import amount_of
from takeback.frontends.console.visit import Answer, Redirected, Shown, Visit
from takeback.frontends.console.visitor import Role
from takeback.model.effect import PERSON, Effect, State, waits_for_approval
from takeback.model.record import Record
from takeback.model.remedy import Strategy
from takeback.storage.protocols import Query

if TYPE_CHECKING:
    from takeback.api import Takeback

_MOST_RECORDS = 50
_WAYS = {
    Strategy.TRANSACTION: "Nothing is visible yet, so it can be dropped.",
    Strategy.SNAPSHOT: "The earlier state was saved before the change.",
    Strategy.COMPENSATION: "Another call compensates it.",
    Strategy.MANUAL: "A person must follow written steps.",
    Strategy.IRREVERSIBLE: "It cannot be undone.",
}


class WayBack(NamedTuple):
    word: str  # exact, not exact, none
    why: tuple[str, ...]  # sentences


class Deed(NamedTuple):
    """A button that needs no plan."""

    name: str
    label: str
    why: str  # what happens then


def effect_named(visit: Visit) -> Effect:
    found = next(visit.tb.store.journal.effects(Query(ids=(visit.path["id"],), damaged_too=True)), None)
    if found is None:
        raise Misuse("There is no effect with this id.", hint="Search for it in the timeline.")
    return found


def page(visit: Visit) -> Answer:
    tb, effect = visit.tb, effect_named(visit)
    around = neighbours_of(tb, effect)
    parts, more, trouble = parts_or_why(tb, effect)
    undone = partly_undone(tb, [effect]).get(effect.id, ())
    run = next(tb.store.journal.runs((effect.run,)), None)
    out_of_reach = is_out_of_reach(tb, effect)
    data: dict[str, Any] = {
        "effect": effect,
        "run": run,
        "undone": undone,
        "amount": amount_of(effect),
        "way_back": way_back(effect),
        "parts": parts,
        "more_parts": more,
        "trouble": trouble,
        "around": around,
        "picture": None if around.is_empty else picture(effect, around),
        "records": records_of(tb, effect),
        "deeds": deeds(effect) if visit.visitor.role.may(Role.OPERATOR) else (),
        "waits": waits_for_approval(effect),
        "calls": traits_of(effect.change).calls,
        "can_undo": effect.state is State.DONE
        and not (effect.forgotten or effect.is_elsewhere or out_of_reach),
        "can_redo": effect.state is State.UNDONE and bool(effect.undone_by) and not out_of_reach,
        "elsewhere": tb.store.elsewhere(effect.run),
        "out_of_reach": out_of_reach,
        "taken_back": next(tb.store.journal.effects(Query(ids=(effect.undone_by,))), None)
        if effect.undone_by
        else None,
    }
    return Shown("effect.html", data)


def part(visit: Visit) -> Answer:
    """One target of an effect with much content. Only what the effect itself recorded can be asked for."""
    effect, wanted = effect_named(visit), visit.word("target")
    if wanted not in {one.resource for one in effect.targets}:
        raise Misuse("This effect did not touch that path.", hint="Choose one of the paths on its page.")
    parts, _, trouble = parts_or_why(visit.tb, effect, wanted)
    return Shown("part.html", {"effect": effect, "parts": parts, "trouble": trouble})


def records_of(tb: "Takeback", effect: Effect) -> Sequence[Record]:
    return tuple(tb.store.journal.records(effect=effect.id))[:_MOST_RECORDS]


def way_back(effect: Effect) -> WayBack:
    """Why it is exact or not, in sentences."""
    remedy = effect.remedy
    if effect.is_elsewhere:
        return WayBack("none", ("It changed nothing that takeback watched.",))
    if remedy is None:
        return WayBack("none", ("No way back is recorded for this effect.",))
    if effect.forgotten:
        return WayBack("none", ("Its saved content was forgotten, so it can no longer be undone.",))
    why = [f"{effect.reason[:1].upper()}{effect.reason[1:]}." if effect.reason else _WAYS[remedy.strategy]]
    gone: list[str] = effect.receipt.get("lost", []) if "database" in effect.change.args else []
    if gone:
        return WayBack("none", (*why, f"Not all of it was captured: {'; '.join(gone)}."))
    if remedy.strategy in (Strategy.IRREVERSIBLE, Strategy.MANUAL):
        word = "none" if remedy.strategy is Strategy.IRREVERSIBLE else "by hand"
        return WayBack(word, (*why, *([f"It leaves: {remedy.residue}"] if remedy.residue else [])))
    if remedy.exact:
        why.append("Undo restores exactly the recorded state and checks it by reading it again.")
    if remedy.residue:
        why.append(f"Undo leaves: {remedy.residue}")
    if remedy.good_until:
        why.append(f"The way back works until {remedy.good_until}.")
    return WayBack("exact" if remedy.exact else "not exact", tuple(why))


def deeds(effect: Effect) -> list[Deed]:
    """The buttons beside undo and redo."""
    found: list[Deed] = []
    held = effect.waits_for == PERSON and not waits_for_approval(effect)
    if held or effect.state is State.DROPPED:
        found.append(Deed("apply", "Apply", "The held change is made."))
    if held:
        found.append(
            Deed("discard", "Drop", "The held change is dropped; it can still be applied for a while.")
        )
    if effect.state in (State.DONE, State.UNDONE):
        if not effect.accepted:
            found.append(Deed("accept", "Accept", "It stays, even if its run fails later."))
        if effect.pinned:
            found.append(Deed("unpin", "Unpin", "Its way back may expire like any other."))
        elif not effect.forgotten:
            found.append(Deed("pin", "Pin", "Its way back is never forgotten."))
    return found


def carry_out(visit: Visit) -> Answer:
    """Accept, pin, unpin, apply or discard."""
    effect, deed = effect_named(visit), visit.word("deed")
    if deed not in {one.name for one in deeds(effect)}:
        raise Misuse("This can no longer be done with the effect.", hint="Its page shows how it stands now.")
    hand = hand_of(visit.tb, visit.visitor)
    doing = {
        "accept": hand.accept, "pin": hand.pin, "unpin": hand.unpin, "apply": hand.apply, "discard": hand.discard,
    }  # fmt: skip

    def work(_: Any) -> Any:
        return doing[deed](effect.id)

    job = visit.console.jobs.start(
        f"{deed.capitalize()} {effect.change.summary}", visit.visitor, f"/effect/{effect.id}", work
    )
    return Redirected(f"/effect/{effect.id}" if job.outcome == "done" else f"/job/{job.id}")
