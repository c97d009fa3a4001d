"""One conversation, and what is recorded of it: it is a run, a prompt a checkpoint, a call an effect.

Between two calls of the shell the project is watched too: what changes then is an effect of its own.
"""

import os
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from takeback.errors import Misuse, Refused, TakebackError
from takeback.frontends.agents.event import (
    Answer,
    Event,
    Kind,
    Tool,
    about_call,
    digest,
    fingerprint,
    taken_back,
    unexpected,
)
from takeback.model.effect import COMMAND, Effect, State
from takeback.model.resource import display
from takeback.policy.secrets import masked
from takeback.storage.protocols import Query

if TYPE_CHECKING:
    from takeback.adapters.watch.processes import Lineage
    from takeback.api import Takeback
    from takeback.runs.run import Run
    from takeback.runs.watch import Watch

PROMPT_SECONDS = 1  # that a prompt waits for the first look
_SHORT = 100  # characters of a command in a summary
NEXT_PROMPT, END_OF_TURN = "the next prompt came", "the agent had finished"
END_OF_SUBAGENT = "the subagent had finished"
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
        from takeback.runs.prompts import SubagentRuns, session_name
        from takeback.runs.run import core_of

        self.host, self.id, self.project = event.host, event.session, project
        self.agent = event.agent
        self.is_over = False
        self._tb = tb
        self._lock = lock
        self._process = identity(event.agent) if event.agent else {}
        begin = partial(tb.session, agent=event.host, project=project)
        self._run: Run = begin(session_name(event.host, event.session))
        self._core = core_of(self._run)
        self._core.makers = self._makers
        self._core.asked_first = True
        self._core.is_note = is_note
        self._subagents = SubagentRuns(self._run, begin, tuple(tb.store.journal.runs(unfinished=True)))
        self.follow(lineage)
        self._key_between = f"{event.host}/{event.session}/between"
        self._whole = True  # also what the project ignores and could make again
        self._files: set[str] = set()  # keys of calls that name their files
        self._calls = 0
        self._turn = ""
        # Up to there the agent, and each subagent, knows what happened.
        self._told = defaultdict[str, int](partial(int, tb.store.journal.newest()))
        self._between: Watch | None = None
        self._looked = threading.Event()
        self._look_failed: TakebackError | None = None
        threading.Thread(target=self._look, daemon=True).start()

    def follow(self, lineage: "Lineage | None") -> None:
        self._core.lineage = lineage
        self._core.families.clear()
        self._subagents.follow(lineage)

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
        import gc

        # It keeps nearly all that it makes: to look for cycles in that again and again takes a fifth of the time.
        gc.disable()
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
            self._look_failed = Refused(f"The project could not be looked at: {unexpected(error)}.")
            raise
        finally:
            gc.enable()
            self._looked.set()
            self._give_memory_back()

    def _give_memory_back(self) -> None:
        """A look at a large project needs much of it, and what follows needs little. What was made
        until now stays: the collector looks at it again after the next look, and not in each call."""
        import gc

        from takeback.adapters.file.kernel import libc

        self._tb.store.shrink()
        gc.unfreeze()
        gc.collect()
        gc.freeze()
        libc().give_memory_back()

    def wait_for_look(self, seconds: float) -> bool:
        """Whether it is done within this time."""
        return self._looked.wait(seconds)

    def _begun_between(self) -> "Watch":
        return self._begun(self._watch_between())

    def _watch_between(self) -> "Watch":
        about: dict[str, Any] = {"session": self.id, "between": True}
        return self._watch(self._key_between, about, "in the background, between calls", late=True)

    def _watch(
        self,
        key: str,
        about: dict[str, Any],
        summary: str,
        late: bool = False,
        fresh: bool = False,
        beside: str = "",
        run: "Run | None" = None,
    ) -> "Watch":
        from takeback.runs.run import core_of
        from takeback.runs.watch_place import Manner
        from takeback.runs.watch_resume import watch_with

        about |= {"process": self._process} if self._process else {}
        manner = Manner(key, late, self._whole, fresh, not late and not beside, beside)
        return watch_with(core_of(run or self._run), [self.project], False, about, summary, manner)

    def _begun(self, watch: "Watch") -> "Watch":
        watch.begin()
        return watch

    def _end_between(self, then: "Watch | None" = None) -> None:
        between, self._between = self._between, None
        if between is not None:
            between.finish(then=then)

    def _begin_between(self, watch: "Watch | None" = None) -> None:
        if self._may_begin_between():
            self._between = self._begun(watch or self._watch_between())

    def _may_begin_between(self, but: str = "") -> bool:
        return self._between is None and self._looked.is_set() and not self._watched_calls(but)

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
            Kind.SUBAGENT_END: self._subagent_ended,
            Kind.TURN_END: self._turn_ended,
            Kind.SESSION_END: self._ended,
        }
        return does[event.kind](event) if event.kind in does else Answer()

    def _started(self, event: Event) -> Answer:
        return Answer()

    def _prompted(self, event: Event) -> Answer:
        from takeback.runs.prompts import mark_prompt

        if event.member:  # from the agent that leads it, not from the person
            return Answer(context=self._news(event.member))
        self._close_calls(NEXT_PROMPT, self._run)
        if self._looked.is_set():
            self._end_between()
        if event.text.strip():
            mark_prompt(self._run, event.text, event.turn)
        self._turn = event.turn
        self._begin_between()
        return Answer(context=self._news())

    def _before(self, event: Event) -> Answer:
        from takeback.runs.run import core_of

        if event.tool is Tool.READ:
            return Answer()
        about: dict[str, Any] = {"session": self.id, "call": fingerprint(event), "tool": event.name}
        about |= {"member": event.member} if event.member else {}
        about |= {"process": self._process} if self._process else {}
        if event.tool is Tool.SHELL:
            about |= {"command": digest(event.command), "background": event.background}
        (key, fresh), run = self._key(event), self._run
        if event.member:
            run = self._subagents.of(self.host, self.id, event.member, event.role)
            core_of(run).asked_first = True
        if event.tool is Tool.EDIT and event.paths and not _has_further_names(event.paths, self.project):
            run.watch_files(*event.paths, about=about, summary=_summary(event), key=key).begin()
            self._files.add(key)
            return Answer()
        self._demand_look()
        beside = "at the same time as " if event.apart else ""
        watch = self._watch(key, about, _summary(event), fresh=fresh, beside=beside, run=run)
        self._end_between(watch)
        try:
            watch.begin()
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
        following = self._watch_between() if self._may_begin_between(but=key) else None
        effect = self._finish(key, more, following)
        self._begin_between(following)
        outside = [display(one) for one in watch.outside] if isinstance(watch, Watch) else []
        return Answer(
            context="\n".join(filter(None, (about_call(effect, outside), self._news(event.member))))
        )

    def _subagent_ended(self, event: Event) -> Answer:
        if run := self._subagents.get(event.member):
            self._close_calls(END_OF_SUBAGENT, run)
            self._begin_between()
            self._subagents.end(event.member)
        return Answer()

    def _turn_ended(self, event: Event) -> Answer:
        self._close_calls(END_OF_TURN, self._run)  # a subagent may still be at work
        self._begin_between()
        return Answer()

    def _ended(self, event: Event) -> Answer:
        self._close_calls(END_OF_SESSION)
        if self._looked.wait(PROMPT_SECONDS):
            self._end_between()
        self.is_over = True
        self._subagents.end_all()
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
        self._subagents.end_all(ends=False)
        self._run.leave()

    # Calls.

    def _key(self, event: Event) -> tuple[str, bool]:
        """And whether nothing has it yet. Said twice before its end, a call is one. A call without an id may be
        repeated, word by word."""
        key = f"{self.host}/{self.id}/{fingerprint(event)}"
        known = list(self._tb.store.journal.effects(Query(key=key))) if event.call else []
        if event.call and all(one.state is State.PROPOSED for one in known):
            return key, not known
        self._calls += 1
        return f"{key}/{self._calls}.{time.time_ns()}", True

    def _key_of_open(self, event: Event) -> str:
        key = f"{self.host}/{self.id}/{fingerprint(event)}"
        if key in self._core.watches:
            return key
        run = self._subagents.get(event.member) if event.member else self._run
        return next((one for one in self._open_keys(run) if one == key or one.startswith(f"{key}/")), "")

    def _open_keys(self, run: "Run | None" = None) -> list[str]:
        """Oldest first; also those that a daemon before this one began."""
        prefix = f"{self.host}/{self.id}/"
        states = (State.PROPOSED,)
        found = self._tb.store.journal.effects(Query(run=run.id if run else "", states=states))
        return [one.key for one in found if one.waits_for == COMMAND and one.key.startswith(prefix)]

    @property
    def any_open_call(self) -> bool:
        return bool(self._core.watches.keys() - {self._key_between})

    def _watched_calls(self, but: str = "") -> bool:
        """Whether another call is under way of which the files are not known."""
        return not self._core.watches.keys() <= {self._key_between, but, *self._files}

    def _finish(self, key: str, more: dict[str, Any], then: "Watch | None" = None) -> Effect | None:
        from takeback.runs.watch import Watch

        self._files.discard(key)
        watch = self._core.watches.get(key)
        if isinstance(watch, Watch):
            return watch.finish(more, then)
        return watch.finish(more) if watch else self._tb.finish_watch(key, about=more)

    def _close_calls(self, why: str, run: "Run | None" = None) -> None:
        """Calls without an end: denied, or of a host that does not report it. `run`: None for all of the session."""
        for key in self._open_keys(run):
            with suppress(Misuse):
                self._finish(key, {"closed": why})

    # What the agent should know.

    def _news(self, member: str = "") -> str:
        """What was taken back or brought back since the last news; for a subagent: of what it did itself."""
        since, self._told[member] = self._told[member], self._tb.store.journal.newest()
        if since == self._told[member]:
            return ""
        undos = self._tb.store.journal.effects(Query(undos=True, told_after=since, states=(State.DONE,)))
        return taken_back(self._tb.store.journal, list(undos), self._run.name, member)


def _has_further_names(paths: Sequence[str], project: str) -> bool:
    """Whether one of these files has several names: only a look at the project finds the others."""
    for path in map(os.path.realpath, paths):
        if not path.startswith(f"{project}/"):
            return False  # there it is not looked
    with suppress(OSError):
        return any(os.stat(path).st_nlink > 1 for path in paths if os.path.isfile(path))
    return False


def _summary(event: Event) -> str:
    if event.tool is Tool.SHELL:
        words = masked(" ".join(event.command.split()))  # nothing needs it whole, and it is cut
        return f"{event.name}: {words if len(words) <= _SHORT else words[: _SHORT - 1] + '…'}"
    if event.paths:
        names = ", ".join(os.path.basename(path) for path in event.paths[:3])
        return f"{event.name}: {names}{' …' if len(event.paths) > 3 else ''}"
    return event.name or "a call"
