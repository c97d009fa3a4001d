"""Which verbs and tables a statement of SQL names. It is read word by word: what a function does is not seen."""

import re

VERBS = frozenset(
    "select insert update delete merge replace truncate create alter drop rename grant revoke copy load call exec "
    "execute do set reindex vacuum attach detach pragma comment lock refresh".split()
)
_SKIP = re.compile(
    r"""--[^\n]*|/\*.*?\*/|'(?:[^']|'')*'|\$(\w*)\$.*?\$\1\$|"((?:[^"]|"")*)"|`([^`]*)`|\[(\w[^\]]*)\]|([A-Za-z_][\w$]*)|([.;,()])""",
    re.DOTALL,
)
_BEFORE_TABLE = frozenset("from into update table join truncate view index using only".split())
_NOT_A_TABLE = frozenset(
    "if not exists only lateral select values set where concurrently on unique temporary temp or".split()
)


def verbs_and_tables(statement: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """In lower case. A verb counts wherever a statement may begin, also within parentheses."""
    verbs: dict[str, None] = {}
    tables: dict[str, None] = {}
    wanted, begins, name = False, True, ""
    for found in _SKIP.finditer(statement):
        quoted = found.group(2) or found.group(3) or found.group(4)
        word, sign = found.group(5) or "", found.group(6) or ""
        if quoted is None and not word and not sign:
            continue
        lower = word.lower()
        if sign:
            if sign == "." and name:
                name += "."
                continue
            begins = sign in ";("
            wanted = wanted and sign == ","
            name = ""
            continue
        if name.endswith("."):
            del tables[name[:-1]]
            name += lower or quoted.lower()
            tables[name] = None
            continue
        name = ""
        if word and lower in VERBS and (begins or lower in ("insert", "update", "delete", "merge")):
            verbs[lower] = None
        if word and lower in _BEFORE_TABLE:
            wanted = True
        elif wanted and not (word and lower in _NOT_A_TABLE):
            name = lower or quoted.lower()
            tables[name] = None
            wanted = False
        # After WITH … AS (…) the statement goes on.
        begins = lower in ("as", "explain", "analyze", "begin") or (begins and lower == "with")
        if not begins and lower == "do":
            begins = True
    last = tuple(tables)
    plain = tuple(dict.fromkeys(one.rpartition(".")[2] for one in last))
    return tuple(verbs), tuple(dict.fromkeys((*last, *plain)))
