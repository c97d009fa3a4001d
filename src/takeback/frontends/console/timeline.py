"""The timeline: effects newest first, a page at a time, under their prompts and runs; narrowed and searched."""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from takeback.api import now, opened_of
from takeback.errors import Misuse, TakebackError
from takeback.frontends.cli.output.log_table import partly_undone
from takeback.frontends.console.paper import address
from takeback.frontends.console.visit import Answer, Redirected, Shown, Visit
from takeback.model.effect import Effect, State, state_named
from takeback.model.ids import LENGTH, short
from takeback.model.record import canonical
from takeback.model.resource import Scope, display, file_resource
from takeback.model.run import RunInfo, UnderPrompt, member_of
from takeback.model.words import point_in_time
from takeback.runs.selection import SHORTEST_PREFIX
from takeback.storage.protocols import Query

if TYPE_CHECKING:
    from takeback.api import Takeback

PAGE = 50
_LOOKED_AT = 20_000  # effects that one search reads at most
_SEARCH_SECONDS = 0.4
_HAPPENED = (State.PROPOSED, State.INTENDED, State.DONE, State.UNDONE, State.STUCK, State.DROPPED)
FILTERS = ("q", "project", "agent", "run", "state", "path", "since", "all")


class TimelineLine(NamedTuple):
    effect: Effect
    heading: str  # before it; "" if it has that of the line before
    link: str  # of the heading
    amount: str
    partly: bool
    because: str = ""  # it was taken back


class FoundEffects(NamedTuple):
    effects: tuple[Effect, ...]
    before: int  # where the next page begins; 0 at the end
    looked_at: int  # by a search, which did not get to the end; else 0


def page(visit: Visit) -> Answer:
    """The first page, or with `before` a later one."""
    tb, query, word = visit.tb, _query(visit), visit.word("q")
    if goes_to := _named(tb, word):
        return Redirected(goes_to)
    newest = tb.store.journal.newest()  # before what is shown, so that nothing newer is taken for shown
    found = _found(tb, query, word, visit.word("since"))
    fields = {name: visit.word(name) for name in FILTERS}
    first = not visit.number("before")
    data = {
        "lines": list(lines(tb, found.effects)),
        "fields": fields,
        "narrowed": any(fields.values()),
        "older": address("/", **fields, before=found.before) if found.before else "",
        "newest": address("/", **fields),
        "this_page": address("/", **fields, before=visit.number("before")),
        "is_first": first,
        "looked_at": found.looked_at,
        "projects": projects(tb),
        "agents": agents(tb),
        "states": [state.value for state in State],
        "newest_seq": newest,
    }
    return Shown("timeline_part.html" if visit.is_part else "timeline.html", data)


def _query(visit: Visit) -> Query:
    states = (state_named(visit.word("state")),) if visit.word("state") else _HAPPENED
    everything = bool(visit.word("all"))
    if everything and not visit.word("state"):
        states = ()
    run = opened_of(visit.tb).find_run(visit.word("run")).id if visit.word("run") else ""
    path = visit.word("path")
    if path and not path.startswith("/"):
        raise Misuse(
            f"{path!r} is not a whole path.", hint="Give it from / on, as on the machine of the agent."
        )
    canonical(visit.word("agent"))
    project = visit.word("project")
    return Query(
        run=run,
        agent=visit.word("agent"),
        states=states,
        resource=file_resource(_normal(path)) if path else "",
        scope=Scope((project,)) if project else None,
        made=not everything,
        before=visit.number("before"),
        limit=PAGE + 1,
        newest=True,
    )


def _normal(path: str) -> str:
    import os

    return os.path.normpath(path).replace("//", "/")


def _named(tb: "Takeback", word: str) -> str:
    """The page of the effect or run whose id was typed."""
    if not (SHORTEST_PREFIX <= len(word) <= LENGTH and word.isascii() and word.isalnum()):
        return ""
    found = tb.store.journal.resolve(word.lower())
    if len(found) != 1:
        return ""
    return f"/run/{found[0]}" if any(tb.store.journal.runs(found)) else f"/effect/{found[0]}"


def _found(tb: "Takeback", query: Query, word: str, since: str) -> FoundEffects:
    after = point_in_time(since, now()) if since else 0
    if word:
        return _searched(tb, query, word.casefold(), after)
    found = [one for one in tb.store.journal.effects(query) if one.at >= after]
    shown = tuple(found[:PAGE])
    return FoundEffects(shown, shown[-1].seq if len(found) > PAGE else 0, 0)


