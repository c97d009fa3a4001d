"""Which effects may be forgotten, and why, in words. Pure: decides, deletes nothing."""

from collections.abc import Sequence
from typing import NamedTuple

from takeback.model.effect import Effect, State
from takeback.model.settings import DAY, HOUR, Settings
from takeback.model.sizes import span_in_words

SECOND = 1_000_000


# Over a cap an effect that was accepted goes before its time, and not before this.
YOUNGEST = HOUR


class Decision(NamedTuple):
    effect: Effect
    forget: bool
    why: str
    bound: str = ""  # of what goes by policy: a value of `Bound`
    limit: int = 0  # the number that was reached


class Weighed(NamedTuple):
    """An effect with what the decision depends on."""

    effect: Effect
    ended_at: int  # when its run ended or it was accepted; 0 while neither
    redo_gone: bool  # it is undone, and the undo was forgotten
    lasting: bool = False  # its run is that of the command line, which never ends


def decide(
    weighed: Sequence[Weighed], settings: Settings, now: int, pressed: bool = False
) -> tuple[Decision, ...]:
    """By tier: pinned and unaccepted effects stay; accepted ones go when their time is over, or soon if `pressed`."""
    return tuple(_tier(one, settings, now, pressed) for one in weighed)


def accepted_at(one: Weighed, settings: Settings) -> int:
    """When its time began; 0: nobody has accepted it. What was typed on the command line counts as accepted in time."""
    if one.effect.accepted:
        return one.ended_at
    return one.effect.at + settings.accepted_seconds * SECOND if one.lasting else 0


def _tier(one: Weighed, settings: Settings, now: int, pressed: bool) -> Decision:
    effect = one.effect
    if effect.forgotten:
        return Decision(effect, False, "already forgotten; its record stays for the audit")
    if effect.state is State.ABORTED:
        return Decision(effect, False, "never happened; only its record is there")
    if effect.dropped and effect.state is State.DROPPED:
        if now >= effect.dropped.until:
            return Decision(effect, True, "goes: it was dropped, and its time is over")
        return Decision(effect, False, "stays for now: it was dropped, and can still be applied")
    if effect.state not in (State.DONE, State.UNDONE):
        return Decision(effect, False, f"stays: it is {effect.state.value}")
    if effect.pinned:
        return Decision(effect, False, "stays: it is pinned")
    if one.redo_gone:
        return Decision(effect, True, "goes: it is undone and can no longer be brought back")
    began = accepted_at(one, settings)
    if not began:
        return Decision(effect, False, "stays: it is not accepted, so it can be undone for ever")
    if now < began:
        days = settings.accepted_seconds // DAY
        why = f"stays: a change of the command line counts as accepted after {days} days"
        return Decision(effect, False, why)
    age, term = (now - began) // SECOND, settings.accepted_seconds
    if age >= term:
        why = f"goes: accepted {span_in_words(age)} ago, longer than the {span_in_words(term)} it had to stay"
        return Decision(effect, True, why, "time", term)
    if pressed and age >= YOUNGEST:
        return Decision(effect, True, f"goes: accepted {span_in_words(age)} ago, and there is no room for it")
    left = (min(term, YOUNGEST) if pressed else term) - age
    why = f"stays: accepted {span_in_words(age)} ago, can be undone for another {span_in_words(left)}"
    return Decision(effect, False, f"{why} while there is room")
