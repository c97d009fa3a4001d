"""The answers of `audit log`, for a person and as JSON."""

from collections.abc import Callable, Sequence
from itertools import islice

from takeback.api import Takeback, now, opened_of
from takeback.audit import questions
from takeback.audit.questions import Story, story_json
from takeback.audit.views import iso
from takeback.errors import Misuse
from takeback.frontends.cli.command import Asked
from takeback.frontends.cli.output.screen import clean, counted, from_here, when
from takeback.frontends.cli.session.store import give
from takeback.model.ids import short
from takeback.model.record import Kind
from takeback.model.words import point_in_time
from takeback.runs.scope import resource_of


def answer(asked: Asked, tb: Takeback, names: Sequence[str]) -> int:
    options = asked.options
    chosen = [name for name in names if getattr(options, name.replace("-", "_"))]
    chosen += [name for name in ("why", "sample") if getattr(options, name)]
    if len(chosen) > 1:
        raise Misuse(f"--{chosen[0]} and --{chosen[1]} are two questions.", hint="Ask one at a time.")
    since, until = (point_in_time(one, now()) if one else 0 for one in (options.since, options.until))
    answers: dict[str, Callable[[Asked, Takeback, int, int], None]] = {
        "unapproved": _unapproved, "undone": _undone, "unknown": _unknown, "policies": _policies,
        "retention": _retention, "rehearsals": _rehearsals, "break-glass": _break_glass, "why": _why, "sample": _sample,
    }  # fmt: skip
    answers.get(chosen[0] if chosen else "", _actions)(asked, tb, since, until)
    return 0


def _actions(asked: Asked, tb: Takeback, since: int, until: int) -> None:
    options = asked.options
    named: str = options.resource or ""
    resource = named if "://" in named else resource_of(named) if named else ""
    run = tb.find_run(options.run).id if options.run else ""
    wanted = questions.ActionFilter(resource, run, options.agent, options.person, since, until)
    found = list(islice(questions.actions(tb.store, wanted), options.number + 1 if options.number else None))
    more = options.number and len(found) > options.number
    found = found[: options.number] if options.number else found
    give(asked, tb, [story_json(one) for one in found])
    for one in found:
        _say(asked, one)
    asked.screen.say(f"{counted(len(found), 'action')}.")
    if more:
        asked.screen.hint("There are more; -n 0 lists all.")


def _say(asked: Asked, story: Story) -> None:
    screen, effect = asked.screen, story.effect
    screen.say(screen.effect(effect))
    who = f" by {clean(effect.agent)}" if effect.agent else ""
    run = f", run {clean(story.run.name)}" if story.run else ""
    screen.say(f"          {iso(effect.at)}{who}{run}: {screen.state(effect.state.value)}")
    for one in story.approvals:
        said = "approved" if one.approved else "denied"
        fits = "" if one.fits else "; NOT what was asked for"
        why = f": {clean(one.why)}" if one.why else ""
        screen.say(f"          {said} by {clean(one.by)} ({clean(one.known_by)}) {iso(one.at)}{why}{fits}")
    if story.missing_approval:
        screen.say(screen.paint(f"          no approval: {clean(story.missing_approval)}", "red"))
    if story.rule:
        screen.say(
            f"          rule {clean(str(story.rule.get('rule')))}: {clean(str(story.rule.get('answer')))}"
        )
    if story.verified:
        screen.say(f"          verified: {clean(story.verified)}")


def _why(asked: Asked, tb: Takeback, since: int, until: int) -> None:
    effect = opened_of(tb).effect(asked.options.why)
    story = questions.story_of(tb.store, effect)
    policy = questions.policies(tb.store, at=effect.order)
    told = story_json(story) | {"policy": questions.as_of(policy)}
    give(asked, tb, told)
    _say(asked, story)
    screen = asked.screen
    if effect.plan:
        screen.say(f"          shown: {from_here(effect.plan)}")
    if story.needed_approval is False:
        screen.say("          no approval was needed")
    for name, value in story.identity.items():
        screen.say(f"          {name}: {clean(str(value))}")
    for one in policy:
        screen.say(f"          policy in force: record {one.seq} of {iso(one.at)}")
    for one in story.records:
        screen.say(f"          record {one.seq} {one.kind.value} {iso(one.at)} {one.hash.hex()[:16]}")


