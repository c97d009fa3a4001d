"""Which effects may be forgotten, and why, in words. Pure: decides, deletes nothing."""

from collections.abc import Sequence
from typing import NamedTuple

from takeback.model.effect import Effect, State
from takeback.model.settings import Settings

SECOND = 1_000_000


class Decision(NamedTuple):
    effect: Effect
    forget: bool
    why: str


class Weighed(NamedTuple):
    """An effect with what the decision depends on."""

    effect: Effect
    ended_at: int  # when its run ended or it was accepted; 0 while neither
    redo_gone: bool  # it is undone, and the undo was forgotten


def decide(weighed: Sequence[Weighed], settings: Settings, now: int) -> tuple[Decision, ...]:
    """By tier: what nobody accepted stays for ever; what was accepted may go when its time is over."""
    return tuple(_tier(one, settings, now) for one in weighed)


def _tier(one: Weighed, settings: Settings, now: int) -> Decision:
    effect = one.effect
    if effect.forgotten:
        return Decision(effect, False, "already forgotten; its record stays for the audit")
    if effect.state is State.ABORTED:
        return Decision(effect, False, "never happened; only its record is there")
    if effect.state not in (State.DONE, State.UNDONE):
        return Decision(effect, False, f"stays: it is {effect.state.value}")
    if one.redo_gone:
        return Decision(effect, True, "goes: it is undone and can no longer be brought back")
    if not effect.accepted:
        return Decision(effect, False, "stays: nobody has accepted it, so it can be undone for ever")
    age = (now - one.ended_at) // SECOND
    if age < settings.accepted_seconds:
        left = settings.accepted_seconds - age
        return Decision(
            effect, False, f"stays: accepted {age} s ago, can be undone for another {left} s at least"
        )
    return Decision(
        effect,
        True,
        f"goes: accepted {age} s ago, longer than the {settings.accepted_seconds} s it had to stay",
    )
