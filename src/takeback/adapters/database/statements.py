"""A statement of any engine: shown in one line, how many rows it may change, how long it waits for a lock."""

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from takeback.errors import Refused

if TYPE_CHECKING:
    from takeback.model.effect import Effect


MOST = "most"  # in the arguments of a change


def most_of(effect: "Effect") -> int:
    """0: no limit."""
    return effect.change.args.get(MOST, 0)


def refuse_too_many(most: int, tables: Mapping[str, Mapping[str, int]]) -> None:
    rows = sum(sum(counts.values()) for counts in tables.values())
    if most and rows > most:
        raise _too_many(
            f"It changed {rows:,} rows", most, "Nothing was changed: the transaction was rolled back."
        )


def refuse_too_many_keys(most: int, keys: int) -> None:
    """Before it is made: where nothing can be rolled back."""
    if most and keys > most:
        raise _too_many(f"It may change {keys:,} keys", most, "Nothing was changed.")


def _too_many(what: str, most: int, state: str) -> Refused:
    return Refused(
        f"{what}, and no more than {most:,} were declared.",
        hint=f"{state} If that many are meant, say so first: run.sql(…, most=N), `takeback sql exec --most N`, or "
        "max_rows in settings.json (0: no limit).",
    )


LENGTH = 100
# What is in quotes, single or double: what is a name for one engine is a text for another. Where engines do not agree
# even about its end (a backslash in it, an odd apostrophe in brackets), all the rest of the statement is hidden.
_HIDDEN = re.compile(
    r"""(?P<string>[EeNnXxBb]?'(?:[^'\\]|'')*(?:'|\Z))"""
    r"""|(?P<name>"(?:[^"\\]|"")*(?:"|\Z))"""
    r"""|(?P<rest>(?:'(?:[^'\\]|'')*|"(?:[^"\\]|"")*)\\.*\Z|\[[^\]']*'(?:[^\]']*'[^\]']*')*[^\]']*\].*\Z)"""
    r"""|(?P<tick>`[^`]*(?:`|\Z))"""
    r"""|(?P<dollar>\$(\w*)\$.*?(?:\$\6\$|\Z))"""
    r"""|(?P<comment>--[^\n]*|/\*.*?(?:\*/|\Z))""",
    re.DOTALL,
)
_MOST = 100_000  # characters that are looked at: no more of it would be shown
_BLANK = re.compile(r"\s+")


def summary(statement: str) -> str:
    shown = _BLANK.sub(" ", _HIDDEN.sub(_stand_in, statement[:_MOST])).strip().rstrip(";").strip()
    return shown if len(shown) <= LENGTH else f"{shown[: LENGTH - 1]}…"


def first_words(statement: str, count: int = 1) -> str:
    """In capitals, comments left out: what kind of statement it seems to be. Good for messages and for the order in
    which things are tried, never for what may be done."""
    plain = _HIDDEN.sub(lambda found: " " if found["comment"] else found[0], statement[:_MOST])
    return " ".join(re.findall(r"[A-Za-z_]+", plain[:400])[:count]).upper()


def _stand_in(found: re.Match[str]) -> str:
    if found["comment"]:
        return " "
    if found["tick"]:
        return found[0] if "'" not in found[0] and '"' not in found[0] else "`…`"
    return '"…"' if found["name"] else "'…'"


SECONDS = 10


def _silently(words: str) -> None:
    """Report to no one."""


class Waiting(NamedTuple):
    """How long a statement waits for locks of changes that takeback holds for a decision, because these may never end.
    For others it waits as any client does. An undo never waits longer than this."""

    seconds: int = SECONDS  # 0: no limit
    tell: Callable[[str], None] = _silently  # for a person, while it waits


USUAL = Waiting()
