"""What a statement that defines something says, as far as it must be known to make it in another way."""

import re
from typing import NamedTuple

TRUNCATE, DROP, CREATE, RENAME, ALTER = "truncate", "drop", "create", "rename", "alter"
_NAME = r"(?:`(?:[^`]|``)+`|[A-Za-z_$][\w$]*)"
_END = r"\s*;?\s*"
_GONE = re.compile(
    rf"\s*(?:(?P<drop>DROP\s+TABLE)(?P<exists>\s+IF\s+EXISTS)?|(?P<truncate>TRUNCATE)(?:\s+TABLE)?)"
    rf"\s+(?P<names>{_NAME}(?:\s*,\s*{_NAME})*)(?:\s+(?:RESTRICT|CASCADE))?{_END}",
    re.IGNORECASE,
)
_CREATE = re.compile(
    rf"(?P<head>\s*CREATE\s+TABLE\s+)(?P<exists>IF\s+NOT\s+EXISTS\s+)?(?P<name>{_NAME})(?P<tail>(?!\s*\.)[\s(].*)",
    re.IGNORECASE | re.DOTALL,
)
_PAIR = rf"{_NAME}\s+TO\s+{_NAME}"
_RENAME = re.compile(rf"\s*RENAME\s+TABLE\s+(?P<pairs>{_PAIR}(?:\s*,\s*{_PAIR})*){_END}", re.IGNORECASE)
_ALTER = re.compile(
    rf"(?P<head>\s*ALTER\s+(?:ONLINE\s+)?TABLE\s+)(?P<name>{_NAME})(?P<tail>(?!\s*\.)\s.*)",
    re.IGNORECASE | re.DOTALL,
)
_ALTER_NAME = re.compile(rf"\s+RENAME\s+(?:(?:TO|AS)\s+|=\s*)?(?P<to>{_NAME}){_END}", re.IGNORECASE)
_INDEX = re.compile(
    rf"(?P<head>\s*(?:CREATE\s+(?:UNIQUE\s+|FULLTEXT\s+|SPATIAL\s+)?|DROP\s+)INDEX\s+{_NAME}"
    rf"(?:\s+USING\s+\w+)?\s+ON\s+)(?P<name>{_NAME})(?P<tail>(?!\s*\.).*)",
    re.IGNORECASE | re.DOTALL,
)
_COLUMN = re.compile(
    rf"\b(?:RENAME\s+COLUMN\s+(?P<a>{_NAME})\s+TO|CHANGE\s+(?:COLUMN\s+)?(?P<b>{_NAME}))\s+(?P<to>{_NAME})",
    re.IGNORECASE,
)
_QUOTED = re.compile(r"'(?:[^'\\]|''|\\.)*'|\"(?:[^\"\\]|\"\"|\\.)*\"|/\*.*?\*/|(?:--\s|#)[^\n]*", re.DOTALL)


class Asked(NamedTuple):
    what: str
    names: tuple[str, ...]
    exists: bool = False  # IF EXISTS, IF NOT EXISTS
    to: tuple[str, ...] = ()  # of a rename
    head: str = ""  # the statement before the name of the table
    tail: str = ""  # and after it

    def on(self, table: str) -> str:
        """The same statement about another table."""
        return f"{self.head}`{table.replace('`', '``')}`{self.tail}"


def asked(statement: str) -> Asked | None:
    """None: it is no statement of this kind, or one that says more than is understood here."""
    if found := _GONE.fullmatch(statement):
        names = _names(found["names"])
        if found["truncate"]:
            return Asked(TRUNCATE, names) if len(names) == 1 else None
        return Asked(DROP, names, bool(found["exists"]))
    if found := _RENAME.fullmatch(statement):
        names = _names(re.sub(rf"({_NAME})\s+TO\s+", r"\1,", found["pairs"], flags=re.IGNORECASE))
        return Asked(RENAME, names[::2], to=names[1::2])
    if found := _CREATE.fullmatch(statement):
        return Asked(
            CREATE,
            _names(found["name"]),
            bool(found["exists"]),
            head=found["head"],
            tail=found["tail"].rstrip("; \n"),
        )
    found = _ALTER.fullmatch(statement) or _INDEX.fullmatch(statement)
    if not found:
        return None
    if to := _ALTER_NAME.fullmatch(found["tail"]):
        return Asked(RENAME, _names(found["name"]), to=_names(to["to"]))
    return Asked(ALTER, _names(found["name"]), head=found["head"], tail=found["tail"].rstrip("; \n"))


def bare(text: str) -> str:
    """Without strings and comments."""
    return _QUOTED.sub(" ", text)


def renamed_columns(wanted: Asked) -> dict[str, str]:
    """Old names to new ones, as the statement has it; whether they are columns is for others to see."""
    return {
        _plain(found["a"] or found["b"]): _plain(found["to"]) for found in _COLUMN.finditer(bare(wanted.tail))
    }


def _names(text: str) -> tuple[str, ...]:
    return tuple(_plain(name) for name in re.findall(_NAME, text))


def _plain(name: str) -> str:
    return name[1:-1].replace("``", "`") if name.startswith("`") else name
