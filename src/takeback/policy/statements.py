"""Which verbs and tables a statement of SQL names. It is read word by word: what a function does is not seen."""

import re

VERBS = frozenset((
    "select", "insert", "update", "delete", "merge", "replace", "truncate", "create", "alter", "drop", "rename",
    "grant", "revoke", "copy", "load", "call", "exec", "execute", "do", "set", "reindex", "vacuum", "attach", "detach",
    "pragma", "comment", "lock", "refresh",
))  # fmt: skip
_TOKEN = re.compile(
    r"""--[^\n]*|/\*.*?\*/|'(?:[^']|'')*'|\$(\w*)\$.*?\$\1\$"""
    r"""|"(?P<double>(?:[^"]|"")*)"|`(?P<back>[^`]*)`|\[(?P<square>\w[^\]]*)\]"""
    r"""|(?P<word>[A-Za-z_][\w$]*)|(?P<sign>[.;,()])""",
    re.DOTALL,
)
_BEFORE_TABLE = frozenset(
    ("from", "into", "update", "table", "join", "truncate", "view", "index", "using", "only")
)
_NOT_A_TABLE = frozenset((
    "if", "not", "exists", "only", "lateral", "select", "values", "set", "where", "concurrently", "on", "unique",
    "temporary", "temp", "or", "table",
))  # fmt: skip
_ANYWHERE = ("insert", "update", "delete", "merge")  # also after WITH … AS (…)
_GOES_ON = ("as", "explain", "analyze", "begin", "do", "with", "recursive")


def verbs_and_tables(statement: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """In lower case; a table by its whole name and by the last part of it."""
    verbs: dict[str, None] = {}
    tables: dict[str, None] = {}
    wanted, listing, begins, name = False, False, True, ""
    for found in _TOKEN.finditer(statement):
        quoted = found["double"] or found["back"] or found["square"]
        text = (found["word"] or quoted or "").lower()
        if sign := found["sign"]:
            if sign == "." and name:
                name += "."
                continue
            begins, name = sign in ";(", ""
            wanted, listing = sign == "," and (wanted or listing), sign == "," and listing
            continue
        if not text:
            continue
        if name.endswith("."):
            tables.pop(name[:-1], None)
            name += text
            tables[name] = None
            continue
        name = ""
        if found["word"] and text in VERBS and (begins or text in _ANYWHERE):
            verbs[text] = None
        if found["word"] and text in _BEFORE_TABLE:
            wanted = True
        elif wanted and not (found["word"] and text in _NOT_A_TABLE):
            name = text
            tables[name] = None
            wanted, listing = False, True
        elif found["word"] and text in _NOT_A_TABLE:
            listing = False
        begins = text in _GOES_ON
    plain = (one.rpartition(".")[2] for one in tables)
    return tuple(verbs), tuple(dict.fromkeys((*tables, *plain)))
