"""A statement in one line, for the journal and for people: without what is in quotes, which may be anybody's data."""

import re

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
