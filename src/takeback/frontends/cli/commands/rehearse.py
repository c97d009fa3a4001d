"""`rehearse`: does the way back work? Tried on a copy."""

import time
from argparse import Namespace
from typing import TYPE_CHECKING

from takeback.api import now, opened_of
from takeback.audit.rehearsals import proven, proven_json, rehearsal_json, unfit
from takeback.errors import Failed, Misuse, Refused, TakebackError
from takeback.frontends.cli.command import DRY_RUN, Asked, Command, Does, filled, flag, option, positional
from takeback.frontends.cli.output.errors import as_field, told_trouble
from takeback.frontends.cli.output.screen import Screen, ago, clean, counted, from_here, took
from takeback.frontends.cli.session.store import existing, give, known_effects, nothing_yet, tell_nothing
from takeback.model.ids import short
from takeback.model.rehearsal import Proven, Rehearsal, Rehearsed, RehearsedTarget, Viability
from takeback.model.resource import display

if TYPE_CHECKING:
    from takeback.api import Takeback

_MOST_TARGETS = 5
_COLOURS = {Viability.WORKS: "green", Viability.FAILS: "red", Viability.CANNOT: "yellow"}

_ARGUMENTS = (
    positional("ids", "ID", "effects, or runs by id or name; none: the newest one", nargs="*"),
    option("--run", "R", "all effects of this run that are in force"),
    option(
        "--plan", "FILE", "changes that were not made yet: make them on a copy and undo them", type=filled
    ),
    flag("--all", "every effect in force, of all projects"),
    flag("--due", "one effect of each kind of remedy that was not proven for `rehearse_days`; for a timer"),
    flag("--cascade", "first take back later effects that depend on these"),
    flag("--check", "try nothing: look whether blobs, functions, servers and schemas are as needed"),
    flag("--status", "show when each kind of remedy was last proven, and which remedies were found unfit"),
    DRY_RUN,
)


def _rehearse(asked: Asked) -> int:
    options = asked.options
    _refuse_mixed(options)
    anything = options.all or options.due or options.status
    if nothing_yet(asked) and anything:
        return tell_nothing(asked, {"outcome": "works", "effects": []})
    with existing(asked, known_effects(options.ids, options.run or "")) as tb:
        if options.status:
            return _show_status(asked, tb)
        started = time.perf_counter()
        what = tb.find_run(options.run) if options.run else list(options.ids) or None
        if what is None and not (options.all or options.due or options.plan):
            what = tb.effect("@")
        found = tb.rehearse(
            what, everything=options.all, due=options.due, check=options.check, cascade=options.cascade,
            plan=options.plan, dry_run=options.dry_run,
        )  # fmt: skip
        return _tell(asked, tb, found, started)


def _refuse_mixed(options: Namespace) -> None:
    named = [
        words
        for words, given in (
            ("effects", options.ids), ("--run", options.run), ("--plan", options.plan), ("--all", options.all),
            ("--due", options.due), ("--status", options.status),
        )
        if given
    ]  # fmt: skip
    if len(named) > 1 and named != ["--all", "--due"]:
        raise Misuse(
            f"{named[0]} and {named[1]} cannot be combined.", hint="Say in one way what to rehearse."
        )
    if options.plan and (options.check or options.cascade):
        raise Misuse(
            "--plan cannot be combined with --check or --cascade.",
            hint="A plan is made and undone as a whole.",
        )
    if options.all and options.due:
        options.all = False


def _tell(asked: Asked, tb: "Takeback", found: Rehearsal, started: float) -> int:
    screen, options = asked.screen, asked.options
    errors = [] if options.dry_run else _errors(found)
    give(asked, tb, {"dry_run": options.dry_run, **rehearsal_json(found)} | as_field(screen, errors))
    for one in found.rehearsed:
        _say_one(screen, one, options.dry_run)
    for resource in found.disturbed:
        screen.say(screen.paint(f"Someone changed {from_here(display(resource))} in the meantime.", "yellow"))
    if not found.rehearsed:
        screen.say(
            "Nothing is due: each kind of remedy was proven." if options.due else "Nothing to rehearse."
        )
        return 0
    counts = {proof: sum(one.outcome is proof for one in found.rehearsed) for proof in Viability}
    told = ", ".join(f"{count:,} {_word(proof, count)}" for proof, count in counts.items() if count)
    if options.dry_run:
        able = counts[Viability.WORKS]
        screen.say(f"Would rehearse {counted(able, 'effect')} of {len(found.rehearsed):,}.")
        return 0
    verb = "Fitness at" if found.check else "Rehearsed"
    of = counted(len(found.rehearsed), "change" if options.plan else "effect")
    screen.say(f"{verb} {of} in {took(started)}: {told}. Nothing was changed.")
    if found.check and found.works:
        screen.hint("Nothing was tried. Without --check it is.")
    return told_trouble(screen, errors)


