"""A signal came while a command was running: the interruption carries what happened to its changes."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from takeback.frontends.cli.output.screen import clean, counted, listed
from takeback.model.effect import PERSON, Effect, State
from takeback.model.ids import short
from takeback.model.plan import Outcome, UndoResult
from takeback.model.resource import display
from takeback.model.run import OnDeath, RunInfo
from takeback.runs.lease import shared
from takeback.storage.owners import myself
from takeback.storage.protocols import Query

if TYPE_CHECKING:
    from takeback.api import Takeback
    from takeback.runs.run import Run

_BACK = (Outcome.UNDONE, Outcome.ALREADY)


@contextmanager
def ctrl_c_is_for_the_command() -> Iterator[None]:
    """While it runs. A terminal sends ^C to the command as well, and the command decides: an interpreter continues,
    others end. A signal sent to us alone is for us."""
    if not _in_front():
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT,))
    over = threading.Event()
    listener = threading.Thread(target=_listen, args=(over,), name="takeback-signals", daemon=True)
    listener.start()
    try:
        yield
    finally:
        over.set()
        signal.pthread_kill(listener.ident or 0, signal.SIGINT)
        listener.join()
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _listen(over: threading.Event) -> None:
    signals = shared()
    while True:
        heard = signal.sigwaitinfo((signal.SIGINT,))
        if over.is_set():
            return
        if heard.si_code <= 0:  # not the kernel's, so not the terminal's
            signals.hear(signal.SIGINT)


def _in_front() -> bool:
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)


class DoneHere(NamedTuple):
    """What this process has done since it began."""

    made: list[str]
    unfinished: bool = False
    waits: str = ""  # how to make what it held or dropped, in words


def done_here(store: str, began: int, known: list[str]) -> DoneHere:
    """Asked of the store. Only what is `known` if that cannot be asked."""
    import takeback.api
    from takeback.errors import TakebackError
    from takeback.frontends.cli.session.store import made_since, ours_since
    from takeback.storage.sqlite.store import default_path, exists

    path = store or default_path()
    if not exists(path):
        return DoneHere(known)
    try:
        with takeback.api.open(path, recover=False) as tb:
            unfinished = any(_left_by_us(tb, info) for info in tb.store.journal.runs(unfinished=True))
            left = ours_since(tb, began, State.PROPOSED, State.DROPPED)
            return DoneHere(made_since(tb, began) or known, unfinished, _waiting(left))
    except TakebackError:
        return DoneHere(known)


def _waiting(left: list[Effect]) -> str:
    held = [one.id for one in left if one.state is State.PROPOSED and one.waits_for == PERSON]
    if held:
        return _held(held[-1])
    drops = [one.id for one in left if one.state is State.DROPPED]
    return f"nothing was changed; {_after_all(drops[-1])}" if drops else ""


def _after_all(effect: str) -> str:
    return f"`takeback apply {short(effect)}` makes what it had done so far"


def _left_by_us(tb: "Takeback", info: RunInfo) -> bool:
    lease = tb.store.leases.holder(info.id)
    if lease is None or lease.owner != myself():
        return False
    in_flight = tb.store.journal.effects(Query(run=info.id, states=(State.PROPOSED, State.INTENDED)))
    return info.on_death is OnDeath.FINISH or any(one.waits_for != PERSON for one in in_flight)


def taken_back(tb: "Takeback", run: "Run", error: BaseException, nothing: str) -> None:
    """End the run; nothing of it may be left open. `nothing`: how to say that no change was made yet."""
    try:
        result = run.take_back()
    except (KeyboardInterrupt, SystemExit) as again:  # another one, heard when all was taken back
        again.add_note(_in_words(tb, run.id, None, nothing))
        raise
    if isinstance(error, (KeyboardInterrupt, SystemExit)):
        error.add_note(_in_words(tb, run.id, result, nothing))


def unanswered(tb: "Takeback", run: "Run", effect: str, error: BaseException) -> None:
    """A signal instead of an answer to the question what to do with it: it stays held. If it came after the answer, it
    was heard when that was carried out."""
    state = tb.effect(effect).state
    told = "it was discarded; nothing was changed"
    if state is State.DROPPED:
        told = f"{told}; `takeback apply {short(effect)}` makes it after all"
    if state is State.PROPOSED:
        told = _held(effect)
    elif state is State.DONE:
        told = f"it was applied: `takeback undo {short(effect)}` takes it back"
    try:
        run.close()
    except (KeyboardInterrupt, SystemExit) as again:
        again.add_note(told)
        raise
    error.add_note(told)


def _held(effect: str) -> str:
    name = short(effect)
    ways = f"`takeback apply {name}` makes it, `takeback discard {name}` drops it"
    return f"nothing was changed, and what it did is held: {ways}"


def _in_words(tb: "Takeback", run: str, result: UndoResult | None, nothing: str) -> str:
    proposed = tb.store.journal.effects(Query(run=run, states=(State.PROPOSED,)))
    if held := [one for one in proposed if one.waits_for == PERSON]:
        return _held(held[-1].id)
    drops = tuple(tb.store.journal.effects(Query(run=run, states=(State.DROPPED,))))
    if drops:
        nothing = f"{nothing}; {_after_all(drops[-1].id)}"
    if result is None:
        of_run = tb.store.journal.effects(Query(run=run, states=(State.DONE, State.STUCK)))
        left = [one for one in of_run if not one.is_undo]
        return f"not all of it could be taken back: `takeback show {short(left[0].id)}`" if left else nothing
    if not result.effects:
        return nothing
    stay = [one for one in result.targets if one.outcome not in _BACK]
    if not stay:
        return f"what it had changed was taken back: {counted(len(result.targets), 'path')}"
    names = listed([f"{display(one.resource)} {clean(one.detail)}".rstrip(" .") for one in stay], sign="; ")
    name = short(result.effects[0].id)
    return f"not all that it had changed could be taken back: {names}. `takeback undo {name}` tries again"
