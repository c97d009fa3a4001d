"""`resume`: make a run of a workflow due again."""

from argparse import Namespace
from typing import Any

from takeback.errors import Misuse
from takeback.frontends.cli.command import DRY_RUN, Asked, Command, option, positional
from takeback.frontends.cli.output.screen import clean
from takeback.frontends.cli.session.store import existing, give
from takeback.model.ids import short
from takeback.model.run import OnDeath

_ARGUMENTS = (
    positional("run", "RUN", "a run of a workflow: its name, id, or the beginning of its id"),
    option("--from-checkpoint", "C", "undo the effects after this checkpoint, and continue from it"),
    DRY_RUN,
)


def _known(tb: Any, options: Namespace) -> None:
    """Names are judged before anything is settled."""
    info = tb.find_run(options.run)
    if options.from_checkpoint:
        from takeback.runs.checkpoints import find

        find(tb.store.journal, options.from_checkpoint, info.id)


def _resume(asked: Asked) -> int:
    from takeback.audit.views import run_info_json

    options = asked.options
    with existing(asked, lambda tb: _known(tb, options)) as tb:
        info = tb.find_run(options.run)
        if info.on_death is not OnDeath.RESUME:
            raise Misuse(
                f"Run {short(info.id)} ({info.name}) is no workflow: only its own program can continue it.",
                hint="Start its program again; `takeback undo --to CHECKPOINT` only takes back.",
            )
        if options.dry_run:
            return asked.would(run_info_json(info), f"Would make run {short(info.id)} due again.")
        tb.resume(info, from_checkpoint=options.from_checkpoint)
        give(asked, tb, run_info_json(tb.find_run(info.id)))
        where = f" from checkpoint '{clean(options.from_checkpoint)}'" if options.from_checkpoint else ""
        asked.screen.say(f"The next worker continues run {short(info.id)}{where}.")
        asked.screen.hint(f"`takeback worker {info.workflow.partition(':')[0]}` starts one.")
    return 0


COMMAND = Command(_resume, _ARGUMENTS)
