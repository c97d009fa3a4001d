"""Names that name nothing: a shell can hand over any bytes, and nothing at all."""

from argparse import Namespace
from itertools import pairwise

from takeback.errors import Misuse

_NAMES = (
    "by",
    "answer",
    "why",
    "id",
    "ids",
    "run",
    "to",
    "agent",
    "key",
    "needs",
    "label",
    "summary",
    "sets",
    "delete",
    "name",
    "event",
)
_NAMING = (
    "--store", "--run", "--to", "--key", "--agent", "--name", "--box", "--needs", "--by", "--from-checkpoint",
)  # fmt: skip


def refuse_nameless(words: list[str], options: Namespace) -> None:
    """An option whose variable was not set is not one that was left away: without --run, `undo` takes back something
    else."""
    for option, value in pairwise([*words, "none"]):
        name, equals, rest = option.partition("=")
        if name in _NAMING and (rest == "" if equals else value == ""):
            raise Misuse(f"{name} is empty.", hint=f"Say which is meant, or leave {name} away.")
    for name in _NAMES:
        given = getattr(options, name, None) or ()
        if not all(word.isascii() for word in given):
            from takeback.model.record import canonical

            canonical(given)  # refuses what the journal cannot hold
