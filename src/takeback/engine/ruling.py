"""What the policy says to a change, at the door that it takes. Where there is no policy, this is not imported."""

import os
import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from takeback.adapters.protocol import Assessment, traits_of
from takeback.engine.stop import stop
from takeback.errors import Denied, Refused
from takeback.model.change import Change
from takeback.model.effect import Effect, State
from takeback.model.person import Person
from takeback.model.remedy import Offer, Strategy, is_gated
from takeback.model.resource import SCHEME, display, file_resource, function_in, without_fragment
from takeback.model.ruling import NO_RULE, NOTHING_KNOWN, Known, PolicyAnswer, Ruling
from takeback.model.stop import Stop
from takeback.storage.protocols import Query

if TYPE_CHECKING:
    from takeback.engine.parts import Parts
    from takeback.policy.decide import InForce
    from takeback.policy.rules import Budget, Layer, Subject

_MOST_WHOLE = 1_000  # directories that are compared with patterns one by one
_SECOND = 1_000_000
OWN_FILE = Ruling(
    PolicyAnswer.HOLD,
    "the policy itself",
    "built in",
    "It would change the rules under which takeback works.",
)


def ruled(
    parts: "Parts",
    run: str,
    agent: str,
    change: Change,
    assessment: Assessment | None,
    known: Known = NOTHING_KNOWN,
    *,
    is_own: bool = False,
) -> Ruling:
    """Before anything is made. Without an assessment only what was asked for is known."""
    resources = assessment.resources if assessment else known.paths
    found = parts.rules(run, (change.resource, *resources, known.where))
    own = OWN_FILE if is_own else NO_RULE
    if found is None:
        return own
    from takeback.policy.decide import decide

    files = [file_resource(layer.file) for layer in found.policy.layers]
    around = () if change.kind == "mkdir" else resources[:_MOST_WHOLE]
    if any(file.startswith(f"{one}/") for one in around for file in files):
        own = OWN_FILE
    subject = subject_of(parts, agent, change, assessment, known)
    ruling = decide(found.policy, subject, found.conditions)
    if found.policy.budgets and ruling.answer is not PolicyAnswer.DENY:
        _refuse_over_budget(parts, run, agent, found, subject)
    return own if own.answer is PolicyAnswer.HOLD and ruling.answer is PolicyAnswer.ALLOW else ruling


def refuse_denied(change: Change, ruling: Ruling, instead: str = "Nothing was changed.") -> None:
    if ruling.answer is PolicyAnswer.DENY:
        raise Denied(f"{change.summary}: {in_words(ruling)}", hint=f"{instead} {way_on(ruling)}")


def refuse_unheld(change: Change, ruling: Ruling, door: str) -> None:
    """At a door where nothing can wait for a person: it is refused, with the way that can."""
    if ruling.answer in (PolicyAnswer.HOLD, PolicyAnswer.ASK) and ruling.rule:
        way = {"sql": "Hold the transaction (--hold), then a person can apply it."}
        raise Refused(
            f"{change.summary}: {in_words(ruling)}",
            hint=f"Nothing was changed. {way.get(door, 'A person has to make it, or allow it by a rule.')}",
        )


def in_words(ruling: Ruling) -> str:
    """With the rule and where it stands."""
    verb = {
        PolicyAnswer.DENY: "denies it", PolicyAnswer.ASK: "wants a person to approve it first",
        PolicyAnswer.HOLD: "holds it until a person applies it", PolicyAnswer.ALLOW: "allows it",
    }[ruling.answer]  # fmt: skip
    where = f" ({ruling.source})" if ruling.source else ""
    why = f" {ruling.why}" if ruling.why else ""
    return f"the rule {ruling.rule!r}{where} {verb}.{why}"


def way_on(ruling: Ruling) -> str:
    return "Do not try another way around the rule: ask the person who works with you."


def noted(change: Change, ruling: Ruling) -> Change:
    """With the rule that decided, for the record."""
    from takeback.policy.decide import UNDOABLE

    if not ruling.rule or ruling == UNDOABLE:
        return change
    return change._replace(phase=change.phase._replace(ruling=ruling))


# What is known of it.


