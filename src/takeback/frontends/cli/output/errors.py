"""How a command ends when not all goes as it should: what is said of it, and with which exit code."""

import os
from collections.abc import Iterable, Sequence
from typing import Any

from takeback.errors import InDoubt, Misuse, TakebackError
from takeback.frontends.cli.output.screen import (
    Screen,
    Unprintable,
    at_store,
    complain,
    error_json,
    here,
    listed,
    warn,
)
from takeback.model.ids import short

_WORST_FIRST = (6, 7, 4, 1, 3, 5, 2)  # of several exit codes the one that counts


def complained(error: TakebackError, as_json: bool) -> int:
    try:
        complain(error, as_json)
    except Unprintable:
        complain(error, as_json=False)  # standard error may still be heard
    return error.exit_code


def worst_first(errors: Iterable[TakebackError]) -> list[TakebackError]:
    return sorted(errors, key=lambda error: _WORST_FIRST.index(error.exit_code))


def exit_code(some_done: bool, errors: Sequence[TakebackError]) -> int:
    """Of several changes: "refused" promises an untouched world, so a mixture is "failed", unless it is worse."""
    if not errors:
        return 0
    worst = worst_first(errors)[0].exit_code
    return worst if worst in (4, 6, 7) or not some_done else 1


def in_doubt(error: InDoubt) -> str:
    """The last line of a command whose exit code cannot say it."""
    known = [short(one) for one in (error.effect, *error.others) if one]
    shown = "; ".join(f"`takeback show {one}`" for one in known)
    says = f": {', '.join(known)}; {shown} says what is known" if known else ""
    return f"in doubt{says}. Look before you repeat it."


def as_field(screen: Screen, errors: Sequence[TakebackError]) -> dict[str, Any]:
    """For the JSON answer of a command that did some of what it was asked for: the worst trouble comes first."""
    return {"error": error_json(aimed(errors[0], screen.store))} if errors else {}


def told_trouble(screen: Screen, errors: Sequence[TakebackError]) -> int:
    """The end of such a command: what the matter is, and the exit code. With --json it is part of the answer."""
    for error in errors if not screen.json else ():
        complain(aimed(error, screen.store), as_json=False)
    return errors[0].exit_code if errors else 0


def aimed(error: TakebackError, store: str | None) -> TakebackError:
    """With a hint that can be pasted: the commands in it are about the same store."""
    error.hint = at_store(error.hint, store)
    return error


def printable(store: str) -> str:
    """As --store named it; an address without its password."""
    if "://" not in store:
        return store
    from takeback.model.database import without_password

    return without_password(store)


def in_our_words(error: Exception) -> TakebackError:
    if isinstance(error, FileNotFoundError) and not here().directory:
        return Misuse("The current directory does not exist any more.", hint="Go to one that does: cd /")
    return TakebackError(
        f"{type(error).__name__}: {error}".rstrip(".") + "; this is a bug in takeback.",
        hint="Set TAKEBACK_DEBUG=1 for a traceback. `takeback status` shows the state of the store.",
    )


def tell_interrupted(at_stake: str, made: list[str], signal: BaseException, unfinished: bool = False) -> None:
    """The current effect was settled before the signal was handled. A command that only looks need not say so."""
    if unfinished:
        told = f"{_listed(made)} {'was' if len(made) == 1 else 'were'} made; " if made else ""
        warn(f"Interrupted; {told}one change is not finished: `takeback recover` finishes it.")
    elif notes := getattr(signal, "__notes__", ()):
        warn(f"Interrupted; {notes[0]}.")
    elif made:
        warn(f"Interrupted; the change{' was' if len(made) == 1 else 's were'} made: {_listed(made)}.")
    elif at_stake:
        warn("Interrupted; nothing was changed." if at_stake == "world" else "Interrupted.")


def tell_unprintable(why: str, made: list[str]) -> None:
    if not made:
        warn(f"error: The answer could not be printed: {why}.")
        warn("hint: Check where standard output goes. `takeback log` shows what was done.")
        return
    warn(f"error: It was done ({_listed(made)}), but the answer could not be printed: {why}.")
    warn(f"hint: `takeback show {short(made[-1])}` shows it.")


def _listed(ids: list[str]) -> str:
    return listed([short(id) for id in ids])


def swallow_output() -> None:
    """Drop output that is still buffered, so that Python does not complain at exit."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.close(nowhere)