def _unapproved(asked: Asked, tb: Takeback, since: int, until: int) -> None:
    found = questions.approvals(tb.store, since, until)
    told = {
        "needed": found.needed,
        "ran": found.ran,
        "exceptions": [story_json(one) for one in found.exceptions],
    }
    give(asked, tb, told)
    for one in found.exceptions:
        _say(asked, one)
    without = f"{found.ran:,} ran, {len(found.exceptions):,} without it"
    asked.screen.say(f"{counted(found.needed, 'action')} needed an approval, {without}.")


def _undone(asked: Asked, tb: Takeback, since: int, until: int) -> None:
    found = list(questions.undone(tb.store, since, until))
    give(asked, tb, [questions.undo_json(one) for one in found])
    for one in found:
        told = questions.undo_json(one)
        summary = from_here(told["summary"])
        asked.screen.say(f"{short(told['undo'])}  undid {short(told['of'])}  {summary}: {told['state']}")
        asked.screen.say(
            f"          {told['at']} by {clean(told['by'] or '(no agent)')}, run {clean(told['run'])}"
        )
        for name in ("verified", "residue"):
            if told[name]:
                asked.screen.say(f"          {name}: {clean(told[name])}")
    asked.screen.say(f"{counted(len(found), 'undo')}.")


def _unknown(asked: Asked, tb: Takeback, since: int, until: int) -> None:
    found = [one for one in questions.unknown(tb.store) if one.effect.at >= since]
    give(asked, tb, [story_json(one) for one in found])
    for one in found:
        _say(asked, one)
        for record in one.doubts:
            asked.screen.say(f"          unknown since {iso(record.at)}: {clean(record.body.get('why', ''))}")
        asked.screen.say(f"          {clean(one.resolution) or 'not resolved'}")
    asked.screen.say(f"{counted(len(found), 'action')} with an unknown outcome.")


def _records(asked: Asked, tb: Takeback, what: str, *kinds: Kind) -> None:
    found = questions.of_store(tb.store, *kinds)
    give(asked, tb, questions.as_of(found))
    for one in found:
        said = ", ".join(f"{name}: {value}" for name, value in one.body.items())
        asked.screen.say(f"record {one.seq}  {iso(one.at)}  {one.kind.value}  {clean(said)}")
    newest = f"; the last {when(found[-1].at, now())}" if found else ""
    asked.screen.say(f"{counted(len(found), what)}{newest}.")


def _policies(asked: Asked, tb: Takeback, since: int, until: int) -> None:
    _records(asked, tb, "record of a policy", Kind.POLICY, Kind.TRUST)


def _rehearsals(asked: Asked, tb: Takeback, since: int, until: int) -> None:
    _records(asked, tb, "rehearsal", Kind.REHEARSE)


def _retention(asked: Asked, tb: Takeback, since: int, until: int) -> None:
    kept = questions.retention(tb.store)
    give(asked, tb, kept._asdict() | {"oldest": iso(kept.oldest)})
    asked.screen.say(
        f"{counted(kept.records, 'record')}, the oldest of {iso(kept.oldest)}; no record is ever deleted."
    )
    asked.screen.say(f"audit_days is {kept.days}.")
    for rule, count in sorted(kept.forgotten.items()):
        asked.screen.say(f"{counted(count, 'way')} back given up: {clean(rule)}")
    if kept.erased:
        asked.screen.say(f"{counted(kept.erased, 'drop')} can no longer be applied.")
    if kept.redacted:
        asked.screen.say(f"{counted(kept.redacted, 'redaction')}.")


def _break_glass(asked: Asked, tb: Takeback, since: int, until: int) -> None:
    found = list(questions.break_glass(tb.store))
    give(asked, tb, [one._asdict() | {"at": iso(one.at)} for one in found])
    for one in found:
        asked.screen.say(
            f"record {one.seq}  {iso(one.at)}  {one.what}, by {clean(one.by or '(unknown)')}: {clean(one.about)}"
        )
    asked.screen.say(f"{counted(len(found), 'use')}.")


def _sample(asked: Asked, tb: Takeback, since: int, until: int) -> None:
    options = asked.options
    found = questions.sample(tb.store, options.sample, options.seed)
    give(asked, tb, {"seed": options.seed, "sample": [story_json(one) for one in found]})
    for one in found:
        _say(asked, one)
    asked.screen.say(f"{counted(len(found), 'action')}, chosen with the seed {clean(options.seed)}.")
