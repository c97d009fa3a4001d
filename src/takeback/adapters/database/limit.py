"""How many rows an effect may change. It is said before the statement runs, and is part of the intent."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

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
