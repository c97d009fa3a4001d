"""`redo`: bring back what was undone."""

from functools import partial
from typing import TYPE_CHECKING, Any

from takeback.api import opened_of
from takeback.api.undo import to_redo
from takeback.errors import InDoubt, Refused, StoreBusy, Stuck
from takeback.frontends.cli.command import AGENT, ALL_PROJECTS, DRY_RUN, YES, Asked, Command, positional
from takeback.frontends.cli.commands.undo import CONFLICTS, on_conflict_of, taken_back
from takeback.frontends.cli.output.undo_hints import WantedUndo, typed
from takeback.frontends.cli.output.undo_report import tell_refused, tell_result
from takeback.frontends.cli.session.finished_undo import finished_just_now, tell_finished
from takeback.frontends.cli.session.project import elsewhere, refuse_other_projects
from takeback.frontends.cli.session.store import (
    agent_of,
    existing,
    known_effects,
    nothing_recorded,
    nothing_yet,
)

if TYPE_CHECKING:
    from takeback.api import Takeback


_ARGUMENTS = (
    positional("id", "ID", "an undone effect or its undo (default: the last one)", nargs="?"),
    ALL_PROJECTS,
    YES,
    DRY_RUN,
    AGENT,
    *CONFLICTS,
)


def _redo(asked: Asked) -> int:
    options = asked.options
    if nothing_yet(asked) and not options.id:
        raise Refused(nothing_recorded(asked), hint="There is nothing to redo.")
    wishes: dict[str, Any] = {
        "dry_run": options.dry_run,
        "on_conflict": on_conflict_of(options),
        "agent": agent_of(asked),
    }
    with existing(asked, known_effects([options.id] if options.id else [])) as tb:
        if done := finished_just_now(tb, "redo", [options.id] if options.id else []):
            return tell_finished(asked, tb, "redo", done)
        words = typed(options.id) if options.id else ""
        wanted = WantedUndo("redo", words, partial(tb.redo, options.id))
        try:
            if not options.id or options.id.startswith("@"):
                _refuse_elsewhere(asked, tb)
            return tell_result(asked, tb, wanted, *taken_back(asked, tb, wanted, wishes))
        except (InDoubt, Refused, Stuck, StoreBusy) as error:
            return tell_refused(asked, tb, error)


def _refuse_elsewhere(asked: Asked, tb: "Takeback") -> None:
    try:
        undos = to_redo(opened_of(tb), asked.options.id)
    except Refused as error:
        error.hint = elsewhere(tb, "redo") or error.hint
        raise
    refuse_other_projects(asked, tb, undos, "redo")


COMMAND = Command(_redo, _ARGUMENTS)
