"""What the policy says to a change, at the door that it takes. Nothing of the policy is imported where there is none."""

import os
import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from takeback.adapters.protocol import Assessment, traits_of
from takeback.engine.guards import Door, touches_policy
from takeback.errors import Denied, Refused
from takeback.model.change import Change
from takeback.model.remedy import Offer, Strategy, is_gated
from takeback.model.resource import SCHEME, display, function_in, without_fragment
from takeback.model.ruling import NO_RULE, NOTHING_KNOWN, Known, PolicyAnswer, Ruling

if TYPE_CHECKING:
    from takeback.engine.parts import Parts
    from takeback.policy.decide import Conditions
    from takeback.policy.rules import Layer, Policy, Rule, Subject

_MOST_WHOLE = 1_000  # directories that are compared with patterns one by one
_SECOND = 1_000_000
OWN = "the policy itself"
OWN_FILE = Ruling(PolicyAnswer.HOLD, OWN, "built in", "It would change the rules under which takeback works.")


class InForce(NamedTuple):
    """The policy that counts for a change, and how its conditions are asked."""

    policy: "Policy"
    conditions: "Conditions"
    # Of an agent: what it has done since that time, newest first, as subjects; for budgets.
    trip: Callable[["Layer", "Rule", int], None] = lambda layer, rule, count: None


def ruled(
    parts: "Parts",
    run: str,
    agent: str,
    change: Change,
    assessment: Assessment | None,
    known: Known = NOTHING_KNOWN,
) -> Ruling:
    """Before anything is made. Without an assessment only what was asked for is known."""
    resources = assessment.resources if assessment else (change.resource, *known.paths)
    own = OWN_FILE if assessment and touches_policy(parts, resources) else NO_RULE
    found = parts.rules(run, resources)
    if found is None:
        return own
    from takeback.policy.decide import decide

    subject = subject_of(parts, agent, change, assessment, known)
    ruling = decide(found.policy, subject, found.conditions)
    if found.policy.budgets and ruling.answer is not PolicyAnswer.DENY:
        _refuse_over_budget(parts, agent, found, subject)
    return own if own.answer is PolicyAnswer.HOLD and ruling.answer is PolicyAnswer.ALLOW else ruling


def refuse_denied(change: Change, ruling: Ruling, instead: str = "Nothing was changed.") -> None:
    if ruling.answer is PolicyAnswer.DENY:
        raise Denied(f"{change.summary}: {in_words(ruling)}", hint=f"{instead} {way_on(ruling)}")


def refuse_unheld(change: Change, ruling: Ruling, door: Door) -> None:
    """At a door where nothing can wait for a person: it is refused, with the way that can."""
    if ruling.answer in (PolicyAnswer.HOLD, PolicyAnswer.ASK) and ruling.rule:
        way = {"sql": "Hold the transaction (--hold, or hold=True), then a person can apply it."}
        raise Refused(
            f"{change.summary}: {in_words(ruling)}",
            hint=f"Nothing was changed. {way.get(door.name, 'A person has to make it, or allow it by a rule.')}",
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
    if not ruling.rule or ruling.source == "built in" and ruling.rule != OWN:
        return change
    return change._replace(phase=change.phase._replace(ruling=ruling))


# What is known of it.


def subject_of(
    parts: "Parts", agent: str, change: Change, assessment: Assessment | None, known: Known = NOTHING_KNOWN
) -> "Subject":
    from takeback.policy.commands import commands_in, commands_of
    from takeback.policy.rules import Subject
    from takeback.policy.statements import verbs_and_tables

    resources = assessment.resources if assessment else ()
    # Of a command that is its directory, which says nothing about what it changes.
    runs = change.kind in ("run", "watch") and change.resource.startswith(SCHEME)
    paths = paths_of((*(() if runs else (change.resource,)), *resources, *known.paths))
    argv = known.argv or tuple(change.args.get("argv", ()))
    commands = (*(commands_of(argv) if argv else ()), *(commands_in(known.script) if known.script else ()))
    verbs, tables = verbs_and_tables(known.statement) if known.statement else ((), ())
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


def kinds_of(change: Change) -> tuple[str, ...]:
    kinds = (change.kind, change.adapter, f"{change.adapter}.{change.kind}")
    return (*kinds, "command") if change.adapter == "box" else kinds


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


def _refuse_over_budget(parts: "Parts", agent: str, found: InForce, subject: "Subject") -> None:
    """The effects of the agent in the time before this one are counted; this one would be one more."""
    from takeback.model.effect import State
    from takeback.policy.decide import counts
    from takeback.storage.protocols import Query

    now = parts.drops.now() or time.time_ns() // 1000
    for layer, budget in found.policy.budgets:
        if not counts(found.policy, layer, budget.rule, subject, found.conditions):
            continue
        count = 0
        states = (State.DONE, State.UNDONE, State.INTENDED)
        for one in parts.journal.effects(Query(agent=agent, states=states, newest=True)):
            if one.at < now - budget.seconds * _SECOND:
                break
            if one.is_undo:
                continue
            seen = made_subject(
                parts, one.agent, one.change, tuple(target.resource for target in one.targets)
            )
            count += counts(found.policy, layer, budget.rule, seen, found.conditions)
            if count >= budget.most:
                break
        if count >= budget.most:
            found.trip(layer, budget.rule, count)
            raise Denied(
                f"The budget {budget.rule.name!r} ({layer.file}:{budget.rule.line}) is used up: "
                f"{count} in {budget.seconds} seconds. {budget.rule.why}".rstrip(),
                hint="Nothing was changed. Ask the person who works with you.",
            )


def made_subject(parts: "Parts", agent: str, change: Change, resources: tuple[str, ...]) -> "Subject":
    """Of an effect that was made."""
    return subject_of(parts, agent, change, Assessment(resources, ()))
