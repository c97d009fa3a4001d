"""The answer of a policy to a change."""

from enum import StrEnum
from typing import Any, NamedTuple


class PolicyAnswer(StrEnum):
    """From the mildest to the strictest."""

    ALLOW = "allow"
    HOLD = "hold"
    ASK = "ask"
    DENY = "deny"


class Asks(NamedTuple):
    """Whom an answer of `ask` asks, and how."""

    people: int = 1  # so many different ones must say yes
    of: tuple[str, ...] = ()  # of these; empty: anyone who may approve
    seconds: int = 0  # then silence means no; 0: as the settings say
    challenge: bool = False  # the words that are shown must be typed


class Ruling(NamedTuple):
    answer: PolicyAnswer = PolicyAnswer.ALLOW
    rule: str = ""  # the name of the rule that decided; "" where none did
    source: str = ""  # the file of that rule, with its line
    why: str = ""  # one sentence
    asks: Asks = Asks()
    place: str = ""  # where a command runs: "sandbox", "in place"; "" for as asked


NO_RULE = Ruling()


class Known(NamedTuple):
    """What the caller knows of a change and its adapter does not."""

    argv: tuple[str, ...] = ()
    script: str = ""  # for a shell
    statement: str = ""
    rows: int | None = None
    tool: str = ""
    paths: tuple[str, ...] = ()  # resources
    where: str = ""  # a directory, as a resource: the rules around it count


NOTHING_KNOWN = Known()


def ruling_recorded(ruling: Ruling) -> dict[str, Any]:
    """For a record: what is as usual is left out."""
    told: dict[str, Any] = {
        "answer": ruling.answer.value, "rule": ruling.rule, "source": ruling.source, "why": ruling.why
    }  # fmt: skip
    if ruling.asks != Asks():
        told["asks"] = ruling.asks._asdict() | {"of": list(ruling.asks.of)}
    return {name: value for name, value in told.items() if value}


def ruling_from(told: dict[str, Any]) -> Ruling:
    """From a record."""
    asks = told.get("asks", {})
    found = {name: value for name, value in told.items() if name in ("rule", "source", "why")}
    return Ruling(
        PolicyAnswer(told["answer"]),
        **found,
        asks=Asks(**(asks | {"of": tuple(asks["of"])})) if asks else Asks(),
    )
