"""`checkpoint`: name a point to come back to."""

import json
from typing import Any

from takeback.api import Takeback, now
from takeback.audit.views import checkpoint_json
from takeback.errors import Misuse
from takeback.frontends.cli.command import AGENT, DRY_RUN, Asked, Command, option, positional
from takeback.frontends.cli.output.screen import ago, clean, quoted
from takeback.frontends.cli.session.store import give, opened, session
from takeback.model.ids import short
from takeback.model.run import Checkpoint
from takeback.runs.scope import opening

_ARGUMENTS = (
    positional("label", "LABEL", "its name"),
    option("--run", "R", "in this run (else the one of the command line)"),
    option("--state", "FILE", "the agent's own state, JSON; - for standard input"),
    option("--summary", "TEXT", "what happened so far, to read later", default=""),
    AGENT,
    DRY_RUN,
)


def _checkpoint(asked: Asked) -> int:
    options = asked.options
    if not options.label.strip():
        raise Misuse("A checkpoint needs a name.", hint="takeback checkpoint before-migrate")
    state = _state(options.state) if options.state else None
    if options.dry_run:
        return asked.would({"label": options.label}, f"Would create checkpoint '{clean(options.label)}'.")
    with opened(asked) as tb:
        with session(asked, tb) as run:
            same = _of_the_same_name(tb, run.id, options.label)
            point = run.checkpoint(options.label, state, summary=options.summary)
        give(asked, tb, checkpoint_json(point) | ({"replaces": same.id} if same else {}))
        asked.screen.say(
            f"Created checkpoint '{clean(point.label)}' ({short(point.id)}) in run '{clean(run.name)}'."
        )
        if same:
            when = ago(same.at, now())
            asked.screen.say(
                f"An earlier one ({short(same.id)}, {when}) has this name; go back to it by its id."
            )
        if opening(tb.store.journal):
            asked.screen.hint(f"`takeback undo --to{_typed(point)}` returns to it.")
        else:
            asked.screen.hint(
                "This directory is no project. "
                f"`takeback undo --to{_typed(point)} --all` takes back what happened after it in all projects."
            )
    return 0


def _of_the_same_name(tb: Takeback, run: str, label: str) -> Checkpoint | None:
    """The newest one in this project."""
    from takeback.runs.checkpoints import of_projects, of_run
    from takeback.runs.scope import scope_of_run

    found = [one for one in of_run(tb.store.journal) if one.label == label]
    scope = scope_of_run(tb.store.journal, run)
    own = of_projects(tb.store.journal, found, scope) if scope else [one for one in found if one.run == run]
    return own[-1] if own else None


def _typed(point: Checkpoint) -> str:
    """As it can be typed in a shell, with what stands between it and the option."""
    name = quoted(point.label) if point.label.isprintable() else short(point.id)
    return f"={name}" if name.startswith("-") else f" {name}"


def _state(name: str) -> Any:
    try:
        if name == "-":
            import sys

            return json.load(sys.stdin)
        with open(name, encoding="utf-8") as file:
            return json.load(file)
    except OSError as error:
        raise Misuse(
            f"{name} cannot be read: {error.strerror}.", hint="Give a file with the state as JSON."
        ) from error
    except ValueError as error:
        raise Misuse(
            f"The state in {name} is not JSON: {error}.", hint="Correct it and try again."
        ) from error


COMMAND = Command(_checkpoint, _ARGUMENTS)
