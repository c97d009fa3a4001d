"""`runs`: list runs, newest first."""

from takeback.api import now, opened_of
from takeback.frontends.cli.command import ALL_PROJECTS, NUMBER, Asked, Command, Does
from takeback.frontends.cli.commands.log import tell_dead
from takeback.frontends.cli.output.log_table import done_in, state_shown
from takeback.frontends.cli.output.screen import ago, clean
from takeback.frontends.cli.session.store import give, nothing_yet, opened, tell_nothing


def _runs(asked: Asked) -> int:
    screen = asked.screen
    if nothing_yet(asked):
        return tell_nothing(asked, [])
    with opened(asked) as tb:
        from takeback.audit.runs import as_they_stand

        infos = tuple(reversed(tb.runs(scope=opened_of(tb).here())))[: asked.options.number or None]
        runs = as_they_stand(tb.store, infos)
        if screen.json:
            from takeback.audit.views import run_json

            give(asked, tb, [run_json(run) for run in runs])
            return 0
        if not infos:
            screen.say("No runs yet." if asked.options.all else "No runs yet in this project.")
        today = now()
        agent_width = max((len(clean(info.agent)) for info in infos), default=0)
        for run in runs:
            info = run.info
            failed = screen.paint(f"  ({clean(run.failed)})", "red") if run.failed else ""
            screen.say(
                f"{screen.id(info.id)}  {ago(info.opened_at, today):<10}  "
                f"{screen.state(state_shown(run), 13)}  {clean(info.agent):<{agent_width}}  "
                f"{done_in(run):>11}  {clean(info.name)}{failed}"
            )
        tell_dead(screen, tb)
    return 0


COMMAND = Command(_runs, (NUMBER, ALL_PROJECTS), does=Does.LOOKS, long=True)