def subject_of(
    parts: "Parts", agent: str, change: Change, assessment: Assessment | None, known: Known = NOTHING_KNOWN
) -> "Subject":
    from takeback.policy.rules import Subject

    resources = assessment.resources if assessment else ()
    # Of a command that is its directory, which says nothing about what it changes.
    runs = change.kind in ("run", "watch") and change.resource.startswith(SCHEME)
    paths = paths_of((*(() if runs else (change.resource,)), *resources, *known.paths))
    argv = known.argv or tuple(change.args.get("argv", ()))
    commands = _commands(argv, known.script) if argv or known.script else ()
    verbs, tables = _words(known.statement) if known.statement else ((), ())
    action = function_in(change.resource)
    when = time.localtime((parts.drops.now() or time.time_ns() // 1000) / _SECOND)
    best = assessment.offers[0] if assessment and assessment.offers else None
    return Subject(
        agent=agent,
        host=os.uname().nodename,
        kinds=kinds_of(change),
        paths=paths,
        whole=paths[:_MOST_WHOLE] if change.kind in ("delete", "move", "run") else (),
        commands=commands,
        verbs=verbs,
        tables=tables,
        tools=(known.tool,) if known.tool else (),
        actions=(action, action.rpartition(":")[2]) if action else (),
        risk=_risk(change, assessment, best),
        reversibility=reversibility(best) if best else "",
        files=len({one for one in resources if one.startswith(SCHEME)}) if assessment else None,
        rows=known.rows,
        bytes=max(best.cost, change.args.get("size", 0)) if best else None,
        arguments=_arguments(change.args),
        weekday=when.tm_wday,
        minute=when.tm_hour * 60 + when.tm_min,
    )


def _commands(argv: tuple[str, ...], script: str) -> tuple[tuple[str, ...], ...]:
    from takeback.policy.commands import commands_in, commands_of

    return (*commands_of(argv), *commands_in(script))


def _words(statement: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    from takeback.policy.statements import verbs_and_tables

    return verbs_and_tables(statement)


def kinds_of(change: Change) -> tuple[str, ...]:
    kinds = (change.kind, change.adapter, f"{change.adapter}.{change.kind}")
    return (*kinds, "command") if traits_of(change).boxes else kinds


def paths_of(resources: Iterable[str]) -> tuple[str, ...]:
    """Files by their paths, everything else by its address."""
    plain = dict.fromkeys(map(without_fragment, resources))
    return tuple(display(one) if one.startswith(SCHEME) else one for one in plain)


def reversibility(offer: Offer) -> str:
    named = {
        Strategy.IRREVERSIBLE: "irreversible", Strategy.MANUAL: "by hand", Strategy.COMPENSATION: "compensated"
    }  # fmt: skip
    return named.get(offer.strategy) or ("exact" if offer.exact else "inexact")


def _risk(change: Change, assessment: Assessment | None, best: Offer | None) -> str:
    if assessment and assessment.risk:
        return assessment.risk
    if best is None:
        return ""
    if assessment and is_gated(assessment.offers):
        return "high"
    exact = best.exact and best.strategy is not Strategy.COMPENSATION
    return "low" if exact and not traits_of(change).calls else "medium"


def _arguments(args: Mapping[str, Any]) -> Mapping[str, Any]:
    told = args.get("arguments")
    if not isinstance(told, str):
        return {}
    import json

    found: Any = json.loads(told)
    return found if isinstance(found, dict) else {}  # pyright: ignore[reportUnknownVariableType]


def _refuse_over_budget(parts: "Parts", run: str, agent: str, found: "InForce", subject: "Subject") -> None:
    """What the agent has done in that time is counted; this would be one more. Then it is stopped, until a person
    lifts that."""
    from takeback.policy.decide import counts

    for layer, budget in found.policy.budgets:
        if not counts(found.policy, layer, budget.rule, subject, found.conditions):
            continue
        count = _spent(parts, agent, run, found, layer, budget)
        if count < budget.most:
            continue
        where = f"the budget {budget.rule.name!r} ({layer.file}:{budget.rule.line})"
        why = f"{where} allows {budget.most} in {budget.seconds} seconds. {budget.rule.why}".strip()
        if any(parts.journal.runs((run,))):  # a dry run has none, and stops no one
            stop(parts.journal, Stop(agent=agent, run="" if agent else run, why=why), Person("policy"))
        raise Denied(
            f"{subject.agent or 'This run'} is stopped: {why}",
            hint="Nothing was changed. A person lifts it with `takeback stop --lift`.",
        )


def _spent(parts: "Parts", agent: str, run: str, found: "InForce", layer: "Layer", budget: "Budget") -> int:
    """At most as many as are allowed; undos cost nothing."""
    from takeback.policy.decide import counts

    since = (parts.drops.now() or time.time_ns() // 1000) - budget.seconds * _SECOND
    states = (State.DONE, State.UNDONE, State.INTENDED)
    count = 0
    for one in parts.journal.effects(
        Query(agent=agent, run="" if agent else run, states=states, newest=True)
    ):
        if one.at < since or count >= budget.most:
            break
        if not one.is_undo:
            seen = made_subject(parts, one)
            count += counts(found.policy, layer, budget.rule, seen, found.conditions)
    return count


def made_subject(parts: "Parts", effect: Effect) -> "Subject":
    """Of an effect that was made. What a command deleted counts as deleted."""
    resources = tuple(target.resource for target in effect.targets)
    subject = subject_of(parts, effect.agent, effect.change, Assessment(resources, ()))
    deletes = any(target.after.get("type") == "absent" for target in effect.targets)
    return subject._replace(kinds=(*subject.kinds, "delete")) if deletes else subject
