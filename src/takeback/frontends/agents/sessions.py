"""All conversations that are open in a store, and the processes of the agents that lead them."""

import os
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, suppress
from typing import TYPE_CHECKING

from takeback.api import opened_of
from takeback.errors import Refused, Stopped, TakebackError
from takeback.frontends.agents.event import Answer, Event, Kind, Tool
from takeback.frontends.agents.hosts import host, is_note
from takeback.frontends.agents.lookout import SelfGuard
from takeback.frontends.agents.policy import by_policy
from takeback.frontends.agents.session import PROMPT_SECONDS, Session
from takeback.model.progress import Progress
from takeback.model.settings import DAY

if TYPE_CHECKING:
    from takeback.adapters.watch.processes import Lineage

IDLE_DAYS = 7  # then a session counts as ended
_HOUR = 3600
_LOOK_SECONDS = 270  # that a call waits for the first look; less than the shim waits
_ADOPTED = 0.5  # seconds, of which a caller waits one
_LONG_SECONDS = 3  # that it waits without a word


# Of a subagent they say nothing: it has a beginning and an end of its own.
_OF_CONVERSATION = (Kind.SESSION_START, Kind.TURN_END, Kind.SESSION_END)


class LookCount(Progress):
    """How far the first look at a project is. It counts and draws nothing."""

    def __init__(self) -> None:
        self._items, self._expected, self._noun = 0, 0, ""

    def stage(self, doing: str, noun: str = "path", ticks: bool = False) -> AbstractContextManager[None]:
        self._items, self._expected, self._noun = 0, 0, noun
        return super().stage(doing, noun, ticks)

    def expect(self, items: int = 0, bytes: int = 0) -> None:
        self._expected += items

    def moved(self, bytes: int = 0, items: int = 0) -> None:
        self._items += items

    def __str__(self) -> str:
        """Empty as long as there is nothing to count."""
        from takeback.adapters.file.states import counted

        if not self._items:
            return ""
        known = counted(self._expected, self._noun)
        return (
            f" ({self._items:,} of {known})"
            if self._expected
            else f" ({counted(self._items, self._noun)} so far)"
        )


