"""`checkpoints`: list the named points."""

from takeback.api import now, opened_of
from takeback.audit.views import checkpoint_json
from takeback.frontends.cli.command import ALL_PROJECTS, Asked, Command, Does, option
from takeback.frontends.cli.output.screen import ago, clean
from takeback.frontends.cli.session.store import give, nothing_yet, opened, tell_nothing
from takeback.model.ids import short
from takeback.runs.prompts import is_prompt


def _checkpoints(asked: Asked) -> int:
    screen = asked.screen
    if nothing_yet(asked):
        return tell_nothing(asked, [])
    with opened(asked) as tb:
        scope = None if asked.options.run else opened_of(tb).here()
        found = tb.checkpoints(asked.options.run, scope=scope)
        # Prompts are many, and `log` shows them.
        points = tuple(one for one in reversed(found) if asked.options.run or not is_prompt(one))
        give(asked, tb, [checkpoint_json(point) for point in points])
        if not points:
            screen.say("No checkpoints yet in this project." if scope else "No checkpoints yet.")
        today = now()
        for point in points:
            marks = ["automatic"] if point.automatic else []
            marks += ["with state"] if point.state else []
            told = screen.paint(f"  ({', '.join(marks)})", "dim") if marks else ""
            screen.say(
                f"{screen.id(point.id)}  {ago(point.at, today):<12}  run {short(point.run)}  "
                f"{clean(point.label)}{told}"
            )
    return 0


_ARGUMENTS = (option("--run", "R", "only of this run"), ALL_PROJECTS)
COMMAND = Command(_checkpoints, _ARGUMENTS, does=Does.LOOKS)
