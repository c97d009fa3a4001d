"""What the policy says to a call of a coding agent, before it runs, in words that its host shows."""

from typing import TYPE_CHECKING

from takeback.engine.guards import policy_says
from takeback.errors import Denied
from takeback.frontends.agents.event import Answer, Event, Kind, Tool
from takeback.model.change import Change
from takeback.model.resource import file_resource
from takeback.model.ruling import NO_RULE, Known, PolicyAnswer, Ruling

if TYPE_CHECKING:
    from takeback.engine.parts import Parts

# Hosts that can ask their user when a hook wants that.
ASKING = ("claude-code", "cursor")
_KINDS = {Tool.SHELL: ("command", "run"), Tool.EDIT: ("file", "write")}
_NO_OTHER = "Do not try another way around the rule: ask the person who works with you."


def by_policy(parts: "Parts", event: Event) -> Answer:
    """A call that only reads changes nothing, so it is not judged."""
    if event.kind is not Kind.BEFORE_CALL or event.tool is Tool.READ:
        return Answer()
    try:
        ruling = policy_says(parts, "", event.host, _change(event), None, _known(event))
    except Denied as error:
        return Answer(refusal=f"takeback: {error} {error.way_on}", final=True)
    if ruling is NO_RULE:
        return Answer()
    return _answer(event, ruling)


def _answer(event: Event, ruling: Ruling) -> Answer:
    from takeback.engine.ruling import OWN_FILE, in_words

    words = f"takeback: {in_words(ruling)}"
    if ruling.answer is PolicyAnswer.DENY or ruling == OWN_FILE:
        return Answer(refusal=f"{words} {_NO_OTHER}", final=True)
    if ruling.place == "sandbox" and event.tool is Tool.SHELL and not event.apart:
        return Answer(refusal=f"{words} It runs in a sandbox only: takeback run -- COMMAND.", final=True)
    if ruling.answer is PolicyAnswer.ALLOW:
        return Answer()
    asks = ruling.asks
    if (
        event.host in ASKING
        and ruling.answer is PolicyAnswer.ASK
        and asks.people == 1
        and not (asks.challenge or asks.of)
    ):
        return Answer(asks=words)
    held = "takeback run --hold -- COMMAND" if event.tool is Tool.SHELL else "takeback write --help"
    return Answer(refusal=f"{words} What runs through takeback can wait for a person: {held}.", final=True)


def _change(event: Event) -> Change:
    adapter, kind = _KINDS.get(event.tool, ("call", "call"))
    resource = file_resource(event.paths[0]) if event.paths else ""
    args = {"arguments": _arguments(event)} if event.tool is Tool.OTHER else {}
    return Change(adapter, kind, resource or f"tool://{event.name}", f"{event.name} of {event.host}", args)


def _arguments(event: Event) -> str:
    import json

    return json.dumps(dict(event.input), default=str)


def _known(event: Event) -> Known:
    where = event.cwd or event.project
    return Known(
        script=event.command,
        tool=event.name,
        paths=tuple(map(file_resource, event.paths)),
        where=file_resource(event.project or where) if event.project or where else "",
    )
