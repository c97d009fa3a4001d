"""The project that a command means: where it stands, what lies elsewhere, and asking before another one is touched.

`log`, `runs`, `undo` and `redo` take their effects from `here()` of the open store; `hint_elsewhere` names the newest
one of all.
"""

import sys
from argparse import Namespace
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from takeback.api import opened_of
from takeback.errors import Misuse, Refused
from takeback.frontends.cli.command import Asked
from takeback.frontends.cli.output.screen import answered, clean, here, listed, shown
from takeback.model.effect import PERSON, Effect, State
from takeback.model.ids import short
from takeback.model.resource import Scope
from takeback.model.run import OnDeath, RunState
from takeback.runs.scope import newest_elsewhere, other_projects, scope_of
from takeback.storage.protocols import Query

if TYPE_CHECKING:
    from takeback.api import Takeback

HAPPENED = tuple(state for state in State if state not in (State.ABORTED, State.DROPPED))


class LazyScope:
    """Looked for when it is first asked: most commands never do."""

    def __init__(self, asked: Asked, tb: "Takeback") -> None:
        self._journal = tb.store.journal
        self._all: bool = getattr(asked.options, "all", False)
        self._scope: Scope | None = None

    def __call__(self) -> Scope | None:
        """None: everything was asked for. Raises where there is no project."""
        if self._all:
            return None
        if self._scope is None:
            self._scope = scope_of(self._journal)
        return self._scope


def effects_listed(asked: Asked, tb: "Takeback", number: int) -> tuple[Effect, ...]:
    """What `log` lists, newest first, at most so many (0: all): of this project, unless a run, a path or everything is
    asked for."""
    options = asked.options
    path = options.path_only or options.path
    everywhere = bool(options.run or path)
    states = None if options.all or options.aborted else HAPPENED
    found = tb.effects(
        run=options.run,
        path=path,
        agent=options.agent,
        state=(State.PROPOSED, State.DROPPED) if options.held else states,
        limit=number,
        newest=True,
        scope=None if everywhere else opened_of(tb).here(),
        since=options.since or 0,
    )
    if path:
        found = tuple(one for one in found if not one.is_elsewhere)  # it touched nothing there
    if not options.held:
        return found
    return tuple(one for one in found if one.state is State.DROPPED or one.waits_for == PERSON)


def hint_elsewhere(asked: Asked, tb: "Takeback", verb: str = "", taken: Sequence[Effect] = ()) -> None:
    """Where the newest effect of all is, if it is not here, nor `taken` back just now."""
    if told := elsewhere(tb, verb, taken):
        asked.screen.hint(told)


def hint_unrecorded(asked: Asked, tb: "Takeback", effect: Effect) -> None:
    """The last run here may have recorded nothing: then what was taken back is older than it."""
    last = next(reversed(tb.runs(scope=opened_of(tb).here())[:-1]), None)  # the newest one is the undo itself
    if last is None or last.opened_at < effect.at or last.on_death in (OnDeath.LEAVE, OnDeath.FINISH):
        return
    if last.state is not RunState.ACCEPTED or last.note:
        return  # it failed or was refused, and said so itself
    if not tb.store.journal.count(Query(run=last.id, states=HAPPENED, limit=1)):
        asked.screen.hint(f"The run after it, {short(last.id)} ({clean(last.name)}), recorded nothing.")


def elsewhere(tb: "Takeback", verb: str = "", taken: Sequence[Effect] = ()) -> str:
    scope = opened_of(tb).here()
    if scope is None:
        return ""
    found = newest_elsewhere(tb.store.journal, scope, undos=verb == "redo")
    if found is None or any(one.id == found.effect.id for one in taken):
        return ""
    effect = found.effect
    who = f", by {clean(effect.agent)}" if effect.agent else ""
    where = shown(found.project, here()) if found.project else "no project"
    what = "The newest undo" if verb == "redo" else "The newest effect"
    means = f"`takeback {verb} {short(effect.id)}` means that one." if verb else "--all lists everything."
    return f"{what} of all is in {where} ({short(effect.id)}{who}); {means}"


def refuse_other_projects(asked: Asked, tb: "Takeback", effects: Sequence[Effect], verb: str) -> None:
    """Ask before an effect that was not named is taken back in another project too."""
    scope = opened_of(tb).here()
    others = other_projects(tb.store.journal, effects, scope) if scope else ()
    if not others or asked.options.dry_run or asked.options.yes:
        return
    names = named(others)
    what = f"Effect {short(effects[0].id)} ({clean(effects[0].change.summary)}) also touches {names}"
    if not at_terminal(asked):
        raise Refused(
            f"{what}.",
            hint=f"Nothing was changed. `takeback {verb} {short(effects[0].id)}` does it there too, or add --yes.",
            effect=effects[0].id,
        )
    if not confirmed(f"{what}. {verb.capitalize()} it there too?"):
        raise Refused(
            "Nothing was changed.", hint=f"`takeback show {short(effects[0].id)}` shows what it touched."
        )


def named(projects: Iterable[str]) -> str:
    place = here()
    return listed([shown(one, place) for one in projects])


def at_terminal(asked: Asked) -> bool:
    """Whether someone is there who can be asked."""
    return not asked.screen.json and bool(
        sys.stdin and sys.stdin.isatty() and sys.stderr and sys.stderr.isatty()
    )


def refuse_unaskable(options: Namespace) -> None:
    if options.ask and not (sys.stdin and sys.stdin.isatty()):
        raise Misuse(
            "--ask needs a terminal to ask at.",
            hint="Use --hold, then `takeback apply` or `takeback discard`.",
        )


def confirmed(question: str) -> bool:
    """An empty answer and the end of input mean no."""
    return answered(f"{question} [y/N]", {"y": "y", "yes": "y", "n": "n", "no": "n"}, "n") == "y"
