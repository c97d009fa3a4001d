"""The prompts of coding agents in `log`: a line for each, above the calls that were made for it.

The calls of a subagent are together, below a line of their own.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from takeback.frontends.cli.output.screen import Screen, ago, clean
from takeback.model.effect import Effect
from takeback.model.ids import short
from takeback.model.run import OnDeath

if TYPE_CHECKING:
    from takeback.api import Takeback
    from takeback.frontends.cli.output.log_table import TableContext
    from takeback.model.run import Checkpoint, RunInfo, UnderPrompt

INDENT = "  "


def found_prompts(
    tb: "Takeback", effects: Sequence[Effect], runs: "Mapping[str, RunInfo]"
) -> "dict[str, UnderPrompt]":
    """By effect of a session of a coding agent: its prompt."""
    if not any(info.on_death is OnDeath.LEAVE for info in runs.values()):
        return {}
    from takeback.runs.prompts import prompts_around

    return prompts_around(tb.store.journal, effects, runs)


def together(effects: Sequence[Effect], under: "Mapping[str, UnderPrompt]") -> list[int]:
    """Their places, in the order in which they are listed: of a prompt, the calls of a subagent follow its newest."""
    found: list[int] = []
    groups: dict[str, list[int]] = {}  # of one prompt, by subagent; each call of the agent itself alone
    before: tuple[object, object] | None = None
    for place, effect in enumerate(effects):
        mine = under.get(effect.id)
        prompt = (mine.run.id, mine.point) if mine and mine.point else None
        if prompt is None or prompt != before:
            found += [one for group in groups.values() for one in group]
            groups, before = {}, prompt
        name = mine.member.name if mine and mine.member else effect.id
        groups.setdefault(name, []).append(place)
    return found + [one for group in groups.values() for one in group]


def headings(
    screen: Screen, effects: Sequence[Effect], told: "TableContext", width: int
) -> dict[str, list[str]]:
    """By effect: the lines before it, where the effects of another prompt or subagent begin. A number alone means a
    prompt of the session that changed something last; where that is not plain, each session is named."""
    under = told.under
    several = not told.numbered or len({_session(under[one.id]) for one in effects if one.id in under}) > 1
    found: dict[str, list[str]] = {}
    last: tuple[object, str] = (None, "")
    for effect in effects:
        mine = under.get(effect.id)
        if mine is None:
            continue
        part = (_session(mine), mine.point and mine.point.id)
        member = mine.member.name if mine.member else ""
        lines = [_heading(screen, mine, several, told.now, width)] if part != last[0] else []
        if member and (part, member) != last:
            lines.append(_heading_of_member(screen, mine, width))
        found[effect.id], last = lines, (part, member)
    return found


def indent(effect: Effect, told: "TableContext") -> str:
    mine = told.under.get(effect.id)
    return INDENT * (2 if mine.member else 1) if mine else ""


def _session(under: "UnderPrompt") -> str:
    from takeback.model.run import conversation_of

    return conversation_of(under.run)


def _heading_of_member(screen: Screen, under: "UnderPrompt", width: int) -> str:
    """With what `undo` takes back the work of that subagent alone by."""
    from takeback.runs.prompts import kind_of_member

    assert under.member is not None
    kind = kind_of_member(under.member)
    words = kind if kind.endswith("subagent") else f"subagent {kind}"
    return INDENT + _line(screen, words, f"run {short(under.member.id)}", max(width - len(INDENT), 0), "›")


def _heading(screen: Screen, under: "UnderPrompt", several: bool, now: int, width: int) -> str:
    from takeback.runs.prompts import AgentSession, host_id

    session = AgentSession(under.run.agent, host_id(under.run), ())
    who = session.short_name if several else session.host
    if under.point is None:
        return _line(screen, "before the first prompt", who, width)
    return prompt_line(screen, under.point, who, now, width)


def prompt_line(screen: Screen, point: "Checkpoint", who: str, now: int, width: int = 0) -> str:
    """A prompt, with `who` it was given to. `width`: 0 for as wide as it gets."""
    from takeback.runs.prompts import number_of

    told = f"{who}, prompt {number_of(point)}, {ago(point.at, now)}"
    return _line(screen, point.summary or "(no words)", told, width)


def _line(screen: Screen, words: str, told: str, width: int, sign: str = "»") -> str:
    words, told = clean(words), clean(f"({told})")
    room = max(width - len(told) - 4, 20) if width else len(words)
    words = words if len(words) <= room else f"{words[: room - 1]}…"
    return f"{screen.paint(f'{sign} {words}', 'bold' if sign == '»' else '')}  {screen.paint(told, 'dim')}"
