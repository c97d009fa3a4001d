"""What waits for a person: calls that are in doubt, and those that need a yes; and one of them, closely."""

import json
from typing import TYPE_CHECKING, Any

from takeback.audit.status import Status
from takeback.frontends.cli.output import Screen, clean, counted
from takeback.model.effect import GATE, Effect, State
from takeback.model.ids import short

if TYPE_CHECKING:
    from takeback.engine.approval import Proposal

_MOST = 5
_LONGEST = 2_000


def tell_inbox(screen: Screen, status: Status) -> None:
    for effect in status.approvals[:_MOST]:
        _say(screen, "Waiting", effect, effect.change.args[GATE]["plan"])
    _more(screen, len(status.approvals))
    if status.approvals:
        screen.hint("`takeback pending` shows all of it; `takeback approve ID` or `takeback deny ID`.")
    _tell_decided(screen, status)
    for effect in status.in_doubt[:_MOST]:
        _say(screen, "In doubt", effect, effect.note or "what became of it was not told yet")
    _more(screen, len(status.in_doubt))
    if status.in_doubt:
        screen.hint(
            "`takeback recover` asks the world again, of a workflow its next worker does. `takeback show ID` has what "
            "is known; once you know what happened, say so: `takeback settle ID --happened` or `--did-not`."
        )


def _tell_decided(screen: Screen, status: Status) -> None:
    """What nobody has to decide on any more, though its run has not made it."""
    others = [one for one in status.proposals if one.decision or one.never]
    for one in others[:_MOST]:
        word = "Waiting" if one.decision is None else "Approved" if one.decision.approved else "Denied"
        _say(screen, word, one.effect, standing_of(one))
    _more(screen, len(others))
    if any(one.never for one in others):
        screen.hint(
            "`takeback recover` ends the run of a process that is gone, and with it what it asked for; "
            "`takeback undo ID` drops what is left of a run that has ended."
        )


def standing_of(one: "Proposal") -> str:
    """How what needs an approval stands, in words."""
    if one.decision is None:
        told = "not decided yet"
    else:
        told = f"by {one.decision.by}" + (f" ({one.decision.why})" if one.decision.why else "")
    if one.never:
        return f"{told}, and {one.never}: it is not made"
    if one.decision is None:
        return told
    return f"{told}; its run {'makes it' if one.decision.approved else 'learns it'} when it asks again"


def _say(screen: Screen, word: str, effect: Effect, why: str) -> None:
    name = screen.paint(short(effect.id), "cyan")
    screen.say(f"{screen.paint(f'{word:<9}', 'yellow')}{name} {clean(effect.change.summary)}: {clean(why)}")


def _more(screen: Screen, count: int) -> None:
    if count > _MOST:
        screen.say(f"         and {counted(count - _MOST, 'other')}")


def facts_of_call(effect: Effect) -> list[tuple[str, str]]:
    """What a person needs to find it on the other side."""
    args = effect.change.args
    if "arguments" not in args:
        return []
    facts = [("Given", _cut(args["arguments"]))]
    if "result" in effect.receipt:
        facts.append(("Returned", _cut(effect.receipt["result"])))
    if effect.remedy and (risk := effect.remedy.payload.get("risk", "medium")) != "medium":
        facts.append(("Risk", clean(risk)))
    if GATE in args:
        facts.append(("Plan", clean(args[GATE]["plan"])))
    if effect.state in (State.STUCK, State.INTENDED):
        facts.append(
            ("To do", f"look for it under its key, then `takeback settle {short(effect.id)} --happened`")
        )
        facts.append(("", "(with --receipt JSON, which its undo needs) or `--did-not`"))
    return facts


def _cut(text: str) -> str:
    return clean(text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…")


def call_json(effect: Effect) -> dict[str, Any]:
    args = effect.change.args
    if "arguments" not in args:
        return {}
    result = effect.receipt.get("result")
    return {
        "arguments": json.loads(args["arguments"]),
        "result": json.loads(result) if result is not None else None,
    }
