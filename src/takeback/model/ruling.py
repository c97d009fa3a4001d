"""The answer of a policy to a change."""

from enum import StrEnum
from typing import NamedTuple


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
