"""Conversations with coding agents: which runs they are, and their prompts.

A conversation is a run that lasts, named after the host and the host's id of the conversation. If it is continued after
its end, that is another run of the same name, and both are one session. A prompt is a checkpoint of it. What a subagent
does is a run of its own, whose name begins with that of the conversation; it is part of the session.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from takeback.errors import Misuse, Refused, TakebackError
from takeback.model.effect import Effect, State
from takeback.model.ids import short
from takeback.model.record import Kind
from takeback.model.resource import Scope
from takeback.model.run import (
    MEMBER,
    Checkpoint,
    OnDeath,
    RunInfo,
    UnderPrompt,
    conversation_of,
    member_of,
)
from takeback.runs import checkpoints
from takeback.runs.selection import SHORTEST_PREFIX, latest_first
from takeback.storage.protocols import Journal, Query

if TYPE_CHECKING:
    from takeback.adapters.watch.processes import Lineage
    from takeback.runs.run import Run

HOSTS = ("claude-code", "codex", "gemini", "opencode", "cursor")
_MARK = "prompt"  # the first part of the path of its checkpoint; the second is the host's id of the turn
_SHORT = 8  # characters of the id of a conversation that are shown
_LONGEST = 200  # characters of a prompt that are kept
_WINDOW = 4_000  # records to go back at first, for the prompts around some effects
_HAPPENED = (State.PROPOSED, State.INTENDED, State.DONE, State.UNDONE, State.STUCK)


class AgentSession(NamedTuple):
    """A conversation with an agent in one project."""

    host: str
    id: str  # the host's id of the conversation
    runs: tuple[RunInfo, ...]  # oldest first; those of its subagents too

    @property
    def run(self) -> RunInfo:
        """The newest that is no subagent's."""
        return next((one for one in reversed(self.runs) if not member_of(one)), self.runs[-1])

    @property
    def name(self) -> str:
        return session_name(self.host, self.id)

    @property
    def short_name(self) -> str:
        return f"{self.host} {self.id[:_SHORT]}"


class Prompt(NamedTuple):
    session: AgentSession
    number: int  # from 1, in the order in which they were given
    point: Checkpoint

    @property
    def text(self) -> str:
        return self.point.summary

    @property
    def turn(self) -> str:
        """The host's id of it; "" where it has none."""
        return "".join(self.point.path[1:2])


class SinceCall(NamedTuple):
    """A call of the agent, and all that it did later."""

    session: AgentSession
    effect: Effect


# Names.


def session_name(host: str, session: str, member: str = "", role: str = "") -> str:
    """Of the run of a conversation, or of one of its subagents, by its id and what kind of subagent it is."""
    kind = " ".join("".join(c if c.isprintable() else " " for c in role).split()) or "subagent"
    return f"{host} {session}{MEMBER}{kind} {member}" if member else f"{host} {session}"


def kind_of_member(info: RunInfo) -> str:
    """Such as `Explore`, as its host calls it."""
    return member_of(info).rpartition(" ")[0]


def all_of_member(journal: Journal, info: RunInfo) -> tuple[RunInfo, ...]:
    """Of a subagent every run, since it may have been continued; any other run alone."""
    if not (is_session(info) and member_of(info)):
        return (info,)
    return tuple(one for one in session_of(journal, info).runs if one.name == info.name)


def is_session(info: RunInfo) -> bool:
    """Whether this run is, or was, a conversation with a coding agent."""
    lasts = info.on_death is OnDeath.LEAVE
    return lasts and info.agent in HOSTS and info.name.startswith(session_name(info.agent, ""))


def host_id(info: RunInfo) -> str:
    """Of the conversation, as its host names it."""
    return conversation_of(info)[len(session_name(info.agent, "")) :]


def session_of(journal: Journal, info: RunInfo) -> AgentSession:
    """With every run of that conversation in that project."""
    scope = Scope((info.project,)) if info.project else None
    same = [
        one
        for one in journal.runs(scope=scope)
        if (conversation_of(one), one.project) == (conversation_of(info), info.project) and is_session(one)
    ]
    return AgentSession(info.agent, host_id(info), tuple(same) or (info,))


def sessions(journal: Journal, scope: Scope | None = None, in_order: bool = True) -> tuple[AgentSession, ...]:
    """Those that began in these projects, or changed something there; the one that was active last comes first."""
    found: dict[tuple[str, str], AgentSession] = {}
    for info in journal.runs(scope=scope):
        if is_session(info):
            key = (conversation_of(info), info.project)
            known = found.get(key)
            found[key] = AgentSession(info.agent, host_id(info), (*(known.runs if known else ()), info))
    if not in_order:
        return tuple(found.values())
    return tuple(sorted(found.values(), key=lambda one: -_last_active(journal, one)))


