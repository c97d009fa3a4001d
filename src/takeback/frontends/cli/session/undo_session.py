"""`undo --prompt` and `undo --session`: what a coding agent did, in one plan."""

import shlex
from argparse import Namespace
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from takeback.api import now, opened_of
from takeback.errors import Refused
from takeback.frontends.cli.command import Asked
from takeback.frontends.cli.output.prompt_lines import prompt_line
from takeback.frontends.cli.output.screen import Screen, ago, clean, counted
from takeback.frontends.cli.output.undo_hints import WantedUndo
from takeback.model.effect import Effect, State
from takeback.model.ids import short
from takeback.runs.prompt_span import SessionPart, done_since, last_standing, session_in
from takeback.runs.prompts import (
    AgentSession,
    Prompt,
    last_session,
    prompt_named,
    prompts_of,
    session_named,
    sessions,
)
from takeback.storage.protocols import Query

if TYPE_CHECKING:
    from takeback.api import Takeback

_MOST_LOOKED_AT = 20  # other sessions


def is_of_session(options: Namespace) -> bool:
    return options.prompt is not None or options.session is not None


def session_part(tb: "Takeback", options: Namespace) -> SessionPart:
    """What is meant. Without a number it is the last prompt since which something still stands."""
    named = named_part(tb, options)
    if named is not None and (options.prompt or options.prompt is None):
        return named
    journal = tb.store.journal
    session = session_in(named) if named else last_session(journal, opened_of(tb).here())
    if options.prompt is None:
        return session
    try:
        return last_standing(journal, session)
    except Refused as error:
        if named is None:
            error.hint = _another(tb, session) or error.hint
        raise


def named_part(tb: "Takeback", options: Namespace) -> SessionPart | None:
    """As far as it was named."""
    journal = tb.store.journal
    by_id = options.prompt and not options.session and not options.prompt.isdigit()
    scope = None if by_id else opened_of(tb).here()
    session = session_named(journal, options.session, scope) if options.session else None
    return prompt_named(journal, options.prompt, session, scope) if options.prompt else session


def _another(tb: "Takeback", than: AgentSession) -> str:
    """The last other session of which something stands."""
    for one in sessions(tb.store.journal, opened_of(tb).here())[:_MOST_LOOKED_AT]:
        if one.name != than.name:
            with suppress(Refused):
                last_standing(tb.store.journal, one)
                word = shlex.quote(one.id)
                return f"`takeback undo --prompt --session {word}` takes back the last prompt of {one.name}."
    return ""


def wanted_of_session(asked: Asked, tb: "Takeback", how: str) -> WantedUndo:
    options = asked.options
    part = session_part(tb, options)
    paths = " ".join(map(shlex.quote, options.paths or ()))
    carry_out = partial(tb.undo, part, paths=options.paths) if options.paths else partial(tb.undo, part)
    words = f"{_typed(part)}{how}"
    title = heading(asked.screen, tb, part)
    return WantedUndo(
        "undo", words, carry_out, _stuck(tb, part), paths=paths, title=title, of=part_json(part)
    )


def _typed(part: SessionPart) -> str:
    if isinstance(part, Prompt):
        return f"--prompt {short(part.point.id)}"
    return f"--session {shlex.quote(part.id)}"


def _stuck(tb: "Takeback", part: SessionPart) -> tuple[Effect, ...]:
    after = part.point.seq if isinstance(part, Prompt) else 0
    queries = (Query(run=info.id, states=(State.STUCK,), made=True) for info in session_in(part).runs)
    found = (one for query in queries for one in tb.store.journal.effects(query))
    return tuple(one for one in found if one.order > after)


def heading(screen: Screen, tb: "Takeback", part: SessionPart) -> str:
    if isinstance(part, Prompt):
        return prompt_line(screen, part.point, part.session.short_name, now())
    began = ago(part.runs[0].opened_at, now())
    count = counted(len(prompts_of(tb.store.journal, part)), "prompt")
    return f"All of {clean(part.short_name)} ({count}, began {began})"


def part_json(part: SessionPart) -> dict[str, Any]:
    """For the answer of an undo as JSON."""
    from takeback.audit.views import prompt_json

    told = {"session": session_in(part).name}
    return told | ({"prompt": prompt_json(part.point)} if isinstance(part, Prompt) else {"prompt": None})


def was_finished(tb: "Takeback", options: Namespace, undos: Sequence[Effect]) -> bool:
    """Whether these undos, which recovery has finished, are all that was asked for. Without a number they are: the
    prompt before would be another one."""
    journal = tb.store.journal
    part = named_part(tb, options) or last_session(journal, opened_of(tb).here())
    runs = {info.id for info in session_in(part).runs}
    if any(tb.effect(one.undoes).run not in runs for one in undos):
        return False
    return options.prompt == "" or not any(done_since(journal, part)[:3])