def _word(proof: Viability, count: int) -> str:
    if proof is Viability.CANNOT:
        return "cannot be rehearsed"
    return proof.value if count == 1 else proof.value.removesuffix("s")


def _errors(found: Rehearsal) -> list[TakebackError]:
    failed = [one for one in found.rehearsed if one.outcome is Viability.FAILS]
    if failed:
        shown = f"`takeback show {short(failed[0].effect)}` shows it." if failed[0].effect else ""
        return [
            Failed(
                f"{counted(len(failed), 'way')} back {'does' if len(failed) == 1 else 'do'} not work.",
                hint=f"Nothing was changed. {shown}".strip(),
                effect=failed[0].effect or None,
            )
        ]
    if not found.works:
        return [
            Refused(
                "Not everything could be rehearsed.",
                hint="Nothing was changed. What could not be tried has neither been proven nor found broken.",
            )
        ]
    return []


def _say_one(screen: Screen, one: Rehearsed, dry: bool) -> None:
    name = screen.id(one.effect) if one.effect else "planned "
    word = (
        ("can be tried" if one.outcome is Viability.WORKS else one.outcome.value)
        if dry
        else one.outcome.value
    )
    spent = f"{one.milliseconds:,} ms" if one.milliseconds else ""
    facts = ", ".join(filter(None, (one.adapter, one.strategy, spent)))
    told = f" ({facts})" if facts else ""
    screen.say(f"{name}  {screen.paint(word, _COLOURS[one.outcome])}  {from_here(one.summary)}{told}")
    if one.why:
        screen.say(f"          {from_here(one.why)}")
    bad = [each for each in one.targets if each.outcome is not Viability.WORKS and each.why != one.why]
    for each in bad[:_MOST_TARGETS] if len(one.targets) > 1 and not dry else ():
        screen.say(f"          {_of_target(each)}")
    if len(bad) > _MOST_TARGETS and len(one.targets) > 1:
        screen.say(f"          and {len(bad) - _MOST_TARGETS:,} more")


def _of_target(one: RehearsedTarget) -> str:
    return f"{from_here(display(one.resource))}: {from_here(one.why or one.outcome.value)}"


def _show_status(asked: Asked, tb: "Takeback") -> int:
    from takeback.runs.rehearsals.choice import with_every_kind

    screen, journal = asked.screen, tb.store.journal
    kinds = with_every_kind(journal, proven(journal), Proven(0, Viability.CANNOT))
    bad = unfit(journal)
    told = [{"id": one.effect.id, "summary": one.effect.change.summary, "detail": one.why} for one in bad]
    days = opened_of(tb).store.settings.rehearse_days
    give(asked, tb, {"kinds": proven_json(kinds), "unfit": told, "rehearse_days": days})
    today = now()
    for (adapter, strategy), one in sorted(kinds.items()):
        when = "never tried"
        if one.at:
            when = f"{one.outcome.value}, tried {ago(one.at, today)} with {screen.id(one.effect)}"
            if one.outcome is not Viability.WORKS:
                when += f"; last worked {ago(one.worked_at, today)}" if one.worked_at else "; never worked"
        colour = _COLOURS[one.outcome] if one.at else "yellow"
        screen.say(f"{adapter:<9} {strategy:<13} {screen.paint(when, colour)}")
    for one in bad:
        screen.say(
            f"{screen.id(one.effect.id)}  {screen.paint('unfit', 'red')}  {from_here(one.effect.change.summary)}: "
            f"{from_here(clean(one.why))}"
        )
    if not kinds:
        screen.say("Nothing is in force, so there is nothing to prove.")
    else:
        screen.hint(f"`takeback rehearse --due` tries each kind that was not proven for {days} days.")
    return 0


COMMAND = Command(
    _rehearse,
    _ARGUMENTS,
    usage="takeback rehearse [ID … | --run R | --plan FILE | --all | --due | --status] [options]",
    does=Does.LOOKS,
)
