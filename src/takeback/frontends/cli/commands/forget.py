"""`forget`: give up the power to undo."""

from takeback.frontends.cli.command import Asked, Command, flag, positional
from takeback.frontends.cli.output.screen import clean, counted
from takeback.frontends.cli.session.store import done_with_nothing, existing, give, known_effects, nothing_yet

_ARGUMENTS = (
    positional(
        "ids", "ID", "these effects (default: by policy, effects accepted long enough ago)", nargs="*"
    ),
    flag("--dry-run", "only explain each decision"),
)


def _forget(asked: Asked) -> int:
    options, screen = asked.options, asked.screen
    if nothing_yet(asked) and not options.ids:
        return done_with_nothing(asked, {"dry_run": options.dry_run, "forgotten": 0, "decisions": []})
    with existing(asked, known_effects(options.ids)) as tb:
        decisions = tb.forget(options.ids or None, dry_run=options.dry_run)
        going = [one for one in decisions if one.forget]
        told = [
            {
                "effect": one.effect.id,
                "summary": one.effect.change.summary,
                "forget": one.forget,
                "reason": one.why,
            }
            for one in decisions
        ]
        forgotten = 0 if options.dry_run else len(going)
        give(asked, tb, {"dry_run": options.dry_run, "forgotten": forgotten, "decisions": told})
        for one in decisions if options.dry_run else going:
            screen.say(f"{screen.effect(one.effect)}: {clean(one.why)}")
        verb = "Would forget" if options.dry_run else "Forgot"
        stay = len(decisions) - len(going)
        rest = "" if options.ids else f"; {counted(stay, 'effect')} {'stays' if stay == 1 else 'stay'}"
        screen.say(f"{verb} {counted(len(going), 'effect')}{rest}.")
        if going and not options.dry_run:
            screen.hint("`takeback sweep` deletes the bytes that nothing needs any more.")
    return 0


COMMAND = Command(_forget, _ARGUMENTS)
