"""One conversation, and what is recorded of it: it is a run, a prompt a checkpoint, a call an effect.

Between two calls of the shell the project is watched too: what changes then is an effect of its own.
"""

import os
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from takeback.errors import Misuse, Refused, TakebackError
from takeback.frontends.agents.event import Answer, Event, Kind, Tool, digest, fingerprint
from takeback.model.effect import COMMAND, Effect, State
from takeback.model.ids import short
from takeback.model.resource import display
from takeback.storage.protocols import Journal, Query

if TYPE_CHECKING:
    from takeback.adapters.watch.processes import Lineage
    from takeback.api import Takeback
    from takeback.runs.run import Run
    from takeback.runs.watch import Watch

PROMPT_SECONDS = 1  # that a prompt waits for the first look
_SHORT = 100  # characters of a command in a summary
_LISTED = 5
NEXT_PROMPT, END_OF_TURN = "the next prompt came", "the agent had finished"
END_OF_SESSION, AGENT_GONE = "the session ended", "the agent's process ended"


class Session:
    """One conversation."""

    def __init__(
        self,
        tb: "Takeback",
        event: Event,
        project: str,
        lineage: "Lineage | None",
        lock: "threading.RLock",
        is_note: Callable[[bytes], bool],
    ) -> None:
        from takeback.adapters.watch.processes import identity
        from takeback.runs.prompts import session_name
        from takeback.runs.run import core_of

        self.host, self.id, self.project = event.host, event.session, project
        self.agent = event.agent
        self.is_over = False
        self._tb = tb
        self._lock = lock
        self._process = identity(event.agent) if event.agent else {}
        self._run: Run = tb.session(
            session_name(event.host, event.session), agent=event.host, project=project
        )
        self._core = core_of(self._run)
        self._core.makers = self._makers
        self._core.is_note = is_note
        self.follow(lineage)
        self._whole = True  # also what the project ignores and could make again
        self._files: set[str] = set()  # keys of calls that name their files
        self._calls = 0
        self._turn = ""
        self._told = tb.store.journal.tally()["records"]  # up to there the agent knows what happened
        self._between: Watch | None = None
        self._looked = threading.Event()
        self._look_failed: TakebackError | None = None
        threading.Thread(target=self._look, daemon=True).start()

    def follow(self, lineage: "Lineage | None") -> None:
        self._core.lineage = lineage
        self._core.families.clear()

    def collect(self) -> None:
        """A call may change more than the kernel's queue of reports can hold."""
        for watched in list(self._core.trees.values()):
            if watched.feed is not None:
                watched.feed.collect()

    def _makers(self) -> list[int]:
        """What the agent started and still runs."""
        from takeback.adapters.watch.processes import children_of

        return children_of(self.agent) if self.agent else []

    def of(self, event: Event) -> "Session":
        """A conversation may be continued by another process."""
        from takeback.adapters.watch.processes import identity

        if event.agent and event.agent != self.agent:
            self.agent, self._process = event.agent, identity(event.agent)
        return self

    def agent_lives(self) -> bool:
        from takeback.adapters.watch.processes import lives

        return not self._process or lives(self._process)

    # The look at the project, and what changes between calls.

    def _look(self) -> None:
        """The first one may take long, so it is made without the lock; a call waits for it."""
        try:
            try:
                self._between = self._begun_between()
            except TakebackError:
                # Too large with all that could be made again? Then without that, and each effect says so.
                self._whole = False
                self._between = self._begun_between()
        except TakebackError as error:
            self._look_failed = error
        except BaseException as error:
            self._look_failed = Refused(
                f"The project could not be looked at: {type(error).__name__}: {error}."
            )
            raise
        finally:
            self._looked.set()

    def wait_for_look(self, seconds: float) -> None:
        self._looked.wait(seconds)

    def _begun_between(self, follows: bool = False) -> "Watch":
        about: dict[str, Any] = {"session": self.id, "between": True}
        key = f"{self.host}/{self.id}/between"
        return self._watched(key, about, "in the background, between calls", late=True, follows=follows)

    def _watched(
        self,
        key: str,
        about: dict[str, Any],
        summary: str,
        late: bool = False,
        follows: bool = False,
        beside: str = "",
    ) -> "Watch":
        from takeback.runs.watch_place import Manner
        from takeback.runs.watch_resume import watch_with

        about |= {"process": self._process} if self._process else {}
        manner = Manner(key, late, self._whole, not late and not beside, follows, beside)
        watch = watch_with(self._core, [self.project], False, about, summary, manner)
        watch.begin()
        return watch

    def _end_between(self) -> bool:
        """Whether it was under way."""
        between, self._between = self._between, None
        if between is not None:
            between.finish()
        return between is not None

    def _begin_between(self) -> None:
        if self._between is None and self._looked.is_set() and not self._watched_calls():
            self._between = self._begun_between(follows=True)

    def _demand_look(self) -> None:
        if not self._looked.is_set():
            raise Refused(
                f"The first look at {self.project} is not finished yet.",
                hint="Try again in a minute; later looks are quick.",
            )
        if self._look_failed is not None:
            error, self._look_failed, self._whole = self._look_failed, None, True
            self._looked.clear()
            threading.Thread(target=self._look, daemon=True).start()  # it may go well the next time
            raise error

    # Events.

    def answer(self, event: Event) -> Answer:
        does: dict[Kind, Callable[[Event], Answer]] = {
            Kind.SESSION_START: self._started,
            Kind.PROMPT: self._prompted,
            Kind.BEFORE_CALL: self._before,
            Kind.AFTER_CALL: self._after,
            Kind.TURN_END: self._turn_ended,
            Kind.SESSION_END: self._ended,
        }
        return does[event.kind](event) if event.kind in does else Answer()

    def _started(self, event: Event) -> Answer:
        return Answer()

    def _prompted(self, event: Event) -> Answer:
        from takeback.runs.prompts import mark_prompt

        self._close_calls(NEXT_PROMPT)
        if self._looked.is_set():
            self._end_between()
        if event.text.strip():
            mark_prompt(self._run, event.text, event.turn)
        self._turn = event.turn
        self._begin_between()
        return Answer(context=self._news())

    def _before(self, event: Event) -> Answer:
        if event.tool is Tool.READ:
            return Answer()
        about: dict[str, Any] = {"session": self.id, "call": fingerprint(event), "tool": event.name}
        about |= {"member": event.member} if event.member else {}
        about |= {"process": self._process} if self._process else {}
        if event.tool is Tool.SHELL:
            about |= {"command": digest(event.command), "background": event.background}
        key = self._key(event)
        if event.tool is Tool.EDIT and event.paths:
            self._run.watch_files(*event.paths, about=about, summary=_summary(event), key=key).begin()
            self._files.add(key)
            return Answer()
        self._demand_look()
        ended = self._end_between()
        try:
            beside = "at the same time as " if event.apart else ""
            self._watched(key, about, _summary(event), follows=ended, beside=beside)
        except BaseException:
            self._begin_between()
            raise
        return Answer()

    def _after(self, event: Event) -> Answer:
        from takeback.runs.watch import Watch

        key = self._key_of_open(event)
        if not key:
            return Answer()  # the call was not let through, or changes nothing
        more: dict[str, Any] = {"failed": True} if event.failed else {}
        watch = self._core.watches.get(key)
        effect = self._finish(key, more)
        self._begin_between()
        outside = [display(one) for one in watch.outside] if isinstance(watch, Watch) else []
        return Answer(context="\n".join(filter(None, (about_call(effect, outside), self._news()))))

    def _turn_ended(self, event: Event) -> Answer:
        self._close_calls(END_OF_TURN)
        self._begin_between()
        return Answer()

    def _ended(self, event: Event) -> Answer:
        self._close_calls(END_OF_SESSION)
        if self._looked.wait(PROMPT_SECONDS):
            self._end_between()
        self.is_over = True
        self._run.close()
        return Answer()

    def record(self) -> None:
        """What changed since the last call, if none is under way."""
        if self._between is not None:
            self._end_between()
            self._begin_between()

    def agent_ended(self) -> None:
        """Without a word: what it had under way is recorded as it is."""
        self._close_calls(AGENT_GONE)
        if self._looked.is_set():
            self._end_between()
        self.leave()

    def leave(self) -> None:
        self.is_over = True
        self._run.leave()

    # Calls.

    def _key(self, event: Event) -> str:
        """Said twice before its end, a call is one. A call without an id may be repeated, word by word."""
        key = f"{self.host}/{self.id}/{fingerprint(event)}"
        if event.call and not self._was(key):
            return key
        self._calls += 1
        return f"{key}/{self._calls}.{time.time_ns()}"

    def _was(self, key: str) -> bool:
        """Whether a call with this key has ended."""
        found = self._tb.store.journal.effects(Query(key=key, run=self._run.id))
        return any(one.state is not State.PROPOSED for one in found)

    def _key_of_open(self, event: Event) -> str:
        key = f"{self.host}/{self.id}/{fingerprint(event)}"
        return next((one for one in self._open_keys() if one == key or one.startswith(f"{key}/")), "")

    def _open_keys(self) -> list[str]:
        """Oldest first; also those that a daemon before this one began."""
        prefix = f"{self.host}/{self.id}/"
        states = (State.PROPOSED,)
        found = self._tb.store.journal.effects(Query(run=self._run.id, states=states))
        return [one.key for one in found if one.waits_for == COMMAND and one.key.startswith(prefix)]

    @property
    def any_open_call(self) -> bool:
        return bool(self._core.watches.keys() - {f"{self.host}/{self.id}/between"})

    def _watched_calls(self) -> bool:
        """Whether a call is under way of which the files are not known."""
        between = f"{self.host}/{self.id}/between"
        return any(key != between and key not in self._files for key in self._core.watches)

    def _finish(self, key: str, more: dict[str, Any]) -> Effect | None:
        self._files.discard(key)
        watch = self._core.watches.get(key)
        return watch.finish(more) if watch else self._tb.finish_watch(key, about=more)

    def _close_calls(self, why: str) -> None:
        """Calls without an end: denied, or of a host that does not report it."""
        for key in self._open_keys():
            with suppress(Misuse):
                self._finish(key, {"closed": why})

    # What the agent should know.

    def _news(self) -> str:
        """What was taken back or brought back since the last news."""
        since, self._told = self._told, self._tb.store.journal.tally()["records"]
        if since == self._told:
            return ""
        undos = self._tb.store.journal.effects(Query(undos=True, told_after=since, states=(State.DONE,)))
        return taken_back(self._tb.store.journal, list(undos), self._run.id)