def _last_active(journal: Journal, session: AgentSession) -> int:
    """The newest record of work in it."""
    points = (one.seq for one in _points(journal, session))
    return max(_last_change(journal, session), max(points, default=0))


def _last_change(journal: Journal, session: AgentSession) -> int:
    """When the last effect of the agent took hold; 0 if there is none."""
    orders = [0]
    for info in session.runs:
        query = Query(run=info.id, states=_HAPPENED, made=True)
        found = latest_first(journal, query) if info.effects else ()
        own = (one.order for one in found if not (one.change.facts.others or one.is_elsewhere))
        orders.append(next(iter(own), 0))
    return max(orders)


def last_session(journal: Journal, scope: Scope | None = None) -> AgentSession:
    """The one that changed something last, of those that began in these projects or changed something there."""
    found = list(sessions(journal, scope, in_order=False))
    changed = ((_last_change(journal, one), one) for one in found)
    last, session = max(changed, key=lambda pair: pair[0], default=(0, None))
    if last and session:
        return session
    where = " in this project" if scope else ""
    raise Refused(
        f"No session of a coding agent has changed anything{where}.",
        hint="`takeback log` shows what happened."
        + (
            " takeback records changes of a watched command only below the project."
            if found and scope
            else ""
        ),
    )


def session_named(journal: Journal, name: str, scope: Scope | None = None) -> AgentSession:
    """By the host's id, or the beginning of it; by the name or the id of its run. One of these projects before any
    other."""
    for where in (scope, None) if scope else (None,):
        known = sessions(journal, where)
        for fits in (_is_called, _begins_with):
            found = [one for one in known if fits(one, name)]
            if len(found) == 1:
                return found[0]
            if found:
                choices = ", ".join(f"{one.name} (run {short(one.run.id)})" for one in found[:5])
                raise Misuse(f"{name!r} is ambiguous: {choices}.", hint="Give the id of the run.")
    lists = "`takeback runs` lists the sessions among all runs."
    raise Misuse(f"There is no session {name!r} of a coding agent.", hint=lists)


def _is_called(session: AgentSession, name: str) -> bool:
    return name in (session.id, session.name, *(one.id for one in session.runs))


def _begins_with(session: AgentSession, name: str) -> bool:
    ids = (session.id, session.name, *(one.id for one in session.runs))
    return len(name) >= SHORTEST_PREFIX and any(one.startswith(name) for one in ids)


# Subagents.


class SubagentRuns:
    """Of one conversation, in the process that leads it. They watch the same directories, so they share what is known
    of these."""

    def __init__(self, own: "Run", begin: "Callable[[str], Run]", left_open: Sequence[RunInfo]) -> None:
        """`begin`: continues the open run of that name, or begins one. `left_open`: of them an earlier process."""
        self._own, self._begin = own, begin
        self._open: dict[str, Run] = {}  # by the id of the subagent
        for info in left_open:
            if member_of(info) and conversation_of(info) == own.name:
                self._held(info.name)

    def of(self, host: str, session: str, member: str, role: str) -> "Run":
        return self._open.get(member) or self._held(session_name(host, session, member, role))

    def _held(self, name: str) -> "Run":
        from takeback.runs.run import core_of

        run = self._open[name.rpartition(" ")[2]] = self._begin(name)
        core, own = core_of(run), core_of(self._own)
        core.trees, core.watches, core.families = own.trees, own.watches, own.families
        core.makers, core.is_note = own.makers, own.is_note
        self.follow(own.lineage)
        return run

    def follow(self, lineage: "Lineage | None") -> None:
        from takeback.runs.run import core_of

        for run in self._open.values():
            core_of(run).lineage = lineage

    def get(self, member: str) -> "Run | None":
        return self._open.get(member)

    def end(self, member: str, ends: bool = True) -> None:
        """Its calls have ended. What it did stays; not `ends`: another process may continue it."""
        from takeback.runs.run import core_of

        if run := self._open.pop(member, None):
            core_of(run).trees = {}  # the conversation needs them still
            with suppress(TakebackError):  # it can be ended later
                run.close() if ends else run.leave()

    def end_all(self, ends: bool = True) -> None:
        for member in tuple(self._open):
            self.end(member, ends)


# Prompts.


