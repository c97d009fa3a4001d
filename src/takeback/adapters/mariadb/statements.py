"""A statement: what kind it seems to be, what it says where it defines something, its parameters."""

import math
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import date, time, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from takeback.adapters.database import first_words
from takeback.adapters.mariadb.wire import code_of, driver
from takeback.errors import Misuse, NoRemedy, StatementFailed

if TYPE_CHECKING:
    from pymysql.cursors import Cursor


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


class AskedDefinition(NamedTuple):
    what: str
    names: tuple[str, ...]
    exists: bool = False  # IF EXISTS, IF NOT EXISTS
    to: tuple[str, ...] = ()  # of a rename
    head: str = ""  # the statement before the name of the table
    tail: str = ""  # and after it

    def on(self, table: str) -> str:
        """The same statement about another table."""
        return f"{self.head}`{table.replace('`', '``')}`{self.tail}"


def asked(statement: str) -> AskedDefinition | None:
    """None: it is no statement of this kind, or one that says more than is understood here."""
    if found := _GONE.fullmatch(statement):
        names = _names(found["names"])
        if found["truncate"]:
            return AskedDefinition(TRUNCATE, names) if len(names) == 1 else None
        return AskedDefinition(DROP, names, bool(found["exists"]))
    if found := _RENAME.fullmatch(statement):
        names = _names(re.sub(rf"({_NAME})\s+TO\s+", r"\1,", found["pairs"], flags=re.IGNORECASE))
        return AskedDefinition(RENAME, names[::2], to=names[1::2])
    if found := _CREATE.fullmatch(statement):
        tail = found["tail"].rstrip("; \n")
        return AskedDefinition(CREATE, _names(found["name"]), bool(found["exists"]), (), found["head"], tail)
    found = _ALTER.fullmatch(statement) or _INDEX.fullmatch(statement)
    if not found:
        return None
    if to := _ALTER_NAME.fullmatch(found["tail"]):
        return AskedDefinition(RENAME, _names(found["name"]), to=_names(to["to"]))
    tail = found["tail"].rstrip("; \n")
    return AskedDefinition(ALTER, _names(found["name"]), head=found["head"], tail=tail)


def bare(text: str) -> str:
    """Without strings and comments."""
    return _QUOTED.sub(" ", text)


def renamed_columns(wanted: AskedDefinition) -> dict[str, str]:
    """Old names to new ones, as the statement has it; whether they are columns is for others to see."""
    return {
        _plain(found["a"] or found["b"]): _plain(found["to"]) for found in _COLUMN.finditer(bare(wanted.tail))
    }


def _names(text: str) -> tuple[str, ...]:
    return tuple(_plain(name) for name in re.findall(_NAME, text))


def _plain(name: str) -> str:
    return name[1:-1].replace("``", "`") if name.startswith("`") else name


_A_LIST = "Give them as a list, or as a dict for %(name)s. For one parameter: [value]."


def written_out(cursor: "Cursor", statement: str, parameters: Any) -> str:
    """The statement with its parameters in it. Without any, a percent sign is only a percent sign."""
    refuse_no_text(statement)
    given = fit(statement, parameters)
    if not given:
        return statement
    with misfits():
        return cursor.mogrify(statement, given)


def fit_many(statement: str, parameters: Any) -> list[Any]:
    refuse_no_text(statement)
    if isinstance(parameters, (str, bytes, dict)) or not isinstance(parameters, Iterable):
        raise Misuse("executemany takes a list of parameters for each time.", hint="For example [[1], [2]].")
    return [fit(statement, one) for one in cast("Iterable[Any]", parameters)]


def fit(statement: str, parameters: Any) -> Any:
    """A list, or a dict by name, of what the driver knows how to write."""
    if parameters is None:
        return None
    if isinstance(parameters, dict):
        named = cast("dict[Any, Any]", parameters)
        if named and "%s" in statement.replace("%%", ""):
            raise _misfit("%s has no name")  # the whole dict would stand there
        return {name: _value(value) for name, value in named.items()}
    if not isinstance(parameters, (list, tuple)):
        raise Misuse(f"Parameters cannot be given as a {type(parameters).__name__}.", hint=_A_LIST)
    return [_value(value) for value in cast("Sequence[Any]", parameters)]


@contextmanager
def misfits() -> Iterator[None]:
    """While parameters are put into a statement; nothing has gone to the server."""
    try:
        yield
    except (TypeError, ValueError, KeyError, driver().ProgrammingError) as error:
        if code_of(error):
            raise  # of the server
        raise _misfit(str(error)) from error


def _misfit(why: str) -> StatementFailed:
    return StatementFailed(
        f"The parameters do not fit the statement: {why}.",
        hint="Nothing was changed. There must be one for each %s; write a percent sign as %%.",
    )