def _searched(tb: "Takeback", query: Query, word: str, after: int) -> FoundEffects:
    """Summaries and paths are read from the newest on, for as long as a reader would wait."""
    until = time.monotonic() + _SEARCH_SECONDS
    found: list[Effect] = []
    looked_at, last = 0, 0
    for effect in tb.store.journal.effects(query._replace(limit=0)):
        if effect.at < after:
            break
        looked_at, last = looked_at + 1, effect.seq
        if _says(effect, word):
            found.append(effect)
            if len(found) == PAGE:
                return FoundEffects(tuple(found), last, 0)
        if looked_at >= _LOOKED_AT or (looked_at % 100 == 0 and time.monotonic() > until):
            return FoundEffects(tuple(found), last, looked_at)
    return FoundEffects(tuple(found), 0, 0)


def _says(effect: Effect, word: str) -> bool:
    told = (effect.change.summary, effect.change.kind, effect.agent, effect.note)
    if any(word in one.casefold() for one in told):
        return True
    return any(word in display(one.resource).casefold() for one in effect.targets[:200])


def lines(tb: "Takeback", effects: Sequence[Effect]) -> Iterator[TimelineLine]:
    from takeback.runs.prompts import prompts_around

    ids = tuple({one.run for one in effects})
    runs = {info.id: info for info in tb.store.journal.runs(ids)} if ids else {}
    under = prompts_around(tb.store.journal, effects, runs)
    parted = partly_undone(tb, effects)
    why = _why_taken_back(tb, effects)
    before = ""
    for effect in effects:
        heading, link = _heading(effect, runs, under)
        shown = "" if heading == before else heading
        partly, because = effect.id in parted, why.get(effect.undone_by, "")
        yield TimelineLine(effect, shown, link, amount_of(effect), partly, because)
        before = heading


def _why_taken_back(tb: "Takeback", effects: Sequence[Effect]) -> dict[str, str]:
    """By undo, where someone or a check said it."""
    undos = tuple(one.undone_by for one in effects if one.undone_by)
    found = tb.store.journal.effects(Query(ids=undos)) if undos else ()
    return {one.id: one.change.undo.why for one in found if one.change.undo.why}


def _heading(
    effect: Effect, runs: Mapping[str, RunInfo], under: Mapping[str, UnderPrompt]
) -> tuple[str, str]:
    mine = under.get(effect.id)
    if mine and mine.point:
        member = f" · {member_of(mine.member)}" if mine.member else ""
        text = mine.point.summary or "(empty prompt)"
        return f"{mine.run.agent} · {mine.point.label}: {text}{member}", f"/prompt/{mine.point.id}"
    run = runs.get(effect.run)
    name = run.name if run else short(effect.run)
    return (
        f"{name}{f' · {run.agent}' if run and run.agent and run.agent not in name else ''}",
        f"/run/{effect.run}",
    )


def amount_of(effect: Effect) -> str:
    """How much it changed, in a few words."""
    from takeback.audit.rows import counts_of

    if "database" in effect.change.args:
        return "; ".join(f"{table}: {words}" for table, words in counts_of(effect)[:3])
    if "arguments" in effect.change.args or not effect.targets:
        return ""
    count = len(effect.targets)
    return f"{count:,} path{'' if count == 1 else 's'}"


def projects(tb: "Takeback") -> list[tuple[str, str]]:
    """Projects that something was done in, as resource and path."""
    rows = tb.store.read("SELECT root FROM projects WHERE marked = 1 OR began = 1 ORDER BY root LIMIT 200")
    return [(root, display(root)) for (root,) in rows]


def agents(tb: "Takeback") -> list[str]:
    rows = tb.store.read("SELECT DISTINCT agent FROM runs WHERE agent <> '' ORDER BY agent LIMIT 100")
    return [agent for (agent,) in rows]


def around(tb: "Takeback") -> Mapping[str, Any]:
    """For the head of each page: what waits for a person, and what is stopped. Few at any time, found by an index."""
    from takeback.audit.status import in_doubt_now
    from takeback.engine.approval import proposals
    from takeback.engine.stop import in_words, stops

    told: dict[str, Any] = {
        "stops": (),
        "stoppable": agents(tb),
        "inbox": {"approvals": "?", "in_doubt": "?"},
    }
    with suppress(TakebackError):  # damage: the page itself says more
        told["stops"] = [(one.seq, in_words(one), one.at) for one in stops(tb.store.journal)]
        waiting = [one for one in proposals(tb.store, now()) if not one.decision and not one.never]
        doubts = sum(1 for _ in in_doubt_now(tb.store, now()))
        told["inbox"] = {"approvals": len(waiting), "in_doubt": doubts}
    return told
