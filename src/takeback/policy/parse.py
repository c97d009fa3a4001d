"""A policy file, as TOML has read it, becomes a layer; a mistake in it is named with its line and column."""

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, NoReturn, cast

from takeback.errors import Misuse
from takeback.model.ruling import PolicyAnswer
from takeback.policy.decide import REVERSIBILITIES
from takeback.policy.patterns_of_rules import pattern_of
from takeback.policy.rules import Budget, Case, Field, Hours, Layer, Level, Limit, PolicyRule, Test

ANSWERS = tuple(one.value for one in PolicyAnswer)
RISKS = ("low", "medium", "high")
PLACES = ("sandbox", "in place")
COUNTED = ("files", "rows", "bytes")
LIMITS = {f"{what}_{how}": (what, sign) for what in COUNTED for how, sign in (("over", ">"), ("up_to", "<="))}
MATCHES = (*(one.value for one in Field), "hours", "argument", *LIMITS)
_TOP = ("settings", "stores", "rule", "labels", "owners", "budget", "case", "order")
_OF_OTHERS = ("approvers", "approvals", "notify", "audit")  # who approves, who hears of it
_RULE = ("name", "match", "then", "place", "asks", "why", "when")
_BUDGET = ("name", "match", "most", "per", "why")
_CASE = ("name", "given", "then", "rule")
GIVEN = (
    "agent", "host", "kind", "path", "whole", "command", "verb", "table", "statement", "tool", "action", "risk",
    "reversibility", "files", "rows", "bytes", "arguments", "at",
)  # fmt: skip
_ASKS = ("people", "of", "within", "challenge")
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_SIZES = {"": 1, "KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30, "TB": 1 << 40}
_DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_SIGNS = (">=", "<=", "==", ">", "<")


_PART = re.compile(r"[A-Za-z0-9_-]+|\"(?:[^\"\\]|\\.)*\"|'[^']*'")
_HEADER = re.compile(rf"\s*(\[\[?)\s*((?:{_PART.pattern})(?:\s*\.\s*(?:{_PART.pattern}))*)\s*\]\]?")
_KEY = re.compile(r"\s*([A-Za-z0-9_-]+|\"[^\"]*\"|'[^']*')\s*(?:\.\s*[A-Za-z0-9_-]+\s*)*=")
Path = tuple[str | int, ...]


class PolicyInvalid(Misuse):
    """A policy file cannot be understood. Until it can, nothing is changed."""


class TomlPlace(NamedTuple):
    line: int = 1
    column: int = 1


class TomlPlaces:
    """Of tables and keys. What stands inside a value of one line has the position of its key."""

    def __init__(self, text: str) -> None:
        self._found: dict[Path, TomlPlace] = {}
        counts: dict[str, int] = {}
        table: Path = ()
        quotes = ""
        for number, line in enumerate(text.splitlines(), 1):
            if quotes:
                quotes = "" if quotes in line else quotes
                continue
            if header := _HEADER.match(line):
                table = _table(header, counts)
                self._found.setdefault(table, TomlPlace(number, header.start(1) + 1))
            elif key := _KEY.match(line):
                name = key.group(1).strip("\"'")
                self._found.setdefault((*table, name), TomlPlace(number, key.start(1) + 1))
                quotes = next((one for one in ('"""', "'''") if line.count(one) == 1), "")

    def of(self, path: Path) -> TomlPlace:
        while path and path not in self._found:
            path = path[:-1]
        return self._found.get(path, TomlPlace())


def _table(header: "re.Match[str]", counts: dict[str, int]) -> Path:
    names = [name.strip("\"'") for name in _PART.findall(header.group(2))]
    if header.group(1) == "[[":
        whole = ".".join(names)
        counts[whole] = counts.get(whole, -1) + 1
        return (*names, counts[whole])
    first: Any = names[0]
    if first in counts:  # of the last one of a list of tables
        return (first, counts[first], *names[1:])
    return tuple(names)


class _Reader(NamedTuple):
    file: str
    places: TomlPlaces
    root: str
    home: str

    def refuse(self, path: Path, words: str, hint: str = "") -> NoReturn:
        line, column = self.places.of(path)
        raise PolicyInvalid(
            f"{self.file}, line {line}, column {column}: {words}.",
            hint=hint or "Nothing was changed. `takeback policy check` looks at the file again.",
        )

    def table(self, path: Path, value: Any, known: tuple[str, ...]) -> dict[str, Any]:
        if not isinstance(value, dict):
            self.refuse(path, f"{path[-1]} must be a table")
        found = cast("dict[str, Any]", value)
        for name in found:
            if known and name not in known:
                from takeback.model.words import did_you_mean

                hint = did_you_mean(name, dict.fromkeys(known), f"It knows: {', '.join(known)}.")
                self.refuse((*path, name), f"{name!r} does not exist here", hint)
        return found

    def tables(self, name: str, data: Mapping[str, Any]) -> list[tuple[Path, dict[str, Any]]]:
        value = data.get(name, [])
        if not isinstance(value, list):
            self.refuse((name,), f"{name} is a list: write [[{name}]]")
        known = {"rule": _RULE, "budget": _BUDGET, "case": _CASE}[name]
        listed = cast("list[Any]", value)
        return [((name, at), self.table((name, at), one, known)) for at, one in enumerate(listed)]

    def text(self, path: Path, value: Any) -> str:
        if not isinstance(value, str) or not value.strip() or "\0" in value or "\x1f" in value:
            self.refuse(path, f"{path[-1]} must be text")
        return value

    def one_of(self, path: Path, value: Any, known: tuple[str, ...]) -> str:
        if value not in known:
            self.refuse(path, f"{path[-1]} cannot be {value!r}", f"It is one of: {', '.join(known)}.")
        return cast(str, value)

    def texts(self, path: Path, value: Any) -> tuple[str, ...]:
        listed = cast("list[Any]", value if isinstance(value, list) else [value])
        if not listed:
            self.refuse(path, f"{path[-1]} is an empty list, which nothing matches")
        return tuple(self.text(path, one) for one in listed)

    def seconds(self, path: Path, value: Any) -> int:
        text = value if isinstance(value, str) else ""
        if not text[:-1].isdigit() or text[-1:] not in _UNITS or not int(text[:-1]):
            self.refuse(
                path, f"{path[-1]} cannot be {value!r}", 'Write a time such as "30s", "10m", "4h" or "2d".'
            )
        return int(text[:-1]) * _UNITS[text[-1]]


def layer_from(
    data: Mapping[str, Any], text: str, *, level: Level, file: str, digest: str, root: str = "", home: str = "",
    check_settings: Callable[[dict[str, Any], str], object] = lambda data, where: None,
) -> Layer:  # fmt: skip
    """`root`: where relative paths of a project's file begin. `check_settings` raises at settings that do not exist."""
    read = _Reader(file, TomlPlaces(text), root, home)
    for name in data:
        if name in _OF_OTHERS and level is not Level.PROJECT:
            continue  # other parts read it
        if name in _OF_OTHERS:
            hint = "It counts in ~/.config/takeback/config.toml and /etc/takeback/config.toml."
            read.refuse((name,), f"[{name}] is nothing that a project decides", hint)
        if name not in _TOP:
            from takeback.model.words import did_you_mean

            lists = f"It knows: {', '.join(_TOP)}."
            read.refuse((name,), f"{name!r} does not exist", did_you_mean(name, dict.fromkeys(_TOP), lists))
    settings = read.table(("settings",), data.get("settings", {}), ())
    default = (
        read.one_of(("settings", "default"), settings.pop("default"), ANSWERS)
        if "default" in settings
        else ""
    )
    if settings:
        line, _ = read.places.of(("settings",))
        check_settings(dict(settings), f"{file}, line {line}, [settings]")
    stores = _stores(read, data, level, check_settings)
    rules = [_rule(read, path, one) for path, one in read.tables("rule", data)]
    _refuse_twice(read, "rule", [one.name for one in rules])
    rules += _owners(read, read.table(("owners",), data.get("owners", {}), ()))
    labels = read.table(("labels",), data.get("labels", {}), ())
    order = read.one_of(("order",), data.get("order", "strictest"), ("strictest", "first"))
    cases = tuple(_case(read, path, one) for path, one in read.tables("case", data))
    for case, (path, _) in zip(cases, read.tables("case", data), strict=True):
        if case.rule and case.rule not in {one.name for one in rules}:
            read.refuse((*path, "rule"), f"there is no rule {case.rule!r} in this file")
    return Layer(
        level, file, digest,
        rules=tuple(rules),
        budgets=tuple(_budget(read, path, one) for path, one in read.tables("budget", data)),
        labels=tuple(
            (name, tuple(pattern_of(Field.PATH, one, root, home) for one in read.texts(("labels", name), value)))
            for name, value in labels.items()
        ),
        default=default,
        first=order == "first",
        settings=tuple(settings.items()),
        stores=stores,
        cases=cases,
    )  # fmt: skip


def _stores(
    read: _Reader, data: Mapping[str, Any], level: Level, check: Callable[[dict[str, Any], str], object]
) -> tuple[tuple[str, tuple[tuple[str, int | str], ...]], ...]:
    """`[stores."/path".settings]`"""
    if "stores" in data and level is Level.PROJECT:
        read.refuse(("stores",), "[stores] is nothing that a project decides", "The files of the user and the "
                    "administrator set what counts for one store.")  # fmt: skip
    found: dict[str, tuple[tuple[str, int | str], ...]] = {}
    for name, value in read.table(("stores",), data.get("stores", {}), ()).items():
        path = ("stores", name, "settings")
        given = read.table(path, read.table(path[:2], value, ("settings",)).get("settings", {}), ())
        check(dict(given), f"{read.file}, line {read.places.of(path).line}, settings of {name}")
        found[name] = tuple(given.items())
    return tuple(found.items())


def _refuse_twice(read: _Reader, what: str, names: list[str]) -> None:
    for at, name in enumerate(names):
        if name in names[:at]:
            read.refuse(
                (what, at, "name"), f"there are two rules named {name!r}", "Give each a name of its own."
            )


def _rule(read: _Reader, path: Path, given: dict[str, Any]) -> PolicyRule:
    if "name" not in given:
        read.refuse(path, "a rule needs a name", 'For example name = "no force push".')
    if "then" not in given and "place" not in given:
        read.refuse(path, "a rule needs an answer", f"then = one of: {', '.join(ANSWERS)}.")
    then = read.one_of((*path, "then"), given.get("then", "allow"), ANSWERS)
    if "asks" in given and then != PolicyAnswer.ASK:
        read.refuse(
            (*path, "asks"), "asks belongs to a rule that asks", 'Write then = "ask", or leave asks away.'
        )
    matched = _matched(read, (*path, "match"), read.table((*path, "match"), given.get("match", {}), MATCHES))
    when = read.text((*path, "when"), given["when"]) if "when" in given else ""
    return matched._replace(
        name=read.text((*path, "name"), given["name"]),
        line=read.places.of(path).line,
        then=then,
        when=when,
        place=read.one_of((*path, "place"), given["place"], PLACES) if "place" in given else "",
        asks=_asks(read, (*path, "asks"), given["asks"]) if "asks" in given else None,
        why=read.text((*path, "why"), given["why"]) if "why" in given else "",
    )


def _matched(read: _Reader, path: Path, match: dict[str, Any]) -> PolicyRule:
    """A rule that has only what it matches."""
    tests: list[Test] = []
    limits: list[Limit] = []
    hours: tuple[Hours, ...] = ()
    for name, value in match.items():
        where = (*path, name)
        if name in LIMITS:
            what, sign = LIMITS[name]
            limits.append(Limit(what, sign, str(_number(read, where, value, what))))
        elif name == "argument":
            limits += [
                _argument(read, (*where, one), one, test)
                for one, test in read.table(where, value, ()).items()
            ]
        elif name == "hours":
            hours = tuple(_hours(read, where, one) for one in read.texts(where, value))
        else:
            texts = read.texts(where, value)
            known = {"risk": RISKS, "reversibility": REVERSIBILITIES}.get(name, ())
            for text in texts if known else ():
                read.one_of(where, text, known)
            cased = [text.lower() if name in (Field.VERB, Field.TABLE) else text for text in texts]
            tests.append(Test(name, tuple(pattern_of(name, text, read.root, read.home) for text in cased)))
    # What is seldom true first.
    tests.sort(key=lambda one: one.field in (Field.AGENT, Field.HOST, Field.KIND))
    return PolicyRule("", 0, "allow", tuple(tests), tuple(limits), hours)


def _number(read: _Reader, path: Path, value: Any, what: str) -> int:
    if type(value) is int and value >= 0:
        return value
    if what == "bytes" and isinstance(value, str):
        number = value.rstrip("KMGTB ").strip()
        unit = value[len(number) :].strip()
        if number.isdigit() and unit in _SIZES:
            return int(number) * _SIZES[unit]
    more = ', or a size such as "10 MB"' if what == "bytes" else ""
    read.refuse(path, f"{path[-1]} cannot be {value!r}", f"Write a whole number{more}.")


def _argument(read: _Reader, path: Path, name: str, value: Any) -> Limit:
    """`">1000"`, or a value that it must have."""
    if type(value) is int:
        return Limit(name, "==", str(value), True)
    text = read.text(path, value)
    sign = next((one for one in _SIGNS if text.startswith(one)), "")
    number = text[len(sign) :].strip()
    try:
        float(number)
    except ValueError:
        if sign:
            read.refuse(
                path, f"{text!r} compares with something that is no number", 'For example amount = ">1000".'
            )
    return Limit(name, sign or "==", number, True)


def _hours(read: _Reader, path: Path, text: str) -> Hours:
    """`22:00-06:00`, or `mon-fri 09:00-17:00`."""
    days, _, span = text.strip().rpartition(" ")
    since, dash, until = span.partition("-")
    first, last = _minute(since), _minute(until)
    begins, _, ends = (days.strip().lower() or "mon-sun").partition("-")
    ends = ends or begins
    if not dash or first is None or last is None or begins not in _DAYS or ends not in _DAYS:
        read.refuse(path, f"hours cannot be {text!r}", 'For example "22:00-06:00" or "mon-fri 09:00-17:00".')
    bits, day = 0, _DAYS.index(begins)
    for _ in _DAYS:
        bits |= 1 << day
        if day == _DAYS.index(ends):
            break
        day = (day + 1) % 7
    return Hours(bits, first, last)


def _minute(text: str) -> int | None:
    hour, colon, minute = text.strip().partition(":")
    if not (colon and hour.isdigit() and minute.isdigit() and len(minute) == 2):
        return None
    found = int(hour) * 60 + int(minute)
    return found if int(minute) < 60 and found <= 24 * 60 else None


def _asks(read: _Reader, path: Path, value: Any) -> tuple[int, tuple[str, ...], int, bool]:
    given = read.table(path, value, _ASKS)
    people, of = given.get("people", 1), given.get("of", [])
    if type(people) is not int or people < 1:
        read.refuse((*path, "people"), f"people cannot be {people!r}", "Write a whole number from 1.")
    who = read.texts((*path, "of"), of) if of else ()
    if who and len(set(who)) < people:
        read.refuse((*path, "of"), f"{people} people are asked, and only {len(set(who))} may answer")
    challenge = given.get("challenge", False)
    if not isinstance(challenge, bool):
        read.refuse((*path, "challenge"), "challenge is true or false")
    seconds = read.seconds((*path, "within"), given["within"]) if "within" in given else 0
    return people, who, seconds, challenge


def _owners(read: _Reader, given: dict[str, Any]) -> list[PolicyRule]:
    """Each prefix is changed by its own agents only."""
    found: list[PolicyRule] = []
    for prefix, value in given.items():
        agents = read.texts(("owners", prefix), value)
        test = Test(Field.PATH, (pattern_of(Field.PATH, prefix, read.root, read.home),))
        why = f"{prefix} belongs to {', '.join(agents)}."
        line = read.places.of(("owners", prefix)).line
        found.append(PolicyRule(f"owner of {prefix}", line, "deny", (test,), why=why, excepted=agents))
    return found


def _budget(read: _Reader, path: Path, given: dict[str, Any]) -> Budget:
    for name in ("name", "most", "per"):
        if name not in given:
            read.refuse(
                path, f"a budget needs {name}", 'For example name = "deletes", most = 20, per = "1m".'
            )
    most = given["most"]
    if type(most) is not int or most < 1:
        read.refuse((*path, "most"), f"most cannot be {most!r}", "Write a whole number from 1.")
    rule = _matched(read, (*path, "match"), read.table((*path, "match"), given.get("match", {}), MATCHES))
    why = read.text((*path, "why"), given["why"]) if "why" in given else ""
    rule = rule._replace(
        name=read.text((*path, "name"), given["name"]), line=read.places.of(path).line, then="deny", why=why
    )
    return Budget(rule, most, read.seconds((*path, "per"), given["per"]))


def _case(read: _Reader, path: Path, given: dict[str, Any]) -> Case:
    for name in ("given", "then"):
        if name not in given:
            read.refuse(path, f"a case needs {name}", 'For example given = {command = "git push --force"}.')
    facts = read.table((*path, "given"), given["given"], GIVEN)
    then = read.one_of((*path, "then"), given["then"], ANSWERS)
    line = read.places.of(path).line
    name = read.text((*path, "name"), given["name"]) if "name" in given else f"line {line}"
    return Case(name, line, facts, then, given.get("rule", ""))
