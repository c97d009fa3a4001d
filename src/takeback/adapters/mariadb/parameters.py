"""Parameters of a statement. The driver writes what it does not know as the text of the object, so that is refused."""

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import date, time, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any, cast

from takeback.adapters.mariadb.wire import code_of
from takeback.errors import Misuse, StatementFailed

if TYPE_CHECKING:
    from pymysql.cursors import Cursor

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
    from pymysql import err

    try:
        yield
    except (TypeError, ValueError, KeyError, err.ProgrammingError) as error:
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
