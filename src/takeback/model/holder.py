"""Who has the rows that somebody waits for, and what is said of it."""

from typing import NamedTuple

from takeback.errors import RowsHeld
from takeback.model.ids import short


class Holder(NamedTuple):
    """Who has it."""

    effect: str = ""  # which is held for a decision; empty: an ordinary session
    lasting: bool = False  # held by the database; else by a session, which alone can decide
    session: str = ""  # in words

    @property
    def words(self) -> str:
        return f"effect {short(self.effect)}, which is held for a decision" if self.effect else self.session


def busy(holder: Holder, about: str = "") -> RowsHeld:
    """The error, with the way out."""
    before = f"{about}: " if about else ""
    if not holder.effect:
        return RowsHeld(
            f"{before}others are at work on the same rows, and did not end in time: {holder.session}.",
            hint="Nothing was changed. Try again when they have ended; lock_seconds in settings.json is how long an "
            "undo waits for others.",
        )
    return RowsHeld(
        f"{before}effect {short(holder.effect)} is held for a decision, and has what this would change.",
        hint=f"Nothing was changed. {way_out(holder)}",
        effect=holder.effect,
    )


def way_out(holder: Holder) -> str:
    name = short(holder.effect)
    if holder.lasting:
        return (
            f"`takeback apply {name}` commits it, `takeback discard {name}` drops it, once its run has ended; until "
            "then that run decides. Then try again."
        )
    return "Its session applies or discards it; else it is dropped when its time is over."
