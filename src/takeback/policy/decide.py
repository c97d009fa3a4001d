"""What a policy answers to a change: the strictest rule that matches decides, so that order never matters."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, Protocol

from takeback.errors import Refused
from takeback.model.ruling import NO_RULE, Asks, PolicyAnswer, Ruling
from takeback.policy.patterns_of_rules import END, WORD, joined
from takeback.policy.rules import Field, Hours, Layer, Level, Limit, Pattern, Policy, PolicyRule, Subject

_RANK = {answer.value: rank for rank, answer in enumerate(PolicyAnswer)}
# Plain texts: members of an enumeration are slow to look up.
_LABEL, _PATH = Field.LABEL.value, Field.PATH.value
IN_PLACE = "in place"
_PLACES = ("", IN_PLACE, "sandbox")  # from the mildest to the strictest
IRREVERSIBLE, BY_HAND, INEXACT, COMPENSATED, EXACT = (
    "irreversible", "by hand", "inexact", "compensated", "exact"
)  # fmt: skip
REVERSIBILITIES = (EXACT, COMPENSATED, INEXACT, BY_HAND, IRREVERSIBLE)
GATED = (BY_HAND, IRREVERSIBLE)
BUILT_IN = "built in"
UNDOABLE = Ruling(
    PolicyAnswer.ASK,
    "what cannot be undone",
    BUILT_IN,
    "It cannot be undone, or only by hand.",
    Asks(challenge=True),
)


class Condition(Protocol):
    """A `when`, ready to be asked."""

    def __call__(self, facts: Mapping[str, Any]) -> bool: ...


Conditions = Callable[[str], Condition]


class InForce(NamedTuple):
    """The policy that counts for a change, and how its conditions are asked."""

    policy: Policy
    conditions: Conditions


def no_conditions(text: str) -> Condition:
    raise Refused(
        f"A rule has a condition (`when = {text!r}`), and nothing here can evaluate it.",
        hint="Nothing was changed. Install the extra: pip install 'takeback[cel]'.",
    )


def decide(policy: Policy, subject: Subject, conditions: Conditions = no_conditions) -> Ruling:
    """The strictest answer of all layers. What cannot be undone is asked for, unless a rule that names reversibility
    allows it, of a layer that may loosen."""
    if not policy.layers:
        return UNDOABLE if subject.reversibility in GATED else NO_RULE
    texts = texts_of(subject)
    answers = [(layer, *_of_layer(policy, layer, subject, texts, conditions)) for layer in policy.layers]
    found = [(layer, rule, ruling) for layer, rule, ruling in answers if ruling is not NO_RULE]
    place = max((one.place for _, _, one in found), key=_PLACES.index, default="")
    strictest = max((one for _, _, one in found), key=_strictness, default=NO_RULE)
    if subject.reversibility in GATED and _RANK[strictest.answer] < _RANK[PolicyAnswer.ASK]:
        loosened = any(
            rule and rule.names_reversibility and (layer.trusted or layer.level is not Level.PROJECT)
            for layer, rule, _ in found
        )
        if not loosened or strictest.answer is not PolicyAnswer.ALLOW:
            strictest = UNDOABLE
    return strictest._replace(place=place)


def _strictness(ruling: Ruling) -> tuple[Any, ...]:
    """Of two that ask, the one that asks for more; then by name, so that the same one is always named."""
    asks = ruling.asks
    seconds = -asks.seconds if asks.seconds else -(1 << 60)
    return (
        _RANK[ruling.answer],
        asks.challenge,
        asks.people,
        len(asks.of) > 0,
        seconds,
        ruling.rule,
        ruling.source,
    )


def _of_layer(
    policy: Policy, layer: Layer, subject: Subject, texts: dict[str, str], conditions: Conditions
) -> tuple[PolicyRule | None, Ruling]:
    texts = texts | {_LABEL: joined(labels_of(policy, layer, texts))}
    matching = _matching(layer.rules, subject, texts, conditions)
    if layer.first:
        rule = next(matching, None)
        pairs = [(rule, ruling_of(layer, rule))] if rule else []
    else:
        pairs = [(rule, ruling_of(layer, rule)) for rule in matching]
    if not pairs:
        if not layer.default:
            return None, NO_RULE
        return None, Ruling(PolicyAnswer(layer.default), "default", layer.file, "No other rule matches.")
    rule, ruling = max(pairs, key=lambda pair: _strictness(pair[1]))
    place = max((one.place for _, one in pairs), key=_PLACES.index)
    excusing = next((one for one, _ in pairs if one.names_reversibility), rule)
    return (excusing if ruling.answer is PolicyAnswer.ALLOW else rule), _merged(ruling, pairs)._replace(
        place=place
    )


def _merged(strictest: Ruling, pairs: list[tuple[PolicyRule, Ruling]]) -> Ruling:
    """Two rules that ask are both satisfied: so many people, and the words, if one of them wants that."""
    if strictest.answer is not PolicyAnswer.ASK:
        return strictest
    asking = [one.asks for _, one in pairs if one.answer is PolicyAnswer.ASK]
    limits = [one.seconds for one in asking if one.seconds]
    return strictest._replace(
        asks=strictest.asks._replace(
            people=max(one.people for one in asking),
            challenge=any(one.challenge for one in asking),
            seconds=min(limits, default=0),
        )
    )


def ruling_of(layer: Layer, rule: PolicyRule) -> Ruling:
    loosens = rule.place == IN_PLACE and not layer.trusted
    place = "" if loosens else rule.place
    asks = Asks(rule.asks[0], tuple(rule.asks[1]), rule.asks[2], rule.asks[3]) if rule.asks else Asks()
    return Ruling(PolicyAnswer(rule.then), rule.name, f"{layer.file}:{rule.line}", rule.why, asks, place)


def texts_of(subject: Subject) -> dict[str, str]:
    return {
        "agent": joined((subject.agent,)),
        "host": joined((subject.host,)),
        "kind": joined(subject.kinds),
        "path": joined(subject.paths),
        "command": joined([WORD.join(words) for words in subject.commands]),
        "verb": joined(subject.verbs),
        "table": joined(subject.tables),
        "tool": joined(subject.tools),
        "action": joined(subject.actions),
        "risk": joined((subject.risk,) if subject.risk else ()),
        "reversibility": joined((subject.reversibility,) if subject.reversibility else ()),
    }


def labels_of(policy: Policy, layer: Layer, texts: Mapping[str, str]) -> tuple[str, ...]:
    """Those of this layer and of the ones above it: what a project calls scratch is scratch for its own rules only."""
    paths = texts[_PATH]
    labels = (one for other in policy.layers if other.level <= layer.level for one in other.labels)
    return tuple(name for name, patterns in labels if any(_found(one, paths) for one in patterns))


def counts(
    policy: Policy, layer: Layer, rule: PolicyRule, subject: Subject, conditions: Conditions = no_conditions
) -> bool:
    """Whether a change is one of those that a budget counts."""
    texts = texts_of(subject)
    return _matches(rule, subject, texts | {_LABEL: joined(labels_of(policy, layer, texts))}, conditions)


def _matches(rule: PolicyRule, subject: Subject, texts: Mapping[str, str], conditions: Conditions) -> bool:
    return next(_matching((rule,), subject, texts, conditions), None) is not None


def _matching(
    rules: Iterable[PolicyRule], subject: Subject, texts: Mapping[str, str], conditions: Conditions
) -> Iterator[PolicyRule]:
    """Of hundreds of rules nearly all end at their first pattern."""
    whole = bool(subject.whole)
    for rule in rules:
        for field, patterns in rule.tests:
            if text := texts[field]:
                for literal, expression, _ in patterns:
                    if literal in text and (not expression or re.search(expression, text, re.DOTALL)):
                        break
                else:
                    text = ""
            if not text and not (whole and field == _PATH and _holds(patterns, subject.whole, rule)):
                break
        else:
            if _reaches(rule, subject, texts, conditions):
                yield rule


def _reaches(rule: PolicyRule, subject: Subject, texts: Mapping[str, str], conditions: Conditions) -> bool:
    if not (rule.limits or rule.hours or rule.when or rule.excepted):
        return True
    return (
        subject.agent not in rule.excepted
        and all(_reached(Limit(*one), subject) for one in rule.limits)
        and (not rule.hours or any(_within(Hours(*one), subject) for one in rule.hours))
        and (not rule.when or _holds_when(rule, subject, texts, conditions))
    )


def _found(pattern: Pattern, text: str) -> bool:
    literal, expression, _ = pattern
    return literal in text and (not expression or re.search(expression, text, re.DOTALL) is not None)


def _holds(patterns: Iterable[Pattern], whole: tuple[str, ...], rule: PolicyRule) -> bool:
    """A directory that is deleted or moved takes along what lies in it; allowing that does not allow this."""
    if rule.then == PolicyAnswer.ALLOW:
        return False
    return any(fixed.startswith(f"{directory.rstrip('/')}/") for *_, fixed in patterns for directory in whole)


def _reached(limit: Limit, subject: Subject) -> bool:
    """What is not known has not reached a limit."""
    if limit.argument:
        value = subject.arguments.get(limit.what)
        if isinstance(value, bool) or not isinstance(value, (int, float, str)):
            return False
        try:
            value = float(value)
        except ValueError:
            return limit.sign == "==" and value == limit.number
    else:
        value = {"files": subject.files, "rows": subject.rows, "bytes": subject.bytes}[limit.what]
        if value is None:
            return False
    return compared(float(value), limit.sign, float(limit.number))


def compared(value: float, sign: str, other: float) -> bool:
    return {
        ">": value > other, ">=": value >= other, "<": value < other, "<=": value <= other, "==": value == other
    }[sign]  # fmt: skip


def _within(hours: Hours, subject: Subject) -> bool:
    """A span over midnight belongs to the day on which it begins."""
    today, now = subject.weekday, subject.minute
    if hours.since < hours.until:
        return bool(hours.days >> today & 1) and hours.since <= now < hours.until
    begun = bool(hours.days >> today & 1) and now >= hours.since
    return begun or (bool(hours.days >> (today - 1) % 7 & 1) and now < hours.until)


def _holds_when(rule: PolicyRule, subject: Subject, texts: Mapping[str, str], conditions: Conditions) -> bool:
    """One that fails counts against the change."""
    holds = conditions(rule.when)
    labels = [one for one in texts.get(_LABEL, "").split(END) if one]
    try:
        return holds(facts_of(subject) | {"labels": labels})
    except (ValueError, TypeError, KeyError, RuntimeError, ArithmeticError):
        return rule.then != PolicyAnswer.ALLOW


def facts_of(subject: Subject) -> dict[str, Any]:
    """What a `when` can ask about."""
    facts = subject._asdict()
    facts["commands"] = [" ".join(words) for words in subject.commands]
    facts["arguments"] = dict(subject.arguments)
    for name in ("files", "rows", "bytes"):
        facts[name] = -1 if facts[name] is None else facts[name]
    return {name: [*value] if isinstance(value, tuple) else value for name, value in facts.items()}