def refuse_no_text(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise Misuse(
            f"That is no text: it holds half of a character at {error.start}.", hint="Give bytes instead."
        ) from None


def _value(value: Any) -> Any:
    if value is None or isinstance(value, (bool, date, time, timedelta)):
        return value
    if isinstance(value, str):
        refuse_no_text(value)
        return str.__str__(value)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(cast("bytes", value))
    if isinstance(value, (float, Decimal)):
        if not math.isfinite(value):
            raise Misuse(f"MariaDB knows no number {value}.", hint="Give None, or a number.")
        return float(value) if isinstance(value, float) else value
    if isinstance(value, (list, tuple, set, frozenset)):  # for IN %s
        return tuple(_value(one) for one in cast("Iterable[Any]", value))
    from uuid import UUID

    if isinstance(value, UUID):
        return str(value)
    raise Misuse(
        f"MariaDB knows no values of type {type(value).__name__}.",
        hint="Give None, a number, text, bytes, a date or a time.",
    )


# What kind of statement it seems to be. What may be done the server decides: in an XA transaction it refuses
# whatever would commit by itself, and what is captured is checked. Here is kept out what has nothing to do
# with transactions.


WRITES = frozenset(["INSERT", "REPLACE", "UPDATE", "DELETE", "LOAD"])
_OPEN = frozenset((
    "SELECT", "WITH", "SHOW", "DESC", "DESCRIBE", "EXPLAIN", "VALUES", "TABLE", "HELP", "DO", "CALL", "ANALYZE",
    "CHECKSUM", "SET", "EXECUTE", "PREPARE", "DEALLOCATE", "SAVEPOINT", "RELEASE",
))  # fmt: skip

_CONTROL = frozenset(["BEGIN", "START", "COMMIT", "ROLLBACK", "XA", "LOCK", "UNLOCK", "USE"])
_DEFINES = frozenset((
    "CREATE", "ALTER", "DROP", "TRUNCATE", "RENAME", "GRANT", "REVOKE", "OPTIMIZE", "REPAIR", "CHECK", "COMMENT",
))  # fmt: skip

_SETS = re.compile(
    r"\b(GLOBAL|PERSIST|PERSIST_ONLY|TRANSACTION|AUTOCOMMIT|TAKEBACK\w*|TX_\w+|PASSWORD|ROLE|STATEMENT|DEFAULT\s+ROLE"
    r"|SQL_LOG_BIN|TRANSACTION_\w+|COMPLETION_TYPE)\b|/\*M?!",
    re.IGNORECASE,
)
_FILES = re.compile(r"\bINTO\s+(OUTFILE|DUMPFILE)\b", re.IGNORECASE)
_OWN = re.compile(r"(?<![\w$])_tb_\w+", re.IGNORECASE)
# Depends on sql_mode, or is run although it looks like a comment.
_UNSURE = re.compile(r"[\"\\]|/\*M?!")
_QUALIFIED = re.compile(r"(?:`((?:[^`]|``)+)`|\b([A-Za-z_$][\w$]*))\s*\.")


def refuse_unfit(statement: str) -> None:
    """Refuse a statement that cannot be part of an effect, with the reason."""
    word = first_words(statement)
    if not word and statement.lstrip().startswith("("):
        word = "SELECT"
    pair = first_words(statement, 2)
    if word in _CONTROL and pair not in ("BEGIN NOT", "ROLLBACK TO", "ROLLBACK WORK"):
        raise Misuse(
            f"{word} is not for a statement of its own: each effect is one transaction on one database.",
            hint="Leave it out, and name the database in the address.",
        )
    if word in _DEFINES and pair not in ("CREATE TEMPORARY", "DROP TEMPORARY"):
        raise unfit_definition(word)
    if word == "SET" and _SETS.search(statement):
        raise NoRemedy(
            "Settings of the server or of the transaction cannot be changed here: that could not be taken back.",
            hint="Variables of the session can be set.",
        )
    if _FILES.search(statement):
        raise NoRemedy(
            "A file that the server writes could not be taken back.", hint="Read the rows instead."
        )
    if word not in WRITES | _OPEN | _DEFINES and pair not in ("BEGIN NOT", "ROLLBACK TO", "ROLLBACK WORK"):
        raise NoRemedy(
            f"{word or 'That'} is no statement that takeback knows how to take back.",
            hint="Known are SELECT, INSERT, REPLACE, UPDATE, DELETE, LOAD DATA and CALL.",
        )


def refuse_own(statement: str) -> None:
    """What takeback keeps is the way back of everybody. Strings do not count, if it is sure that they are strings."""
    unsure = _UNSURE.search(statement) or first_words(statement) in ("EXECUTE", "PREPARE", "BEGIN", "SET")
    text = statement if unsure else bare(statement)
    if found := _OWN.search(text):
        raise NoRemedy(
            f"The statement names {found.group()}, which is where the way back is kept.",
            hint="Nothing was changed. Leave the tables alone whose names begin with _tb_.",
        )


def unfit_definition(word: str) -> NoRemedy:
    return NoRemedy(
        f"{word} cannot be taken back: MariaDB commits it by itself, whatever transaction it is in.",
        hint="Nothing was changed. Rows can be taken back, and so can tables and indexes that are created, altered "
        "or dropped by name.",
    )


def refuse_elsewhere(statement: str, others: Collection[str]) -> None:
    """Only the database of the address is captured."""
    for ticked, plain in _QUALIFIED.findall(statement):
        name = ticked.replace("``", "`") or plain
        if name in others:
            raise NoRemedy(
                f"The statement names the database {name}: what it changes there would not be captured.",
                hint="Use an address of that database for it.",
            )
