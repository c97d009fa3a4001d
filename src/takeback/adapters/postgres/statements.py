"""Cut a text into statements, as the server would, and know those that cannot be part of an effect.

This decides the messages, and that one statement at a time is sent; the server decides what may happen."""

import re
from collections.abc import Iterator

from takeback.errors import Refused

_TOKEN = re.compile(
    r"(?P<line>--[^\n]*)"
    r"|(?P<block>/\*)"
    r"|(?P<escaped>[eE]'(?:[^'\\]++|''|\\.)*+(?:'|\Z))"
    r"|(?P<string>'(?:[^']++|'')*+(?:'|\Z))"
    r'|(?P<name>"(?:[^"]++|"")*+(?:"|\Z))'
    r"|(?P<dollar>\$(?P<tag>(?:[^\W\d]\w*)?)\$.*?(?:\$(?P=tag)\$|\Z))"
    r"|(?P<word>[^\W\d][\w$]*)"
    r"|(?P<other>\d[\w$]*|\s++|.)",
    re.DOTALL,
)
_BLOCK_MARK = re.compile(r"/\*|\*/")


def tokens(text: str) -> Iterator[tuple[str, int, int]]:
    """Kind, start and end; comments of blocks may hold others."""
    place = 0
    while place < len(text):
        found = _TOKEN.match(text, place)
        assert found and found.lastgroup
        kind, end = ("dollar" if found["dollar"] else found.lastgroup), found.end()
        if kind == "block":
            depth = 1
            while depth and (mark := _BLOCK_MARK.search(text, end)):
                depth += 1 if mark[0] == "/*" else -1
                end = mark.end()
            if depth:
                end = len(text)
        yield kind, place, end
        place = end


def split(text: str) -> list[str]:
    """One statement each, without the semicolon; what has no word in it is none."""
    found: list[str] = []
    start = 0
    words: list[str] = []
    depth = nested = 0  # of parentheses; of BEGIN ATOMIC … END
    for kind, begin, end in tokens(text):
        token = text[begin:end]
        if kind == "word":
            words.append(token.upper())
            nested += _nesting(words, nested)
        elif token in "([":
            depth += 1
        elif token in ")]":
            depth = max(0, depth - 1)
        elif token == ";" and not depth and not nested:
            if words:
                found.append(text[start:begin].strip())
            start, words = end, []
    if words:
        found.append(text[start:].strip())
    return found


def _nesting(words: list[str], nested: int) -> int:
    """The body of a function in standard SQL has semicolons of its own."""
    if not (words[0] == "CREATE" and ("FUNCTION" in words[:4] or "PROCEDURE" in words[:4])):
        return 0
    if words[-1] == "BEGIN" or (nested and words[-1] == "CASE"):
        return 1
    return -1 if nested and words[-1] == "END" else 0


def first_words(statement: str, count: int = 3) -> list[str]:
    found: list[str] = []
    for kind, begin, end in tokens(statement):
        if kind == "word":
            found.append(statement[begin:end].upper())
            if len(found) == count:
                break
        elif kind not in ("line", "block") and statement[begin:end].strip(" \t\r\n\f\v("):
            break
    return found


_CONTROL = frozenset(("BEGIN", "START", "COMMIT", "END", "ROLLBACK", "ABORT", "SAVEPOINT", "RELEASE"))
_ALONE = re.compile(  # they do not run in a transaction
    r"(VACUUM|CHECKPOINT|ALTER SYSTEM|(CREATE|DROP) (DATABASE|TABLESPACE|SUBSCRIPTION)|REINDEX (DATABASE|SYSTEM))\b"
)
_SESSION = frozenset(("SET", "RESET", "DISCARD", "LISTEN", "UNLISTEN", "LOAD", "DEALLOCATE", "PREPARE"))
_GLOBAL = re.compile(r"((CREATE|ALTER|DROP) (ROLE|USER|GROUP)|ALTER (DATABASE|TABLESPACE|SUBSCRIPTION))\b")
_NOT_CAPTURED = {
    "CLUSTER": "rewrites tables in another order and changes no row",
    "REINDEX": "rewrites indexes and changes no row",
    "REFRESH": "replaces the rows of a materialized view, which takeback does not capture",
    "REASSIGN": "changes whatever belongs to a role, in ways that takeback does not capture",
    "DROP OWNED": "changes whatever belongs to a role, in ways that takeback does not capture",
}


