"""`doctor`: is this machine able?"""

from argparse import ArgumentParser

import takeback.api
from takeback.audit.doctor import BAD, GOOD, WEAK, Finding, at_work, examine, trouble
from takeback.errors import Failed, TakebackError
from takeback.frontends.cli.commands import Asked, Command, Does
from takeback.frontends.cli.output.errors import as_field, here, told_trouble
from takeback.frontends.cli.output.screen import clean, counted
from takeback.frontends.cli.session.store import nothing_yet, store_path

_STYLES = {GOOD: "green", WEAK: "yellow", BAD: "red"}


def _arguments(parser: ArgumentParser) -> None:
    del parser  # nothing but the options that every command has


def _doctor(asked: Asked) -> int:
    screen = asked.screen
    findings = [*examine(store_path(asked), here()), *_inside(asked)]
    bad = [one for one in findings if one.level == BAD]
    errors = [_unable(bad)] if bad else []
    answer = {"able": not bad, "findings": [one._asdict() for one in findings]}
    screen.give(answer | as_field(screen, errors))
    width = max(len(one.name) for one in findings)
    for one in findings:
        screen.say(
            f"{screen.paint(f'{one.level:<4}', _STYLES[one.level])}  {one.name:<{width}}  {clean(one.detail)}"
        )
        if one.hint and one.level != GOOD:
            screen.hint(clean(one.hint))
    weak = sum(1 for one in findings if one.level == WEAK)
    if not bad:
        screen.say(f"Ready, with {counted(weak, 'warning')}." if weak else "Ready.")
    return told_trouble(screen, errors)


def _unable(bad: list[Finding]) -> TakebackError:
    return Failed(
        f"{counted(len(bad), 'thing')} must be fixed: {bad[0].name}: {bad[0].detail.rstrip('.')}.",
        hint=bad[0].hint or "`takeback doctor` tells what was found.",
    )


def _inside(asked: Asked) -> list[Finding]:
    """What only the opened store can tell; nothing is recovered or made here."""
    try:
        if nothing_yet(asked):
            return []
        with takeback.api.open(store_path(asked), recover=False) as tb:
            return list(at_work(tb.store))
    except TakebackError as error:
        return [trouble(error)]


COMMANDS = {"doctor": Command(_arguments, _doctor, does=Does.LOOKS)}