def mark_prompt(run: "Run", text: str, turn: str = "") -> Checkpoint:
    """Record a prompt of this conversation, before anything is done for it. Given again with the same `turn`, it is
    the one that is recorded already."""
    from takeback.runs.run import core_of

    core = core_of(run)
    with core.lock:
        core.refuse_ended()
        journal = core.parts.journal
        known = [one for one in checkpoints.of_run(journal, core.id) if is_prompt(one)]
        if turn and (same := next((one for one in known if one.path[1:2] == (turn,)), None)):
            return same
        before = known[-1:] or [one.point for one in prompts_of(journal, session_of(journal, core.info))[-1:]]
        number = number_of(before[0]) + 1 if before else 1
        path = (_MARK, turn) if turn else (_MARK,)
        said = checkpoints.draft(core.id, f"prompt {number}", path=path, summary=first_words(text))
        return checkpoints.from_record(core.append(said))


def first_words(text: str) -> str:
    """The first line that says something, without secrets and without characters that cannot be stored or shown."""
    from takeback.policy.secrets import masked

    plain = ("".join(c if c.isprintable() else " " for c in line) for line in text.splitlines())
    line = masked(next((" ".join(one.split()) for one in plain if one.strip()), ""))
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 1]}…"


def is_prompt(point: Checkpoint) -> bool:
    return point.path[:1] == (_MARK,)


def number_of(point: Checkpoint) -> int:
    return int(point.label.removeprefix("prompt "))


def _points(journal: Journal, session: AgentSession) -> list[Checkpoint]:
    return [one for info in session.runs for one in checkpoints.of_run(journal, info.id) if is_prompt(one)]


def prompts_of(journal: Journal, session: AgentSession) -> tuple[Prompt, ...]:
    """Oldest first."""
    return tuple(Prompt(session, number_of(one), one) for one in _points(journal, session))


def prompt_named(journal: Journal, name: str, session: AgentSession | None, scope: Scope | None) -> Prompt:
    """By its number, as `log` shows it; or by the id of its checkpoint, which means the same everywhere. `session`:
    None for the one that changed something last."""
    if name.isascii() and name.isdigit() and len(name) < SHORTEST_PREFIX + 2:
        of = session or last_session(journal, scope)
        known = prompts_of(journal, of)
        if found := next((one for one in known if one.number == int(name)), None):
            return found
        has = f"it has {len(known)}" if known else "it has none"
        raise Misuse(f"There is no prompt {name} in session {of.name}: {has}.", hint=_LISTS)
    points = [one for one in checkpoints.of_run(journal) if is_prompt(one) and one.id.startswith(name)]
    if len(points) != 1 or len(name) < SHORTEST_PREFIX:
        raise Misuse(f"There is no prompt {name!r}.", hint=_LISTS)
    (info,) = journal.runs((points[0].run,))
    return Prompt(session_of(journal, info), number_of(points[0]), points[0])


_LISTS = "`takeback log` shows the number of each prompt that changed something."


# Which prompt an effect belongs to.


def prompts_around(
    journal: Journal, effects: Sequence[Effect], runs: Mapping[str, RunInfo]
) -> dict[str, UnderPrompt]:
    """By effect of a session: the prompt after which it took hold."""
    own = [one for one in effects if one.run in runs and is_session(runs[one.run])]
    points: dict[str, list[Checkpoint]] = {}
    infos = dict(runs)
    for run in dict.fromkeys(one.run for one in own):
        oldest = min(one.order for one in own if one.run == run)
        found = _prompts_from(journal, run, oldest)
        if not found:  # a subagent has a run of its own, and so has a command in a sandbox
            session = session_of(journal, runs[run])
            found = _points(journal, session)
            infos |= {one.id: one for one in session.runs}
        points[run] = list(reversed(found))
    return {one.id: _under(infos, one, points[one.run]) for one in own}


def _under(runs: Mapping[str, RunInfo], effect: Effect, newest_first: Sequence[Checkpoint]) -> UnderPrompt:
    point = next((one for one in newest_first if one.seq < effect.order), None)
    mine = runs[effect.run]
    return UnderPrompt(runs[point.run] if point else mine, point, mine if member_of(mine) else None)


def _prompts_from(journal: Journal, run: str, order: int) -> list[Checkpoint]:
    """Those of a run since the last one before this record: a session has thousands of them, a list shows a few."""
    back = _WINDOW
    while True:
        after = max(0, order - back)
        records = journal.records(after=after, kinds=(Kind.CHECKPOINT,), run=run)
        found = [one for one in map(checkpoints.from_record, records) if is_prompt(one)]
        if not after or (found and found[0].seq < order):
            return found
        back *= 8