def refuse_impossible(statement: str) -> None:
    """What would end the transaction, leave it, or outlive it."""
    words = first_words(statement)
    first = words[0] if words else ""
    three = " ".join(words)
    if first in _CONTROL or words[:2] == ["PREPARE", "TRANSACTION"]:
        if first in ("SAVEPOINT", "RELEASE") or (first == "ROLLBACK" and "TO" in words):
            return
        raise Refused(
            f"{first} would end or split the transaction that the effect is.",
            hint="Nothing was changed. Leave it out: the effect begins and ends the transaction.",
        )
    if first in _SESSION:
        raise Refused(
            f"{first} changes the session and not the database, and would outlive the effect.",
            hint="Nothing was changed. Give settings with the address: ?options=-c%20search_path%3Dapp",
        )
    if why := _no_way_back(three, statement):
        raise Refused(f"{why}.", hint="Nothing was changed. Run it yourself, outside takeback.")
    if first == "COPY":
        _refuse_copy(statement)
    if first not in _DEFINES and _sets_counter(statement):
        raise Refused(
            "setval() takes hold at once and cannot be rolled back, so it cannot be taken back.",
            hint="Nothing was changed. Run it yourself, outside takeback.",
        )
    if first == "NOTIFY":
        raise Refused("A notification cannot be taken back.", hint="Nothing was changed.")


def _no_way_back(three: str, statement: str) -> str:
    if found := _ALONE.match(three):
        return f"{found[0]} does not run in a transaction, so it cannot be taken back"
    if "CONCURRENTLY" in first_words(statement, 5):
        return "CONCURRENTLY does not run in a transaction, so it cannot be taken back"
    if found := _GLOBAL.match(three):
        return f"{found[0]} changes the server and not only this database, so it cannot be taken back"
    named = next((name for name in _NOT_CAPTURED if f"{three} ".startswith(f"{name} ")), "")
    return f"{named} {_NOT_CAPTURED[named]}" if named else ""


_DEFINES = frozenset(("CREATE", "ALTER", "DROP", "COMMENT", "GRANT", "REVOKE"))
_SETVAL = re.compile(r"(?i)\bsetval\b")


def _sets_counter(statement: str) -> bool:
    """Calls setval(), in the statement or in a block of code in it."""
    return bool(_SETVAL.search(statement)) and any(
        _SETVAL.fullmatch(text) or (kind == "dollar" and _SETVAL.search(text))
        for kind, text in ((kind, statement[begin:end]) for kind, begin, end in tokens(statement))
        if kind in ("word", "dollar")
    )


def _refuse_copy(statement: str) -> None:
    words = {statement[begin:end].upper() for kind, begin, end in tokens(statement) if kind == "word"}
    if words & {"STDIN", "STDOUT"}:
        raise Refused(
            "COPY through the connection needs data that a statement does not have.",
            hint="Nothing was changed. Insert the rows with executemany, or COPY from a file of the server.",
        )
    if "PROGRAM" in words or "TO" in words:
        raise Refused(
            "COPY to a file or a program of the server cannot be taken back.", hint="Nothing was changed."
        )


# A word that only changes: asking first whether it could be read would be a round trip for nothing.
WRITES = frozenset(
    ("INSERT", "UPDATE", "DELETE", "MERGE", "TRUNCATE", "COPY", "CREATE", "ALTER", "DROP", "GRANT", "REVOKE",
     "COMMENT", "REFRESH", "REINDEX", "IMPORT", "SECURITY", "LOCK")
)  # fmt: skip
