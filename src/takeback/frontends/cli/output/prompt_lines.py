"""The prompts of coding agents in `log`: a line for each, above the calls that were made for it."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from takeback.frontends.cli.output.screen import Screen, ago, clean
from takeback.model.effect import Effect
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


def headings(screen: Screen, effects: Sequence[Effect], told: "TableContext", width: int) -> dict[str, str]:
    """By effect: the line before it, where the effects of another prompt begin. A number alone means a prompt of the
    session that changed something last; where that is not plain, each session is named."""
    under = told.under
    several = not told.numbered or len({under[one.id].run.name for one in effects if one.id in under}) > 1
    found: dict[str, str] = {}
    last: UnderPrompt | None = None
    for effect in effects:
        mine = under.get(effect.id)
        if mine and mine != last:
            found[effect.id] = _heading(screen, mine, several, told.now, width)
            last = mine
    return found


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


def _line(screen: Screen, words: str, told: str, width: int) -> str:
    words, told = clean(words), clean(f"({told})")
    room = max(width - len(told) - 4, 20) if width else len(words)
    words = words if len(words) <= room else f"{words[: room - 1]}…"
    return f"{screen.paint(f'» {words}', 'bold')}  {screen.paint(told, 'dim')}"
