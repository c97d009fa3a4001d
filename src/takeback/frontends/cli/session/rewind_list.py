"""The list that `rewind` shows: prompts, the calls in them, and what would go back from the one that is chosen."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from takeback.api import now
from takeback.audit.diff import difference_of_all
from takeback.errors import TakebackError
from takeback.frontends.cli.output.log_table import amount
from takeback.frontends.cli.output.screen import (
    ago,
    clean,
    clean_line,
    counted,
    for_reader,
    from_here,
    here,
    near,
)
from takeback.model.effect import Effect, State
from takeback.model.plan import Outcome, TargetOutcome, UndoResult
from takeback.model.remedy import Target
from takeback.model.resource import display
from takeback.model.run import member_of
from takeback.runs.prompt_span import SessionPart
from takeback.runs.prompts import AgentSession, Prompt, SinceCall, prompts_of
from takeback.storage.protocols import Query

if TYPE_CHECKING:
    from takeback.api import Takeback

ON_CONFLICT = "merge-or-skip"  # later changes by others stay
_HAPPENED = (State.DONE, State.UNDONE, State.STUCK)
_MOST_COMPARED = 50  # files
_MOST_LISTED = 500  # lines


class RewindEntry(NamedTuple):
    """A prompt, or a call in it."""

    part: SessionPart
    calls: tuple[Effect, ...] = ()  # of a prompt, newest first

    @property
    def key(self) -> str:
        if isinstance(self.part, SinceCall):
            return self.part.effect.id
        return self.part.point.id if isinstance(self.part, Prompt) else ""

    @property
    def is_call(self) -> bool:
        return isinstance(self.part, SinceCall)


class Line(NamedTuple):
    text: str
    style: str = ""
    wraps: bool = False  # a sentence, which may take several lines of the terminal

    def wrapped(self, columns: int) -> "Iterator[Line]":
        from textwrap import wrap

        pieces = wrap(self.text, max(columns, 1)) if self.wraps else (self.text,)
        yield from (self._replace(text=piece) for piece in pieces)


def entries_of(tb: "Takeback", session: AgentSession) -> tuple[RewindEntry, ...]:
    """Newest first; last what was done before the first prompt, if anything was."""
    found: dict[str, list[Effect]] = {}
    prompts = tuple(reversed(prompts_of(tb.store.journal, session)))
    queries = (Query(run=info.id, states=_HAPPENED, made=True) for info in session.runs)
    effects = sorted(
        (one for query in queries for one in tb.store.journal.effects(query)), key=lambda one: -one.order
    )
    waiting = list(effects)
    for prompt in prompts:
        mine = found.setdefault(prompt.point.id, [])
        while waiting and waiting[0].order > prompt.point.seq:
            mine.append(waiting.pop(0))
    first = [RewindEntry(session, tuple(waiting))] if waiting else []
    return (*(RewindEntry(one, tuple(found[one.point.id])) for one in prompts), *first)


def opened_entries(entries: Sequence[RewindEntry], open_keys: set[str]) -> list[RewindEntry]:
    """As they are listed: calls below the prompts that are open."""
    shown: list[RewindEntry] = []
    for entry in entries:
        shown.append(entry)
        if entry.key in open_keys:
            session = entry.part if isinstance(entry.part, AgentSession) else entry.part.session
            shown += [RewindEntry(SinceCall(session, one)) for one in entry.calls]
    return shown


def line_of(entry: RewindEntry, open_keys: set[str], today: int = 0) -> Line:
    today = today or now()
    part = entry.part
    if isinstance(part, SinceCall):
        effect = part.effect
        by = next((member_of(one) for one in part.session.runs if one.id == effect.run), "")
        marks = [f"subagent {clean(by)}"] if by else []
        marks += ["outside"] if effect.is_elsewhere else []
        marks += [effect.not_by_agent] if effect.not_by_agent else []
        marks += [effect.state.value] if effect.state is not State.DONE else []
        told = ", ".join(filter(None, (amount(effect), *marks)))
        text = f"      {ago(effect.at, today):<11}  {from_here(effect.change.summary)}"
        return Line(f"{text}  ({told})" if told else text, "dim" if effect.state is State.UNDONE else "")
    sign = " " if not entry.calls else "-" if entry.key in open_keys else "+"
    standing = [one for one in entry.calls if one.state is not State.UNDONE]
    told = counted(len(entry.calls), "call") if entry.calls else "no changes"
    told += ", undone" if entry.calls and not standing else ""
    if isinstance(part, Prompt):
        words = clean(part.text) or "(no words)"
        return Line(
            f"{sign} {part.number:>3}  {ago(part.point.at, today):<11}  {words}  ({told})",
            "" if standing else "dim",
        )
    return Line(f"{sign}      {'':<11}  before the first prompt  ({told})", "" if standing else "dim")


# What would go back.


class Preview(NamedTuple):
    lines: tuple[Line, ...]
    effects: tuple[str, ...] = ()  # ids; none: nothing can be done from here
    question: str = ""


def preview(tb: "Takeback", part: SessionPart) -> Preview:
    try:
        plan = tb.undo(part, dry_run=True, on_conflict=ON_CONFLICT)
    except TakebackError as error:
        hint = [Line(f"hint: {clean(error.hint)}", "dim", wraps=True)] if error.hint else []
        return Preview((Line(clean(str(error)), "yellow", wraps=True), *hint))
    back = {one.resource for one in plan.targets if one.outcome is Outcome.UNDONE}
    stays = [one for one in plan.targets if one.outcome not in (Outcome.UNDONE, Outcome.ALREADY)]
    calls, paths = counted(len(plan.effects), "effect"), counted(len(back), "path")
    head = [Line(f"Would take back {calls}: {paths}", "bold")]
    head += [Line(f"  stays  {_named(one)}  {from_here(one.detail)}", "yellow", wraps=True) for one in stays]
    if not back:
        return Preview(tuple(head))
    body = [*head, *_paths(plan), *_differences(tb, plan, {one.resource for one in stays})]
    question = f"Take back {calls} ({paths})?"
    return Preview(tuple(body[:_MOST_LISTED]), tuple(one.id for one in plan.effects), question)


def _named(one: TargetOutcome) -> str:
    return near(clean(display(one.resource)), here())


def _paths(plan: UndoResult) -> Iterator[Line]:
    """Each once: where several effects changed it, with what the last of them, that is the oldest, leads to."""
    last = {one.resource: one for one in plan.targets if one.outcome is Outcome.UNDONE}
    for one in list(last.values())[:_MOST_COMPARED]:
        yield Line(f"  {_named(one)}  {from_here(one.detail)}".rstrip())
    if len(last) > _MOST_COMPARED:
        yield Line(f"  and {len(last) - _MOST_COMPARED:,} more")
    for one in plan.targets:
        yield from (_coloured(line) for line in one.diff.splitlines())


def _differences(tb: "Takeback", plan: UndoResult, stays: set[str]) -> Iterator[Line]:
    """From how it is now to how it will be."""
    merged = {one.resource for one in plan.targets if one.diff}
    turned: list[Effect] = []
    seen: set[str] = set()
    for effect in plan.effects:
        if effect.remedy is None or "database" in effect.change.args:
            continue
        seen |= {one.resource for one in effect.targets[:_MOST_COMPARED]}
        targets = tuple(
            Target(one.resource, one.after, one.before)
            for one in effect.targets
            if one.resource in seen and one.resource not in stays and one.resource not in merged
        )
        turned.append(effect._replace(remedy=effect.remedy._replace(targets=targets)))
        if len(seen) > _MOST_COMPARED:
            break
    try:
        parts = difference_of_all(tb.store.blobs, turned)
    except TakebackError as error:
        yield Line(clean(str(error)), "dim")
        return
    for part in parts:
        lines = [clean_line(line.rstrip(b"\n"), tabs=False) for line in part.lines]
        yield from map(_coloured, for_reader(lines))


def _coloured(line: str) -> Line:
    style = {"+": "green", "-": "red", "@": "cyan"}.get(line[:1], "dim")
    return Line(clean(line), "bold" if line[:4] in ("--- ", "+++ ") else style)


def titled(session: AgentSession) -> str:
    return f"Rewind {clean(session.short_name)}: choose the point to go back to"
