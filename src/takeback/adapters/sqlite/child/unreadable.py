"""Text that SQLite keeps and gives out, and that is none: bytes that are not UTF-8, written by some other program."""

from takeback.errors import StatementFailed


def not_utf8() -> StatementFailed:
    return StatementFailed(
        "There is text in these rows that is not UTF-8, so they cannot be read or kept.",
        hint="Nothing was changed. `SELECT CAST(column AS BLOB)` shows the bytes; as a blob or in UTF-8 they can be "
        "kept.",
    )
