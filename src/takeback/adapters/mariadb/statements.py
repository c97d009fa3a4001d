"""What kind of statement it seems to be. What may be done the server decides: in an XA transaction it refuses whatever
would commit by itself, and what is captured is checked. Here is kept out what has nothing to do with transactions."""

import re
from collections.abc import Collection

from takeback.adapters.database.summary import first_words
from takeback.adapters.mariadb.asking import bare
from takeback.errors import Misuse, NoRemedy

_WRITES = frozenset(["INSERT", "REPLACE", "UPDATE", "DELETE", "LOAD"])
_OPEN = frozenset(
    [
        "SELECT",
        "WITH",
        "SHOW",
        "DESC",
        "DESCRIBE",
        "EXPLAIN",
        "VALUES",
        "TABLE",
        "HELP",
        "DO",
        "CALL",
        "ANALYZE",
        "CHECKSUM",
        "SET",
        "EXECUTE",
        "PREPARE",
        "DEALLOCATE",
        "SAVEPOINT",
        "RELEASE",
    ]
)
_CONTROL = frozenset(["BEGIN", "START", "COMMIT", "ROLLBACK", "XA", "LOCK", "UNLOCK", "USE"])
_DEFINES = frozenset(
    [
        "CREATE",
        "ALTER",
        "DROP",
        "TRUNCATE",
        "RENAME",
        "GRANT",
        "REVOKE",
        "OPTIMIZE",
        "REPAIR",
        "CHECK",
        "COMMENT",
    ]
)
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
    """What can be no part of an effect, with the reason."""
    word = first_words(statement)
    if not word and statement.lstrip().startswith("("):
        word = "SELECT"
    pair = first_words(statement, 2)
    if word in _CONTROL and pair not in ("BEGIN NOT", "ROLLBACK TO", "ROLLBACK WORK"):
        raise Misuse(
            f"{word} is not for a statement of its own: each effect is one transaction on one database.",
            hint="Use `with db.transaction():`, and an address that names the database.",
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
    if word not in _WRITES | _OPEN | _DEFINES and pair not in ("BEGIN NOT", "ROLLBACK TO", "ROLLBACK WORK"):
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


def surely_writes(statement: str) -> bool:
    return first_words(statement) in _WRITES


def refuse_elsewhere(statement: str, others: Collection[str]) -> None:
    """Only the database of the address is captured."""
    for ticked, plain in _QUALIFIED.findall(statement):
        name = ticked.replace("``", "`") or plain
        if name in others:
            raise NoRemedy(
                f"The statement names the database {name}: what it changes there would not be captured.",
                hint="Use an address of that database for it.",
            )