class Sessions:
    """All that are open in this store."""

    def __init__(self, store: str) -> None:
        import takeback

        self._tb = takeback.open(store)
        opened_of(self._tb).progress = self._count = LookCount()
        self._open: dict[tuple[str, str], Session] = {}
        self._led: dict[
            tuple[str, str], tuple[str, str]
        ] = {}  # subagents: the conversation that leads, and the kind
        self._lock = threading.RLock()
        self._lineage: Lineage | None = None
        self._idle_at = 0.0
        self._lookout = SelfGuard(self._tb.store)

    def answer(self, event: Event, environment: Mapping[str, str]) -> Answer:
        """`environment`: of the agent, as far as the shim tells it."""
        event = self._in_its_conversation(event)
        if event.kind is Kind.OTHER or (not event.session and event.kind is not Kind.BEFORE_CALL):
            return Answer()
        if not event.session:
            raise Refused(
                "The agent did not say which conversation this call belongs to.",
                hint="Its version may not be known to takeback.",
            )
        stopped = self._stopped(event)
        if stopped and event.kind is Kind.BEFORE_CALL:
            return Answer(refusal=stopped, final=True)
        if refusal := self._lookout.refusal(event, environment):
            return Answer(refusal=refusal)
        ruled = by_policy(opened_of(self._tb).parts, event)
        if ruled.refusal:
            return ruled
        with self._lock:
            session = self._session(event, environment)
        if session is None:
            return Answer()
        looking = self._waited_for_look(session, event)
        with self._lock:
            news = self._lookout.news(event, environment)
            try:
                answer = session.answer(event)
            except Stopped as error:  # since it was asked above
                opened_of(self._tb).stops.forget()
                return Answer(refusal=self._stopped(event) or f"takeback: {error}", final=True)
            except TakebackError:
                if not news.context:
                    raise
                return news
            if event.kind is Kind.SESSION_END:
                self._open.pop((event.host, event.session), None)
                self._lookout.forget(event.session)
            elif event.kind is Kind.AFTER_CALL:
                self._lookout.remember()
            told = stopped if event.kind is Kind.PROMPT else ""
            context = "\n".join(filter(None, (told, answer.context, news.context)))
            notice = "\n".join(filter(None, (told, looking, answer.notice or news.notice)))
            return answer._replace(context=context, notice=notice, asks=answer.asks or ruled.asks)

    def _stopped(self, event: Event) -> str:
        """Why this agent or its conversation does nothing more; empty if it is not stopped. Asked without the lock, and
        before any look: a call must not wait for that."""
        from takeback.engine.stop import in_words, way_out
        from takeback.runs.prompts import session_name

        if event.kind not in (Kind.BEFORE_CALL, Kind.PROMPT):
            return ""
        conversation = session_name(event.host, event.session)
        for one in opened_of(self._tb).stops():
            if one.concerns(event.host, "", conversation):
                return (
                    f"takeback: {in_words(one)}. No call of it is let through. Do not try again, and do not look for "
                    f"another way; inform the person. {way_out(one)}"
                )
        return ""

    def _in_its_conversation(self, event: Event) -> Event:
        """Cursor gives a subagent a conversation of its own, and names the one that leads it when it begins."""
        name = event.host, event.member
        if event.kind is Kind.SUBAGENT_START and event.member not in ("", event.session):
            self._led[name] = event.session, event.role
        elif event.kind is Kind.SUBAGENT_END:
            self._led.pop(name, None)
        led = self._led.get((event.host, event.session))
        if led is None:
            return event
        kind = Kind.OTHER if event.kind in _OF_CONVERSATION else event.kind
        return event._replace(session=led[0], member=event.session, role=event.role or led[1], kind=kind)

    def _waited_for_look(self, session: Session, event: Event) -> str:
        """What a person reads during the first look at a large project, and after a command that waited for it."""
        began = time.monotonic()
        if event.kind is Kind.PROMPT and not session.wait_for_look(PROMPT_SECONDS):
            return (
                f"takeback is looking at {session.project}{self._count}, so that shell commands can be undone. "
                "The first of them waits until this is done."
            )
        if event.kind is Kind.BEFORE_CALL and event.tool in (Tool.SHELL, Tool.OTHER):
            session.wait_for_look(_LOOK_SECONDS)
            waited = time.monotonic() - began
            if waited > _LONG_SECONDS:
                return (
                    f"This call waited {waited:.0f} seconds until takeback had looked at {session.project}. "
                    "The calls after it do not wait."
                )
        return ""

    def _session(self, event: Event, environment: Mapping[str, str]) -> "Session | None":
        name = (event.host, event.session)
        known = self._open.get(name)
        if known and not known.is_over:
            return known.of(event)
        if event.kind in (Kind.SESSION_END, Kind.TURN_END, Kind.SUBAGENT_END):
            return None if known is None else known
        project = event.project or event.cwd
        if not os.path.isdir(project):
            raise Refused(
                f"The project directory {project!r} is not there.", hint="Start the agent in a directory."
            )
        self._follow_processes()
        session = self._open[name] = Session(
            self._tb,
            event,
            os.path.realpath(project),
            self._lineage,
            self._lock,
            self._is_note(event.host, environment),
        )
        return session

    def _is_note(self, name: str, environment: Mapping[str, str]) -> Callable[[bytes], bool]:
        """What a call changes beside its work: the agent's own files, and takeback's notes if it runs takeback."""
        ours = os.fsencode(os.path.dirname(self._tb.store.hook_note))
        theirs = is_note(name, environment)
        return lambda path: os.path.dirname(path) == ours or theirs(path)

    def _follow_processes(self) -> None:
        """Who starts whom, for all sessions; where the kernel tells."""
        from takeback.adapters.watch.processes import open_lineage

        if self._lineage is not None and not self._lineage.lost:
            return
        self._lineage = open_lineage()
        for session in self._open.values():
            session.follow(self._lineage)

    def adopt(self, parent: int, child: int) -> bool:
        """A process of the starter works for that one: what it changes counts as that one's. Not if that takes long."""
        if self._lineage is None:
            return True
        if not self._lock.acquire(timeout=_ADOPTED):
            return False
        try:
            self._follow_processes()
            self._lineage.adopt(parent, child)
            return True
        finally:
            self._lock.release()

    def agents(self) -> str:
        """Their processes, for a command that asks who started it."""
        with self._lock:
            found = {one.agent: one.host for one in self._open.values() if one.agent and one.agent_lives()}
        return "".join(f"{pid} {host(name).TITLE}\n" for pid, name in found.items())

    def record(self) -> str:
        """What changed until now, for someone who is about to take back what an agent did."""
        with self._lock:
            self._forget_dead()
            for session in self._open.values():
                session.record()
        return "recorded\n"

    def collect(self) -> None:
        """Often, while a call is under way: the kernel's queue of reports is short."""
        for session in list(self._open.values()):
            session.collect()

    def look_after(self) -> None:
        """Twice a second: who started whom is taken, and agents that have died are noticed."""
        if not self._lock.acquire(blocking=False):
            return  # soon again
        try:
            if self._lineage is not None:
                self._lineage.drain()
                self._lineage.keep_only({os.getpid(), *(one.agent for one in self._open.values())})
                if self._lineage.lost:
                    self._follow_processes()
            self._forget_dead()
            if time.monotonic() > self._idle_at:
                self._idle_at = time.monotonic() + _HOUR
                self._accept_idle()
        finally:
            self._lock.release()

    def _forget_dead(self) -> None:
        for name, session in list(self._open.items()):
            if not session.agent_lives():
                with suppress(TakebackError):
                    session.agent_ended()
                del self._open[name]

    def _accept_idle(self) -> None:
        """Sessions of which no one has said that they ended."""
        from takeback.runs.prompts import is_session
        from takeback.storage.protocols import Query

        journal = self._tb.store.journal
        ended = time.time_ns() // 1000 - IDLE_DAYS * DAY * 1_000_000
        for info in list(journal.runs(unfinished=True)):
            newest = next(journal.effects(Query(run=info.id, newest=True, limit=1)), None)
            if is_session(info) and max(info.opened_at, newest.at if newest else 0) < ended:
                with suppress(TakebackError):  # one that is held, or cannot be settled now: another time
                    self._tb.resume(info, wait=0).close()

    def any_agent_lives(self) -> bool:
        return bool(self._open)

    def any_open_call(self) -> bool:
        return any(session.any_open_call for session in list(self._open.values()))

    @property
    def is_over(self) -> bool:
        """Someone removed or exchanged the store: the next daemon opens what has its name now."""
        return self._lookout.is_over

    def close(self, by_signal: str = "") -> None:
        """What is open stays open: the next daemon takes it up."""
        with self._lock:
            for session in self._open.values():
                with suppress(TakebackError):
                    session.leave()
            if self._lineage is not None:
                self._lineage.close()
            self._lookout.ends(by_signal if self._open else "")
            self._tb.close()
