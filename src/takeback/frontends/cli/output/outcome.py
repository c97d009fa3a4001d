"""What a command that was run has done, in words and as JSON."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from takeback.audit.views import effect_json
from takeback.errors import Misuse
from takeback.frontends.cli.output.screen import (
    clean,
    folded,
    here,
    local_time,
    quoted,
    warn,
)
from takeback.model.settings import bytes_in_words
from takeback.runs.commands.outcome import Changed, CommandOutcome
from takeback.upkeep import now

if TYPE_CHECKING:
    from takeback.api import Takeback
    from takeback.model.effect import Effect


_LISTED = 10

_FEW = 4

_OF_A_SHELL = frozenset(" \t\n|&;<>$`*")

_BUILT_IN = ("cd", "export", "source", ".", "alias", "set", "unset", "ulimit", "umask")


def hint_at_shell(argv: Sequence[str], exit_code: int) -> str:
    """For who wrote a line of shell as one word, or named a word that only a shell knows."""
    line = argv[0] if len(argv) == 1 else " ".join(map(quoted, argv))
    meant = (len(argv) == 1 and not _OF_A_SHELL.isdisjoint(line)) or argv[0] in _BUILT_IN
    return (
        f"To use the shell: `takeback run -- sh -c {quoted(line)}`."
        if exit_code in (126, 127) and meant
        else ""
    )


def seconds(text: str | None) -> float:
    if text is None:
        return 0
    try:
        value = float(text)
    except ValueError:
        value = -1
    if not 0 < value < float("inf"):
        raise Misuse(f"{text!r} is no time limit.", hint="Give seconds greater than 0, such as 60.")
    return value


def outcome_json(tb: "Takeback", outcome: CommandOutcome) -> dict[str, Any]:
    return {
        "exit_code": outcome.exit_code,
        "stopped": outcome.stopped,
        "stdout": outcome.stdout.decode("utf-8", "backslashreplace"),
        "stderr": outcome.stderr.decode("utf-8", "backslashreplace"),
        "held": outcome.held,
        "dropped": effect_json(tb.effect(outcome.dropped.id)) if outcome.dropped else None,
        "final": outcome.final.value if outcome.final else None,
        "effect": effect_json(tb.effect(outcome.effect.id)) if outcome.effect else None,
        "changes": [
            {"kind": one.kind, "resource": one.resource, "size": one.size} for one in outcome.changes
        ],
        "conflicts": [{"resource": one.resource, "detail": one.detail} for one in outcome.conflicts],
        "coverage": outcome.coverage,
        "text": outcome.text,
    }


def until(dropped: "Effect") -> str:
    return f", until {local_time(dropped.dropped.until, now())}" if dropped.dropped else ""


def sizes(changes: Iterable[Changed]) -> str:
    """How much is there now, and how much went."""
    written = deleted = 0
    kinds: set[str] = set()
    for one in changes:
        kinds.add(one.kind)
        if one.kind == "deleted":
            deleted += one.size
        else:
            written += one.size
    if "deleted" not in kinds:
        return bytes_in_words(written)
    gone = f"{bytes_in_words(deleted)} deleted"
    return bytes_in_words(deleted) if kinds == {"deleted"} else f"{bytes_in_words(written)} written, {gone}"


def say_changes(changes: Sequence[Changed]) -> None:
    """What lies below the reader comes first. Of many, a directory stands for what is in it."""
    place = here()
    most = _FEW if len(changes) > _LISTED else _LISTED
    for kind, sign in (("added", "+"), ("modified", "~"), ("deleted", "-")):
        for line in folded((clean(one.path) for one in changes if one.kind == kind), most, place):
            warn(f"  {sign} {line}")
