"""A policy as plain data: rules in layers, as a file says them and as they are kept compiled."""

from collections.abc import Mapping
from enum import IntEnum, StrEnum
from typing import Any, NamedTuple

from takeback.model.ruling import PolicyAnswer


class Level(IntEnum):
    """Who wrote a file. Nothing below the administrator weakens what the administrator said."""

    ADMINISTRATOR = 0
    USER = 1
    PROJECT = 2


class Field(StrEnum):
    """What a rule can match by a pattern."""

    AGENT = "agent"
    HOST = "host"
    KIND = "kind"
    PATH = "path"
    COMMAND = "command"
    VERB = "verb"
    TABLE = "table"
    TOOL = "tool"
    ACTION = "action"
    RISK = "risk"
    REVERSIBILITY = "reversibility"
    LABEL = "label"


class Pattern(NamedTuple):
    """`literal` occurs in every text that matches; then the expression decides, where there is one."""

    literal: str
    expression: str = ""
    fixed: str = ""  # of a path: what stands before its first wildcard


class Test(NamedTuple):
    """One of the patterns must match."""

    field: str
    patterns: tuple[Pattern, ...]


class Limit(NamedTuple):
    what: str  # "files", "rows", "bytes", or the name of an argument
    sign: str  # > >= < <= ==
    number: str  # as it was written: a record holds no fractions
    argument: bool = False


class Hours(NamedTuple):
    days: int  # bits, Monday first
    since: int  # minute of the day
    until: int


class PolicyRule(NamedTuple):
    name: str
    line: int
    then: str  # of `PolicyAnswer`
    tests: tuple[Test, ...] = ()
    limits: tuple[Limit, ...] = ()
    hours: tuple[Hours, ...] = ()
    when: str = ""  # CEL
    place: str = ""
    asks: tuple[int, tuple[str, ...], int, bool] | None = None
    why: str = ""
    excepted: tuple[str, ...] = ()  # agents that it does not concern: of a prefix that they own

    @property
    def names_reversibility(self) -> bool:
        return any(field == Field.REVERSIBILITY for field, _ in self.tests)


class Budget(NamedTuple):
    """More than so many in this time stop the agent."""

    rule: PolicyRule  # what is counted
    most: int
    seconds: int


class Case(NamedTuple):
    """One question of `takeback policy test`, with the answer that is expected."""

    name: str
    line: int
    given: dict[str, Any]
    answer: str
    rule: str = ""


class Layer(NamedTuple):
    level: Level
    file: str  # as it is shown
    digest: str
    rules: tuple[PolicyRule, ...] = ()
    budgets: tuple[Budget, ...] = ()
    labels: tuple[tuple[str, tuple[Pattern, ...]], ...] = ()
    default: str = ""  # what counts where no rule matches
    first: bool = False  # the first rule that matches decides, not the strictest
    settings: tuple[tuple[str, int | str], ...] = ()
    stores: tuple[
        tuple[str, tuple[tuple[str, int | str], ...]], ...
    ] = ()  # settings for one store, by its path
    cases: tuple[Case, ...] = ()
    trusted: bool = True  # of a project's file: a person let it count exactly as it is

    @property
    def loosens(self) -> tuple[str, ...]:
        """What of a project's file counts only after a person trusted it."""
        found = [f"rule {one.name!r} allows" for one in self.rules if one.then == PolicyAnswer.ALLOW]
        found += [
            f"rule {one.name!r} lets commands run in place" for one in self.rules if one.place == "in place"
        ]
        found += [f"setting {name!r}" for name, _ in self.settings]
        return tuple(found)


class Policy(NamedTuple):
    layers: tuple[Layer, ...] = ()

    @property
    def digest(self) -> str:
        """Of all that counts; empty without a file."""
        import hashlib

        told = "\n".join(f"{one.level.value} {one.digest} {int(one.trusted)}" for one in self.layers)
        return hashlib.sha256(told.encode()).hexdigest() if self.layers else ""

    @property
    def budgets(self) -> tuple[tuple[Layer, Budget], ...]:
        return tuple((layer, one) for layer in self.layers for one in layer.budgets)


NO_POLICY = Policy()


class Subject(NamedTuple):
    """What is known of a change when it is judged. A number that is not known is None."""

    agent: str = ""
    host: str = ""  # the machine
    kinds: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()  # and addresses of databases
    whole: tuple[str, ...] = ()  # directories that are changed with all that is in them
    commands: tuple[tuple[str, ...], ...] = ()
    verbs: tuple[str, ...] = ()
    tables: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    actions: tuple[str, ...] = ()
    risk: str = ""
    reversibility: str = ""
    files: int | None = None
    rows: int | None = None
    bytes: int | None = None
    arguments: Mapping[str, Any] = {}
    weekday: int = 0  # Monday is 0
    minute: int = 0  # of the day, local time