def _summary(event: Event) -> str:
    if event.tool is Tool.SHELL:
        words = " ".join(event.command.split())
        return f"{event.name}: {words if len(words) <= _SHORT else words[: _SHORT - 1] + '…'}"
    if event.paths:
        names = ", ".join(os.path.basename(path) for path in event.paths[:3])
        return f"{event.name}: {names}{' …' if len(event.paths) > 3 else ''}"
    return event.name or "a call"


# What the model reads of it.


def about_call(effect: Effect | None, outside: Sequence[str]) -> str:
    """Only what is out of the ordinary: most calls need no word. A call may have no effect but `outside`."""
    said: list[str] = []
    if outside := (effect.change.args.get("outside", ()) if effect else ()) or outside:
        verb = "is" if len(outside) == 1 else "are"
        said.append(
            f"takeback: {_listed(outside)} {verb} outside of the project, so what this call changed there cannot be "
            "taken back."
        )
    if effect and effect.remedy and effect.remedy.residue:
        said.append(f"takeback: undo of {short(effect.id)} is not exact: {effect.remedy.residue}.")
    return "\n".join(said)


def taken_back(journal: Journal, undos: Sequence[Effect], run: str) -> str:
    """Files and conversation no longer agree: which of this run's changes stand no more, or stand again."""
    ids = tuple(one.undoes for one in undos)
    known = {one.id: one for one in journal.effects(Query(ids=ids))} if ids else {}
    gone = [known[one.undoes] for one in undos if one.undoes in known and known[one.undoes].run == run]
    gone = [one for one in gone if not one.is_undo]
    if not gone:
        return ""
    paths = dict.fromkeys(display(target.resource) for one in gone for target in one.targets)
    names = "; ".join(f"{short(one.id)} ({one.change.summary})" for one in gone[:_LISTED])
    more = f" and {len(gone) - _LISTED} more" if len(gone) > _LISTED else ""
    return (
        f"takeback: some of your earlier changes do not stand any more, so files are not as you left them: {names}"
        f"{more}. Concerned: {_listed(list(paths))}. Read a file again before you edit it."
    )


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _LISTED:,} more" if len(names) > _LISTED else ""
    return ", ".join(names[:_LISTED]) + more
