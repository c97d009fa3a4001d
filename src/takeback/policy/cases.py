"""Cases of a policy file: what is given, as a subject; what it answers, beside what was expected."""

from typing import Any, NamedTuple, cast

from takeback.errors import Misuse
from takeback.model.ruling import Ruling
from takeback.policy.commands import commands_in, commands_of
from takeback.policy.decide import Conditions, decide
from takeback.policy.rules import Case, Layer, Policy, Subject
from takeback.policy.statements import verbs_and_tables

_DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")


class CheckedCase(NamedTuple):
    case: Case
    ruling: Ruling

    @property
    def is_right(self) -> bool:
        same_rule = not self.case.rule or self.case.rule == self.ruling.rule
        return self.ruling.answer == self.case.answer and same_rule


def checked(layer: Layer, conditions: Conditions) -> tuple[CheckedCase, ...]:
    """By this file alone, trusted: so that the answer is the same on every machine."""
    policy = Policy((layer._replace(trusted=True),))
    root = layer.file.rpartition("/")[0]
    return tuple(
        CheckedCase(one, decide(policy, subject_given(one.given, root), conditions)) for one in layer.cases
    )


def subject_given(given: dict[str, Any], root: str = "") -> Subject:
    verbs, tables = verbs_and_tables(str(given.get("statement", "")))
    command: Any = given.get("command", "")
    commands = commands_in(command) if isinstance(command, str) else commands_of(tuple(map(str, command)))
    weekday, minute = _moment(str(given.get("at", "mon 12:00")))
    kinds = _texts(given, "kind") or (("run", "command") if commands else ("sql",) if verbs else ())
    return Subject(
        agent=str(given.get("agent", "")),
        host=str(given.get("host", "")),
        kinds=kinds,
        paths=tuple(_whole(one, root) for one in _texts(given, "path")),
        whole=tuple(_whole(one, root) for one in _texts(given, "whole")),
        commands=commands,
        verbs=verbs or tuple(one.lower() for one in _texts(given, "verb")),
        tables=tables or tuple(one.lower() for one in _texts(given, "table")),
        tools=_texts(given, "tool"),
        actions=_texts(given, "action"),
        risk=str(given.get("risk", "")),
        reversibility=str(given.get("reversibility", "")),
        files=_count(given, "files"),
        rows=_count(given, "rows"),
        bytes=_count(given, "bytes"),
        arguments=cast("dict[str, Any]", given.get("arguments", {})),
        weekday=weekday,
        minute=minute,
    )


def _texts(given: dict[str, Any], name: str) -> tuple[str, ...]:
    value = given.get(name, ())
    return (value,) if isinstance(value, str) else tuple(map(str, value))


def _count(given: dict[str, Any], name: str) -> int | None:
    value = given.get(name)
    if value is None:
        return None
    if type(value) is not int or value < 0:
        raise Misuse(f"A case gives {name} = {value!r}.", hint="Give a whole number.")
    return value


def _whole(path: str, root: str) -> str:
    if path.startswith(("/", "~")) or "://" in path:
        return path
    return f"{root}/{path}" if root else f"/{path}"


def _moment(text: str) -> tuple[int, int]:
    """`tue 22:30`."""
    day, _, time = text.strip().lower().partition(" ")
    hour, _, minute = time.partition(":")
    if day not in _DAYS or not (hour.isdigit() and minute.isdigit()):
        raise Misuse(f"A case happens at {text!r}.", hint='Write for example at = "tue 22:30".')
    return _DAYS.index(day), int(hour) * 60 + int(minute)
